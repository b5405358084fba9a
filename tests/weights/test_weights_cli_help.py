"""The help of every weights command fits a terminal of 80 columns."""

from __future__ import annotations

import pytest
from commands import weights

from glowplug.cli import weights as commands


@pytest.mark.parametrize("name", sorted(commands._COMMANDS))
def test_help_fits_80_columns(name):
    ended = weights(name, "--help", env={"COLUMNS": "80"})
    assert ended.returncode == 0
    assert f" weights {name} " in ended.stdout.partition("\n")[0]
    assert max(map(len, ended.stdout.splitlines())) <= 80
