"""Which keys a store accepts.

One rule for every backend, so that a key that works in a folder works in a bucket and the other way round, and no key can ever
leave the store's prefix. This module never touches a backend.
"""

from __future__ import annotations

import re

from glowplug.errors import UsageError

RESERVED = ".glowplug"
"""A part of the names that the backends keep for themselves (temporary files, locks, probes). Never listed, at any depth: one
store may lie inside another."""

_ALLOWED = re.compile(r"[A-Za-z0-9._/=-]*")
_HINT = "use letters, digits and . _ = - in parts separated by /"


def check_key(key: str) -> None:
    """Accept a key, or raise.

    Raises:
        UsageError: a character outside ``[A-Za-z0-9._/=-]``, an empty, ``.`` ``..`` or reserved part.
    """
    parts = key.split("/")
    if not _ALLOWED.fullmatch(key) or not _plain(parts):
        raise UsageError(f"{key!r} is not a key a store can hold", object=key, hint=_HINT)


def check_list_prefix(prefix: str) -> None:
    """Accept the beginning of a key: as ``check_key``, but it may be empty, and its last part may be unfinished.

    Raises:
        UsageError: no key can begin so.
    """
    *whole, last = prefix.split("/")
    if not _ALLOWED.fullmatch(prefix) or not _plain(whole) or last == "..":
        raise UsageError(f"{prefix!r} is not the beginning of a key", object=prefix, hint=_HINT)


def is_key(key: str) -> bool:
    """Whether a store of ours can have written this name; a foreign one is not listed."""
    parts = key.split("/")
    return bool(_ALLOWED.fullmatch(key)) and _plain(parts)


def _plain(parts: list[str]) -> bool:
    return not any(part in {"", ".", "..", RESERVED} for part in parts)
