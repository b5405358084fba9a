"""What a person should know about a plan: what was assumed where it matters, and what will hurt. A sentence or two each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.plan.figures import both, speed
from glowplug.plan.host import DEFAULT_ROOT_BYTES
from glowplug.units import count, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.plan.base import Fetch, Fit, HostNeeds, Question, RunaiSettings
    from glowplug.plan.model import Model

_SMALL_CONCURRENCY = 16
_GUIDE_CHUNK_BYTES = 2**32
_GUIDE_SAYS_BYTES = 4 * 10**9


def notes(
    question: Question, model: Model, fit: Fit | None, host: HostNeeds | None, fetch: Fetch | None, streamer: RunaiSettings
) -> Iterator[str]:
    """All that apply."""
    if fit is not None:
        yield from _of_devices(question, model, fit)
    if fetch is not None:
        yield from _of_network(question, model, fetch)
    elif fit is not None:
        yield "No start time without a speed: add --instance, --bandwidth, or --report."
    if host is not None:
        yield from _of_host(question, host)
    if question.loader == "runai" or fit is None:
        yield from _of_streamer(model, streamer)
    if question.enforce_eager:
        yield "--enforce-eager: nothing is compiled, so a compile cache stays empty and brings nothing."


def _of_devices(question: Question, model: Model, fit: Fit) -> Iterator[str]:
    architecture = model.architecture
    if architecture is None:
        yield "Without a configuration the KV cache is a guess, and every TP size is taken for valid: add --config config.json."
    elif architecture.linear_layers:
        yield f"{architecture.linear_layers} layers keep a state of fixed size, which is not counted."
    accelerator = question.device
    if accelerator is None:
        return
    if accelerator.note and not (architecture and architecture.quantization):
        yield f"{accelerator.name} {accelerator.note}."
    if accelerator.kind == "neuron":
        yield "Compiling for NeuronCores takes the host's processors, and its time is assumed: --phase or --report correct it."
        if architecture is not None and architecture.quantization:
            yield f"Check that the Neuron SDK loads {architecture.quantization} checkpoints; many are for GPUs only."
    if question.instance is not None and fit.replicas_per_node and fit.replicas_per_node > 1:
        idle = count(question.instance.devices - fit.tp, accelerator.noun)
        yield f"{fit.replicas_per_node} replicas of TP {fit.tp} fit one {question.instance.name}; one leaves {idle} idle."


def _of_network(question: Question, model: Model, fetch: Fetch) -> Iterator[str]:
    instance = question.instance
    if model.is_local and question.via not in {"nvme", "root"}:
        yield "MODEL lies on a disk here, and is planned as if it came from S3; --via nvme or --via root say otherwise."
    if instance is not None and "network card" in fetch.limits and instance.cards > 1:
        yield (
            f"{instance.network_mbps // 1000:,} Gbit/s of {instance.name} are of {instance.cards} cards together, for EFA. "
            "S3 is not reached through EFA: one card and at most 100 Gbit/s are assumed. --bandwidth says what you have measured."
        )
    if question.via == "nat":
        yield (
            "Through a NAT gateway each GB is paid for, and all nodes of the private subnets share 100 Gbit/s and 55,000 "
            "connections. An S3 gateway endpoint costs nothing and has neither."
        )
    if fetch.bound == "NAT gateway":
        yield f"The NAT gateway is what limits: {speed(fetch.rate)} for each of {question.nodes} nodes."


def _of_host(question: Question, host: HostNeeds) -> Iterator[str]:
    if host.share_bytes is not None and host.memory_bytes > host.share_bytes:
        what = "the pod's limit" if question.pod_memory_bytes is not None else "its part of the node"
        yield f"The pod needs {format_bytes(host.memory_bytes)} of host memory, and {what} is {format_bytes(host.share_bytes)}."
        if host.buffer == "streamer":
            yield "RUNAI_STREAMER_MEMORY_LIMIT lowers it: by default 40 GB in each process, and no limit when distributed."
    if host.buffer == "windowed":
        yield "Weights pass through a window of host memory, since all of them beside the engine would not fit."
    if host.root_volume_bytes > DEFAULT_ROOT_BYTES:
        yield (
            f"A default root volume of {format_bytes(DEFAULT_ROOT_BYTES)} is too small: "
            f"the image alone takes {format_bytes(host.image_disk_bytes)}, packed and unpacked."
        )


def _of_streamer(model: Model, streamer: RunaiSettings) -> Iterator[str]:
    if streamer.concurrency < _SMALL_CONCURRENCY:
        yield (
            f"The EKS guide's rule gives a concurrency of {streamer.concurrency}. In the streamer's own benchmark 15 GB took "
            "28.2 s with 4 and 4.9 s with 32, in chunks of 8 MiB: try both."
        )
    in_gib = -(-model.weight_bytes // _GUIDE_CHUNK_BYTES)
    if streamer.chunk_bytes == _GUIDE_SAYS_BYTES and in_gib != streamer.concurrency:
        yield (
            f"The EKS guide's chunk of {_GUIDE_CHUNK_BYTES} bytes is 4 GiB: with --chunk 4GiB {both(model.weight_bytes)} need a "
            f"concurrency of {in_gib}."
        )
    yield "A request time-out of 3,000 ms is longer than the streamer's default of 1,000 ms, not shorter."
