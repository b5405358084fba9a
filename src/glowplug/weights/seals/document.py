"""A seal as JSON: written, and read back from whoever signed it.

Digests of blocks are packed (base64 of one after another), since a large checkpoint has a hundred thousand. Reading is strict: what
is not of the form that is written here is refused with one error, however it is broken.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from glowplug import __version__
from glowplug.errors import IntegrityError
from glowplug.units import KIB, MIB
from glowplug.weights.seals.seal import AGAIN, ALGORITHMS, DIGEST_BYTES, MAX_SEAL_BYTES, Seal, SealedFile, SealedSmall

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "glowplug.dev/seal/v1"
MIN_BLOCK_BYTES = 4 * KIB
MAX_BLOCK_BYTES = 64 * MIB
"""A reader holds a whole block before it can check it."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class _Refused(Exception):
    """Why a document is no seal, in a few words."""


def seal_document(seal: Seal) -> bytes:
    """The JSON that is signed."""
    tree = {
        "schema": SCHEMA,
        "created_at": seal.created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        "producer": f"glowplug {__version__}",
        "algorithm": seal.algorithm,
        "block_bytes": seal.block_bytes,
        "weights": [
            {
                "name": file.name,
                "bytes": file.size_bytes,
                "header_sha256": file.header_sha256,
                "blocks": base64.b64encode(file.digests).decode(),
            }
            for file in seal.files
        ],
        "files": [
            {"name": small.name, "bytes": small.size_bytes, "sha256": small.sha256} for _, small in sorted(seal.others.items())
        ],
    }
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def parse_seal(payload: bytes, *, where: str) -> Seal:
    """A seal from its verified JSON; not yet fitted to a checkpoint.

    Args:
        payload: what was signed.
        where: the object's full name, for messages.

    Raises:
        IntegrityError: it is not a seal of this version.
        IncompatibleError: its algorithm is not installed here.
    """
    try:
        algorithm, block_bytes, tree = _frame(payload)
        files = tuple(_weight_file(entry) for entry in tree["weights"])
        others = {small.name: small for small in map(_small_file, tree["files"])}
        if len(others) != len(tree["files"]) or len({file.name for file in files}) != len(files):
            _refuse("it names a file twice")
        created_at = str(tree.get("created_at", ""))[:40]
    except _Refused as refused:
        raise IntegrityError(f"{where}: is no seal: {refused}", object=where, hint=AGAIN) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        problem = "is no seal: it is not of the form that glowplug writes"
        raise IntegrityError(f"{where}: {problem}", object=where, hint=AGAIN) from None
    return Seal(algorithm, block_bytes, files, MappingProxyType(others), created_at)


def _frame(payload: bytes) -> tuple[str, int, dict[str, list[Mapping[str, object]]]]:
    if len(payload) > MAX_SEAL_BYTES:
        _refuse("it is too large")
    tree = json.loads(payload)
    if not isinstance(tree, dict) or tree.get("schema") != SCHEMA:
        _refuse(f"its schema is not {SCHEMA}")
    algorithm, block_bytes = tree["algorithm"], tree["block_bytes"]
    if algorithm not in ALGORITHMS:
        _refuse(f"it has digests of a kind that this version does not know, {str(algorithm)[:40]!r}")
    if type(block_bytes) is not int or not MIN_BLOCK_BYTES <= block_bytes <= MAX_BLOCK_BYTES:
        _refuse(f"its blocks must have {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES} bytes")
    return algorithm, block_bytes, tree


def _weight_file(entry: Mapping[str, object]) -> SealedFile:
    name, size_bytes = _name_and_size(entry)
    header, blocks = entry["header_sha256"], entry["blocks"]
    if not isinstance(header, str) or not _SHA256.fullmatch(header) or not isinstance(blocks, str):
        _refuse(f"{name[:200]!r} has no digests")
    try:
        digests = base64.b64decode(blocks, validate=True)
    except binascii.Error:
        _refuse(f"the digests of {name[:200]!r} are not base64")
    if len(digests) % DIGEST_BYTES:
        _refuse(f"the digests of {name[:200]!r} are cut short")
    return SealedFile(name, size_bytes, header, digests)


def _small_file(entry: Mapping[str, object]) -> SealedSmall:
    name, size_bytes = _name_and_size(entry)
    sha256 = entry["sha256"]
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        _refuse(f"{name[:200]!r} has no digest")
    return SealedSmall(name, size_bytes, sha256)


def _name_and_size(entry: Mapping[str, object]) -> tuple[str, int]:
    name, size_bytes = entry["name"], entry["bytes"]
    if not isinstance(name, str) or not isinstance(size_bytes, int) or isinstance(size_bytes, bool) or size_bytes < 0:
        _refuse("a file has no name or no size")
    return name, size_bytes


def _refuse(reason: str) -> NoReturn:
    raise _Refused(reason)
