"""Packs that are not what their manifest says: each ends in its own error, and leaves the live tree as it was."""

import os
import subprocess
import sys
import tarfile

import pytest
import zstandard
from cache_samples import (
    DIGEST,
    MTIME_NS,
    SIGNER,
    SMALL_TREE,
    STRANGER,
    TRUST,
    compress,
    entry,
    latest_pack,
    leftovers,
    make_tree,
    manifest,
    member,
    pack_of,
    plant,
    publish,
    snapshot,
    start,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glowplug.cache import layout
from glowplug.cache.envelope import canonical_json
from glowplug.cache.manifest import MAX_BYTES, Manifest
from glowplug.cache.repository import Repository
from glowplug.errors import (
    BadManifest,
    BadPack,
    BadSignature,
    IntegrityError,
    LocalError,
    ObjectNotFound,
    UnknownKey,
    Unsigned,
)
from glowplug.store.memory import MemoryStore
from glowplug.units import MIB

OWN = {"vllm/a": b"compiled on this node", "triton/own": b"as well"}


@pytest.fixture
def live(tmp_path):
    """A live tree with files of its own, looked at again afterwards."""
    root = make_tree(tmp_path / "live", OWN)
    before = snapshot(root)
    yield root
    assert snapshot(root) == before
    assert leftovers(root) == []
    assert not (root / ".glowplug" / "installed.json").exists()


def refused(store, live, match, *, error=BadPack):
    with pytest.raises(error, match=match) as caught:
        start(store, live)
    assert caught.value.object
    assert caught.value.hint
    return caught.value


# --- what is stored was damaged ------------------------------------------------------------------------------------------------


def damaged(store, tmp_path, damage):
    publish(store, make_tree(tmp_path / "there", SMALL_TREE | {"inductor/random": os.urandom(100_000)}))
    key = latest_pack(store)
    store.put(key, damage(store.get(key).data))
    return key


@pytest.mark.parametrize("kept", [0, 1, 100, 50_000, -1000])
def test_a_truncated_pack(store, tmp_path, live, kept):
    key = damaged(store, tmp_path, lambda pack: pack[:kept])
    assert refused(store, live, "is truncated").object == key


@pytest.mark.parametrize("more", [b"x", b"\x50\x2a\x4d\x18" + bytes(4)], ids=["a byte", "an empty frame"])
def test_a_pack_with_something_after_its_end(store, tmp_path, live, more):
    key = damaged(store, tmp_path, lambda pack: pack + more)
    assert refused(store, live, "is too long").object == key


def test_a_pack_whose_stream_ends_early(store, live):
    """The manifest agrees with the object's length, and yet there is not enough in it."""
    pack = compress(member("vllm/a"))
    plant(store, [entry("vllm/a"), entry("vllm/b")], pack[:-10])
    refused(store, live, "is truncated")


def test_a_pack_that_is_gone(store, tmp_path, live):
    publish(store, make_tree(tmp_path / "there", SMALL_TREE))
    store.delete(latest_pack(store))
    with pytest.raises(ObjectNotFound):
        start(store, live)


def test_a_flipped_bit_in_the_compressed_data(store, tmp_path, live):
    damaged(store, tmp_path, lambda pack: pack[:50_000] + bytes([pack[50_000] ^ 1]) + pack[50_001:])
    refused(store, live, "pack")


def test_a_pack_that_is_no_zstd(store, live):
    plant(store, [entry("vllm/a")], b"PK\x03\x04" + bytes(100))
    refused(store, live, "corrupt")


def test_a_flipped_byte_in_a_files_content(store, live):
    plant(store, [entry("vllm/a", b"data"), entry("vllm/b")], pack_of({"vllm/a": b"dbta", "vllm/b": b"data"}))
    assert "vllm/a" in refused(store, live, "not what its digest says").message


def test_a_flipped_byte_in_the_last_file_of_many(store, live):
    content = {f"vllm/{number:04}": b"x" * 3000 for number in range(500)}
    files = [entry(path, data) for path, data in content.items()]
    plant(store, files, pack_of(content | {"vllm/0499": b"x" * 2999 + b"y"}))
    refused(store, live, "vllm/0499")


def test_a_wrong_digest_in_the_manifest(store, live):
    plant(store, [entry("vllm/a", sha256="f" * 64)], pack_of({"vllm/a": b"data"}))
    refused(store, live, "not what its digest says")


def test_a_flipped_byte_in_a_header(store, live):
    header = bytearray(member("vllm/a"))
    header[100] ^= 1
    plant(store, [entry("vllm/a")], compress(bytes(header)))
    refused(store, live, "no tar header")


# --- another tar than the manifest's -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evil", "what"),
    [
        (member("vllm/a", kind=tarfile.SYMTYPE, link="/etc/passwd"), "a symbolic link"),
        (member("vllm/a", kind=tarfile.LNKTYPE, link="vllm/b"), "a hard link"),
        (member("vllm/a", kind=tarfile.CHRTYPE), "a device"),
        (member("vllm/a", kind=tarfile.BLKTYPE), "a device"),
        (member("vllm/a", kind=tarfile.FIFOTYPE), "a pipe"),
        (member("vllm/a", kind=tarfile.DIRTYPE), "a folder"),
        (member("vllm/a", mode=0o4755), "mode 0o4755"),
        (member("../x"), "stands where"),
        (member("/etc/x"), "stands where"),
        (member("vllm/b"), "stands where"),
        (member("vllm/a", b"longer than that"), "a file of 16 bytes"),
        (member("vllm/" + "n" * 200), "stands where"),
        (bytes(1024), "no tar header"),
        (b"\xff" * 1024, "no tar header"),
        (b"", "no tar header"),
    ],
    ids=range(15),
)
def test_a_member_that_the_manifest_does_not_name(store, live, evil, what):
    plant(store, [entry("vllm/a")], compress(evil))
    refused(store, live, what)


def test_a_member_before_the_right_one(store, live):
    plant(store, [entry("vllm/b")], compress(member("../x"), member("vllm/b")))
    refused(store, live, r"\.\./x")


def test_a_member_after_the_last_one(store, live):
    plant(store, [entry("vllm/a")], compress(member("vllm/a"), member("vllm/b")))
    refused(store, live, "holds more")


def test_a_member_twice(store, live):
    plant(store, [entry("vllm/a")], compress(member("vllm/a"), member("vllm/a")))
    refused(store, live, "holds more")


def test_bytes_behind_the_end(store, live):
    plant(store, [entry("vllm/a")], compress(member("vllm/a"), bytes(1024), b"x"))
    refused(store, live, "holds more")


def test_bytes_hidden_in_the_padding(store, live):
    evil = bytearray(member("vllm/a"))
    evil[-1] = 1
    plant(store, [entry("vllm/a")], compress(bytes(evil)))
    refused(store, live, "bytes after the end of")


def test_a_window_that_would_take_too_much_memory(store, live):
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    plant(store, [entry("vllm/a")], writer.compress(member("vllm/a") + bytes(1024)) + writer.flush())
    refused(store, live, "corrupt")


# --- manifests -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../x", "/etc/x", "vllm/../../x", "home/x", "vllm"])
def test_a_manifest_with_a_path_that_leads_elsewhere(store, live, path):
    plant(store, [entry(path)], pack_of({path: b"data"}))
    assert refused(store, live, "path", error=BadManifest).object == path


def test_a_manifest_with_a_duplicate_name(store, live):
    plant(store, [entry("vllm/a"), entry("vllm/a")], compress(member("vllm/a"), member("vllm/a")))
    refused(store, live, "appears twice", error=BadManifest)


def test_a_manifest_with_a_set_id_mode(store, live):
    plant(store, [entry("vllm/a", mode=0o4755)], compress(member("vllm/a", mode=0o4755)))
    refused(store, live, "set-id", error=BadManifest)


def test_a_manifest_that_claims_absurd_sizes(store, live):
    plant(store, [entry("vllm/a", size_bytes=MAX_BYTES + 1)], pack_of({"vllm/a": b"data"}))
    refused(store, live, "impossible size", error=BadManifest)


def test_a_manifest_that_claims_more_than_the_disk_holds(store, live):
    """Refused before a byte is fetched: the pack is not even there."""
    free = os.statvfs(live).f_bavail * os.statvfs(live).f_frsize
    if free > MAX_BYTES:
        pytest.skip("this disk could hold the largest manifest there may be")
    made = plant(store, [entry("vllm/a", size_bytes=free)], pack_of({"vllm/a": b"data"}))
    store.delete(layout.pack_key(DIGEST, made.pack.sha256))
    refused(store, live, "free", error=LocalError)


def test_an_unsigned_manifest(store, live):
    made = plant(store, [entry("vllm/a")], pack_of({"vllm/a": b"data"}))
    key = f"v1/{DIGEST}/generations/{made.digest}.json"
    import json

    store.put(key, json.dumps(json.loads(store.get(key).data) | {"signatures": []}).encode())
    assert refused(store, live, "not signed", error=Unsigned).object == key


def test_a_manifest_signed_by_a_stranger(store, live):
    plant(store, [entry("vllm/a")], pack_of({"vllm/a": b"data"}), signer=STRANGER)
    refused(store, live, "signed by key", error=UnknownKey)


def test_a_manifest_altered_after_signing(store, live):
    import base64
    import json

    made = plant(store, [entry("vllm/a")], pack_of({"vllm/a": b"data"}))
    key = f"v1/{DIGEST}/generations/{made.digest}.json"
    envelope = json.loads(store.get(key).data)
    envelope["payload"] = base64.b64encode(manifest([entry("vllm/b")]).document).decode()
    store.put(key, json.dumps(envelope).encode())
    refused(store, live, "does not match", error=BadSignature)


def test_a_good_manifest_under_another_generations_name(store, live):
    """Whoever may write the bucket can move signed documents about, and nothing else."""
    made = plant(store, [entry("vllm/a")], pack_of({"vllm/a": b"data"}))
    signed = store.get(f"v1/{DIGEST}/generations/{made.digest}.json").data
    store.put(f"v1/{DIGEST}/generations/{'0' * 64}.json", signed)
    store.put(f"v1/{DIGEST}/latest", canonical_json({"generation": "0" * 64}))
    refused(store, live, "another generation", error=BadManifest)


def test_a_good_generation_of_another_envelope(store, live):
    from glowplug.cache.envelope import Envelope

    other = Envelope({"engine": {"name": "vllm", "version": "0.11.0"}})
    made = plant(store, [entry("vllm/a")], pack_of({"vllm/a": b"data"}), envelope=other)
    signed = store.get(f"v1/{other.digest}/generations/{made.digest}.json").data
    store.put(f"v1/{DIGEST}/generations/{made.digest}.json", signed)
    store.put(f"v1/{DIGEST}/latest", canonical_json({"generation": made.digest}))
    refused(store, live, "another envelope", error=BadManifest)


@pytest.mark.parametrize(
    "pointer",
    [
        b"",
        b"null",
        b"[]",
        b'{"generation":1}',
        b'{"generation":"../../x"}',
        b'{"generation":"' + b"0" * 64 + b'\\n"}',
        b"[" * 100_000,
        b'{"generation":"' + b"A" * 64 + b'"}',
        b"\xff",
    ],
    ids=range(9),
)
def test_a_pointer_that_is_none(store, pointer):
    store.put(f"v1/{DIGEST}/latest", pointer)
    with pytest.raises(BadManifest, match="names no generation") as caught:
        Repository(store).latest(DIGEST)
    assert caught.value.hint


# --- bombs: memory stays bounded ------------------------------------------------------------------------------------------------

BOMBS = {
    "instead of a header": lambda zeros: [zeros],
    "in a header's size": lambda zeros: [member("vllm/a", size=1 << 30), zeros],
    "behind the end": lambda zeros: [member("vllm/a"), bytes(1024), zeros],
    "as the content": lambda zeros: [member("vllm/a")[:512], zeros],
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.usefixtures("live")
def test_a_pack_that_grows_to_a_gigabyte(tmp_path, local_store, kind):
    writer = zstandard.ZstdCompressor(level=1).compressobj()
    zeros = bytes(16 * MIB)
    parts = [part for whole in BOMBS[kind](zeros) for part in ([zeros] * 64 if whole is zeros else [whole])]
    pack = b"".join(map(writer.compress, parts)) + writer.flush()
    assert len(pack) < MIB
    plant(local_store, [entry("vllm/a")], pack)
    code = """
import sys, pathlib
sys.path.insert(0, sys.argv[1])
from cache_samples import SMALL_TREE, make_tree, peak_rss_bytes, publish, start
from glowplug.store.local import LocalStore
from glowplug.store.memory import MemoryStore
from glowplug.errors import BadPack
scratch, warm = pathlib.Path(sys.argv[2]), MemoryStore()
publish(warm, make_tree(scratch / "warm", SMALL_TREE))
start(warm, make_tree(scratch / "warmed", {}))
before = peak_rss_bytes()
try:
    start(LocalStore(scratch / "store", url="file://store"), scratch / "live")
except BadPack as error:
    print(peak_rss_bytes() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, os.path.dirname(__file__), tmp_path], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 48 * MIB


# --- any damage at all ----------------------------------------------------------------------------------------------------------


def _published():
    import pathlib
    import tempfile

    store = MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        publish(store, make_tree(pathlib.Path(folder), SMALL_TREE | {"inductor/random": os.urandom(3000), "vllm/empty": b""}))
        whole = snapshot(pathlib.Path(folder))
    key = latest_pack(store)
    return store, key, store.get(key).data, whole


STORE, KEY, PACK, WHOLE = _published()
somewhere = st.integers(0, len(PACK))


def _flip(position, bit):
    position = min(position, len(PACK) - 1)
    return PACK[:position] + bytes([PACK[position] ^ (1 << bit)]) + PACK[position + 1 :]


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.builds(_flip, somewhere, st.integers(0, 7))
    | somewhere.map(lambda end: PACK[:end])
    | st.builds(lambda at, more: PACK[:at] + more + PACK[at:], somewhere, st.binary(min_size=1, max_size=600))
    | st.builds(lambda at, end: PACK[:at] + PACK[min(at, end) : end] + PACK[at:], somewhere, somewhere)
    | st.builds(lambda at, end: PACK[: min(at, end)] + PACK[max(at, end) :], somewhere, somewhere)
)
def test_a_damaged_pack_gives_the_exact_tree_or_nothing(tmp_path_factory, pack):
    root = make_tree(tmp_path_factory.mktemp("live"), OWN)
    before = snapshot(root)
    STORE.put(KEY, pack)
    try:
        start(STORE, root)
    except IntegrityError:
        assert snapshot(root) == before
    else:
        assert snapshot(root) == before | WHOLE
    assert leftovers(root) == []


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=700) | st.sampled_from([member("vllm/a"), member("vllm/b"), bytes(512)]), max_size=5))
def test_no_tar_is_ever_interpreted(tmp_path_factory, parts):
    store, files = MemoryStore(), [entry("vllm/a"), entry("vllm/b")]
    plant(store, files, compress(*parts))
    root = make_tree(tmp_path_factory.mktemp("live"), OWN)
    before = snapshot(root)
    if b"".join(parts) == member("vllm/a") + member("vllm/b"):
        start(store, root)
        return
    with pytest.raises(IntegrityError):
        start(store, root)
    assert snapshot(root) == before


def test_the_signature_is_checked_before_the_manifest_is_read(store, live):
    plant(store, [], compress(), document=b"not a manifest", signer=STRANGER)
    with pytest.raises(UnknownKey):
        start(store, live)
    plant(store, [], compress(), document=b"not a manifest", signer=SIGNER)
    with pytest.raises(BadManifest):
        start(store, live)


def test_a_manifest_of_mode_777_gives_nobody_else_write_access(store, tmp_path):
    plant(store, [entry("vllm/a", mode=0o777)], compress(member("vllm/a", mode=0o777)))
    start(store, make_tree(tmp_path / "live", {}))
    assert snapshot(tmp_path / "live") == {"vllm/a": (0o755, MTIME_NS, b"data")}
    assert Manifest.parse(manifest([entry("vllm/a", mode=0o777)]).document)
    assert TRUST
