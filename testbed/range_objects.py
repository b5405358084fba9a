"""The range server's objects: the files of a folder whose first level are buckets, and S3's documents about them."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import os
from email.utils import format_datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_MOST_KEYS = 1000


class Object(NamedTuple):
    """One file."""

    path: Path
    key: str
    size_bytes: int
    modified_s: float
    etag: str
    """Quoted. Made of inode, size and modification time: a file that is replaced or written to has another one."""

    @property
    def last_modified(self) -> str:
        """For the header of this name."""
        return format_datetime(dt.datetime.fromtimestamp(int(self.modified_s), dt.UTC), usegmt=True)


class Objects:
    """All buckets below a folder. Files may come, change and go while it serves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def has_bucket(self, bucket: str) -> bool:
        """Whether the folder has such a subfolder."""
        return bool(bucket) and self._inside(self._folder / bucket) and (self._folder / bucket).is_dir()

    def find(self, bucket: str, key: str) -> Object | None:
        """An object; None where there is none."""
        path = self._folder / bucket / key
        return _object(path, key) if self._inside(path) and path.is_file() else None

    def listing(self, bucket: str, query: Mapping[str, str]) -> str:
        """The answer to ListObjectsV2."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        token = query.get("continuation-token", "")
        after = base64.urlsafe_b64decode(token.encode()).decode() if token else query.get("start-after", "")
        most = min(int(query.get("max-keys", _MOST_KEYS)), _MOST_KEYS)
        encode = quote if query.get("encoding-type") == "url" else escape
        rows: dict[str, Object | None] = {}  # None: a common prefix
        truncated, last = False, ""
        for found in self._below(bucket, prefix):
            rest = found.key[len(prefix) :]
            is_folder = bool(delimiter) and delimiter in rest
            name = prefix + rest[: rest.index(delimiter) + len(delimiter)] if is_folder else found.key
            if name <= after or name in rows:
                continue
            if len(rows) == most:
                truncated = True
                break
            rows[name] = None if is_folder else found
            last = name
        following = base64.urlsafe_b64encode(last.encode()).decode()
        parts = [
            f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult {_NAMESPACE}>',
            f"<Name>{escape(bucket)}</Name><Prefix>{encode(prefix)}</Prefix><KeyCount>{len(rows)}</KeyCount><MaxKeys>{most}</MaxKeys>",
            f"<Delimiter>{encode(delimiter)}</Delimiter>" if delimiter else "",
            "<EncodingType>url</EncodingType>" if encode is quote else "",
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>",
            f"<NextContinuationToken>{following}</NextContinuationToken>" if truncated else "",
            *(
                f"<Contents><Key>{encode(name)}</Key><LastModified>{_iso(found.modified_s)}</LastModified><ETag>{escape(found.etag)}</ETag>"
                f"<Size>{found.size_bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                if found
                else f"<CommonPrefixes><Prefix>{encode(name)}</Prefix></CommonPrefixes>"
                for name, found in rows.items()
            ),
            "</ListBucketResult>",
        ]
        return "".join(parts)

    def _below(self, bucket: str, prefix: str) -> Iterator[Object]:
        root = self._folder / bucket
        base = root / prefix.rpartition("/")[0]
        if not self._inside(base):
            return
        keys = []
        for folder, _, names in os.walk(base, followlinks=True):
            keys += [os.path.relpath(os.path.join(folder, name), root) for name in names]
        for key in sorted(keys):
            if key.startswith(prefix) and (found := self.find(bucket, key)):
                yield found

    def _inside(self, path: Path) -> bool:
        # The path as written: a bucket may be a link to a model that lies elsewhere.
        return os.path.normpath(path).startswith(f"{self._folder}{os.sep}")


def location() -> str:
    """The answer to GetBucketLocation: an empty one means us-east-1."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<LocationConstraint {_NAMESPACE}/>'


def error(code: str, resource: str) -> str:
    """S3's error document."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{escape(code)}</Code><Message>{escape(code)}</Message>'
        f"<Resource>{escape(resource)}</Resource><RequestId>testbed</RequestId></Error>"
    )


def _object(path: Path, key: str) -> Object:
    status = os.stat(path)
    made_of = f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
    return Object(path, key, status.st_size, status.st_mtime, f'"{hashlib.sha256(made_of.encode()).hexdigest()[:32]}"')


def _iso(modified_s: float) -> str:
    return dt.datetime.fromtimestamp(modified_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
