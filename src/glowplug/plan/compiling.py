"""What compiling takes, without a cache and with one: torch.compile on GPUs, NxD and neuronx-cc on NeuronCores.

Two published sets, and they don't agree: on one H100 with vLLM 0.10 it grows with the layers, and the EKS guide gives three points
by model size for its deployments. The first is used at TP 1, the second above. A mixture of experts at TP 1 takes half as much
again; that rests on one case. No bound can be given: 2,222 s were reported for one model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from glowplug.plan.base import Term
from glowplug.plan.figures import GB, both

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.plan.base import Fit, Question, Scenario
    from glowplug.plan.model import Model

LINE_S, LAYER_S = 10.2, 0.4
"""Least squares over 18.1 s, 21.5 s, 23.2 s and 29.0 s at 24, 28, 28 and 48 layers."""
EXPERTS = 1.5
GUIDE = ((60.0, 53.0), (140.0, 60.0), (640.0, 80.0))
"""GB of weights and seconds."""
WARM_S, OLD_WARM_S = 6.0, 15.0
NEW_SINCE = (0, 21)
"""The guide's vLLM. Before, loading compiled code took half as long as compiling it."""
NEURON_COLD_S, NEURON_WARM_S = 900.0, 30.0

Found: TypeAlias = "tuple[Term, str, Mapping[str, str]]"
"""A term, its formula and its inputs."""


def guide_s(weight_bytes: int) -> float:
    """The EKS guide's seconds for a model of this size: on a line between its points, and on the nearest line beyond them."""
    size = weight_bytes / GB
    (x0, y0), (x1, y1) = GUIDE[:2] if size <= GUIDE[1][0] else GUIDE[1:]
    return y0 + (y1 - y0) * (size - x0) / (x1 - x0)


def compile_term(question: Question, model: Model, fit: Fit, layers: int, scenario: Scenario, *, is_neuron: bool) -> Found:
    """The phase in one kind of start."""
    if is_neuron:
        took, low, high = (NEURON_COLD_S, 120.0, 3600.0) if scenario == "cold" else (NEURON_WARM_S, 10.0, 120.0)
        return Term("compile", took, low, high, "estimated"), "an assumption: no published figure states what it is of", {}
    if question.enforce_eager:
        return Term("compile", 0.0, 0.0, 0.0, "exact"), "nothing is compiled", {}
    if scenario != "cold":
        return _warm(question)
    return _by_size(model) if fit.tp > 1 else _by_layers(model, layers)


def _warm(question: Question) -> Found:
    version = question.vllm_version
    took, sources = (OLD_WARM_S, ("bench-startup", "ice")) if version is not None and version < NEW_SINCE else (WARM_S, ("eks",))
    term = Term("compile", took, took / 3, took * 2.6, "published", sources)
    said = ".".join(map(str, version)) if version else "not said"
    return term, "loading from the cache: 6 s, before vLLM 0.21 15 s", {"vLLM": said}


def _by_size(model: Model) -> Found:
    took = guide_s(model.weight_bytes)
    points = ", ".join(f"{size:g} GB {second:g} s" for size, second in GUIDE)
    term = Term("compile", took, took / 2, took * 2.5, "published", ("eks",))
    return term, f"on the lines between {points}", {"weights": both(model.weight_bytes)}


def _by_layers(model: Model, layers: int) -> Found:
    is_mixture = model.architecture is not None and model.architecture.experts > 0
    took = (LINE_S + LAYER_S * layers) * (EXPERTS if is_mixture else 1.0)
    is_published = model.architecture is not None and not is_mixture
    term = Term(
        "compile", took, took / 2, took * 2.5, "published" if is_published else "estimated",
        ("ice", "vllm-44881", "tensorfuse") if is_mixture else ("ice", "tensorfuse"),
    )  # fmt: skip
    formula = f"({LINE_S} s + {LAYER_S} s a layer) x {EXPERTS} for experts" if is_mixture else f"{LINE_S} s + {LAYER_S} s a layer"
    return term, formula, {"layers": str(layers) if model.architecture else f"{layers}, assumed"}
