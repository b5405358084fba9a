"""Makes the tiny model that the tests and the demo serve: a four-layer Llama of width 256 with random weights.

A model from a hub would need a network, and its size would drown what is measured here: compiling takes as long for a tiny model as
for one with the same graph and wide layers. It runs on vLLM's interpreter, which has the libraries: ``python tiny_model.py
FOLDER``. The same libraries always write the same weights and tokenizer; the folder appears whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

WIDTH = 256
LAYERS = 4
CONTEXT_TOKENS = 512
VOCABULARY = 512
SENTENCE = "a glow plug lets a cold engine start"


def make_model(folder: Path) -> None:
    """Write tokenizer, configuration and bfloat16 weights (about 6 MB) into ``folder``, which must not exist."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write_tokenizer(partial)
        _write_weights(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415  vLLM's environment has it, ours not
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  the same

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=sorted(alphabet))
    tokenizer.train_from_iterator([SENTENCE] * 50, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def _write_weights(folder: Path) -> None:
    import torch  # noqa: PLC0415  vLLM's environment has it, ours not
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415  the same

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tiny_model.py FOLDER")
    make_model(Path(sys.argv[1]))
