"""User, memory, processors and accelerators, from trees like /proc, /sys and /dev, and from this machine."""

from __future__ import annotations

import os
import resource

import pytest

from glowplug.doctor.node import machine as facts_of
from glowplug.units import GIB, MIB


def test_this_machine_is_read():
    user = facts_of.find_user(os.environ)
    assert (user.uid, user.gid) == (os.geteuid(), os.getegid())
    assert user.name
    assert user.temporary
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert facts_of.memory_bytes() == pytest.approx(total, rel=0.1)
    assert 0 < facts_of.usable_cpus() <= len(os.sched_getaffinity(0)) <= facts_of.machine_cpus()
    stats = os.statvfs("/dev/shm")
    assert facts_of.find_shm().size_bytes == stats.f_blocks * stats.f_frsize


def test_the_hard_limit_of_open_files_counts():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert facts_of.open_files() == (None if hard == resource.RLIM_INFINITY else hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
    try:
        assert facts_of.open_files() == (None if hard == resource.RLIM_INFINITY else hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("variable", "name"), [("USER", "someone"), ("LOGNAME", "someone"), ("HOSTNAME", "")])
def test_a_user_is_named_as_python_names_it(monkeypatch, variable, name):
    def unknown(_):
        raise KeyError

    monkeypatch.setattr(facts_of.pwd, "getpwuid", unknown)
    found = facts_of.find_user({variable: "someone"})
    assert (found.name, found.home, found.home_refused) == (name, "", "there is none")


def test_home_and_temporary_folders_are_tried(machine):
    machine.folder("/home/me")
    found = facts_of.find_user({"HOME": "/home/me", "TMPDIR": "/nowhere"}, str(machine))
    assert (found.home_refused, found.temporary) == ("", "/tmp")
    (machine.root / "tmp").rmdir()
    found = facts_of.find_user({"HOME": "/home/you"}, str(machine))
    assert (found.home_refused, found.temporary) == ("no such file or directory", "")


def test_shared_memory_of_a_container(machine, tmpfs):
    tmpfs("size=64m", machine.root / "dev/shm")
    found = facts_of.find_shm(str(machine))
    assert (found.size_bytes, found.free_bytes) == (64 * MIB, 64 * MIB)
    assert facts_of.find_shm("/nowhere") is None


@pytest.mark.parametrize(
    ("files", "group", "cpus"),
    [
        ({}, "0::/", 8.0),
        ({"cpu.max": "max 100000"}, "0::/", 8.0),
        ({"cpu.max": "250000 100000"}, "0::/", 2.5),
        ({"pod/cpu.max": "300000 100000", "pod/c/cpu.max": "max 100000", "cpu.max": "max 100000"}, "0::/pod/c", 3.0),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/kube/pod", 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/", 8.0),
        ({"cpu.max": "nonsense"}, "0::/", 8.0),
        ({"cpu.max": "100000 0"}, "0::/", 8.0),
    ],
    ids=str,
)
def test_processors_by_quota(machine, files, group, cpus):
    machine.write("sys/devices/system/cpu/online", "0-3,8-11\n")
    machine.write("proc/self/cgroup", f"{group}\n")
    for name, content in files.items():
        machine.write(f"sys/fs/cgroup/{name}", f"{content}\n")
    assert facts_of.usable_cpus(str(machine)) == cpus
    assert facts_of.machine_cpus(str(machine)) == 8


def test_a_machine_that_tells_nothing(machine):
    root = str(machine)
    assert (facts_of.memory_bytes(root), facts_of.machine_cpus(root), facts_of.usable_cpus(root)) == (0, 0, 1.0)
    found = facts_of.find_devices({}, root)
    assert (found.count, found.driven, found.installed, found.missing, found.closed) == (0, 0, 0, (), ())
    assert not facts_of.in_kubernetes({}, root)


def test_memory_of_the_machine(machine):
    machine.write("proc/meminfo", "MemTotal:       2097152 kB\nMemFree: 1 kB\n")
    assert facts_of.memory_bytes(str(machine)) == 2 * GIB


def test_gpus_of_a_node_and_of_a_pod_that_has_some_of_them(machine):
    machine.gpus(4, usable=[1, 2])
    found = facts_of.find_devices({}, str(machine))
    assert (found.count, found.driven, found.installed, found.usable.driver) == (2, 4, 4, "570.86.15")


def test_gpus_without_a_driver_are_on_the_bus(machine):
    machine.gpus(2, usable=[], driver="")
    machine.pci(9, "0x10de", "0x1234", "0x060400")  # a bridge of theirs is no GPU
    machine.pci(10, "0x1d0f", "0xec20", "0x020000")  # nor is Amazon's network card an accelerator
    found = facts_of.find_devices({}, str(machine))
    assert (found.count, found.driven, found.installed) == (0, 0, 2)


def test_neuron_devices(machine):
    machine.neurons(3)
    (machine.root / "dev/neuron2").unlink()
    found = facts_of.find_devices({}, str(machine))
    assert (found.usable.kind, found.count, found.driven, found.installed) == ("neuron", 2, 3, 3)


def test_cuda_s_own_files_and_rights(machine, monkeypatch):
    machine.gpus(1)
    (machine.root / "dev/nvidia-uvm").unlink()
    assert facts_of.find_devices({}, str(machine)).missing == ("/dev/nvidia-uvm",)
    monkeypatch.setattr(facts_of.os, "access", lambda path, *_, **__: not path.endswith("nvidia0"))
    assert facts_of.find_devices({}, str(machine)).closed == ("/dev/nvidia0",)


def test_a_cluster_is_known_by_its_variable_or_its_kubelet(machine):
    assert facts_of.in_kubernetes({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, str(machine))
    machine.folder("/var/lib/kubelet")
    assert facts_of.in_kubernetes({}, str(machine))
