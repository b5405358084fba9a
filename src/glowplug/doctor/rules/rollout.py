"""Roll-outs, order and disruption of pods that each hold an accelerator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, number, text, tree
from glowplug.doctor.rules.probes import budget_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.pods import PodTemplate


def _needs_spare(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        body = pod.object.body
        strategy = text(body, "spec", "strategy", "type") or "RollingUpdate"
        if pod.kind != "Deployment" or strategy != "RollingUpdate" or pod.replicas < 1:
            continue
        rolling = tree(body, "spec", "strategy", "rollingUpdate")
        unavailable = _part(at(rolling, "maxUnavailable"), pod.replicas, up=False)
        if unavailable == 0 and _part(at(rolling, "maxSurge"), pod.replicas, up=True) > 0:
            what = "a roll-out starts a new pod before it ends an old one, and needs a spare accelerator"
            yield pod.object.problem(("spec", "strategy"), what)


def _part(written: object, replicas: int, *, up: bool) -> int:
    """A number of pods, or a share of the replicas; 25 % where nothing is written."""
    if isinstance(written, int):
        return written
    share = str(written or "25%").removesuffix("%")
    amount = replicas * (int(share) if share.isdecimal() and len(share) < 6 else 25) / 100
    return math.ceil(amount) if up else math.floor(amount)


def _deadline(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        deadline = number(pod.object.body, "spec", "progressDeadlineSeconds", default=600)
        for container in pod.containers:
            probe = tree(container.body, "startupProbe")
            if pod.kind == "Deployment" and probe and budget_s(probe) > deadline:
                what = f"a start may take {budget_s(probe)} s, and the roll-out counts as failed after {deadline} s"
                yield pod.object.problem(("spec", "progressDeadlineSeconds"), what)


def _one_after_another(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        policy = text(pod.object.body, "spec", "podManagementPolicy") or "OrderedReady"
        if pod.kind == "StatefulSet" and policy == "OrderedReady" and pod.replicas > 1:
            yield pod.object.problem(
                ("spec", "podManagementPolicy"), f"{pod.replicas} pods start one after another, each when ready"
            )


def _outage(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        if pod.kind == "Deployment" and text(pod.object.body, "spec", "strategy", "type") == "Recreate" and pod.replicas > 1:
            yield pod.object.problem(("spec", "strategy"), f"a roll-out ends all {pod.replicas} pods before it starts one")


def _never_drained(manifests: Manifests) -> Iterator[Problem]:
    for budget in manifests.of("PodDisruptionBudget"):
        pods = [pod for pod in manifests.selected(budget) if pod.accelerated and pod.kind in ("Deployment", "StatefulSet")]
        if not pods:
            continue
        field = "maxUnavailable" if "maxUnavailable" in tree(budget.body, "spec") else "minAvailable"
        if _allows_none(at(budget.body, "spec", field), field, pods):
            yield budget.problem(("spec", field), f"{field} allows no pod to be moved: its node can never be drained")


def _allows_none(written: object, field: str, pods: list[PodTemplate]) -> bool:
    if field == "maxUnavailable":
        return written in (0, "0", "0%")
    replicas = sum(pod.replicas for pod in pods)
    return written == "100%" or (isinstance(written, int) and written >= replicas > 0)


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP107",
        "Roll-out that needs a spare accelerator",
        "warning",
        "The default RollingUpdate starts the new pod first. Where no accelerator is free, it stays Pending (Insufficient"
        " nvidia.com/gpu), and the old pod, which holds the one it waits for, is not ended: the roll-out hangs.",
        "Set strategy.rollingUpdate.maxSurge: 0 and maxUnavailable: 1, or type: Recreate for one replica; or keep capacity for"
        " one pod more.",
        ("P11", "A66", "B20"),
        _needs_spare,
    ),
    Rule(
        "GP108",
        "Roll-out deadline shorter than a start",
        "info",
        "progressDeadlineSeconds is 600 unless set. A start that its probe still allows is then reported as failed, and tools"
        " that wait for the roll-out give up or roll back.",
        "Set progressDeadlineSeconds above the start-up budget, with time for the node and the image.",
        ("A65", "P37"),
        _deadline,
    ),
    Rule(
        "GP109",
        "Pods that start one after another",
        "info",
        "A StatefulSet starts the next pod when the one before is ready. With starts of minutes that adds up.",
        "Set podManagementPolicy: Parallel.",
        ("https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/",),
        _one_after_another,
    ),
    Rule(
        "GP110",
        "Disruption budget that allows nothing",
        "warning",
        "No pod may be moved, so Karpenter can't replace or consolidate the node, and upgrades hang.",
        "Set maxUnavailable: 1.",
        ("https://kubernetes.io/docs/tasks/run-application/configure-pdb/",),
        _never_drained,
    ),
    Rule(
        "GP111",
        "Recreate with several replicas",
        "info",
        "All replicas end before the first new one starts: an outage as long as a start, at each roll-out.",
        "Use RollingUpdate with maxSurge: 0 and maxUnavailable: 1.",
        ("P11",),
        _outage,
    ),
)
