"""Which Python interpreters this machine has, and which of them serve for what."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.steps import SetupError, say
from testbed.vllm_env import dev_cache

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTED = ("3.11", "3.13")
"""The versions that the tests run on; the first is what a fresh machine has."""

_PROBE = """
import json, os, sys, sysconfig
header = os.path.join(sysconfig.get_path("include"), "Python.h")
print(json.dumps([sys.executable, "%d.%d" % sys.version_info[:2], os.path.exists(header)]))
"""
_INSTALL_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter that was run and answered."""

    path: Path
    """The executable itself, no version manager's shim."""
    version: str
    """Such as ``3.11``."""
    has_headers: bool
    """Whether ``Python.h`` is there, which torch.compile's C++ code includes."""


def probe(path: str | Path) -> Python | None:
    """Ask an interpreter what it is; None if it does not run."""
    try:
        answer = _ask(str(path), "-I", "-c", _PROBE, timeout_s=30)
    except (OSError, subprocess.SubprocessError):
        return None
    executable, version, has_headers = json.loads(answer)
    return Python(Path(executable), version, bool(has_headers))


def current() -> Python:
    """The interpreter that runs the set-up, or the one that its environment was made from."""
    executable = Path(sys._base_executable)  # type: ignore[attr-defined]  # noqa: SLF001  inside a venv nothing else names the base
    found = probe(executable) or probe(sys.executable)
    if found is None:
        raise SetupError(f"{sys.executable} does not run. Name a working Python: make setup PYTHON=/path/to/python3.11")
    return found


def find(version: str, uv: Path) -> Python | None:
    """An interpreter of exactly this version (``3.13``) on the path, from pyenv, or known to uv; None where there is none."""
    for path in _candidates(version, uv):
        found = probe(path)
        if found is not None and found.version == version:
            return found
    return None


def find_or_install(version: str, uv: Path) -> Python | None:
    """Like `find`; where there is none, uv is asked once to install one, which not every network allows."""
    found = find(version, uv)
    asked = dev_cache() / f"no-python-{version}"
    if found is not None or asked.exists():
        return found
    say(f"no Python {version} here; asking uv to install one (at most {_INSTALL_TIMEOUT_S:.0f} s)")
    asked.touch()
    try:
        _ask(str(uv), "python", "install", version, timeout_s=_INSTALL_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    asked.unlink()
    return find(version, uv)


def for_vllm(uv: Path) -> Python:
    """An interpreter for vLLM's environment: of a version that its wheel supports, with the headers that torch.compile needs.

    Raises:
        SetupError: there is none.
    """
    seen = [current(), *(python for version in ("3.11", "3.12", "3.13") if (python := find(version, uv)))]
    for python in seen:
        if python.has_headers and python.version in {"3.11", "3.12", "3.13"}:
            return python
    raise SetupError(
        "torch.compile needs Python.h, and no Python 3.11 to 3.13 here has it. Install your system's Python development package"
        " (Debian: python3-dev), or name another Python: make test PYTHON=/path/to/python3.11"
    )


def named_on_path(*pythons: Python) -> str:
    """A search path on which ``python3.11`` and the like are these interpreters, and all else is what it was."""
    folder = dev_cache() / "pythons"
    folder.mkdir(parents=True, exist_ok=True)
    for python in pythons:
        partial = folder / f".{python.version}.{os.getpid()}"
        partial.symlink_to(python.path)
        partial.replace(folder / f"python{python.version}")
    return os.pathsep.join((str(folder), os.environ.get("PATH", os.defpath)))


def _candidates(version: str, uv: Path) -> Iterator[Path | str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        yield _ask(str(uv), "python", "find", "--no-project", "--no-python-downloads", version, timeout_s=30).strip()


def _ask(*command: str, timeout_s: float) -> str:
    """What a command prints. Raises OSError or SubprocessError if it does not start, fails or takes too long."""
    answer = subprocess.run(command, check=True, timeout=timeout_s, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return answer.stdout
