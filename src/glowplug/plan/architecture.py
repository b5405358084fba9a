"""What a model's ``config.json`` says about its size: layers, heads, how it keeps keys and values, how it is quantised.

Names differ between families, and multimodal models nest the language model's own; both are resolved here. What a configuration
does not say stays unknown: nothing is guessed from a model's name.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"),
    "head_dim": ("head_dim",),
    "intermediate": ("intermediate_size", "ffn_dim", "n_inner", "hidden_dim"),
    "moe_intermediate": ("moe_intermediate_size",),
    "experts": ("num_experts", "n_routed_experts", "num_local_experts"),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "kv_lora_rank": ("kv_lora_rank",),
    "rope_head_dim": ("qk_rope_head_dim",),
    "window": ("sliding_window",),
}
_NESTED = ("text_config", "llm_config", "language_config")
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2}
_GROUPED = ("gptq", "awq", "gptq_marlin", "awq_marlin")
_MOST = 10**8  # no dimension of a model is larger


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder, as far as memory and parallelism are concerned.

    Attributes:
        model_type: as the configuration names it.
        layers: decoder layers.
        hidden: width of the residual stream.
        heads: attention heads.
        kv_heads: heads of keys and values; 1 is multi-query.
        head_dim: width of a head.
        intermediate: width of the dense MLP; 0 where unknown.
        moe_intermediate: width of an expert; 0 without experts.
        experts: routed experts; 0 in a dense model.
        vocab: size of the vocabulary; 0 where unknown.
        max_positions: longest sequence; 0 where unknown.
        latent_width: of multi-head latent attention (MLA), elements that a token keeps in a layer; 0 otherwise.
        window: tokens that a sliding-window layer keeps; 0 without one.
        windowed_layers: layers that keep no more than the window.
        linear_layers: layers that keep a state of fixed size (linear attention, Mamba) and no keys.
        dtype_bytes: of an element of the activations.
        quantization: method, such as ``fp8``, ``awq``; empty where weights are plain.
        quant_block: a shard's width must be a multiple of this; 1 where anything goes.
        kv_bytes: of an element of the KV cache that the checkpoint itself asks for; 0 where it says nothing.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int = 0
    moe_intermediate: int = 0
    experts: int = 0
    vocab: int = 0
    max_positions: int = 0
    latent_width: int = 0
    window: int = 0
    windowed_layers: int = 0
    linear_layers: int = 0
    dtype_bytes: int = 2
    quantization: str = ""
    quant_block: int = 1
    kv_bytes: int = 0

    @property
    def full_layers(self) -> int:
        """Layers that keep every token."""
        return self.layers - self.windowed_layers - self.linear_layers

    @property
    def is_latent(self) -> bool:
        """Multi-head latent attention: one compressed vector instead of keys and values for each head."""
        return self.latent_width > 0

    @property
    def attention(self) -> str:
        """In a few words."""
        if self.is_latent:
            return f"MLA, {self.latent_width} elements a token and layer"
        kind = "MHA" if self.kv_heads == self.heads else "MQA" if self.kv_heads == 1 else "GQA"
        return f"{kind}, {self.heads} heads, {self.kv_heads} of KV, {self.head_dim} wide"


def parse_architecture(raw: bytes, *, name: str) -> Architecture:
    """Read a ``config.json``.

    Args:
        raw: the file's content.
        name: the file's name, for errors.

    Raises:
        UsageError: not JSON, or without what sizes a decoder.
    """
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}", object=name, hint="give the model's config.json") from None
    if not isinstance(document, dict):
        raise UsageError(f"{name} is no configuration of a model", object=name, hint="give the model's config.json")
    nested: dict[str, Any] = next((document[key] for key in _NESTED if isinstance(document.get(key), dict)), {})
    config = {**document, **nested}
    found = {field: _number(config, names, file=name) for field, names in _NAMES.items()}
    for field in ("layers", "hidden", "heads"):
        if not found[field]:
            raise UsageError(
                f"{name} has no {_NAMES[field][0]}",
                object=name,
                hint="give the config.json of a decoder, as transformers writes it",
            )
    kv_heads = found["kv_heads"] or (1 if config.get("multi_query") is True else found["heads"])
    windowed, linear = _layer_kinds(config, found["layers"], found["window"])
    quantization, block, kv_bytes = _quantization(config)
    return Architecture(
        model_type=str(config.get("model_type", "")),
        layers=found["layers"], hidden=found["hidden"], heads=found["heads"], kv_heads=kv_heads,
        head_dim=found["head_dim"] or found["hidden"] // found["heads"],
        intermediate=found["intermediate"], moe_intermediate=found["moe_intermediate"] if found["experts"] else 0,
        experts=found["experts"], vocab=found["vocab"], max_positions=found["max_positions"],
        latent_width=found["kv_lora_rank"] + found["rope_head_dim"] if found["kv_lora_rank"] else 0,
        window=found["window"] if windowed else 0, windowed_layers=windowed, linear_layers=linear,
        dtype_bytes=_DTYPE_BYTES.get(str(config.get("torch_dtype") or config.get("dtype") or "").removeprefix("torch."), 2),
        quantization=quantization, quant_block=block, kv_bytes=kv_bytes,
    )  # fmt: skip


def _number(config: Mapping[str, Any], names: tuple[str, ...], *, file: str) -> int:
    """The first of the names that is there; 0 where none is, or it says null."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise UsageError(f"{file}: {name} is {value!r}, not a count", object=name, hint="give the model's own config.json")
        return value
    return 0


def _layer_kinds(config: Mapping[str, Any], layers: int, window: int) -> tuple[int, int]:
    """How many layers keep a window only, and how many keep no keys at all."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        windowed = sum("sliding" in str(kind) or "chunked" in str(kind) for kind in kinds) if window else 0
        return windowed, sum("linear" in str(kind) or "mamba" in str(kind) for kind in kinds)
    interval = config.get("full_attention_interval")
    if isinstance(interval, int) and interval > 1:
        return 0, layers - layers // interval
    pattern = config.get("sliding_window_pattern")
    if window and isinstance(pattern, int) and pattern > 1:
        return layers - layers // pattern, 0
    # Mistral's older models window every layer; Qwen's carry the number and turn it off.
    return (layers if window and config.get("use_sliding_window", True) is True else 0), 0


def _quantization(config: Mapping[str, Any]) -> tuple[str, int, int]:
    """Method, the width that a shard must be a multiple of, and bytes of a KV element that the checkpoint asks for."""
    quant = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(quant, dict):
        return "", 1, 0
    method = str(quant.get("quant_method") or quant.get("method") or "unknown")
    block = quant.get("weight_block_size")
    sizes = [size for size in block if isinstance(size, int) and size > 0] if isinstance(block, list) else []
    group = quant.get("group_size", quant.get("q_group_size"))
    if method in _GROUPED and isinstance(group, int) and group > 0:
        sizes.append(group)
    scheme = quant.get("kv_cache_scheme")
    bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
    return method, math.lcm(*sizes) if sizes else 1, bits // 8 if isinstance(bits, int) and bits >= 8 else 0
