"""What a value looks like: an address, a port, a path, the name of a pod. Nothing is looked up, and nobody's names are known here.

Two pods of one deployment differ in values of few shapes, and those are the ones that nobody meant to be part of a cache's key. So
the shape of a value, together with the words in its name, tells an accident from a decision in most cases.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json

_LONGEST = 4096  # characters of a value that are looked at
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_ABSOLUTE = re.compile(r"~?/[^:;,\s]+")
_HOST_PORT = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?\[?([0-9a-fA-F.:]+?)\]?(?::\d{1,5})?/?", re.IGNORECASE)
# ReplicaSets and DaemonSets add five letters of this alphabet to a pod's name, ReplicaSets the hash of their template before it.
_POD = re.compile(r"([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|\d{1,5})")
_HOST = re.compile(
    r"(?:ip|node|host|worker)-?\d[\w-]*(?:\.[\w-]+)*|[a-z0-9](?:[a-z0-9-]*\.)+(?:internal|local|svc|cluster|lan)\.?\w*"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_HOME = re.compile(r"~|/root|/home/[^/]+|/Users/[^/]+")


def words_of(name: str) -> frozenset[str]:
    """The words of a variable's or an option's name in lower case: ``VLLM_HOST_IP`` is vllm, host and ip."""
    return frozenset(word.lower() for word in _WORD.findall(name))


def has_address(value: Json) -> bool:
    """Whether there is an IPv4 or IPv6 address in it, alone or with a port, in a URL, or in a list."""
    return any(_is_address(item) for item in _items(value))


def is_uuid(value: Json) -> bool:
    """Whether it is, or holds, a UUID."""
    return isinstance(value, str) and _UUID.search(value[:_LONGEST]) is not None


def is_url(value: Json) -> bool:
    """Whether it begins as a URL does."""
    return isinstance(value, str) and _URL.match(value) is not None


def is_path(value: Json) -> bool:
    """Whether it is an absolute path, or several with a colon between them."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and all(_ABSOLUTE.fullmatch(part) for part in value.split(":"))


def is_number(value: Json) -> bool:
    """Whether it is an integer, as a number or as text."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())


def are_numbers(value: Json) -> bool:
    """Whether it is an integer or a list of them, such as ``0,1``."""
    items = list(_items(value))
    return bool(items) and all(item.isdecimal() for item in items)


def is_host(value: Json) -> bool:
    """Whether it is the name of a node, or of a host inside of a cluster or cloud."""
    return isinstance(value, str) and len(value) <= 253 and _HOST.fullmatch(value) is not None


def pod_owner(value: Json) -> str | None:
    """What a pod's name begins with, which all pods of its owner have in common; None if it is no pod's name."""
    if not isinstance(value, str) or len(value) > 253:
        return None
    match = _POD.fullmatch(value)
    if match is None:
        return None
    above = re.fullmatch(r"(.+)-[0-9a-f]{6,10}", match[1])
    return above[1] if above else match[1]


def last_part(value: str) -> str:
    """The last part of a path or URL, which names the thing itself wherever it lies."""
    return value.rstrip("/").rpartition("/")[2]


def home_of(path: Json) -> str | None:
    """The home folder that a path lies in; None where it lies in none."""
    match = _HOME.match(path) if isinstance(path, str) else None
    return match[0] if match else None


def _items(value: Json) -> list[str]:
    if isinstance(value, list):
        return [str(item) for item in value[:100] if isinstance(item, str | int) and not isinstance(item, bool)]
    if isinstance(value, bool) or not isinstance(value, str | int):
        return []
    return [item.strip() for item in str(value)[:_LONGEST].split(",")]


def _is_address(text: str) -> bool:
    match = _HOST_PORT.fullmatch(text)
    for candidate in (text, match[1] if match else ""):
        try:
            ipaddress.ip_address(candidate)
        except ValueError:
            continue
        return "." in candidate or ":" in candidate
    return False
