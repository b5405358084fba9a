"""``glowplug weights`` as a user types it, but in this process: one of its own costs most of a second before it does anything."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import NamedTuple
from unittest import mock

from glowplug.cli.main import main


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def weights(*words, env):
    """What the command prints, and its exit code; it sees no other variables than these."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch.object(sys, "argv", ["glowplug", "weights", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
    return Ended(code, out.getvalue(), err.getvalue())
