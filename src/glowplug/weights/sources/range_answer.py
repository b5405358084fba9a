"""What the answer to a request for a range must look like before a byte of it is taken.

Servers, proxies and caches get ranges wrong in ways that look like success: the whole object, another range, a compressed body, a
body in chunks, whose lengths would be taken for weights, an object that was replaced in between. This module tells them apart; it
sends nothing and knows no protocol beyond HTTP.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from glowplug.errors import ObjectChanged
from glowplug.weights.base import Retry

if TYPE_CHECKING:
    from glowplug.weights.base import Entry, WeightFile

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
CHUNKED = "sends ranges in chunks (Transfer-Encoding: chunked), so that their length is not known"
CHANGED_HINT = "start again, and publish new versions of a model under a new name"


class Answer(Protocol):
    """The head of an answer."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    def header(self, name: str) -> str:
        """A header's value, or the empty string. ``name`` in lower case."""
        ...


def range_headers(file: Entry | WeightFile, start: int, size_bytes: int) -> dict[str, str]:
    """What asks for a range, pinned to the file's ETag. A weak ETag matches no condition, so it is only compared afterwards."""
    headers = {"Range": f"bytes={start}-{start + size_bytes - 1}"}
    if file.etag and not file.etag.startswith("W/"):
        headers["If-Match"] = file.etag
    return headers


def check(answer: Answer, file: Entry | WeightFile, start: int, size_bytes: int, *, name: str) -> None:
    """Accept a 200 or 206 whose body is exactly the range, or raise.

    Raises:
        Retry: it is another range, the whole object, compressed, in chunks, or of unknown length.
        ObjectChanged: it belongs to another version of the object.
    """
    etag = answer.header("etag")
    if file.etag and etag and etag != file.etag:
        raise changed(name, start, size_bytes)
    if answer.header("content-encoding") not in {"", "identity"}:
        raise _wrong(f"the server sent it compressed ({answer.header('content-encoding')})")
    if is_chunked(answer):
        raise _wrong(f"the server {CHUNKED}")
    length = answer.header("content-length")
    if answer.status == 200 and not (start == 0 and size_bytes == file.size_bytes == _number(length)):
        raise _wrong("the server ignored the range and sent the whole object")
    if answer.status == 206:
        found = _CONTENT_RANGE.fullmatch(answer.header("content-range"))
        if found and found[3] not in {"*", str(file.size_bytes)}:
            raise changed(name, start, size_bytes)
        if not found or (found[1], found[2]) != (str(start), str(start + size_bytes - 1)):
            raise _wrong(f"the server sent another range: {answer.header('content-range')[:80] or 'it does not say which'}")
    if _number(length) != size_bytes:
        raise _wrong(f"the server announced {length or 'an unknown number of'} bytes")


def is_chunked(answer: Answer) -> bool:
    """Whether the body has lengths between its bytes. It then says nothing of its own length beforehand, whatever else is said."""
    return answer.header("transfer-encoding").lower() not in {"", "identity"}


def total_bytes(answer: Answer) -> int | None:
    """Size of the whole object, as the answer to a range tells it; None if it does not."""
    found = _CONTENT_RANGE.fullmatch(answer.header("content-range"))
    return _number(found[3]) if found else None


def changed(name: str, start: int, size_bytes: int) -> ObjectChanged:
    """The error for an object that is no longer the one that was listed."""
    return ObjectChanged(
        f"{name} has been replaced since the load began: bytes {start}-{start + size_bytes - 1} would be of another version",
        object=name,
        hint=CHANGED_HINT,
    )


def _wrong(reason: str) -> Retry:
    return Retry(reason, hint="the server, or a proxy on the way to it, answers ranges wrongly: go around it, or see its settings")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
