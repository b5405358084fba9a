"""The folder of a model: a path, or a repository of the Hugging Face hub that lies in the local cache.

Nothing is downloaded, and ``huggingface_hub`` is not needed: the cache's layout is ``models--ORG--NAME/snapshots/COMMIT``, with the
commits of branches and tags in ``refs`` (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.errors import LocalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def find_folder(reference: str, *, env: Mapping[str, str], revision: str | None = None) -> Path:
    """Where a model lies on this machine.

    Args:
        reference: a path, a ``file://`` URL, or a repository's id, such as ``Qwen/Qwen3-8B``. A folder of that name wins.
        env: for where the Hugging Face cache lies.
        revision: branch, tag or commit of a repository; ``main`` if None.

    Raises:
        UsageError: it is neither, or nothing; or a revision was given for a path.
        LocalError: there is no such folder, or the repository or its revision is not in the cache.
    """
    if not reference:
        raise UsageError("nothing is named to push", object="FOLDER", hint="name a folder, or . for the one you are in")
    path = Path(reference.removeprefix("file://") if reference.startswith("file:///") else reference)
    if path.is_dir():
        if revision is not None:
            raise UsageError(f"{path} is a folder, which has no revisions", object="--revision", hint="leave --revision out")
        return path
    if not _REPOSITORY.fullmatch(reference):
        hint = "name a folder, or a repository such as Qwen/Qwen3-8B that lies in the Hugging Face cache"
        error = UsageError if "://" in reference else LocalError
        raise error(f"{reference} is not a folder of this machine", object=reference, hint=hint)
    return _snapshot(reference, revision or "main", hub_cache(env))


def hub_cache(env: Mapping[str, str]) -> Path:
    """Where ``huggingface_hub`` keeps repositories (its ``constants.py``)."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if path := env.get(variable):
            return Path(os.path.expandvars(path)).expanduser()
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(env.get("HF_HOME") or os.path.join(cache, "huggingface")).expanduser() / "hub"


def _snapshot(repository: str, revision: str, cache: Path) -> Path:
    folder = cache / f"models--{repository.replace('/', '--')}"
    commit = revision
    if not folder.is_dir():
        hint = f"run: hf download {repository}; or name a folder"
        raise LocalError(f"{repository} is no folder, and not in the Hugging Face cache {cache}", object=repository, hint=hint)
    if not _COMMIT.fullmatch(revision):
        try:
            commit = (folder / "refs" / revision).read_text(encoding="ascii", errors="replace")[:64].strip()
        except OSError as error:
            known = ", ".join(sorted(os.listdir(folder / "refs"))) if (folder / "refs").is_dir() else ""
            hint = f"choose one of: {known}" if known else f"run: hf download {repository}"
            raise LocalError(f"{repository} has no revision {revision} in {cache}", object=revision, hint=hint) from error
    found = folder / "snapshots" / commit
    if not commit or not found.is_dir():
        hint = f"run: hf download {repository} --revision {revision}"
        raise LocalError(f"{repository} has no snapshot of revision {revision} in {cache}", object=revision, hint=hint)
    return found
