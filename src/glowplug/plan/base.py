"""A plan as plain data: what goes in (``Question``) and what comes out (``Plan``), in bytes, seconds and counts.

Whoever writes manifests reads these numbers and adds the objects; no field is a Kubernetes object or a text to be parsed. A part is
None where the question did not say enough for it: without an accelerator nothing can be fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.plan.catalogue import Accelerator, Instance
    from glowplug.plan.model import Model
    from glowplug.plan.working import Basis, Working
    from glowplug.timeline.report import StartReport

Loader: TypeAlias = Literal["glowplug", "runai"]
Via: TypeAlias = Literal["endpoint", "nat", "nvme", "root"]
Bound: TypeAlias = Literal[
    "network card", "NAT gateway", "S3 prefix", "processors", "NVMe", "root volume", "--bandwidth", "reports"
]
Scenario: TypeAlias = Literal["cold", "warm", "restart"]
SCENARIOS: tuple[Scenario, ...] = ("cold", "warm", "restart")

GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is planned for. Defaults are what a deployment has that says nothing.

    Attributes:
        instance: where it runs; None if only an accelerator, or nothing, is known.
        accelerator: what ``--gpu`` names.
        tp: tensor parallelism; None: the least that fits.
        max_model_len: longest sequence in tokens; None: the model's, at most 8,192.
        batch: sequences of that length that one replica holds at once.
        kv_dtype: ``auto``, ``fp8``, ``bf16``, ``fp16`` or ``fp32``.
        memory_utilization: share of a GPU's memory that the engine may take.
        enforce_eager: no compilation and no graphs.
        loader: who brings the weights.
        chunk_bytes: of a request of the Run:ai streamer.
        distributed: of the Run:ai streamer; None: where it pays.
        nodes: new nodes that fetch at once.
        via: how the weights come: S3's gateway endpoint, a NAT gateway, or a disk of the node.
        bandwidth: bytes a second that one node was seen to fetch; None: unknown.
        image_bytes: of the compressed image.
        pod_memory_bytes: memory limit of the pod; None: its share of the node.
        vllm_version: major and minor.
        reports: start reports of the user's.
        phases: seconds of a phase that the user knows.
        replicas: that serve before the load grows.
        growth_per_minute: growth of the load in a minute, as a share of it.
        probe_period_s: of the probes.
    """

    instance: Instance | None = None
    accelerator: Accelerator | None = None
    tp: int | None = None
    max_model_len: int | None = None
    batch: int = 8
    kv_dtype: str = "auto"
    memory_utilization: float = 0.9
    enforce_eager: bool = False
    loader: Loader = "glowplug"
    chunk_bytes: int = 4 * GB
    distributed: bool | None = None
    nodes: int = 1
    via: Via = "endpoint"
    bandwidth: int | None = None
    image_bytes: int | None = None
    pod_memory_bytes: int | None = None
    vllm_version: tuple[int, int] | None = None
    reports: tuple[StartReport, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    replicas: int = 1
    growth_per_minute: float = 0.1
    probe_period_s: int = 5

    @property
    def device(self) -> Accelerator | None:
        """What the model is to lie on: the instance's accelerator, or the one that was named."""
        return self.instance.accelerator if self.instance is not None else self.accelerator


@dataclass(frozen=True, slots=True)
class Fit:
    """How the model lies on its devices.

    Attributes:
        tp: tensor parallelism.
        valid_tp: sizes that the model and the accelerator allow, in order.
        devices: on the node, or None where no instance is known.
        weight_bytes: on one device.
        kv_token_bytes: KV cache of a token, on one device; 0 where unknown.
        kv_bytes: that ``batch`` sequences of ``max_model_len`` take on one device.
        overhead_bytes: activations, graphs, context, communication; on one device.
        budget_bytes: what the engine may take of one device.
        max_model_len: tokens; 0 where unknown.
        batch: sequences.
        kv_tokens: that the node's KV cache holds after all else; 0 where unknown.
        replicas_per_node: that fit side by side, or None.
        chips: of the accelerator that one replica takes: GPUs, or whole Neuron chips; None where no instance is known.
    """

    tp: int
    valid_tp: tuple[int, ...]
    devices: int | None
    weight_bytes: int
    kv_token_bytes: int
    kv_bytes: int
    overhead_bytes: int
    budget_bytes: int
    max_model_len: int
    batch: int
    kv_tokens: int
    replicas_per_node: int | None
    chips: int | None

    @property
    def used_bytes(self) -> int:
        """Of one device."""
        return self.weight_bytes + self.kv_bytes + self.overhead_bytes


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """Of one pod on its node.

    Attributes:
        buffer: how the weights pass through host memory: ``full``, ``windowed``, ``page cache`` from a disk of the node, or
            ``streamer`` for the Run:ai one.
        buffer_bytes: of that.
        engine_bytes: the engine's own.
        shm_bytes: size of ``/dev/shm``; a tmpfs, so what is used of it counts as the pod's memory.
        memory_bytes: request and limit.
        share_bytes: what the node has for the pod; None where unknown.
        cpus: whole processors; None where unknown.
        image_disk_bytes: the image, packed and unpacked.
        cache_disk_bytes: the live compile cache.
        weights_disk_bytes: the checkpoint, where it is put on a disk.
        root_volume_bytes: the least root volume.
    """

    buffer: Literal["full", "windowed", "streamer", "page cache"]
    buffer_bytes: int
    engine_bytes: int
    shm_bytes: int
    memory_bytes: int
    share_bytes: int | None
    cpus: int | None
    image_disk_bytes: int
    cache_disk_bytes: int
    weights_disk_bytes: int
    root_volume_bytes: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """How fast the weights come to one node.

    Attributes:
        bytes: over the network, or from the disk.
        rate: bytes a second.
        bound: what limits it.
        basis: how the rate is known.
        sources: of the rate.
        limits: each bound's bytes a second.
        seconds: of the fetch.
        environment: Glowplug's settings; empty with another loader.
    """

    bytes: int
    rate: int
    bound: Bound
    basis: Basis
    sources: tuple[str, ...]
    limits: Mapping[str, int]
    seconds: float
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunaiSettings:
    """For a deployment with the Run:ai streamer.

    Attributes:
        concurrency: ``ceil(model / chunk)``.
        chunk_bytes: of one request.
        distributed: ranks split the reading.
        load_format: of ``--load-format``.
        extra_config: of ``--model-loader-extra-config``, as JSON.
        environment: its variables.
    """

    concurrency: int
    chunk_bytes: int
    distributed: bool
    load_format: str
    extra_config: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Term:
    """One phase of one start.

    Attributes:
        phase: its name; those of the engine are named as in a start report.
        seconds: what is expected.
        low_s: least that was seen, or is thought possible.
        high_s: most.
        basis: how it is known.
        sources: keys of ``sources.SOURCES``.
        note: of a measured term, whence.
    """

    phase: str
    seconds: float
    low_s: float
    high_s: float
    basis: Basis
    sources: tuple[str, ...] = ()
    note: str = ""


NODE_PHASES = ("node", "image pull")
"""What passes before the container exists, and no probe sees."""


@dataclass(frozen=True, slots=True)
class StartTime:
    """One kind of start.

    Attributes:
        scenario: ``cold``: new node, empty cache. ``warm``: new node, compile cache restored. ``restart``: on the same node.
        terms: in order; they follow each other.
    """

    scenario: Scenario
    terms: tuple[Term, ...]

    @property
    def total_s(self) -> float:
        """From the wish for a node to ready."""
        return sum(term.seconds for term in self.terms)

    @property
    def container_s(self) -> float:
        """From the container's start to ready."""
        return sum(term.seconds for term in self.terms if term.phase not in NODE_PHASES)

    @property
    def container_high_s(self) -> float:
        """The same, at its slowest."""
        return sum(term.high_s for term in self.terms if term.phase not in NODE_PHASES)

    @property
    def high_s(self) -> float:
        """All of it, at its slowest."""
        return sum(term.high_s for term in self.terms)

    @property
    def low_s(self) -> float:
        """All of it, at its fastest."""
        return sum(term.low_s for term in self.terms)


@dataclass(frozen=True, slots=True)
class Probes:
    """Budgets that let a cold start end.

    Attributes:
        startup_period_s: between two probes.
        startup_failures: that are allowed: ``failureThreshold``.
        readiness_period_s: once it has started.
        readiness_failures: before it gets no more requests.
        liveness_period_s: once it has started.
        liveness_failures: before it is killed.
        progress_deadline_s: of a roll-out, node and image included.
    """

    startup_period_s: int
    startup_failures: int
    readiness_period_s: int
    readiness_failures: int
    liveness_period_s: int
    liveness_failures: int
    progress_deadline_s: int

    @property
    def startup_budget_s(self) -> int:
        """Seconds that a start may take before it is killed."""
        return self.startup_period_s * self.startup_failures


@dataclass(frozen=True, slots=True)
class Scaling:
    """Thresholds that follow from the time until a new replica serves.

    Attributes:
        lead_s: from the signal to a ready replica on a new node, warm.
        poll_s: how often the signal is read; part of ``lead_s``.
        running: running requests a replica at which the next one is started.
        waiting: waiting requests in all at which it is late.
        cooldown_s: before a replica is taken away.
        warm_pool: replicas to keep ready beyond the load.
    """

    lead_s: float
    poll_s: int
    running: int
    waiting: int
    cooldown_s: int
    warm_pool: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer.

    Attributes:
        question: what was asked.
        model: what is served.
        fit: None without an accelerator.
        host: of one pod.
        fetch: None where nothing says how fast the weights come.
        runai: settings of the Run:ai streamer, whoever loads.
        starts: cold, warm, restart; empty without an accelerator.
        probes: None without ``starts``.
        scaling: None without ``starts``.
        would_fit: instance types that hold it, smallest first; filled where none was named.
        notes: what to know, a sentence each.
        workings: every formula with its inputs.
    """

    question: Question
    model: Model
    fit: Fit | None
    host: HostNeeds | None
    fetch: Fetch | None
    runai: RunaiSettings
    starts: tuple[StartTime, ...]
    probes: Probes | None
    scaling: Scaling | None
    would_fit: tuple[str, ...]
    notes: tuple[str, ...]
    workings: tuple[Working, ...]

    def start(self, scenario: Scenario) -> StartTime:
        """That of a scenario.

        Raises:
            KeyError: none was predicted.
        """
        for start in self.starts:
            if start.scenario == scenario:
                return start
        raise KeyError(scenario)
