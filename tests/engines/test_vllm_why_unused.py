"""Why vLLM did not use what was restored, from both its records."""

import json
import subprocess

import pytest

from glowplug.engines.vllm.key_factors import key_record
from glowplug.engines.vllm.why_unused import explain_miss

WRITTEN = {"env": {"VLLM_USE_AOT_COMPILE": True, "VLLM_DP_RANK": 0}, "config_hash": "c1", "code_hash": "d1", "compiler_hash": "e1"}
THEN = "torch_compile_cache/a/rank_0_0/backbone/cache_key_factors.json"
NOW = "torch_compile_cache/b/rank_0_0/backbone/cache_key_factors.json"


def put(root, path, content):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def explained(tmp_path):
    put(tmp_path, THEN, WRITTEN)

    def explain(*, env=None, **hashes):
        put(tmp_path, NOW, WRITTEN | {"env": WRITTEN["env"] | (env or {})} | hashes)
        return explain_miss(tmp_path, {THEN})

    explain.root = tmp_path
    return explain


def test_the_variable_is_named_with_both_values_and_the_remedy(explained):
    text = explained(env={"VLLM_NIXL_SIDE_CHANNEL_PORT": 5601})
    assert text.startswith(
        "vLLM's own key differs in VLLM_NIXL_SIDE_CHANNEL_PORT (now 5601, then null): give every pod the same port"
    )


def test_what_is_likely_an_accident_is_named_first(explained):
    env = {"VLLM_ATTENTION_X": "A", "VLLM_USE_AOT_COMPILE": False, "VLLM_ZZZ_ADDRESS": "10.0.0.7", "VLLM_AAA": 3}
    text = explained(env=env, config_hash="c2")
    assert text.startswith('vLLM\'s own key differs in VLLM_ZZZ_ADDRESS (now "10.0.0.7", then null), ')
    assert " and 2 more" in text


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("VLLM_NIXL_SIDE_CHANNEL_HOST", "10.4.1.17"),  # hashed by vLLM before 0.22, and in no envelope
        ("VLLM_CONFIG_ROOT", "/home/vllm/.config/vllm"),  # hashed by vLLM before 0.30: what follows from HOME
        ("VLLM_XLA_CACHE_PATH", "/scratch/vllm/xla_cache"),  # the same: what follows from the cache's root
    ],
)
def test_what_only_older_vllms_hash_comes_before_what_else_differs(explained, name, now):
    put(explained.root, THEN, WRITTEN | {"env": WRITTEN["env"] | {name: "/root/somewhere"}})
    text = explained(env={name: now, "VLLM_USE_AOT_COMPILE": False}, config_hash="c2", compiler_hash="e2")
    assert text.startswith(f"vLLM's own key differs in {name} (now ")
    assert "or later" in text


def test_a_secret_s_value_is_never_named(explained):
    text = explained(env={"VLLM_API_KEY": "hunter2hunter2"})
    assert "VLLM_API_KEY" in text
    assert "hunter2" not in text


def test_a_value_cannot_steer_a_terminal_nor_fill_the_screen(explained):
    text = explained(env={"VLLM_X": "\x1b[2J" + "a" * 5000})
    assert "\x1b" not in text
    assert len(text) < 300


def test_many_differences_are_counted(explained):
    assert " and 6 more: " in explained(env={f"VLLM_{number}": number for number in range(9)})


def test_without_a_second_record_nothing_is_claimed(tmp_path):
    put(tmp_path, THEN, WRITTEN)
    assert explain_miss(tmp_path, {THEN}) == ""
    assert explain_miss(tmp_path, set()) == ""
    put(tmp_path, "torch_compile_cache/b/rank_1_0/backbone/cache_key_factors.json", WRITTEN)
    assert explain_miss(tmp_path, {THEN}) == ""  # another rank's key is no other key


def test_equal_records_under_two_keys_are_said_to_be_equal(explained):
    assert explained() == "vLLM recorded the same factors and yet chose another key"


@pytest.mark.parametrize(
    ("hashes", "words"),
    [
        ({"config_hash": "x"}, "its configuration: write down what vLLM otherwise derives"),
        ({"code_hash": "x"}, "the text or path of its code: use the same image: the same vLLM, in the same folder"),
        ({"compiler_hash": "x"}, "compiler, torch or device: use the same image and the same kind of device"),
    ],
)
def test_a_difference_in_a_hash_is_put_into_words(explained, hashes, words):
    assert explained(**hashes) == f"vLLM's own key differs in {words}" + (
        " from the node (max_num_batched_tokens, max_num_seqs, max_model_len), and alike" if "config_hash" in hashes else ""
    )


def test_behind_another_configuration_the_number_of_batched_tokens_is_found_in_the_names_of_the_graphs(explained):
    for key, end in (("a", 8192), ("b", 1024)):
        for part in range(2):
            put(explained.root, f"torch_compile_cache/{key}/rank_0_0/backbone/artifact_compile_range_1_{end}_subgraph_{part}", "x")
    assert "its configuration (max_num_batched_tokens now 1024, then 8192): " in explained(config_hash="c2")


@pytest.mark.parametrize(("graphs", "words"), [(("g", "g"), "the model's graph is the same"), (("g", "h"), "graph differs too")])
def test_behind_another_configuration_the_graphs_are_compared(explained, graphs, words):
    for path, graph in zip((THEN, NOW), graphs, strict=True):
        put(explained.root, path.replace("cache_key_factors.json", "computation_graph.py"), graph)
    assert words in explained(config_hash="c2")


@pytest.mark.vllm
def test_of_what_vllm_itself_hashes_of_two_environments_the_variable_is_named(explained, vllm_python):
    """The factors come from the installed vLLM's own function; the file around them is put here as its source writes it."""
    program = (
        "import json, os\n"
        "from vllm import envs\n"
        "os.environ.update(VLLM_EC_SIDE_CHANNEL_HOST='10.0.3.17', VLLM_USE_AOT_COMPILE='0', VLLM_API_KEY='k1')\n"
        "first = envs.compile_factors()\n"
        "os.environ.update(VLLM_EC_SIDE_CHANNEL_HOST='10.0.9.4', VLLM_USE_AOT_COMPILE='1', VLLM_API_KEY='k2')\n"
        "print('FACTORS' + json.dumps([first, envs.compile_factors()]))\n"
    )
    done = subprocess.run([vllm_python, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    first, second = json.loads(done.stdout.partition("FACTORS")[2])
    assert len(first) > 200
    put(explained.root, THEN, WRITTEN | {"env": first})
    put(explained.root, NOW, WRITTEN | {"env": second})
    text = explain_miss(explained.root, {THEN})
    assert text.startswith(
        'vLLM\'s own key differs in VLLM_EC_SIDE_CHANNEL_HOST (now "10.0.9.4", then "10.0.3.17"), VLLM_USE_AOT_COMPILE'
    )
    assert "API_KEY" not in text  # vLLM leaves it out itself
    assert len(json.dumps(key_record(explained.root, {THEN}))) < 16 * 1024
