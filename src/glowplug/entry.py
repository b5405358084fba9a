"""The first of Glowplug that runs: Ctrl-C while its modules still load ends it as quietly as later on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def load() -> Callable[[], None]:
    """The command line, loaded."""
    catches = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # otherwise it is ignored, as under nohup
    if catches:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from glowplug.cli.main import main as command_line  # noqa: PLC0415  this is what takes the time

    if catches:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command_line


def main() -> None:
    """Load the command line and run it."""
    load()()
