"""Kubernetes quantities: ``80Gi``, ``1500M``, ``250m``. Case matters in them: ``m`` is a thousandth, ``M`` a million."""

from __future__ import annotations

import math
import re

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i))?")
_UNITS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3} | {
    letter + suffix: float(base**power)
    for power, letter in enumerate("KMGTPE", start=1)
    for suffix, base in (("", 1000), ("i", 1024))
    if letter + suffix != "K"
}


def quantity(text: str) -> float | None:
    """Its value in units (bytes, processors, devices); None if it is no quantity."""
    found = _QUANTITY.fullmatch(text.strip())
    if not found:
        return None
    value = float(found[1] + (found[2] or "")) * _UNITS[found[3] or ""]
    return value if math.isfinite(value) else None
