"""For each rule over a machine: facts that it finds something in, and facts that are only a little different and good."""

from __future__ import annotations

from dataclasses import replace

from glowplug.doctor.node.facts import (
    Cloud,
    Devices,
    Disk,
    Failure,
    Folder,
    Mount,
    NodeFacts,
    Place,
    Shm,
    Speed,
    User,
    Who,
)
from glowplug.engines.accelerators import Accelerators
from glowplug.plan.catalogue import instances
from glowplug.units import GIB, MIB
from glowplug.weights.buffer.memory import Room
from tests.doctor.node.machines import EBS, NVME

GB = 10**9
ROOT = Disk("nvme0n1", EBS, 100 * GB, in_use=True)
STORE = (Disk("nvme1n1", NVME, 3800 * GB, in_use=True), Disk("nvme2n1", NVME, 3800 * GB, in_use=True))
ARRAY = Mount("/cache", "/kubelet/pods/1/volumes/kubernetes.io~empty-dir/cache", "xfs", "/dev/md127", "9:127")
ON_ROOT = Mount("/cache", "/opt/cache", "xfs", "/dev/nvme0n1p1", "259:3")
CACHE = Folder(
    "/cache",
    "/cache",
    mount=ARRAY,
    device="md127",
    disks=STORE,
    size_bytes=6900 * GB,
    free_bytes=6000 * GB,
    inodes=10**8,
    free_inodes=10**8 - 5000,
)
GPUS = Devices(Accelerators("nvidia", ("NVIDIA L4",) * 4, "570.86.15"), driven=4, installed=4)
NONE = Accelerators("none")
WHO = Who("assume-role-with-web-identity", "ASIAEXAMPLE", "arn:aws:sts::123456789012:assumed-role/reader/pod")
AWS = {
    "server": "https://bucket.s3.eu-west-1.amazonaws.com",
    "is_aws": True,
    "addresses": ("52.218.1.1",),
    "region": "eu-west-1",
    "bucket_region": "eu-west-1",
    "who": WHO,
    "latency_s": 0.014,
    "clock_ahead_s": 0.2,
}
THE_STORE = Place("store", "s3://bucket/glowplug", objects=12, speed=Speed("s3://bucket/x", 20 * MIB, 0.1), **AWS)
MODEL = Place("model", "s3://bucket/llm", objects=9, size_bytes=16 * GB, speed=Speed("s3://bucket/y", 256_000_000, 0.4), **AWS)
GOOD = NodeFacts(
    user=User(1000, 1000, "vllm", "/home/vllm"),
    cache=CACHE,
    disks=(ROOT, *STORE),
    shm=Shm(8 * GIB, 8 * GIB),
    memory_bytes=192 * GIB,
    room=Room(80 * GIB, 78 * GIB),
    cpus=12.0,
    machine_cpus=48,
    open_files=1_048_576,
    devices=GPUS,
    cloud=Cloud("g6.12xlarge", "eu-west-1", "eu-west-1b", "metadata service"),
    instance=instances()["g6.12xlarge"],
    kubernetes=True,
    places=(THE_STORE, MODEL),
)
"""A pod on an EKS node in which nothing is wrong."""


def but(**changes):
    """The good machine with something else."""
    return replace(GOOD, **changes)


def cache(**changes):
    return but(cache=replace(CACHE, **changes))


def mount(fs, source="x", point="/cache", part="/", **changes):
    """The cache on another file system, on no disk."""
    return cache(mount=Mount(point, part, fs, source, "0:99"), device="", disks=(), **changes)


def store(**changes):
    return but(places=(replace(THE_STORE, **changes), MODEL))


def model(**changes):
    return but(places=(THE_STORE, replace(MODEL, **changes)))


def devices(**changes):
    return but(devices=replace(GPUS, **changes))


def failed(kind, message="it is so"):
    return store(failure=Failure(kind, message), speed=None)


LAPTOP = NodeFacts(
    user=User(1000, 1000, "me", "/home/me"),
    cache=Folder(
        "/var/tmp/glowplug-1000", "/var/tmp", mount=Mount("/", "/", "ext4", "/dev/nvme0n1p2", "259:2"),
        size_bytes=500 * GB, free_bytes=20 * GB, inodes=10**7, free_inodes=10**6,
    ),
    shm=Shm(8 * GIB, 8 * GIB),
    memory_bytes=16 * GIB,
    room=Room(None, 3 * GIB),
    cpus=8.0,
    open_files=None,
    devices=Devices(installed=1),
)  # fmt: skip
"""A laptop with a GPU of its own that no driver of NVIDIA drives. Nothing is wrong with that."""

CASES = {
    "GP900": (
        [cache(refused=(("write", "permission denied"),)), cache(path="/cache/new", refused=(("write", "read-only file system"),))],
        [GOOD, cache(refused=(("map", "operation not permitted"),))],
    ),
    "GP901": ([cache(refused=(("map", "operation not permitted"),))], [GOOD]),
    "GP902": (
        [cache(mount=ON_ROOT, disks=(ROOT,), device="nvme0n1p1")],
        [GOOD, but(cache=replace(CACHE, mount=ON_ROOT, disks=(ROOT,)), disks=(ROOT,)), mount("overlay")],
    ),
    "GP903": (
        [
            cache(mount=replace(ON_ROOT, root="/mnt/k8s-disks/0/cache"), disks=(ROOT,)),
            cache(mount=replace(ON_ROOT, root="/mnt/.ephemeral"), disks=()),
            cache(path="/mnt/k8s-disks/0/cache", mount=replace(ON_ROOT, point="/", root="/"), disks=(ROOT,)),
        ],
        [
            GOOD,
            cache(mount=ON_ROOT, disks=(ROOT,)),
            cache(path="/mnt/k8s-disks/0/cache", mount=replace(ARRAY, point="/mnt/k8s-disks/0", root="/")),
            cache(path="/mnt/k8s-disks/0/cache", mount=replace(ON_ROOT, point="/mnt/k8s-disks/0", root="/"), disks=(ROOT,)),
        ],
    ),
    "GP904": ([but(disks=(ROOT, replace(STORE[0], in_use=False)))], [GOOD, but(disks=(replace(ROOT, in_use=False),))]),
    "GP905": (
        [cache(refused=(("rename", "operation not permitted"),)), mount("nfs4", refused=(("lock", "no locks available"),))],
        [GOOD, cache(refused=(("write", "permission denied"),))],
    ),
    "GP906": ([mount("nfs4", "fs-1.efs:/"), mount("fuse.s3fs", "s3fs")], [GOOD, mount("ext4"), mount("fuse.fuse-overlayfs")]),
    "GP907": ([mount("tmpfs")], [GOOD, mount("ext4")]),
    "GP908": (
        [replace(mount("overlay", "overlay", "/"), places=(MODEL,))],
        [GOOD, mount("overlay", "overlay", "/"), replace(mount("overlay", "overlay", "/cache"), places=())],
    ),
    "GP909": (
        [cache(free_bytes=GIB), cache(free_inodes=9000)],
        [GOOD, cache(free_bytes=3 * GIB), cache(inodes=0, free_inodes=0), cache(size_bytes=0, free_bytes=0)],
    ),
    "GP910": (
        [cache(free_bytes=600 * GB), cache(free_inodes=4 * 10**6)],
        [GOOD, cache(free_bytes=700 * GB), replace(cache(free_bytes=600 * GB), kubernetes=False), mount("tmpfs", free_bytes=1)],
    ),
    "GP911": ([cache(hollow=True)], [GOOD]),
    "GP920": ([but(user=User(1000910000, 0, "", "/"))], [GOOD]),
    "GP921": (
        [but(user=User(1000, 1000, "vllm", "/", home_refused="permission denied"))],
        [GOOD, but(user=User(1000, 1000, "vllm", "/", home_refused="permission denied"), xdg_cache_home="/cache")],
    ),
    "GP922": ([but(user=User(1000, 1000, "vllm", "/home/vllm", temporary=""))], [GOOD]),
    "GP923": ([but(open_files=4096)], [GOOD, but(open_files=65_535), but(open_files=None)]),
    "GP924": (
        [but(shm=Shm(64 * MIB, 64 * MIB)), but(shm=None)],
        [GOOD, but(shm=Shm(64 * MIB, 64 * MIB), devices=replace(GPUS, usable=Accelerators("nvidia", ("L4",)))), LAPTOP],
    ),
    "GP925": ([but(cpus=5.0), but(cpus=4.5)], [GOOD, but(cpus=6.0), but(cpus=5.5), replace(LAPTOP, cpus=1.0)]),
    "GP926": ([but(room=Room(16 * GIB, 14 * GIB))], [GOOD, but(room=Room(16 * GIB, 15 * GIB)), but(room=Room(None, None)), LAPTOP]),
    "GP927": (
        [model(size_bytes=70 * GIB)],
        [GOOD, replace(model(size_bytes=70 * GIB), room=Room(None, None)), model(size_bytes=70 * GIB, folder=CACHE)],
    ),
    "GP930": (
        [but(devices=Devices(installed=4), instance_given=True)],
        [GOOD, but(instance_given=True), but(devices=Devices(installed=4))],
    ),
    "GP931": (
        [but(devices=Devices(installed=4)), but(devices=Devices(installed=4, driven=4))],
        [GOOD, LAPTOP, but(devices=Devices(installed=4), instance_given=True), but(devices=Devices())],
    ),
    "GP932": ([devices(driven=3)], [GOOD, devices(driven=0), replace(devices(driven=3), instance=None)]),
    "GP933": ([devices(missing=("/dev/nvidia-uvm",))], [GOOD]),
    "GP934": ([devices(closed=("/dev/nvidia0", "/dev/nvidiactl"))], [GOOD]),
    "GP935": (
        [devices(usable=Accelerators("nvidia", ("T4",), "470.256.02"))],
        [GOOD, devices(usable=Accelerators("nvidia", ("T4",), "")), devices(usable=Accelerators("neuron", ("trn1",), "2.21"))],
    ),
    "GP936": (
        [but(instance=instances()["p5.48xlarge"], instance_given=True)],
        [GOOD, but(instance=instances()["p5.48xlarge"], instance_given=True, cloud=Cloud())],
    ),
    "GP940": ([failed("unreachable")], [GOOD, failed("refused")]),
    "GP941": ([failed("refused")], [GOOD, failed("no credentials")]),
    "GP942": ([failed("no credentials")], [GOOD, failed("refused")]),
    "GP943": ([failed("no bucket")], [GOOD, failed("refused")]),
    "GP944": ([failed("wrong region")], [GOOD, failed("refused")]),
    "GP945": ([model(failure=Failure("nothing there", "it is so"))], [GOOD, failed("unreachable")]),
    "GP946": (
        [store(bucket_region="us-east-1")],
        [GOOD, store(bucket_region=""), replace(store(bucket_region="us-east-1"), cloud=Cloud())],
    ),
    "GP947": (
        [store(clock_ahead_s=400.0), model(clock_ahead_s=-7200.0)],
        [GOOD, store(clock_ahead_s=200.0), store(clock_ahead_s=None)],
    ),
    "GP948": (
        [store(who=Who("iam-role", "ASIAX", "arn:aws:sts::1:assumed-role/node/i-1"))],
        [GOOD, replace(store(who=Who("iam-role", "ASIAX")), kubernetes=False)],
    ),
    "GP949": (
        [store(who=Who("env", "AKIAEXAMPLE"))],
        [GOOD, store(who=Who("env", "ASIAEXAMPLE")), replace(store(who=Who("env", "AKIAEXAMPLE")), kubernetes=False)],
    ),
    "GP950": (
        [model(speed=Speed("x", 128 * MIB, 3.0))],
        [
            GOOD,
            model(speed=Speed("x", 10 * MIB, 3.0)),
            replace(model(speed=Speed("x", 128 * MIB, 3.0)), instance=None),
            model(speed=Speed("x", 128 * MIB, 3.0), folder=CACHE),
            model(speed=None),
        ],
    ),
    "GP951": (
        [store(addresses=("10.0.3.7", "10.0.4.9"))],
        [GOOD, store(addresses=("10.0.3.7",), is_aws=False), store(addresses=("52.1.1.1", "10.0.3.7")), store(addresses=())],
    ),
    "GP952": ([store(proxy="through the proxy squid:3128 that HTTPS_PROXY names")], [GOOD]),
    "GP953": ([store(objects=0)], [GOOD, store(objects=None), model(objects=0)]),
    "GP954": (
        [store(folder=replace(CACHE, refused=(("write", "read-only file system"),)))],
        [GOOD, store(folder=CACHE), model(folder=replace(CACHE, refused=(("write", "read-only file system"),)))],
    ),
    "GP955": (
        [model(folder=replace(CACHE, mount=replace(ARRAY, fs="nfs4", source="fs-1.efs:/")))],
        [GOOD, model(folder=CACHE), store(folder=replace(CACHE, mount=replace(ARRAY, fs="nfs4")))],
    ),
}
