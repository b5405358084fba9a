"""What the testbed's servers may do wrong on purpose: one fault an answer, chosen by a function or by chance.

Each is something that a real server, proxy or network has been seen to do. A fault is plain data; whoever answers carries it out: a
connection of the range server, or a proxy in front of a store (``store_proxy``), which knows those that can happen to a writer too.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kind = Literal[
    "stall",  # sends a part of the body, then nothing, and keeps the connection
    "drip",  # sends a part of the body, then a few bytes a second
    "reset",  # sends a part of the body, then RST
    "short",  # announces the whole body, sends a part, then closes in good order
    "drop",  # closes without any answer
    "silent",  # never answers
    "whole",  # answers a range with 200 and the whole object
    "wrong-range",  # answers with the bytes of another range, and says so in Content-Range
    "status",  # answers with an error
    "changed",  # the object is another one: another ETag, other bytes
    "corrupt",  # one byte is wrong
    "chunked",  # sends a range with Transfer-Encoding: chunked, and no length
    "chunked-with-length",  # the same, and a Content-Length too, which contradicts it
    "delay",  # (proxy) waits, then forwards
    "lost",  # (proxy) the server has answered, the client never hears of it: the connection is closed
    "hold",  # (proxy) forwards only after another request has been answered
]


@dataclass(frozen=True, slots=True)
class Call:
    """A request for an object, as the function that chooses faults sees it.

    Attributes:
        number: of all requests for objects, from 1, in the order in which they came.
        number_of_key: the same, of this object.
        method: ``GET`` or ``HEAD``.
        bucket: first part of the path.
        key: the rest.
        start: first byte of the range; 0 without one.
        end: first byte after it; the object's size without one.
        ranged: a range was asked for.
        headers: the request's, names in lower case.
    """

    number: int
    number_of_key: int
    method: str
    bucket: str
    key: str
    start: int
    end: int
    ranged: bool
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to do wrong.

    Attributes:
        kind: what.
        share: of the body that is sent before it happens, 0 to 1. The wrong byte of ``corrupt`` lies there too.
        bytes_per_s: of ``drip``.
        status: of ``status``.
        code: S3's word for it.
        seconds: of ``delay``; the longest wait of ``hold``.
        after: for ``hold``: the other request, by its method and the end of its path.
    """

    kind: Kind
    share: float = 0.5
    bytes_per_s: float = 20.0
    status: int = 500
    code: str = "InternalError"
    seconds: float = 0.5
    after: tuple[str, str] = ("", "")


STALL = Fault("stall")
DRIP = Fault("drip")
RESET = Fault("reset")
SHORT = Fault("short")
DROP = Fault("drop")
SILENT = Fault("silent")
WHOLE = Fault("whole")
WRONG_RANGE = Fault("wrong-range")
INTERNAL_ERROR = Fault("status")
SLOW_DOWN = Fault("status", status=503, code="SlowDown")
FORBIDDEN = Fault("status", status=403, code="AccessDenied")
NOT_FOUND = Fault("status", status=404, code="NoSuchKey")
CHANGED = Fault("changed")
CORRUPT = Fault("corrupt")
CHUNKED = Fault("chunked")
CHUNKED_WITH_LENGTH = Fault("chunked-with-length")

NAMED: Mapping[str, Fault] = {
    "stall": STALL,
    "drip": DRIP,
    "reset": RESET,
    "short": SHORT,
    "drop": DROP,
    "silent": SILENT,
    "whole": WHOLE,
    "wrong-range": WRONG_RANGE,
    "500": INTERNAL_ERROR,
    "503": SLOW_DOWN,
    "403": FORBIDDEN,
    "404": NOT_FOUND,
    "changed": CHANGED,
    "corrupt": CORRUPT,
    "chunked": CHUNKED,
    "chunked-with-length": CHUNKED_WITH_LENGTH,
}
"""By the names that the command line takes."""

Chooser: TypeAlias = "Callable[[Call], Fault | None]"
"""Decides for each request; called from the connection's thread."""


def by_chance(shares: Mapping[str, float], *, seed: int = 0) -> Chooser:
    """Faults with these probabilities for each GET of a range, drawn in the order in which requests come.

    Args:
        shares: probability by name, as in ``NAMED``; together at most 1.
        seed: the same seed draws the same numbers.
    """
    if unknown := [name for name in shares if name not in NAMED]:
        raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join(NAMED)}")
    generator = random.Random(seed)
    lock = threading.Lock()

    def choose(call: Call) -> Fault | None:
        if call.method != "GET" or not call.ranged:
            return None
        with lock:
            drawn = generator.random()
        for name, share in shares.items():
            drawn -= share
            if drawn < 0:
                return NAMED[name]
        return None

    return choose
