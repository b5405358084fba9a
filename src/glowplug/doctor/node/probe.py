"""All facts of the machine, gathered once. Without a network it takes seconds; nothing stays behind."""

from __future__ import annotations

import os.path
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.cache.live import check_base, default_base
from glowplug.doctor.node import machine
from glowplug.doctor.node.cloud import find_cloud
from glowplug.doctor.node.disks import Disks
from glowplug.doctor.node.facts import Folder, NodeFacts
from glowplug.doctor.node.files import on
from glowplug.doctor.node.folders import look_at
from glowplug.doctor.node.mounts import read_mounts
from glowplug.doctor.node.places import Visit, look_at_places
from glowplug.plan.catalogue import find_instance, instances
from glowplug.weights.buffer.memory import find_room

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user names.

    Attributes:
        cache_dir: the cache folder; None: where ``glowplug run`` would put it.
        store: URL of the store; None: none is looked at.
        model: URL or path of the model; None: none is looked at.
        instance: the instance type that this machine should be; None: by its own account.
    """

    cache_dir: str | None = None
    store: str | None = None
    model: str | None = None
    instance: str | None = None

    @classmethod
    def over(cls, given: Mapping[str, str | None], env: Mapping[str, str]) -> Wish:
        """What is given, over what the environment says: the variables of ``glowplug run``."""
        usual = {"cache_dir": env.get("GLOWPLUG_CACHE_DIR") or None, "store": env.get("GLOWPLUG_STORE") or None}
        return cls(**{name: given.get(name) or usual.get(name) for name in ("cache_dir", "store", "model", "instance")})


def probe(wish: Wish, *, env: Mapping[str, str], root: str = "/") -> NodeFacts:
    """Look at everything.

    Args:
        wish: what to look at.
        env: the environment of a start.
        root: where ``proc``, ``sys``, ``dev`` and all folders lie; a test's own tree.

    Raises:
        UsageError: a URL or an instance type that can't be.
    """
    given = find_instance(wish.instance) if wish.instance is not None else None
    urls = (("store", wish.store), ("model", wish.model))
    visits = [Visit(role, url, env=env) for role, url in urls if url]  # type: ignore[arg-type]  # the two literals above
    mounts = read_mounts(root)
    disks = Disks(root, mounts)
    room = find_room(Path(root))
    cloud = find_cloud(env, root)
    path = os.path.abspath(wish.cache_dir) if wish.cache_dir else str(default_base(env))
    return NodeFacts(
        user=machine.find_user(env, root),
        cache=_private(look_at(path, root=root, mounts=mounts, disks=disks), root),
        disks=disks.all(),
        shm=machine.find_shm(root),
        memory_bytes=machine.memory_bytes(root),
        room=room,
        cpus=machine.usable_cpus(root),
        machine_cpus=machine.machine_cpus(root),
        open_files=machine.open_files(),
        devices=machine.find_devices(env, root),
        cloud=cloud,
        instance=given or instances().get(cloud.instance_type),
        instance_given=given is not None,
        kubernetes=machine.in_kubernetes(env, root),
        xdg_cache_home=env.get("XDG_CACHE_HOME", ""),
        places=look_at_places(visits, root=root, mounts=mounts, disks=disks, free_bytes=room.free_bytes),
    )


def _private(folder: Folder, root: str) -> Folder:
    """The cache folder, refused where ``glowplug run`` would refuse it although it can be written."""
    if folder.refused or folder.tried != folder.path:
        return folder
    try:
        check_base(Path(on(root, folder.path)))
    except PermissionError as error:
        return replace(folder, refused=(("write", str(error)),))
    except OSError:
        return folder
    return folder
