"""Objects under a prefix: in memory, in a folder, in S3.

``open_store`` turns a URL into a store, and loads only the backend that the URL names: botocore alone costs more time than a whole
restore from a local store. It never contacts a server: a store that can't be reached says so at its first use.
"""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.store.base import Store

_FORMS = "write s3://bucket/prefix, file:///absolute/folder or /absolute/folder"
_NOT_YET = {"gs", "gcs", "az", "azure", "abfs", "abfss"}


def open_store(url: str, *, env: Mapping[str, str]) -> Store:
    """The store that a URL names: ``s3://bucket/prefix``, ``file:///folder``, or an absolute path.

    Args:
        url: what the user wrote.
        env: the environment, for ``AWS_*``, ``GLOWPLUG_S3_ADDRESSING`` and the proxy variables.

    Raises:
        UsageError: an unknown scheme, no bucket, a relative folder, or credentials in the URL.
    """
    if url.startswith("/"):
        return _local(url, url)
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _NOT_YET:
        raise UsageError(f"{scheme}:// is not supported yet", object=scheme, hint=_FORMS)
    if separator and scheme == "file":
        return _local(unquote(rest.removeprefix("localhost")), url)
    if separator and scheme == "s3":
        _refuse_credentials(url)
        from glowplug.store.s3 import S3Store  # noqa: PLC0415  only who uses S3 pays for loading it

        return S3Store.open(url, env=env)
    if separator:
        _refuse_credentials(url)
        raise UsageError(f"{url!r}: a store has no scheme {scheme}://", object=scheme, hint=_FORMS)
    hint = f"for a folder of this machine write {os.path.abspath(url)}" if url and ":" not in url else _FORMS
    raise UsageError(f"{url!r} is not the URL of a store", object=url, hint=hint)


def _local(folder: str, url: str) -> Store:
    if not folder.startswith("/") or "\0" in folder:
        raise UsageError(f"{url!r}: a file:// store needs an absolute folder", object=url, hint="write file:///absolute/folder")
    if not folder.strip("/."):
        raise UsageError(f"{url!r}: the root of the file system can't be a store", object=url, hint="name a folder below it")
    from glowplug.store.local import LocalStore  # noqa: PLC0415  as for S3

    return LocalStore(Path(os.path.normpath(folder)), url=url)


def _refuse_credentials(url: str) -> None:
    # Never in the message: what stands before the @ may be a secret.
    if "@" in urlsplit(url).netloc:
        raise UsageError(
            "a store's URL must not hold credentials",
            object=url.partition("://")[0],
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and write s3://bucket/prefix",
        )
