"""One small file of a published generation, without restoring it: what an engine recorded there of its own key."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from glowplug.cache import layout
from glowplug.cache.fetch import ObjectStream
from glowplug.cache.pack import read_pack
from glowplug.errors import ObjectNotFound
from glowplug.units import MIB

if TYPE_CHECKING:
    from glowplug.cache.deadline import Deadline
    from glowplug.cache.manifest import Manifest
    from glowplug.store.base import Store


def read_member(store: Store, manifest: Manifest, path: str, *, deadline: Deadline) -> bytes:
    """A file's content. The pack is read from its beginning to the file, since it is one stream; nothing is written.

    Args:
        store: where the pack is.
        manifest: of the generation, its signature verified.
        path: as the manifest has it.
        deadline: checked between pieces.

    Raises:
        ObjectNotFound: the generation holds no such file.
        BadPack: the pack is not what the manifest says.
        RemoteError: the store did not deliver.
        DeadlineExceeded: the time is up.
    """
    key = layout.pack_key(manifest.envelope.digest, manifest.pack.sha256)
    content = bytearray()
    with ObjectStream(store, key, manifest.pack.size_bytes, deadline=deadline) as source:
        for entry, piece in read_pack(manifest.files, source, name=key, slab=itertools.repeat(bytearray(MIB)).__next__):
            if entry.path != path:
                continue
            content += piece
            if len(content) == entry.size_bytes:
                return bytes(content)
    raise ObjectNotFound(f"{key} holds no {path}", object=path)
