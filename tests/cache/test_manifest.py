"""What a signed manifest may say, and what is refused whoever has signed it."""

import json

import pytest
from cache_samples import ENVELOPE, entry, manifest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glowplug.cache.envelope import Envelope, canonical_json
from glowplug.cache.manifest import MAX_BYTES, MAX_FILES, Manifest, check_path
from glowplug.errors import BadManifest, GlowplugError

GOOD = manifest([entry("inductor/b"), entry("vllm/a"), entry("vllm/c/d", b"")])


def with_row(row):
    tree = json.loads(GOOD.document)
    tree["files"] = [row]
    return canonical_json(tree)


def altered(**changes):
    return canonical_json(json.loads(GOOD.document) | changes)


def test_what_was_written_is_read():
    assert Manifest.parse(GOOD.document) == GOOD
    assert Manifest.parse(GOOD.document).digest == GOOD.digest
    assert Manifest.parse(manifest([entry("vllm/a")], cold_start_s=None).document).cold_start_s is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../x", "leads out"),
        ("vllm/../../x", "leads out"),
        ("vllm/..", "leads out"),
        ("/etc/x", "is absolute"),
        ("//etc/x", "is absolute"),
        ("vllm//x", "not a plain"),
        ("vllm/./x", "not a plain"),
        ("vllm/", "not a plain"),
        ("./vllm/x", "not a plain"),
        ("vllm/a\0b", "not a plain"),
        ("vllm/a\\b", "not a plain"),
        ("", "not a plain"),
        ("vllm", "belongs to no cache family"),
        ("home/x", "belongs to no cache family"),
        (".glowplug/lock", "belongs to no cache family"),
        ("vllm/" + "n" * 256, "too long"),
        ("vllm/" + "é" * 128, "too long"),
        ("vllm/" + "/".join(["n" * 100] * 41), "too long"),
        ("vllm/" + "/".join("d" * 100), "too deep"),
        ("vllm/\ud800", "not UTF-8"),
    ],
)
def test_paths_that_must_not_be_unpacked_are_named(path, problem):
    with pytest.raises(BadManifest, match=problem) as caught:
        check_path(path)
    assert caught.value.object == path[:200]
    tree = json.loads(GOOD.document) | {"files": [[path, 4, 0o644, 1, "0" * 64]]}
    with pytest.raises(BadManifest):
        Manifest.parse(json.dumps(tree, sort_keys=True, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    "row",
    [
        ["vllm/a", True, 0o644, 1, "0" * 64],
        ["vllm/a", 1, True, 1, "0" * 64],
        ["vllm/a", 1, 0o644, True, "0" * 64],
        ["vllm/a", 1.0, 0o644, 1, "0" * 64],
        ["vllm/a", "1", 0o644, 1, "0" * 64],
        ["vllm/a", None, 0o644, 1, "0" * 64],
        ["vllm/a", -1, 0o644, 1, "0" * 64],
        ["vllm/a", MAX_BYTES + 1, 0o644, 1, "0" * 64],
        ["vllm/a", int("9" * 4000), 0o644, 1, "0" * 64],
        ["vllm/a", 1, 0o644, -1, "0" * 64],
        ["vllm/a", 1, 0o644, 2**63, "0" * 64],
        ["vllm/a", 1, 0o644, 1, "0" * 63],
        ["vllm/a", 1, 0o644, 1, "A" * 64],
        ["vllm/a", 1, 0o644, 1, "0" * 64 + "\n"],
        ["vllm/a", 1, 0o644, 1],
        ["vllm/a", 1, 0o644, 1, "0" * 64, "more"],
        {"path": "vllm/a"},
        "vllm/a",
        None,
        [],
    ],
    ids=lambda row: str(row)[:40],
)
def test_entries_that_are_no_entries_are_refused(row):
    with pytest.raises(BadManifest):
        Manifest.parse(with_row(row))


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1777, 0o100644, 0o120777, -1, 8**2000])
def test_set_id_bits_and_file_types_are_refused(mode):
    with pytest.raises(BadManifest, match="set-id") as caught:
        Manifest.parse(with_row(["vllm/a", 1, mode, 1, "0" * 64]))
    assert caught.value.object == "vllm/a"
    assert len(caught.value.line()) < 300


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        (["vllm/a", "vllm/a"], "appears twice"),
        (["vllm/b", "vllm/a"], "not sorted"),
        (["vllm/b", "vllm/a", "vllm/b"], "appears twice"),
        (["vllm/a", "vllm/a/b"], "a file and a folder"),
        (["vllm/a", "vllm/a-b", "vllm/a/b"], "a file and a folder"),
        (["vllm/a", "vllm/a/b/c/d/e"], "a file and a folder"),
    ],
)
def test_trees_that_cannot_exist_are_refused(paths, problem):
    with pytest.raises(BadManifest, match=problem):
        Manifest.parse(manifest([entry(path) for path in paths]).document)


def test_folders_beside_files_of_similar_names_are_fine():
    paths = ["vllm/a", "vllm/a-b", "vllm/ab/c", "vllm/b/a", "vllm/b/c/d"]
    assert [file.path for file in Manifest.parse(manifest([entry(path) for path in paths]).document).files] == paths


def test_more_bytes_in_all_than_any_cache_has_are_refused():
    files = [entry(f"vllm/{number}", size_bytes=MAX_BYTES // 2) for number in range(3)]
    with pytest.raises(BadManifest, match="more than"):
        Manifest.parse(manifest(files).document)


def test_more_files_than_any_cache_has_are_refused():
    with pytest.raises(BadManifest, match="more than"):
        Manifest.parse(altered(files=[0] * (MAX_FILES + 1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "glowplug.dev/manifest/v2"},
        {"schema": None},
        {"envelope": []},
        {"files": {}},
        {"files": None},
        {"pack": None},
        {"pack": {"sha256": "0" * 64, "size_bytes": 1, "format": "zip"}},
        {"pack": {"sha256": "0" * 64, "size_bytes": -1, "format": "tar.zst"}},
        {"pack": {"sha256": "0" * 64, "size_bytes": True, "format": "tar.zst"}},
        {"pack": {"sha256": "0" * 64, "size_bytes": int("9" * 4000), "format": "tar.zst"}},
        {"pack": {"sha256": "../" + "0" * 61, "size_bytes": 1, "format": "tar.zst"}},
        {"pack": {"sha256": "0" * 64, "size_bytes": 1, "format": "tar.zst", "more": 1}},
        {"cold_start_s": True},
        {"cold_start_s": -1},
        {"cold_start_s": "1"},
        {"cold_start_s": int("9" * 4000)},
        {"created_at": 5},
        {"producer": None},
        {"more": 1},
    ],
    ids=str,
)
def test_documents_that_say_something_else_are_refused(changes):
    with pytest.raises(BadManifest):
        Manifest.parse(altered(**changes))


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"\xef\xbb\xbf" + GOOD.document,
        GOOD.document + b"\n",
        GOOD.document.decode().encode("utf-16"),
        json.dumps(json.loads(GOOD.document), indent=1).encode(),
        GOOD.document.replace(b'{"cold', b'{"cold_start_s":1,"cold'),
        GOOD.document.replace(b"12.5", b"NaN"),
        GOOD.document.replace(b"12.5", b"1e999"),
        GOOD.document.replace(b"12.5", b"1" * 5000),
        GOOD.document.replace(b'"tensor":1', b'"tensor":NaN'),
        GOOD.document.replace(b'"tensor":1', b'"tensor":1e999'),
        GOOD.document.replace(b'"tensor":1', b'"tensor":"\\ud800"'),
        GOOD.document.replace(b'"tensor":1', b'"tensor":1e0'),
        *(GOOD.document.replace(b'"tensor":1', b'"tensor":' + b"[" * depth + b"]" * depth) for depth in (20_000, 200_000)),
        GOOD.document.replace(b'["inductor/b"', b"[" + b"[" * 20_000 + b"]" * 20_000),
    ],
    ids=range(20),
)
def test_anything_but_canonical_json_is_refused(document):
    with pytest.raises(BadManifest):
        Manifest.parse(document)


def test_no_depth_of_nesting_does_more_than_refuse():
    """Reading and writing JSON run out of stack at different depths; between the two lies the trap."""
    for depth in range(200, 1200, 7):
        document = GOOD.document.replace(b'"tensor":1', b'"tensor":' + b"[" * depth + b"]" * depth)
        try:
            Manifest.parse(document)
        except BadManifest:
            continue


paths = st.lists(st.sampled_from(["..", ".", "", "vllm", "inductor", "etc", "a", "\0", "\\", "é", "n" * 300]), max_size=5).map(
    "/".join
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | paths,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(paths | st.text())
@example("vllm/..\n")
def test_an_accepted_path_stays_in_its_folder(path):
    import os.path

    try:
        check_path(path)
    except BadManifest:
        return
    assert os.path.normpath(os.path.join("/root/staging", path)) == "/root/staging/" + path
    assert path.partition("/")[0] in {"vllm", "inductor", "triton"}
    path.encode()


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(json.loads(GOOD.document))), values), st.booleans())
def test_no_document_raises_anything_but_our_errors(changes, strict):
    tree = json.loads(GOOD.document) | changes
    document = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=strict)
    try:
        parsed = Manifest.parse(document.encode(errors="surrogatepass"))
    except GlowplugError:
        return
    assert parsed.document == document.encode()


@settings(deadline=None)
@given(st.lists(st.tuples(paths, values, values, values, values), max_size=3))
def test_no_file_entry_raises_anything_but_our_errors(rows):
    tree = json.loads(GOOD.document) | {"files": [list(row) for row in rows]}
    try:
        parsed = Manifest.parse(
            json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        )
    except GlowplugError:
        return
    assert all(".." not in file.path.split("/") and not file.path.startswith("/") for file in parsed.files)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_our_errors(document):
    with pytest.raises(BadManifest):
        Manifest.parse(document)


@settings(deadline=None)
@given(st.integers(0, len(GOOD.document) - 1), st.binary(max_size=3))
def test_an_altered_document_is_another_generation_or_none(position, replacement):
    document = GOOD.document[:position] + replacement + GOOD.document[position + 1 :]
    try:
        parsed = Manifest.parse(document)
    except BadManifest:
        return
    assert (parsed.digest == GOOD.digest) == (document == GOOD.document)


@settings(deadline=None)
@given(
    st.binary(max_size=100)
    | values.map(lambda tree: json.dumps({"schema": "glowplug.dev/envelope/v1", "components": tree}).encode())
)
@example(b'{"schema":"glowplug.dev/envelope/v1","components":{"a":NaN}}')
@example(b'{"schema":"glowplug.dev/envelope/v1","components":{"a":"\\ud800"}}')
@example(b'{"schema":"glowplug.dev/envelope/v1","components":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}")
@example(b'{"schema":"glowplug.dev/envelope/v1","components":' + b'{"a":' * 900 + b"1" + b"}" * 901)
def test_no_envelope_raises_anything_but_our_errors_now_or_later(document):
    try:
        envelope = Envelope.parse(document)
    except BadManifest:
        return
    assert len(envelope.digest) == 64
    envelope.flat()


def test_an_envelope_is_read_as_it_was_written():
    assert Envelope.parse(ENVELOPE.document).digest == ENVELOPE.digest
