"""A checkpoint's bytes are its headers', to the byte; its configuration is found beside it; a real S3 server is quick enough."""

from __future__ import annotations

import json
import time

import pytest
from plan_models import config

from glowplug.errors import BadCheckpoint, IncompatibleError, ObjectNotFound, UsageError
from glowplug.plan.model import read_config, read_model
from glowplug.store import open_store
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.transfer.push import push
from testbed.checkpoints import Tensor, llama_layer, write_checkpoint


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    tensors = [each for layer in range(4) for each in llama_layer(layer, width=64, inner=160, kv_width=16)]
    write_checkpoint(made, [*tensors, Tensor("lm_head.weight", (500, 64))], files=3)
    (made / "config.json").write_bytes(config("llama-3.1-8b"))
    return made


# A layer has 2 norms of 64, three matrices of 64 x 160, two of 64 x 64 and two of 64 x 16, of two bytes each.
LAYER_BYTES = 2 * (2 * 64 + 3 * 64 * 160 + 2 * 64 * 64 + 2 * 64 * 16)
WEIGHT_BYTES = 4 * LAYER_BYTES + 2 * 500 * 64


def test_bytes_parameters_and_configuration_of_a_folder(folder):
    found = read_model(str(folder))
    assert (found.weight_bytes, found.parameters) == (WEIGHT_BYTES, WEIGHT_BYTES // 2)
    assert (found.files, found.tensors, found.largest_tensor_bytes) == (3, 37, 64_000)
    assert found.dtypes == (("BF16", WEIGHT_BYTES),)
    assert found.architecture.layers == 32
    assert found.is_exact
    assert found.is_local
    assert read_model(f"file://{folder}").weight_bytes == WEIGHT_BYTES


def test_a_configuration_of_the_users_goes_before_the_checkpoints(folder, tmp_path):
    other = tmp_path / "other.json"
    other.write_bytes(config("llama-3.1-70b"))
    assert read_model(str(folder), config=other).architecture.layers == 80
    (folder / "config.json").unlink()
    assert read_model(str(folder)).architecture is None


def test_a_damaged_configuration_beside_the_weights_is_named(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"model/config\.json is not JSON"):
        read_model(str(folder))


def test_what_is_no_checkpoint_is_said(folder, tmp_path):
    with pytest.raises(IncompatibleError):
        read_model(str(tmp_path))
    next(folder.glob("*1-of*.safetensors")).unlink()
    with pytest.raises(BadCheckpoint):
        read_model(str(folder))
    with pytest.raises(ObjectNotFound):
        read_model(str(tmp_path / "nowhere"))


def test_files_without_a_tensor_are_no_model(tmp_path):
    header = b'{"__metadata__":{}}'
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(BadCheckpoint, match="hold no weights") as raised:
        read_model(str(tmp_path))
    assert raised.value.hint


def test_a_name_of_the_hub_is_refused_with_what_to_give_instead(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        read_model("Qwen/Qwen3-32B")
    assert "--weights 65GB --config config.json" in raised.value.hint


@pytest.mark.parametrize("path", ["nowhere.json", "/dev/null/config.json"])
def test_a_configuration_that_cannot_be_read_is_named(path):
    with pytest.raises(UsageError, match=f"--config: {path}"):
        read_config(path)


def test_a_configuration_of_gigabytes_is_not_read(tmp_path):
    with open(tmp_path / "config.json", "wb") as file:
        file.truncate(10**10)
    with pytest.raises(UsageError, match="too large for a configuration"):
        read_config(tmp_path / "config.json")


@pytest.mark.s3
def test_200_files_of_a_real_server_are_planned_for_in_two_seconds(seaweedfs, tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    write_checkpoint(made, [Tensor(f"layers.{number}.weight", (16, 16)) for number in range(400)], files=200)
    (made / "config.json").write_text(json.dumps(json.loads(config("qwen3-32b"))))
    url = f"s3://{seaweedfs.bucket}/plan/200-files"
    push(open_checkpoint(LocalSource(made)), made, open_store(url, env=seaweedfs.env))
    began = time.monotonic()
    found = read_model(url, env=seaweedfs.env)
    assert time.monotonic() - began <= 2.0
    assert (found.files, found.weight_bytes, found.architecture.layers) == (200, 400 * 512, 64)
    assert not found.is_local
