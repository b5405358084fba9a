"""What a push would bring, and what at the target forbids it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import LocalError, PreconditionFailed
from glowplug.store.keys import check_key
from glowplug.units import count
from glowplug.weights.transfer.digests import Stamp, stamp
from glowplug.weights.transfer.marker import is_own

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from glowplug.weights.base import Checkpoint, WeightFile
    from glowplug.weights.transfer.marker import Marker

_WEIGHTS = (".safetensors", ".safetensors.index.json")
_DEPTH = 2  # as far as a source looks


class PushItem(NamedTuple):
    """One file to push."""

    name: str
    """Relative to the checkpoint: its key."""
    path: Path
    stamp: Stamp
    """Of the file when the push began."""
    weights: WeightFile | None
    """Of a weight file, its layout."""

    @property
    def has_changed(self) -> bool:
        """Since the push began. Raises LocalError where it is gone."""
        return stamp(self.path) != self.stamp

    def changed(self) -> LocalError:
        """The error that says so."""
        hint = "push again when nothing writes there"
        return LocalError(f"{self.path} changed while it was pushed", object=str(self.path), hint=hint)


def push_items(checkpoint: Checkpoint, folder: Path) -> list[PushItem]:
    """All files to push, weights first.

    Raises:
        UsageError: a name that can't be a key.
        LocalError: a file is gone, or another one since the checkpoint was opened.
    """
    named: list[tuple[str, WeightFile | None]] = [(file.name, file) for file in checkpoint.files]
    named += [(entry.name, None) for entry in checkpoint.others if not is_own(entry.name)]
    for name, _ in named:
        check_key(name)
    items = [PushItem(name, folder / name, stamp(folder / name), weights) for name, weights in named]
    for item in items:
        if item.weights is not None and item.weights.size_bytes != item.stamp.size_bytes:
            raise item.changed()
    return items


def dangling_links(folder: Path) -> list[str]:
    """Names of links that lead nowhere, as deep as a checkpoint goes; none of them is a file that an engine reads."""
    found: list[str] = []
    pending = [(folder, "")]
    while pending:
        place, prefix = pending.pop()
        for path in sorted(place.iterdir()):
            name = prefix + path.name
            if path.name.startswith("."):
                continue
            if path.is_symlink() and not path.exists():
                found.append(name)
            elif not path.is_symlink() and path.is_dir() and prefix.count("/") < _DEPTH:
                pending.append((path, f"{name}/"))
    return found


def strays(items: Sequence[PushItem], present: AbstractSet[str]) -> tuple[str, ...]:
    """Weight files at the target that are no part of what is pushed."""
    names = {item.name for item in items}
    return tuple(sorted(key for key in present if key.endswith(_WEIGHTS) and key not in names))


def refuse_others(
    url: str,
    items: Sequence[PushItem],
    present: AbstractSet[str],
    known: Mapping[str, str | None],
    marker: Marker | None,
    *,
    folder_name: str = "",
) -> None:
    """Make sure that a push replaces nothing that it does not know, and mixes with nothing.

    Args:
        url: of the target, for messages.
        items: to push.
        present: keys at the target.
        known: the digest of each item that lies there already; None of the others.
        marker: of a complete checkpoint that lies there.
        folder_name: of the folder that is pushed, for the hint.

    Raises:
        PreconditionFailed: it would.
    """
    hint = "push to another prefix, or replace what is there with --force"
    others = [item.name for item in items if item.name in present and known[item.name] is None]
    if others:
        what = f"holds {count(len(others), 'file')} of other content under the same name, such as {others[0]}"
        raise PreconditionFailed(f"{url} {what}", object=others[0], hint=hint)
    foreign = strays(items, present)
    if foreign:
        what = f"holds {count(len(foreign), 'weight file')} that the checkpoint does not have, such as {foreign[0]}"
        if all("/" in name for name in foreign):  # other models have this for their parent
            hint = (
                f"push to a prefix of its own, such as {url.rstrip('/')}/{folder_name or 'model'}; --force would leave them there"
            )
        raise PreconditionFailed(f"{url} {what}", object=foreign[0], hint=hint)
    gone = sorted(set(marker.by_name) - {item.name for item in items}) if marker is not None else []
    if gone:
        what = f"holds a complete checkpoint that has {gone[0]}, and this one does not"
        raise PreconditionFailed(f"{url} {what}", object=gone[0], hint=hint)
