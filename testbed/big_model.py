"""Makes the model of the start benchmarks: a Llama of 1.1 billion parameters, 2.2 GB, with random weights and the tiny tokenizer.

Its shape is that of TinyLlama 1.1B. It lies in the developer's cache folder beside the tiny model, whose tokenizer it takes:
``python -m testbed.big_model`` makes it, in seconds, and prints where.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

from testbed import checkpoints, vllm_env
from testbed.checkpoints import Tensor

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY = 2048, 5632, 22, 32, 4, 32_000
FILES = 3
_KV_WIDTH = WIDTH // HEADS * KV_HEADS


def big_model(tiny_model: Path) -> Path:
    """Its folder; made if it is not there.

    Args:
        tiny_model: whose tokenizer and configuration it takes over.
    """
    sources = [vllm_env.ROOT / "testbed" / name for name in ("big_model.py", "checkpoints.py", "tiny_model.py")]
    folder = vllm_env.dev_cache() / f"big-model-{vllm_env.short_digest(*sources, vllm_env.VLLM_LOCK)}"
    if not folder.exists():
        checkpoints.with_partial(folder, lambda partial: _write(partial, tiny_model))
    return folder


def _write(folder: Path, tiny_model: Path) -> None:
    for path in sorted(tiny_model.iterdir()):
        if path.suffix != ".safetensors":
            shutil.copyfile(path, folder / path.name)
    config = json.loads((tiny_model / "config.json").read_text())
    config |= {
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": WIDTH // HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = [Tensor("lm_head.weight", (VOCABULARY, WIDTH)), Tensor("model.embed_tokens.weight", (VOCABULARY, WIDTH))]
    for number in range(LAYERS):
        tensors += checkpoints.llama_layer(number, width=WIDTH, inner=INNER, kv_width=_KV_WIDTH)
    tensors.append(Tensor("model.norm.weight", (WIDTH,), is_ones=True))
    checkpoints.write_checkpoint(folder, tensors, files=FILES)


def main() -> int:
    """Make it, and print where it is."""
    tiny_model = vllm_env.tiny_model()
    if tiny_model is None:
        print("the tiny model is not made: make testbed", file=sys.stderr)
        return 1
    print(big_model(tiny_model))
    return 0


if __name__ == "__main__":
    sys.exit(main())
