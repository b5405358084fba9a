"""Whole machines, from files to findings: nodes and pods of EKS made of files, and the machine that this runs on."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glowplug.doctor.checking import check_node
from glowplug.doctor.node.document import to_json
from glowplug.doctor.node.probe import Wish, probe
from glowplug.doctor.node.render import render
from glowplug.errors import UsageError
from tests.doctor.node.machines import Machine, node, pod

OFFLINE = {"AWS_EC2_METADATA_DISABLED": "true", "USER": "vllm", "HOME": "/home"}
POD = OFFLINE | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
OF_THIS_MACHINE = {"GP909", "GP910", "GP923"}
"""Rules about room and limits: files stand in for the rest of a machine, and these are the real one's."""


def found(machine, env=OFFLINE, **wish):
    checked = check_node(probe(Wish(**wish), env=env, root=str(machine)))
    return {finding.rule for finding in checked.findings} - OF_THIS_MACHINE


@pytest.fixture
def ready():
    """Finishes a machine: enough memory, processors and GPUs."""

    def make(made):
        made.write("proc/meminfo", "MemTotal: 196608000 kB\nMemAvailable: 190000000 kB\n")
        made.write("sys/devices/system/cpu/online", "0-47\n")
        made.gpus(4)
        return made

    return make


def test_a_node_with_the_cache_on_its_array_has_no_finding(machine, ready):
    assert found(ready(node(machine)), cache_dir="/mnt/k8s-disks/0/cache") == set()


def test_a_node_whose_root_volume_is_used_beside_the_array(machine, ready):
    assert found(ready(node(machine)), cache_dir="/var/tmp/glowplug") == {"GP902"}


def test_a_node_whose_disks_nobody_formatted(machine, ready):
    assert found(ready(node(machine, formatted=False)), cache_dir="/mnt/k8s-disks/0/cache") == {"GP902", "GP903", "GP904"}


def test_a_pod_with_an_empty_dir_on_the_array(machine, ready):
    assert found(ready(pod(machine)), POD, cache_dir="/cache") == set()


def test_a_pod_whose_host_path_landed_on_the_root_volume(machine, ready):
    made = ready(pod(machine, part="/mnt/k8s-disks/0/cache"))
    assert found(made, POD, cache_dir="/cache") == {"GP902", "GP903"}


def test_a_pod_without_a_volume(machine, ready):
    assert found(ready(pod(machine)), POD, cache_dir="/var/tmp/x") == {"GP908"}


def test_a_pod_with_a_container_s_default_of_shared_memory(machine, ready, tmpfs):
    made = ready(pod(machine))
    tmpfs("size=64m", made.root / "dev/shm")
    assert found(made, POD, cache_dir="/cache") == {"GP924"}


def test_a_pod_that_asked_for_no_gpu(machine):
    made = pod(machine)
    made.gpus(4, usable=[])
    assert found(made, POD, cache_dir="/cache") == {"GP931"}
    assert found(made, POD, cache_dir="/cache", instance="g6.12xlarge") == {"GP930"}


def test_a_node_that_has_lost_a_gpu(machine, ready):
    made = ready(node(machine))
    for place in (made.root / "proc/driver/nvidia/gpus/0000:00:02.0/information", made.root / "dev/nvidia2"):
        place.unlink()
    (made.root / "proc/driver/nvidia/gpus/0000:00:02.0").rmdir()
    assert found(made, cache_dir="/mnt/k8s-disks/0") == {"GP932"}


def test_a_neuron_node(machine):
    node(machine)
    machine.amazon("trn1.32xlarge")
    machine.neurons(16)
    machine.write("proc/meminfo", "MemTotal: 536870912 kB\nMemAvailable: 500000000 kB\n")
    machine.write("sys/devices/system/cpu/online", "0-127\n")
    facts = probe(Wish(cache_dir="/mnt/k8s-disks/0"), env=OFFLINE, root=str(machine))
    assert (facts.instance.name, facts.devices.count, facts.devices.driven) == ("trn1.32xlarge", 16, 16)
    assert found(machine, cache_dir="/mnt/k8s-disks/0") == set()


def test_a_folder_of_somebody_else_where_anybody_may_write_is_refused_as_a_start_would(machine):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    place = machine.folder("/var/tmp/glowplug-0")
    place.parent.chmod(0o1777)
    os.chown(place, 4242, 4242)
    facts = probe(Wish(cache_dir="/var/tmp/glowplug-0"), env=OFFLINE, root=str(machine))
    assert facts.cache.refusal("write") == "it belongs to uid 4242, and its parent can be written by anybody"


def test_the_environment_of_a_start_counts_and_what_is_given_goes_before_it():
    env = {"GLOWPLUG_CACHE_DIR": "/a", "GLOWPLUG_STORE": "s3://b/c", "GLOWPLUG_MODEL": "no such variable"}
    assert Wish.over({}, env) == Wish(cache_dir="/a", store="s3://b/c")
    assert Wish.over({"cache_dir": "/d", "store": None, "model": "/m"}, env) == Wish(cache_dir="/d", store="s3://b/c", model="/m")
    assert Wish.over({}, {"GLOWPLUG_STORE": ""}) == Wish()


def test_this_machine_is_looked_at_and_left_as_it_was(tmp_path):
    facts = probe(Wish(cache_dir=str(tmp_path / "cache")), env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true"})
    assert facts.cache.tried == str(tmp_path)
    assert facts.cache.refused == ()
    assert facts.memory_bytes > 0
    assert facts.cpus > 0
    assert os.listdir(tmp_path) == []


ODD = [
    b"",
    b"\xff\xfe\x00",
    b"-1",
    b"9" * 400,
    b"\xd9\xa3",
    b"a b c - d",
    b"1 2 3:4 / / x - \\777 \\",
    b"max max",
    b"\x1b[2J",
    b"/" * 9000,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A pod with a file for everything that is read."""
    made = pod(Machine(tmp_path_factory.mktemp("whole")))
    made.gpus(2)
    made.neurons(1)
    for path in ("proc/meminfo", "proc/self/cgroup", "proc/swaps", "sys/fs/cgroup/cpu.max", "sys/devices/system/cpu/online"):
        made.write(path, "x")
    return made, [path for path in made.root.rglob("*") if path.is_file() and "/dev/" not in str(path)]


@settings(max_examples=50)
@given(st.data())
def test_any_content_in_any_file_gets_an_answer(whole, data):
    made, files = whole
    changed = {path: path.read_bytes() for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3))}
    try:
        for path in changed:
            path.write_bytes(data.draw(st.sampled_from(ODD) | st.binary(max_size=60)))
        facts = probe(Wish(cache_dir="/cache"), env=POD, root=str(made))
        checked = check_node(facts)
        assert all(letter.isprintable() or letter == "\n" for letter in render(facts, checked))
        json.dumps(to_json(facts, checked))
    finally:
        for path, content in changed.items():
            path.write_bytes(content)


@pytest.mark.parametrize("wish", [{"instance": "p9.huge"}, {"store": "gs://x/y"}, {"model": "ftp://x"}], ids=str)
def test_what_can_t_be_is_a_usage_error(wish):
    with pytest.raises(UsageError):
        probe(Wish(**wish), env=OFFLINE)
