"""Large files to S3: in parts, several at a time, all or nothing.

Memory: one 1 MiB block for each of at most eight connections, whatever the file's size; the parts are read from the page cache as
they are sent. No part is visible to anyone until the last request completes the object. On any failure the upload is aborted, so
that no invisible parts are left to pay for, unless the caller means to resume it (``s3_resume.py``).

The threads are daemons, so that a process that must exit with the engine's code is never kept by an upload.
"""

from __future__ import annotations

import contextlib
import re
import threading
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING, Self

from glowplug.errors import GlowplugError, LocalError, Unreachable
from glowplug.store import s3_errors, s3_http, s3_resume
from glowplug.store.s3_client import Refused
from glowplug.threads import begin_some
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glowplug.store.file_slice import FileSlice
    from glowplug.store.s3_client import S3Client

SINGLE_LIMIT_BYTES = 64 * MIB
"""Up to this size a file goes in one request."""
PART_BYTES = 16 * MIB
_CONNECTIONS = 8
_MOST_PARTS = 10_000  # https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html


class Lanes:
    """How many parts travel at once, over any number of uploads, and the end of all of them. Thread-safe.

    Args:
        connections: requests at once.
    """

    def __init__(self, connections: int = _CONNECTIONS) -> None:
        self.connections = connections
        self.closed = False
        self._free = threading.Semaphore(connections)

    def __enter__(self) -> Self:
        self._free.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._free.release()

    def close(self) -> None:
        """Let no further part begin. Uploads that wait for one end with ``LocalError``."""
        self.closed = True


def upload(
    client: S3Client,
    key: str,
    file: FileSlice,
    *,
    headers: Mapping[str, str] | None = None,
    resume: bool = False,
    lanes: Lanes | None = None,
    progress: Callable[[int, bool], None] | None = None,
) -> str:
    """Write an object from a file in parts; returns its ETag. Blocks until it is complete.

    Args:
        client: of the bucket.
        key: whole key.
        file: the content.
        headers: of the object (``x-amz-meta-*``). An upload that is continued keeps those that it was begun with.
        resume: continue an unfinished upload of this key, with those of its parts that hold the file's bytes; and on a failure
            of the store or an interrupt leave the parts for the next attempt.
        lanes: shared with other uploads; None for eight connections of its own.
        progress: told the size of each part that is there, and whether it was sent now.

    Raises:
        Refused: the server refused a request.
        RemoteError: as ``S3Client.call``.
        LocalError: the file can't be read, became shorter, or the lanes were closed.
    """
    slices = [replace(file, start=file.start + start, size_bytes=size) for start, size in _plan(file.size_bytes)]
    found = s3_resume.unfinished(client, key) if resume else ""
    kept = s3_resume.parts(client, key, found) if found else {}
    if not kept:
        found = client.call("POST", key, lambda reply: _element(reply.read(), "UploadId"), query={"uploads": ""}, headers=headers)
    batch = _Batch(client, key, found, slices, kept, lanes or Lanes(), progress or _ignore)
    try:
        return _complete(client, key, found, batch.send(), file.size_bytes)
    except BaseException as error:
        if kept and isinstance(error, Refused) and error.answer.code == "NoSuchUpload":
            # Somebody has completed or aborted it since it was listed.
            return upload(client, key, file, headers=headers, lanes=lanes, progress=progress)
        if not resume or isinstance(error, LocalError):
            # Best effort: the first error is the one to tell, and an interrupt must not be answered by another failure.
            with contextlib.suppress(GlowplugError, Refused):
                client.call("DELETE", key, _discard, query={"uploadId": found}, expect=frozenset({200, 204}))
        raise


def _plan(size_bytes: int) -> list[tuple[int, int]]:
    """Start and size of each part."""
    size = max(PART_BYTES, -(-size_bytes // _MOST_PARTS))
    return [(start, min(size, size_bytes - start)) for start in range(0, size_bytes, size)]


@dataclass(frozen=True, slots=True)
class _Batch:
    """The parts of one upload."""

    client: S3Client
    key: str
    upload_id: str
    slices: list[FileSlice]
    kept: dict[int, s3_resume.Part]
    lanes: Lanes
    progress: Callable[[int, bool], None]

    def send(self) -> list[str]:
        """Send what the server has not got; returns the parts' ETags."""
        etags = [""] * len(self.slices)
        failures: list[BaseException] = []
        numbers = iter(range(len(self.slices)))
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None or failures:
                    return
                try:
                    etags[number] = self._one(number)
                except BaseException as error:  # noqa: BLE001  handed to the caller's thread, which raises it
                    failures.append(error)

        lanes = min(self.lanes.connections, len(self.slices))
        threads = begin_some([threading.Thread(target=work, name="glowplug-upload", daemon=True) for _ in range(lanes)])
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:
            failures.append(error)  # stops the workers after the part they are at
            raise
        if failures:
            raise failures[0]
        return etags

    def _one(self, number: int) -> str:
        body, there = self.slices[number], self.kept.get(number + 1)
        with self.lanes:
            if self.lanes.closed:
                raise LocalError("the upload was stopped", object=body.path)
            if there is not None and s3_resume.matches(there, body):
                self.progress(body.size_bytes, False)  # noqa: FBT003  one of two words
                return there.etag
            etag = _send_part(self.client, self.key, self.upload_id, number + 1, body)
        self.progress(body.size_bytes, True)  # noqa: FBT003  the same
        return etag


def _send_part(client: S3Client, key: str, upload_id: str, number: int, body: FileSlice) -> str:
    return client.call(
        "PUT",
        key,
        take_etag,
        query={"partNumber": str(number), "uploadId": upload_id},
        headers={"Content-Length": str(body.size_bytes)},
        body=body,
        body_sha256=None if client.endpoint.https else body.sha256(),
    )


def _complete(client: S3Client, key: str, upload_id: str, etags: list[str], size_bytes: int) -> str:
    listed = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>" for n, etag in enumerate(etags, 1))
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    try:
        return client.call("POST", key, _take_completed, query={"uploadId": upload_id}, body=body)
    except Refused as refused:
        if refused.answer.code != "NoSuchUpload" or not refused.in_doubt:
            raise
        # The first attempt completed it and its answer was lost.
        length, etag = client.call("HEAD", key, lambda reply: (reply.header("Content-Length"), reply.header("ETag")))
        if length != str(size_bytes):
            raise
        return etag


def take_etag(reply: s3_http.Reply) -> str:
    """The ETag of what was written."""
    reply.read()
    return reply.header("ETag")


def _take_completed(reply: s3_http.Reply) -> str:
    # Amazon sends 200 at once to keep the connection alive, and the error, if there is one, afterwards in the body.
    body = reply.read()
    etag = _element(body, "ETag")
    if not etag:
        answer = s3_errors.parse_answer(200, "", "", body)
        if answer.asks_to_retry or not answer.code:
            raise s3_http.Broken(answer.text or "the answer was cut short")
        raise Unreachable(f"the upload could not be completed: {answer.summary}", hint="publish again")
    return etag


def _ignore(_size_bytes: int, _sent: bool) -> None: ...


def _discard(reply: s3_http.Reply) -> None:
    reply.read()


def _element(body: bytes, name: str) -> str:
    match = re.search(rf"<{name}>([^<]*)</{name}>", body.decode("utf-8", "replace"))
    return unescape(match[1]) if match else ""
