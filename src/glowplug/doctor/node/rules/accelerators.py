"""Accelerators: those that should be there are there, and this user may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.base import Problem, Rule
from glowplug.units import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.node.facts import NodeFacts

_OBJECT = "accelerators"
_CUDA_12_DRIVER = 525


def _promised_and_missing(facts: NodeFacts) -> Iterator[Problem]:
    instance = facts.instance
    if instance is not None and facts.instance_given and not facts.devices.count:
        message = f"none can be used here; {instance.name} has {instance.chips} x {instance.accelerator.name}"
        yield Problem(_OBJECT, "usable", message, "/dev")


def _installed_and_unusable(facts: NodeFacts) -> Iterator[Problem]:
    given = facts.instance is not None and facts.instance_given
    serves = facts.kubernetes or facts.cloud.instance_type
    if facts.devices.installed and not facts.devices.count and serves and not given:
        has = f"the machine has {facts.devices.installed}"
        why = "the driver is there, so they were not given to this container" if facts.devices.driven else "no driver is loaded"
        yield Problem(_OBJECT, "usable", f"{has} and none can be used here: {why}", "/dev")


def _lost(facts: NodeFacts) -> Iterator[Problem]:
    instance, driven = facts.instance, facts.devices.driven
    if instance is not None and instance.chips and 0 < driven < instance.chips:
        message = f"the driver knows {driven} of the {instance.chips} that {instance.name} has"
        yield Problem(_OBJECT, "driven", message, "/proc/driver/nvidia/gpus" if facts.devices.usable.kind != "neuron" else "/sys")


def _missing_files(facts: NodeFacts) -> Iterator[Problem]:
    for path in facts.devices.missing:
        yield Problem(_OBJECT, "files", f"{path} is not there, and CUDA does not start without it", path)


def _closed_files(facts: NodeFacts) -> Iterator[Problem]:
    closed = facts.devices.closed
    if closed:
        message = f"uid {facts.user.uid} may not open {count(len(closed), 'device file')}: {', '.join(closed)}"
        yield Problem(_OBJECT, "files", message, closed[0])


def _old_driver(facts: NodeFacts) -> Iterator[Problem]:
    usable = facts.devices.usable
    major = usable.driver.partition(".")[0]
    if usable.kind == "nvidia" and major.isdecimal() and int(major) < _CUDA_12_DRIVER:
        yield Problem(_OBJECT, "driver", f"driver {usable.driver}: CUDA 12 needs {_CUDA_12_DRIVER}", "/proc/driver/nvidia/version")


def _other_type(facts: NodeFacts) -> Iterator[Problem]:
    found, instance = facts.cloud.instance_type, facts.instance
    if found and instance is not None and found != instance.name:
        place = "/sys/devices/virtual/dmi/id/product_name" if facts.cloud.source == "firmware" else ""
        yield Problem("machine", "type", f"is a {found} by its {facts.cloud.source}, not a {instance.name}", place)


RULES: tuple[Rule[NodeFacts], ...] = (
    Rule(
        "GP930",
        "No accelerator where there should be some",
        "error",
        "The instance type that was named has accelerators, and there is no device file here that an engine could open.",
        "In a pod, ask for them in limits (nvidia.com/gpu, aws.amazon.com/neuron). On the node, look whether the driver is loaded"
        " and the device plugin runs.",
        ("B05", "B07"),
        _promised_and_missing,
    ),
    Rule(
        "GP931",
        "Accelerators of the machine that can't be used here",
        "warning",
        "They are on the PCI bus, and no device file is here. Without a driver nobody can use them; with one, the container was not"
        " given any.",
        "In a pod that is to serve, ask for them in limits. On the node, use an accelerated AMI, whose driver fits.",
        ("B05", "P23"),
        _installed_and_unusable,
    ),
    Rule(
        "GP932",
        "Fewer accelerators than the instance type has",
        "warning",
        "The driver knows fewer devices than were bought: one has failed or fallen off the bus, and engines that need all of them"
        " stay Pending on this node.",
        "Look for Xid errors in dmesg, drain the node, and replace it.",
        ("https://docs.nvidia.com/deploy/xid-errors/",),
        _lost,
    ),
    Rule(
        "GP933",
        "GPU without CUDA's device files",
        "error",
        "CUDA opens /dev/nvidiactl and /dev/nvidia-uvm before any GPU. Without them it ends with 'unknown error' (999).",
        "Let nvidia-modprobe or nvidia-persistenced make them at boot, or let the container toolkit inject them.",
        (
            "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/index.html#device-node-verification",
            "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934",
        ),
        _missing_files,
    ),
    Rule(
        "GP934",
        "Device files that this user may not open",
        "error",
        "The driver's files belong to another user or group, so an engine sees no device.",
        "Run as a member of their group (supplementalGroups), or let the driver make them for everybody.",
        ("https://kubernetes.io/docs/tasks/configure-pod-container/security-context/",),
        _closed_files,
    ),
    Rule(
        "GP935",
        "Driver too old for CUDA 12",
        "error",
        "PyTorch and vLLM are built for CUDA 12 or 13. CUDA 12 needs driver 525 or later, CUDA 13 driver 580.",
        "Use a current accelerated AMI.",
        ("https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",),
        _old_driver,
    ),
    Rule(
        "GP936",
        "Another instance type than --instance says",
        "warning",
        "What is judged by the type (devices, disks, network) is judged by the wrong one.",
        "Name the type that it is, or leave --instance out.",
        ("https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html",),
        _other_type,
    ),
)
