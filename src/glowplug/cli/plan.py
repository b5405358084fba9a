"""``glowplug plan``: what a deployment will need, and how long its start will take, before anything exists."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.options import AsJson
from glowplug.cli.output import print_json
from glowplug.errors import UsageError
from glowplug.plan.base import Loader, Question, Via
from glowplug.plan.catalogue import find_accelerator, find_instance
from glowplug.plan.document import to_json
from glowplug.plan.make import make_plan
from glowplug.plan.measured import read_report
from glowplug.plan.model import Model, read_config, read_model
from glowplug.plan.render import render
from glowplug.units import parse_bandwidth, parse_seconds, parse_size, require_unit

if TYPE_CHECKING:
    from collections.abc import Iterable

app = App()

_EXAMPLES = """
Examples:

  glowplug plan s3://bucket/models/qwen3-32b --instance p4d.24xlarge

  glowplug plan --weights 67GB --chunk 4GB --json

  glowplug plan s3://bucket/models/qwen3-32b --gpu h100 --explain
"""


@app.command("plan", epilog=_EXAMPLES)
def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="The checkpoint: s3://bucket/prefix, https://..., file:///... or a path. Only its headers are read.",
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the weights, such as 67GB, instead of MODEL.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model's config.json. Default: the one beside MODEL.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="TYPE", help="EC2 instance type of the nodes, such as p5.48xlarge.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Accelerator, such as h100, l40s or trainium2; with --instance it must be its own."),
    ] = None,
    tp: Annotated[
        int | None, typer.Option(metavar="N", help="Tensor parallelism: devices of a replica. Default: the fewest that fit.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(metavar="N", help="Longest sequence, in tokens. Default: the model's, at most 8192.")
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences of that length that a replica holds at once.")] = 8,
    kv_dtype: Annotated[
        str, typer.Option(metavar="auto|fp8|bf16|fp16|fp32", help="Type of the KV cache. auto: as the model's configuration says.")
    ] = "auto",
    gpu_memory_utilization: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of a GPU's memory that the engine may take, as for vLLM.")
    ] = 0.9,
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="Without compilation and CUDA graphs, as for vLLM.")
    ] = False,
    loader: Annotated[
        str, typer.Option(metavar="glowplug|runai", help="Who brings the weights: Glowplug or the Run:ai streamer.")
    ] = "glowplug",
    chunk: Annotated[str, typer.Option(metavar="SIZE", help="Size of a request of the Run:ai streamer.")] = "4GB",
    distributed: Annotated[
        bool | None,
        typer.Option("--distributed/--no-distributed", help="The Run:ai streamer's distributed mode. Default: where it pays."),
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="N", help="New nodes that fetch at once.")] = 1,
    via: Annotated[
        str,
        typer.Option(
            metavar="endpoint|nat|nvme|root",
            help="Where weights come from: S3 through a gateway endpoint or a NAT gateway, or the node's NVMe or root disk.",
        ),
    ] = "endpoint",
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="SPEED",
            help="Speed at which one node was seen to fetch, such as 2GB/s or 20Gbit/s. Default: by --report, else by --instance.",
        ),
    ] = None,
    image_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the compressed container image. Default: the vendor's.")
    ] = None,
    host_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The pod's memory limit. Default: its share of the node.")
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(
            metavar="X.Y", help="Version of vLLM; before 0.21 it loads a compile cache more slowly. Default: 0.21 or newer."
        ),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A start report of yours (glowplug run --report), whose phases are used; repeatable."),
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TIME", help="How long a phase takes for you, such as node=75s or cold:compile=53s; repeatable."),
    ] = None,
    replicas: Annotated[int, typer.Option(metavar="N", help="Replicas that serve before the load grows.")] = 1,
    growth: Annotated[str, typer.Option(metavar="PERCENT", help="How much the load grows in a minute.")] = "10%",
    probe_period: Annotated[int, typer.Option(metavar="SECONDS", help="Seconds between two probes.")] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="Show every formula with its inputs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Size a deployment and predict its start: devices, memory, network, probes, autoscaling. Reads headers, no weight."""
    question = Question(
        instance=find_instance(instance) if instance is not None else None,
        accelerator=find_accelerator(gpu) if gpu is not None else None,
        tp=tp,
        max_model_len=max_model_len,
        batch=batch,
        kv_dtype=kv_dtype.strip().lower(),
        memory_utilization=gpu_memory_utilization,
        enforce_eager=enforce_eager,
        loader=_loader(loader),
        chunk_bytes=parse_size(chunk, name="--chunk"),
        distributed=distributed,
        nodes=nodes,
        via=_via(via),
        bandwidth=_bandwidth(bandwidth),
        image_bytes=parse_size(image_size, name="--image-size") if image_size is not None else None,
        pod_memory_bytes=parse_size(host_memory, name="--host-memory") if host_memory is not None else None,
        vllm_version=_version(vllm_version),
        reports=tuple(read_report(path) for path in report or ()),
        phases=_phases(phase or ()),
        replicas=replicas,
        growth_per_minute=_share(growth),
        probe_period_s=probe_period,
    )
    made = make_plan(question, _model(model, weights, config))
    if as_json:
        print_json(to_json(made, workings=explain))
        return
    print(render(made, explain=explain), end="")


def _model(uri: str | None, weights: str | None, config: Path | None) -> Model:
    if weights is None:
        if uri is None:
            hint = "glowplug plan s3://bucket/model, or glowplug plan --weights 67GB"
            raise UsageError("there is nothing to plan for", object="MODEL", hint=hint)
        return read_model(uri, config=config, env=os.environ)
    size_bytes = parse_size(weights, name="--weights")
    if uri is not None:
        raise UsageError("MODEL is read for its size, and --weights gives another", object="--weights", hint="give one of the two")
    return Model(name="", weight_bytes=size_bytes, architecture=read_config(config) if config is not None else None)


def _bandwidth(text: str | None) -> int | None:
    if text is None:
        return None
    require_unit(text, name="--bandwidth", hint="write #GB/s or #Gbit/s")
    return parse_bandwidth(text, name="--bandwidth")


def _loader(text: str) -> Loader:
    loaders: dict[str, Loader] = {"glowplug": "glowplug", "runai": "runai"}
    if text not in loaders:
        raise UsageError(f"--loader: {text!r} is not known", object="--loader", hint="choose glowplug or runai")
    return loaders[text]


def _via(text: str) -> Via:
    ways: dict[str, Via] = {"endpoint": "endpoint", "nat": "nat", "nvme": "nvme", "root": "root"}
    if text not in ways:
        raise UsageError(f"--via: {text!r} is not known", object="--via", hint=f"choose one of {', '.join(ways)}")
    return ways[text]


def _version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.match(r"v?(\d+)\.(\d+)(?!\d)", text.strip())
    if not found:
        raise UsageError(f"--vllm-version: {text!r} is no version", object="--vllm-version", hint="write it as 0.21")
    return int(found[1]), int(found[2])


def _phases(texts: Iterable[str]) -> dict[str, float]:
    given: dict[str, float] = {}
    for text in texts:
        name, seconds = _phase(text)
        if name in given:
            raise UsageError(f"--phase: {name!r} is given twice", object="--phase", hint="give the one that counts")
        given[name] = seconds
    return given


def _phase(text: str) -> tuple[str, float]:
    name, separator, duration = text.rpartition("=")
    if not separator:
        raise UsageError(f"--phase: {text!r} has no time", object="--phase", hint="write NAME=TIME, such as node=75s")
    require_unit(duration, name="--phase", hint=f"write {name.strip()}=#s")
    return name.strip().lower(), parse_seconds(duration, name="--phase")


def _share(text: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%(?:/min)?\s*", text)
    if not found:
        raise UsageError(f"--growth: {text!r} is no percentage", object="--growth", hint="write 10%")
    return float(found[1]) / 100
