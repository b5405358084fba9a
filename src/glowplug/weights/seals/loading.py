"""The seal that lies beside a checkpoint: fetched, its signature verified by whoever asks, and held against the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.errors import IntegrityError
from glowplug.weights.seals.document import parse_seal
from glowplug.weights.seals.seal import AGAIN, MAX_SEAL_BYTES
from glowplug.weights.transfer.marker import SEAL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from glowplug.weights.base import Checkpoint, Source
    from glowplug.weights.seals.seal import Seal


def load_seal(source: Source, checkpoint: Checkpoint, verify: Callable[[bytes], bytes]) -> Seal | None:
    """The seal beside a checkpoint, verified and fitted to it; None if there is none. One listing, and one small read.

    A single file is held to the seal of its folder, which then says nothing of the other files.

    Args:
        source: where the checkpoint lies.
        checkpoint: as it was opened there.
        verify: takes the signed envelope and gives what is in it, or raises ``errors.TrustError``.

    Raises:
        IntegrityError: it is not a seal, was signed by nobody who is trusted here, or is that of other content.
        IncompatibleError: its algorithm is not installed here.
        RemoteError: it can't be read.
    """
    found = _load(source, checkpoint, verify)
    return found[1] if found else None


def load_signed_seal(source: Source, checkpoint: Checkpoint, verify: Callable[[bytes], bytes]) -> bytes | None:
    """The same as its signed document, to be brought along to a copy of the checkpoint. Raises as ``load_seal``."""
    found = _load(source, checkpoint, verify)
    return found[0] if found else None


def _load(source: Source, checkpoint: Checkpoint, verify: Callable[[bytes], bytes]) -> tuple[bytes, Seal] | None:
    if source.is_single:
        entry = source.beside(SEAL_NAME)
    else:
        entry = next((entry for entry in source.entries() if entry.name == SEAL_NAME), None)
    if entry is None:
        return None
    where = source.name_of(entry)
    if entry.size_bytes > MAX_SEAL_BYTES:
        raise IntegrityError(f"{where}: has {entry.size_bytes} bytes, more than {MAX_SEAL_BYTES}", object=where, hint=AGAIN)
    document = source.read_small(entry, 0, entry.size_bytes)
    folder = where.removesuffix(SEAL_NAME)
    seal = parse_seal(verify(document), where=where)
    is_listed = not where.startswith(("http://", "https://"))
    return document, seal.fit(
        checkpoint, where=where, name_of=lambda name: folder + name, is_listed=is_listed, is_single=source.is_single
    )
