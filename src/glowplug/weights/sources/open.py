"""From what a user writes to a source. Loads only the kind that is named, and asks no server anything."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.weights.base import Source
    from glowplug.weights.sources.direct import Direct

DIRECT = "GLOWPLUG_WEIGHTS_DIRECT"
"""Environment variable: ``auto``, ``always`` or ``never`` read local files past the page cache."""

_MODES: tuple[Direct, ...] = ("auto", "always", "never")
_SLIPPED = re.compile(r"(s3|https?|file)(?::/?|//)(?!/)", re.IGNORECASE)
_FORMS = "write s3://bucket/prefix, https://host/folder, file:///folder or a path"


def open_source(uri: str, *, env: Mapping[str, str] | None = None) -> Source:
    """The source that a URI names: a folder of files, or one file.

    Args:
        uri: ``s3://bucket/prefix``, ``http(s)://host/path``, ``file:///path``, or a path.
        env: the environment: credentials, endpoints, and ``GLOWPLUG_WEIGHTS_DIRECT``. None: this process's.

    Raises:
        UsageError: an unknown scheme, or a URI that can't be.
    """
    env = os.environ if env is None else env
    direct = _direct(env)  # a value that can't be is an error whatever is read
    scheme, separator, rest = uri.partition("://")
    scheme = scheme.lower()
    if separator and scheme == "s3":
        from glowplug.weights.sources.s3 import S3Source  # noqa: PLC0415  only who uses S3 pays for loading it

        return S3Source(uri, env=env)
    if separator and scheme in {"http", "https"}:
        from glowplug.weights.sources.http import HttpSource  # noqa: PLC0415  as for S3

        return HttpSource(uri, env=env)
    if separator and scheme == "file":
        path = unquote(rest.removeprefix("localhost"))
        if not path.startswith("/"):
            raise UsageError(f"{uri!r} names no absolute path", object=uri, hint="write file:///absolute/folder, or the plain path")
        return _local(path, uri, direct)
    if separator:
        # Never more of it in the message: it may hold credentials.
        raise UsageError(f"weights can't be read from {scheme}://", object=scheme, hint=_FORMS)
    if (meant := _SLIPPED.match(uri)) and not os.path.lexists(uri):
        rest = uri[meant.end() :]
        hint = f"did you mean {meant[1].lower()}://{'' if '@' in rest else rest}"  # it may hold credentials
        raise UsageError(f"after {meant[1]} come a colon and two slashes", object=meant[1], hint=hint)
    return _local(uri, uri, direct)


def _local(path: str, uri: str, direct: Direct) -> Source:
    if not path or "\0" in path:
        raise UsageError(f"{uri!r} names no file or folder", object=uri, hint=_FORMS)
    from glowplug.weights.sources.local import LocalSource  # noqa: PLC0415  as for S3

    return LocalSource(path, uri=uri, direct=direct)


def _direct(env: Mapping[str, str]) -> Direct:
    wanted = env.get(DIRECT, "").strip().lower() or "auto"
    for mode in _MODES:
        if mode == wanted:
            return mode
    raise UsageError(f"{DIRECT}: {wanted!r} is not known", object=DIRECT, hint="set it to auto, always or never")
