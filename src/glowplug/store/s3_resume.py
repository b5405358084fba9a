"""What an interrupted upload has left in a bucket, so that the next one goes on from there.

Nothing is kept on this machine for it: the server lists unfinished uploads and their parts, and a part counts only if its size is
the one that is wanted and its ETag is the MD5 of the bytes that lie here. Where the server has other ETags (SSE-KMS), or can't or
mayn't list uploads, nothing matches, and the upload starts over. This module changes nothing in the bucket.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from glowplug.store.s3_client import Refused

if TYPE_CHECKING:
    from glowplug.store.file_slice import FileSlice
    from glowplug.store.s3_client import S3Client

_MOST_PAGES = 100


class Part(NamedTuple):
    """A part that the server has."""

    size_bytes: int
    etag: str


def unfinished(client: S3Client, key: str) -> str:
    """The id of the newest unfinished upload of an object; empty if there is none, or if uploads can't be listed.

    Raises:
        RemoteError: as ``S3Client.call``.
    """
    query = {"uploads": "", "prefix": key, "max-uploads": "1000", "encoding-type": "url"}
    found = [
        (upload.findtext("{*}Initiated") or "", upload.findtext("{*}UploadId") or "")
        for upload in _listing(client, "", query).findall("{*}Upload")
        if unquote_plus(upload.findtext("{*}Key") or "") == key
    ]
    return max(found, default=("", ""))[1]


def parts(client: S3Client, key: str, upload_id: str) -> dict[int, Part]:
    """The parts of an unfinished upload, by number from 1; empty where they can't be listed.

    Raises:
        RemoteError: as ``S3Client.call``.
    """
    query = {"uploadId": upload_id, "max-parts": "1000"}
    found: dict[int, Part] = {}
    for _ in range(_MOST_PAGES):
        page = _listing(client, key, query)
        for part in page.findall("{*}Part"):
            number, size = part.findtext("{*}PartNumber") or "", part.findtext("{*}Size") or ""
            if number.isdecimal() and size.isdecimal():
                found[int(number)] = Part(int(size), part.findtext("{*}ETag") or "")
        marker = page.findtext("{*}NextPartNumberMarker") or ""
        if page.findtext("{*}IsTruncated") != "true" or not marker:
            break
        query["part-number-marker"] = marker
    return found


def matches(part: Part | None, body: FileSlice) -> bool:
    """Whether the server's part holds these bytes. Reads them, if the sizes are equal."""
    if part is None or part.size_bytes != body.size_bytes:
        return False
    digest = hashlib.md5(usedforsecurity=False)
    for block in body:
        digest.update(block)
    return part.etag.strip('"').lower() == digest.hexdigest()


def _listing(client: S3Client, key: str, query: dict[str, str]) -> ET.Element:
    """A listing's document; an empty one where the server refuses, or answers something else."""
    try:
        text = client.call("GET", key, lambda reply: reply.read(), query=query)
        return ET.fromstring(text)  # noqa: S314  expat >= 2.4 bounds what entities can grow to
    except (Refused, ET.ParseError):
        return ET.Element("none")
