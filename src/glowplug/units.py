"""Quantities at the edge: bytes and seconds for a person to read; sizes, speeds and durations to type.

Inside the project one unit is used: bytes (``int``) and seconds (``float``). This leaf turns them into text, and text back, and
does nothing else.
"""

from __future__ import annotations

import re

from glowplug.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_SIZE_UNITS = {"": 1} | {
    name: base**power
    for power, letter in enumerate("kmgt", start=1)
    for name, base in ((letter, 1000), (f"{letter}b", 1000), (f"{letter}i", 1024), (f"{letter}ib", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([a-z]*)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_PER_SECOND = re.compile(r"(?i:/s|/sec|ps)$")
_BITS = re.compile(r"b$|(?i:bits?)$")
"""How speeds in bits end: ``Gbit/s``, ``Gbps``, ``Gb/s``. ``GB/s`` is bytes: the case of the ``b`` tells."""
_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def format_bytes(size_bytes: int) -> str:
    """Bytes as a person reads them, in binary units: ``0 B``, ``1.5 KiB``, ``2.0 GiB``."""
    if abs(size_bytes) < KIB:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= KIB
        if abs(size) < KIB:
            return f"{size:.1f} {unit}"
    return f"{size / KIB:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Seconds as a person reads them: ``0.02 s``, ``12.3 s``, ``3 m 05 s``, ``2 h 04 m``."""
    if abs(seconds) < 9.95:
        return f"{seconds:.2f} s"
    if abs(seconds) < 119.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if abs(minutes) < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} m"
    return f"{hours // 24} d {hours % 24:02d} h"


def count(number: int, noun: str) -> str:
    """A number of things: ``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def parse_seconds(text: str, *, name: str) -> float:
    """Seconds from ``30s``, ``500ms``, ``1m30s``, ``2h``, ``7d``, or a bare number of seconds.

    Args:
        text: what the user wrote.
        name: the option it was written for; the error names it.

    Raises:
        UsageError: not a duration, or a negative one.
    """
    stripped = text.strip().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        return float(stripped)
    parts = _DURATION_PART.findall(stripped)
    if parts and "".join(number + unit for number, unit in parts) == stripped:
        return sum(float(number) * _TIME_UNITS[unit] for number, unit in parts)
    raise UsageError(f"{name}: {text!r} is not a duration", object=name, hint="write 30s, 500ms, 1m30s, 2h or 7d")


def parse_bytes(text: str, *, name: str) -> int:
    """Bytes from ``512MiB``, ``2GB``, ``1.5GiB``, or a bare number. ``k`` to ``T`` are powers of 1000, ``Ki`` to ``Ti`` of 1024.

    Args:
        text: what the user wrote; case and blanks don't matter.
        name: the option it was written for; the error names it.

    Raises:
        UsageError: not a size, or a negative one.
    """
    found = _SIZE.fullmatch(text.replace(" ", "").lower())
    unit = found[2] if found else "?"
    unit = "" if unit in {"b", "byte", "bytes"} else unit
    if not found or unit not in _SIZE_UNITS:
        raise UsageError(f"{name}: {text!r} is not a size", object=name, hint="write 512MiB, 2GB, 1.5GiB or a number of bytes")
    size_bytes: int = round(float(found[1]) * _SIZE_UNITS[unit])
    return size_bytes


def parse_size(text: str, *, name: str) -> int:
    """Bytes of something that is there: as ``parse_bytes``, but more than none, and with a unit: a bare number is a slip here.

    Raises:
        UsageError: no size, no unit, or nothing.
    """
    require_unit(text, name=name, hint="write #GB or #GiB")
    try:
        size_bytes = parse_bytes(text, name=name)
    except UsageError as error:
        raise UsageError(error.message, object=name, hint="write 512MiB, 2GB or 1.5GiB") from None
    if size_bytes < 1:
        raise UsageError(f"{name}: {text} is nothing", object=name, hint="write a size such as 67GB")
    return size_bytes


def require_unit(text: str, *, name: str, hint: str) -> None:
    """Refuse a bare number where one without a unit is a slip.

    Args:
        text: what the user wrote.
        name: the option it was written for; the error names it.
        hint: what to write instead; ``#`` stands for the number.

    Raises:
        UsageError: a bare number.
    """
    number = text.strip()
    if _NUMBER.fullmatch(number):
        raise UsageError(f"{name}: {number} has no unit", object=name, hint=hint.replace("#", number))


def parse_bandwidth(text: str, *, name: str) -> int:
    """Bytes a second from ``1GB/s``, ``500MiB/s``, ``10Gbit/s``, ``10Gbps``, or a bare number of bytes a second.

    Args:
        text: what the user wrote. Case matters for the last ``b`` only: ``Gb/s`` is bits, ``GB/s`` is bytes.
        name: the option it was written for; the error names it.

    Raises:
        UsageError: not a speed, or one below a byte a second.
    """
    speed = _PER_SECOND.sub("", text.replace(" ", ""))
    try:
        amount = parse_bytes(_BITS.sub("", speed), name=name) // (8 if _BITS.search(speed) else 1)
    except UsageError:
        amount = 0
    if amount < 1:
        hint = "write 1GB/s, 500MiB/s, 10Gbit/s or a number of bytes a second"
        raise UsageError(f"{name}: {text!r} is not a speed", object=name, hint=hint)
    return amount
