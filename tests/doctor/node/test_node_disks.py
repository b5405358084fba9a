"""On which disks a folder lies, on trees of /proc and /sys as EKS nodes and pods show them, and on this machine."""

from __future__ import annotations

import os

import pytest

from glowplug.doctor.node.disks import Disks
from glowplug.doctor.node.mounts import mount_of, read_mounts
from tests.doctor.node.machines import EBS, NVME, PODS, eks_disks, node, pod


def under(machine, path):
    """The mount, its device, and the names and models of the disks below it."""
    mounts = read_mounts(str(machine))
    mount = mount_of(path, mounts)
    device, disks = Disks(str(machine), mounts).under(mount)
    return mount, device, [(disk.name, disk.model) for disk in disks]


STORE = [("nvme1n1", NVME), ("nvme2n1", NVME)]
ROOT = [("nvme0n1", EBS)]


def test_a_node_with_its_array(machine):
    node(machine)
    assert under(machine, "/mnt/k8s-disks/0/cache")[1:] == ("md127", STORE)
    assert under(machine, "/var/lib/kubelet/pods")[1:] == ("md127", STORE)
    assert under(machine, "/mnt/k8s-disks")[1:] == ("nvme0n1p1", ROOT)
    assert under(machine, "/var/tmp")[1:] == ("nvme0n1p1", ROOT)


def test_an_empty_dir_on_the_array_is_told_from_a_host_path_on_the_root_volume(machine, tmp_path):
    mount, device, disks = under(pod(machine), "/cache/x")
    assert (mount.root, device, disks) == (f"{PODS}/kubernetes.io~empty-dir/cache", "md127", STORE)
    other = type(machine)(tmp_path / "other")
    mount, device, disks = under(pod(other, part="/mnt/k8s-disks/0/cache"), "/cache")
    assert (mount.root, device, disks) == ("/mnt/k8s-disks/0/cache", "nvme0n1p1", ROOT)


def test_a_containers_own_layer_is_on_no_disk_that_can_be_seen(machine):
    mount, device, disks = under(pod(machine), "/var/tmp")
    assert (mount.fs, device, disks) == ("overlay", "", [])


def test_a_logical_volume_on_a_partition_and_a_whole_disk(machine):
    machine.disk("sda", "8:0", partitions=[("sda1", "8:1")])
    machine.disk("sdb", "8:16", model="Samsung")
    machine.made_of("dm-0", "253:0", ["sda1", "sdb"])
    machine.write("sys/devices/virtual/block/dm-0/dm/name", "vg-root\n")
    machine.mount("/", "ext4", "/dev/mapper/vg-root", "253:0")
    assert under(machine, "/x")[1:] == ("dm-0", [("sda", ""), ("sdb", "Samsung")])


@pytest.mark.parametrize(("source", "device"), [("/dev/sda1", "sda1"), ("/dev/mapper/vg-root", "dm-0"), ("/dev/mapper/other", "")])
def test_btrfs_has_a_number_that_no_device_has_and_is_found_by_name(machine, source, device):
    machine.disk("sda", "8:0", model="Disk", partitions=[("sda1", "8:1")])
    machine.made_of("dm-0", "253:0", ["sda1"])
    machine.write("sys/devices/virtual/block/dm-0/dm/name", "vg-root\n")
    machine.mount("/", "btrfs", source, "0:27")
    assert under(machine, "/x")[1:] == (device, [("sda", "Disk")] if device else [])


def test_a_file_that_is_mounted_lies_where_the_file_lies(machine):
    eks_disks(machine)
    machine.mount("/", "xfs", "/dev/nvme0n1p1", "259:3")
    machine.disk("loop0", "7:0", place="sys/devices/virtual/block/loop0")
    machine.write("sys/devices/virtual/block/loop0/loop/backing_file", "/images/disk.img\n")
    machine.mount("/data", "ext4", "/dev/loop0", "7:0")
    assert under(machine, "/data")[1:] == ("loop0", ROOT)


def test_devices_that_are_made_of_each_other_end(machine):
    machine.disk("sda", "8:0")
    machine.made_of("dm-0", "253:0", ["sda"])
    (machine.folder("sys/devices/virtual/block/dm-0/slaves") / "dm-0").symlink_to(machine.folder("sys/devices/virtual/block/dm-0"))
    machine.mount("/", "ext4", "/dev/x", "253:0")
    assert ("sda", "") in under(machine, "/")[2]


def test_the_last_mount_hides_the_others_and_blanks_are_read(machine):
    machine.mount("/a b", "ext4", "/dev/first", "1:1")
    machine.mount("/a b", "xfs", "/dev/sec\\ond", "1:2")
    machine.write("proc/self/mountinfo", (machine.root / "proc/self/mountinfo").read_text() + "half a line\n1 2 3 - xfs\n")
    mounts = read_mounts(str(machine))
    assert len(mounts) == 2
    assert mount_of("/a b/c", mounts).fs == "xfs"
    assert mount_of("/a bc", mounts) is None


def test_disks_of_hardware_are_listed_and_nothing_that_is_made_of_them(machine):
    node(machine)
    machine.disk("loop0", "7:0", place="sys/devices/virtual/block/loop0")
    machine.disk("sr0", "11:0")
    machine.disk("nvme9n1", "259:9", size_gb=0)
    machine.disk("nvme7n1", "259:7", model=NVME, place="sys/devices/virtual/nvme-subsystem/nvme-subsys7/nvme7n1")
    machine.disk("nvme7c7n1", "259:8")
    machine.write("sys/devices/pci0000:00/0000:00:1f.0/nvme7c7n1ctrl/nvme7c7n1/hidden", "1\n")
    found = Disks(str(machine), read_mounts(str(machine))).all()
    assert [disk.name for disk in found] == ["nvme0n1", "nvme1n1", "nvme2n1", "nvme7n1"]
    assert found[1].size_bytes == pytest.approx(3800 * 10**9, rel=1e-6)
    assert [(disk.is_ebs, disk.is_instance_store) for disk in found[:2]] == [(True, False), (False, True)]


def used(machine):
    mounts = read_mounts(str(machine)) if (machine.root / "proc/self/mountinfo").exists() else ()
    return {disk.name: disk.in_use for disk in Disks(str(machine), mounts).all()}


def test_a_disk_is_in_use_through_arrays_mounts_and_swap(machine):
    node(machine)
    for index, name in enumerate(("a", "b", "c", "d"), 1):
        machine.disk(f"sd{name}", f"8:{16 * index}", partitions=[(f"sd{name}1", f"8:{16 * index + 1}")])
    (machine.folder("sys/fs/ext4") / "sda1").mkdir()  # mounted on the node, and not in this container
    machine.mount("/b", "btrfs", "/dev/sdb1", "0:99")
    machine.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sdc1 partition 1 0 -2\n")
    assert used(machine) == {
        "nvme0n1": True, "nvme1n1": True, "nvme2n1": True, "sda": True, "sdb": True, "sdc": True, "sdd": False
    }  # fmt: skip


def test_disks_that_nobody_formatted_are_not_in_use(machine):
    assert used(node(machine, formatted=False)) == {"nvme0n1": True, "nvme1n1": False, "nvme2n1": False}


def test_this_machine():
    mounts = read_mounts()
    assert mount_of("/proc/self", mounts).fs == "proc"
    here = mount_of(os.path.realpath("/"), mounts)
    device, disks = Disks("/", mounts).under(here)
    if os.path.exists(f"/sys/dev/block/{here.device}"):
        number = os.stat("/").st_dev
        assert here.device == f"{os.major(number)}:{os.minor(number)}"
        assert os.path.exists(f"/sys/class/block/{device}")
        assert all(disk.size_bytes for disk in disks)
    assert read_mounts("/nowhere") == ()
