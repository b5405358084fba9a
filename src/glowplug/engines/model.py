"""What a model is, by content: the part of the envelope that must not depend on where a copy of it lies.

The reference as the user wrote it is in as well, because vLLM hashes it. Of a folder, the small files that engines read are hashed,
and of weight files the names, sizes and safetensors headers; no weight is read. A Hugging Face id is resolved to its commit in
the local cache, without the network. A URL is itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from typing import TYPE_CHECKING, TypeVar

from glowplug.weights.transfer.snapshot import hub_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from glowplug.cache.envelope import Json

_SMALL_FILE_BYTES = 4 * 1024 * 1024
_HEADER_BYTES = 32 * 1024 * 1024  # a safetensors header may be 100 MB by its format; real ones are under 1 MB
_MAX_FILES = 20_000
_DEPTH = 2  # `1_Pooling/config.json`, and no deeper
_READ_SUFFIXES = (".json", ".py", ".model", ".txt", ".jinja", ".tiktoken", ".yaml", ".yml")
_PROSE = re.compile(r"(licen[cs]e|notice|readme|use_policy)", re.IGNORECASE)
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".tensors")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRUE = frozenset(("1", "true", "yes", "on"))
_T = TypeVar("_T")
_PARALLEL_FROM = 8  # on a network disk each header costs a round trip


def model_component(
    reference: str, env: Mapping[str, str], cwd: str, *, revision: str | None = None, download_dir: str | None = None
) -> dict[str, Json]:
    """The identity of a model, for the envelope. Never fails: what can't be read is recorded as such.

    Args:
        reference: a folder, a ``.gguf`` file, a Hugging Face id (with ``:quant`` for GGUF repositories), or a URL.
        env: the engine's environment, for where the Hugging Face cache lies.
        cwd: the folder that a relative path starts from.
        revision: branch, tag or commit of a Hugging Face id; ``main`` if None.
        download_dir: a Hugging Face cache that the engine was told to use instead.
    """
    identity: dict[str, Json] = {"reference": without_credentials(reference)}
    if "://" in reference:
        return identity
    path = os.path.join(cwd, reference)
    if os.path.isdir(path):
        return identity | folder_content(path)
    if os.path.isfile(path):
        return identity | {"weights": _weights([(os.path.basename(path), path)])}
    repository, _, quantization = reference.partition(":")
    if not _HUB_ID.fullmatch(repository):
        return identity | {"unknown": "no such file"}
    if revision is not None:
        identity["revision"] = revision
    if quantization:
        identity["quantization"] = quantization
    commit, snapshot = _resolve(repository, revision or "main", download_dir or str(hub_cache(env)))
    identity["commit"] = commit
    if snapshot and any(env.get(name, "").lower() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")):
        identity["path"] = snapshot  # offline, vLLM replaces the id by this path before it hashes it (EngineArgs.__post_init__)
    return identity


def hub_snapshot(
    reference: str, env: Mapping[str, str], revision: str | None = None, download_dir: str | None = None
) -> str | None:
    """The folder of a Hugging Face id in the local cache; None where it is not there. Nothing is downloaded."""
    if not _HUB_ID.fullmatch(reference):
        return None
    return _resolve(reference, revision or "main", download_dir or str(hub_cache(env)))[1]


def folder_content(folder: str) -> dict[str, Json]:
    """Digests of the small files that engines read, and one digest for the weights."""
    small: list[tuple[str, str]] = []
    weights: list[tuple[str, str]] = []
    for name, path in _files(folder):
        if name.endswith(_WEIGHT_SUFFIXES):
            weights.append((name, path))
        elif name.endswith(_READ_SUFFIXES) and not _PROSE.match(os.path.basename(name)):
            small.append((name, path))
    files: dict[str, Json] = dict(sorted(zip((name for name, _ in small), _each(_small_file, small), strict=True)))
    return {"files": files, "weights": _weights(weights)}


def without_credentials(reference: str) -> str:
    """A URL without user and password."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", reference)


def _resolve(repository: str, revision: str, cache: str) -> tuple[str | None, str | None]:
    """Commit and snapshot folder in the local cache; a full commit is its own answer."""
    folder = os.path.join(cache, "models--" + repository.replace("/", "--"))
    commit: str | None = revision if _COMMIT.fullmatch(revision) else None
    if commit is None:
        with contextlib.suppress(OSError), open(os.path.join(folder, "refs", revision), encoding="ascii", errors="replace") as file:
            commit = file.read(64).strip() or None
    snapshot = os.path.join(folder, "snapshots", commit) if commit else ""
    return commit, snapshot if os.path.isdir(snapshot) else None


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """Names relative to the folder, with ``/``, and paths; links are followed, since a Hugging Face snapshot is made of them."""
    pending = [("", folder, 0)]
    count = 0
    while pending:
        prefix, here, depth = pending.pop()
        with contextlib.suppress(OSError), os.scandir(here) as entries:
            for entry in entries:
                if entry.name.startswith(".") or count >= _MAX_FILES:
                    continue
                if entry.is_dir():
                    if depth < _DEPTH:
                        pending.append((f"{prefix}{entry.name}/", entry.path, depth + 1))
                else:
                    count += 1
                    yield prefix + entry.name, entry.path


def _small_file(_: str, path: str) -> str:
    try:
        size = os.stat(path).st_size
        if size > _SMALL_FILE_BYTES:
            return f"{size} bytes"
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(_SMALL_FILE_BYTES)).hexdigest()[:16]
    except OSError:
        return "unreadable"


def _weights(weights: list[tuple[str, str]]) -> dict[str, Json]:
    weights = sorted(weights)
    digest = hashlib.sha256()
    total_bytes = 0
    for (name, _), (size_bytes, header) in zip(weights, _each(_weight_file, weights), strict=True):
        total_bytes += size_bytes
        digest.update(f"{name}\0{size_bytes}\0{header}\n".encode(errors="surrogateescape"))
    return {"files": len(weights), "bytes": total_bytes, "digest": digest.hexdigest()[:16]}


def _weight_file(name: str, path: str) -> tuple[int, str]:
    """Size, and a digest of the header: of a safetensors file all of it, of others the first KiB."""
    try:
        with open(path, "rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            head = file.read(8 if name.endswith(".safetensors") else 1024)
            if name.endswith(".safetensors"):
                head += file.read(min(int.from_bytes(head, "little"), _HEADER_BYTES))
    except OSError:
        return 0, "unreadable"
    return size_bytes, hashlib.sha256(head).hexdigest()


def _each(read: Callable[[str, str], _T], files: list[tuple[str, str]]) -> list[_T]:
    if len(files) < _PARALLEL_FROM:
        return [read(name, path) for name, path in files]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  8 ms, for checkpoints of many files only

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda file: read(*file), files))
