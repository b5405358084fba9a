"""The Run:ai Model Streamer: settings that its defaults get wrong, and ones that don't work together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.engines.vllm.weights import OLDEST
from glowplug.plan.runai import LEAST_CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.serving import Engine

_CHUNK = "RUNAI_STREAMER_CHUNK_BYTESIZE"
_CONCURRENCY = "RUNAI_STREAMER_CONCURRENCY"
_TIMEOUT = "RUNAI_STREAMER_S3_REQUEST_TIMEOUT_MS"
_LOW_SPEED = "RUNAI_STREAMER_S3_LOW_SPEED_LIMIT"
_MEMORY = "RUNAI_STREAMER_MEMORY_LIMIT"
_NUMBERS = (_CHUNK, _CONCURRENCY, _TIMEOUT, _LOW_SPEED, _MEMORY)
_LARGE_CHUNK_BYTES = 256 * 2**20


def _streaming(manifests: Manifests) -> Iterator[Engine]:
    """Engines whose weights the streamer brings from an object store, all settings seen."""
    for engine in manifests.engines:
        if engine.streams and engine.remote_model and engine.complete and not engine.container.has_foreign_env:
            yield engine


def _value(engine: Engine, name: str) -> int | None:
    written = engine.container.env.get(name) or ""
    return int(written) if re.fullmatch(r"-?\d{1,18}", written) else None


def _no_concurrency(manifests: Manifests) -> Iterator[Problem]:
    for engine in _streaming(manifests):
        if "concurrency" not in engine.streamer and _CONCURRENCY not in engine.container.env and engine.glowplug is None:
            yield engine.problem("the streamer reads with its default of 8 requests: no concurrency is set", "load-format")


def _no_chunk(manifests: Manifests) -> Iterator[Problem]:
    for engine in _streaming(manifests):
        if _CHUNK not in engine.container.env and engine.glowplug is None:
            yield engine.container.problem(("env",), f"{_CHUNK} is not set: the streamer asks for 8 MiB at a time")


def _bad_number(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.containers:
        for name in _NUMBERS:
            value = container.env.get(name)
            if value is None or "$(" in value:
                continue
            least = -1 if name == _MEMORY else 0
            path = container.env_path(name)[len(container.path) :]
            if not re.fullmatch(r"-?\d{1,18}", value) or int(value) < least:
                yield container.problem(path, f"{name} is {value!r}, and must be a whole number in plain digits")
            elif name == _CHUNK and int(value) < LEAST_CHUNK_BYTES:
                yield container.problem(path, f"{name} is {value}, less than the 5 MiB that object stores need")


def _no_time_out(manifests: Manifests) -> Iterator[Problem]:
    for engine in _streaming(manifests):
        missing = [name for name in (_TIMEOUT, _LOW_SPEED) if name not in engine.container.env]
        if missing and (_value(engine, _CHUNK) or 0) >= _LARGE_CHUNK_BYTES and engine.glowplug is None:
            yield engine.container.problem(("env",), f"{' and '.join(missing)} not set beside a large chunk")


def _too_little_memory(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        limit, buffer = engine.container.resource("memory"), _value(engine, _MEMORY)
        if engine.streams and limit is not None and buffer is not None and buffer >= limit:
            path = ("resources", "limits", "memory")
            yield engine.container.problem(path, f"{_MEMORY} ({buffer:,} bytes) is not below the memory limit ({limit:,.0f})")


def _without_effect(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.name != "vllm" or engine.streams or engine.glowplug is not None or not engine.complete:
            continue
        given = [name for name in engine.container.env if name.startswith("RUNAI_STREAMER_")]
        if given:
            path = engine.container.env_path(given[0])[len(engine.container.path) :]
            what = engine.arguments.text("load-format") or "auto"
            yield engine.container.problem(path, f"{given[0]} has no effect: --load-format is {what}")


def _needs_streamer(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        plain = engine.arguments.text("load-format") in (None, "auto", "safetensors", "hf")
        bucket = engine.model.startswith(("s3://", "gs://", "az://"))
        if engine.name != "vllm" or not bucket or not plain or not engine.complete:
            continue
        if engine.glowplug is None:
            yield engine.problem(
                "the model is in a bucket, and --load-format is not runai_streamer: vLLM finds no weights", "model"
            )
        elif engine.version and engine.version < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            yield engine.container.problem(
                ("image",), f"the model is in a bucket, and Glowplug streams to vLLM {oldest} and later: this one finds no weights"
            )


def _bad_json(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        value = engine.arguments.values.get("model-loader-extra-config")
        if engine.direct and isinstance(value, str) and "$" not in value:
            yield engine.problem(f"--model-loader-extra-config is no JSON object: {value[:40]!r}", "model-loader-extra-config")


def _distributed_alone(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.streams and engine.streamer.get("distributed") is True and engine.tp == 1 and engine.complete:
            yield engine.problem(
                "distributed is true with tensor parallelism 1, where it brings nothing", "model-loader-extra-config"
            )


def _distributed_eager(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.streams and engine.streamer.get("distributed") is True and engine.arguments.values.get("enforce-eager") is True:
            yield engine.problem("distributed is true beside --enforce-eager", "enforce-eager")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP001",
        "Streamer with its default concurrency",
        "warning",
        "The Run:ai streamer reads an object store with 8 requests at a time unless it is told otherwise, and a large machine's"
        " network stays idle: 1.2 GB/s were seen on a P5 where a copy reaches 10 GB/s. The EKS guide sets ceil(model / chunk).",
        "Set --model-loader-extra-config '{\"concurrency\": N}' with N = ceil(model size / chunk size), both in one unit; glowplug"
        " plan computes it.",
        ("A06", "A07", "A68", "X01", "P13", "P14"),
        _no_concurrency,
    ),
    Rule(
        "GP002",
        "Streamer with its default chunk size",
        "info",
        "The default for object stores is 8 MiB: many small requests. The EKS guide found 4 GiB consistently best.",
        f"Set {_CHUNK}, such as 4294967296, and the concurrency that goes with it; then measure.",
        ("A08", "A09", "X01", "P13"),
        _no_chunk,
    ),
    Rule(
        "GP003",
        "Streamer variable that is no valid number",
        "error",
        "The streamer reads plain digits. 4GiB, 4e9 or an empty text is refused or taken for something else, and object stores"
        " need at least 5 MiB a request.",
        "Write bytes, milliseconds or counts in digits: 4294967296 for 4 GiB.",
        ("A08", "A10", "A11", "X01"),
        _bad_number,
    ),
    Rule(
        "GP004",
        "Large chunks without time-outs for slow requests",
        "info",
        "The EKS guide sets 3000 ms and 1048576 bytes/s to retry slow replies sooner. In the streamer's code the time-out is 1000"
        " ms by default, so 3000 lengthens it, and the low-speed limit is off: one slow request then holds up the load. Both"
        " variables are undocumented upstream.",
        f"Set {_TIMEOUT}=3000 and {_LOW_SPEED}=1048576.",
        ("A10", "A11", "X02"),
        _no_time_out,
    ),
    Rule(
        "GP006",
        "Streamer's buffer does not fit the pod's memory",
        "error",
        "The streamer buffers weights in host memory up to its limit; the engine needs some besides, and the pod is killed"
        " (OOMKilled) in the middle of the load.",
        f"Raise the memory limit, or lower {_MEMORY}.",
        ("X04", "A64"),
        _too_little_memory,
    ),
    Rule(
        "GP007",
        "Streamer variables without the streamer",
        "warning",
        "The RUNAI_STREAMER_* variables are read by the streamer only, and vLLM uses it only with --load-format runai_streamer.",
        "Add --load-format=runai_streamer, or take the variables away.",
        ("A12",),
        _without_effect,
    ),
    Rule(
        "GP008",
        "Model in a bucket without a loader that reads buckets",
        "error",
        "vLLM fetches only the small files of an s3:// model by itself. Without the streamer it looks for weights in that folder"
        " and ends.",
        "Add --load-format=runai_streamer, or start vLLM by glowplug run, which streams the weights itself, to vLLM 0.21 and"
        " later.",
        ("A12",),
        _needs_streamer,
    ),
    Rule(
        "GP009",
        "Loader configuration that is no JSON",
        "error",
        "vLLM parses --model-loader-extra-config when it starts, and ends if it can't.",
        "Quote it as one argument: '--model-loader-extra-config={\"concurrency\":16}'.",
        ("A13",),
        _bad_json,
    ),
    Rule(
        "GP010",
        "Distributed streaming on one rank",
        "warning",
        "distributed splits the reading among the ranks of tensor parallelism, which then give each other what they read. One"
        " rank has nobody to share with.",
        "Leave distributed out unless --tensor-parallel-size is above 1.",
        ("A14", "X03"),
        _distributed_alone,
    ),
    Rule(
        "GP011",
        "Distributed streaming with --enforce-eager",
        "error",
        "The two don't work together: it is an error, or the load silently goes on without distribution. AWS says that it falls"
        " to vLLM's V0 path; V0 was taken out by vLLM 0.12, so that part can't be literal, and the rule stands.",
        "Remove --enforce-eager, or distributed.",
        ("A15", "X03", "X05"),
        _distributed_eager,
    ),
)
