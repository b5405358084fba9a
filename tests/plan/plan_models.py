"""Public models as plans see them: their ``config.json`` (the fields that size them), and the bytes of their weights."""

from __future__ import annotations

import json

from glowplug.plan.architecture import parse_architecture
from glowplug.plan.base import Question
from glowplug.plan.catalogue import find_accelerator, find_instance
from glowplug.plan.make import make_plan
from glowplug.plan.model import Model

_QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}
_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
_LLAMA = {"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}


def _llama(hidden, inner, layers, heads, kv_heads, **more):
    return _LLAMA | {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, **more,
    }  # fmt: skip


def _qwen3(hidden, inner, layers, heads, kv_heads, **more):
    return _QWEN3 | {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": 128, "sliding_window": None, "use_sliding_window": False, **more,
    }  # fmt: skip


_MIXTURE = {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}

# Name to configuration and bytes of the tensors.
MODELS = {
    "llama-3.1-8b": (_llama(4096, 14336, 32, 32, 8), 16_060_522_496),
    "llama-3.1-70b": (_llama(8192, 28672, 80, 64, 8), 141_107_412_992),
    "llama-3.2-3b": (_llama(3072, 8192, 28, 24, 8, head_dim=128), 6_425_499_648),
    "llama-2-7b": (_llama(4096, 11008, 32, 32, 32, max_position_embeddings=4096, vocab_size=32000), 13_476_831_232),
    "llama-3.1-8b-fp8-kv": (
        _llama(
            4096, 14336, 32, 32, 8,
            quantization_config={"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        ),
        9_080_000_000,
    ),
    "llama-3.1-70b-awq": (
        _llama(8192, 28672, 80, 64, 8, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128}),
        39_770_000_000,
    ),
    "tinyllama-1.1b": (_llama(2048, 5632, 22, 32, 4, max_position_embeddings=2048, vocab_size=32000), 2_200_119_296),
    "qwen2.5-0.5b": (
        {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
         "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768, "sliding_window": 32768,
         "use_sliding_window": False, "torch_dtype": "bfloat16"},
        988_097_536,
    ),
    "qwen2.5-7b": (
        {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
         "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768, "torch_dtype": "bfloat16"},
        15_231_233_024,
    ),
    "qwen2.5-14b": (
        {"model_type": "qwen2", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
         "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 32768, "torch_dtype": "bfloat16"},
        29_540_067_328,
    ),
    "qwen3-32b": (_qwen3(5120, 25600, 64, 64, 8), 65_524_246_528),
    "qwen3-30b-a3b": (_qwen3(2048, 6144, 48, 32, 4, **_MIXTURE), 61_064_245_248),
    "qwen3-30b-a3b-fp8": (_qwen3(2048, 6144, 48, 32, 4, **_MIXTURE, quantization_config=_FP8), 31_190_000_000),
    "deepseek-v3": (
        {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
         "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
         "qk_rope_head_dim": 64, "n_routed_experts": 256, "vocab_size": 129280, "max_position_embeddings": 163840,
         "torch_dtype": "bfloat16", "quantization_config": _FP8},
        688_586_727_753,
    ),
    "gpt-oss-20b": (
        {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "num_local_experts": 32,
         "vocab_size": 201088, "max_position_embeddings": 131072, "layer_types": ["sliding_attention", "full_attention"] * 12,
         "quantization_config": {"quant_method": "mxfp4"}},
        13_761_264_768,
    ),
    "gemma-3-27b": (
        {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {
            "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
            "sliding_window_pattern": 6, "max_position_embeddings": 131072, "vocab_size": 262208}},
        54_864_815_328,
    ),
    "qwen3-next-80b-a3b": (
        {"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48,
         "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
         "num_experts": 512, "moe_intermediate_size": 512,
         "vocab_size": 151936, "max_position_embeddings": 262144, "torch_dtype": "bfloat16"},
        162_700_000_000,
    ),
}  # fmt: skip


def config(name):
    return json.dumps(MODELS[name][0]).encode()


def model(name, *, weight_bytes=None):
    return Model(
        name=name,
        weight_bytes=weight_bytes or MODELS[name][1],
        is_exact=True,
        architecture=parse_architecture(config(name), name=name),
    )


def sized(weight_bytes):
    """A model of which only the size is known."""
    return Model(name="", weight_bytes=weight_bytes)


def question(instance=None, *, gpu=None, **asked):
    return Question(
        instance=find_instance(instance) if instance else None, accelerator=find_accelerator(gpu) if gpu else None, **asked
    )


def plan(of, instance=None, *, gpu=None, **asked):
    """A plan for a model's name, a ``Model``, or a size in bytes."""
    chosen = model(of) if isinstance(of, str) else sized(of) if isinstance(of, int) else of
    return make_plan(question(instance, gpu=gpu, **asked), chosen)
