"""Headers of safetensors files: what the format allows is read, everything else is refused by object and tensor."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weights_samples import header_bytes, safetensors_bytes

from glowplug.errors import BadCheckpoint
from glowplug.weights.checkpoint.header import MAX_HEADER_BYTES, parse_header
from glowplug.weights.dtypes import DTYPES

GOOD = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def parse(raw, size_bytes=None):
    return parse_header(raw, name="s3://b/m.safetensors", file_index=3, size_bytes=len(raw) if size_bytes is None else size_bytes)


def refusal(raw, size_bytes=None):
    with pytest.raises(BadCheckpoint) as caught:
        parse(raw, size_bytes)
    assert caught.value.object == "s3://b/m.safetensors"
    assert caught.value.message.startswith("s3://b/m.safetensors: ")
    assert caught.value.hint
    return caught.value.message


def file_of(text, data=b""):
    """A file whose header is this text, valid or not."""
    text = text if isinstance(text, bytes) else text.encode()
    return len(text).to_bytes(8, "little") + text + data


@st.composite
def tensors(draw):
    found = {}
    for name in draw(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=6, unique=True)):
        if name == "__metadata__":
            continue
        dtype = draw(st.sampled_from(sorted(DTYPES)))
        shape = draw(st.lists(st.integers(0, 4), max_size=4))
        elements = 1
        for size in shape:
            elements *= size
        bits = elements * DTYPES[dtype].bits
        if bits % 8:
            shape, bits = [*shape, 8], bits * 8
        found[name] = (dtype, tuple(shape), b"\x01" * (bits // 8))
    return found


@given(tensors(), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text(), max_size=3) | st.none())
def test_what_was_written_is_read(written, metadata):
    if metadata is not None:
        metadata = {key: value.encode(errors="replace").decode() for key, value in metadata.items()}
    raw = safetensors_bytes(written, metadata)
    found, found_metadata = parse(raw)
    assert {tensor.name: (tensor.dtype, tensor.shape, raw[tensor.start : tensor.end]) for tensor in found} == written
    assert [tensor.start for tensor in found] == sorted(tensor.start for tensor in found)
    assert {tensor.file for tensor in found} <= {3}
    assert dict(found_metadata) == (metadata or {})


@given(st.binary(max_size=200), st.integers(0, 300))
def test_arbitrary_bytes_are_read_or_refused(raw, size_bytes):
    with contextlib.suppress(BadCheckpoint):
        parse(raw, size_bytes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["U8", "F4", "dtype", "shape"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from([*GOOD, "__metadata__"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text() | st.just("__metadata__"), JSON, max_size=3))
def test_arbitrary_json_is_read_or_refused(document):
    with contextlib.suppress(BadCheckpoint):
        parse(file_of(json.dumps(document)))


@given(st.data())
def test_a_header_with_one_changed_byte_is_read_consistently_or_refused(data):
    written = {"a": ("F32", (2, 3), b"\1" * 24), "b": ("U8", (5,), b"\2" * 5), "c": ("F4", (4,), b"\3\3")}
    raw = bytearray(safetensors_bytes(written, {"format": "pt"}))
    place = data.draw(st.integers(0, len(raw) - 32))
    raw[place] = data.draw(st.integers(0, 255))
    try:
        found, _ = parse(bytes(raw))
    except BadCheckpoint:
        return
    covered = 0
    for tensor in found:
        assert tensor.end <= len(raw)
        covered += tensor.size_bytes
    assert len(raw) - covered == 8 + int.from_bytes(raw[:8], "little")


@pytest.mark.parametrize("size", range(8))
def test_a_file_shorter_than_its_length_field_is_refused(size):
    assert "too few" in refusal(b"\0" * size)


def test_a_header_longer_than_the_file_is_refused_without_reading_it():
    assert "1000 bytes long, and the file has 30" in refusal((1000).to_bytes(8, "little") + b"{}" * 11)


def test_a_header_longer_than_the_format_allows_is_refused_without_reading_it():
    assert str(MAX_HEADER_BYTES) in refusal((MAX_HEADER_BYTES + 1).to_bytes(8, "little"), size_bytes=1 << 40)


def test_a_truncated_header_is_refused():
    raw = header_bytes({"a": GOOD})
    assert f"cut off after {len(raw) - 9} of {len(raw)}" in refusal(raw[:-9], size_bytes=len(raw) + 4)


def test_data_that_is_cut_off_is_refused_by_its_first_missing_tensor():
    raw = safetensors_bytes({"a": ("U8", (4,), b"1234"), "b": ("U8", (4,), b"1234")})
    assert "tensor 'b' ends at byte" in refusal(raw[:-1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"a":1}]', "does not begin with {"),
        ('  {"a":{}}', "does not begin with {"),
        ("\N{ZERO WIDTH NO-BREAK SPACE}{}", "does not begin with {"),
        ('{"a":', "not JSON"),
        ('{"a":{}}\0\0', "not JSON"),
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":NaN}}', "NaN"),
        ('{"a":' + "9" * 5000 + "}", "not JSON"),
        ('{"a":' + "[" * 200_000, "nested too deeply"),
        (b'{"\xff":1}', "not UTF-8 at byte 10"),
        ('{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', "not Unicode"),
        ('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}', "the key 'a' twice"),
        ('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"shape":[0]}}', "the key 'shape' twice"),
        ('{"__metadata__":{"a":1}}', "text only"),
        ('{"__metadata__":["a"]}', "text only"),
        ('{"a":["U8",[0],[0,0]]}', "tensor 'a' is not described"),
    ],
)
def test_text_that_is_no_header_is_refused(text, says):
    assert says in refusal(file_of(text))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dtype": "F128"}, "unknown dtype 'F128'"),
        ({"dtype": None}, "unknown dtype None"),
        ({"dtype": ["U8"]}, "unknown dtype"),
        ({"shape": [-4]}, "not a list of counts"),
        ({"shape": [True, 4]}, "not a list of counts"),
        ({"shape": [4.0]}, "not a list of counts"),
        ({"shape": "4"}, "not a list of counts"),
        ({"shape": [2**64]}, "not a list of counts"),
        ({"shape": [2**62, 4]}, "more than any memory"),
        ({"shape": [0, 2**62, 4]}, "more than any memory"),
        ({"shape": [2**62] * 100_000}, "more than any memory"),
        ({"shape": [5]}, "needs 5 bytes, and its data_offsets give 4"),
        ({"dtype": "F4", "shape": [9]}, "36 bits, which is no whole number of bytes"),
        ({"data_offsets": [4, 0]}, "not a begin and an end"),
        ({"data_offsets": [0, 4, 4]}, "not a begin and an end"),
        ({"data_offsets": [-4, 0]}, "not a begin and an end"),
        ({"data_offsets": [0, 2**65]}, "not a begin and an end"),
        ({"data_offsets": [1, 5]}, "ends at byte"),
        ({"data_offsets": [1 << 40, (1 << 40) + 4]}, "ends at byte"),
        ({"shape": [3], "data_offsets": [1, 4]}, "the 1 bytes before tensor 'layer.weight'"),
        ({"shape": [3], "data_offsets": [0, 3]}, "the last 1 of its"),
    ],
)
def test_a_tensor_that_can_not_be_is_refused_by_name(change, says):
    raw = header_bytes({"layer.weight": GOOD | change}) + b"1234"
    message = refusal(raw)
    assert says in message
    assert len(message) < 500
    assert "layer.weight" in message or "the last" in message


def test_overlapping_tensors_are_refused_by_both_names():
    raw = header_bytes({"a": GOOD, "b": GOOD | {"data_offsets": [2, 6]}}) + b"123456"
    assert "'a' and 'b' overlap" in refusal(raw)


def test_the_same_bytes_for_two_tensors_are_refused():
    raw = header_bytes({"a": GOOD, "b": GOOD}) + b"1234"
    assert "overlap" in refusal(raw)


def test_a_tensor_that_begins_inside_the_header_is_impossible():
    with pytest.raises(BadCheckpoint):
        parse(header_bytes({"a": GOOD | {"data_offsets": [-2, 2]}}) + b"12")


def test_empty_tensors_lie_between_others():
    found, _ = parse(safetensors_bytes({"a": ("U8", (2,), b"12"), "none": ("F32", (0, 7), b""), "b": ("U8", (1,), b"3")}))
    assert [(tensor.name, tensor.size_bytes) for tensor in found] == [("a", 2), ("none", 0), ("b", 1)]


def test_a_scalar_has_one_element():
    found, _ = parse(safetensors_bytes({"a": ("F64", (), b"12345678")}))
    assert found[0].shape == ()


def test_a_file_without_tensors_is_read():
    assert parse(safetensors_bytes({}, {"a": "b"})) == ((), (("a", "b"),))


def test_what_a_newer_writer_adds_to_a_tensor_is_passed_over():
    found, _ = parse(header_bytes({"a": GOOD | {"strides": [1]}}) + b"1234")
    assert found[0].name == "a"


def test_a_hundred_thousand_tensors_are_read():
    entry = '"layers.%d.weight":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    text = b"{" + ",".join(entry % (number, number, number + 1) for number in range(100_000)).encode() + b"}"
    raw = len(text).to_bytes(8, "little") + text
    found, _ = parse(raw, size_bytes=len(raw) + 100_000)
    assert len(found) == 100_000
    assert found[-1].end == len(raw) + 100_000


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", "pointer of Git LFS"),
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "a web page"),
        (b"\n <html><body>404</body></html>", "a web page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML document"),
        (b"PK\x03\x04" + bytes(60), "torch.save"),
    ],
)
def test_what_is_no_safetensors_file_is_recognised(content, says):
    with pytest.raises(BadCheckpoint, match=says) as caught:
        parse_header(content, name="model.safetensors", file_index=0, size_bytes=len(content))
    assert caught.value.object == "model.safetensors"
