"""``glowplug weights seal``: every byte is sealed, and one that has changed is named, in a folder and in a real bucket."""

from __future__ import annotations

import errno
import json
import os

import pytest
from commands import weights
from weights_samples import write_checkpoint

from glowplug.cache.keys import PrivateKey
from glowplug.errors import UsageError
from glowplug.store import open_store
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.settings import FetchSettings
from glowplug.weights.seals.document import parse_seal, seal_document
from glowplug.weights.seals.sealing import check_checkpoint, digest_checkpoint, refuse_unwritable
from glowplug.weights.sources.local import LocalSource
from testbed.range_faults import FORBIDDEN

BLOCK = 4096
SHARD = "model-00002-of-00002.safetensors"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_checkpoint(folder, files=2, tensors=5, elements=(4000, 9000))
    return folder


@pytest.fixture
def glowplug(tmp_path):
    for name, seed in (("alice", b"a"), ("bob", b"b")):
        key = PrivateKey(seed * 32)
        (tmp_path / f"{name}.key").write_text(key.pem)
        (tmp_path / f"{name}.key").chmod(0o600)
        (tmp_path / f"{name}.pub").write_text(key.public().pem)
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GLOWPLUG_SIGNING_KEY": str(tmp_path / "alice.key")}

    return lambda *words, **env: weights(*words, env=base | env)


def sealed(folder, algorithm="sha256"):
    source = LocalSource(folder)
    checkpoint = open_checkpoint(source)
    made = digest_checkpoint(source, checkpoint, settings=FetchSettings(), algorithm=algorithm, block_bytes=BLOCK)
    return parse_seal(seal_document(made.seal), where="s")


def differences(folder, seal):
    source = LocalSource(folder)
    checkpoint = open_checkpoint(source)
    return check_checkpoint(source, checkpoint, seal.fit(checkpoint, where="s"), settings=FetchSettings())


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
def test_a_checkpoint_is_as_it_was_sealed_until_a_byte_changes(model, algorithm):
    if algorithm == "blake3":
        pytest.importorskip("blake3")
    seal = sealed(model, algorithm)
    assert differences(model, seal) == []
    data_start = open_checkpoint(LocalSource(model)).files[1].data_start
    flip(model / SHARD, data_start + 3 * BLOCK)
    assert differences(model, seal) == [(SHARD, data_start + 3 * BLOCK, data_start + 4 * BLOCK)]


def test_every_byte_of_the_tensors_is_sealed(model):
    seal = sealed(model)
    size, data_start = (model / SHARD).stat().st_size, open_checkpoint(LocalSource(model)).files[1].data_start
    for offset in (data_start, size - 1):
        flip(model / SHARD, offset)
        assert [found.name for found in differences(model, seal)] == [SHARD]
        flip(model / SHARD, offset)


def test_changed_neighbours_are_told_as_one_stretch_and_small_files_too(model):
    seal = sealed(model)
    data_start = open_checkpoint(LocalSource(model)).files[1].data_start
    flip(model / SHARD, data_start + BLOCK)
    flip(model / SHARD, data_start + 2 * BLOCK)
    flip(model / "tokenizer.json", 0)
    assert differences(model, seal) == [(SHARD, data_start + BLOCK, data_start + 3 * BLOCK), ("tokenizer.json", 0, 2)]


def test_a_seal_made_through_a_small_ring_is_the_same(model):
    source = LocalSource(model)
    checkpoint = open_checkpoint(source)
    small = digest_checkpoint(source, checkpoint, settings=FetchSettings(), block_bytes=BLOCK, ring_bytes=1).seal
    assert small.files == sealed(model).files


def test_the_command_seals_and_checks_and_names_what_has_changed(glowplug, model):
    made = glowplug("seal", model)
    assert made.returncode == 0, made.stderr
    assert "glowplug.seal.json" in made.stdout
    assert glowplug("seal", model, "--check").returncode == 0
    path, size = model / SHARD, (model / SHARD).stat().st_size
    flip(path, size - 1)
    checked = glowplug("seal", model, "--check")
    assert checked.returncode == 1
    assert f"{path}: bytes " in checked.stderr
    assert f" to {size - 1} are not those that were sealed" in checked.stderr
    as_json = glowplug("seal", model, "--check", "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["differences"][0]["file"] == str(path)


def test_a_check_by_somebody_who_does_not_trust_the_key_is_refused(glowplug, model, tmp_path):
    assert glowplug("seal", model).returncode == 0
    assert glowplug("seal", model, "--check", "--trusted-keys", tmp_path / "alice.pub").returncode == 0
    refused = glowplug("seal", model, "--check", "--trusted-keys", tmp_path / "bob.pub")
    assert refused.returncode == 1
    assert "signed by key" in refused.stderr


def test_a_tampered_seal_is_refused(glowplug, model):
    assert glowplug("seal", model).returncode == 0
    envelope = json.loads((model / "glowplug.seal.json").read_bytes())
    envelope["payload"] = envelope["payload"][:-8] + "AAAAAAAA"
    (model / "glowplug.seal.json").write_text(json.dumps(envelope))
    refused = glowplug("seal", model, "--check")
    assert refused.returncode == 1
    assert "does not match" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_a_seal_there_is_nothing_to_check(glowplug, model):
    checked = glowplug("seal", model, "--check")
    assert checked.returncode == 1
    assert "has no glowplug.seal.json" in checked.stderr


def test_a_reader_without_a_signing_key_is_told_so(glowplug, model, tmp_path):
    refused = glowplug("seal", model, GLOWPLUG_SIGNING_KEY="", GLOWPLUG_TRUSTED_KEYS=str(tmp_path / "alice.pub"))
    assert refused.returncode == 2
    assert "can't be signed" in refused.stderr


def test_a_full_disk_leaves_no_half_of_a_seal(glowplug, model, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    ended = glowplug("seal", model)
    assert ended.returncode == 1
    assert "glowplug.seal.json: No space left on device" in ended.stderr
    assert "hint: free space there, and seal again" in ended.stderr
    assert not [path for path in model.iterdir() if "seal" in path.name]


def test_an_unknown_algorithm_is_a_usage_error(glowplug, model):
    refused = glowplug("seal", model, "--algorithm", "md5")
    assert refused.returncode == 2
    assert "sha256, blake3" in refused.stderr


@pytest.mark.parametrize("uri", ["https://host/model", "http://host/m", "s3://b/m/model.safetensors"])
def test_what_can_not_hold_a_seal_is_refused_at_once(uri):
    with pytest.raises(UsageError):
        refuse_unwritable(uri)


@pytest.mark.s3
def test_a_checkpoint_in_a_bucket_is_sealed_where_it_lies(glowplug, model, seaweedfs):
    place = f"s3://{seaweedfs.bucket}/sealed/model"
    assert glowplug("push", model, place, **seaweedfs.env).returncode == 0
    made = glowplug("seal", place, "--json", **seaweedfs.env)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["seal"] == f"{place}/glowplug.seal.json"
    assert glowplug("seal", place, "--check", **seaweedfs.env).returncode == 0
    flip(model / "config.json", 0)
    store = open_store(place, env=seaweedfs.env)
    store.put("config.json", (model / "config.json").read_bytes())
    checked = glowplug("seal", place, "--check", **seaweedfs.env)
    assert checked.returncode == 1
    assert f"{place}/config.json" in checked.stderr


def test_a_seal_counts_over_http_too(glowplug, tmp_path, range_server):
    place = tmp_path / "served" / "bucket" / "m"
    write_checkpoint(place, files=2, tensors=4)
    assert glowplug("seal", place).returncode == 0
    url = range_server(tmp_path / "served").url("bucket/m")
    assert json.loads(glowplug("stream", url, "--json").stdout)["verified"] is True
    flip(place / SHARD, (place / SHARD).stat().st_size - 1)
    ended = glowplug("stream", url)
    assert ended.returncode == 1
    assert f"{url}/{SHARD}" in ended.stderr


@pytest.mark.parametrize("uri", ["{folder}/{shard}", "{url}/bucket/m/{shard}", "s3://bucket/m/{shard}"], ids=["file", "http", "s3"])
def test_one_file_is_held_to_the_seal_of_its_folder(glowplug, tmp_path, range_server, uri):
    place = tmp_path / "served" / "bucket" / "m"
    write_checkpoint(place, files=2, tensors=4)
    server = range_server(tmp_path / "served")
    uri = uri.format(folder=place, url=server.endpoint_url, shard=SHARD)
    assert json.loads(glowplug("stream", uri, "--json", **server.env).stdout)["verified"] is False
    refused = glowplug("seal", uri, **server.env)
    assert refused.returncode == 2
    assert "hint: seal" in refused.stderr
    assert glowplug("seal", place).returncode == 0
    assert json.loads(glowplug("stream", uri, "--json", **server.env).stdout)["verified"] is True
    assert glowplug("seal", uri, "--check", **server.env).returncode == 0
    assert "sealed" not in glowplug("inspect", uri, **server.env).stdout
    (place / "config.json").write_text("{}  ")  # of which this file knows nothing
    flip(place / SHARD, (place / SHARD).stat().st_size - 1)
    for words in (["stream"], ["seal", "--check"]):
        ended = glowplug(*words, uri, **server.env)
        assert ended.returncode == 1
        assert SHARD in ended.stderr
        assert "sealed" in ended.stderr
    (place / SHARD).rename(place / "renamed.safetensors")
    unknown = glowplug("stream", uri.replace(SHARD, "renamed.safetensors"), **server.env)
    assert unknown.returncode == 1
    assert "renamed.safetensors: is not in the seal" in unknown.stderr


def test_who_may_read_one_object_but_not_list_is_told_that_it_is_not_verified(glowplug, tmp_path, range_server):
    place = tmp_path / "served" / "bucket" / "m"
    write_checkpoint(place, files=1)
    server = range_server(tmp_path / "served", faults=lambda call: FORBIDDEN if call.key.endswith("seal.json") else None)
    ended = glowplug("stream", "s3://bucket/m/model.safetensors", **server.env)
    assert ended.returncode == 0, ended.stderr
    assert "verified    no: it has no seal" in ended.stdout


def test_a_check_over_http_passes_over_what_is_not_asked_for(glowplug, tmp_path, range_server):
    place = tmp_path / "served" / "bucket" / "m"
    write_checkpoint(place, files=1)
    (place / "modeling_custom.py").write_text("# no list of names has this")
    assert glowplug("seal", place).returncode == 0
    assert glowplug("seal", range_server(tmp_path / "served").url("bucket/m"), "--check").returncode == 0
