"""The help of every weights command fits a terminal of 80 columns."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from glowplug.cli import weights


@pytest.mark.parametrize("name", sorted(weights._COMMANDS))
def test_help_fits_80_columns(name):
    command = [sys.executable, "-m", "glowplug", "weights", name, "--help"]
    ended = subprocess.run(command, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert f"glowplug weights {name} " in ended.stdout.partition("\n")[0]
    assert max(map(len, ended.stdout.splitlines())) <= 80
