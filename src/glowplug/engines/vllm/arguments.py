"""vLLM's command line, read as vLLM reads it.

Follows ``FlexibleArgumentParser`` of vLLM 0.32.0 (``vllm/utils/argparse_utils.py``) and Python's argparse beneath it, in order:
a config file's options are put before those of the command line, underscores become dashes, ``-O3`` is spelt out, dotted
options are gathered into one JSON value that goes last, and the last of equal options wins. Options may be shortened. What vLLM
would refuse is not refused here: vLLM says it better. Only a config file that can't be read is an error, because the model's
name may be in it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glowplug.engines.vllm.options import ALIASES, FLAG, HUMAN, MANY, OPTIONAL, SWITCH, TEXT, VALUE
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from glowplug.cache.envelope import Json

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_INTEGER = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?\d*\.\d+|-?\d+\.\d*")
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_KNOWN = VALUE | MANY | OPTIONAL | FLAG | SWITCH
# Unknown options whose name says that they take no value.
_FLAG_NAME = re.compile(r"(no|enable|disable|use|skip|trust|enforce)-")
_SPELLINGS: Mapping[str, str] = (
    {f"--{name}": name for name in _KNOWN} | {f"--no-{name}": f"no-{name}" for name in FLAG if not name.startswith("no-")} | ALIASES
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """A command line, understood.

    Attributes:
        values: each given option by its long name without dashes in front; ``--no-x`` is ``x: false``.
        model: what is served; None where vLLM takes its default.
        ignored_config: a file named by ``--config=FILE``, a form that vLLM accepts and does not read.
    """

    values: Mapping[str, Json]
    model: str | None
    ignored_config: str | None = None

    def number(self, name: str) -> int | None:
        """An integer option; None where it is absent or no integer."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        """A textual option; None where it is absent or no text."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def tree(self, name: str) -> Mapping[str, Json]:
        """A JSON option; empty where it is absent or no object."""
        value = self.values.get(name)
        return value if isinstance(value, dict) else {}


@dataclass(slots=True)
class _Reading:
    values: dict[str, Json] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)


def parse(words: Sequence[str], *, serve: bool, cwd: str) -> Arguments:
    """Read vLLM's arguments.

    Args:
        words: what follows ``vllm serve``, or the API server's module.
        serve: whether it is ``vllm serve``; the module takes its model from ``--model`` alone.
        cwd: the folder that a config file's relative path starts from.

    Raises:
        UsageError: ``--config`` names no file that can be read.
    """
    words = _with_config(list(words), cwd)
    reading = _read(_dotted_last(_spelt_out(words)))
    model = reading.values.pop("model", None)
    if serve and reading.operands:
        model = reading.operands[0]
    config = reading.values.pop("config", None)
    return Arguments(reading.values, str(model) if model is not None else None, str(config) if config is not None else None)


def _with_config(words: list[str], cwd: str) -> list[str]:
    if "--config" not in words:
        return words
    index = words.index("--config")
    if index == len(words) - 1:
        raise UsageError("--config names no file", object="--config", hint="write --config FILE.yaml")
    model = words[:1] if not words[0].startswith("-") else []
    return [*model, *_config_words(os.path.join(cwd, words[index + 1])), *words[len(model) : index], *words[index + 2 :]]


def _config_words(path: str) -> Iterator[str]:
    """The words that a config file stands for."""
    for name, value in _config_options(path).items():
        if value is True:
            yield f"--{name}"
        elif value is False:
            # `vllm serve` 0.32.0 drops it, and the module drops it for names with underscores. Kept, since another version may not.
            yield f"--no-{name}"
        elif isinstance(value, list):
            if value:
                yield f"--{name}"
                yield from map(str, value)
        else:
            yield f"--{name}"
            yield json.dumps(value) if isinstance(value, dict) else str(value)


def _config_options(path: str) -> Mapping[str, Json]:
    import yaml  # noqa: PLC0415  20 ms, needed with --config only

    if not path.endswith((".yaml", ".yml")):
        raise UsageError(f"--config: {path} is not named .yaml or .yml", object=path, hint="vLLM reads YAML files only; rename it")
    try:
        with open(path, encoding="utf-8") as file:
            options = yaml.safe_load(file)
    except OSError as error:
        raise UsageError(f"--config: {path}: {error.strerror}", object=path, hint="check the path that follows --config") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--config: {path} is not YAML: {error}", object=path, hint="correct the file") from None
    if not isinstance(options, dict):
        raise UsageError(f"--config: {path} holds no options", object=path, hint="write one `option: value` a line")
    return options


def _spelt_out(words: list[str]) -> list[str]:
    """Dashes for underscores in names, and ``--optimization-level`` for ``-O``."""
    spelt: list[str] = []
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            head, dot, keys = name.partition(".")
            spelt.append(head.replace("_", "-") + dot + keys + equals + value)
        elif word.startswith("-O") and word != "-O":
            spelt += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        elif word == "-O" and words[index + 1 : index + 2] and words[index + 1] in "0123":
            spelt.append("--optimization-level")
        else:
            spelt.append(word)
    return spelt


def _dotted_last(words: list[str]) -> list[str]:
    """``--a.b 1 --a.c=2`` becomes ``--a '{"b": 1, "c": 2}'`` at the end."""
    kept: list[str] = []
    gathered: dict[str, dict[str, Json]] = {}
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or "." not in name or _NEGATIVE_NUMBER.fullmatch(word):
            kept.append(word)
            continue
        if not equals:
            value = next(remaining, "")
        parsed = _dotted_value(value, is_list=name.endswith("+"))
        option, *keys = name.removesuffix("+").split(".")
        for key in reversed(keys):
            parsed = {key: parsed}
        if isinstance(parsed, dict):
            _merge(gathered.setdefault(option, {}), parsed)
    for option, tree in gathered.items():
        kept += [option, json.dumps(tree)]
    return kept


def _dotted_value(text: str, *, is_list: bool) -> Json:
    if is_list:
        return list(text.split(","))
    try:
        value: Json = json.loads(text)
    except ValueError:
        return _human(text) or text
    return value


def _merge(tree: dict[str, Json], update: dict[str, Json]) -> None:
    for name, value in update.items():
        present = tree.get(name)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge(present, value)
        elif isinstance(value, list) and isinstance(present, list):
            tree[name] = present + value
        else:
            tree[name] = value


def _read(words: list[str]) -> _Reading:
    """Argparse's loop: which words are options, and which of the following belong to them."""
    reading = _Reading()
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            reading.operands += words[index:]
            break
        option = _option(word)
        if option is None:
            reading.operands.append(word)
            continue
        name, attached = option
        available = 0
        while index + available < len(words) and words[index + available] != "--" and _option(words[index + available]) is None:
            available += 1
        taken = min(available, _appetite(name)) if attached is None else 0
        given = [attached] if attached is not None else words[index : index + taken]
        index += taken
        _store(reading.values, name, given)
    return reading


def _option(word: str) -> tuple[str, str | None] | None:  # noqa: PLR0911  argparse's cases, in its order
    """Name and attached value of an option; None for an operand."""
    if not word.startswith("-") or word == "-":
        return None
    if word in _SPELLINGS:
        return _SPELLINGS[word], None
    spelling, equals, value = word.partition("=")
    attached = value if equals else None
    if spelling in _SPELLINGS:
        return _SPELLINGS[spelling], attached
    candidates = {name for known, name in _SPELLINGS.items() if known.startswith(spelling)}
    if len(candidates) == 1:
        return candidates.pop(), attached
    if not word.startswith("--") and word[:2] in _SPELLINGS:  # `-qfp8`
        return _SPELLINGS[word[:2]], word[2:]
    if _NEGATIVE_NUMBER.fullmatch(word) or (" " in word and not equals):
        return None
    return spelling.lstrip("-"), attached


def _appetite(name: str) -> int:
    """How many of the following operands an option takes at most."""
    if name in MANY:
        return 1_000_000
    if name in VALUE or name in OPTIONAL:
        return 1
    if name in FLAG or name in SWITCH or _FLAG_NAME.match(name):
        return 0
    return 1


def _store(values: dict[str, Json], name: str, given: list[str]) -> None:
    if name.startswith("no-") and not given:
        values[name.removeprefix("no-")] = False
    elif name in MANY:
        values[name] = [_typed(name, text) for text in given]
    elif name == "middleware":  # each adds one
        earlier = values.get(name)
        values[name] = [*(earlier if isinstance(earlier, list) else []), *given]
    else:
        values[name] = _typed(name, given[0]) if given else True


def _typed(name: str, text: str) -> Json:  # noqa: PLR0911  one return a type
    """A value as JSON, so that equal values in different spellings are equal."""
    if name in TEXT:
        return text
    if text in ("", "None"):
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text.lstrip()[:1] in ("{", "["):
        try:
            value: Json = json.loads(text)
        except ValueError:
            return text
        return value
    return (_human(text) or text) if name in HUMAN else text


def _human(text: str) -> int | None:
    """``8k`` is 8000, ``8K`` is 8192; None where it is no such number."""
    match = _HUMAN.fullmatch(text.strip())
    return int(float(match[1]) * _POWERS[match[2]]) if match else None
