"""Checkpoints to test with, written by the standard library alone, so that no reader is tested against itself."""

from __future__ import annotations

import json
import random

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "U8": 8, "F8_E4M3": 8, "F4": 4}


def header_bytes(entries):
    """Length and JSON, padded with blanks to 8 bytes as every writer does it."""
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def entries_of(tensors, metadata=None):
    """The header's JSON for tensors that lie one after another."""
    entries = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    return entries


def safetensors_bytes(tensors, metadata=None):
    """A whole file. ``tensors``: name to (dtype, shape, bytes), in file order."""
    return header_bytes(entries_of(tensors, metadata)) + b"".join(data for _, _, data in tensors.values())


def write_safetensors(path, tensors, metadata=None):
    """The same on disk; gives the path back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(safetensors_bytes(tensors, metadata))
    return path


def write_index(folder, weight_map, name="model.safetensors.index.json"):
    """An index of a sharded checkpoint: tensor to file name."""
    path = folder / name
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))
    return path


def random_tensors(count, *, seed=0, prefix="model.layers", dtype="F32", elements=(1, 600)):
    """Tensors of chance sizes and contents, the same for the same seed."""
    chance = random.Random(seed)
    tensors = {}
    for number in range(count):
        length = chance.randint(*elements)
        tensors[f"{prefix}.{number}.weight"] = (dtype, (length,), chance.randbytes(length * BITS[dtype] // 8))
    return tensors


def write_checkpoint(folder, *, files=2, tensors=6, seed=0, index=True, **of_tensors):
    """A sharded checkpoint with configuration. Gives every tensor: name to (dtype, shape, bytes), in file order.

    ``of_tensors``: as ``random_tensors`` takes them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    everything, weight_map = {}, {}
    for number in range(1, files + 1):
        name = "model.safetensors" if files == 1 else f"model-{number:05d}-of-{files:05d}.safetensors"
        shard = random_tensors(tensors, seed=seed * 1000 + number, prefix=f"model.layers.{number}", **of_tensors)
        write_safetensors(folder / name, shard, {"format": "pt"})
        everything |= shard
        weight_map |= dict.fromkeys(shard, name)
    if index and files > 1:
        write_index(folder, weight_map)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("# A model")
    return everything
