"""Device memory: what weights, KV cache and everything else take of one device at a given tensor parallelism.

Weights are exact and divided by TP. The KV cache is exact for a configuration: keys and values of each head, or one latent vector
(MLA), for each token and layer. A head is not divided, so beyond as many devices as KV heads each keeps a copy; a latent vector is
never divided. The rest (activations, graphs, context, communication) is estimated, and the engine's own profiling decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import UsageError
from glowplug.units import GIB, MIB

if TYPE_CHECKING:
    from glowplug.plan.architecture import Architecture
    from glowplug.plan.base import Question
    from glowplug.plan.catalogue import Accelerator
    from glowplug.plan.model import Model

KV_DTYPES = {"auto": 0, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}
DEFAULT_LENGTH = 8192
UNKNOWN_KV_SHARE = 0.2
"""Of the weights, for the KV cache of a model without a configuration."""
CONTEXT_BYTES = 768 * MIB
COMMUNICATION_BYTES = 512 * MIB
GRAPH_BYTES = GIB
NEURON_BYTES = GIB
BATCHED_TOKENS = 8192
SAMPLED_SEQUENCES = 256
UNKNOWN_ACTIVATION_BYTES = GIB


class Overhead(NamedTuple):
    """Bytes of one device beside weights and KV cache."""

    context: int
    communication: int
    graphs: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def sequence_length(question: Question, architecture: Architecture | None) -> int:
    """Tokens of the longest sequence: as asked for, or the model's own, at most 8,192.

    Raises:
        UsageError: longer than the model's positions.
    """
    most = architecture.max_positions if architecture else 0
    wanted = question.max_model_len
    if wanted is None:
        return min(DEFAULT_LENGTH, most) if most else DEFAULT_LENGTH
    if most and wanted > most:
        raise UsageError(
            f"--max-model-len: {wanted} tokens are more than the {most} that the model's configuration allows",
            object="--max-model-len",
            hint=f"give at most {most}",
        )
    return wanted


def kv_element_bytes(question: Question, architecture: Architecture) -> int:
    """Of one element of the KV cache: as asked for, as the checkpoint asks for, or as the activations."""
    return KV_DTYPES[question.kv_dtype] or architecture.kv_bytes or architecture.dtype_bytes


def kv_layer_bytes(question: Question, architecture: Architecture, tp: int) -> int:
    """Of one token in one layer, on one device."""
    if architecture.is_latent:
        return architecture.latent_width * kv_element_bytes(question, architecture)
    heads = max(1, -(-architecture.kv_heads // tp))
    return 2 * heads * architecture.head_dim * kv_element_bytes(question, architecture)


def kv_token_bytes(question: Question, architecture: Architecture, tp: int) -> int:
    """Of one token in all layers that keep it, windows not counted, on one device."""
    return kv_layer_bytes(question, architecture, tp) * (architecture.layers - architecture.linear_layers)


def kv_bytes(question: Question, model: Model, tp: int) -> int:
    """Of ``batch`` sequences of the longest length, on one device; a share of the weights where there is no configuration."""
    architecture = model.architecture
    if architecture is None:
        return round(UNKNOWN_KV_SHARE * model.weight_bytes / tp)
    length = sequence_length(question, architecture)
    windowed = min(length, architecture.window) if architecture.window else length
    tokens = architecture.full_layers * length + architecture.windowed_layers * windowed
    return kv_layer_bytes(question, architecture, tp) * tokens * question.batch


def overhead(question: Question, architecture: Architecture | None, accelerator: Accelerator, tp: int) -> Overhead:
    """What else one device holds."""
    if accelerator.kind == "neuron":
        return Overhead(NEURON_BYTES, 0, 0, 0)
    return Overhead(
        context=CONTEXT_BYTES,
        communication=COMMUNICATION_BYTES if tp > 1 else 0,
        graphs=0 if question.enforce_eager else GRAPH_BYTES,
        activations=_activations(architecture, tp),
    )


def _activations(architecture: Architecture | None, tp: int) -> int:
    if architecture is None:
        return UNKNOWN_ACTIVATION_BYTES
    inner = max(architecture.intermediate, 8 * architecture.moe_intermediate)
    states = BATCHED_TOKENS * (4 * architecture.hidden + 2 * inner // tp) * architecture.dtype_bytes
    return states + SAMPLED_SEQUENCES * architecture.vocab * 4


def budget_bytes(question: Question, accelerator: Accelerator) -> int:
    """What the engine may take of one device."""
    share = 1.0 if accelerator.kind == "neuron" else question.memory_utilization
    return int(accelerator.memory_bytes * share)
