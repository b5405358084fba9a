"""Which files a pull brings, and in which pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import IntegrityError
from glowplug.units import MIB
from glowplug.weights.base import WeightFile
from glowplug.weights.fetch.ferry import PIECE_BYTES, Piece, cut
from glowplug.weights.transfer.marker import is_own
from glowplug.weights.transfer.pull_journal import STATE_FOLDER, Version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from glowplug.weights.base import Checkpoint, Entry, Source
    from glowplug.weights.seals.seal import Seal

_WHOLE_BYTES = 64 * MIB
"""A sealed small file is compared whole; larger ones are not small."""


class Wanted(NamedTuple):
    """A file to pull."""

    file: WeightFile
    pieces: tuple[Piece, ...]
    """Their file's index is set by whoever fetches them."""
    version: Version


def wanted_files(
    source: Source,
    checkpoint: Checkpoint,
    entries: dict[str, Entry],
    seal: Seal | None,
    digests: Mapping[str, str],
    *,
    everything: bool,
) -> list[Wanted]:
    """All files of a checkpoint, in the pieces in which they can be verified.

    Args:
        source: where it lies, for messages.
        checkpoint: as it was opened there.
        entries: the listing, by name.
        seal: cuts the pieces, if there is one.
        digests: of whole files, from ``pushed_digests``.
        everything: weight files too that would not be loaded.

    Raises:
        IntegrityError: a name that must not be written here.
    """
    block_bytes = seal.block_bytes if seal else 0
    found: list[Wanted] = []
    for file in checkpoint.files:
        pieces = (Piece(0, 0, file.data_start), *cut(0, file.data_start, file.size_bytes, block_bytes or PIECE_BYTES))
        found.append(
            Wanted(file, pieces, Version(file.size_bytes, file.etag, block_bytes, "" if seal else digests.get(file.name, "")))
        )
    others = [entry for entry in checkpoint.others if not is_own(entry.name)]
    if everything:
        others += [entries[name] for name, _ in checkpoint.ignored if name in entries]
    for entry in others:
        sealed = seal is not None and entry.name in seal.others
        whole = sealed and entry.size_bytes <= _WHOLE_BYTES
        pieces = tuple(cut(0, 0, entry.size_bytes, max(1, entry.size_bytes) if whole else PIECE_BYTES))
        file = WeightFile(entry.name, entry.size_bytes, entry.etag, 0, "")
        found.append(
            Wanted(file, pieces, Version(entry.size_bytes, entry.etag, block_bytes, "" if sealed else digests.get(entry.name, "")))
        )
    names = {item.file.name for item in found}
    for item in found:
        _refuse_name(item.file, source, names)
    return found


def _refuse_name(file: WeightFile, source: Source, names: AbstractSet[str]) -> None:
    """A name decides where bytes are written, and comes from whoever writes to the store; one that is another's folder can't be."""
    parts = file.name.split("/")
    if (
        any("/".join(parts[:depth]) in names for depth in range(1, len(parts)))
        or "\0" in file.name
        or parts[0] == STATE_FOLDER
        or any(part in {"", ".", ".."} or len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts)
    ):
        where = source.name_of(file)
        raise IntegrityError(f"{where}: no file may be written under this name", object=where, hint="remove it from the checkpoint")
