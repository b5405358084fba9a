"""Ctrl-C while the command line is still loading: no traceback, and the exit status that a shell expects."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SLOW = """
import importlib.abc, os, signal, sys

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "glowplug.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Slow())
from glowplug.entry import main
sys.argv = ["glowplug", "--version"]
main()
"""


def test_an_interrupt_while_modules_load_ends_it_silently():
    done = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stdout == done.stderr == ""


def test_an_ignored_interrupt_stays_ignored():
    done = subprocess.run(
        [sys.executable, "-c", SLOW],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("glowplug ")


@pytest.mark.parametrize("words", [["-m", "glowplug"], ["-c", "from glowplug.entry import main; main()"]])
def test_every_way_in_reaches_the_command_line(words):
    done = subprocess.run([sys.executable, *words, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("glowplug "), done.stderr
