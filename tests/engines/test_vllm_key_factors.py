import json

from glowplug.engines.vllm.key_factors import FactorDifference, KeyFactors, compare_key_factors, key_record, read_key_factors

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


def test_a_record_for_a_report_holds_no_secret_and_no_long_text(tmp_path):
    env = {"VLLM_API_KEY": "hunter2", "VLLM_URL": "http://me:hunter2@host", "VLLM_LONG": "x" * 9999, "VLLM_LIST": ["a", 1]}
    put(tmp_path, "torch_compile_cache/a/rank_0_0/backbone/cache_key_factors.json", WRITTEN | {"env": env})
    document = key_record(tmp_path, set())
    assert "hunter2" not in json.dumps(document)
    assert len(json.dumps(document)) < 1000
    [written] = read_key_factors(tmp_path)
    assert compare_key_factors(KeyFactors.from_json(document), written) == []  # what was left out or cut is no difference


def test_the_record_of_a_start_is_the_one_that_it_wrote_or_the_only_one_that_was_restored(tmp_path):
    paths = [f"torch_compile_cache/{key}/rank_{rank}_0/backbone/cache_key_factors.json" for key in "ab" for rank in (0, 1)]
    for path in paths[:2]:
        put(tmp_path, path, WRITTEN)
    assert key_record(tmp_path, set(paths[:2]))["path"] == paths[0]
    for path in paths[2:]:
        put(tmp_path, path, WRITTEN)
    assert key_record(tmp_path, set(paths[:2]))["path"] == paths[2]
    assert key_record(tmp_path, set(paths)) is None  # two keys were restored, and which one was used is not known
    assert key_record(tmp_path / "missing", set()) is None


def test_a_record_that_was_forged_is_none(tmp_path):
    for number, text in enumerate(("[" * 100_000, '{"env": {}, "config_hash": 1, "code_hash": "", "compiler_hash": ""}')):
        put(tmp_path, f"torch_compile_cache/{number}/cache_key_factors.json", text)
    put(tmp_path, "torch_compile_cache/2/cache_key_factors.json", json.dumps(WRITTEN) + " " * 2_000_000)
    assert [factors.folder for factors in read_key_factors(tmp_path)] == ["2"]
