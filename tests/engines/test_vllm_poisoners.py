"""What of a command and its environment keeps starts from sharing a cache, and that nothing harmless is told."""

import re

import pytest

from glowplug.engines.vllm.arguments import parse
from glowplug.engines.vllm.environment import vllm_environment
from glowplug.engines.vllm.poisoners import KNOWN, poisoners

MODEL = "org/llama"


def told(*words, env=None, version="0.32.0", model=MODEL):
    return {
        found.name: found
        for found in poisoners(parse([model, *words], serve=True, cwd="/"), {"HOME": "/root"} | (env or {}), version=version)
    }


def test_an_ordinary_start_has_none():
    assert told("--port", "9000", "-tp", "2", env={"VLLM_LOGGING_LEVEL": "INFO", "VLLM_HOST_IP": "10.0.0.1", "PATH": "/bin"}) == {}


@pytest.mark.parametrize(
    ("name", "value", "severity", "remedy"),
    [
        ("VLLM_NIXL_SIDE_CHANNEL_PORT", "5601", "warning", "same port"),
        ("VLLM_P2P_SIDE_CHANNEL_HOST", "10.0.0.1", "warning", "leave it unset"),
        ("VLLM_EC_SIDE_CHANNEL_HOST", "10.0.0.1", "warning", "leave it unset"),
        ("VLLM_LOOPBACK_IP", "127.0.0.2", "warning", "unset it"),
        ("MOONCAKE_REQUESTER_LOCAL_HOSTNAME", "node-7", "warning", "leave it unset"),
        ("VLLM_RAY_BUNDLE_INDICES", "0,1", "warning", "Ray"),
        ("VLLM_DP_RANK", "1", "warning", "--data-parallel-size"),
        ("VLLM_PROCESS_NAME_PREFIX", "llm-0", "warning", "unset it"),
        ("VLLM_LORA_RESOLVER_CACHE_DIR", "/data/lora", "warning", "at one path"),
        ("VLLM_IMAGE_TAG", "v1", "note", "set it to nothing"),
        ("VLLM_BUILD_URL", "https://ci/1", "note", "set it to nothing"),
        ("VLLM_CPU_OMP_THREADS_BIND", "0-31", "note", "auto"),
        ("VLLM_PLUGINS", "a,b", "note", "same list"),
        ("VLLM_OF_TOMORROW_ADDR", "10.0.0.1:80", "note", "unset it"),
    ],
)
def test_a_variable_is_told_with_its_remedy_and_is_in_the_envelope(name, value, severity, remedy):
    [found] = told(env={name: value}).values()
    assert (found.name, found.value, found.severity, found.seen_by) == (name, value, severity, "both")
    assert remedy in found.remedy
    assert vllm_environment({name: value}) == {name: value}  # so that a start with another value misses


@pytest.mark.parametrize(("version", "seen"), [("0.20.1", True), ("0.22.0", False), ("0.32.0", False), (None, False)])
def test_the_address_of_nixl_counts_for_older_vllms_only_and_is_in_no_envelope(version, seen):
    env = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"}
    found = told(env=env, version=version).get("VLLM_NIXL_SIDE_CHANNEL_HOST")
    assert (found is not None) is seen
    assert found is None or (found.severity, found.seen_by) == ("warning", "engine")
    assert vllm_environment(env) == {}


@pytest.mark.parametrize(("version", "seen"), [("0.29.1", True), ("0.30.0", False), (None, False)])
def test_home_counts_for_older_vllms_only(version, seen):
    assert ("HOME" in told(version=version)) is seen


def test_a_pinned_cache_folder_is_a_warning_that_only_the_engine_sees():
    found = told("--compilation-config.cache_dir", "/mine")["compilation_config.cache_dir"]
    assert (found.value, found.severity, found.seen_by) == ("/mine", "warning", "engine")


def test_a_model_with_a_url_is_told_without_its_password():
    found = told(model="https://me:hunter2@host/llama")["--model"]
    assert (found.value, found.severity) == ("https://host/llama", "note")


def test_a_password_in_a_variable_is_not_told():
    assert "hunter2" not in str(told(env={"VLLM_BUILD_URL": "https://me:hunter2@host/1"}))


def test_each_is_one_line_for_a_log():
    for found in told(env={name.removeprefix("environment."): "1" for name in KNOWN}, version="0.20.0").values():
        assert found.line().startswith(f"{found.name}={found.value}: ")
        assert found.line().isprintable()


@pytest.mark.vllm
def test_the_envelope_holds_every_variable_that_this_vllm_hashes(vllm_python):
    """Read from its source, as importing it takes 20 s. Known ones less the ignored ones are what ``compile_factors`` hashes."""
    [path] = (vllm_python.parents[1] / "lib").glob("python3*/site-packages/vllm/envs.py")
    text = path.read_text()
    table = text[text.index("environment_variables: dict") :]
    names = set(re.findall(r'^    "(\w+)":', table[: table.index("\n}\n")], re.MULTILINE))
    begun = text.index("ignored_factors: set[str] = {")
    ignored = set(re.findall(r'"(\w+)"', text[begun : text.index("}", begun)]))
    assert len(names) > 300
    hashed = names - ignored
    assert set(vllm_environment(dict.fromkeys(hashed, "1"))) == hashed
    in_vllm = {path.removeprefix("environment.") for path in KNOWN}
    assert in_vllm <= names  # every name of ours is one of vLLM's
