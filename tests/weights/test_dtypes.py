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
    try:
        with safetensors.safe_open(path, "pt") as file:
            tensor = file.get_tensor("a")
            print(json.dumps([str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]))
    except safetensors.SafetensorError as error:
        print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def read(vllm_python, tmp_path_factory):
    """What safetensors makes of each type, by its name, and of one that does not exist; torch is loaded once for all."""
    folder, sizes = tmp_path_factory.mktemp("types"), {name: 3 * dtype.bits for name, dtype in DTYPES.items()} | {"NONE": 1}
    paths = [write_safetensors(folder / f"{name}.safetensors", {"a": (name, (3, 8), b"\1" * n)}) for name, n in sizes.items()]
    ended = subprocess.run([vllm_python, "-c", READ, *paths], check=True, capture_output=True, text=True)
    return dict(zip(sizes, map(json.loads, ended.stdout.splitlines()), strict=True))


@pytest.mark.vllm
def test_safetensors_reads_every_type_as_the_table_says(read):
    for name, dtype in DTYPES.items():
        if dtype.torch is None:
            assert "not understood" in read[name]
        else:
            assert read[name] == [dtype.torch, list(torch_shape(name, (3, 8)))]


@pytest.mark.vllm
def test_safetensors_knows_no_other_type(read):
    listed = read["NONE"].partition("expected one of ")[2]
    assert {word.strip("`") for word in listed.split(" at line")[0].split(", ")} == set(DTYPES)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_a_shape_that_torch_can_not_hold_in_pairs_is_refused(shape):
    with pytest.raises(ValueError, match="must be even"):
        torch_shape("F4", shape)
