"""The seal of a checkpoint: signed digests of its bytes, block by block, so that a load checks each before a tensor is handed out.

Why: a bucket is written by more people than should decide what a model answers, TLS protects the way and not the place, and the
digest of a whole file is known only when its last byte has come, long after its first tensor was used. So each weight file is cut
into blocks, counted from where its header ends, and each block has a digest of its own; headers and small files (configuration,
tokenizer, code) have one each; what no engine reads (model cards, licences) is not sealed. The document (``seal_document.py``) is
signed by whoever seals, and lies beside the checkpoint as ``glowplug.seal.json``. Functions that sign and verify are passed in:
nothing here knows keys.

A seal that does not fit the checkpoint is an error, never ignored. This module reads no weights (``sealing.py`` does).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from glowplug.errors import IncompatibleError, IntegrityError, UsageError
from glowplug.units import MIB, count
from glowplug.weights.checkpoint.small_files import is_small_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from glowplug.weights.base import Checkpoint, Entry

ALGORITHMS = ("sha256", "blake3")
BLOCK_BYTES = 8 * MIB
"""One digest for so many bytes. A checkpoint of 1 TB has 120,000 blocks, and a seal of 7 MiB."""
MAX_SEAL_BYTES = 64 * MIB
"""What is larger is refused unread."""
DIGEST_BYTES = 32
"""Of both algorithms."""
AGAIN = "if this checkpoint is as it should be, seal it again: glowplug weights seal"


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> object: ...
    def digest(self) -> bytes: ...


class SealedFile(NamedTuple):
    """A weight file as it was sealed."""

    name: str
    size_bytes: int
    header_sha256: str
    """Of all before the first block, as ``WeightFile.header_sha256``."""
    digests: bytes
    """One after another, 32 bytes each."""


class SealedSmall(NamedTuple):
    """A small file as it was sealed."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Seal:
    """Digests of a checkpoint. Satisfies ``base.Verifier`` once it was fitted to one (``fit``): files are counted as there.

    Attributes:
        algorithm: of the blocks' digests; small files and headers always have sha256.
        block_bytes: of each block but a file's last.
        files: weight files.
        others: small files, by name.
        created_at: RFC 3339.
    """

    algorithm: str
    block_bytes: int
    files: tuple[SealedFile, ...]
    others: Mapping[str, SealedSmall]
    created_at: str = ""
    _new: Callable[[], _Hash] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_new", new_hash(self.algorithm))

    def check(self, file: int, block: int, pieces: Sequence[memoryview]) -> bool:
        """Whether a block's bytes, in pieces that follow each other, are those that were sealed. Thread-safe; no copy."""
        wanted = self.digest(file, block)
        digest = self._new()
        for piece in pieces:
            digest.update(piece)
        return bool(wanted) and digest.digest() == wanted

    def digest(self, file: int, block: int) -> bytes:
        """The sealed digest; empty where the file has no such block."""
        return self.files[file].digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]

    def check_small(self, name: str, data: bytes, *, where: str) -> None:
        """Compare a small file's content.

        Args:
            name: relative to the checkpoint.
            data: the whole file.
            where: its full name, for messages.

        Raises:
            IntegrityError: it is not what was sealed, or was not sealed at all.
        """
        sealed = self.others.get(name)
        if sealed is None:
            raise IntegrityError(f"{where}: is not in the seal", object=where, hint=AGAIN)
        if len(data) != sealed.size_bytes or hashlib.sha256(data).hexdigest() != sealed.sha256:
            raise IntegrityError(f"{where}: is not what was sealed", object=where, hint=AGAIN)

    def fit(
        self,
        checkpoint: Checkpoint,
        *,
        where: str,
        name_of: Callable[[str], str] = str,
        is_listed: bool = True,
        is_single: bool = False,
    ) -> Seal:
        """The same seal, its files in the checkpoint's order. Compares names, sizes and header digests; reads nothing.

        Args:
            checkpoint: what is to be loaded.
            where: the seal's full name, for messages.
            name_of: a file's full name, for messages.
            is_listed: the checkpoint's small files come from a listing. A web server lists nothing, so a small file that was sealed
                and was not asked for is none that is missing.
            is_single: the checkpoint is one file of what was sealed; the others are not looked for.

        Raises:
            IntegrityError: the checkpoint is not the one that was sealed. Names the first file that differs.
        """
        sealed = {file.name: file for file in self.files}
        fitted: list[SealedFile] = []
        for file in checkpoint.files:
            found = sealed.pop(file.name, None)
            if found is None:
                raise _differs(name_of(file.name), where, "is not in the seal")
            if found.size_bytes != file.size_bytes:
                raise _differs(name_of(file.name), where, f"has {file.size_bytes} bytes, and {found.size_bytes} were sealed")
            if found.header_sha256 != file.header_sha256:
                raise _differs(name_of(file.name), where, "has another header than the one that was sealed")
            blocks = -(-(file.size_bytes - file.data_start) // self.block_bytes)
            if len(found.digests) != blocks * DIGEST_BYTES:
                problem = f"has {count(blocks, 'block')}, and {len(found.digests) // DIGEST_BYTES} were sealed"
                raise _differs(name_of(file.name), where, problem)
            fitted.append(found)
        if sealed and not is_single:
            raise _differs(name_of(min(sealed)), where, "was sealed, and is not there")
        missing = self._fit_others(sealed_entries(checkpoint), where, name_of)
        if missing and is_listed and not is_single:
            raise _differs(name_of(min(missing)), where, "was sealed, and is not there")
        return Seal(self.algorithm, self.block_bytes, tuple(fitted), self.others, self.created_at)

    def _fit_others(self, others: Iterable[Entry], where: str, name_of: Callable[[str], str]) -> set[str]:
        """Compare small files; returns the names of those that are not there."""
        missing = set(self.others)
        for entry in others:
            small = self.others.get(entry.name)
            missing.discard(entry.name)
            if small is None:
                raise _differs(name_of(entry.name), where, "is not in the seal")
            if small.size_bytes != entry.size_bytes:
                raise _differs(name_of(entry.name), where, f"has {entry.size_bytes} bytes, and {small.size_bytes} were sealed")
        return missing


def new_hash(algorithm: str) -> Callable[[], _Hash]:
    """What makes an empty digest.

    Raises:
        UsageError: there is no such algorithm.
        IncompatibleError: ``blake3`` is not installed.
    """
    if algorithm == "sha256":
        return hashlib.sha256
    if algorithm != "blake3":
        hint = f"choose one of {', '.join(ALGORITHMS)}"
        raise UsageError(f"{algorithm!r} is no algorithm of a seal", object=algorithm, hint=hint)
    try:
        from blake3 import blake3  # noqa: PLC0415  an extra, for who asks for it
    except ImportError:
        hint = "install glowplug[blake3], or seal with --algorithm sha256"
        raise IncompatibleError("the seal needs blake3, which is not installed", object="blake3", hint=hint) from None
    new: Callable[[], _Hash] = blake3
    return new


def sealed_entries(checkpoint: Checkpoint) -> list[Entry]:
    """The files besides weights that a seal holds: those that an engine reads. A model card may change."""
    return [entry for entry in checkpoint.others if is_small_file(entry.name)]


def _differs(name: str, where: str, problem: str) -> IntegrityError:
    return IntegrityError(f"{name}: {problem} ({where})", object=name, hint=AGAIN)
