"""Tensor parallelism: which sizes a model and an accelerator allow, and the least of them that holds the model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from glowplug.errors import UsageError
from glowplug.plan import memory
from glowplug.plan.base import Fit
from glowplug.plan.catalogue import instances, with_accelerator
from glowplug.plan.figures import both
from glowplug.units import count, format_bytes

if TYPE_CHECKING:
    from glowplug.plan.architecture import Architecture
    from glowplug.plan.base import Question
    from glowplug.plan.catalogue import Accelerator, Instance
    from glowplug.plan.model import Model

_MOST_SUGGESTIONS = 4


class _Use(NamedTuple):
    """Of one device."""

    weights: int
    kv: int
    overhead: int

    @property
    def total(self) -> int:
        return sum(self)


def valid_tp(architecture: Architecture | None, accelerator: Accelerator, devices: int) -> tuple[int, ...]:
    """Sizes that can be, in order.

    A size must divide the attention heads; divide the KV heads, or be a multiple of them; divide the width of the MLP (of an
    expert), with whole quantisation blocks in each shard; and be one that the accelerator's runtime knows. On GPUs it must divide
    the node's devices, so that replicas fill it.
    """
    if accelerator.tp_degrees:
        sizes = [size for size in accelerator.tp_degrees if size <= devices]
    else:
        sizes = [size for size in range(1, devices + 1) if devices % size == 0]
    return tuple(size for size in sizes if architecture is None or not refusal(architecture, size))


def refusal(architecture: Architecture, tp: int) -> str:
    """Why a model can't be split this way; empty if it can."""
    if architecture.heads % tp:
        return f"{tp} does not divide the {architecture.heads} attention heads"
    if not architecture.is_latent and architecture.kv_heads % tp and tp % architecture.kv_heads:
        return f"{tp} neither divides the {architecture.kv_heads} KV heads nor is a multiple of them"
    for width, what in ((architecture.intermediate, "the MLP"), (architecture.moe_intermediate, "an expert")):
        if width % tp:
            return f"{tp} does not divide the width of {what}, {width}"
        if width and tp > 1 and width // tp % architecture.quant_block:
            shard, block = width // tp, architecture.quant_block
            return f"a shard of {what} would be {shard} wide, and quantisation blocks are {block}"
    return ""


def fit(question: Question, model: Model) -> Fit:
    """The least TP that holds the model, or the one that was asked for.

    Raises:
        UsageError: it fits nowhere on this accelerator, or not as was asked.
    """
    accelerator, devices = _place(question)
    valid = valid_tp(model.architecture, accelerator, devices)
    budget = memory.budget_bytes(question, accelerator)
    if question.tp is not None:
        if question.tp not in valid:
            raise _not_valid(question.tp, valid, model.architecture, accelerator, devices)
        sizes: tuple[int, ...] = (question.tp,)
    else:
        sizes = valid
    tp = next((size for size in sizes if _use(question, model, accelerator, size).total <= budget), None)
    if tp is None:
        raise _too_large(question, model, accelerator, sizes[-1] if sizes else devices, valid)
    use = _use(question, model, accelerator, tp)
    architecture = model.architecture
    length = memory.sequence_length(question, architecture)
    free = budget - use.weights - use.overhead
    return Fit(
        tp=tp,
        valid_tp=valid,
        devices=devices if question.instance else None,
        weight_bytes=use.weights,
        kv_token_bytes=memory.kv_token_bytes(question, architecture, tp) if architecture else 0,
        kv_bytes=use.kv,
        overhead_bytes=use.overhead,
        budget_bytes=budget,
        max_model_len=length if architecture else 0,
        batch=question.batch,
        kv_tokens=int(free * question.batch * length / use.kv) if architecture and use.kv else 0,
        replicas_per_node=devices // tp if question.instance else None,
        chips=math.ceil(tp * question.instance.chips / devices) if question.instance else None,
    )


def would_fit(question: Question, model: Model, *, kind: str = "") -> list[str]:
    """Instance types that hold the model, the least accelerator memory first, one of each family.

    With an accelerator, those that have enough of it; otherwise of ``kind``, or of any: but quantised checkpoints are for GPUs.
    GPUs without bfloat16 are not proposed.
    """
    named = question.device
    is_quantised = model.architecture is not None and bool(model.architecture.quantization)
    kinds = {kind} if kind else {"gpu"} if is_quantised else {"gpu", "neuron"}
    found: dict[str, tuple[int, int, str]] = {}
    for instance in instances().values():
        accelerator = instance.accelerator
        is_proposed = accelerator is named if named else accelerator.kind in kinds and not accelerator.note
        if instance.unserved or not is_proposed or _least(question, model, instance) is None:
            continue
        family = instance.name.partition(".")[0]
        rank = (instance.devices * accelerator.memory_bytes, instance.memory_bytes, instance.name)
        found[family] = min(found.get(family, rank), rank)
    return [name for _, _, name in sorted(found.values())[:_MOST_SUGGESTIONS]]


def _place(question: Question) -> tuple[Accelerator, int]:
    """The accelerator, and how many of it a node has; with ``--gpu`` alone, as many as the largest."""
    if question.instance is not None:
        return question.instance.accelerator, question.instance.devices
    if question.accelerator is None:
        raise ValueError("nothing to fit the model on")
    return question.accelerator, with_accelerator(question.accelerator)[-1].devices


def _use(question: Question, model: Model, accelerator: Accelerator, tp: int) -> _Use:
    return _Use(
        weights=-(-model.weight_bytes // tp),
        kv=memory.kv_bytes(question, model, tp),
        overhead=memory.overhead(question, model.architecture, accelerator, tp).total,
    )


def _least(question: Question, model: Model, instance: Instance) -> int | None:
    budget = memory.budget_bytes(question, instance.accelerator)
    valid = valid_tp(model.architecture, instance.accelerator, instance.devices)
    sizes = valid if question.tp is None else tuple(tp for tp in valid if tp == question.tp)
    return next((tp for tp in sizes if _use(question, model, instance.accelerator, tp).total <= budget), None)


def _not_valid(
    tp: int, valid: tuple[int, ...], architecture: Architecture | None, accelerator: Accelerator, devices: int
) -> UsageError:
    reason = refusal(architecture, tp) if architecture else ""
    if tp > devices:
        reason = f"the node has {count(devices, accelerator.noun)}"
    elif not reason:
        reason = f"{accelerator.name} serves no TP of {tp} with {count(devices, accelerator.noun)} on a node"
    choices = ", ".join(map(str, valid)) or "another model or instance"
    return UsageError(f"--tp: {tp} can't be: {reason}", object="--tp", hint=f"choose {choices}")


def _too_large(question: Question, model: Model, accelerator: Accelerator, tp: int, valid: tuple[int, ...]) -> UsageError:
    where = question.instance.name if question.instance else accelerator.name
    if not valid:
        reason = refusal(model.architecture, 1) if model.architecture else "no TP size can be"
        return UsageError(f"{where} can't serve this model: {reason}", object=where, hint="choose another instance")
    use, budget = _use(question, model, accelerator, tp), memory.budget_bytes(question, accelerator)
    message = (
        f"{both(model.weight_bytes)} do not fit {where}: at TP {tp} each {accelerator.noun} would need {format_bytes(use.total)} "
        f"({format_bytes(use.weights)} of weights, {format_bytes(use.kv)} of KV cache, {format_bytes(use.overhead)} of overhead) "
        f"and has {format_bytes(budget)}"
    )
    alone = _Use(use.weights, 0, use.overhead)
    if alone.total <= budget:
        message += "; the weights alone would fit"
    return UsageError(message, object=where, hint=_what_would(question, model, alone.total <= budget))


def _what_would(question: Question, model: Model, is_kv: bool) -> str:
    here = replace(question, tp=None)
    if question.tp is not None and question.instance is not None and (tp := _least(here, model, question.instance)) is not None:
        return f"TP {tp} would"
    anywhere = replace(here, instance=None, accelerator=None)
    names = would_fit(anywhere, model, kind=question.device.kind if question.device else "") or would_fit(anywhere, model)
    less = "less --max-model-len or --batch, --kv-dtype fp8, or " if is_kv else ""
    if names:
        return f"what would: {less}{' or '.join(names)}"
    largest = max(
        (each for each in instances().values() if not each.unserved), key=lambda each: each.devices * each.accelerator.memory_bytes
    )
    room = memory.budget_bytes(question, largest.accelerator) * largest.devices
    nodes = max(2, math.ceil(1.1 * model.weight_bytes / room))
    return f"no single node of the catalogue holds it; {nodes} {largest.name} with pipeline parallelism would, or a quantised copy"
