"""``python -m glowplug``."""

from glowplug.cli.main import main

main()
