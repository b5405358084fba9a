"""Device memory and tensor parallelism, against figures that were computed by hand from public configurations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_models import MODELS, model, plan, question, sized

from glowplug.errors import UsageError
from glowplug.plan import memory, parallel
from glowplug.plan.catalogue import accelerators, instances

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "asked", "tp", "bytes_a_token"),
    [
        ("llama-3.1-8b", {}, 1, 2 * 8 * 128 * 2 * 32),  # 131,072: 128 KiB
        ("llama-3.1-8b", {"kv_dtype": "fp8"}, 1, 65_536),
        ("llama-3.1-8b-fp8-kv", {}, 1, 65_536),  # the checkpoint asks for it
        ("llama-3.1-8b-fp8-kv", {"kv_dtype": "bf16"}, 1, 131_072),
        ("llama-3.1-70b", {}, 1, 327_680),
        ("llama-3.1-70b", {}, 8, 40_960),  # one of eight KV heads on each
        ("llama-2-7b", {}, 1, 524_288),  # a KV head for each head
        ("qwen3-32b", {}, 1, 262_144),
        ("qwen3-30b-a3b", {}, 1, 98_304),
        ("qwen3-30b-a3b", {}, 8, 24_576),  # four heads on eight devices: each has a copy of one
        ("deepseek-v3", {}, 1, 70_272),  # 61 layers of 512 + 64 elements
        ("deepseek-v3", {}, 8, 70_272),  # a latent vector is on each device
        ("deepseek-v3", {"kv_dtype": "fp8"}, 8, 35_136),
        ("qwen3-next-80b-a3b", {}, 1, 24_576),  # 12 of 48 layers keep keys
    ],
)
def test_kv_cache_of_a_token(name, asked, tp, bytes_a_token):
    assert memory.kv_token_bytes(question(**asked), model(name).architecture, tp) == bytes_a_token


def test_windowed_layers_keep_their_window_only():
    # 12 layers x 8,192 tokens + 12 layers x 128 tokens, 2 x 8 heads x 64 x 2 bytes each
    assert memory.kv_bytes(question(batch=1), model("gpt-oss-20b"), 1) == 204_472_320
    # 10 x 8,192 + 52 x 1,024 tokens, 2 x 16 heads x 128 x 2 bytes each
    assert memory.kv_bytes(question(batch=1), model("gemma-3-27b"), 1) == 1_107_296_256


@pytest.mark.parametrize(
    ("name", "instance", "asked", "tp"),
    [
        # 15.0 of weights + 8.0 of KV + 2.6 = 25.5 GiB; an L4 gives 20.1, an L40S 40.2
        ("llama-3.1-8b", "g6e.xlarge", {}, 1),
        ("llama-3.1-8b", "g6.12xlarge", {}, 2),
        ("llama-3.1-8b", "g6.xlarge", {"batch": 1}, 1),
        # 131.4 GiB: two H100s of 72 GiB hold it with one sequence of 8,192, four with eight
        ("llama-3.1-70b", "p5.48xlarge", {"batch": 1}, 2),
        ("llama-3.1-70b", "p5.48xlarge", {}, 4),
        ("llama-3.1-70b", "p4d.24xlarge", {}, 8),
        ("llama-3.1-70b", "p5en.48xlarge", {}, 2),
        ("llama-3.1-70b-awq", "g6e.12xlarge", {}, 2),
        # 61.0 GiB: half of it is 30.5 + 4.0 (8 sequences: 8.0) + 3.1 on 36.0 GiB
        ("qwen3-32b", "p4d.24xlarge", {}, 4),
        ("qwen3-32b", "p5.48xlarge", {"batch": 1}, 1),
        ("qwen3-30b-a3b", "p5.48xlarge", {}, 1),
        # 641.3 GiB: 80.2 on each of eight, too much for 72.0, well within 126.9
        ("deepseek-v3", "p5en.48xlarge", {}, 8),
        ("deepseek-v3", "p6-b200.48xlarge", {}, 8),
        # the Neuron documentation's own two examples, at batch 1
        ("llama-3.1-8b", "trn1.2xlarge", {"batch": 1}, 2),
        ("llama-3.1-70b", "trn1.32xlarge", {"batch": 1}, 16),
        ("llama-3.1-70b", "trn2.48xlarge", {"batch": 1}, 8),
        ("tinyllama-1.1b", "trn1.2xlarge", {"tp": 2}, 2),
    ],
)
def test_the_least_tensor_parallelism_that_fits(name, instance, asked, tp):
    assert plan(name, instance, **asked).fit.tp == tp


def test_67_gb_on_a_p5_need_two_gpus_as_the_eks_guide_says():
    assert plan(67 * 10**9, "p5.48xlarge").fit.tp == 2


@pytest.mark.parametrize(
    ("name", "instance", "valid"),
    [
        ("llama-3.1-70b", "p5.48xlarge", (1, 2, 4, 8)),
        ("qwen2.5-7b", "p5.48xlarge", (1, 2, 4)),  # 28 heads
        ("qwen2.5-0.5b", "p5.48xlarge", (1, 2)),  # 14 heads
        ("qwen3-30b-a3b", "p5.48xlarge", (1, 2, 4, 8)),
        ("qwen3-30b-a3b-fp8", "p5.48xlarge", (1, 2)),  # a shard of an expert: 768 / 4 = 192, and blocks of 128
        ("llama-3.1-70b-awq", "p5.48xlarge", (1, 2, 4, 8)),  # 28,672 / 8 = 28 groups of 128
        ("deepseek-v3", "p5en.48xlarge", (1, 2, 4, 8)),
        ("llama-3.1-70b", "trn1.32xlarge", (1, 2, 8, 16, 32)),
        ("llama-3.1-70b", "inf2.48xlarge", (1, 2, 4, 8)),  # 24 does not divide 64 heads
        ("llama-3.1-70b", "inf2.24xlarge", (1, 2, 4, 8)),  # 12 cores
        ("llama-3.1-70b", "trn2.48xlarge", (1, 2, 4, 8, 16, 32, 64)),
        ("llama-3.1-8b", "trn1.2xlarge", (1, 2)),
    ],
)
def test_only_sizes_that_can_be_are_valid(name, instance, valid):
    found = instances()[instance]
    assert parallel.valid_tp(model(name).architecture, found.accelerator, found.devices) == valid


def test_kv_heads_are_divided_evenly_or_copied_evenly():
    architecture = replace(model("llama-3.1-8b").architecture, heads=24, kv_heads=6, intermediate=14400)
    assert [tp for tp in (1, 2, 3, 4, 6, 8, 12, 24) if not parallel.refusal(architecture, tp)] == [1, 2, 3, 6, 12, 24]
    assert parallel.refusal(architecture, 4) == "4 neither divides the 6 KV heads nor is a multiple of them"
    assert parallel.refusal(model("deepseek-v3").architecture, 8) == ""  # MLA has none to divide


def test_what_a_replica_takes_is_counted_in_chips_too():
    assert plan("llama-3.1-70b", "p5.48xlarge").fit.chips == 4
    assert plan("llama-3.1-70b", "trn1.32xlarge").fit.chips == 8  # 16 cores, two a chip
    assert plan("llama-3.1-70b", "trn2.48xlarge", tp=8).fit.chips == 2  # 8 logical cores, four a chip
    assert plan("tinyllama-1.1b", "trn1.2xlarge").fit.chips == 1
    assert plan("llama-3.1-70b", gpu="h100").fit.chips is None


def test_24_neuron_cores_serve_a_model_whose_heads_they_divide():
    architecture = model("llama-3.2-3b").architecture  # 24 heads, 8 of KV, 8,192 wide
    assert parallel.refusal(architecture, 24) == "24 does not divide the width of the MLP, 8192"
    assert 24 in accelerators()["inferentia2"].tp_degrees


def test_what_is_left_is_room_for_tokens():
    fit = plan("llama-3.1-8b", "g6e.xlarge").fit
    left = fit.budget_bytes - fit.weight_bytes - fit.overhead_bytes
    assert fit.kv_tokens == left // 131_072
    assert fit.replicas_per_node == 1
    assert plan("llama-3.1-8b", "p5.48xlarge").fit.replicas_per_node == 8


def test_eager_mode_needs_no_room_for_graphs():
    compiled, eager = (plan("llama-3.1-8b", "p5.48xlarge", enforce_eager=eager).fit for eager in (False, True))
    assert compiled.overhead_bytes - eager.overhead_bytes == GIB


@pytest.mark.parametrize(
    ("of", "instance", "asked", "says", "hint"),
    [
        (
            "deepseek-v3",
            "p5.48xlarge",
            {},
            "688.6 GB (641.3 GiB) do not fit p5.48xlarge: at TP 8 each GPU would need 87.3 GiB",
            "p5e",
        ),
        ("llama-3.1-8b", "g6.xlarge", {}, "the weights alone would fit", "less --max-model-len or --batch, --kv-dtype fp8, or g"),
        ("llama-3.1-70b", "inf2.48xlarge", {}, "each NeuronCore would need", "what would: trn"),
        ("deepseek-v3", "trn2.48xlarge", {}, "each NeuronCore would need", "what would: p5e"),
        (9 * 10**12, "p5.48xlarge", {}, "9000.0 GB", "no single node of the catalogue holds it; 5 p6-b300.48xlarge with pipeline"),
        ("llama-3.1-70b", "p5.48xlarge", {"tp": 1}, "at TP 1 each GPU", "TP 4 would"),
        ("qwen2.5-7b", "p5.48xlarge", {"tp": 8}, "--tp: 8 can't be: 8 does not divide the 28 attention heads", "choose 1, 2, 4"),
        ("llama-3.1-8b", "g6.xlarge", {"tp": 2}, "--tp: 2 can't be: the node has 1 GPU", "choose 1"),
        ("llama-3.1-70b", "trn1.32xlarge", {"tp": 4}, "--tp: 4 can't be: trainium serves no TP of 4", "choose 1, 2, 8, 16, 32"),
        (
            "qwen3-30b-a3b-fp8",
            "p5.48xlarge",
            {"tp": 4},
            "a shard of an expert would be 192 wide, and quantisation blocks are 128",
            "1, 2",
        ),
        ("qwen3-32b", "p5.48xlarge", {"max_model_len": 50_000}, "50000 tokens are more than the 40960", "at most 40960"),
    ],
)
def test_what_does_not_fit_says_what_would(of, instance, asked, says, hint):
    with pytest.raises(UsageError) as raised:
        plan(of, instance, **asked)
    assert says in raised.value.message
    assert hint in raised.value.hint


def test_what_would_fit_is_true():
    names = plan("qwen3-32b").would_fit
    assert len(names) == 4
    for name in names:
        assert plan("qwen3-32b", name).fit.tp >= 1
    assert all(instances()[name].accelerator.kind == "gpu" for name in plan("deepseek-v3").would_fit)
    assert plan("qwen3-32b", gpu="h100").would_fit == ("p5.48xlarge",)
    assert plan("llama-3.1-8b", gpu="h100").would_fit == ("p5.4xlarge",)
    assert plan("llama-3.1-8b", gpu="h100", tp=2).would_fit == ("p5.48xlarge",)


SIZES = st.integers(10**8, 2 * 10**12)
PLACES = st.sampled_from([name for name, each in instances().items() if not each.unserved])


def devices(of, instance, **asked):
    """TP, or more than any where it does not fit."""
    try:
        return plan(of, instance, **asked).fit.tp
    except UsageError:
        return 10**6


@settings(max_examples=80, deadline=None)
@given(SIZES, SIZES, PLACES, st.sampled_from([None, *MODELS]))
def test_more_bytes_never_need_fewer_devices(one, other, instance, name):
    less, more = (sized(size) if name is None else model(name, weight_bytes=size) for size in sorted((one, other)))
    assert devices(less, instance) <= devices(more, instance)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(list(MODELS)), PLACES, st.integers(1, 300), st.integers(1, 300))
def test_more_sequences_never_need_fewer_devices(name, instance, one, other):
    less, more = sorted((one, other))
    assert devices(name, instance, batch=less) <= devices(name, instance, batch=more)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(MODELS)), PLACES, st.integers(1, 64))
def test_what_fits_is_valid_and_within_its_budget(name, instance, batch):
    try:
        fit = plan(name, instance, batch=batch).fit
    except UsageError:
        return
    assert fit.used_bytes <= fit.budget_bytes
    assert fit.tp in fit.valid_tp
    assert fit.kv_tokens >= batch * fit.max_model_len
    assert model(name).architecture.heads % fit.tp == 0
