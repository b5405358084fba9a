"""Tensors from a stream, in an interpreter that has torch: the same as safetensors' own reader gives, and safe to keep."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.weights.weights_samples import write_safetensors

SOURCES = str(Path(__file__).parents[2] / "src")

READ = """
import json, sys, threading
import torch
from safetensors.torch import load_file
from glowplug.weights.streaming.stream import stream
path = sys.argv[1]
def bits(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8).tolist() if tensor.numel() else []
    return str(tensor.dtype), list(tensor.shape), data
expected = load_file(path)
for memory in (-1, 0):
    kept = list(stream(path, memory_bytes=memory))
    names = [name for name, _ in kept]
    wrong = [name for name, tensor in kept if bits(tensor) != bits(expected[name])]
    misaligned = [name for name, tensor in kept if tensor.numel() and tensor.data_ptr() % tensor.element_size()]
    storages = {tensor.untyped_storage().data_ptr() for _, tensor in kept if tensor.numel()}
    left = stream(path, memory_bytes=memory)
    first, _ = next(left)
    left.close()
    print(json.dumps({
        "names": names, "missing": sorted(set(expected) - set(names)), "wrong": wrong, "misaligned": misaligned, "first": first,
        "own": len(storages) == sum(tensor.numel() > 0 for _, tensor in kept),
        "threads": [t.name for t in threading.enumerate() if t.name.startswith("glowplug")],
    }))
"""


def sample(path):
    """Every kind of type; a scalar, nothing at all, and what its file leaves misaligned."""
    chance = random.Random(1)

    def tensor(dtype, shape, size):
        return (dtype, shape, chance.randbytes(size))

    tensors = {
        "bytes": tensor("U8", (3,), 3),
        "odd.f32": tensor("F32", (5, 7), 140),
        "scalar": tensor("BF16", (), 2),
        "empty": tensor("F16", (0, 4), 0),
        "f8": tensor("F8_E4M3", (17,), 17),
        "f8.scale": tensor("F8_E8M0", (5,), 5),
        "odd.i64": tensor("I64", (9,), 72),
        "f4": tensor("F4", (3, 8), 12),
        "bool": ("BOOL", (4,), bytes([0, 1, 1, 0])),
        "complex": tensor("C64", (3,), 24),
        "large": tensor("BF16", (300, 100), 60_000),
        "last": tensor("U8", (1,), 1),
    }
    write_safetensors(path, tensors)
    return list(tensors)


@pytest.mark.vllm
def test_tensors_are_those_that_safetensors_reads_and_stay_valid(vllm_python, tmp_path):
    names = sample(tmp_path / "model.safetensors")
    ended = subprocess.run(
        [vllm_python, "-c", READ, tmp_path / "model.safetensors"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": SOURCES},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    full, windowed = map(json.loads, ended.stdout.splitlines())
    for found in (full, windowed):
        assert found["names"] == names
        assert (found["missing"], found["wrong"], found["misaligned"], found["threads"]) == ([], [], [], [])
        assert found["first"] == "bytes"
    assert windowed["own"], "two tensors share memory that is filled again"
