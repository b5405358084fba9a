"""The Python that the folder carries: which files it is made of, and which shared libraries it borrows from this system.

Why carry one: the engine's image has another version, and importing into it would mean installing into it. What is
carried runs with glibc and the loader of the image it lands in, and with nothing else of it. Left out: what only
developers use (tests, IDLE, Tk, headers, pip), and modules for which a wrapper has no use, but which would bring
libraries with them (readline, curses, dbm, sqlite3). Nothing here writes a file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from glowplug.errors import UsageError
from glowplug.inject.elf import read_elf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ASK = """
import importlib.util, json, sys, sysconfig
print(json.dumps({
    "implementation": sys.implementation.name, "version": list(sys.version_info[:3]), "soabi": sysconfig.get_config_var("SOABI"),
    "magic": importlib.util.MAGIC_NUMBER.hex(), "cache_tag": sys.implementation.cache_tag, "platlibdir": sys.platlibdir,
    "stdlib": sysconfig.get_path("stdlib"), "executable": getattr(sys, "_base_executable", "") or sys.executable,
}))
"""
_FOLDERS_LEFT_OUT = {
    *("__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test"),
    *("idlelib", "tkinter", "turtledemo", "ensurepip", "venv", "lib2to3", "pydoc_data", "distutils", "curses", "dbm", "sqlite3"),
}
_MODULES_LEFT_OUT = re.compile(
    r"(_test|_ctypes_test|_xxtestfuzz|xxlimited|xxsubtype|_tkinter|readline|_curses|_gdbm|_dbm|_sqlite3|nis|ossaudiodev|_crypt|spwd)"
)
# Part of glibc: taken from the image that the folder lands in, since they must fit its kernel, its loader and each other.
_GLIBC_FAMILY = re.compile(
    r"(ld-linux.*|linux-(vdso|gate)|lib(c|m|dl|pthread|rt|util|resolv|nsl|anl|mvec|BrokenLocale|thread_db|nss_.*))\.so(\.\d+)*"
)
_LOADED = re.compile(r"^\s*(\S+) => (.*) \(0x[0-9a-f]+\)$|^\s*(\S+) => not found", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python on this machine."""

    version: tuple[int, int, int]
    implementation: str
    """``cpython``."""
    soabi: str
    """Such as ``cpython-313-x86_64-linux-gnu``: which extension modules fit."""
    magic: str
    """Of its bytecode, in hex."""
    cache_tag: str
    platlibdir: str
    """``lib``, on some systems ``lib64``."""
    stdlib: Path
    executable: Path
    """The real one: not a link, not one in a virtual environment."""
    loader: str
    """The dynamic loader it names; empty where it can't be told."""

    @property
    def name(self) -> str:
        """``python3.13``; with a ``t`` for the free-threaded build, as its standard library's folder has it."""
        return self.stdlib.name

    def movable(self) -> str:
        """Why it can't be carried; empty if it can, as far as can be told without trying."""
        if self.implementation != "cpython":
            return f"{self.implementation} is not CPython"
        if not self.loader:
            return f"{self.executable} is not a dynamically linked 64-bit program"
        if not (self.stdlib / "os.py").is_file():
            return f"its standard library is not in files ({self.stdlib})"
        return ""

    def files(self) -> Iterator[tuple[PurePosixPath, Path]]:
        """The program and its standard library: path below the carried ``python/``, and where the file lies. No bytecode."""
        yield PurePosixPath("bin", self.name), self.executable
        base = PurePosixPath(self.platlibdir, self.stdlib.name)
        for folder, folders, names in os.walk(self.stdlib):
            folders[:] = sorted(name for name in folders if name not in _FOLDERS_LEFT_OUT and not name.startswith("config-"))
            for name in sorted(names):
                if (
                    name.endswith((".a", ".pyc", ".o"))
                    or name == "turtle.py"
                    or (name.endswith(".so") and _MODULES_LEFT_OUT.match(name))
                ):
                    continue
                source = Path(folder, name)
                yield base / source.relative_to(self.stdlib).as_posix(), source


def ask(python: Path | None = None) -> Interpreter:
    """What a Python says of itself; ``None`` asks the running one.

    Raises:
        UsageError: it does not run, or is too old to say.
    """
    command = [str(python or sys.executable), "-I", "-S", "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        message = f"{command[0]}: does not run as a Python: {reason.strip()[-300:]}"
        raise UsageError(message, object=command[0], hint="name a Python interpreter with --python, or none") from None
    executable = Path(answer["executable"]).resolve()
    elf = read_elf(executable)
    return Interpreter(
        version=tuple(answer["version"]),
        implementation=answer["implementation"],
        soabi=answer["soabi"] or "",
        magic=answer["magic"],
        cache_tag=answer["cache_tag"],
        platlibdir=answer["platlibdir"],
        stdlib=Path(answer["stdlib"]).resolve(),
        executable=executable,
        loader=elf.interpreter if elf else "",
    )


def belongs_to_glibc(path: str) -> bool:
    """Whether a shared library is part of glibc, by its name."""
    return _GLIBC_FAMILY.fullmatch(os.path.basename(path)) is not None


def borrowed_libraries(loader: str, files: Iterable[Path]) -> tuple[dict[str, Path], set[Path]]:
    """Shared libraries outside glibc that these programs and libraries load on this system, by asking its own loader.

    Args:
        loader: the dynamic loader.
        files: ELF files, by absolute path.

    Returns:
        Name as it is looked up to where it lies; and those of ``files`` that lack one here already, so that they can't be used.
    """
    paths = list(files)
    libraries: dict[str, Path] = {}
    broken: set[Path] = set()
    with ThreadPoolExecutor(max_workers=4) as pool:
        listings = pool.map(
            lambda path: subprocess.run([loader, "--list", str(path)], capture_output=True, text=True, check=False), paths
        )
        for path, listing in zip(paths, listings, strict=True):
            for name, where, missing in _LOADED.findall(listing.stdout):
                if missing:
                    broken.add(path)
                elif not belongs_to_glibc(name):
                    libraries[os.path.basename(name)] = Path(where)
    return libraries, broken
