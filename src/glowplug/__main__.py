"""``python -m glowplug``."""

from glowplug.entry import main

main()
