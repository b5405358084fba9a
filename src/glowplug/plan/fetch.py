"""How fast the weights reach one node, what limits them, and the settings that follow.

What is assumed: a pod reaches S3 through one network card, at no more than 100 Gbit/s, and gets 0.65 of it. The catalogue's
larger figures (3,200 Gbit/s of a P5) add up cards that carry EFA, and S3 doesn't speak EFA. A gateway endpoint has no limit of its
own that anybody has published, so behind one it is the card, the processors, or the request rate of the checkpoint's prefix.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from glowplug.plan.base import Fetch
from glowplug.plan.figures import GB, both, seconds, speed
from glowplug.units import MIB, format_bytes

if TYPE_CHECKING:
    from glowplug.plan.base import Bound, Fit, Question
    from glowplug.plan.model import Model
    from glowplug.plan.working import Basis, Notebook

MOST_CARD_MBPS = 100_000
LINE_SHARE = 0.65
"""Of the line rate that streaming from S3 reaches: 0.61 of 40 Gbit/s and 0.67 of 80 were published."""
NAT_BYTES_PER_S = 100 * GB // 8
GETS_PER_S = 5500
REQUEST_BYTES_PER_S = 87_500_000
CHUNK_BYTES = 8 * MIB
CPU_S_PER_GB = {"glowplug": 1.0, "runai": 1.4}
NVME_BYTES_PER_S = 30 * GB
NVME_BYTES_PER_S_OF_TB = 1 * GB
ROOT_BYTES_PER_S = 1 * GB
_USUAL_CONCURRENCY = 32
_MOST_CONCURRENCY = 1024


class _Limit(NamedTuple):
    rate: int
    basis: Basis
    sources: tuple[str, ...]


def card_mbps(network_mbps: int, cards: int) -> int:
    """Mbit/s of the one card that reaches S3."""
    return min(network_mbps // cards, MOST_CARD_MBPS)


def fetch(
    question: Question, model: Model, fit: Fit | None, *, distributed: bool, measured: int | None, notebook: Notebook
) -> Fetch | None:
    """The rate, and what bounds it; None where nothing is known of the node.

    Args:
        question: how many nodes, and by which way.
        model: what is fetched.
        fit: how many ranks there are.
        distributed: of the Run:ai streamer.
        measured: bytes a second, from start reports.
        notebook: takes the workings.
    """
    copies = (
        fit.tp if fit is not None and question.loader == "runai" and not distributed and question.via in {"endpoint", "nat"} else 1
    )
    size = model.weight_bytes * copies
    chunk = CHUNK_BYTES if question.loader == "glowplug" else question.chunk_bytes
    limits = _limits(question, chunk, measured, notebook)
    if not limits:
        return None
    bound = min(limits, key=lambda name: limits[name].rate)
    limit = limits[bound]
    took = size / limit.rate
    notebook.write(
        ("fetch", "rate"), "the least of the limits", f"{speed(limit.rate)}, bound by: {bound}",
        inputs={name: speed(each.rate) for name, each in limits.items()}, basis=limit.basis, sources=limit.sources,
    )  # fmt: skip
    notebook.write(
        ("fetch", "seconds"), "checkpoint x copies / rate" if copies > 1 else "checkpoint / rate", seconds(took),
        inputs={"checkpoint": both(model.weight_bytes), "rate": speed(limit.rate)}
        | ({"copies": f"{copies}, since each rank reads all of it"} if copies > 1 else {}),
        basis=limit.basis,
    )  # fmt: skip
    return Fetch(
        bytes=size,
        rate=limit.rate,
        bound=bound,
        basis=limit.basis,
        sources=limit.sources,
        limits={name: each.rate for name, each in limits.items()},
        seconds=took,
        environment=_environment(question, limit.rate, notebook) if question.loader == "glowplug" else {},
    )


def _limits(question: Question, chunk: int, measured: int | None, notebook: Notebook) -> dict[Bound, _Limit]:
    limits: dict[Bound, _Limit] = {}
    instance = question.instance
    if question.bandwidth is not None:
        limits["--bandwidth"] = _Limit(question.bandwidth, "measured", ())
    elif measured is not None and question.via in {"endpoint", "nat"}:
        limits["reports"] = _Limit(measured, "measured", ())
    elif question.via in {"nvme", "root"}:
        return _disk(question, notebook)
    elif instance is not None:
        card = card_mbps(instance.network_mbps, instance.cards)
        rate = int(card * 125_000 * LINE_SHARE)
        limits["network card"] = _Limit(rate, "published", ("s3", "runai", "azure"))
        notebook.write(
            ("fetch", "network card"), f"min(network / cards, 100 Gbit/s) x {LINE_SHARE}: S3 is reached through one card",
            speed(rate), inputs={"network": f"{instance.network_mbps / 1000:g} Gbit/s", "cards": str(instance.cards)},
            basis="published", sources=("karpenter", "s3", "ec2", "runai", "azure"),
        )  # fmt: skip
        cost = CPU_S_PER_GB[question.loader]
        limits["processors"] = _Limit(int(instance.vcpus / cost * GB), "estimated", ("glowplug",))
        notebook.write(
            ("fetch", "processors"), "vCPUs / processor seconds a GB over TLS", speed(limits["processors"].rate),
            inputs={"vCPUs": str(instance.vcpus), "processor seconds a GB": str(cost)}, basis="estimated", sources=("glowplug",),
        )  # fmt: skip
    if question.via in {"endpoint", "nat"} and limits:
        limits["S3 prefix"] = _prefix(question, chunk, notebook)
    if question.via == "nat":
        limits["NAT gateway"] = _Limit(NAT_BYTES_PER_S // question.nodes, "published", ("eks",))
        notebook.write(
            ("fetch", "NAT gateway"), "100 Gbit/s / new nodes: one gateway serves all nodes of the private subnets",
            speed(limits["NAT gateway"].rate), inputs={"new nodes": str(question.nodes)}, basis="published", sources=("eks",),
        )  # fmt: skip
    return limits


def _prefix(question: Question, chunk: int, notebook: Notebook) -> _Limit:
    limit = _Limit(GETS_PER_S * chunk // question.nodes, "published", ("s3",))
    notebook.write(
        ("fetch", "S3 prefix"), "5,500 GET/s x request / new nodes", speed(limit.rate),
        inputs={"request": format_bytes(chunk), "new nodes": str(question.nodes)}, basis="published", sources=("s3",),
    )  # fmt: skip
    return limit


def _disk(question: Question, notebook: Notebook) -> dict[Bound, _Limit]:
    instance = question.instance
    if instance is None:
        return {}
    name: Bound = "NVMe" if question.via == "nvme" else "root volume"
    if question.via == "nvme":
        rate = min(NVME_BYTES_PER_S, int(instance.nvme_bytes / 10**12 * NVME_BYTES_PER_S_OF_TB))
        formula, inputs = "min(30 GB/s, instance store x 1 GB/s a TB)", {"instance store": both(instance.nvme_bytes)}
    else:
        rate = min(ROOT_BYTES_PER_S, instance.ebs_mbps * 125_000)
        formula, inputs = "min(1 GB/s, EBS bandwidth)", {"EBS bandwidth": speed(instance.ebs_mbps * 125_000)}
    limit = _Limit(max(1, rate), "estimated", ("eks", "karpenter"))
    notebook.write(("fetch", name), formula, speed(limit.rate), inputs=inputs, basis=limit.basis, sources=limit.sources)
    return {name: limit}


def _environment(question: Question, rate: int, notebook: Notebook) -> dict[str, str]:
    """What to set so that this rate can be reached; nothing where the defaults do."""
    if question.via in {"nvme", "root"}:
        return {}
    wanted = min(_MOST_CONCURRENCY, math.ceil(rate / REQUEST_BYTES_PER_S))
    notebook.write(
        ("fetch", "requests at once"), f"ceil(rate / 87.5 MB/s a request); up to {_USUAL_CONCURRENCY} are found without a setting",
        str(wanted), inputs={"rate": speed(rate)}, basis="published", sources=("s3",),
    )  # fmt: skip
    return {"GLOWPLUG_WEIGHTS_MAX_CONCURRENCY": str(wanted)} if wanted > _USUAL_CONCURRENCY else {}
