"""The workings of a fit: what lies on one device, formula by formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.plan import memory
from glowplug.plan.figures import both
from glowplug.units import format_bytes

if TYPE_CHECKING:
    from glowplug.plan.architecture import Architecture
    from glowplug.plan.base import Fit, Question
    from glowplug.plan.catalogue import Accelerator
    from glowplug.plan.model import Model
    from glowplug.plan.working import Notebook


def explain_fit(question: Question, model: Model, fit: Fit, notebook: Notebook) -> None:
    """Take them all down."""
    notebook.write(
        ("memory", "weights on one device"), "checkpoint / TP", format_bytes(fit.weight_bytes),
        inputs={"checkpoint": both(model.weight_bytes), "TP": str(fit.tp)},
    )  # fmt: skip
    if model.architecture is None:
        notebook.write(
            ("memory", "KV cache on one device"), f"{memory.UNKNOWN_KV_SHARE:.0%} of the weights, without a configuration",
            format_bytes(fit.kv_bytes), inputs={"weights": format_bytes(fit.weight_bytes)}, basis="estimated",
        )  # fmt: skip
    else:
        _kv_cache(question, model.architecture, fit, notebook)
    if question.device is not None:
        _budget(question, model.architecture, question.device, fit, notebook)


def _kv_cache(question: Question, architecture: Architecture, fit: Fit, notebook: Notebook) -> None:
    if architecture.is_latent:
        formula = "latent width x bytes an element x layers: MLA, whole on each device"
        inputs = {"latent width": str(architecture.latent_width)}
    else:
        formula = "2 (K and V) x KV heads on a device x head width x bytes an element x layers"
        heads = max(1, -(-architecture.kv_heads // fit.tp))
        inputs = {"KV heads on a device": f"{heads} of {architecture.kv_heads}", "head width": str(architecture.head_dim)}
    inputs["bytes an element"] = str(memory.kv_element_bytes(question, architecture))
    inputs["layers"] = str(architecture.layers - architecture.linear_layers)
    notebook.write(("memory", "KV cache of a token"), formula, f"{fit.kv_token_bytes} bytes on one device", inputs=inputs)
    formula = "batch x length x bytes of a token"
    inputs = {"batch": str(fit.batch), "length": f"{fit.max_model_len} tokens", "a token": f"{fit.kv_token_bytes} bytes"}
    if architecture.windowed_layers:
        formula += "; windowed layers keep their window only"
        inputs["windows"] = f"{architecture.windowed_layers} layers of {architecture.window} tokens"
    if architecture.linear_layers:
        inputs["left out"] = f"{architecture.linear_layers} layers with a state of fixed size"
    notebook.write(("memory", "KV cache on one device"), formula, format_bytes(fit.kv_bytes), inputs=inputs)


def _budget(question: Question, architecture: Architecture | None, accelerator: Accelerator, fit: Fit, notebook: Notebook) -> None:
    rest = memory.overhead(question, architecture, accelerator, fit.tp)
    notebook.write(
        ("memory", "overhead on one device"), "context + communication + graphs + activations", format_bytes(rest.total),
        inputs={name: format_bytes(value) for name, value in rest._asdict().items()}, basis="estimated",
    )  # fmt: skip
    is_neuron = accelerator.kind == "neuron"
    inputs = {"memory": format_bytes(accelerator.memory_bytes)}
    if not is_neuron:
        inputs["--gpu-memory-utilization"] = f"{question.memory_utilization:g}"
    notebook.write(
        ("memory", "budget of one device"), "its memory" if is_neuron else "its memory x --gpu-memory-utilization",
        format_bytes(fit.budget_bytes), inputs=inputs, sources=("neuron",) if is_neuron else ("karpenter",),
    )  # fmt: skip
    rule = "the least valid size at which weights + KV cache + overhead <= budget"
    notebook.write(
        ("memory", "TP"), "as asked for" if question.tp else rule, str(fit.tp), sources=("neuron",) if is_neuron else (),
        inputs={
            "valid sizes": ", ".join(map(str, fit.valid_tp)), "weights + KV cache + overhead": format_bytes(fit.used_bytes),
            "budget": format_bytes(fit.budget_bytes),
        },
    )  # fmt: skip
