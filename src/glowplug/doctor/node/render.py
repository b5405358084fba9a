"""A machine as a person reads it: what it is, in a short table of 80 columns, then what is wrong, the worst first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from glowplug.doctor.base import SEVERITIES
from glowplug.doctor.node.identity import UNSIGNED
from glowplug.doctor.node.rules.folder import models
from glowplug.doctor.render import counted, hint, listed, wrapped
from glowplug.plan.figures import speed as rate
from glowplug.units import count, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from glowplug.doctor.base import Finding
    from glowplug.doctor.checking import Checked
    from glowplug.doctor.node.facts import Folder, NodeFacts, Place

_LABEL = 16
_MOST_LISTED = 1000


def render(facts: NodeFacts, checked: Checked) -> str:
    """All of it; ends with a newline."""
    lines = []
    for label, text in _table(facts):
        lines += wrapped(text, f"{label:<{_LABEL}}", " " * _LABEL)
    lines += ["", *listed(replace(each, field="") for each in _worst_first(checked.findings))]
    lines += wrapped(f"this machine: {counted(checked)}{hint(checked)}", "", "")
    return "\n".join(lines) + "\n"


def _worst_first(found: Sequence[Finding]) -> list[Finding]:
    """Objects by their worst finding, each object's findings together."""
    worst: dict[tuple[str, str], int] = {}
    for each in found:
        key, bad = (each.file, each.object), SEVERITIES.index(each.severity)
        worst[key] = min(bad, worst.get(key, bad))
    return sorted(found, key=lambda each: (worst[each.file, each.object], each.file, each.object, SEVERITIES.index(each.severity)))


def _table(facts: NodeFacts) -> Iterator[tuple[str, str]]:
    yield "machine", _machine(facts)
    user = facts.user
    yield "user", f"{user.name or 'no name'} (uid {user.uid}, gid {user.gid}), home {user.home or 'none'}"
    yield "cache folder", _folder(facts.cache)
    store = facts.instance_store
    if store and not any(disk.is_instance_store for disk in facts.cache.disks):
        yield "instance store", f"{models(store)}, {format_bytes(sum(disk.size_bytes for disk in store))}"
    shm = facts.shm
    free = f"{format_bytes(shm.free_bytes)} of {format_bytes(shm.size_bytes)} free" if shm is not None else "none"
    yield "/dev/shm", free  # noqa: S108  a label
    yield "memory", _memory(facts)
    yield "processors", f"{facts.cpus:g}" + (f" of {facts.machine_cpus}" if facts.machine_cpus else "")
    yield "accelerators", _accelerators(facts)
    for number, place in enumerate(facts.places):
        yield from _place(place, facts.places[:number])


def _machine(facts: NodeFacts) -> str:
    cloud = facts.cloud
    parts = []
    if cloud.instance_type:
        where = f" in {cloud.zone or cloud.region}" if cloud.region else ""
        parts.append(f"{cloud.instance_type}{where} (by its {cloud.source})")
    if facts.instance_given and facts.instance is not None:
        parts.append(f"judged as {facts.instance.name}")
    if facts.kubernetes:
        parts.append("Kubernetes")
    return ", ".join(parts) or "no EC2 instance, as far as it tells"


def _folder(folder: Folder) -> str:
    where = folder.path if folder.tried == folder.path else f"{folder.path}, to be made in {folder.tried}"
    parts = []
    if folder.mount is not None:
        on, disks = f" on {folder.device}" if folder.device else "", models(folder.disks)
        parts.append(folder.mount.fs + on + (f" = {disks}" if disks not in {"", folder.device} else ""))
    if folder.size_bytes:
        parts.append(f"{format_bytes(folder.free_bytes)} of {format_bytes(folder.size_bytes)} free")
    parts.append("writable" if not folder.refusal("write") else "not writable")
    return f"{where}: {', '.join(parts)}"


def _memory(facts: NodeFacts) -> str:
    room = facts.room
    limit = f"limit {format_bytes(room.limit_bytes)}" if room.limit_bytes is not None else "no limit"
    free = f", {format_bytes(room.free_bytes)} free" if room.free_bytes is not None else ""
    return limit + free + (f"; the machine has {format_bytes(facts.memory_bytes)}" if facts.memory_bytes else "")


def _accelerators(facts: NodeFacts) -> str:
    devices = facts.devices
    kinds: dict[str, int] = {}
    for model in devices.usable.models:
        kinds[model] = kinds.get(model, 0) + 1
    parts = [f"{number} x {model}" for model, number in kinds.items()] or ["none that can be used here"]
    if devices.usable.driver and kinds:
        parts.append(f"driver {devices.usable.driver}")
    has = max(devices.driven, devices.installed)
    if has > devices.count:
        parts.append(f"the machine has {has}")
    return ", ".join(parts)


def _place(place: Place, before: Sequence[Place]) -> Iterator[tuple[str, str]]:
    yield place.role, _reached(place)
    if place.who is not None and place.who not in [other.who for other in before]:
        yield "  identity", _identity(place)
    if place.is_aws and place.addresses and place.server not in [other.server for other in before]:
        yield "  way", _way(place)
    if place.speed is not None and place.speed.size_bytes:
        yield "  speed", _speed(place)


def _reached(place: Place) -> str:
    parts = []
    if place.latency_s is not None:
        milliseconds = 1000 * place.latency_s
        parts.append(f"answers in {milliseconds:.{0 if milliseconds >= 10 else 1}f} ms")
    if place.bucket_region or place.is_aws:
        parts.append(f"in {place.bucket_region or place.region}")
    if place.objects is not None:
        parts.append(("at least " if place.objects >= _MOST_LISTED else "") + count(place.objects, "object"))
    if place.size_bytes:
        parts.append(f"{format_bytes(place.size_bytes)} of weights")
    if place.folder is not None:
        parts.append(_folder(place.folder).partition(": ")[2].rpartition(", ")[0])
    if place.failure is not None:
        parts.append("can't be used")
    return f"{place.url}: {', '.join(part for part in parts if part)}".removesuffix(": ")


def _identity(place: Place) -> str:
    who = place.who
    if who is None or who.provider == UNSIGNED:
        return "none: requests are not signed"
    return ", ".join(part for part in (f"from {who.provider}", f"key ...{who.ending}", who.arn) if part)


def _way(place: Place) -> str:
    address = place.addresses[0]
    return f"{address}; whether a gateway endpoint or a NAT gateway carries it can't be seen from here"


def _speed(place: Place) -> str:
    speed = place.speed
    if speed is None:
        return "unknown"
    read = f"{rate(speed.bytes_per_s)} ({format_bytes(speed.size_bytes)} in {format_seconds(speed.seconds)})"
    if not place.size_bytes or not speed.bytes_per_s or speed.size_bytes >= place.size_bytes:
        return read
    return f"{read}; all of it in {format_seconds(place.size_bytes / speed.bytes_per_s)} at that speed"
