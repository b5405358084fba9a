"""The network, the Run:ai streamer's settings and the host, against the source documents' figures and by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_models import plan

from glowplug.errors import UsageError
from glowplug.plan.base import GB
from glowplug.plan.fetch import card_mbps
from glowplug.weights.fetch.settings import FetchSettings

GIB, MIB = 2**30, 2**20
FULL_HOST = 2 * GIB + 3 * GIB * 2 + 512 * MIB + 3 * GIB  # engine at TP 2, margin, /dev/shm


@pytest.mark.parametrize(("size", "concurrency"), [(10 * GB, 3), (67 * GB, 17), (140 * GB, 35)])
def test_the_streamers_concurrency_is_the_guides_table(size, concurrency):
    assert plan(size).runai.concurrency == concurrency


def test_the_streamers_concurrency_is_counted_in_one_unit():
    assert plan(67 * GB, chunk_bytes=4 * GIB).runai.concurrency == 16  # 62.4 GiB
    assert plan(62 * GIB, chunk_bytes=4 * GIB).runai.concurrency == 16


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5 * 10**12), st.integers(5 * MIB, 10**11))
def test_the_streamers_chunks_cover_the_model(size, chunk):
    concurrency = plan(size, chunk_bytes=chunk).runai.concurrency
    assert concurrency == 1024 or (concurrency - 1) * chunk < size <= concurrency * chunk


@pytest.mark.parametrize(
    ("instance", "asked", "distributed"),
    [
        ("p5.48xlarge", {}, True),
        ("p5.48xlarge", {"enforce_eager": True}, False),
        ("p5.48xlarge", {"distributed": False, "loader": "runai"}, False),
        ("p5e.48xlarge", {}, False),  # one H200 holds it
        (None, {}, False),
    ],
)
def test_the_streamer_is_distributed_only_where_it_pays(instance, asked, distributed):
    streamer = plan(67 * GB, instance, **asked).runai
    assert streamer.distributed is distributed
    assert json.loads(streamer.extra_config).get("distributed", False) is distributed


def test_the_streamers_variables_mean_the_same_to_glowplug():
    found = FetchSettings.from_env(plan(67 * GB).runai.environment)
    assert (found.concurrency, found.chunk_bytes) == (17, 4 * GB)
    assert (found.low_speed_window_s, found.low_speed_bytes_per_s) == (3.0, 2**20)


@pytest.mark.parametrize(
    ("instance", "rate"),
    [
        ("g5.12xlarge", 3_250_000_000),  # 0.65 of 40 Gbit/s
        ("g6e.12xlarge", 8_125_000_000),
        ("p5.48xlarge", 8_125_000_000),  # 3,200 Gbit/s are of 32 cards: one has 100
        ("p4d.24xlarge", 8_125_000_000),
        ("p5en.48xlarge", 8_125_000_000),  # a card has 200, and no instance gets more than 100 from S3
        ("g5.xlarge", 203_125_000),
        ("trn1.2xlarge", 253_906_250),
    ],
)
def test_s3_is_reached_through_one_network_card(instance, rate):
    fetch = plan(10**9, instance).fetch
    assert (fetch.rate, fetch.bound) == (rate, "network card")


def test_a_slow_card_of_many_is_told_apart():
    assert (card_mbps(400_000, 8), card_mbps(400_000, 4), card_mbps(3_200_000, 16)) == (50_000, 100_000, 100_000)


def test_new_nodes_share_one_nat_gateway():
    alone, ten, twenty = (plan(65 * GB, "p5.48xlarge", via="nat", nodes=nodes).fetch for nodes in (1, 10, 20))
    assert (alone.bound, alone.rate) == ("network card", 8_125_000_000)
    assert (ten.bound, ten.rate, ten.seconds) == ("NAT gateway", 1_250_000_000, 52.0)
    assert (twenty.rate, twenty.seconds) == (625_000_000, 104.0)
    assert plan(65 * GB, "p5.48xlarge", nodes=5).fetch.rate == 8_125_000_000


def test_many_nodes_meet_the_request_rate_of_a_prefix():
    fetch = plan(65 * GB, "p5.48xlarge", nodes=100).fetch
    assert (fetch.bound, fetch.rate) == ("S3 prefix", 5500 * 8 * MIB // 100)


def test_without_distributed_each_rank_of_the_streamer_reads_all():
    shared, alone = (
        plan(67 * GB, "p5.48xlarge", loader="runai", tp=2, distributed=distributed).fetch for distributed in (None, False)
    )
    assert (shared.bytes, alone.bytes) == (67 * GB, 134 * GB)
    assert plan(67 * GB, "p5.48xlarge", tp=2).fetch.bytes == 67 * GB


def test_disks_of_the_node():
    assert plan(10 * GB, "p5.48xlarge", via="nvme").fetch.rate == 30 * GB
    assert plan(10 * GB, "g6e.xlarge", via="nvme").fetch.rate == 250_000_000
    assert plan(10 * GB, "p5.48xlarge", via="root").fetch.rate == 1 * GB
    assert plan(10 * GB, "g6e.xlarge", via="root").fetch.rate == 625_000_000  # 5,000 Mbit/s of EBS


def test_what_was_measured_goes_before_what_was_published():
    fetch = plan(10 * GB, "p5.48xlarge", bandwidth=2 * GB).fetch
    assert (fetch.rate, fetch.bound, fetch.basis, fetch.seconds) == (2 * GB, "--bandwidth", "measured", 5.0)


def test_enough_requests_for_the_card():
    assert plan(10 * GB, "p5.48xlarge").fetch.environment == {"GLOWPLUG_WEIGHTS_MAX_CONCURRENCY": "93"}  # 8,125 / 87.5
    assert plan(10 * GB, "g5.xlarge").fetch.environment == {}  # 3 are enough, and 32 are tried anyway
    assert FetchSettings.from_env(plan(10 * GB, "p5.48xlarge").fetch.environment).max_concurrency == 93


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.integers(1, 1000), st.sampled_from(["endpoint", "nat"]))
def test_more_nodes_never_fetch_faster(one, other, via):
    few, many = (plan(65 * GB, "p5.48xlarge", via=via, nodes=nodes).fetch.rate for nodes in sorted((one, other)))
    assert many <= few


def test_host_memory_follows_the_formulas_of_the_weights_guide():
    host = plan(67 * GB, "p5.48xlarge").host
    assert host.buffer == "full"
    assert host.engine_bytes == 8 * GIB
    assert host.memory_bytes == -(-(FULL_HOST + 67 * GB) // MIB) * MIB
    assert host.shm_bytes == 3 * GIB
    assert host.cpus == 47  # a quarter of 191.45


def test_a_small_pod_gets_a_window():
    host = plan(67 * GB, "p5.48xlarge", pod_memory_bytes=16 * GIB).host
    assert host.buffer == "windowed"
    assert host.buffer_bytes == 4 * GIB  # 4.5 GiB are left, and no window is larger than 4
    assert host.memory_bytes <= 16 * GIB
    tight = plan(67 * GB, "p5.48xlarge", pod_memory_bytes=8 * GIB)
    assert tight.host.buffer_bytes == 64 * MIB
    assert any("The pod needs 11.6 GiB of host memory, and the pod's limit is 8.0 GiB" in note for note in tight.notes)


def test_80_gib_do_not_cover_the_guides_example_beside_engine_and_shm():
    host = plan(67 * GB, "p5.48xlarge", loader="runai").host
    assert (host.buffer, host.buffer_bytes) == ("streamer", 67 * GB)  # distributed: the whole model, once
    assert 67 * GB < host.memory_bytes < 80 * GIB
    apart = plan(67 * GB, "p5.48xlarge", loader="runai", distributed=False).host
    assert apart.buffer_bytes == 80 * GB  # 40 GB in each of two processes


def test_one_rank_needs_less_shared_memory():
    assert plan("llama-3.1-8b", "p5.48xlarge").host.shm_bytes == GIB
    assert plan("deepseek-v3", "p5en.48xlarge").host.shm_bytes == 9 * GIB


def test_the_root_volume_holds_the_image_packed_and_unpacked():
    made = plan("llama-3.1-8b", "g6e.xlarge")
    assert made.host.image_disk_bytes == 3 * 10_760_000_000
    assert made.host.root_volume_bytes == 50 * GIB  # 30.1 + 2 + 10
    assert any("A default root volume of 20.0 GiB is too small" in note for note in made.notes)
    on_root = plan("llama-3.1-8b", "g6e.xlarge", via="root").host
    assert on_root.weights_disk_bytes == 16_060_522_496
    assert on_root.root_volume_bytes == 60 * GIB


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"distributed": True, "enforce_eager": True, "loader": "runai"}, "--distributed can't be with --enforce-eager"),
        ({"distributed": True, "tp": 1, "loader": "runai"}, "brings nothing at TP 1"),
        ({"distributed": True}, "is of the Run:ai streamer"),
        ({"chunk_bytes": 1000}, "--chunk: 1000 bytes are less"),
        ({"via": "root", "nodes": 3}, "--nodes 3 share a network, and --via root uses none"),
        ({"kv_dtype": "int3"}, "'int3' is not known"),
        ({"batch": 0}, "--batch: 0 is out of bounds"),
        ({"memory_utilization": float("nan")}, "--gpu-memory-utilization: nan is out of bounds"),
        ({"phases": {"lunch": 3.0}}, "there is no 'lunch'"),
    ],
)
def test_contradictions_are_refused(asked, says):
    with pytest.raises(UsageError) as raised:
        plan("llama-3.1-8b", "p5.48xlarge", **asked)
    assert says in raised.value.message
    assert raised.value.hint


def test_instance_store_must_be_there():
    with pytest.raises(UsageError, match=r"inf2\.48xlarge has no instance store"):
        plan("llama-3.1-8b", "inf2.48xlarge", via="nvme")
