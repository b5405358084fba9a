"""The command behind the launchers: ``env A=1 numactl -N 0 vllm serve M`` runs ``vllm serve M`` with ``A=1``.

Adapters look at the program that runs in the end. This module takes well-known launchers off the front, and follows ``sh -c`` where
its line is one simple command. It can also put other words of the program back behind the same launchers; what is started is the
command as the user wrote it, or that.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from glowplug.engines.shell import simple_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MAX_LAUNCHERS = 8  # more than anybody nests; a bound against a loop
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh"))
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class _Launcher(NamedTuple):
    values: frozenset[str] = frozenset()
    """Options followed by a word of their own."""
    operands: int = 0
    """Words between the options and the command."""


_LAUNCHERS: Mapping[str, _Launcher] = {
    "nice": _Launcher(frozenset(("-n", "--adjustment"))),
    "ionice": _Launcher(frozenset(("-c", "-n", "--class", "--classdata"))),
    "numactl": _Launcher(
        frozenset(
            ("-i", "-p", "-P", "-w", "-m", "-N", "-C", "--interleave", "--preferred", "--membind", "--cpunodebind", "--physcpubind")
        )
    ),
    "taskset": _Launcher(operands=1),
    "stdbuf": _Launcher(frozenset(("-i", "-o", "-e", "--input", "--output", "--error"))),
    "timeout": _Launcher(frozenset(("-k", "-s", "--kill-after", "--signal")), operands=1),
    "nohup": _Launcher(),
    "setsid": _Launcher(),
    "tini": _Launcher(frozenset(("-p", "-e"))),
    "dumb-init": _Launcher(frozenset(("-r", "--rewrite"))),
    "gosu": _Launcher(operands=1),
    "su-exec": _Launcher(operands=1),
}


@dataclass(frozen=True, slots=True)
class Command:
    """A program's words, environment and folder, as it finds them when it starts."""

    argv: tuple[str, ...]
    """At least one word."""
    env: Mapping[str, str]
    cwd: str
    notices: tuple[str, ...] = ()
    """What could not be looked through, for the user."""
    around: Callable[[Sequence[str]], tuple[str, ...]] = tuple
    """Makes the whole command again, launchers included, from other words for this program."""

    @property
    def name(self) -> str:
        """The program's base name."""
        return os.path.basename(self.argv[0])


def unwrap(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Command:
    """The command behind known launchers and simple ``sh -c`` lines; the command itself where there is none."""
    command = Command(tuple(argv), env, cwd)
    for _ in range(_MAX_LAUNCHERS):
        inner = _unwrap_once(command)
        if inner is None or not inner.argv:
            break
        if inner.argv == command.argv:  # a launcher that can't be looked through, with a notice that says so
            return inner
        command = inner
    return command


def find_executable(name: str, env: Mapping[str, str], cwd: str) -> str | None:
    """The file that runs for a command's first word, as ``execvp`` looks for it; None if there is none."""
    folders = [""] if "/" in name else env.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(cwd, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _unwrap_once(command: Command) -> Command | None:
    if command.name == "env":
        return _unwrap_env(command)
    if command.name in _SHELLS:
        return _unwrap_shell(command)
    launcher = _LAUNCHERS.get(command.name)
    if launcher is None:
        return None
    index = 1
    while index < len(command.argv) and command.argv[index].startswith("-"):
        option = command.argv[index]
        index += 2 if option in launcher.values else 1
        if option == "--":
            break
    return _behind(command, index + launcher.operands)


def _behind(command: Command, index: int) -> Command:
    """The program that begins at this word; a launcher takes the words after it as they are."""
    launcher, around = command.argv[:index], command.around
    return replace(command, argv=command.argv[index:], around=lambda argv: around((*launcher, *argv)))


def _unwrap_env(command: Command) -> Command | None:
    argv, env, cwd = command.argv, dict(command.env), command.cwd
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        option, _, value = argv[index].partition("=")
        following = argv[index + 1] if index + 1 < len(argv) else ""
        index += 1
        if option in ("-i", "-", "--ignore-environment"):
            env.clear()
        elif option in ("-u", "--unset"):
            env.pop(value or following, None)
            index += not value
        elif option in ("-C", "--chdir"):
            cwd = os.path.join(cwd, value or following)
            index += not value
        elif option == "--":
            break
        else:  # -S splits words by rules of its own
            return _opaque(command, f"env {option}")
    while index < len(argv) and (match := _ASSIGNMENT.fullmatch(argv[index])):
        env[match[1]] = match[2]
        index += 1
    return replace(_behind(command, index), env=env, cwd=cwd)


def _unwrap_shell(command: Command) -> Command | None:
    argv, index, login, inline = command.argv, 1, False, False
    while index < len(argv) and argv[index][:1] in "-+" and argv[index] not in ("-", "--"):
        option = argv[index]
        index += 1
        if option.startswith("--"):
            login |= option == "--login"
            continue
        login |= "l" in option
        inline |= "c" in option
        index += "o" in option  # `-o pipefail`
    if not inline or index >= len(argv):
        return None  # a script, or a shell that reads its commands from standard input
    simple = simple_command(argv[index], command.env)
    if simple is None:
        return _opaque(command, f"{command.name} -c with more than one simple command")
    if login and "/" not in simple.words[0]:
        return _opaque(command, f"a login shell ({command.name} -l) that may change PATH")
    before, after, around = argv[:index], argv[index + 1 :], command.around

    def with_line(words: Sequence[str]) -> tuple[str, ...]:
        # Every word is quoted: its variables have been looked up already, and the shell must not do so again.
        assigned = (f"{name}={shlex.quote(value)}" for name, value in simple.assignments.items())
        return around((*before, " ".join((*assigned, "exec", *map(shlex.quote, words))), *after))

    return replace(command, argv=simple.words, env={**command.env, **simple.assignments}, around=with_line)


def _opaque(command: Command, what: str) -> Command:
    notice = f"cannot look through {what}: the engine behind it is not recognised; give its command itself after `--`"
    return replace(command, notices=(*command.notices, notice))
