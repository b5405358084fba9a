"""The folder: ``DIR/bin/glowplug``, ``DIR/glowplug.json``, and a payload named by its content.

Why so: an init container writes into a volume that is often a mount point itself (no rename can replace it) and may
hold an older payload from which somebody is running. So a payload is staged inside DIR, renamed to its final name,
and only then the launcher that points at it is replaced. Nothing of anybody else in DIR is touched, no payload is
changed once it has its name, and the previous one stays until the next injection.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.errors import LocalError, UsageError
from glowplug.inject import payload as payloads
from glowplug.inject.payload import FACTS, SCHEMA, Facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.cache.envelope import Json

_PAYLOAD = "payload-"
_STAGING = ".glowplug-"
_STALE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Injected:
    """A folder that was written."""

    folder: Path
    payload: str
    """The payload's name in it."""
    unchanged: bool
    """The same was there already."""
    facts: Facts

    def to_json(self) -> dict[str, Json]:
        """What ``glowplug inject --json`` prints."""
        return {**self.facts.to_json(), "folder": str(self.folder), "payload": self.payload, "unchanged": self.unchanged}


def inject(
    folder: Path,
    *,
    python: Path | None = None,
    carry: bool = True,
    force: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Injected:
    """Write the folder; afterwards it is complete, or as it was before.

    Blocks for 4 to 15 s, depending on whether the environment has its bytecode; about a second if this process runs from an
    injected folder, which is copied.

    Args:
        folder: DIR; made if missing. May be a mount point, and may hold an earlier injection, which is replaced.
        python: the Python to carry; None for the running one.
        carry: False carries none: the launcher looks for one of the same version in ``PATH``.
        force: write into a folder that holds something else, which is left alone.
        progress: called with the bytes written since the last call.

    Raises:
        UsageError: DIR is a file or holds something else; the Python doesn't fit the environment's extension modules.
        LocalError: disk full, or DIR can't be written.
    """
    origin = payloads.running_payload()
    if origin is not None and (python is not None or not carry):
        hint = "leave --python out, or run inject from an environment"
        raise UsageError("an injected Glowplug copies itself with the Python it has", object="--python", hint=hint)
    folder = folder.absolute()
    try:
        previous = _prepare(folder, force=force)
        stage = Path(tempfile.mkdtemp(prefix=_STAGING, suffix=".tmp", dir=folder))
        try:
            stage.chmod(0o755)  # mkdtemp's 0700 would keep an engine of another user out
            if origin is not None:
                facts = payloads.copy(origin, stage)
            else:
                facts = payloads.build(stage, python=python, carry=carry, progress=progress)
            return _publish(stage, folder, facts, previous)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        hint = "it needs about 120 MB; give the volume more" if full else "choose a folder that you may write"
        raise LocalError(f"{error.filename or folder}: {error.strerror or error}", object=str(folder), hint=hint) from None


def _prepare(folder: Path, *, force: bool) -> str:
    """Make DIR, or see that it may be written into. The present payload's name, or nothing."""
    with suppress(FileExistsError):  # another inject may be making it at this moment
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder", object=str(folder), hint="name a folder that does not exist yet")
    present = _present(folder)
    if present:
        return present
    foreign = sorted(name for name in os.listdir(folder) if name != "lost+found" and not name.startswith(_STAGING))
    if (folder / "bin" / "glowplug").exists():
        message = f"{folder}: holds a bin/glowplug that inject did not write"
        raise UsageError(message, object=str(folder), hint="name an empty folder; an environment is not one to inject into")
    if foreign and not force:
        hint = "name an empty folder, or add to this one with --force"
        raise UsageError(f"{folder}: holds something else ({', '.join(foreign[:3])})", object=str(folder), hint=hint)
    return ""


def _present(folder: Path) -> str:
    with suppress(OSError, ValueError):
        document = json.loads((folder / FACTS).read_bytes())
        if isinstance(document, dict) and document.get("schema") == SCHEMA:
            return str(document.get("payload", ""))
    return ""


def _publish(stage: Path, folder: Path, facts: Facts, previous: str) -> Injected:
    _replace(stage / FACTS, json.dumps(facts.to_json(), indent=2) + "\n", 0o644)
    name = _PAYLOAD + _digest(stage)[:12]
    unchanged = name == previous and (folder / name).is_dir()
    if not (folder / name).is_dir():
        try:
            stage.rename(folder / name)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:  # another inject was first, with the same content
                raise
    injected = Injected(folder, name, unchanged, facts)
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin").chmod(0o755)
    _replace(folder / FACTS, json.dumps({**facts.to_json(), "payload": name}, indent=2) + "\n", 0o644)
    _replace(folder / "bin" / "glowplug", facts.launcher(name), 0o755)
    _sweep(folder, keep={name, previous})
    return injected


def _digest(stage: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(path for path in stage.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(stage)}\0{content}\n".encode())
    return total.hexdigest()


def _replace(path: Path, text: str, mode: int) -> None:
    part = path.with_name(f"{_STAGING}{os.getpid()}-{path.name}.tmp")
    part.write_text(text)
    part.chmod(mode)
    part.replace(path)


def _sweep(folder: Path, *, keep: set[str]) -> None:
    """Remove payloads that no launcher points at any more, and what a killed inject left."""
    for path in folder.iterdir():
        old = path.name.startswith(_PAYLOAD) and path.name not in keep
        with suppress(OSError):
            abandoned = path.name.startswith(_STAGING) and time.time() - path.stat().st_mtime > _STALE_S
            if old or abandoned:
                shutil.rmtree(path, ignore_errors=True)
