"""What the push of a checkpoint left for whoever pulls it: the digest of each file, in its complete marker.

It is not signed: it finds what was changed or damaged after the push, not who lies. A marker without digests, such as a pull
leaves, is no such thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.errors import IntegrityError, ObjectNotFound
from glowplug.weights.transfer.marker import COMPLETE_NAME, MAX_MARKER_BYTES, parse_marker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.weights.base import Entry, Source

_HINT = "push the checkpoint again; or delete glowplug.complete.json there, if it was changed on purpose"


def pushed_digests(source: Source, entries: Mapping[str, Entry]) -> dict[str, str]:
    """Name to SHA-256 of each file, from the marker that a push has left; empty without one. Names and sizes are compared here.

    Args:
        source: where the checkpoint lies.
        entries: its listing, by name.

    Raises:
        IntegrityError: a file that the marker names is missing, or has another size; or the marker is none.
        RemoteError: it can't be read.
    """
    entry = entries.get(COMPLETE_NAME)
    if entry is None:
        return {}
    where = source.name_of(entry)
    if entry.size_bytes > MAX_MARKER_BYTES:
        raise IntegrityError(f"{where}: is no complete marker: it is too large", object=where, hint="delete it, and push again")
    try:
        marker = parse_marker(source.read_small(entry, 0, entry.size_bytes), name=where)
    except ObjectNotFound:
        return {}  # a push has begun there since, and says so to nobody who pulls
    digests = {file.name: file.sha256 for file in marker.files if file.sha256}
    folder = where.removesuffix(COMPLETE_NAME)
    is_listed = not where.startswith(("http://", "https://"))  # a web server tells only of files that it was asked for
    for file in marker.files if digests else ():
        found = entries.get(file.name)
        if found is None and is_listed:
            what = f"{folder}{file.name}: is missing, and {COMPLETE_NAME} says that it was pushed"
            raise IntegrityError(what, object=folder + file.name, hint=_HINT)
        if found is not None and found.size_bytes != file.size_bytes:
            what = f"{folder}{file.name}: has {found.size_bytes} bytes, and {COMPLETE_NAME} says {file.size_bytes}"
            raise IntegrityError(what, object=folder + file.name, hint=_HINT)
    return digests


def differs(where: str) -> IntegrityError:
    """The error for a file whose bytes are not those that were pushed."""
    return IntegrityError(f"{where}: is not as it was pushed: its SHA-256 is not that of {COMPLETE_NAME}", object=where, hint=_HINT)
