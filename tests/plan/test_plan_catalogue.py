"""The catalogue is whole, says where it comes from, and helps with a mistyped name."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from glowplug.errors import UsageError
from glowplug.plan.catalogue import accelerators, find_accelerator, find_instance, instances, with_accelerator
from glowplug.plan.sources import SOURCES, numbered

GIB, MIB = 2**30, 2**20


def test_every_type_of_the_source_is_there_with_its_facts():
    assert len(instances()) == 83
    p5 = instances()["p5.48xlarge"]
    assert (p5.accelerator.name, p5.devices, p5.vcpus, p5.memory_bytes) == ("h100", 8, 192, 2048 * GIB)
    assert (p5.network_mbps, p5.cards, p5.nvme_bytes) == (3_200_000, 32, 30_400 * 10**9)
    assert p5.allocatable_bytes == 1_938_410 * MIB
    assert instances()["p4d.24xlarge"].accelerator.memory_bytes * 2 == instances()["p4de.24xlarge"].accelerator.memory_bytes


def test_neuron_cores_are_what_tensor_parallelism_counts():
    cores = {name: (each.devices, each.chips) for name, each in instances().items() if each.accelerator.kind == "neuron"}
    assert cores["trn1.2xlarge"] == (2, 1)
    assert cores["trn1.32xlarge"] == (32, 16)
    assert cores["inf2.24xlarge"] == (12, 6)
    assert cores["inf2.48xlarge"] == (24, 12)
    assert cores["trn2.48xlarge"] == (64, 16)  # logical ones, of two physical cores each
    assert accelerators()["trainium"].memory_bytes * 2 == 32 * GIB  # a chip of trn1 has 32
    assert accelerators()["trainium2"].memory_bytes * 4 == 96 * GIB


def test_the_file_names_its_sources_and_units():
    document = json.loads(resources.files("glowplug.plan").joinpath("data/instances.json").read_text())
    assert "Karpenter" in document["sources"]["instances"]
    assert "Neuron" in document["sources"]["neuron"]
    assert {"network_mbps", "memory_mib", "cards", "nvme_gb"} <= set(document["units"])


def test_every_source_that_is_cited_is_known():
    assert numbered(["eks", "s3", "eks"]) == {"eks": 1, "s3": 2}
    with pytest.raises(KeyError):
        numbered(["nowhere"])
    assert all(len(text) > 20 for text in SOURCES.values())


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("p5.48xlrage", "not in the catalogue", "did you mean p5.48xlarge"),
        ("g6e.3xlarge", "not in the catalogue", "g6e."),
        ("zz9.plural", "not in the catalogue", "trn1, trn1n, trn2, each with its size"),
        ("", "not in the catalogue", "p5, p5e, p5en"),
        ("g6f.xlarge", "a fraction of one l4", "g6.xlarge"),
        ("inf1.xlarge", "vLLM needs NeuronCore-v2 or later", "inf2"),
        ("g4ad.xlarge", "no build for this GPU", "choose"),
        ("dl2q.24xlarge", "no support", "choose"),
    ],
)
def test_an_instance_that_cannot_be_is_one_error_with_the_nearest_names(name, says, hint):
    with pytest.raises(UsageError) as raised:
        find_instance(name)
    assert says in raised.value.message
    assert hint in raised.value.hint


def test_names_are_found_in_any_case():
    assert find_instance(" P5.48xlarge ").name == "p5.48xlarge"
    for name in ("h100", "H100", "NVIDIA H100", "nvidia-h100"):
        assert find_accelerator(name).name == "h100"
    assert find_accelerator("Tesla T4").name == "t4"
    assert find_accelerator("RTX PRO 4500").name == "rtx-pro-4500"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a100", "write a100-40gb or a100-80gb"),
        ("h10", "did you mean h100"),
        ("inferentia", "choose one of"),
        ("x", "choose one of a100-40gb, a100-80gb"),
    ],
)
def test_an_accelerator_that_cannot_be_is_one_error(name, hint):
    with pytest.raises(UsageError, match="--gpu") as raised:
        find_accelerator(name)
    assert hint in raised.value.hint


def test_the_types_of_an_accelerator_are_sorted_by_size():
    assert [each.name for each in with_accelerator(accelerators()["h100"])] == ["p5.4xlarge", "p5.48xlarge"]
