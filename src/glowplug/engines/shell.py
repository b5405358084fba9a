"""Simple shell commands, read without a shell.

Pod specs often say ``sh -c "exec vllm serve $MODEL --port 8000"``. Such a line is one command, and its words can be told by the
rules of POSIX (sections 2.2 and 2.6). Anything that a shell would have to execute or to look up on disk (pipes, lists,
substitutions, globs, defaults of variables) is not simple, and the answer is None. Nothing is ever executed here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OPERATORS = frozenset("|&;<>()`*?[]~!#{}\n")  # `~`, `#`, `!`, `{` matter in places only; refusing them everywhere is safe
_BLANK = " \t"
_GLOB = re.compile(r"[*?\[\\]")
_IFS = re.compile(r"[ \t\n]+")  # a shell does not take IFS from its environment


class SimpleCommand(NamedTuple):
    """One command of a shell, with the variables that it sets for itself."""

    words: tuple[str, ...]
    """At least one."""
    assignments: dict[str, str]
    """From ``NAME=value`` before the command's word."""


def simple_command(line: str, env: Mapping[str, str]) -> SimpleCommand | None:
    """The words of one simple command, with ``$NAME`` and ``${NAME}`` replaced; None if it takes a shell to know them.

    Args:
        line: what follows ``sh -c``.
        env: where variables come from; a name that is not in it is empty, as in a shell.
    """
    words = _words(line.strip().removesuffix(";").strip(), env)
    if words is None:
        return None
    assignments: dict[str, str] = {}
    for index, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if not match:
            rest = words[index + 1 :] if word == "exec" else words[index:]
            # `exec -a name` and its like rename the process: rare, and not worth the rules.
            return SimpleCommand(tuple(rest), assignments) if rest and not rest[0].startswith("-") else None
        assignments[match[1]] = match[2]
    return None


def _words(line: str, env: Mapping[str, str]) -> list[str] | None:  # noqa: C901  a scanner's cases
    words: list[str] = []
    word: str | None = None  # None between words; an empty string is a word
    index = 0
    while index < len(line):
        character = line[index]
        if character in _BLANK:
            if word is not None:
                words.append(word)
            word = None
            index += 1
            continue
        if character == "\\" and line[index + 1 : index + 2] == "\n":  # a continued line
            index += 2
            continue
        if character == "$":
            variable = _unquoted_variable(line, index, env)
            if variable is None:
                return None
            fields, index = variable
            for number, field in enumerate(fields):
                if number and word is not None:  # blanks inside the value end a word
                    words.append(word)
                    word = None
                word = (word or "") + field if field else word
            continue
        part = _part(line, index, env)
        if part is None:
            return None
        text, index = part
        word = (word or "") + text
    if word is not None:
        words.append(word)
    return words


def _unquoted_variable(line: str, index: int, env: Mapping[str, str]) -> tuple[list[str], int] | None:
    """The fields of a variable's value, as a shell splits them, and where the variable ends."""
    match = _VARIABLE.match(line, index)
    if match is None:
        return None
    value = env.get(match[1] or match[2], "")
    return None if _GLOB.search(value) else (_IFS.split(value), match.end())


def _part(line: str, index: int, env: Mapping[str, str]) -> tuple[str, int] | None:
    """Text of the quoted piece or single character at ``index``, and where it ends."""
    character = line[index]
    if character == "'":
        end = line.find("'", index + 1)
        return None if end < 0 else (line[index + 1 : end], end + 1)
    if character == '"':
        return _double_quoted(line, index + 1, env)
    if character == "\\":
        return (line[index + 1], index + 2) if index + 1 < len(line) else None
    return None if character in _OPERATORS else (character, index + 1)


def _double_quoted(line: str, index: int, env: Mapping[str, str]) -> tuple[str, int] | None:
    text = ""
    while index < len(line):
        character = line[index]
        if character == '"':
            return text, index + 1
        if character == "`":
            return None
        if character == "\\" and line[index + 1 : index + 2] in ("$", "`", '"', "\\"):
            text += line[index + 1]
            index += 2
        elif character == "$":
            match = _VARIABLE.match(line, index)
            if not match:
                return None
            text += env.get(match[1] or match[2], "")
            index = match.end()
        else:
            text += character
            index += 1
    return None
