import json
import struct

import pytest

from glowplug.engines.model import folder_content, model_component

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def safetensors(path, header, body=b"\0" * 64):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text('{"hidden_size": 8}')
    (made / "modeling_x.py").write_text("x = 1")
    safetensors(made / "model.safetensors", {"a": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}})
    return made


def identity(path, **kwargs):
    return model_component(str(path), {}, "/", **kwargs)


def test_a_folder_is_known_by_content_and_not_by_place(folder, tmp_path):
    here = identity(folder)
    folder.rename(tmp_path / "moved")
    there = identity(tmp_path / "moved")
    assert here["reference"] != there["reference"]
    assert {**here, "reference": 0} == {**there, "reference": 0}
    assert sorted(here["files"]) == ["config.json", "modeling_x.py"]
    assert here["weights"]["files"] == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"hidden_size": 9}'),
        ("modeling_x.py", "x = 2"),
        ("generation_config.json", "{}"),
        ("1_Pooling/config.json", "{}"),
    ],
)
def test_small_files_count(folder, name, content):
    before = folder_content(str(folder))
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    assert folder_content(str(folder)) != before


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE.txt", ".gitattributes", ".cache/x.json", "picture.png", "original/a/b/params.json"]
)
def test_prose_and_litter_do_not_count(folder, name):
    before = folder_content(str(folder))
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text("x")
    assert folder_content(str(folder)) == before


def test_weights_count_by_name_size_and_header(folder):
    weights = folder / "model.safetensors"
    before = folder_content(str(folder))["weights"]
    safetensors(weights, {"a": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}}, b"\1" * 64)
    assert folder_content(str(folder))["weights"] == before, "the tensors themselves are not read"
    safetensors(weights, {"a": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]}})
    assert folder_content(str(folder))["weights"] != before
    safetensors(weights, {"a": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}}, b"\0" * 65)
    assert folder_content(str(folder))["weights"] != before


def test_many_shards_give_the_same_answer_each_time(folder):
    for number in range(200):
        safetensors(folder / f"model-{number:05d}.safetensors", {f"t{number}": {"shape": [number]}})
    first = folder_content(str(folder))["weights"]
    assert first["files"] == 201
    assert folder_content(str(folder))["weights"] == first


def test_a_large_small_file_counts_by_size(folder):
    (folder / "tokenizer.json").write_bytes(b"x" * (5 * 1024 * 1024))
    assert folder_content(str(folder))["files"]["tokenizer.json"] == f"{5 * 1024 * 1024} bytes"


def test_a_corrupt_header_is_only_a_different_one(folder):
    (folder / "model.safetensors").write_bytes(b"\xff" * 20)
    assert folder_content(str(folder))["weights"]["files"] == 1
    (folder / "model.safetensors").write_bytes(b"")
    assert folder_content(str(folder))["weights"]["bytes"] == 0


def test_a_dangling_link_is_recorded_and_not_fatal(folder):
    (folder / "broken.json").symlink_to("/no/such/file")
    assert folder_content(str(folder))["files"]["broken.json"] == "unreadable"


def test_a_gguf_file_is_its_name_size_and_head(tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + b"\0" * 2000)
    before = identity(file)["weights"]
    file.write_bytes(b"GGUF\1" + b"\0" * 1999)
    assert identity(file)["weights"] != before
    assert model_component("m.gguf", {}, str(tmp_path))["weights"]["bytes"] == 2004


@pytest.fixture
def hub(tmp_path):
    repository = tmp_path / "hub" / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots" / COMMIT).mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "refs" / "v1").write_text("f" * 40)
    return tmp_path / "hub"


def test_a_hub_id_is_its_commit(hub):
    env = {"HF_HUB_CACHE": str(hub)}
    assert model_component("org/name", env, "/") == {"reference": "org/name", "commit": COMMIT}
    assert model_component("org/name", env, "/", revision="v1")["commit"] == "f" * 40
    assert model_component("org/name:Q4_K_M", env, "/")["quantization"] == "Q4_K_M"
    assert model_component("org/name", {}, "/", download_dir=str(hub))["commit"] == COMMIT


def test_a_pinned_commit_needs_no_cache():
    assert model_component("org/name", {"HF_HUB_CACHE": "/none"}, "/", revision=COMMIT)["commit"] == COMMIT


def test_an_id_that_is_not_cached_has_no_commit():
    assert model_component("org/name", {"HF_HUB_CACHE": "/none"}, "/", revision="v2") == {
        "reference": "org/name",
        "revision": "v2",
        "commit": None,
    }


def test_offline_the_snapshots_path_counts_because_vllm_hashes_it(hub):
    env = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
    assert model_component("org/name", env, "/")["path"] == str(hub / "models--org--name" / "snapshots" / COMMIT)


def test_a_url_is_itself_without_its_password():
    assert model_component("s3://bucket/model", {}, "/") == {"reference": "s3://bucket/model"}
    assert model_component("https://user:secret@host/m", {}, "/") == {"reference": "https://host/m"}


def test_a_path_that_does_not_exist_is_said_to_be_unknown():
    assert model_component("/no/such/model", {}, "/")["unknown"] == "no such file"
