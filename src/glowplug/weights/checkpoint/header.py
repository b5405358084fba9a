"""The header of a safetensors file, read with every check that the format has, so that nothing behind it need check again.

A header comes from whoever wrote the file, and is not trusted: what passes here has unique names, known types, sane shapes, and
offsets that cover the file once, without a gap. It is a little stricter than safetensors' own reader, as the format's text is:
the header must begin with ``{``, and no key may come twice. Nothing here reads a file.

100 000 tensors take about 0.7 s; memory is about ten times the header's length while it is read.
"""

from __future__ import annotations

import json
from operator import attrgetter, itemgetter
from typing import Final, NoReturn, TypeGuard

from glowplug.errors import BadCheckpoint
from glowplug.units import count
from glowplug.weights.base import TensorInfo
from glowplug.weights.dtypes import DTYPES

LENGTH_BYTES: Final = 8
"""The file begins with the length of the JSON that follows, little-endian."""

MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own limit (``MAX_HEADER_SIZE`` in safetensors)."""

_MAX_ELEMENTS = 2**63 - 1  # what torch and safetensors count with
_HINT = "the file is damaged, or was not written as safetensors; copy it again from where it came from"
_SHOWN_CHARACTERS = 120


def data_start(raw: bytes, *, name: str, size_bytes: int) -> int:
    """Where a file's tensors begin, from its first 8 bytes.

    Args:
        raw: the file's begin; more than 8 bytes do no harm.
        name: the object, for the error.
        size_bytes: of the whole file.

    Raises:
        BadCheckpoint: the file is too short, or the length can't be.
    """
    if len(raw) < LENGTH_BYTES or size_bytes < LENGTH_BYTES:
        _refuse(
            name, f"it has {count(size_bytes if size_bytes < LENGTH_BYTES else len(raw), 'byte')}, too few for a safetensors file"
        )
    length = int.from_bytes(raw[:LENGTH_BYTES], "little")
    if LENGTH_BYTES + length > size_bytes:
        _refuse_other_formats(raw, name)
    if length > MAX_HEADER_BYTES:
        _refuse(name, f"its header would be {length} bytes long, and the format allows {MAX_HEADER_BYTES}")
    if LENGTH_BYTES + length > size_bytes:
        _refuse(name, f"its header would be {length} bytes long, and the file has {size_bytes}")
    return LENGTH_BYTES + length


def parse_header(
    raw: bytes, *, name: str, file_index: int, size_bytes: int
) -> tuple[tuple[TensorInfo, ...], tuple[tuple[str, str], ...]]:
    """The tensors of a file, by their place in it, and its ``__metadata__``.

    Args:
        raw: the file's begin, at least up to where its tensors begin.
        name: the object, for errors.
        file_index: goes into each ``TensorInfo``.
        size_bytes: of the whole file.

    Raises:
        BadCheckpoint: anything that the format forbids; the message names the object, and the tensor where it is about one.
    """
    start = data_start(raw, name=name, size_bytes=size_bytes)
    if len(raw) < start:
        _refuse(name, f"its header is cut off after {len(raw)} of {start} bytes")
    document = _document(raw[LENGTH_BYTES:start], name)
    metadata = _metadata(document.pop("__metadata__", None), name)
    tensors = [_tensor(key, entry, start, file_index, name) for key, entry in document.items()]
    tensors.sort(key=attrgetter("start", "end"))
    _check_cover(tensors, start, size_bytes, name)
    return tuple(tensors), metadata


def _refuse_other_formats(raw: bytes, name: str) -> None:
    """Say what a file is whose first bytes are no length: what often lies under the name of a model, and is none."""
    begin = raw[:64].lstrip().lower()
    if begin.startswith(b"version https://git-lfs"):
        _refuse(name, "it is a pointer of Git LFS, not the file itself", "fetch the file with git lfs pull, and copy it again")
    if begin.startswith((b"<!doctype", b"<html", b"<?xml", b"<error")):
        kind = "a web page" if begin.startswith((b"<!doctype", b"<html")) else "an XML document"
        _refuse(name, f"it is {kind}, perhaps an error that was saved instead of the file", "download the file again")
    if begin.startswith(b"pk\x03\x04"):
        _refuse(name, "it is a zip file, as torch.save writes them", "convert the model to safetensors")


class _Twice(Exception):
    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


def _document(text: bytes, name: str) -> dict[str, object]:
    if not text.startswith(b"{"):
        _refuse(name, "its header does not begin with {")
    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except _Twice as twice:
        _refuse(name, f"its header has the key {_shown(twice.key)} twice")
    except UnicodeDecodeError as error:
        _refuse(name, f"its header is not UTF-8 at byte {LENGTH_BYTES + error.start}")
    except RecursionError:
        _refuse(name, "its header is nested too deeply")
    except ValueError as error:  # JSONDecodeError, or a number with thousands of digits
        reason = error.msg + f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]
        _refuse(name, f"its header is not JSON: {reason}")
    if not isinstance(document, dict):
        _refuse(name, "its header is not a JSON object")
    return document


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise _Twice(key)
            seen.add(key)
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _metadata(found: object, name: str) -> tuple[tuple[str, str], ...]:
    if found is None:
        return ()
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        _refuse(name, "its __metadata__ may hold text only")
    for key, value in found.items():
        if not _is_text(key) or not _is_text(value):
            _refuse(name, "its __metadata__ is not Unicode text")
    return tuple(sorted(found.items(), key=itemgetter(0)))


def _tensor(key: str, entry: object, data_begin: int, file_index: int, name: str) -> TensorInfo:
    if not _is_text(key):
        _refuse(name, f"the tensor name {_shown(key)} is not Unicode text")
    if not isinstance(entry, dict):
        _refuse(name, f"tensor {_shown(key)} is not described by a JSON object")
    dtype = entry.get("dtype")
    known = DTYPES.get(dtype) if isinstance(dtype, str) else None
    if known is None:
        _refuse(name, f"tensor {_shown(key)} has the unknown dtype {_shown(dtype)}")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _are_counts(shape):
        _refuse(name, f"tensor {_shown(key)} has the shape {_shown(shape)}, which is not a list of counts")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(name, f"tensor {_shown(key)} has the data_offsets {_shown(offsets)}, which are not a begin and an end")
    elements = _elements(shape)
    if elements is None:
        _refuse(name, f"tensor {_shown(key)} has the shape {_shown(shape)}, which is more than any memory holds")
    begin, end = offsets
    if elements * known.bits != 8 * (end - begin):
        bits = elements * known.bits
        needs = f"{bits // 8} bytes" if bits % 8 == 0 else f"{bits} bits, which is no whole number of bytes"
        _refuse(
            name, f"tensor {_shown(key)}, {dtype} of shape {_shown(shape)}, needs {needs}, and its data_offsets give {end - begin}"
        )
    return TensorInfo(key, known.name, tuple(shape), file_index, data_begin + begin, data_begin + end)


def _are_counts(found: object) -> TypeGuard[list[int]]:
    if type(found) is not list:
        return False
    for number in found:  # noqa: SIM110  called for each tensor, and all() costs three times as much
        if type(number) is not int or not 0 <= number <= _MAX_ELEMENTS:
            return False
    return True


def _elements(shape: list[int]) -> int | None:
    """Of a shape; None where even the other dimensions of an empty tensor have a product that overflows."""
    product = 1
    for size in shape:
        product *= size or 1
        if product > _MAX_ELEMENTS:
            return None
    return 0 if 0 in shape else product


def _check_cover(tensors: list[TensorInfo], start: int, size_bytes: int, name: str) -> None:
    position, before = start, None
    for tensor in tensors:
        if tensor.end > size_bytes:
            what = f"tensor {_shown(tensor.name)} ends at byte {tensor.end} of a file that has {size_bytes}"
            _refuse(name, what, "the file is cut off; copy it again from where it came from")
        if tensor.start < position and before is not None:
            _refuse(name, f"the tensors {_shown(before.name)} and {_shown(tensor.name)} overlap at byte {tensor.start}")
        if tensor.start > position:
            _refuse(name, f"the {tensor.start - position} bytes before tensor {_shown(tensor.name)} belong to no tensor")
        position, before = tensor.end, tensor
    if position != size_bytes:
        _refuse(name, f"the last {size_bytes - position} of its {size_bytes} bytes belong to no tensor")


def _is_text(text: str) -> bool:
    """JSON can spell halves of characters, which no file name, log or hash takes."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _shown(value: object) -> str:
    """A value of unknown kind and length, for a message: printable, short, on one line."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except RecursionError:
        text = "a deeply nested value"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _refuse(name: str, problem: str, hint: str = _HINT) -> NoReturn:
    raise BadCheckpoint(f"{name}: {problem}", object=name, hint=hint)
