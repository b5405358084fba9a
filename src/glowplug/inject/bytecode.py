"""Bytecode that is never checked against its source: what a read-only mount starts fast with.

A copied file has another time stamp, so ordinary bytecode would be judged stale, compiled again at each start and, on
a read-only mount, never kept. Compiling 900 files takes 6 s, so bytecode that the environment already has is reused
under a new header (PEP 552). Nothing here writes a file.
"""

from __future__ import annotations

import importlib.util
import marshal
import struct
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_UNCHECKED_HASH = 0b01
_HEADER_BYTES = 16


def unchecked_bytecode(source: bytes, path: Path, shown_as: str) -> bytes | None:
    """The content of the ``.pyc`` for a source file; None if it does not compile (templates, other versions' syntax).

    Args:
        source: the file's content.
        path: where it lies; bytecode beside it is reused if it is of this version and fits.
        shown_as: the file's name in the code. Python replaces it by the real one when it imports the module.
    """
    header = importlib.util.MAGIC_NUMBER + struct.pack("<I", _UNCHECKED_HASH) + importlib.util.source_hash(source)
    with suppress(OSError, NotImplementedError):
        with open(importlib.util.cache_from_source(path), "rb") as file:
            existing = file.read()
        if _fits(existing, source, path):
            return header + existing[_HEADER_BYTES:]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # about other people's code
            return header + marshal.dumps(compile(source, shown_as, "exec", dont_inherit=True, optimize=0))
    except (SyntaxError, ValueError):
        return None


def _fits(bytecode: bytes, source: bytes, path: Path) -> bool:
    if len(bytecode) <= _HEADER_BYTES or bytecode[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags, first, second = struct.unpack_from("<III", bytecode, 4)
    if flags & 0b01:
        return bytecode[8:16] == importlib.util.source_hash(source)
    return (first, second) == (int(path.stat().st_mtime) & 0xFFFFFFFF, len(source) & 0xFFFFFFFF)
