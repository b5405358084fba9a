"""Karpenter's node pools and node classes for accelerators: disks, images, taints and consolidation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.doctor import placing
from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, text, tree
from glowplug.doctor.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object

_ROOT_BYTES = 50 * 2**30
_AMI = re.compile(r"ami-[0-9a-f]{8,}")


def _pools(manifests: Manifests) -> Iterator[Object]:
    """Node pools that can only start nodes with accelerators."""
    for pool in manifests.of("NodePool"):
        if placing.wants_accelerators(pool):
            yield pool


def _consolidated(manifests: Manifests) -> Iterator[Problem]:
    for pool in _pools(manifests):
        policy = text(pool.body, "spec", "disruption", "consolidationPolicy") or "WhenEmptyOrUnderutilized"
        if policy.startswith("WhenEmptyOr") or policy == "WhenUnderutilized":
            yield pool.problem(("spec", "disruption", "consolidationPolicy"), f"{policy}: engines are moved to save part of a node")


def _open_to_all(manifests: Manifests) -> Iterator[Problem]:
    for pool in _pools(manifests):
        if not items(pool.body, "spec", "template", "spec", "taints"):
            yield pool.problem(("spec", "template", "spec"), "no taint keeps other pods off these nodes")


def _small_root(manifests: Manifests) -> Iterator[Problem]:
    for pool in _pools(manifests):
        node_class = placing.class_of(manifests, pool)
        if (
            node_class is None
            or node_class.kind != "EC2NodeClass"
            or text(node_class.body, "spec", "instanceStorePolicy") == "RAID0"
        ):
            continue
        sizes = [quantity(text(each, "ebs", "volumeSize")) for each in items(node_class.body, "spec", "blockDeviceMappings")]
        largest = max((size for size in sizes if size is not None), default=None)
        if sizes and (largest is None or largest >= _ROOT_BYTES):
            continue
        if any("snapshotID" in tree(each, "ebs") for each in items(node_class.body, "spec", "blockDeviceMappings")):
            continue
        told = f"{largest / 2**30:.0f} GiB" if largest is not None else "the default of 20 GiB"
        yield node_class.problem(("spec", "blockDeviceMappings"), f"root volume of {told} for images of engines")


def _fixed_image(manifests: Manifests) -> Iterator[Problem]:
    for node_class in manifests.of("EC2NodeClass"):
        for index, term in enumerate(items(node_class.body, "spec", "amiSelectorTerms")):
            if _AMI.fullmatch(text(term, "id")):
                yield node_class.problem(
                    ("spec", "amiSelectorTerms", index, "id"), f"{text(term, 'id')} is of one region, and grows old"
                )


def _old_family(manifests: Manifests) -> Iterator[Problem]:
    for node_class in manifests.of("EC2NodeClass"):
        aliases = [text(term, "alias") for term in items(node_class.body, "spec", "amiSelectorTerms")]
        old = [alias for alias in aliases if alias.startswith("al2@")]
        if old or (text(node_class.body, "spec", "amiFamily") == "AL2" and not aliases):
            yield node_class.problem(("spec",), "Amazon Linux 2, which has no image for Kubernetes 1.33 and later")


def _never_moved(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        if text(pod.metadata, "annotations", "karpenter.sh/do-not-disrupt") == "true" and pod.kind not in ("Job", "CronJob", "Pod"):
            path = (*pod.path[:-1], "metadata", "annotations", "karpenter.sh/do-not-disrupt")
            yield pod.object.problem(path, "never moved: its node is not replaced, not even for a new image, while a pod is on it")


def _no_class(manifests: Manifests) -> Iterator[Problem]:
    for pool in manifests.of("NodePool"):
        group, kind = (text(pool.body, "spec", "template", "spec", "nodeClassRef", name) for name in ("group", "kind"))
        wrong = (group, kind) in ((placing.AUTO_GROUP, "EC2NodeClass"), (placing.SELF_MANAGED_GROUP, "NodeClass"))
        if wrong or (kind and not group and text(pool.body, "apiVersion") == "karpenter.sh/v1"):
            has = f"{group or 'no group'} and {kind}"
            path = ("spec", "template", "spec", "nodeClassRef")
            yield pool.problem(path, f"nodeClassRef has {has}: {kind} is of {_GROUPS.get(kind, 'another group')}")


_GROUPS = {"EC2NodeClass": placing.SELF_MANAGED_GROUP, "NodeClass": placing.AUTO_GROUP}

RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP502",
        "Accelerator nodes that are consolidated while in use",
        "info",
        "Karpenter ends pods to pack them onto fewer nodes. An engine that is moved loads and compiles again.",
        "Set consolidationPolicy: WhenEmpty, and a consolidateAfter longer than a start.",
        ("A63", "https://github.com/defilantech/LLMKube/pull/658"),
        _consolidated,
    ),
    Rule(
        "GP503",
        "Accelerator nodes open to all pods",
        "info",
        "Any pod may land there, keep the node from being empty, and take memory that weights need.",
        "Add a taint, such as nvidia.com/gpu with effect NoSchedule.",
        ("A63",),
        _open_to_all,
    ),
    Rule(
        "GP510",
        "Node class that does not go with its group",
        "error",
        "nodeClassRef needs group and kind that belong together: karpenter.k8s.aws has EC2NodeClass, eks.amazonaws.com (Auto"
        " Mode) has NodeClass.",
        "Correct group or kind.",
        ("A42", "A43", "https://karpenter.sh/docs/concepts/nodepools/"),
        _no_class,
    ),
    Rule(
        "GP512",
        "Root volume too small for an engine's image",
        "warning",
        "Images of engines take 8 to 30 GB unpacked; Karpenter's default root volume has 20 GiB. The node runs full, pods are"
        " evicted and their images deleted.",
        "Set blockDeviceMappings with 100Gi and more, or instanceStorePolicy: RAID0 where the type has NVMe.",
        ("P24", "B14", "B26"),
        _small_root,
    ),
    Rule(
        "GP513",
        "Fixed machine image in a node class",
        "info",
        "An AMI exists in one region, and stays behind: driver, kubelet and device plugin then differ from what the cluster"
        " expects.",
        "Select by alias, such as al2023@v20260801.",
        ("B25",),
        _fixed_image,
    ),
    Rule(
        "GP514",
        "Amazon Linux 2 for accelerators",
        "warning",
        "EKS publishes no AL2 images for Kubernetes 1.33 and later; drivers for accelerators come with the AL2023 images.",
        "Use alias: al2023@..., or bottlerocket@...",
        ("B04", "B05", "https://docs.aws.amazon.com/eks/latest/userguide/eks-ami-deprecation-faqs.html"),
        _old_family,
    ),
    Rule(
        "GP517",
        "Pods that may never be moved",
        "info",
        "karpenter.sh/do-not-disrupt on the template holds for as long as the pod runs; it is meant for the start.",
        "Set it while the pod starts and take it off when it is ready, or use a disruption budget.",
        ("https://github.com/defilantech/LLMKube/pull/660",),
        _never_moved,
    ),
)
