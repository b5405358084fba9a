"""What follows from a wish before the first object is written: the plan, names, devices, budgets. Pure: no file, no network."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from glowplug.deploy.checks import MOST_NAME, check
from glowplug.deploy.wish import GPU_IMAGE, NEURON_IMAGE
from glowplug.errors import UsageError
from glowplug.plan.base import Fetch, Fit, HostNeeds, Plan, Probes, Question, Scaling
from glowplug.plan.catalogue import find_instance
from glowplug.plan.make import make_plan
from glowplug.units import MIB

if TYPE_CHECKING:
    from glowplug.deploy.wish import Wish
    from glowplug.plan.catalogue import Instance
    from glowplug.plan.model import Model

_T = TypeVar("_T")
SERVER, PUBLISHER = "server", "publisher"
_NEURON_LEN = 2048
_GPU_WAIT_S = 120
"""``glowplug run --wait``: its own default."""
_DRAIN_S = 15
_GRACE_S = 60


@dataclass(frozen=True, slots=True)
class Design:
    """A deployment, settled.

    Attributes:
        wish: what was asked for.
        plan: what it needs and how long it starts.
        instance: of its nodes.
        name: of its objects.
        image: of the engine.
        resource: what a pod asks the device plugin for.
        devices: how many of it.
        total: how many of it a node has.
        max_model_len: 0 where the engine decides.
        wait_s: how long a start waits for another that compiles the same.
    """

    wish: Wish
    plan: Plan
    instance: Instance
    name: str
    image: str
    resource: str
    devices: int
    total: int
    max_model_len: int
    wait_s: int

    @property
    def is_neuron(self) -> bool:
        """Whether it runs on NeuronCores."""
        return self.instance.accelerator.kind == "neuron"

    @property
    def fit(self) -> Fit:
        """How the model lies on its devices."""
        return _known(self.plan.fit)

    @property
    def host(self) -> HostNeeds:
        """What a pod needs of its node."""
        return _known(self.plan.host)

    @property
    def fetch(self) -> Fetch:
        """How the weights come."""
        return _known(self.plan.fetch)

    @property
    def probes(self) -> Probes:
        """Budgets of probes."""
        return _known(self.plan.probes)

    @property
    def scaling(self) -> Scaling:
        """Thresholds of autoscaling."""
        return _known(self.plan.scaling)

    @property
    def tp(self) -> int:
        """Tensor parallelism."""
        return self.fit.tp

    @property
    def startup_failures(self) -> int:
        """Failed probes that a start may have: the plan's slowest cold start, after it has waited for another."""
        return self.probes.startup_failures + math.ceil(self.wait_s / self.probes.startup_period_s)

    @property
    def startup_budget_s(self) -> int:
        """What that is in seconds."""
        return self.startup_failures * self.probes.startup_period_s

    @property
    def pull_s(self) -> int:
        """Seconds in which weights are brought to the node's disk before the engine starts; 0 where they are streamed."""
        return math.ceil(3 * self.fetch.seconds) if self.is_neuron else 0

    @property
    def grace_s(self) -> int:
        """Seconds from the wish that a pod ends until it is killed."""
        return _DRAIN_S + _GRACE_S

    @property
    def drain_s(self) -> int:
        """Seconds in which requests may still come, since endpoints are told later than the pod."""
        return _DRAIN_S

    @property
    def progress_deadline_s(self) -> int:
        """After which a roll-out counts as failed: node, image, weights, the slowest start, and the old pod's end."""
        return self.probes.progress_deadline_s + self.wait_s + self.pull_s + self.grace_s

    @property
    def max_replicas(self) -> int:
        """That may run at once."""
        if self.wish.autoscale == "none":
            return self.wish.replicas
        return self.wish.max_replicas or 2 * self.wish.replicas

    @property
    def is_served_by_publishers(self) -> bool:
        """Whether every replica may publish."""
        return self.wish.publish == "replicas"

    @property
    def needs_neuron_scheduler(self) -> bool:
        """Whether devices must be neighbours, and are not all of the node's."""
        return self.is_neuron and 1 < self.devices < self.total

    @property
    def publisher_account(self) -> str:
        """The publisher's ServiceAccount, where it is another than the server's."""
        return f"{self.name}-publisher"

    @property
    def pods_per_node(self) -> int:
        """By devices."""
        return max(1, self.total // self.devices)

    def labels(self, component: str = "") -> dict[str, str]:
        """Of an object; with a component those that select its pods."""
        made = {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": self.name}
        if component:
            return {**made, "app.kubernetes.io/component": component}
        return {**made, "app.kubernetes.io/managed-by": "glowplug"}

    def role_name(self, component: str) -> str:
        """Of an IAM role; at most 64 characters."""
        return f"glowplug-{self.wish.namespace}-{self.name}"[: 63 - len(component)].rstrip("-") + f"-{component}"


def settle(wish: Wish, model: Model) -> Design:
    """The design.

    Raises:
        UsageError: something can't be, contradicts something else, or the model does not fit.
    """
    check(wish)
    instance = find_instance(wish.instance)
    kind = instance.accelerator.kind
    if kind != wish.target:
        hint = f"use --target {kind}, or another instance type"
        raise UsageError(f"--target {wish.target}: {instance.name} has {instance.accelerator.name}", object="--target", hint=hint)
    question = Question(
        instance=instance,
        tp=wish.tp or None,
        max_model_len=wish.max_model_len or (_NEURON_LEN if kind == "neuron" else None),
        batch=wish.batch,
        replicas=wish.replicas,
    )
    plan = make_plan(question, model)
    if kind == "neuron" and not wish.tp and wish.neuron_resource == "chips":
        plan = _on_whole_chips(plan, question, model)
    fit, host = _known(plan.fit), _known(plan.host)
    if host.share_bytes is not None and host.memory_bytes > host.share_bytes:
        hint = "choose a type with more memory, or more devices for a replica (--tp), so that fewer share a node"
        raise UsageError(
            f"--instance: a pod needs {host.memory_bytes // MIB} MiB, and has {host.share_bytes // MIB} MiB of {instance.name}",
            object="--instance",
            hint=hint,
        )
    resource, devices, total = _devices(wish, instance, fit)
    compile_s = next((term.seconds for term in plan.start("cold").terms if term.phase == "compile"), 0.0)
    return Design(
        wish=wish,
        plan=plan,
        instance=instance,
        name=wish.name or name_of(wish.model),
        image=wish.image or (NEURON_IMAGE if kind == "neuron" else GPU_IMAGE),
        resource=resource,
        devices=devices,
        total=total,
        max_model_len=fit.max_model_len or (wish.max_model_len or (_NEURON_LEN if kind == "neuron" else 0)),
        wait_s=max(_GPU_WAIT_S, 60 * math.ceil(2 * compile_s / 60)),
    )


def name_of(uri: str) -> str:
    """A name for objects, from the last part of the model's address.

    Raises:
        UsageError: nothing of it can be used.
    """
    last = uri.rstrip("/").rpartition("/")[2].lower()
    name = re.sub(r"[^a-z0-9]+", "-", last).lstrip("-0123456789")[:MOST_NAME].strip("-")
    if not name:
        raise UsageError(f"--name: {last!r} gives no name", object="--name", hint="add --name NAME")
    return name


def _on_whole_chips(plan: Plan, question: Question, model: Model) -> Plan:
    """A pod that gets whole chips uses all cores of them: their memory is there, and nobody else can have it."""
    fit, instance = _known(plan.fit), _known(question.instance)
    cores = _known(fit.chips) * instance.devices // instance.chips
    if cores == fit.tp or cores not in fit.valid_tp:
        return plan
    return make_plan(dataclasses.replace(question, tp=cores), model)


def _devices(wish: Wish, instance: Instance, fit: Fit) -> tuple[str, int, int]:
    if instance.accelerator.kind == "gpu":
        return "nvidia.com/gpu", fit.tp, instance.devices
    if wish.neuron_resource == "chips":
        return "aws.amazon.com/neuron", _known(fit.chips), instance.chips
    if instance.accelerator.name.startswith("trainium2"):
        hint = "use chips: on Trn2 two physical cores make a logical one, and plug-ins differ in which they count"
        raise UsageError("--neuron-resource cores: not on Trn2", object="--neuron-resource", hint=hint)
    return "aws.amazon.com/neuroncore", fit.tp, instance.devices


def _known(value: _T | None) -> _T:
    """What a plan for an instance always has."""
    if value is None:
        raise AssertionError("a plan for an instance type lacks a part")
    return value
