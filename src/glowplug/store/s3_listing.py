"""What lies under a prefix of a bucket, page by page, with every name as it is.

A store of ours lists only keys that it can have written; a bucket of models holds others. So this is the listing itself, and who
asks decides what to leave out. It knows no refusals: they pass through.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from glowplug.errors import RemoteError
from glowplug.store.base import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.store.s3_client import S3Client

_PAGE_KEYS = 1000


def objects(client: S3Client, prefix: str) -> Iterator[ObjectInfo]:
    """Every object whose whole key starts with ``prefix``, in the server's order; ``ObjectInfo.key`` is the whole key.

    Raises:
        Refused: the server's answer.
        RemoteError: it does not answer as an S3 server does, or as for ``S3Client.call``.
    """
    query = {"list-type": "2", "max-keys": str(_PAGE_KEYS), "encoding-type": "url", "prefix": prefix}
    while True:
        text = client.call("GET", "", lambda reply: reply.read(), query=query)
        try:
            page = ET.fromstring(text)  # noqa: S314  expat >= 2.4 bounds what entities can grow to
        except ET.ParseError as error:
            raise no_s3(client) from error
        for element in page:
            _strip_namespace(element)
        for entry in page.findall("Contents"):
            info = _listed(entry)
            if info.key.startswith(prefix):
                yield info
        token = page.findtext("NextContinuationToken")
        if page.findtext("IsTruncated") != "true" or not token:
            return
        query["continuation-token"] = token


def no_s3(client: S3Client) -> RemoteError:
    """The error for an answer that no S3 server gives."""
    origin = client.endpoint.origin
    return RemoteError(f"{origin} does not answer as an S3 server does", object=origin, hint="check AWS_ENDPOINT_URL")


def _listed(entry: ET.Element) -> ObjectInfo:
    for element in entry:
        _strip_namespace(element)
    key = unquote_plus(entry.findtext("Key") or "")
    modified = datetime.fromisoformat(entry.findtext("LastModified") or "").timestamp()
    return ObjectInfo(key, int(entry.findtext("Size") or ""), entry.findtext("ETag") or "", modified)


def _strip_namespace(element: ET.Element) -> None:
    # Amazon's documents have a namespace, some servers' have none.
    element.tag = element.tag.rpartition("}")[2]
