"""The table of element types agrees with the real safetensors and the real torch."""

from __future__ import annotations

import json
import subprocess

import pytest
from weights_samples import write_safetensors

from glowplug.weights.dtypes import DTYPES, torch_shape

READ = """
import json, sys
import safetensors, torch
for path in sys.argv[1:]:
    with safetensors.safe_open(path, "pt") as file:
        try:
            tensor = file.get_tensor("a")
            print(json.dumps([str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]))
        except safetensors.SafetensorError as error:
            print(json.dumps(str(error)))
"""


@pytest.mark.vllm
def test_safetensors_reads_every_type_as_the_table_says(vllm_python, tmp_path):
    paths = []
    for name, dtype in DTYPES.items():
        paths.append(write_safetensors(tmp_path / f"{name}.safetensors", {"a": (name, (3, 8), b"\1" * (3 * dtype.bits))}))
    ended = subprocess.run([vllm_python, "-c", READ, *paths], check=True, capture_output=True, text=True)
    for (name, dtype), line in zip(DTYPES.items(), ended.stdout.splitlines(), strict=True):
        if dtype.torch is None:
            assert "not understood" in json.loads(line)
        else:
            assert json.loads(line) == [dtype.torch, list(torch_shape(name, (3, 8)))]


@pytest.mark.vllm
def test_safetensors_knows_no_other_type(vllm_python, tmp_path):
    path = write_safetensors(tmp_path / "x.safetensors", {"a": ("NONE", (1,), b"\1")})
    ended = subprocess.run([vllm_python, "-c", READ, path], check=False, capture_output=True, text=True)
    listed = ended.stderr.partition("expected one of ")[2]
    assert {word.strip("`") for word in listed.split(" at line")[0].split(", ")} == set(DTYPES)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_a_shape_that_torch_can_not_hold_in_pairs_is_refused(shape):
    with pytest.raises(ValueError, match="must be even"):
        torch_shape("F4", shape)
