"""Text that others wrote reaches a person's screen without being able to act there."""

from __future__ import annotations

import re

import pytest

from glowplug.cache import layout
from glowplug.cache.envelope import Envelope
from glowplug.printable import printable
from glowplug.run.console import Console
from glowplug.store import open_store

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31mgood\u202edoog\r\nglowplug: all is well"


def acts(text):
    """Whether a terminal would do more with it than show letters, line by line."""
    return [character for character in text.replace("\n", "") if not character.isprintable()]


def test_every_character_that_is_not_printable_is_shown_as_its_escape():
    assert printable("Qwen/Qwen3-8B ä") == "Qwen/Qwen3-8B ä"
    assert printable(EVIL) == r"\x1b]0;owned\x07\x1b[2J\x9b31mgood\u202edoog\r\nglowplug: all is well"
    assert not acts(printable("".join(map(chr, range(0x3000)))))


def test_an_envelope_that_nobody_signed_cannot_repaint_the_screen_of_whoever_lists_the_store(tmp_path):
    from tests.run.program import Program

    program = Program(tmp_path)
    envelope = Envelope({"engine": {"name": EVIL, "version": "1"}, "model": {"reference": EVIL}})
    store = open_store(f"file://{program.store}", env={})
    store.put(layout.envelope_key(envelope.digest), envelope.document)
    ended = program("cache", "ls", "--store", f"file://{program.store}")
    assert ended.code == 0
    assert len(ended.out.decode().splitlines()) == 2
    assert not acts(ended.out.decode())
    assert r"\x1b]0;owned" in ended.out.decode()


@pytest.mark.parametrize("line", ["note", "warn"])
def test_a_line_of_ours_stays_one_line_whatever_it_quotes(tmp_path, line):
    path = tmp_path / "stderr"
    with path.open("wb") as stream:
        getattr(Console(stream.fileno()), line)(f"nothing was published: {EVIL}")
    assert re.fullmatch(r"glowplug: nothing was published: [^\n]*\n", path.read_text())
    assert not acts(path.read_text())


def test_an_error_names_its_object_without_acting_on_the_screen(tmp_path):
    from tests.run.program import Program

    ended = Program(tmp_path)("cache", "show", EVIL)
    assert ended.code == 2
    assert not acts(ended.err)
