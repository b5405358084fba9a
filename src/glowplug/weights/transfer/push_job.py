"""The work of a push: what is known of the files here and of those at the target, sending, and comparing once more at the end."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Literal, NamedTuple

from glowplug.errors import IntegrityError, LocalError, ObjectNotFound, PreconditionFailed, RemoteError
from glowplug.weights.fetch.crew import each
from glowplug.weights.seals.seal import BLOCK_BYTES
from glowplug.weights.transfer.digests import FileDigests, digest_file
from glowplug.weights.transfer.marker import (
    COMPLETE_NAME,
    MAX_MARKER_BYTES,
    PUSHING_NAME,
    SEAL_NAME,
    Marker,
    parse_marker,
)
from glowplug.weights.transfer.push_claim import Claim, content_of
from glowplug.weights.transfer.push_items import PushItem, refuse_others
from glowplug.weights.transfer.pushed import PushedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from glowplug.store.base import ObjectInfo, Store
    from glowplug.weights.transfer.push_targets import Target

_FILES_AT_ONCE = 4
_TRIES = 5
"""Each is lost only to a file that the push which was taken over had under way, and it has at most four."""


class Sealing(NamedTuple):
    """That the checkpoint is to be sealed, and how."""

    sign: Callable[[bytes], bytes]
    """Gives the signed envelope of a payload."""
    algorithm: str = "sha256"
    block_bytes: int = BLOCK_BYTES


class There(NamedTuple):
    """What lies at the target."""

    present: Mapping[str, ObjectInfo]
    known: Mapping[str, str | None]
    """The digest of each file that lies there as it lies here; None for each that must be sent."""
    complete: bool
    """All of it does, and the marker says so."""


class PushJob:
    """One push: what is known of the files here, and of those at the target."""

    def __init__(
        self, store: Store, target: Target, sealing: Sealing | None, progress: Callable[[int], None], *, folder_name: str = ""
    ) -> None:
        self._store = store
        self._target = target
        self._sealing = sealing
        self._progress = progress
        self._folder_name = folder_name
        self._lock = threading.Lock()
        self._etags: dict[str, str] = {}  # of what was sent, and of what lay there and was compared
        self._compared: dict[tuple[str, str], str] = {}  # by name and ETag
        self.digests: dict[str, FileDigests] = {}
        self.has_written = False
        """Whether this push has begun to change the target."""

    def look(self, items: Sequence[PushItem], *, force: bool, again: bool = False) -> There:
        """Compare what lies at the target with what lies here.

        Args:
            items: to push.
            force: whether it may be replaced.
            again: the claim is ours, and progress was told.

        Raises:
            PreconditionFailed: other files lie there, or are being pushed there, and ``force`` is not set.
        """
        present = {info.key: info for info in self._store.list("")}
        if PUSHING_NAME in present and not force:
            Claim(self._store, self.content(items)).refuse_other()
        marker = self._marker(present)
        known = self._compare(items, present, marker, tell=not again)
        if not force:
            refuse_others(self._store.url, items, set(present), known, marker, folder_name=self._folder_name)
        marked = {file.name: file.sha256 for file in marker.files} if marker is not None else {}
        complete = set(marked) == set(known) and all(known.values())
        return There(present, known, complete and all(marked[name] in {"", known[name]} for name in known))

    def content(self, items: Sequence[PushItem]) -> str:
        """What is pushed, for the claim. Reads every file once."""
        found = each(lambda item: self._digest(item).sha256, items, threads=_FILES_AT_ONCE, name="glowplug-digest")
        return content_of({item.name: digest for item, digest in zip(items, found, strict=True)})

    def _marker(self, present: Mapping[str, ObjectInfo]) -> Marker | None:
        """The complete marker that lies there; None if there is none, or one that is not ours."""
        info = present.get(COMPLETE_NAME)
        if info is None or info.size_bytes > MAX_MARKER_BYTES:
            return None
        with contextlib.suppress(IntegrityError, ObjectNotFound):  # then it says nothing, and is replaced by one that does
            return parse_marker(self._store.get(COMPLETE_NAME).data, name=f"{self._store.url}/{COMPLETE_NAME}")
        return None

    def _compare(
        self, items: Sequence[PushItem], present: Mapping[str, ObjectInfo], marker: Marker | None, *, tell: bool
    ) -> Mapping[str, str | None]:
        def one(item: PushItem) -> str | None:
            info = present.get(item.name)
            if info is None or info.size_bytes != item.stamp.size_bytes:
                return None
            there = self._compared.get((item.name, info.etag)) or self._digest_there(item.name, info.size_bytes)
            # Only where the object itself can't tell; what was written after the marker is not what the marker tells of.
            marked = marker.by_name.get(item.name) if marker is not None else None
            if not there and marked is not None and info.modified_s <= present[COMPLETE_NAME].modified_s:
                there = marked.sha256
            self._compared[item.name, info.etag] = there
            if not there or there != self._digest(item).sha256:
                return None
            self._etags[item.name] = info.etag
            if tell:
                self._tell(info.size_bytes)
            return there

        found = each(one, items, threads=_FILES_AT_ONCE, name="glowplug-compare")
        return {item.name: digest for item, digest in zip(items, found, strict=True)}

    def _digest_there(self, key: str, size_bytes: int) -> str:
        try:
            return self._target.digest(key, size_bytes)
        except ObjectNotFound:
            return ""  # it went since it was listed

    def bring(self, items: Sequence[PushItem], there: There, claim: Claim) -> tuple[PushedFile, ...]:
        """Make the target what lies here, but for marker and seal; from the first change on it is no complete checkpoint."""
        missing = not all(there.known.values())
        if COMPLETE_NAME in there.present and not there.complete:
            self.has_written = True
            self._store.delete(COMPLETE_NAME)
        files = tuple(self._send(items, there.known, claim))
        if SEAL_NAME in there.present and missing:
            self._store.delete(SEAL_NAME)  # of what lay there before; it would make every load of the new content fail
        return files

    def settle(
        self, items: Sequence[PushItem], files: Sequence[PushedFile], claim: Claim, *, force: bool
    ) -> tuple[PushedFile, ...]:
        """Compare once more, just before the marker: every object must be the one that was sent, or found and compared.

        Args:
            items: to push.
            files: what was done with them.
            claim: on the place.
            force: send a file again that was replaced: a push that was taken over may have had it under way.

        Raises:
            PreconditionFailed: another hand has written here meanwhile.
        """
        for tries_left in range(_TRIES - 1 if force else 0, -1, -1):
            claim.hold()
            others = self._replaced(items)
            if not others:
                return tuple(files)
            if tries_left:
                again = {file.name: file for file in self.bring(items, self.look(items, force=True, again=True), claim)}
                files = [again[file.name] if again[file.name].state == "sent" else file for file in files]
        what = f"{self._store.url}/{others[0]}: was replaced or removed by another hand during the push"
        if len(others) > 1:
            what += f", and {len(others) - 1} more"
        hint = "it is not marked complete; push again when nobody else writes there"
        raise PreconditionFailed(what, object=others[0], hint=hint)

    def _replaced(self, items: Sequence[PushItem]) -> list[str]:
        """Names of what is not, or no longer, at the target as it lies here."""
        present = {info.key: info for info in self._store.list("")}

        def differs(item: PushItem) -> bool:
            info = present.get(item.name)
            if info is None or info.size_bytes != item.stamp.size_bytes:
                return True
            if info.etag and info.etag == self._etags.get(item.name):
                return False
            return self._digest_there(item.name, info.size_bytes) != self._digest(item).sha256

        found = each(differs, items, threads=_FILES_AT_ONCE, name="glowplug-verify")
        return [item.name for item, differing in zip(items, found, strict=True) if differing]

    def mark(self, document: bytes, claim: Claim, seal: bytes | None) -> None:
        """Write the complete marker, last of all; and take it away again, with the seal, if another push took over in this moment.

        Raises:
            PreconditionFailed: one did, and may have begun to write.
        """
        self._store.put(COMPLETE_NAME, document)
        try:
            claim.hold()
        except PreconditionFailed:
            for key, mine in ((COMPLETE_NAME, document), (SEAL_NAME, seal)):
                with contextlib.suppress(ObjectNotFound):
                    if mine is not None and self._store.get(key).data == mine:
                        self._store.delete(key)
            raise

    def give_up(self, claim: Claim, error: BaseException) -> None:
        """After an error: leave no claim that means nothing, and no marker of another push over a file of this one."""
        with contextlib.suppress(RemoteError, LocalError):  # the first error is the one to tell
            if claim.made and not self.has_written:
                claim.release()
            elif self.has_written and self._unmark_mixture() and isinstance(error, RemoteError):
                hint = "push the one that is to stay again, with --force"
                error.hint = f"a file of this push has landed there, so it is not complete: {hint}"

    def _unmark_mixture(self) -> bool:
        """Remove the marker of a push that took over, if a file that was under way here has landed under it. Whether one has."""
        present = {info.key: info for info in self._store.list("")}
        marker = self._marker(present)
        for file in marker.files if marker is not None else ():
            mine, info = self.digests.get(file.name), present.get(file.name)
            if mine and info and mine.sha256 != file.sha256 and info.etag == self._etags.get(file.name):
                self._store.delete(COMPLETE_NAME)
                return True
        return False

    def holds(self, key: str, data: bytes, present: Mapping[str, ObjectInfo]) -> bool:
        """Whether a small object lies there with just this content."""
        return key in present and present[key].size_bytes == len(data) and self._store.get(key).data == data

    def _send(self, items: Sequence[PushItem], known: Mapping[str, str | None], claim: Claim) -> Iterable[PushedFile]:
        """Send what is not there: weights first, then the small files."""

        def one(item: PushItem) -> PushedFile:
            if known.get(item.name) is not None:
                return reported(item, known, "there")
            digests = self._digest(item)
            kept: list[int] = []
            there: list[int] = []

            def advance(size_bytes: int, sent: bool) -> None:
                if not sent:
                    kept.append(size_bytes)
                there.append(size_bytes)
                self._tell(size_bytes)
                if len(there) > 1 and sum(there) == item.stamp.size_bytes:
                    claim.hold()  # it has taken a while, and after this it lands

            claim.hold()  # a push by force replaces this one, which must not write over it
            self.has_written = True
            self._etags[item.name] = self._target.upload(item.name, item.path, digests.sha256, advance)
            if item.has_changed:
                raise item.changed()
            return PushedFile(item.name, item.stamp.size_bytes, digests.sha256, "sent", sum(kept))

        for batch in ([item for item in items if item.weights], [item for item in items if not item.weights]):
            yield from each(one, batch, threads=_FILES_AT_ONCE, name="glowplug-push", stop=self._target.stop)

    def _digest(self, item: PushItem) -> FileDigests:
        digests = self.digests.get(item.name)
        if digests is None:
            sealed = self._sealing if item.weights is not None else None
            digests = digest_file(
                item.path,
                algorithm=sealed.algorithm if sealed else None,
                data_start=item.weights.data_start if item.weights else 0,
                block_bytes=sealed.block_bytes if sealed else BLOCK_BYTES,
            )
            if item.has_changed:
                raise item.changed()
            self.digests[item.name] = digests
        return digests

    def _tell(self, size_bytes: int) -> None:
        with self._lock:
            self._progress(size_bytes)


def reported(item: PushItem, known: Mapping[str, str | None], state: Literal["there", "to send"]) -> PushedFile:
    """A file that this push has not sent."""
    digest = known.get(item.name)
    return PushedFile(item.name, item.stamp.size_bytes, digest or "", "there" if digest else state)
