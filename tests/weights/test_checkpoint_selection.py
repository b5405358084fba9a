"""Which files of a checkpoint are loaded, in which order, and what an incomplete or doubtful one gets."""

from __future__ import annotations

import json

import pytest
from weights_samples import random_tensors, write_checkpoint, write_index, write_safetensors

import glowplug.weights
from glowplug.errors import BadCheckpoint, IncompatibleError, ObjectNotFound

ONE = {"a": ("U8", (4,), b"1234")}
OTHER = {"b": ("U8", (4,), b"5678")}


def names(checkpoint):
    return [file.name for file in checkpoint.files]


def test_a_sharded_checkpoint_is_opened_from_its_headers(tmp_path):
    written = write_checkpoint(tmp_path, files=3)
    checkpoint = glowplug.weights.open(str(tmp_path))
    assert names(checkpoint) == [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert [tensor.name for tensor in checkpoint.tensors] == list(written)
    for tensor in checkpoint.tensors:
        raw = (tmp_path / checkpoint.files[tensor.file].name).read_bytes()
        assert (tensor.dtype, tensor.shape, raw[tensor.start : tensor.end]) == written[tensor.name]
    assert checkpoint.metadata == (("format", "pt"),)
    assert {entry.name for entry in checkpoint.others} == {
        "README.md", "config.json", "model.safetensors.index.json", "tokenizer.json",
    }  # fmt: skip
    assert checkpoint.size_bytes == sum(len(data) for _, _, data in written.values())


def test_one_file_of_a_checkpoint_is_opened_by_its_own_name(tmp_path):
    write_checkpoint(tmp_path, files=2)
    checkpoint = glowplug.weights.open(str(tmp_path / "model-00002-of-00002.safetensors"))
    assert names(checkpoint) == ["model-00002-of-00002.safetensors"]


def test_files_are_ordered_by_number_not_by_letter(tmp_path):
    for number in (10, 9, 1):
        write_safetensors(tmp_path / f"part-{number}.safetensors", random_tensors(1, prefix=f"p{number}"))
    assert names(glowplug.weights.open(str(tmp_path))) == [f"part-{number}.safetensors" for number in (1, 9, 10)]


def test_a_header_longer_than_the_first_read_is_read_whole(tmp_path):
    written = {f"layer.{number}." + "x" * 200: ("U8", (1,), b"1") for number in range(2000)}
    path = write_safetensors(tmp_path / "model.safetensors", written)
    checkpoint = glowplug.weights.open(str(tmp_path))
    assert checkpoint.files[0].data_start > 256 * 1024
    assert len(checkpoint.tensors) == 2000
    assert checkpoint.files[0].size_bytes == path.stat().st_size


def test_consolidated_files_are_not_loaded_beside_the_usual_ones(tmp_path):
    write_checkpoint(tmp_path, files=2)
    write_safetensors(tmp_path / "consolidated.safetensors", ONE)
    checkpoint = glowplug.weights.open(str(tmp_path))
    assert len(checkpoint.files) == 2
    assert dict(checkpoint.ignored) == {"consolidated.safetensors": "the same weights in Mistral's layout"}


def test_consolidated_files_are_loaded_when_they_are_alone_or_wanted(tmp_path):
    for number in (1, 2):
        write_safetensors(tmp_path / f"consolidated-0000{number}-of-00002.safetensors", {"a": ONE, "b": OTHER}["ab"[number - 1]])
    expected = [f"consolidated-0000{number}-of-00002.safetensors" for number in (1, 2)]
    assert names(glowplug.weights.open(str(tmp_path))) == expected
    write_checkpoint(tmp_path, files=1)
    assert names(glowplug.weights.open(str(tmp_path))) == ["model.safetensors"]
    wanted = glowplug.weights.open(str(tmp_path), consolidated=True)
    assert names(wanted) == expected
    assert "model.safetensors" in dict(wanted.ignored)


def test_the_index_of_consolidated_files_decides_about_them(tmp_path):
    write_safetensors(tmp_path / "consolidated-1.safetensors", ONE)
    write_safetensors(tmp_path / "consolidated-old.safetensors", ONE)
    write_index(tmp_path, {"a": "consolidated-1.safetensors"}, "consolidated.safetensors.index.json")
    checkpoint = glowplug.weights.open(str(tmp_path))
    assert names(checkpoint) == ["consolidated-1.safetensors"]
    assert dict(checkpoint.ignored) == {"consolidated-old.safetensors": "not in the index"}


def test_other_layouts_subfolders_and_formats_are_ignored_and_told(tmp_path):
    write_checkpoint(tmp_path, files=1)
    write_safetensors(tmp_path / "original" / "model.safetensors", ONE)
    write_safetensors(tmp_path / "vae" / "diffusion.safetensors", ONE)
    write_safetensors(tmp_path / "adapter_model.safetensors", ONE)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    checkpoint = glowplug.weights.open(str(tmp_path))
    assert names(checkpoint) == ["model.safetensors"]
    assert dict(checkpoint.ignored) == {
        "adapter_model.safetensors": "an adapter, not the model",
        "original/model.safetensors": "the same weights in their original layout",
        "pytorch_model.bin": "not safetensors",
        "vae/diffusion.safetensors": "in a subfolder",
    }


def test_an_adapter_alone_is_opened(tmp_path):
    write_safetensors(tmp_path / "adapter_model.safetensors", ONE)
    assert names(glowplug.weights.open(str(tmp_path))) == ["adapter_model.safetensors"]


def test_a_file_that_the_index_does_not_name_is_ignored(tmp_path):
    write_checkpoint(tmp_path, files=2)
    write_safetensors(tmp_path / "model.safetensors", ONE)
    checkpoint = glowplug.weights.open(str(tmp_path))
    assert len(checkpoint.files) == 2
    assert dict(checkpoint.ignored) == {"model.safetensors": "not in the index"}


def test_a_tensor_that_the_index_does_not_name_is_loaded_with_its_file(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", ONE | OTHER)
    write_index(tmp_path, {"a": "m.safetensors"})
    assert [tensor.name for tensor in glowplug.weights.open(str(tmp_path)).tensors] == ["a", "b"]


def bad(folder, says):
    with pytest.raises(BadCheckpoint) as caught:
        glowplug.weights.open(str(folder))
    assert says in caught.value.message
    assert caught.value.object.startswith(str(folder))
    assert caught.value.hint


def test_an_index_that_names_a_missing_file_is_refused(tmp_path):
    write_checkpoint(tmp_path, files=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    bad(tmp_path, "names model-00002-of-00003.safetensors, which is not there")


def test_an_index_that_names_a_missing_tensor_is_refused(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", ONE)
    write_index(tmp_path, {"a": "m.safetensors", "gone": "m.safetensors"})
    bad(tmp_path, "holds tensor 'gone', which is not in it")


def test_an_index_that_names_the_wrong_file_for_a_tensor_is_refused(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", ONE)
    write_safetensors(tmp_path / "n.safetensors", OTHER)
    write_index(tmp_path, {"a": "n.safetensors", "b": "m.safetensors"})
    bad(tmp_path, "says that n.safetensors holds tensor 'a', which is in m.safetensors")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "\udcff", "[" * 100_000])
def test_an_index_that_can_not_be_read_is_refused(tmp_path, text):
    write_safetensors(tmp_path / "m.safetensors", ONE)
    (tmp_path / "model.safetensors.index.json").write_bytes(text.encode(errors="surrogateescape"))
    bad(tmp_path, "model.safetensors.index.json")


def test_an_index_that_leads_out_of_the_folder_names_a_missing_file(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", ONE)
    write_safetensors(tmp_path / "inner" / "m.safetensors", ONE)
    write_index(tmp_path / "inner", {"a": "../m.safetensors"})
    bad(tmp_path / "inner", "names ../m.safetensors, which is not there")


def test_a_tensor_in_two_files_is_refused(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", ONE)
    write_safetensors(tmp_path / "model.fp16.safetensors", ONE)
    bad(tmp_path, "tensor 'a' is also in model.fp16.safetensors")


def test_a_missing_shard_is_noticed_without_an_index(tmp_path):
    write_checkpoint(tmp_path, files=4, index=False)
    (tmp_path / "model-00003-of-00004.safetensors").unlink()
    bad(tmp_path, "has 3 of 4 files model-*-of-00004.safetensors")


def test_a_damaged_header_names_its_file(tmp_path):
    write_checkpoint(tmp_path, files=3)
    path = tmp_path / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    bad(tmp_path, "model-00002-of-00003.safetensors: its header would be")


def test_a_model_in_another_format_is_no_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({}))
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    (tmp_path / "model.Q4_K_M.gguf").write_bytes(b"x")
    with pytest.raises(IncompatibleError, match=r"has no safetensors files, only \.bin, \.gguf") as caught:
        glowplug.weights.open(str(tmp_path))
    assert caught.value.hint == "convert the model to safetensors, or load it with the engine's own loader"


def test_a_model_in_another_format_in_a_bucket_is_told_that_only_folders_are_loaded_so(tmp_path, range_server):
    (tmp_path / "bucket" / "m").mkdir(parents=True)
    (tmp_path / "bucket" / "m" / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(IncompatibleError, match=r"s3://bucket/m has no safetensors files, only \.bin") as caught:
        glowplug.weights.open("s3://bucket/m", env=range_server(tmp_path).env)
    assert "convert the model to safetensors; or copy it to the node and name that folder" in caught.value.hint


def test_a_folder_without_any_weights_is_no_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(IncompatibleError, match=r"has no safetensors files$") as caught:
        glowplug.weights.open(str(tmp_path))
    assert caught.value.hint == "name the folder of a model"


def test_weights_in_subfolders_alone_are_pointed_at(tmp_path):
    write_safetensors(tmp_path / "transformer" / "model.safetensors", ONE)
    with pytest.raises(IncompatibleError, match=r"at its top level, but transformer/model\.safetensors"):
        glowplug.weights.open(str(tmp_path))


def test_a_folder_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(ObjectNotFound):
        glowplug.weights.open(str(tmp_path / "none"))
