"""What inject needs to know of a program or shared library: who loads it, which glibc it needs, how much of it is ever loaded.

Why by hand: an image that runs inject need not have binutils. Only 64-bit little-endian ELF is understood (x86-64,
arm64); anything else is passed over. Nothing here runs or changes a file.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"
_PT_INTERP = 3
_GLIBC = re.compile(rb"\0GLIBC_2\.(\d{1,3})(?=[\0.])")


@dataclass(frozen=True, slots=True)
class Elf:
    """One program or library."""

    interpreter: str
    """The dynamic loader it names, such as ``/lib64/ld-linux-x86-64.so.2``; empty for a library or a static program."""
    glibc_minor: int
    """N of the newest ``GLIBC_2.N`` among its symbol versions; 0 if it names none."""
    loaded_bytes: int
    """Length of the part that any loader reads: up to the end of the last segment. What follows is symbols for debuggers."""


def read_elf(path: Path) -> Elf | None:
    """Look at a file; None if it is no 64-bit little-endian ELF file. Peak memory: the file's size."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return None
        data = _MAGIC + file.read()
    try:
        table, entry_bytes, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
        loaded_bytes, interpreter = table + entry_bytes * count, ""
        for index in range(count):
            kind, _, offset, _, _, size_bytes = struct.unpack_from("<IIQQQQ", data, table + index * entry_bytes)
            loaded_bytes = max(loaded_bytes, offset + size_bytes)
            if kind == _PT_INTERP:
                interpreter = data[offset : offset + size_bytes].rstrip(b"\0").decode()
    except (struct.error, OverflowError, UnicodeDecodeError):
        return None
    versions = [int(minor) for minor in _GLIBC.findall(data, 0, loaded_bytes)]
    return Elf(interpreter, max(versions, default=0), min(loaded_bytes, len(data)))


def without_debug_symbols(data: bytes, elf: Elf) -> bytes:
    """The file without what follows the last segment, as ``strip`` would leave it, and without a table of sections.

    Programs run as before; debuggers lose names. Debug builds of Python and some wheels are three quarters symbols.
    """
    header = bytearray(data[:64])
    struct.pack_into("<Q", header, 40, 0)  # e_shoff: where the table of sections begins
    struct.pack_into("<HH", header, 60, 0, 0)  # e_shnum, e_shstrndx: its length, and the names' section
    return bytes(header) + data[64 : elf.loaded_bytes]
