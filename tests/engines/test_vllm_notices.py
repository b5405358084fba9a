import pytest

from glowplug.cache.families import FAMILIES
from glowplug.engines.vllm.arguments import parse
from glowplug.engines.vllm.installed import version_tuple
from glowplug.engines.vllm.notices import notices
from glowplug.engines.vllm.poisoners import poisoners


def told(line="", env=None, model=None, *, on_cpu=False, torch="2.13.0"):
    arguments = parse(["m", *line.split()], serve=True, cwd="/")
    found = list(poisoners(arguments, env or {}, version="0.32.0"))
    return list(notices(arguments, env or {}, model or {"reference": "m"}, found, FAMILIES.values(), on_cpu=on_cpu, torch=torch))


def test_an_ordinary_start_needs_no_word():
    assert told("--port 8000 -tp 2", {"HOME": "/root", "VLLM_LOGGING_LEVEL": "INFO"}) == []


@pytest.mark.parametrize(
    ("line", "env", "word"),
    [
        ("--enforce-eager", {}, "--enforce-eager"),
        ("-O0", {}, "optimization level 0"),
        ("--optimization-level 0", {}, "optimization level 0"),
        ("--compilation-config.mode 0", {}, "optimization level 0"),
        ("--compilation-config.mode NONE", {}, "optimization level 0"),
        ("--compilation-config.cache_dir /x", {}, "compilation_config.cache_dir=/x: pinned"),
        ("", {"VLLM_DISABLE_COMPILE_CACHE": "1"}, "VLLM_DISABLE_COMPILE_CACHE"),
        ("", {"VLLM_CACHE_ROOT": "/mine"}, "VLLM_CACHE_ROOT=/mine is replaced"),
        ("", {"TORCHINDUCTOR_CACHE_DIR": "/mine"}, "TORCHINDUCTOR_CACHE_DIR=/mine is replaced"),
        (
            "",
            {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5601"},
            "VLLM_NIXL_SIDE_CHANNEL_PORT=5601: the port where NIXL's peers find this pod, in vLLM's cache key; give",
        ),
        ("", {"MOONCAKE_REQUESTER_LOCAL_HOSTNAME": "10.0.0.9"}, "10.0.0.9"),
        ("--config=x.yaml", {}, "write --config x.yaml"),
    ],
)
def test_a_setting_that_defeats_the_cache_is_named(line, env, word):
    lines = told(line, env)
    assert len(lines) == 1
    assert word in lines[0]
    assert "\n" not in lines[0]


def test_the_opposite_settings_are_not_named():
    assert told("--no-enforce-eager -O2 --compilation-config.mode 3", {"VLLM_DISABLE_COMPILE_CACHE": "0"}) == []


@pytest.mark.parametrize(
    ("on_cpu", "torch", "env", "named"),
    [
        (True, "2.13.0+cpu", {}, True),
        (True, "2.10.0", {}, True),
        (True, "2.9.1", {}, False),
        (True, None, {}, False),
        (False, "2.13.0", {}, False),
        (True, "2.13.0", {"VLLM_USE_AOT_COMPILE": "0"}, False),
        (True, "2.13.0", {"VLLM_USE_AOT_COMPILE": "1"}, False),
    ],
)
def test_on_the_cpu_the_aot_artefact_is_warned_of(on_cpu, torch, env, named):
    assert any("VLLM_USE_AOT_COMPILE=0" in line for line in told(env=env, on_cpu=on_cpu, torch=torch)) is named


def test_an_unpinned_model_that_is_not_cached_is_named():
    assert "--revision COMMIT" in told(model={"reference": "org/name", "commit": None})[0]
    assert told(model={"reference": "org/name", "commit": "a" * 40}) == []


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("0.32.0", (0, 32, 0)), ("2.13.0+cpu", (2, 13, 0)), ("0.32.0rc1", (0, 32)), ("0.30.1.dev5", (0, 30, 1)), ("x", ())],
)
def test_versions_are_compared_by_their_leading_numbers(version, numbers):
    assert version_tuple(version) == numbers
