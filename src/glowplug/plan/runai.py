"""Settings of the Run:ai Model Streamer, by the rules of the EKS guide, and corrected where its own sources say otherwise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from glowplug.errors import UsageError
from glowplug.plan.base import RunaiSettings
from glowplug.plan.figures import both

if TYPE_CHECKING:
    from glowplug.plan.base import Fit, Question
    from glowplug.plan.model import Model
    from glowplug.plan.working import Notebook

MOST_CONCURRENCY = 1024
LEAST_CHUNK_BYTES = 5 * 2**20
"""Of object stores, by its documentation."""
TIMEOUT_MS = 3000
LOW_SPEED_BYTES_PER_S = 2**20
MEMORY_LIMIT_BYTES = 40 * 10**9
"""What it buffers in a process by default, unless it is distributed."""


def settings(question: Question, model: Model, fit: Fit | None, notebook: Notebook) -> RunaiSettings:
    """What to set.

    Raises:
        UsageError: a chunk that is too small, or ``distributed`` where it can't be.
    """
    chunk = question.chunk_bytes
    if chunk < LEAST_CHUNK_BYTES:
        raise UsageError(f"--chunk: {chunk} bytes are less than the streamer's least", object="--chunk", hint="give at least 5MiB")
    concurrency = min(MOST_CONCURRENCY, max(1, -(-model.weight_bytes // chunk)))
    distributed = _distributed(question, fit)
    notebook.write(
        ("runai", "concurrency"), f"min({MOST_CONCURRENCY}, ceil(model / chunk)), both in one unit", str(concurrency),
        inputs={"model": both(model.weight_bytes), "chunk": both(chunk)}, basis="published", sources=("eks", "runai"),
    )  # fmt: skip
    notebook.write(
        ("runai", "distributed"), "TP > 1, and not --enforce-eager", "true" if distributed else "false",
        inputs={"TP": str(fit.tp) if fit else "unknown", "enforce-eager": str(question.enforce_eager).lower()},
        basis="published", sources=("eks",),
    )  # fmt: skip
    extra: dict[str, object] = {"concurrency": concurrency}
    if distributed:
        extra["distributed"] = True
    return RunaiSettings(
        concurrency=concurrency,
        chunk_bytes=chunk,
        distributed=distributed,
        load_format="runai_streamer",
        extra_config=json.dumps(extra, separators=(",", ":")),
        environment={
            "RUNAI_STREAMER_CONCURRENCY": str(concurrency),
            "RUNAI_STREAMER_CHUNK_BYTESIZE": str(chunk),
            "RUNAI_STREAMER_S3_REQUEST_TIMEOUT_MS": str(TIMEOUT_MS),
            "RUNAI_STREAMER_S3_LOW_SPEED_LIMIT": str(LOW_SPEED_BYTES_PER_S),
        },
    )


def buffer_bytes(model: Model, fit: Fit, *, distributed: bool) -> int:
    """Host memory of all its processes: the whole model once where they share it, else up to 40 GB in each."""
    return model.weight_bytes if distributed else fit.tp * min(model.weight_bytes, MEMORY_LIMIT_BYTES)


def _distributed(question: Question, fit: Fit | None) -> bool:
    can = fit is not None and fit.tp > 1 and not question.enforce_eager
    if question.distributed is None or not question.distributed:
        return can and question.distributed is None
    if question.enforce_eager:
        raise UsageError(
            "--distributed can't be with --enforce-eager: the streamer fails, or silently reads without it",
            object="--distributed",
            hint="leave one of the two out",
        )
    if fit is not None and fit.tp == 1:
        raise UsageError("--distributed brings nothing at TP 1", object="--distributed", hint="leave it out, or give --tp 2")
    return True
