"""Which files make up Glowplug and what it needs at run time, from the running environment's own records.

Why from records: an environment holds more than Glowplug (test tools, the user's packages), and a copied folder must
hold exactly the closure. A requirement with a marker that isn't installed did not apply here. Nothing here copies a
file or asks a package index.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = "glowplug"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

# botocore describes 400 services in 25 MB. Credentials need sts, sso, sso-oidc and signin; the store s3; keys kms.
_BOTOCORE_SERVICES = {"kms", "s3", "signin", "sso", "sso-oidc", "sts"}
# Extras for a workstation: 100 MB of plotting, which no pod needs.
_NOT_CARRIED = re.compile(r"extra\s*==\s*['\"]plot['\"]")
# Records of how and from where it was installed: not true of a copy, and paths of the machine that made it.
_INSTALLER_RECORDS = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json"}


@dataclass(frozen=True, slots=True)
class Installed:
    """One installed distribution."""

    name: str
    """Normalised: ``python-dateutil``."""
    version: str
    files: tuple[tuple[PurePosixPath, Path], ...]
    """Path relative to ``site-packages``, and where the file lies; no bytecode, no scripts."""


def closure() -> list[Installed]:
    """Glowplug and all it needs, sorted by name. Glowplug's own extras are in where they are installed, but for ``plot``.

    Raises:
        UsageError: Glowplug is not installed (only found on ``PYTHONPATH``), or a requirement is missing.
    """
    found: dict[str, metadata.Distribution] = {}
    waiting = [(ROOT, True)]
    while waiting:
        name, needed = waiting.pop()
        if name in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if needed:
                hint = "install Glowplug with its requirements first: uv pip install glowplug, or make setup in a checkout"
                raise UsageError(f"{name} is not installed in this environment", object=name, hint=hint) from None
            continue
        found[name] = distribution
        waiting += _requirements(distribution, extras=name == ROOT)
    return [_installed(name, found[name]) for name in sorted(found)]


def _requirements(distribution: metadata.Distribution, *, extras: bool) -> Iterator[tuple[str, bool]]:
    for requirement in distribution.requires or []:
        text, _, marker = requirement.partition(";")
        match = _NAME.match(text)
        if match and (extras or "extra" not in marker) and not _NOT_CARRIED.search(marker):
            yield re.sub(r"[-_.]+", "-", match.group()).lower(), not marker


def _installed(name: str, distribution: metadata.Distribution) -> Installed:
    files = {}
    for record in distribution.files or []:
        path = PurePosixPath(record)
        if _belongs(path):
            files[path] = Path(str(distribution.locate_file(record)))
    if name == ROOT and PurePosixPath(ROOT, "__init__.py") not in files:  # an editable install records only a pointer
        package = Path(__file__).parent.parent
        for folder, folders, names in os.walk(package):
            folders[:] = [folder for folder in folders if folder != "__pycache__"]
            for file in names:
                source = Path(folder, file)
                files[PurePosixPath(ROOT, source.relative_to(package).as_posix())] = source
    return Installed(name, distribution.version, tuple(sorted(files.items())))


def _belongs(path: PurePosixPath) -> bool:
    parts = path.parts
    if path.is_absolute() or ".." in parts or "__pycache__" in parts or path.suffix in {".pth", ".pyc", ".pyi"}:
        return False
    if parts[0].endswith(".dist-info"):
        return path.name not in _INSTALLER_RECORDS
    if parts[:2] == ("botocore", "data") and len(parts) > 3:
        return parts[2] in _BOTOCORE_SERVICES
    return not (parts[0].startswith("__editable__") or parts[-2:-1] == ("tests",))
