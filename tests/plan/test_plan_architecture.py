"""A configuration is read for what sizes a model: public ones exactly, odd ones with one clear error, none with a crash."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_models import config, model

from glowplug.errors import UsageError
from glowplug.plan.architecture import parse_architecture


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("llama-2-7b", "MHA, 32 heads, 32 of KV, 128 wide"),
        ("llama-3.1-70b", "GQA, 64 heads, 8 of KV, 128 wide"),
        ("qwen3-30b-a3b", "GQA, 32 heads, 4 of KV, 128 wide"),
        ("deepseek-v3", "MLA, 576 elements a token and layer"),
    ],
)
def test_attention_is_recognised(name, attention):
    assert model(name).architecture.attention == attention


@pytest.mark.parametrize(
    ("name", "full", "windowed", "linear"),
    [
        ("qwen3-32b", 64, 0, 0),
        ("qwen2.5-0.5b", 24, 0, 0),  # carries a window and turns it off
        ("gpt-oss-20b", 12, 12, 0),
        ("gemma-3-27b", 10, 52, 0),  # every sixth layer is full; nested in text_config
        ("qwen3-next-80b-a3b", 12, 0, 36),
    ],
)
def test_layers_that_keep_less_are_counted(name, full, windowed, linear):
    found = model(name).architecture
    assert (found.full_layers, found.windowed_layers, found.linear_layers) == (full, windowed, linear)


@pytest.mark.parametrize(
    ("name", "method", "block", "kv_bytes"),
    [
        ("qwen3-32b", "", 1, 0),
        ("qwen3-30b-a3b-fp8", "fp8", 128, 0),
        ("llama-3.1-70b-awq", "awq", 128, 0),
        ("llama-3.1-8b-fp8-kv", "compressed-tensors", 1, 1),
        ("gpt-oss-20b", "mxfp4", 1, 0),
    ],
)
def test_quantisation_is_recognised(name, method, block, kv_bytes):
    found = model(name).architecture
    assert (found.quantization, found.quant_block, found.kv_bytes) == (method, block, kv_bytes)


def test_multi_query_attention_has_one_head_of_keys():
    document = {"num_hidden_layers": 60, "hidden_size": 8192, "num_attention_heads": 128, "multi_query": True}
    assert parse_architecture(json.dumps(document).encode(), name="c").attention == "MQA, 128 heads, 1 of KV, 64 wide"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\xff", "is not JSON"),
        (b"[]", "is no configuration"),
        (b"{}", "has no num_hidden_layers"),
        (b'{"num_hidden_layers": 3, "hidden_size": 4}', "has no num_attention_heads"),
        (b'{"num_hidden_layers": -1}', "num_hidden_layers is -1, not a count"),
        (b'{"num_hidden_layers": "32"}', "num_hidden_layers is '32', not a count"),
        (b'{"num_hidden_layers": true}', "num_hidden_layers is True, not a count"),
    ],
)
def test_what_sizes_no_model_is_one_error_that_names_the_file(raw, says):
    with pytest.raises(UsageError, match=r"config\.json") as raised:
        parse_architecture(raw, name="here/config.json")
    assert says in raised.value.message
    assert raised.value.hint


_LEAF = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=True) | st.text(max_size=6)
_KEYS = st.sampled_from([*json.loads(config("deepseek-v3")), *json.loads(config("gpt-oss-20b")), "text_config", "multi_query"])


@settings(deadline=None)
@given(st.dictionaries(_KEYS, _LEAF | st.lists(_LEAF, max_size=4) | st.dictionaries(_KEYS, _LEAF, max_size=3), max_size=12))
def test_any_json_is_understood_or_refused(changes):
    base = json.loads(config("deepseek-v3"))
    try:
        found = parse_architecture(json.dumps(base | changes).encode(), name="config.json")
    except UsageError:
        return
    assert found.layers > 0
    assert found.quant_block >= 1
