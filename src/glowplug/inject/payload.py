"""The payload: Glowplug, its requirements and a Python, copied so that they run from wherever they lie.

Why checked by running: whether a Python can be moved depends on how it was built, and the honest test is to move it,
start it with an empty environment, import everything, and look where each file came from. What fails that is left
out, and the folder then says which Python it needs. Nothing here knows where the payload will lie, and nothing
outside the staging folder is written.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import glowplug
from glowplug.errors import UsageError
from glowplug.inject import distributions, interpreter, launcher
from glowplug.inject.bytecode import unchecked_bytecode
from glowplug.inject.elf import read_elf, without_debug_symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from glowplug.cache.envelope import Json
    from glowplug.inject.interpreter import Interpreter

SCHEMA = "glowplug.dev/inject/v1"
FACTS = "glowplug.json"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a payload is made of; kept in it as ``glowplug.json``."""

    version: str
    """Glowplug's."""
    python: str | None
    """The carried Python's version; None if none is."""
    needs: str
    """What the engine's image must bring."""
    reason: str
    """Why no Python is carried; empty where one is."""
    glibc: str
    """The oldest glibc that will do, such as ``2.34``; empty where no file needs one."""
    machine: str
    """What the files were built for, such as ``x86_64``."""
    files: int
    bytes: int
    """The files' sizes together."""
    python_name: str
    """``python3.13``."""
    loader: str
    """The dynamic loader; empty without a carried Python."""
    demanding: str
    """The file that needs the newest glibc, relative to the payload."""
    distributions: Mapping[str, str]
    """Name to version."""

    def to_json(self) -> dict[str, Json]:
        """The document."""
        return {"schema": SCHEMA, **asdict(self)}

    def launcher(self, payload: str) -> str:
        """The launcher for a payload of this name."""
        if self.python is None:
            return launcher.found(payload=payload, python=self.python_name)
        return launcher.carried(
            payload=payload,
            python=self.python_name,
            loader=self.loader,
            machine=self.machine,
            demanding=self.demanding,
            glibc=self.glibc,
        )


def running_payload() -> Path | None:
    """The payload that this process runs from; None if it runs from an environment."""
    payload = Path(glowplug.__file__).absolute().parent.parent.parent
    return payload if (payload / FACTS).is_file() else None


def copy(origin: Path, stage: Path) -> Facts:
    """Copy a payload as it is. Takes about a second, for an init container that runs from a folder which inject wrote."""
    shutil.copytree(origin, stage, dirs_exist_ok=True)
    document = json.loads((stage / FACTS).read_bytes())
    return Facts(**{name: value for name, value in document.items() if name != "schema"})


def build(stage: Path, *, python: Path | None, carry: bool, progress: Callable[[int], None]) -> Facts:
    """Make a payload from the running environment.

    Raises:
        UsageError: Glowplug isn't installed, or the Python doesn't fit the environment's extension modules.
        OSError: the staging folder can't be written.
    """
    own = interpreter.ask()
    chosen = own if python is None else interpreter.ask(python)
    if (chosen.soabi, chosen.magic) != (own.soabi, own.magic):
        message = f"{python}: is {chosen.soabi}, and the packages here are built for {own.soabi}"
        raise UsageError(message, object=str(python), hint=f"name a {own.name}, or run inject from an environment on {chosen.name}")
    closure = distributions.closure()
    site = [(PurePosixPath("site", path), source) for each in closure for path, source in each.files]
    _write(site, stage, chosen, progress)
    reason = chosen.movable() if carry else "none was asked for"
    if not reason:
        _carry(chosen, stage, progress)
        reason = _check(stage, [chosen.loader, "--library-path", f"{stage}/lib", f"{stage}/python/bin/{chosen.name}"], closed=True)
        if reason:
            shutil.rmtree(stage / "python")
            shutil.rmtree(stage / "lib")
    if reason:
        problem = _check(stage, [str(chosen.executable)], closed=False)
        if problem:
            hint = "install it again with its requirements: uv pip install glowplug"
            raise UsageError(f"this environment's Glowplug is not complete: {problem}", object="glowplug", hint=hint)
    return _facts(stage, chosen, reason, closure)


def _carry(python: Interpreter, stage: Path, progress: Callable[[int], None]) -> None:
    files = list(python.files())
    elves = {path: source for path, source in files if path.parent.name in {"bin", "lib-dynload"} and read_elf(source)}
    borrowed, broken = interpreter.borrowed_libraries(python.loader, [*elves.values(), *stage.glob("site/**/*.so")])
    inside = str(stage.resolve()) + os.sep
    libraries = {name: path for name, path in borrowed.items() if not str(path.resolve()).startswith(inside)}
    _write(((PurePosixPath("python", path), source) for path, source in files if source not in broken), stage, python, progress)
    (stage / "lib").mkdir()
    (stage / "lib").chmod(0o755)
    _write(((PurePosixPath("lib", name), path) for name, path in libraries.items()), stage, python, progress)
    (stage / "python" / "bin" / python.name).chmod(0o755)


def _write(files: Iterable[tuple[PurePosixPath, Path]], stage: Path, python: Interpreter, progress: Callable[[int], None]) -> None:
    for path, source in files:
        target = stage / path
        data = source.read_bytes()
        elf = read_elf(source)
        if elf is not None:
            data = without_debug_symbols(data, elf)
        _write_file(target, data)
        progress(len(data))
        if path.suffix == ".py":
            bytecode = unchecked_bytecode(data, source, str(path))
            if bytecode is not None:
                _write_file(target.parent / "__pycache__" / f"{target.stem}.{python.cache_tag}.pyc", bytecode)


def _write_file(target: Path, data: bytes) -> None:
    missing = []
    folder = target.parent
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir()
        folder.chmod(0o755)  # the engine may run as another user than the init container, whatever the umask is
    target.write_bytes(data)
    target.chmod(0o644)


def _check(stage: Path, command: list[str], *, closed: bool) -> str:
    """Start the payload with an empty environment and import all of it. What is wrong with it, or nothing."""
    whole = [*command, "-I", "-S", "-B", str(stage / "site" / "glowplug" / "inject" / "completeness.py"), str(stage)]
    try:
        done = subprocess.run(whole, env={}, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"it does not start from another folder: {error}"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"it does not work from another folder: {lines[-1][:300]}"
    outside = [path for path in json.loads(done.stdout) if not interpreter.belongs_to_glibc(path)]
    return f"it would load {outside[0]} from this system" if closed and outside else ""


def _facts(stage: Path, python: Interpreter, reason: str, closure: list[distributions.Installed]) -> Facts:
    newest, demanding, count, size_bytes = 0, "", 0, 0
    for folder, _, names in os.walk(stage):
        for name in names:
            path = Path(folder, name)
            count += 1
            size_bytes += path.stat().st_size
            elf = read_elf(path)
            if elf is not None and elf.glibc_minor > newest:
                newest, demanding = elf.glibc_minor, path.relative_to(stage).as_posix()
    machine, glibc = platform.machine(), f"2.{newest}" if newest else ""
    return Facts(
        version=glowplug.__version__,
        python=None if reason else ".".join(map(str, python.version)),
        needs=f"{python.name} in PATH" if reason else f"glibc {glibc} or newer on {machine}",
        reason=reason,
        glibc=glibc,
        machine=machine,
        files=count,
        bytes=size_bytes,
        python_name=python.name,
        loader="" if reason else python.loader,
        demanding=demanding,
        distributions={each.name: each.version for each in closure},
    )
