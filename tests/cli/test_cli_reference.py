"""The reference of the commands: made of the commands, the same everywhere, and never old."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli_help import commands

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture(scope="module")
def sections():
    """What the page says of each command."""
    parts = re.split(r"^#{2,3} (glowplug.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_is_what_the_commands_say_whatever_the_terminal_and_the_settings_of_whoever_makes_it():
    odd = {"COLUMNS": "31", "TERM": "dumb", "FORCE_COLOR": "1", "LC_ALL": "C", "HOME": "/nowhere", "GLOWPLUG_STORE": "s3://mine"}
    made = subprocess.run([sys.executable, "-m", "glowplug.cli.page"], env=os.environ | odd, capture_output=True, check=True)
    assert made.stdout.decode() == PAGE.read_text(), "docs/cli.md is old; run: python -m glowplug.cli.page > docs/cli.md"


@pytest.mark.parametrize("command", commands())
def test_every_command_that_is_not_hidden_is_told_with_all_that_it_takes(command, sections, request):
    words = f"glowplug {request.node.callspec.id}"
    assert (words in sections) is not command.hidden
    if command.hidden:
        return
    for parameter in command.params:
        names = parameter.opts + parameter.secondary_opts if parameter.param_type_name == "option" else [parameter.metavar]
        for name in names:
            assert re.search(rf"^- `(.+ )?{re.escape(name)}[ ,`]", sections[words], re.MULTILINE), name
        for text in (parameter.envvar, parameter.default):
            assert text in (None, "") or isinstance(text, bool) or f"`{text}`" in sections[words]


def test_the_contents_lead_to_every_section(sections):
    links = re.findall(r"\(#([\w-]+)\)", PAGE.read_text())
    assert links == [words.replace(" ", "-") for words in sections if words != "glowplug"]
