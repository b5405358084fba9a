import json

from glowplug.engines.vllm.key_factors import FactorDifference, compare_key_factors, explain_miss, read_key_factors

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


def explained(root, **env):
    then = "torch_compile_cache/a/rank_0_0/backbone/cache_key_factors.json"
    put(root, then, WRITTEN)
    put(root, "torch_compile_cache/b/rank_0_0/backbone/cache_key_factors.json", WRITTEN | {"env": WRITTEN["env"] | env})
    return explain_miss(root, {then})


def test_a_miss_in_spite_of_a_restore_names_the_variable_and_both_values(tmp_path):
    text = explained(tmp_path, VLLM_NIXL_SIDE_CHANNEL_PORT=5601)
    assert text == "vLLM's own key differs in VLLM_NIXL_SIDE_CHANNEL_PORT (now 5601, then null)"


def test_a_secret_s_value_is_never_named(tmp_path):
    text = explained(tmp_path, VLLM_API_KEY="hunter2hunter2")
    assert "VLLM_API_KEY" in text
    assert "hunter2" not in text


def test_many_differences_are_counted(tmp_path):
    assert explained(tmp_path, **{f"VLLM_{number}": number for number in range(9)}).endswith("and 6 more")


def test_without_a_second_record_nothing_is_claimed(tmp_path):
    path = "torch_compile_cache/a/rank_0_0/backbone/cache_key_factors.json"
    put(tmp_path, path, WRITTEN)
    assert explain_miss(tmp_path, {path}) == ""
    assert explain_miss(tmp_path, set()) == ""
    put(tmp_path, "torch_compile_cache/b/rank_1_0/backbone/cache_key_factors.json", WRITTEN)
    assert explain_miss(tmp_path, {path}) == ""  # another rank's key is no other key


def test_a_difference_in_a_hash_is_put_into_words(tmp_path):
    then = "torch_compile_cache/a/rank_0_0/backbone/cache_key_factors.json"
    put(tmp_path, then, WRITTEN)
    put(tmp_path, "torch_compile_cache/b/rank_0_0/backbone/cache_key_factors.json", WRITTEN | {"config_hash": "c2"})
    assert explain_miss(tmp_path, {then}) == "vLLM's own key differs in its configuration"
