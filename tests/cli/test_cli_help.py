"""The command line explains itself: every command has help and an example, every option is described, mistakes get a suggestion."""

from __future__ import annotations

import re
import subprocess

import pytest
import typer

from glowplug.cli.main import app
from tests.run.program import GLOWPLUG, Program


@pytest.fixture(scope="module")
def glowplug(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("help"))


def commands():
    """Every command that does something, with the words that call it."""

    def walk(command, words):
        if hasattr(command, "list_commands"):
            for name in command.list_commands(None):
                yield from walk(command.get_command(None, name), (*words, name))
        else:
            yield pytest.param(command, id=" ".join(words))

    return list(walk(typer.main.get_command(app), ()))


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_an_example_and_json_and_every_option_is_described(command):
    assert len(command.help.split()) >= 5
    examples = re.findall(r"glowplug (?:\w+ )?(\w+)", command.epilog)
    assert command.name in examples, f"no example of {command.name} in {command.epilog!r}"
    for parameter in command.params:
        if parameter.name != "help":
            assert parameter.help, f"{parameter.name} is not described"
    assert "--json" in {name for parameter in command.params for name in parameter.opts}


def test_the_commands_are_those_of_the_design():
    names = {parameter.id for parameter in commands()}
    assert {"run", "inject", "keys create", "keys show"} < names
    assert {f"cache {verb}" for verb in ("key", "ls", "show", "restore", "capture", "explain", "verify", "gc")} < names


@pytest.mark.parametrize("words", [(), ("run",), ("cache",), ("cache", "gc"), ("keys",), ("inject",)], ids=" ".join)
def test_help_fits_80_columns_and_exits_0(glowplug, words):
    ended = glowplug(*words, "--help", env={"COLUMNS": "80"})
    assert ended.code == 0
    assert max(len(line) for line in ended.out.decode().splitlines()) <= 80


@pytest.mark.parametrize("words", [(), ("cache",)], ids=" ".join)
def test_a_list_of_commands_tells_each_in_a_whole_sentence(glowplug, words):
    text = glowplug(*words, "--help", env={"COLUMNS": "80"}).out.decode()
    assert "..." not in text.partition("Commands:")[2]


def test_without_arguments_the_commands_are_listed(glowplug):
    ended = glowplug()
    text = ended.out.decode() + ended.err
    assert ended.code == 2
    for name in ("run", "cache", "keys", "inject"):
        assert re.search(rf"^  {name} ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu", "--", "true"], "glowplug run"),
        (["cahce"], "glowplug cache"),
        (["frobnicate"], "run, cache, weights, keys, inject"),
        (["cache", "lss"], "ls"),
        (["run", "--sotre", "x", "--", "true"], "--store"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(glowplug, words, says):
    ended = glowplug(*words)
    assert ended.code == 2
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_the_version_is_told(glowplug):
    from glowplug import __version__

    assert glowplug("--version").out.decode() == f"glowplug {__version__}\n"


def test_a_reader_that_has_gone_is_no_error_of_ours(glowplug):
    process = subprocess.Popen([*GLOWPLUG, "cache", "ls"], env=glowplug.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141  # as with every program that SIGPIPE ends


def test_a_full_disk_behind_the_output_is_said_in_one_line(glowplug):
    with open("/dev/full", "wb") as full:
        ended = glowplug("cache", "ls", stdout=full)
    assert (ended.code, ended.err) == (1, "glowplug: No space left on device\n")
