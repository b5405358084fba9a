import json

from glowplug.engines.vllm.key_factors import FactorDifference, compare_key_factors, read_key_factors

WRITTEN = {"env": {"VLLM_USE_AOT_COMPILE": True, "VLLM_DP_RANK": 0}, "config_hash": "c1", "code_hash": "d1", "compiler_hash": "e1"}


def put(root, path, document):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(document if isinstance(document, str) else json.dumps(document))


def test_records_are_read_where_vllm_writes_them(tmp_path):
    for rank in range(2):
        put(tmp_path, f"torch_compile_cache/0123456789/rank_{rank}_0/backbone/cache_key_factors.json", WRITTEN)
    found = read_key_factors(tmp_path)
    assert [factors.path for factors in found] == [
        f"torch_compile_cache/0123456789/rank_{rank}_0/backbone/cache_key_factors.json" for rank in range(2)
    ]
    assert found[0].env == WRITTEN["env"]
    assert (found[0].config_hash, found[0].code_hash, found[0].compiler_hash) == ("c1", "d1", "e1")


def test_what_is_no_record_is_passed_over(tmp_path):
    for number, text in enumerate(("", "[]", "{", '{"env": 1}', '{"env": {}, "config_hash": "x"}')):
        put(tmp_path, f"torch_compile_cache/{number}/cache_key_factors.json", text)
    put(tmp_path, "torch_compile_cache/x/inductor_cache/cache_key_factors.json", WRITTEN)
    assert read_key_factors(tmp_path) == []
    assert read_key_factors(tmp_path / "missing") == []


def test_the_variable_that_made_the_difference_is_named(tmp_path):
    put(tmp_path, "torch_compile_cache/a/cache_key_factors.json", WRITTEN)
    other = WRITTEN | {"env": {"VLLM_USE_AOT_COMPILE": True, "VLLM_DP_RANK": 1, "VLLM_NEW": "x"}, "code_hash": "d2"}
    put(tmp_path, "torch_compile_cache/b/cache_key_factors.json", other)
    ours, theirs = read_key_factors(tmp_path)
    assert compare_key_factors(ours, theirs) == [
        FactorDifference("env.VLLM_DP_RANK", 0, 1),
        FactorDifference("env.VLLM_NEW", None, "x"),
        FactorDifference("code", "d1", "d2"),
    ]
    assert compare_key_factors(ours, ours) == []
