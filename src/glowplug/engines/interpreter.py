"""Which Python runs a command, and what that Python says of itself.

Compiled code depends on the engine's interpreter, not on the wrapper's, and the installed packages are found on the engine's
``sys.path``. The interpreter is found by reading (``PATH``, shebangs); then it is asked once, because only it knows what virtual
environments, ``.pth`` files, ``PYTHONPATH``, distributions' own layouts and shims make of ``sys.path`` (docs/adr/0001). The
question imports nothing beyond what every start of Python imports. Of an interpreter that does not answer in time it is not known
what it would load, so no cache may be used for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from glowplug.engines.command import find_executable

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.engines.command import Command

TIMEOUT_S = 10.0
"""How long the interpreter may take to answer. It takes some 20 ms; a cold network disk can take a second, and an image that is
pulled while it is read several. The time is not lost: the engine reads the same files next."""

_PYTHON = re.compile(r"(python|pypy)\d*(\.\d+)?t?d?")
# What pip, distlib and uv write where a shebang would be too long or must be relocatable: a shell script that is also Python.
_EXEC_ABSOLUTE = re.compile(rb"^'''exec' (?:\"([^\"$]+)\"|([^\s\"$]+)) \"\$0\" \"\$@\"", re.MULTILINE)
_EXEC_RELATIVE = re.compile(
    rb"^'''exec' \"\$\(dirname -- \"\$\(realpath -- \"\$0\"\)\"\)\"/'?([^\s'\"]+)'? \"\$0\" \"\$@\"", re.MULTILINE
)
_ISOLATION = frozenset("IEsSP")  # flags that change sys.path
_WITH_VALUE = frozenset(("-W", "-X", "--check-hash-based-pycs"))
_MARK = b"\x1eglowplug\x1e"
_QUESTION = """
import sys, os, _imp
try: libc = os.confstr('CS_GNU_LIBC_VERSION') or ''
except (AttributeError, OSError, ValueError): libc = ''
i = sys.implementation
fields = ['%d.%d.%d' % sys.version_info[:3], i.name, i.cache_tag or '', _imp.extension_suffixes()[0], sys.byteorder, libc,
          sys.prefix, sys.executable or '', *sys.path]
os.write(1, MARK + b'\\0'.join(map(os.fsencode, fields)) + MARK)
""".replace("MARK", repr(_MARK))


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """A command that runs Python.

    Attributes:
        executable: the file to ask.
        isolation: its flags that change ``sys.path``, such as ``-I``.
        form: what it runs.
        target: the script's path, the module's name, or the code; empty for ``stdin``.
        args: the words after it.
    """

    executable: str
    isolation: tuple[str, ...]
    form: Literal["script", "module", "code", "stdin"]
    target: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What an interpreter says of itself."""

    version: str
    implementation: str
    cache_tag: str
    extension_suffix: str
    """Such as ``.cpython-311-x86_64-linux-gnu.so``: names the ABI of compiled extensions."""
    byteorder: str
    libc: str
    """Such as ``glibc 2.36``; empty where it isn't glibc."""
    prefix: str
    executable: str
    sys_path: tuple[str, ...]
    """As the command's own ``sys.path`` will be when it starts."""

    def component(self) -> Json:
        """The envelope's ``python`` group."""
        return {
            "version": self.version,
            "implementation": self.implementation,
            "abi": self.extension_suffix,
            "byteorder": self.byteorder,
            "libc": self.libc or "unknown",
        }


class Question:
    """A question on its way to an interpreter, so that other files can be read meanwhile.

    Args:
        python: whom to ask.
        command: whose environment and folder count.
    """

    def __init__(self, python: PythonCommand, command: Command) -> None:
        self._python = python
        self._cwd = command.cwd
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError, ValueError):  # not to be started: no answer
            self._process = subprocess.Popen(
                [python.executable, *python.isolation, "-c", _QUESTION],
                env=dict(command.env),
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def answer(self, timeout_s: float = TIMEOUT_S) -> Interpreter | None:
        """Wait for the answer; None if there is none within ``timeout_s`` from now, or no sensible one."""
        if self._process is None:
            return None
        try:
            output, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return None
        parts = output.split(_MARK)  # a sitecustomize may print before and after
        if len(parts) != 3:
            return None
        version, implementation, cache_tag, suffix, byteorder, libc, prefix, executable, *sys_path = map(
            os.fsdecode, parts[1].split(b"\0")
        )
        return Interpreter(
            version, implementation, cache_tag, suffix, byteorder, libc, prefix, executable, tuple(self._as_started(sys_path))
        )

    def _as_started(self, sys_path: list[str]) -> list[str]:
        """``sys.path`` with the first entry that the command's own form gives it, in place of ``-c``'s, which is empty."""
        if sys_path[:1] == [""]:
            script = os.path.dirname(os.path.realpath(os.path.join(self._cwd, self._python.target)))
            sys_path[0] = script if self._python.form == "script" else self._cwd
        return [os.path.join(self._cwd, entry) for entry in sys_path]


def python_command(command: Command) -> PythonCommand | None:
    """How a command runs Python; None if it is no Python that can be told by reading, or does not exist."""
    path = find_executable(command.argv[0], command.env, command.cwd)
    if path is None:
        return None
    if _PYTHON.fullmatch(command.name):
        return _python_arguments(path, command.argv[1:])
    words = _shebang(path)
    if not words:
        return None
    interpreter, *options = words
    if "/" not in interpreter:
        interpreter = find_executable(interpreter, command.env, command.cwd) or ""
    if not interpreter or not _PYTHON.fullmatch(os.path.basename(interpreter)):
        return None
    return _python_arguments(interpreter, (*options, path, *command.argv[1:]))


def no_answer(python: PythonCommand) -> str:
    """Why no cache may be used for a command, as a line."""
    return f"{python.executable} did not say within {TIMEOUT_S:g} s which packages it has, so no cache can be known to fit it"


def unknown_component(command: Command) -> Json:
    """What stands for an interpreter that isn't known: the program itself, so that two unknown ones are not taken for equal."""
    path = find_executable(command.argv[0], command.env, command.cwd)
    if path is None:
        return {"unknown": command.argv[0]}
    status = os.stat(path)
    return {"unknown": path, "size": status.st_size, "modified_ns": status.st_mtime_ns}


def _shebang(path: str) -> list[str]:
    """Interpreter and options of a script; empty for a binary or an interpreter that isn't named."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    line = os.fsdecode(head[2:].split(b"\n", 1)[0].strip())
    interpreter, _, argument = line.partition(" ")
    words = (
        [interpreter, argument.strip()] if argument.strip() else [interpreter]
    )  # the kernel passes one argument, blanks included
    base = os.path.basename(interpreter)
    if base == "env":
        words = shlex.split(argument.strip().removeprefix("-S")) if argument else []
    elif base in ("sh", "bash"):
        if absolute := _EXEC_ABSOLUTE.search(head):
            return [os.fsdecode(absolute[1] or absolute[2])]
        if relative := _EXEC_RELATIVE.search(head):
            return [os.path.join(os.path.dirname(os.path.realpath(path)), os.fsdecode(relative[1]))]
    return words


def _python_arguments(executable: str, argv: tuple[str, ...]) -> PythonCommand:
    isolation: list[str] = []
    index = 0
    while index < len(argv):
        word = argv[index]
        index += 1
        if word == "-" or not word.startswith("-"):
            form: Literal["script", "stdin"] = "stdin" if word == "-" else "script"
            return PythonCommand(executable, tuple(isolation), form, "" if word == "-" else word, argv[index:])
        if word in _WITH_VALUE:
            index += 1
            continue
        if word.startswith("--"):
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter in _ISOLATION:
                isolation.append(f"-{letter}")
            elif letter in "cm":
                attached = word[position:]
                target = attached or (argv[index] if index < len(argv) else "")
                rest = argv[index:] if attached else argv[index + 1 :]
                return PythonCommand(executable, tuple(isolation), "code" if letter == "c" else "module", target, rest)
            elif letter in "WX":
                index += position == len(word)  # the value is the rest of the word, or the next one
                break
    return PythonCommand(executable, tuple(isolation), "stdin", "", ())
