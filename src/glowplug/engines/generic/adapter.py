"""Describes any command. Compiled code comes from Inductor, Triton and the libraries of kernels, whose folders it is given.

Little is known of such a command, so its envelope is made of its words, its script's content, its Python with the packages that
matter, and the machine. What it imports besides is left to Inductor's and Triton's own keys.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import TYPE_CHECKING

from glowplug.cache.families import FAMILIES, JIT, chosen
from glowplug.engines.accelerators import accelerators
from glowplug.engines.base import ExitReadiness, Launch
from glowplug.engines.command import unwrap
from glowplug.engines.cpu import cpu_component, cpu_threads
from glowplug.engines.environment import environment_component, is_secret
from glowplug.engines.generic.log import GenericLog
from glowplug.engines.interpreter import Question, no_answer, python_command, unknown_component
from glowplug.engines.model import without_credentials
from glowplug.engines.software import Software
from glowplug.timeline.report import EngineInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from glowplug.cache.envelope import Json
    from glowplug.cache.families import Family
    from glowplug.engines.command import Command
    from glowplug.engines.interpreter import PythonCommand

_FOLDERS = frozenset(variable for family in FAMILIES.values() for variable in family.variables)
_MAX_SCRIPT_BYTES = 16 * 1024 * 1024


class GenericAdapter:
    """Every command. Implements ``Adapter``."""

    def weights_request(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        """Nothing is known of what a command loads."""
        del argv, env, cwd

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Launch:
        """Describe the command."""
        command = unwrap(argv, env, cwd)
        python = python_command(command)
        question = Question(python, command) if python else None
        devices, cpu = accelerators(command.env), cpu_component()
        if devices.kind == "none" and isinstance(cpu, dict):
            cpu["threads"] = cpu_threads()
        components: dict[str, Json] = {
            "engine": {"name": "generic"},
            "accelerator": devices.component(),
            "cpu": cpu,
            "arguments": _arguments(command, python),
            "environment": environment_component(command.env, ignored=_FOLDERS),
        }
        interpreter = question.answer() if question else None
        families = chosen(JIT, command.env)
        remarks = [*command.notices, *_notices(argv, command, families)]
        unsure = ""
        if interpreter is None:
            components["python"] = unknown_component(command)
            if python is not None:
                unsure = no_answer(python)
            else:
                what = "only the command and the machine are in the cache's key"
                remarks.append(f"no Python was found behind {command.argv[0]}: {what}")
        else:
            software = Software(interpreter)
            components |= {
                "python": interpreter.component(),
                "packages": software.packages_component(),
                "paths": {"torch": software.folder("torch")},
            }
        return Launch(
            engine=EngineInfo("generic", None),
            components=components,
            relocatable=False,
            families=families,
            readiness=ExitReadiness(),
            ranks=1,
            log=GenericLog,
            notices=tuple(remarks),
            unsure=unsure,
        )


def _arguments(command: Command, python: PythonCommand | None) -> dict[str, Json]:
    """What the command runs: a script by content, so that an edit is another program; its words without secrets."""
    if python is None:
        return {"program": command.name, "words": list(_words(command.argv[1:]))}
    component: dict[str, Json] = {"words": list(_words(python.args))}
    if python.form == "script":
        component |= {"script": os.path.basename(python.target), "content": _file_digest(os.path.join(command.cwd, python.target))}
    elif python.form == "code":
        component["content"] = hashlib.sha256(python.target.encode(errors="surrogateescape")).hexdigest()[:16]
    else:
        component[python.form] = python.target
    return component


def _words(words: Sequence[str]) -> Iterator[str]:
    secret_follows = False
    for word in words:
        if secret_follows and not word.startswith("-"):
            secret_follows = False
            continue
        name, equals, _ = word.partition("=")
        secret = is_secret(name.lstrip("-")) and (word.startswith("-") or bool(equals))
        secret_follows = secret and not equals
        yield name + equals if secret else without_credentials(word)


def _file_digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(_MAX_SCRIPT_BYTES)).hexdigest()[:16]
    except OSError:
        return "unreadable"


def _notices(argv: Sequence[str], command: Command, families: Sequence[Family]) -> Iterator[str]:
    words = [os.path.basename(word) for word in command.argv]
    if not command.notices and ("vllm", "serve") in itertools.pairwise(words) and words[0] != "vllm":
        yield (
            f"{argv[0]} starts vLLM in a way that is not looked through, so it is handled as a plain command, and its cache is "
            "captured after it exits 0; put `vllm serve` itself after `--`"
        )
    for family in families:
        for variable in family.variables:
            if variable in command.env:
                yield f"{variable}={command.env[variable]} is replaced by Glowplug's own folder; choose that with --cache-dir"
