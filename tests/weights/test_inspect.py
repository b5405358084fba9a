"""``glowplug weights inspect``: the whole of a checkpoint at a glance, and as JSON."""

from __future__ import annotations

import json

import pytest
from commands import weights
from weights_samples import random_tensors, write_checkpoint, write_safetensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_checkpoint(folder, files=2, tensors=3)
    write_safetensors(folder / "original" / ("x" * 90 + ".safetensors"), random_tensors(1))
    return folder


def inspect(*words):
    return weights("inspect", *words, env={"COLUMNS": "80"})


def lines_of(*words):
    ended = inspect(*words)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_files_types_and_sums_are_shown_in_80_columns(folder):
    lines = lines_of(folder, "--tensors")
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for shown in ("model-00001-of-00002.safetensors", "F32", "6 tensors", "2 files", "original layout", "model.layers.2.0.weight"):
        assert shown in text
    assert "sealed     no" in lines
    assert "complete   no marker" in lines


def test_json_holds_every_name_whole(folder):
    document = json.loads("\n".join(lines_of(folder, "--tensors", "--json")))
    assert document["tensors"] == len(document["tensor_list"]) == 6
    assert document["bytes"] == sum(tensor["end"] - tensor["start"] for tensor in document["tensor_list"])
    assert document["parameters"] * 4 == document["bytes"] == document["dtypes"]["F32"]["bytes"]
    assert [file["tensors"] for file in document["files"]] == [3, 3]
    assert document["ignored"][0]["name"] == "original/" + "x" * 90 + ".safetensors"
    assert (document["sealed"], document["complete_marker"]) == (False, False)


def test_tensors_are_listed_on_request_only(folder):
    assert "tensor_list" not in json.loads("\n".join(lines_of(folder, "--json")))
    assert not any("model.layers" in line for line in lines_of(folder))


def test_a_seal_and_a_complete_marker_are_seen(tmp_path):
    write_checkpoint(tmp_path, files=1)
    (tmp_path / "glowplug.seal.json").write_text("{}")
    (tmp_path / "glowplug.complete.json").write_text("{}")
    lines = lines_of(tmp_path)
    assert "sealed     yes, not checked here" in lines
    assert "complete   marked" in lines
    (tmp_path / "glowplug.pushing.json").write_text("{}")
    assert "complete   a push is under way, or has died; push it again" in lines_of(tmp_path)


def test_four_bit_parameters_are_counted_one_by_one(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", {"a": ("F4", (4, 6), b"1" * 12)})
    document = json.loads("\n".join(lines_of(tmp_path, "--json")))
    assert (document["parameters"], document["bytes"]) == (24, 12)


def test_a_bad_checkpoint_is_one_line_and_a_hint(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"\xff" * 20)
    ended = inspect(tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"glowplug: {tmp_path}/m.safetensors: its header")
    assert "hint: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_scheme_that_is_not_known_is_wrong_usage_and_tells_no_secret():
    ended = inspect("ftp://user:hunter2@host/model")
    assert ended.returncode == 2
    assert "s3://bucket/prefix" in ended.stderr
    assert "hunter2" not in ended.stderr
