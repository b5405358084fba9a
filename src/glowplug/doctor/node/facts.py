"""What a machine is, as plain data: gathered once by ``probe``, judged by ``rules``, printed by ``render`` and ``document``.

Nothing here reads anything. What could not be found out is None, an empty text or an empty tuple, and rules stay silent about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from glowplug.engines.accelerators import Accelerators
from glowplug.weights.buffer.memory import Room

if TYPE_CHECKING:
    from glowplug.plan.catalogue import Instance

INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage"
EBS = "Amazon Elastic Block Store"
NO_ACCELERATORS = Accelerators("none")
UNKNOWN_ROOM = Room(None, None)

Step: TypeAlias = Literal["write", "rename", "lock", "map"]
"""What an engine and its wrapper do in a cache folder; ``map`` is loading compiled code from it."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk, as the kernel shows it.

    Attributes:
        name: such as ``nvme1n1``.
        model: as its controller names itself; empty if it doesn't.
        size_bytes: of the whole disk.
        in_use: a file system on it is mounted somewhere on the machine, or an array or a volume is made of it.
    """

    name: str
    model: str
    size_bytes: int
    in_use: bool

    @property
    def is_instance_store(self) -> bool:
        """Whether it is in the machine itself, and gone with it."""
        return self.model.startswith(INSTANCE_STORE)

    @property
    def is_ebs(self) -> bool:
        """Whether it is reached over the network."""
        return self.model.startswith(EBS)


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of the mount table.

    Attributes:
        point: where it is mounted.
        root: which part of the file system is mounted there. In a pod: the path of the volume on the node's file system.
        fs: type, such as ``xfs``, ``overlay``, ``nfs4``.
        source: the device, or what stands for one.
        device: major and minor, such as ``259:1``.
    """

    point: str
    root: str
    fs: str
    source: str
    device: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder in which files were really written, and removed again.

    Attributes:
        path: absolute.
        tried: where it was tried: the folder, or the nearest one above it that exists.
        mount: what is mounted there.
        device: the name of the block device, such as ``md127``; empty without one.
        disks: that it lies on.
        size_bytes: of the file system.
        free_bytes: that this user may take of it.
        inodes: of the file system; 0 where it has no fixed number.
        free_inodes: that this user may take.
        refused: steps that failed, and why.
        hollow: there are folders in it, and no file.
    """

    path: str
    tried: str
    mount: Mount | None = None
    device: str = ""
    disks: tuple[Disk, ...] = ()
    size_bytes: int = 0
    free_bytes: int = 0
    inodes: int = 0
    free_inodes: int = 0
    refused: tuple[tuple[Step, str], ...] = ()
    hollow: bool = False

    def refusal(self, *steps: Step) -> str:
        """Why the first of these steps failed; empty if none did."""
        return next((reason for step, reason in self.refused if step in steps), "")


@dataclass(frozen=True, slots=True)
class User:
    """As whom the doctor runs, and an engine beside it would.

    Attributes:
        uid: effective.
        gid: effective.
        name: as programs find it; empty if they can't.
        home: of the environment, else of the user; empty if there is none.
        home_refused: why nothing can be written there; empty if it can.
        temporary: the folder in which temporary files can be made; empty if there is none.
    """

    uid: int
    gid: int
    name: str
    home: str = ""
    home_refused: str = ""
    temporary: str = "/tmp"  # noqa: S108  what most have


@dataclass(frozen=True, slots=True)
class Shm:
    """``/dev/shm``.

    Attributes:
        size_bytes: of it.
        free_bytes: what is left.
    """

    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Devices:
    """Accelerators: what can be used here, and what the machine has.

    Attributes:
        usable: what a command may use here.
        driven: how many the kernel's driver knows on the whole machine; 0 where it doesn't tell.
        installed: how many are on the PCI bus.
        missing: device files that must be beside those that are there, and aren't.
        closed: device files that this user may not open.
    """

    usable: Accelerators = NO_ACCELERATORS
    driven: int = 0
    installed: int = 0
    missing: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many a command may use here."""
        return len(self.usable.models)


@dataclass(frozen=True, slots=True)
class Cloud:
    """What kind of machine it is, by its own account.

    Attributes:
        instance_type: of Amazon EC2; empty elsewhere.
        region: where it stands.
        zone: the same.
        source: who says so: ``metadata service`` or ``firmware``; empty if nobody does.
    """

    instance_type: str = ""
    region: str = ""
    zone: str = ""
    source: Literal["", "metadata service", "firmware"] = ""


@dataclass(frozen=True, slots=True)
class Who:
    """Whose credentials requests to a store are signed with.

    Attributes:
        provider: botocore's name for what gave them, such as ``assume-role-with-web-identity``; ``unsigned`` without any.
        access_key: its id. Not secret, yet never shown whole.
        arn: of the identity, where the store is Amazon's and says so.
    """

    provider: str
    access_key: str = field(default="", repr=False)
    arn: str = ""

    @property
    def ending(self) -> str:
        """The last four characters of the access key's id."""
        return self.access_key[-4:]


Failed: TypeAlias = Literal["unreachable", "refused", "no credentials", "no bucket", "wrong region", "nothing there"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a place can't be used.

    Attributes:
        kind: what sort of failure.
        message: what happened, in one line.
        hint: what to do.
    """

    kind: Failed
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Speed:
    """One reading of a few seconds.

    Attributes:
        name: the object that was read.
        size_bytes: that arrived.
        seconds: that it took.
    """

    name: str
    size_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """Throughput; 0 if nothing was read."""
        return self.size_bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """A store or a model.

    Attributes:
        role: what it is for.
        url: as the user wrote it, without credentials.
        server: scheme, host and port; empty for a folder.
        is_aws: Amazon's own.
        addresses: of the server, as they resolve.
        proxy: what is in the way, in words; empty if nothing is.
        region: that requests are signed for.
        bucket_region: where the bucket says it is; empty if it doesn't.
        who: identity; None for what needs none.
        latency_s: the shortest of a few small requests; None if none was answered.
        clock_ahead_s: this machine's clock less the server's.
        objects: how many were seen, at most the listing's first page.
        size_bytes: of a model: its weight files, as far as they were seen.
        folder: where it is one of this machine.
        speed: of reading it; None if it was not read.
        failure: why it can't be used; None if it can.
    """

    role: Literal["store", "model"]
    url: str
    server: str = ""
    is_aws: bool = False
    addresses: tuple[str, ...] = ()
    proxy: str = ""
    region: str = ""
    bucket_region: str = ""
    who: Who | None = None
    latency_s: float | None = None
    clock_ahead_s: float | None = None
    objects: int | None = None
    size_bytes: int = 0
    folder: Folder | None = None
    speed: Speed | None = None
    failure: Failure | None = None

    @property
    def label(self) -> str:
        """For findings."""
        return f"{self.role} {self.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """All of it.

    Attributes:
        user: as whom.
        cache: the cache folder.
        disks: all of the machine.
        shm: ``/dev/shm``; None if there is none.
        memory_bytes: of the machine; 0 if unknown.
        room: the tightest limit, and what is free.
        cpus: processors that may be used, by affinity and quota.
        machine_cpus: processors of the machine; 0 if unknown.
        open_files: hard limit of open files; None for none.
        devices: accelerators.
        cloud: the machine's own account of itself.
        instance: the type that it is judged by: ``--instance``, or its own account where the catalogue knows it.
        instance_given: ``--instance`` was given.
        kubernetes: it is a node of a cluster, or a pod.
        xdg_cache_home: that variable; empty if it isn't set.
        places: the store and the model, those that were given.
    """

    user: User
    cache: Folder
    disks: tuple[Disk, ...] = ()
    shm: Shm | None = None
    memory_bytes: int = 0
    room: Room = UNKNOWN_ROOM
    cpus: float = 1.0
    machine_cpus: int = 0
    open_files: int | None = None
    devices: Devices = Devices()
    cloud: Cloud = Cloud()
    instance: Instance | None = None
    instance_given: bool = False
    kubernetes: bool = False
    xdg_cache_home: str = ""
    places: tuple[Place, ...] = ()

    @property
    def instance_store(self) -> tuple[Disk, ...]:
        """Disks that are in the machine itself."""
        return tuple(disk for disk in self.disks if disk.is_instance_store)

    def place(self, role: Literal["store", "model"]) -> Place | None:
        """The store or the model; None if it wasn't given."""
        return next((place for place in self.places if place.role == role), None)
