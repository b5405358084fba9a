"""The node's own copies of packs and manifests, in front of a store: what one pod has fetched, the next one on the node reads.

Only what can't change is kept: manifests and packs, both named by their content. Which generation is the newest, who compiles, and
what is in quarantine is always asked from the store, so that no copy hides a newer generation or a verdict. Where the store does
not answer ``latest`` in a few seconds, the generation that this node has used last is used, and that is said.

Nothing on the node is believed. A manifest's signature is verified before it is taken for the generation that it claims to be. A
pack is read to its end and compared with its digest before the first byte is handed out, and each range again when it is read,
since who wrote the pack could still hold it open. Whatever fails is fetched from the store, and is no evidence against the
generation. Copies are written beside the restore, from the same bytes; where that fails, nothing is kept.

Memory: 16 bytes for each 4 MiB of a pack, and one such range while a pack is checked.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from glowplug.cache import layout
from glowplug.cache.envelope import canonical_json
from glowplug.cache.manifest import Manifest
from glowplug.cache.node_pack import Check, Fill, check_pack
from glowplug.cache.trust import MAX_ENVELOPE_BYTES
from glowplug.errors import GlowplugError, LocalError, Unreachable
from glowplug.store.base import MAX_SMALL_BYTES, Blob
from glowplug.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from glowplug.cache.node_folder import NodeFolder
    from glowplug.cache.trust import Trust
    from glowplug.store.base import ObjectInfo, Store

_DIGEST = "[0-9a-f]{64}"
_KEY = re.compile(
    rf"{layout.ROOT}({_DIGEST})/(?:(latest)|generations/({_DIGEST})\.json|packs/({_DIGEST}\.tar\.zst)|quarantine/({_DIGEST})\.json)"
)
_ETAG = '"node"'
_SILENT_S = 30.0
"""For so long a store that did not answer is not asked again for what could be read elsewhere."""
_MAX_POINTER_BYTES = 1000

T = TypeVar("T")


class NodeStore:
    """A store with the node's copies in front of it. Satisfies ``store.base.Store``.

    Args:
        inner: the store.
        folder: the node's.
        trust: whose manifests are kept, and taken from the node.
        patience_s: how long ``latest`` may take before the node's own is used, if it has one.
        say: told once when the store does not answer, and for each pack that there is no room for.
    """

    def __init__(self, inner: Store, folder: NodeFolder, trust: Trust, *, patience_s: float, say: Callable[[str], None]) -> None:
        self._inner = inner
        self._folder = folder
        self._trust = trust
        self._patience_s = patience_s
        self._say = say
        self._silent_until_s = 0.0
        self._lock = threading.Lock()
        self._packs: dict[str, Manifest] = {}
        self._checks: dict[str, Check | None] = {}
        self._fills: dict[str, Fill | None] = {}

    @property
    def url(self) -> str:
        """The store's."""
        return self._inner.url

    @property
    def spool(self) -> Path | None:
        """The store's."""
        return self._inner.spool

    def get(self, key: str, *, most_bytes: int = MAX_SMALL_BYTES) -> Blob:
        """See ``Store.get``. Manifests come from the node if it has them, ``latest`` only where the store does not answer."""
        match = _KEY.fullmatch(key)
        if match is not None and match[2]:
            return self._latest(key, match[1], most_bytes)
        if match is not None and match[3]:
            return self._manifest(key, match[3])
        return self._ask(lambda: self._inner.get(key, most_bytes=most_bytes))

    def read_into(self, key: str, start: int, buffer: memoryview, *, if_match: str | None = None) -> int | None:
        """See ``Store.read_into``. Packs come from the node if it has them, and go to it on the way if not."""
        match = _KEY.fullmatch(key)
        name = match[4] if match is not None and if_match is None else None
        size_bytes = self._from_node(name, start, buffer) if name else None
        if size_bytes is None:
            size_bytes = self._ask(lambda: self._inner.read_into(key, start, buffer, if_match=if_match))
            if name:
                self._to_node(name, start, buffer)
        return size_bytes

    def head(self, key: str) -> ObjectInfo:
        """See ``Store.head``."""
        return self._ask(lambda: self._inner.head(key))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list``. A generation whose verdict is seen is kept no longer."""
        self._ask(lambda: None)
        for info in self._inner.list(prefix):
            match = _KEY.fullmatch(info.key)
            if match is not None and match[5]:
                self._folder.drop("generations", f"{match[5]}.json")
            yield info

    def put(self, key: str, data: bytes) -> str:
        """See ``Store.put``."""
        return self._inner.put(key, data)

    def put_file(self, key: str, path: Path, *, sha256: str) -> str:
        """See ``Store.put_file``."""
        return self._inner.put_file(key, path, sha256=sha256)

    def put_if_absent(self, key: str, data: bytes) -> str:
        """See ``Store.put_if_absent``."""
        return self._inner.put_if_absent(key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """See ``Store.put_if_match``."""
        return self._inner.put_if_match(key, data, etag)

    def delete(self, key: str) -> None:
        """See ``Store.delete``."""
        self._inner.delete(key)

    # --- latest

    def _latest(self, key: str, envelope: str, most_bytes: int) -> Blob:
        ours = self._node_s_own(envelope)
        if ours is None:
            return self._ask(lambda: self._inner.get(key, most_bytes=most_bytes))
        if time.monotonic() < self._silent_until_s:
            return ours
        answers: list[Blob | BaseException] = []

        def ask() -> None:
            try:
                answers.append(self._inner.get(key, most_bytes=most_bytes))
            except BaseException as error:  # noqa: BLE001  carried to the thread that waits
                answers.append(error)

        thread = threading.Thread(target=ask, name="glowplug-latest", daemon=True)
        if begin(thread):
            thread.join(self._patience_s)
        else:
            ask()
        answer = answers[0] if answers else Unreachable(f"no answer in {self._patience_s:g} s", object=key)
        if isinstance(answer, Blob):
            return answer
        if not isinstance(answer, Unreachable):
            raise answer
        self._silent_until_s = time.monotonic() + _SILENT_S
        self._say(f"{self.url} does not answer, so the newest generation that this node has is used: {answer.line()}")
        return ours

    def _node_s_own(self, envelope: str) -> Blob | None:
        """What this node used last for an envelope, if it is all there."""
        data = self._folder.read("latest", envelope, most_bytes=_MAX_POINTER_BYTES)
        try:
            generation = json.loads(data or b"{}")["generation"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        kept = self._kept(generation) if isinstance(generation, str) and re.fullmatch(_DIGEST, generation) else None
        if kept is None or kept[0].envelope.digest != envelope:
            return None
        pack = self._folder.open_file("packs", _pack_name(kept[0]))
        if pack is None:
            return None
        os.close(pack)
        return Blob(canonical_json({"generation": generation}), _ETAG)

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask the store, unless it has just been silent."""
        if time.monotonic() < self._silent_until_s:
            raise Unreachable(f"{self.url} did not answer a moment ago", object=self.url)
        return question()

    # --- manifests

    def _manifest(self, key: str, generation: str) -> Blob:
        kept = self._kept(generation)
        if kept is not None:
            self._packs[_pack_name(kept[0])] = kept[0]
            self._folder.touch("generations", f"{generation}.json")
            return Blob(kept[1], _ETAG)
        blob = self._ask(lambda: self._inner.get(key))
        manifest = self._verified(blob.data, generation)
        if manifest is not None:
            self._packs[_pack_name(manifest)] = manifest
            self._folder.write("generations", f"{generation}.json", blob.data)
        return blob

    def _kept(self, generation: str) -> tuple[Manifest, bytes] | None:
        data = self._folder.read("generations", f"{generation}.json", most_bytes=MAX_ENVELOPE_BYTES)
        manifest = self._verified(data, generation) if data is not None else None
        return None if data is None or manifest is None else (manifest, data)

    def _verified(self, data: bytes, generation: str) -> Manifest | None:
        """A manifest, if somebody trusted has signed it and it is what it claims to be."""
        try:
            manifest = Manifest.parse(self._trust.verify(data))
        except GlowplugError:
            return None
        return manifest if manifest.digest == generation else None

    # --- packs

    def _from_node(self, name: str, start: int, buffer: memoryview) -> int | None:
        """Fill the buffer from the node's pack, and return the pack's length; None if it has none that is good."""
        with self._lock:
            if name not in self._checks:
                self._checks[name] = check_pack(self._folder, name)
                if self._checks[name] is not None:
                    self._note_use(name)
            check = self._checks[name]
        return check.size_bytes if check is not None and check.read(self._folder, name, start, buffer.cast("B")) else None

    def _to_node(self, name: str, start: int, buffer: memoryview) -> None:
        """Keep a range that was fetched."""
        with self._lock:
            if name not in self._fills:
                self._fills[name] = self._begin(name)
            fill = self._fills[name]
        if fill is not None:
            fill.write(start, buffer.cast("B"))

    def _begin(self, name: str) -> Fill | None:
        manifest = self._packs.get(name)
        try:
            filling = self._folder.begin(name, manifest.pack.size_bytes) if manifest is not None else None
        except LocalError as error:
            self._say(error.line())
            return None
        if manifest is None or filling is None:
            return None
        fill = Fill(filling, manifest.pack.sha256, done=lambda: self._note_use(name))
        if begin(threading.Thread(target=fill.run, name="glowplug-keep", daemon=True)):
            return fill
        filling.abandon()
        return None

    def _note_use(self, name: str) -> None:
        """This pack is good, and its generation was the one to use for its envelope."""
        self._folder.touch("packs", name)
        manifest = self._packs.get(name)
        if manifest is not None:
            self._folder.write("latest", manifest.envelope.digest, canonical_json({"generation": manifest.digest}))


def _pack_name(manifest: Manifest) -> str:
    return f"{manifest.pack.sha256}.tar.zst"
