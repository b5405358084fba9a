"""``docs/cli.md``, made of the commands themselves: ``python -m glowplug.cli.page > docs/cli.md``.

It reads what Typer was told, not what Typer prints: no terminal's width, colour or language decides how the page looks.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from glowplug.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH = 132
_HEAD = """\
# Commands

This page is made of the commands themselves (`python -m glowplug.cli.page > docs/cli.md`); a test fails if it is old.
`glowplug COMMAND --help` says the same.

How values are written:

| written | as in |
|---|---|
| `DURATION` | `30s`, `500ms`, `1m30s`, `2h`, `7d`; a bare number is seconds |
| `SIZE` | `512MiB`, `2GB`, `1.5GiB`; kB to TB are powers of 1000, KiB to TiB of 1024 |
| `SPEED` | `1GB/s`, `500MiB/s`, `10Gbit/s`, `10Gbps` |
| `ENVELOPE`, `GENERATION` | the first digits of a digest, as many as no other shares |

An option wins over its environment variable; the variable of a switch is `1` or `0`. What belongs to no option: keys are told in
[keys](keys.md), the variables for fetching weights in [weights](weights.md), and credentials and endpoints of S3 are those of every
AWS tool (`AWS_PROFILE`, `AWS_REGION`, `AWS_ENDPOINT_URL`).
"""
# What is typed, and within a sentence shown as code: commands, options, variables, addresses, paths.
_CODE = re.compile(
    r"""(?<![\w/])(
        glowplug\ (?:(?:cache|keys|weights)\ [a-z]+|doctor|inject|plan|run)\b (?:\ --[a-z-]+)?
        | pip\ install\ '[^']+'
        | --[a-z][\w-]* (?:=\S*\w)?
        | \$\w+ (?:/[\w./-]*\w)?
        | [A-Z]+_[A-Z_]+
        | \w+:// [^\s,;)]* (?:\w|\.\.\.)
        | awskms:\w+
        | ~?/ [\w./-]*\w
    )""",
    re.VERBOSE,
)
_MARKUP = re.compile(r"([*_<>`\[\]|\\])")


class _Entry(NamedTuple):
    words: str
    command: Any
    """What Typer made of it, a ``TyperCommand`` or a ``TyperGroup``."""

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return _sentence(self.command.help)


def page() -> str:
    """The whole page in Markdown."""
    entries = list(_walk("glowplug", typer.main.get_command(app)))
    lines = [_HEAD, *_contents(entries)]
    for entry in entries:
        lines += _section(entry)
    return "\n".join(lines) + "\n"


def _walk(words: str, command: Any) -> Iterator[_Entry]:
    """The command, and all that are called below it, in the order of its help. Hidden ones are left out."""
    if not command.hidden:
        yield _Entry(words, command)
        for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
            yield from _walk(f"{words} {name}", command.get_command(None, name))


def _contents(entries: list[_Entry]) -> Iterator[str]:
    yield "| command | does |"
    yield "|---|---|"
    for words, summary in ((entry.words, entry.summary) for entry in entries[1:]):
        yield f"| [`{words}`](#{words.replace(' ', '-')}) | {_text(summary)} |"


def _section(entry: _Entry) -> Iterator[str]:
    words, command = entry
    context = typer.Context(command, info_name=words)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    yield f"\n{'#' * max(2, len(words.split()))} {words}\n"
    yield f"    {' '.join([words, *command.collect_usage_pieces(context)])}"
    yield from _paragraphs(command.help)
    if arguments or options:
        yield ""
    for each in arguments:
        yield from _item(each.metavar, each)
    for each in options:
        yield from _item(_names(each), each)
    yield from _epilog(command.epilog or "")


def _item(name: str, parameter: Any) -> Iterator[str]:
    yield f"- `{name}`\\"
    facts = [_text(parameter.help), *_facts(parameter)]
    yield from _wrapped(" ".join(facts), indent="  ")


def _names(option: Any) -> str:
    """``--signing-key, --key KEY``, ``--restore / --no-restore``."""
    names = ", ".join(sorted(option.opts, key=lambda name: name.startswith("--")))
    if option.secondary_opts:
        return f"{names} / {', '.join(option.secondary_opts)}"
    return names if option.is_flag else f"{names} {option.metavar}"


def _facts(parameter: Any) -> Iterator[str]:
    """What its help does not say itself."""
    least, most = getattr(parameter.type, "min", None), getattr(parameter.type, "max", None)
    if least is not None:
        yield f"{least} to {most}." if most is not None else f"{least} at least."
    default = parameter.default
    if isinstance(default, bool):
        if parameter.secondary_opts:
            yield f"Default: `{(parameter.opts if default else parameter.secondary_opts)[0]}`."
    elif default not in (None, ""):
        yield f"Default: `{default}`."
    if parameter.envvar:
        yield f"Variable: `{parameter.envvar}`."


def _epilog(epilog: str) -> Iterator[str]:
    """Examples as a block, anything else as paragraphs."""
    title, colon, rest = epilog.strip().partition(":")
    if not title.startswith("Example"):
        yield from _paragraphs(epilog)
        return
    yield f"\n{title}{colon}\n"
    for line in filter(None, map(str.strip, rest.splitlines())):
        yield f"    {line}"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in filter(None, map(str.strip, text.split("\n\n"))):
        yield ""
        yield from _wrapped(_text(" ".join(paragraph.split())))


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".") + "."


def _text(text: str) -> str:
    """A sentence for Markdown: what is typed as code, and no character that means something else there."""
    pieces = _CODE.split(text)  # every other piece is code
    return "".join(f"`{piece}`" if number % 2 else _MARKUP.sub(r"\\\1", piece) for number, piece in enumerate(pieces))


if __name__ == "__main__":
    print(page(), end="")
