"""Instance types and accelerators: facts of ``data/instances.json``, looked up by name, and nothing measured or assumed.

What is assumed about the network is said where it is used (``fetch.rates``): the catalogue's network figures count all cards, and
with several cards most of them carry EFA traffic alone, which S3 doesn't speak.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

from glowplug.errors import UsageError
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of device.

    Attributes:
        name: such as ``h100``, ``a100-80gb``, ``trainium2``.
        kind: ``gpu``, ``neuron``, or ``other``.
        memory_bytes: of one device: a GPU, or a logical NeuronCore.
        tp_degrees: the only TP sizes its runtime knows; empty where it sets none.
        unserved: why nothing here serves on it; empty if something does.
        note: what to know about it; may be empty.
    """

    name: str
    kind: Literal["gpu", "neuron", "other"]
    memory_bytes: int
    tp_degrees: tuple[int, ...] = ()
    unserved: str = ""
    note: str = ""

    @property
    def noun(self) -> str:
        """What one device is called."""
        return "NeuronCore" if self.kind == "neuron" else "GPU"


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance type.

    Attributes:
        name: such as ``p5.48xlarge``.
        arch: ``amd64`` or ``arm64``.
        accelerator: what is in it.
        devices: how many TP can count; 0 where it has a fraction of one.
        chips: how many the chip's resource name counts.
        vcpus: virtual processors.
        memory_bytes: of the whole machine.
        allocatable_bytes: of it for pods, as Karpenter expects it.
        allocatable_mcpu: thousandths of a processor for pods.
        network_mbps: Mbit/s, all cards together.
        cards: network cards.
        ebs_mbps: Mbit/s to EBS.
        nvme_bytes: instance store; 0 without one.
    """

    name: str
    arch: str
    accelerator: Accelerator
    devices: int
    chips: int
    vcpus: int
    memory_bytes: int
    allocatable_bytes: int
    allocatable_mcpu: int
    network_mbps: int
    cards: int
    ebs_mbps: int
    nvme_bytes: int

    @property
    def unserved(self) -> str:
        """Why it can't be planned for; empty if it can."""
        if self.devices == 0:
            return f"it has a fraction of one {self.accelerator.name}, which no device plugin counts"
        return self.accelerator.unserved


@cache
def accelerators() -> dict[str, Accelerator]:
    """All, by name."""
    return {
        name: Accelerator(
            name,
            facts["kind"],
            facts["memory_mib"] * MIB,
            tuple(facts.get("tp", ())),
            facts.get("unserved", ""),
            facts.get("note", ""),
        )
        for name, facts in _document()["accelerators"].items()
    }


@cache
def instances() -> dict[str, Instance]:
    """All, by name."""
    document = _document()
    made = {}
    for row in document["instances"]:
        facts = dict(zip(document["columns"], row, strict=True))
        made[facts["name"]] = Instance(
            name=facts["name"], arch=facts["arch"], accelerator=accelerators()[facts["accelerator"]],
            devices=facts["devices"], chips=facts["chips"], vcpus=facts["vcpus"],
            memory_bytes=facts["memory_mib"] * MIB, allocatable_bytes=facts["allocatable_mib"] * MIB,
            allocatable_mcpu=facts["allocatable_mcpu"], network_mbps=facts["network_mbps"], cards=facts["cards"],
            ebs_mbps=facts["ebs_mbps"], nvme_bytes=facts["nvme_gb"] * 10**9,
        )  # fmt: skip
    return made


def find_instance(name: str) -> Instance:
    """The type of this name, in any case.

    Raises:
        UsageError: not in the catalogue, or nothing here serves on it.
    """
    found = instances().get(name.strip().lower())
    if found is None:
        hint = _nearest(name.strip().lower(), instances())
        raise UsageError(f"--instance: {name!r} is not in the catalogue", object="--instance", hint=hint)
    if found.unserved:
        hint = _suggest_served(found.name.partition(".")[0])
        raise UsageError(f"--instance: {found.name} can't serve: {found.unserved}", object="--instance", hint=hint)
    return found


def find_accelerator(name: str) -> Accelerator:
    """The accelerator of this name; vendor, blanks and case don't matter.

    Raises:
        UsageError: not in the catalogue, of several sizes, or nothing here serves on it.
    """
    wanted = re.sub(r"[\s_]+", "-", name.strip().lower()).removeprefix("nvidia-").removeprefix("tesla-")
    known = accelerators()
    served = sorted(each.name for each in known.values() if not each.unserved)
    if wanted not in known:
        sizes = [each for each in known if each.startswith(f"{wanted}-")]
        if sizes:
            raise UsageError(f"--gpu: {name!r} could be several", object="--gpu", hint=f"write {' or '.join(sizes)}")
        raise UsageError(f"--gpu: {name!r} is not in the catalogue", object="--gpu", hint=_nearest(wanted, served))
    found = known[wanted]
    if found.unserved:
        raise UsageError(f"--gpu: {found.name}: {found.unserved}", object="--gpu", hint=f"choose one of {', '.join(served)}")
    return found


def with_accelerator(accelerator: Accelerator) -> list[Instance]:
    """The types that have it, whole, fewest devices first, then least memory."""
    return sorted(
        (each for each in instances().values() if each.accelerator is accelerator and not each.unserved),
        key=lambda each: (each.devices, each.memory_bytes),
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    family = name.partition(".")[0]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6) or [each for each in names if each.startswith(f"{family}.")][:4]
    if near:
        return f"did you mean {' or '.join(near)}?"
    unserved = {each.name for each in instances().values() if each.unserved}
    families = sorted({each.partition(".")[0] for each in names if each not in unserved})
    sizes = ", each with its size, as in p5.48xlarge" if any("." in each for each in names) else ""
    return f"choose one of {', '.join(families)}{sizes}"


def _suggest_served(family: str) -> str:
    near = family.rstrip("f")
    served = [each.name for each in instances().values() if not each.unserved and each.name.startswith(f"{near}.")][:3]
    return f"the nearest that can: {', '.join(served)}" if served else "choose a g5, g6, g6e, p4, p5, inf2, trn1 or trn2 type"


@cache
def _document() -> dict:  # type: ignore[type-arg]  # JSON; read only here
    return json.loads(resources.files("glowplug.plan").joinpath("data/instances.json").read_text("utf-8"))  # type: ignore[no-any-return]
