"""What an attacker with a pencil does to a bundle: to the tar, to the zstd frames around it, to a JSON document, to bytes.

Every mutator takes a source of chance and the thing, and gives another thing. Names, links, sizes, kinds and headers are those that
have broken unpackers before (absolute and climbing names, links, devices, sparse files, pax and GNU long names, duplicates, sizes
that lie, base-256 numbers), and for zstd: truncation, concatenated and skippable frames, dictionaries, huge windows, bombs.
"""

from __future__ import annotations

import functools
import io
import json
import tarfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import zstandard

from glowplug.cache.pack import member_header

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from glowplug.cache.manifest import FileEntry

EVIL_PATHS = (
    "/etc/evil", "../evil", "inductor/../../evil", "inductor/..", "..", ".", "", "/", "inductor", "inductor/", "inductor//x",
    "inductor/./x", "inductor/x\0y", "inductor/x\ny", "inductor/\\..\\x", "inductor/" + "d/" * 120 + "x", "inductor/" + "n" * 300,
    "inductor/" + "\u00e9" * 200, "evil/x", ".glowplug/lock", "inductor/\ud800", "inductor/\u202ex", "INDUCTOR/x",
    "inductor/0/a.so/under", "triton/" + "x" * 4090, "inductor/C:\\x", "vllm/../.glowplug/installed.json", "inductor/~",
    "inductor/-rf", "inductor/.", "inductor/con", " inductor/x",
)  # fmt: skip
NUMBERS = (
    -1,
    0,
    1,
    511,
    512,
    513,
    2**31,
    2**32,
    2**33,
    2**36,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    0.5,
    1e308,
    True,
    None,
    "1",
    [],
    {},
)
_BOMB_BYTES = 192 * 1024 * 1024
_KINDS = (
    tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CONTTYPE,
    tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"M", b"\xff",
)  # fmt: skip


@dataclass(frozen=True)
class Member:
    """A tar member as it will be written: its header blocks, and its content with padding."""

    header: bytes
    body: bytes


def member_of(entry: FileEntry, data: bytes) -> Member:
    """As a publisher writes it."""
    return Member(member_header(entry), data + bytes(-len(data) % 512))


def _header(info: tarfile.TarInfo, chance: random.Random) -> bytes:
    form = chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
    try:
        return info.tobuf(form, "utf-8", "surrogateescape")
    except (ValueError, UnicodeError):
        return chance.randbytes(512)


def _info(chance: random.Random) -> tarfile.TarInfo:
    info = tarfile.TarInfo(chance.choice(EVIL_PATHS).replace("\0", ""))
    info.type = chance.choice(_KINDS + (tarfile.REGTYPE,) * 4)
    info.linkname = chance.choice(EVIL_PATHS).replace("\0", "")
    info.size = chance.choice((0, 1, 512, 2**33, 5))
    info.mode = chance.choice((0o644, 0o4755, 0o7777, 0))
    if chance.random() < 0.3:
        info.pax_headers = {
            chance.choice(("path", "size", "linkpath", "GNU.sparse.map", "GNU.sparse.name", "mtime")): chance.choice(
                ("../evil", "-1", "9" * 40, "0,1,2", "/etc/evil", "")
            )
        }
    return info


# --- the tar


def _another_header(chance: random.Random, members: list[Member]) -> list[Member]:
    at = chance.randrange(len(members))
    members[at] = replace(members[at], header=_header(_info(chance), chance))
    return members


def _another_member(chance: random.Random, members: list[Member]) -> list[Member]:
    members.insert(
        chance.randrange(len(members) + 1), Member(_header(_info(chance), chance), chance.randbytes(chance.choice((0, 512))))
    )
    return members


def _twice(chance: random.Random, members: list[Member]) -> list[Member]:
    members.insert(chance.randrange(len(members) + 1), chance.choice(members))
    return members


def _missing(chance: random.Random, members: list[Member]) -> list[Member]:
    del members[chance.randrange(len(members))]
    return members or [Member(b"", b"")]


def _shuffled(chance: random.Random, members: list[Member]) -> list[Member]:
    chance.shuffle(members)
    return members


def _flipped_header(chance: random.Random, members: list[Member]) -> list[Member]:
    at = chance.randrange(len(members))
    members[at] = replace(members[at], header=flip(chance, members[at].header))
    return members


def _flipped_body(chance: random.Random, members: list[Member]) -> list[Member]:
    at = chance.randrange(len(members))
    members[at] = replace(members[at], body=flip(chance, members[at].body))
    return members


def _other_length(chance: random.Random, members: list[Member]) -> list[Member]:
    at = chance.randrange(len(members))
    body = members[at].body
    members[at] = replace(members[at], body=body[: chance.randrange(len(body) + 1)] if chance.random() < 0.5 else body + bytes(512))
    return members


def _nothing(_: random.Random, members: list[Member]) -> list[Member]:
    return members


TAR: Sequence[Callable[[random.Random, list[Member]], list[Member]]] = (
    _another_header, _another_member, _twice, _missing, _shuffled, _flipped_header, _flipped_body, _other_length, _nothing,
)  # fmt: skip


# --- the frames


def compress(data: bytes) -> bytes:
    """As a publisher does."""
    return zstandard.ZstdCompressor(level=1).compress(data)


@functools.cache
def _bomb() -> bytes:
    return compress(bytes(_BOMB_BYTES))


@functools.cache
def _dictionary() -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(b"a dictionary of nothing in particular " * 50)


def _two_frames(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return compress(data[:at]) + compress(data[at:])


def _skippable(chance: random.Random, data: bytes) -> bytes:
    size = chance.choice((0, 10, 2**32 - 1))
    frame = b"\x50\x2a\x4d\x18" + size.to_bytes(4, "little") + bytes(min(size, 10))
    return frame + compress(data) if chance.random() < 0.5 else compress(data) + frame


def _with_dictionary(_: random.Random, data: bytes) -> bytes:
    return zstandard.ZstdCompressor(dict_data=_dictionary()).compress(data)


def _wide_window(chance: random.Random, data: bytes) -> bytes:
    # Written by hand, for a compressor with such a window would take that much memory itself. Descriptor 0: the window follows.
    exponent = chance.randrange(10, 32)
    raw = data[:100]
    block = ((len(raw) << 3) | 1).to_bytes(3, "little") + raw
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(exponent - 10) << 3]) + block


def _size_that_lies(chance: random.Random, data: bytes) -> bytes:
    packed = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(data))
    packed[5 + chance.randrange(4)] ^= 1 << chance.randrange(8)
    return bytes(packed)


def _bombed(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return compress(data[:at]) + _bomb() + compress(data[at:])


def _unfinished(_: random.Random, data: bytes) -> bytes:
    out = io.BytesIO()
    writer = zstandard.ZstdCompressor().stream_writer(out, closefd=False)
    writer.write(data)
    writer.flush(zstandard.FLUSH_BLOCK)
    return out.getvalue()


def _plain(_: random.Random, data: bytes) -> bytes:
    return data


def _whole(_: random.Random, data: bytes) -> bytes:
    return compress(data)


def _garbage(chance: random.Random, _: bytes) -> bytes:
    return (b"\x28\xb5\x2f\xfd" if chance.random() < 0.5 else b"") + chance.randbytes(chance.randrange(400))


def _flipped(chance: random.Random, data: bytes) -> bytes:
    return flip(chance, compress(data))


def _cut(chance: random.Random, data: bytes) -> bytes:
    packed = compress(data)
    return packed[: chance.randrange(len(packed) + 1)]


FRAMES: Sequence[Callable[[random.Random, bytes], bytes]] = (
    _whole, _whole, _whole, _two_frames, _skippable, _with_dictionary, _wide_window, _size_that_lies, _bombed, _unfinished, _plain,
    _garbage, _flipped, _flipped, _cut,
)  # fmt: skip


# --- bytes and documents


def flip(chance: random.Random, data: bytes) -> bytes:
    """Some bits or bytes are others, some are gone, some are there twice."""
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(len(changed) or 1)
        match chance.randrange(4):
            case 0 if changed:
                changed[at] ^= 1 << chance.randrange(8)
            case 1 if changed:
                changed[at] = chance.choice((0, 0x22, 0x2D, 0x5C, 0x7B, 0x7F, 0x80, 0xFF))
            case 2:
                del changed[at : at + chance.choice((1, 4, 100))]
            case _:
                changed[at:at] = changed[at : at + chance.choice((1, 4, 100))]
    return bytes(changed)


def graft(chance: random.Random, tree: Any, value: Any) -> Any:
    """A JSON tree in which one node, chosen by chance, is another, is gone, is there twice, or is given a name of an evil kind."""
    if isinstance(tree, dict) and tree and chance.random() < 0.85:
        name = chance.choice(list(tree))
        changed = dict(tree)
        if chance.random() < 0.1:
            del changed[name]
        elif chance.random() < 0.1:
            changed[chance.choice(EVIL_PATHS)] = changed.pop(name)
        else:
            changed[name] = graft(chance, tree[name], value)
        return changed
    if isinstance(tree, list) and tree and chance.random() < 0.85:
        at = chance.randrange(len(tree))
        changed_list = list(tree)
        match chance.randrange(6):
            case 0:
                del changed_list[at]
            case 1:
                changed_list.insert(at, tree[at])
            case _:
                changed_list[at] = graft(chance, tree[at], value)
        return changed_list
    match chance.randrange(4):
        case 0:
            return chance.choice(EVIL_PATHS)
        case 1:
            return chance.choice(NUMBERS)
        case _:
            return value


def write_json(chance: random.Random, tree: Any) -> bytes:
    """As canonical JSON mostly, else in a way that parsers disagree about."""
    try:
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        data = text.encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError):
        return b"[" * 5000
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: json.dumps(tree, indent=1).encode(),
        lambda: data[:-1] + b',"schema":"x"}',
        lambda: b"\xef\xbb\xbf" + data,
        lambda: data.replace(b"0", b"NaN", 1),
        lambda: b'{"a":' * 3000 + data + b"}" * 3000,
        lambda: data.replace(b"1", b"9" * 5000, 1),
        lambda: flip(chance, data),
        lambda: data.decode("utf-8", "replace").encode("utf-16"),
    )
    return chance.choice(ways)() if chance.random() < 0.25 else data
