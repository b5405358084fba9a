"""A store in a bucket of Amazon S3, or of any server that speaks its protocol.

The parts: ``s3_endpoint`` (where), ``s3_session`` (who), ``s3_http`` (connections), ``s3_client`` (signed requests, retries),
``s3_errors`` (refusals), ``s3_listing``, ``s3_multipart`` (large files). This module puts a store together from them.

**Conditional writes are proven, not believed.** A server that does not know ``If-None-Match`` or ``If-Match`` on a PUT ignores it
and answers 200, and two writers overwrite each other. So before the first conditional write of each kind to a server that
isn't Amazon's, a condition that can't hold is sent to an object of our own, ``.glowplug/conditional-writes``: one small request for
each store and kind (two, the very first time in a bucket). A server that checks first and writes later (SeaweedFS before its fix of
issue 8800) can't be told so; only a race shows it, as ``tests/contract`` runs one.

**A lost answer is not a lost race.** A conditional write whose answer got lost is sent again and finds its own first attempt. Each
conditional write therefore carries a random mark as metadata; a refusal after such a doubt is checked against the object's mark.
"""

from __future__ import annotations

import email.utils
import functools
import os
import random
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from glowplug.errors import LocalError, ObjectNotFound, PreconditionFailed, Unreachable
from glowplug.store import s3_errors, s3_http, s3_listing, s3_multipart
from glowplug.store.base import MAX_SMALL_BYTES, Blob, ObjectInfo, require_small
from glowplug.store.file_slice import FileSlice
from glowplug.store.keys import RESERVED, check_key, check_list_prefix, is_key
from glowplug.store.s3_client import Refused, S3Client
from glowplug.store.s3_endpoint import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_MARK = "x-amz-meta-glowplug-write"
_SHA256 = "x-amz-meta-glowplug-sha256"
_PROBE_KEY = f"{RESERVED}/conditional-writes"
_IMPOSSIBLE_ETAG = '"00000000000000000000000000000000"'
_IF_ABSENT = {"If-None-Match": "*"}
_MOST_DIGITS = 20  # of a length
_WHOLE_HINT = "use a server that answers ranges, as S3 does"


class S3Store:
    """Objects below a prefix of a bucket. Satisfies ``store.base.Store``.

    Args:
        location: bucket and prefix.
        client: for the bucket.
        url: the store as the user wrote it.
    """

    def __init__(self, location: Location, client: S3Client, *, url: str) -> None:
        self._location = location
        self._client = client
        self._url = url
        self._bucket_seen = False
        self._proven: set[str] = set()
        self._proof = threading.Lock()

    @classmethod
    def open(cls, url: str, *, env: Mapping[str, str]) -> S3Store:
        """The store at ``s3://bucket/prefix``. Contacts nobody.

        Raises:
            UsageError: the URL names no bucket, or can't be one.
        """
        location = Location.parse(url)
        return cls(location, S3Client(location.bucket, env), url=url)

    @property
    def url(self) -> str:
        """As the user wrote it."""
        return self._url

    @property
    def spool(self) -> Path | None:
        """None: a file is copied to the server in any case."""
        return None

    def read_into(self, key: str, start: int, buffer: memoryview, *, if_match: str | None = None) -> int | None:
        """See ``Store.read_into``. A range that breaks off is read again from its beginning."""
        check_key(key)
        view = buffer.cast("B")
        if not view.nbytes:
            return None
        last = start + view.nbytes - 1
        headers = {"Range": f"bytes={start}-{last}"} | ({"If-Match": if_match} if if_match else {})
        name = self._name(key)

        def consume(reply: s3_http.Reply) -> int | None:
            total = reply.header("Content-Length")
            if reply.status == 200 and not (start == 0 and total == str(view.nbytes)):
                raise Unreachable(f"{self._client.endpoint.origin} ignores the range of {name}", object=name, hint=_WHOLE_HINT)
            if reply.status == 206:
                sent, _, total = reply.header("Content-Range").partition("/")
                if sent != f"bytes {start}-{last}":
                    raise Unreachable(f"{name} ends before the range that was asked for: got {sent or 'no range'}", object=name)
            if reply.fill(view) != view.nbytes:
                raise s3_http.Broken("the answer was cut short")
            reply.read()  # nothing is left; this tells the connection so
            return int(total) if total.isdecimal() and len(total) < _MOST_DIGITS else None  # "*" is allowed, and says nothing

        with self._refusals(key, pinned=if_match is not None):
            return self._client.call("GET", self._whole(key), consume, headers=headers, expect=frozenset({200, 206}))

    def get(self, key: str, *, most_bytes: int = MAX_SMALL_BYTES) -> Blob:
        """See ``Store.get``."""
        check_key(key)

        def consume(reply: s3_http.Reply) -> Blob:
            announced = reply.header("Content-Length")
            if announced.isdecimal():
                require_small(self._name(key), int(announced), most_bytes)
            data = reply.read() if announced else reply.read(most_bytes + 1)  # without a length by chunks
            require_small(self._name(key), len(data), most_bytes)
            return Blob(data, reply.header("ETag"))

        with self._refusals(key):
            return self._client.call("GET", self._whole(key), consume)

    def head(self, key: str) -> ObjectInfo:
        """See ``Store.head``."""
        check_key(key)

        def consume(reply: s3_http.Reply) -> ObjectInfo:
            reply.read()
            try:
                modified = email.utils.parsedate_to_datetime(reply.header("Last-Modified")).timestamp()
                return ObjectInfo(key, int(reply.header("Content-Length")), reply.header("ETag"), modified)
            except ValueError as error:
                raise s3_listing.no_s3(self._client) from error

        with self._refusals(key):
            try:
                return self._client.call("HEAD", self._whole(key), consume)
            except Refused as refused:
                if refused.answer.status == 404 and self._bucket_seen:
                    raise
                self._explain(key)
                raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list``. Nothing is asked before the first step.

        Amazon lists in key order, so a page of 1000 keys is in memory at a time. Other servers go folder by folder, ``a/b`` before
        ``a-b``: there the whole listing is held and sorted, about 400 bytes a key.
        """
        check_list_prefix(prefix)
        return self._sorted_pages(prefix)

    def put(self, key: str, data: bytes) -> str:
        """See ``Store.put``."""
        check_key(key)
        with self._refusals(key):
            return self._client.call("PUT", self._whole(key), s3_multipart.take_etag, body=data)

    def put_file(self, key: str, path: Path, *, sha256: str) -> str:
        """See ``Store.put_file``. Above 64 MiB in parts of 16 MiB on eight connections, with a block of 1 MiB each."""
        check_key(key)
        with _opened(path) as whole, self._refusals(key):
            if whole.size_bytes > s3_multipart.SINGLE_LIMIT_BYTES:
                return s3_multipart.upload(self._client, self._whole(key), whole)
            return self._put_whole(key, whole, sha256, {})

    def upload(
        self,
        key: str,
        path: Path,
        *,
        sha256: str,
        lanes: s3_multipart.Lanes | None = None,
        progress: Callable[[int, bool], None] | None = None,
    ) -> str:
        """``put_file`` for what is too large to send twice: interrupted, the next call goes on with the parts that are there.

        The digest is kept with the object, and ``sha256`` tells it. Returns the new ETag.

        Args:
            key: of the object.
            path: of the file; must not change meanwhile.
            sha256: hex digest of the file.
            lanes: shared with other uploads.
            progress: told the size of each part that is there, and whether it was sent now.

        Raises:
            LocalError: the file can't be read, or became shorter.
        """
        check_key(key)
        with _opened(path) as whole, self._refusals(key):
            headers = {_SHA256: sha256}
            if whole.size_bytes <= s3_multipart.SINGLE_LIMIT_BYTES:
                with lanes or s3_multipart.Lanes(1):
                    etag = self._put_whole(key, whole, sha256, headers)
                if progress is not None:
                    progress(whole.size_bytes, True)  # noqa: FBT003  one of two words
                return etag
            send = functools.partial(
                s3_multipart.upload, self._client, self._whole(key), whole, headers=headers, lanes=lanes, progress=progress
            )
            etag = send(resume=True)
            if self._client.call("HEAD", self._whole(key), lambda reply: reply.header(_SHA256)) in {"", sha256}:
                return etag
            return send()  # what was continued had been begun with another file: its parts are right, its digest is not

    def sha256(self, key: str) -> str:
        """The digest that ``upload`` was given for this object; empty if it was written in another way. Raises ObjectNotFound."""
        check_key(key)
        with self._refusals(key):
            try:
                return self._client.call("HEAD", self._whole(key), lambda reply: reply.header(_SHA256))
            except Refused:
                self._explain(key)
                raise

    def put_if_absent(self, key: str, data: bytes) -> str:
        """See ``Store.put_if_absent``."""
        check_key(key)
        self._prove("If-None-Match", _IF_ABSENT)
        return self._put_conditionally(key, data, _IF_ABSENT)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """See ``Store.put_if_match``."""
        check_key(key)
        self._prove("If-Match", {"If-Match": _IMPOSSIBLE_ETAG})
        return self._put_conditionally(key, data, {"If-Match": etag})

    def delete(self, key: str) -> None:
        """See ``Store.delete``."""
        check_key(key)
        try:
            with self._refusals(key):
                self._client.call("DELETE", self._whole(key), lambda reply: reply.read(), expect=frozenset({200, 204}))
        except ObjectNotFound:
            return

    def _put_whole(self, key: str, whole: FileSlice, sha256: str, headers: dict[str, str]) -> str:
        headers = {"Content-Length": str(whole.size_bytes)} | headers
        return self._client.call("PUT", self._whole(key), s3_multipart.take_etag, headers=headers, body=whole, body_sha256=sha256)

    def _put_conditionally(self, key: str, data: bytes, condition: Mapping[str, str]) -> str:
        mark = f"{random.getrandbits(128):032x}"
        with self._refusals(key, conditional=True):
            try:
                return self._client.call(
                    "PUT", self._whole(key), s3_multipart.take_etag, headers={**condition, _MARK: mark}, body=data
                )
            except Refused as refused:
                if not refused.in_doubt or refused.answer.status != 412:
                    raise
                etag = self._etag_if_marked(key, mark)
                if etag is None:
                    raise
                return etag

    def _etag_if_marked(self, key: str, mark: str) -> str | None:
        """The object's ETag if the write with this mark is the one that made it."""

        def consume(reply: s3_http.Reply) -> str | None:
            reply.read()
            return reply.header("ETag") if reply.header(_MARK) == mark else None

        try:
            return self._client.call("HEAD", self._whole(key), consume)
        except Refused:
            return None

    def _prove(self, kind: str, condition: Mapping[str, str]) -> None:
        """Make sure, once for each kind, that the server heeds the condition. Amazon documents that it does."""
        with self._proof:
            if kind in self._proven or self._client.endpoint.is_aws:
                return
            # If-None-Match succeeds once where the object is not there yet. An impossible ETag must never succeed.
            for _ in range(2 if condition is _IF_ABSENT else 1):
                try:
                    with self._refusals(_PROBE_KEY, conditional=True):
                        self._client.call(
                            "PUT", self._whole(_PROBE_KEY), s3_multipart.take_etag, headers=condition, body=b"probe\n"
                        )
                except PreconditionFailed:
                    self._proven.add(kind)
                    return
            raise s3_errors.unsupported(self._asked(_PROBE_KEY))

    def _sorted_pages(self, prefix: str) -> Iterator[ObjectInfo]:
        pages = self._pages(prefix)
        yield from pages if self._client.endpoint.is_aws else sorted(pages, key=lambda info: info.key)

    def _pages(self, prefix: str) -> Iterator[ObjectInfo]:
        whole = s3_listing.objects(self._client, self._whole(prefix))
        while True:
            with self._refusals(""):
                info = next(whole, None)
            if info is None:
                return
            key = info.key.removeprefix(self._location.prefix)
            if is_key(key):  # else someone else's object; a store of ours can't have written it
                yield replace(info, key=key)

    def _explain(self, key: str) -> None:
        """Raise the refusal that a HEAD, which has no body, could not put into words."""
        self._client.call(
            "GET", self._whole(key), lambda reply: reply.read(), headers={"Range": "bytes=0-0"}, expect=frozenset({200, 206})
        )

    @contextmanager
    def _refusals(self, key: str, *, conditional: bool = False, pinned: bool = False) -> Iterator[None]:
        try:
            yield
        except Refused as refused:
            if refused.answer.code in {"NoSuchKey", "PreconditionFailed"}:
                self._bucket_seen = True
            raise s3_errors.translate(refused.answer, self._asked(key, conditional=conditional, pinned=pinned)) from refused
        self._bucket_seen = True

    def _asked(self, key: str, *, conditional: bool = False, pinned: bool = False) -> s3_errors.Asked:
        endpoint = self._client.endpoint
        return s3_errors.Asked(
            self._name(key), self._location.bucket, endpoint.region, endpoint.origin, conditional, pinned, self._client.through
        )

    def _whole(self, key: str) -> str:
        return self._location.prefix + key

    def _name(self, key: str) -> str:
        return f"s3://{self._location.bucket}/{self._whole(key)}"


@contextmanager
def _opened(path: Path) -> Iterator[FileSlice]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}", object=str(path)) from error
    try:
        yield FileSlice(fd, str(path), 0, os.fstat(fd).st_size)
    finally:
        os.close(fd)
