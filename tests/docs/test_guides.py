"""The README, the guides and the other pages say what is: examples are run, names and links are looked up.

A block ``console`` is run in a copy of the page's own folder of examples: ``docs/guides/gpu`` for ``gpu-eks.md``. What other blocks
say needs a cluster or a bucket; of that, commands and options are looked up.
"""

from __future__ import annotations

import re
import shlex
import shutil
from functools import cache
from pathlib import Path

import pytest
import typer

from glowplug.cli.main import app
from glowplug.doctor.checking import check_manifests
from glowplug.doctor.reading import read
from glowplug.doctor.registry import all_rules
from glowplug.engines.vllm.options import FLAG, MANY, OPTIONAL, VALUE
from tests.docs.pages import read_page
from tests.docs.terminal import examples, missing, run

ROOT = Path(__file__).parents[2]
GUIDES = {"gpu-eks.md": "A", "trainium-eks.md": "B"}
PAGES = {str(path.relative_to(ROOT)): read_page(path) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
RUN = [name for name, page in PAGES.items() if any(block.language == "console" for block in page.blocks)]
OTHERS = {
    "--enable-torch-compile",  # SGLang
    "--device", "--set-string", "--set", "--startup-taint", "--ignore-taint", "--require-seal",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where examples are run, with nothing of this machine's."""
    for name in ("GLOWPLUG_STORE", "GLOWPLUG_SIGNING_KEY", "GLOWPLUG_TRUSTED_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_pages_whose_examples_are_run():
    assert {"README.md", *(f"docs/guides/{name}" for name in GUIDES)} <= set(RUN)


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (("a 1", "b 2", "c 3"), None),
        (("...", "b 2", "..."), None),
        (("a ...", "...", "c 3"), None),
        (("a 1", "c 3"), "c 3"),
        (("...", "b 2"), "(then:) c 3"),
        (("a 1", "...", "b 2", "b 3", "..."), "b 2"),
        (("a 1", "b 2", "c 3", "d 4"), "d 4"),
    ],
)
def test_what_is_shown_and_not_printed_is_noticed(shown, line):
    assert missing(shown, ["a 1", "b 2", "c 3"]) == line


@pytest.mark.parametrize("name", RUN)
def test_examples_print_what_the_page_shows(name, folder, monkeypatch):
    page = PAGES[name]
    own = page.path.parent / page.path.stem.removesuffix("-eks")
    if own.is_dir():
        shutil.copytree(own, folder, dirs_exist_ok=True)
    for block in page.blocks:
        if block.language != "console":
            continue
        for example in examples(block):
            told = run(example.command, folder, monkeypatch)
            line = missing(example.shown, told)
            assert line is None, "\n".join([f"{name}:{block.line}: $ {example.command}", f"not told: {line}", *told])


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("nodes", ["none", "karpenter", "auto"])
def test_what_a_guide_deploys_has_no_finding(guide, nodes, folder, monkeypatch):
    shutil.copytree(ROOT / "docs/guides" / guide.removesuffix("-eks.md"), folder, dirs_exist_ok=True)
    command = f"glowplug deploy --file deploy.yaml --nodes {nodes} | glowplug doctor --strict -"
    assert re.fullmatch(r"\d+ objects checked: nothing found", "\n".join(run(command, folder, monkeypatch)))


@pytest.mark.parametrize(("guide", "source"), list(GUIDES.items()))
def test_a_guide_tells_every_row_of_its_source(guide, source):
    inventory = re.findall(rf"^\| ({source}\d\d) \|", PAGES["docs/inventory.md"].prose, re.MULTILINE)
    assert set(inventory) <= _rows(PAGES[f"docs/guides/{guide}"].prose)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_tells_what_the_doctor_finds_in_the_manual_way(guide):
    page = PAGES[f"docs/guides/{guide}"]
    manual = page.path.parent / page.path.stem.removesuffix("-eks") / "manual.yaml"
    found = {finding.rule for finding in check_manifests(read([str(manual)], None)).findings}
    assert len(found) >= 5
    assert found <= set(re.findall(r"GP\d{3}", page.path.read_text()))


@pytest.mark.parametrize("name", PAGES)
def test_rules_and_rows_that_a_page_cites_are_there(name):
    text = PAGES[name].path.read_text()
    assert set(re.findall(r"\bGP\d{3}\b", text)) <= set(all_rules())
    if name.startswith("docs/guides/"):
        rows = set(re.findall(r"^\| ([ABX]\d\d) \|", PAGES["docs/inventory.md"].prose, re.MULTILINE))
        assert set(re.findall(r"\b[ABX]\d\d\b", PAGES[name].prose)) <= rows


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    page = PAGES[name]
    for target in page.links:
        path, _, anchor = target.partition("#")
        there = (page.path.parent / path).resolve() if path else page.path
        assert there.exists(), target
        if anchor:
            assert anchor in PAGES[str(there.relative_to(ROOT))].anchors, target


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_options_that_a_page_names_are_there(name):
    page = PAGES[name]
    lines = [line for block in page.blocks for line in "\n".join(block.lines).replace("\\\n", " ").splitlines()]
    for text in [*lines, *page.spans]:
        for words in _invocations(text):
            _look_up(words)
    known = {option for options in _commands().values() for option in options} | OTHERS
    engine = {f"--{option}" for option in VALUE | MANY | OPTIONAL | FLAG}
    named = " ".join(span for span in page.spans if span.startswith("--"))
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w*])", named):
        assert option in known | engine | {f"--no-{other[2:]}" for other in engine}, option


def _rows(prose: str) -> set[str]:
    """Rows that are named, ranges (A06 to A16) with all that lie between."""
    ranges = re.findall(r"\b([ABX])(\d\d) to \1(\d\d)\b", prose)
    between = {f"{letter}{number:02}" for letter, first, last in ranges for number in range(int(first), int(last) + 1)}
    return between | set(re.findall(r"\b[ABX]\d\d\b", prose))


@cache
def _commands() -> dict[tuple[str, ...], set[str]]:
    """Every command's words and its options."""

    def walk(command, words):
        yield words, {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
            yield from walk(command.get_command(None, name), (*words, name))

    return dict(walk(typer.main.get_command(app), ()))


def _invocations(text: str) -> list[list[str]]:
    """Words after ``glowplug`` of each call in a line, up to a pipe or a comment."""
    found = []
    for part in re.split(r" \| | && |; | # | \.\.\. ", text):
        call = re.search(r"(?:^|[\s/(])glowplug ([a-z].*)$", part)
        if call and call[1].split()[0].strip("`") in {words[0] for words in _commands() if words}:
            found.append(_split(call[1]))
    return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _look_up(words: list[str]) -> None:
    name = tuple(words[:2]) if tuple(words[:2]) in _commands() else tuple(words[:1])
    for word in words:
        if word == "--":
            return
        if re.match(r"--?[a-zA-Z]", word):
            assert word.split("=")[0] in _commands()[name] | {"--help", "-h"}, f"glowplug {' '.join(words)}: {word}"
