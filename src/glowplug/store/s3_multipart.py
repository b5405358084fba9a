"""Large files to S3: in parts, several at a time, all or nothing.

Memory: one 1 MiB block for each of at most eight connections, whatever the file's size; the parts are read from the page cache as
they are sent. No part is visible to anyone until the last request completes the object; on any failure the upload is aborted, so
that no invisible parts are left to pay for.

The threads are daemons, so that a process that must exit with the engine's code is never kept by an upload.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING

from glowplug.errors import GlowplugError, LocalError, Unreachable
from glowplug.store import s3_errors, s3_http
from glowplug.store.s3_client import Refused
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.store.s3_client import S3Client

SINGLE_LIMIT_BYTES = 64 * MIB
"""Up to this size a file goes in one request."""
PART_BYTES = 16 * MIB
_CONNECTIONS = 8
_MOST_PARTS = 10_000  # https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
_BLOCK_BYTES = MIB


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A part of a file as a request's body. Each iteration starts over, with one block of its own.

    Iterating raises ``LocalError``, never ``OSError``: that would look like a broken connection, worth another attempt.
    """

    fd: int
    path: str
    """For messages."""
    start: int
    size_bytes: int

    def __iter__(self) -> Iterator[memoryview]:
        block = memoryview(bytearray(min(_BLOCK_BYTES, max(self.size_bytes, 1))))
        sent = 0
        while sent < self.size_bytes:
            want = min(block.nbytes, self.size_bytes - sent)
            try:
                count = os.preadv(self.fd, [block[:want]], self.start + sent)
            except OSError as error:
                raise LocalError(f"the file can't be read: {error.strerror}", object=self.path) from error
            if not count:
                text = f"{self.path} became shorter than {self.start + self.size_bytes} bytes while it was sent"
                raise LocalError(text, object=self.path)
            yield block[:count]
            sent += count

    def sha256(self) -> str:
        """Hex digest of the slice."""
        digest = hashlib.sha256()
        for block in self:
            digest.update(block)
        return digest.hexdigest()


def upload(client: S3Client, key: str, file: FileSlice) -> str:
    """Write an object from a file in parts; returns its ETag. Blocks until it is complete.

    Raises:
        Refused: the server refused a request.
        RemoteError: as ``S3Client.call``.
    """
    upload_id = client.call("POST", key, lambda reply: _element(reply.read(), "UploadId"), query={"uploads": ""})
    try:
        etags = _send_parts(
            client, key, upload_id, [replace(file, start=start, size_bytes=size) for start, size in _plan(file.size_bytes)]
        )
        return _complete(client, key, upload_id, etags, file.size_bytes)
    except BaseException:
        # Best effort: the first error is the one to tell, and an interrupt must not be answered by another failure.
        with contextlib.suppress(GlowplugError, Refused):
            client.call("DELETE", key, _discard, query={"uploadId": upload_id}, expect=frozenset({200, 204}))
        raise


def _plan(size_bytes: int) -> list[tuple[int, int]]:
    """Start and size of each part."""
    size = max(PART_BYTES, -(-size_bytes // _MOST_PARTS))
    return [(start, min(size, size_bytes - start)) for start in range(0, size_bytes, size)]


def _send_parts(client: S3Client, key: str, upload_id: str, parts: list[FileSlice]) -> list[str]:
    etags = [""] * len(parts)
    failures: list[BaseException] = []
    numbers = iter(range(len(parts)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None or failures:
                return
            try:
                etags[number] = _send_part(client, key, upload_id, number + 1, parts[number])
            except BaseException as error:  # noqa: BLE001  handed to the caller's thread, which raises it
                failures.append(error)

    threads = [threading.Thread(target=work, name="glowplug-upload", daemon=True) for _ in range(min(_CONNECTIONS, len(parts)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:
        failures.append(error)  # stops the workers after the part they are at
        raise
    if failures:
        raise failures[0]
    return etags


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


def _discard(reply: s3_http.Reply) -> None:
    reply.read()


def _element(body: bytes, name: str) -> str:
    match = re.search(rf"<{name}>([^<]*)</{name}>", body.decode("utf-8", "replace"))
    return unescape(match[1]) if match else ""
