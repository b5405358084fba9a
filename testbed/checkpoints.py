"""Writes checkpoints of safetensors files with random weights, gigabytes in seconds, with the standard library alone.

The numbers are bfloat16 between 0.008 and 0.031 in size, of either sign: a model of any width computes finite values with them.
They come from one random block that each tensor reads from another place, so that no two tensors are alike and little has to be
drawn. The same arguments always write the same bytes. A folder appears whole or not at all.

``python -m testbed.checkpoints FOLDER --size 2GB`` writes one that no engine could serve, for measuring loaders.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from testbed.range_bandwidth import parse_bandwidth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

INDEX = "model.safetensors.index.json"
_BLOCK_BYTES = 32 << 20
_ITEM_BYTES = 2
_ONE = b"\x80\x3f"


class Tensor(NamedTuple):
    """One tensor to write, of bfloat16."""

    name: str
    shape: tuple[int, ...]
    is_ones: bool = False
    """All 1.0, as the weights of a norm, instead of random numbers."""

    @property
    def size_bytes(self) -> int:
        """Bytes of it."""
        return math.prod(self.shape) * _ITEM_BYTES


def llama_layer(number: int, *, width: int, inner: int, kv_width: int) -> list[Tensor]:
    """The tensors of one layer, named as a Llama names them."""
    name = f"model.layers.{number}"
    return [
        Tensor(f"{name}.input_layernorm.weight", (width,), is_ones=True),
        Tensor(f"{name}.mlp.down_proj.weight", (width, inner)),
        Tensor(f"{name}.mlp.gate_proj.weight", (inner, width)),
        Tensor(f"{name}.mlp.up_proj.weight", (inner, width)),
        Tensor(f"{name}.post_attention_layernorm.weight", (width,), is_ones=True),
        Tensor(f"{name}.self_attn.k_proj.weight", (kv_width, width)),
        Tensor(f"{name}.self_attn.o_proj.weight", (width, width)),
        Tensor(f"{name}.self_attn.q_proj.weight", (width, width)),
        Tensor(f"{name}.self_attn.v_proj.weight", (kv_width, width)),
    ]


def write_checkpoint(folder: Path, tensors: Sequence[Tensor], *, files: int) -> None:
    """Write the tensors, in their order, into so many files of about one size, and their index. ``folder`` exists already."""
    block = _random_block()
    total = sum(tensor.size_bytes for tensor in tensors)
    shards: list[list[Tensor]] = [[] for _ in range(files)]
    before = 0
    for tensor in tensors:
        shards[min(files - 1, before * files // total)].append(tensor)
        before += tensor.size_bytes
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = "model.safetensors" if files == 1 else f"model-{number:05d}-of-{files:05d}.safetensors"
        _write_file(folder / name, shard, block, seed=number)
        places |= {tensor.name: name for tensor in shard}
    if files > 1:
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=1))


def make_plain_checkpoint(folder: Path, *, size_bytes: int, files: int = 3, width: int = 4096) -> Path:
    """Make a folder of about this size with layers like those of an 8-billion Llama, unless it is there; returns it."""
    layer = llama_layer(0, width=width, inner=width * 7 // 2, kv_width=width // 4)
    layers = max(1, round(size_bytes / sum(tensor.size_bytes for tensor in layer)))
    tensors = [
        each for number in range(layers) for each in llama_layer(number, width=width, inner=width * 7 // 2, kv_width=width // 4)
    ]
    if not folder.exists():
        with_partial(folder, lambda partial: write_checkpoint(partial, tensors, files=min(files, layers)))
    return folder


def with_partial(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a folder beside this one, and give it its name once it is whole."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        write(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_file(path: Path, tensors: Iterable[Tensor], block: memoryview, *, seed: int) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.size_bytes
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    generator = random.Random(seed)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in tensors:
            if tensor.is_ones:
                file.write(_ONE * (tensor.size_bytes // _ITEM_BYTES))
                continue
            left, place = tensor.size_bytes, generator.randrange(len(block) // _ITEM_BYTES) * _ITEM_BYTES
            while left:
                piece = block[place : place + left]
                file.write(piece)
                left, place = left - len(piece), 0


def _random_block() -> memoryview:
    block = bytearray(random.Random(0).randbytes(_BLOCK_BYTES))
    # The second byte of each number is its sign and most of its exponent: the sign stays random.
    block[1::2] = block[1::2].translate(bytes(0x3C | (byte & 0x80) for byte in range(256)))
    return memoryview(block)


def main() -> int:
    """Write one."""
    parser = argparse.ArgumentParser(prog="python -m testbed.checkpoints", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=parse_bandwidth, default=2e9, help="such as 2GB; about")
    parser.add_argument("--files", type=int, default=3)
    options = parser.parse_args()
    print(make_plain_checkpoint(options.folder, size_bytes=int(options.size), files=options.files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
