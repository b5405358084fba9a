"""A machine as JSON, for a program. Field names are stable; new ones may be added. Bytes, seconds, counts.

Of an access key only the last four characters are in it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from glowplug.doctor.document import SCHEMA, counts, finding_to_json

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.doctor.checking import Checked
    from glowplug.doctor.node.facts import Cloud, Disk, Folder, NodeFacts, Place


def to_json(facts: NodeFacts, checked: Checked) -> dict[str, Json]:
    """Facts and findings."""
    return {
        "schema": SCHEMA,
        "counts": counts(checked),
        "findings": [finding_to_json(each) for each in checked.findings],
        "facts": _facts(facts),
    }


def _facts(facts: NodeFacts) -> dict[str, Json]:
    user, shm, room, devices = facts.user, facts.shm, facts.room, facts.devices
    return {
        "machine": {**_cloud(facts.cloud), "judged_as": facts.instance.name if facts.instance is not None else None},
        "kubernetes": facts.kubernetes,
        "user": {"uid": user.uid, "gid": user.gid, "name": user.name, "home": user.home, "temporary": user.temporary},
        "cache_dir": _folder(facts.cache),
        "disks": [_disk(disk) for disk in facts.disks],
        "shm": {"size_bytes": shm.size_bytes, "free_bytes": shm.free_bytes} if shm is not None else None,
        "memory": {"machine_bytes": facts.memory_bytes, "limit_bytes": room.limit_bytes, "free_bytes": room.free_bytes},
        "processors": {"usable": facts.cpus, "machine": facts.machine_cpus},
        "open_files": facts.open_files,
        "accelerators": {
            "kind": devices.usable.kind,
            "models": list(devices.usable.models),
            "driver": devices.usable.driver,
            "driven": devices.driven,
            "installed": devices.installed,
            "missing": list(devices.missing),
            "closed": list(devices.closed),
        },
        **{place.role: _place(place) for place in facts.places},
    }


def _cloud(cloud: Cloud) -> dict[str, Json]:
    return {"instance_type": cloud.instance_type, "region": cloud.region, "zone": cloud.zone, "source": cloud.source}


def _disk(disk: Disk) -> dict[str, Json]:
    return {"name": disk.name, "model": disk.model, "size_bytes": disk.size_bytes, "in_use": disk.in_use}


def _folder(folder: Folder) -> dict[str, Json]:
    return {
        "path": folder.path,
        "tried": folder.tried,
        "mount": asdict(folder.mount) if folder.mount is not None else None,
        "device": folder.device,
        "disks": [_disk(disk) for disk in folder.disks],
        "size_bytes": folder.size_bytes,
        "free_bytes": folder.free_bytes,
        "inodes": folder.inodes,
        "free_inodes": folder.free_inodes,
        "refused": dict(folder.refused),
    }


def _place(place: Place) -> dict[str, Json]:
    who, speed, failure = place.who, place.speed, place.failure
    return {
        "url": place.url,
        "server": place.server,
        "addresses": list(place.addresses),
        "proxy": place.proxy,
        "region": place.region,
        "bucket_region": place.bucket_region,
        "identity": {"provider": who.provider, "access_key_ending": who.ending, "arn": who.arn} if who is not None else None,
        "latency_s": place.latency_s,
        "clock_ahead_s": place.clock_ahead_s,
        "objects": place.objects,
        "size_bytes": place.size_bytes,
        "folder": _folder(place.folder) if place.folder is not None else None,
        "speed": {
            "object": speed.name, "bytes": speed.size_bytes, "seconds": speed.seconds, "bytes_per_s": round(speed.bytes_per_s)
        } if speed is not None else None,
        "failure": {"kind": failure.kind, "message": failure.message, "hint": failure.hint} if failure is not None else None,
    }  # fmt: skip
