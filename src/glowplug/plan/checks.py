"""What a question may not ask: values out of bounds, and options that contradict each other. One clear error each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.errors import UsageError
from glowplug.plan.memory import KV_DTYPES
from glowplug.plan.starting import PHASES
from glowplug.units import format_bytes

if TYPE_CHECKING:
    from glowplug.plan.base import Question

_MOST_BATCH = 65_536


def check(question: Question) -> None:
    """Before anything is computed.

    Raises:
        UsageError: the first thing that can't be.
    """
    _check_values(question)
    _check_together(question)
    _check_way(question)


def _check_together(question: Question) -> None:
    """What contradicts itself, before anything is computed."""
    if question.instance and question.accelerator and question.accelerator is not question.instance.accelerator:
        found = question.instance.accelerator.name
        raise UsageError(
            f"--gpu {question.accelerator.name} contradicts --instance {question.instance.name}, which has {found}",
            object="--gpu",
            hint="give one of the two",
        )
    if question.tp is not None and question.instance is None and question.accelerator is None:
        raise UsageError("--tp needs to know of what", object="--tp", hint="add --instance or --gpu")
    limit, instance = question.pod_memory_bytes, question.instance
    if limit is not None and instance is not None and limit > instance.memory_bytes:
        raise UsageError(
            f"--host-memory: {format_bytes(limit)} are more than the {format_bytes(instance.memory_bytes)} of {instance.name}",
            object="--host-memory",
            hint="give the pod's limit, or leave it out for the pod's part of the node",
        )


def _check_way(question: Question) -> None:
    if question.via in {"nvme", "root"}:
        if question.nodes > 1:
            raise UsageError(
                f"--nodes {question.nodes} share a network, and --via {question.via} uses none",
                object="--nodes",
                hint="leave one out",
            )
        if question.via == "nvme" and question.instance is not None and not question.instance.nvme_bytes:
            raise UsageError(
                f"--via nvme: {question.instance.name} has no instance store",
                object="--via",
                hint="use --via root, or another instance",
            )
    if question.distributed and question.loader != "runai":
        raise UsageError("--distributed is of the Run:ai streamer", object="--distributed", hint="add --loader runai")


def _check_values(question: Question) -> None:
    """What can't be by itself."""
    if question.kv_dtype not in KV_DTYPES:
        hint = f"choose one of {', '.join(KV_DTYPES)}"
        raise UsageError(f"--kv-dtype: {question.kv_dtype!r} is not known", object="--kv-dtype", hint=hint)
    for name, value, least, most in (
        ("--tp", question.tp, 1, 4096),
        ("--max-model-len", question.max_model_len, 1, 100_000_000),
        ("--batch", question.batch, 1, _MOST_BATCH),
        ("--nodes", question.nodes, 1, 100_000),
        ("--replicas", question.replicas, 1, 100_000),
        ("--probe-period", question.probe_period_s, 1, 300),
        ("--growth", question.growth_per_minute, 0, 100),
        ("--gpu-memory-utilization", question.memory_utilization, 0.05, 1),
    ):
        if value is not None and not least <= value <= most:
            raise UsageError(f"{name}: {value} is out of bounds", object=name, hint=f"give {least} to {most}")
    for phase in question.phases:
        if phase.removeprefix("cold:").removeprefix("warm:") not in PHASES:
            hint = f"choose one of {', '.join(PHASES)}, with cold: or warm: before it where they differ"
            raise UsageError(f"--phase: there is no {phase!r}", object="--phase", hint=hint)
