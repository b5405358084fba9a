"""What a start says about a miss: two lines where a cache of the same deployment is near, and nothing anywhere else."""

from __future__ import annotations

import json
import os
import shutil

import pytest

NEAREST, FIX = "nearest cache in the store differs in ", "likely an accident"


@pytest.fixture
def published(glowplug, vllm):
    """A store that a pod has published to, and the node forgotten."""
    env = {"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.3.17"}
    with glowplug.begin(*vllm, env=env) as running:
        running.wait_for("published generation")
        running.signal(15)
        ended = running.end()
    assert not ended.said(NEAREST)  # the first of its kind
    glowplug.forget()
    return ended


@pytest.mark.usefixtures("published")
def test_a_miss_with_a_near_neighbour_is_explained_in_two_lines(glowplug, vllm):
    with glowplug.begin(*vllm, env={"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.9.4"}, options=["--quiet"]) as running:
        running.wait_for(FIX)
        running.signal(15)
        ended = running.end()
    [first] = ended.said(NEAREST)
    assert "environment.VLLM_P2P_SIDE_CHANNEL_HOST (here 10.0.9.4, there 10.0.3.17)" in first
    [second] = ended.said(FIX)
    assert "leave it unset unless" in second
    assert ended.ours.index(second) == ended.ours.index(first) + 1


@pytest.mark.usefixtures("published")
def test_a_hit_is_not_explained(glowplug, vllm):
    with glowplug.begin(*vllm, env={"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.3.17"}) as running:
        running.wait_for("cache hit")
        running.signal(15)
        assert not running.end().said(NEAREST)


def slow(folder, name):
    """A command that compiles and takes until its input ends."""
    script = folder / name
    script.write_text(
        "import os, pathlib, sys\n"
        "path = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], '00', 'a.so')\n"
        "path.parent.mkdir(parents=True, exist_ok=True)\n"
        "path.write_bytes(b'x')\nprint('compiled', flush=True)\nsys.stdin.read()\n"
    )
    return ("python", str(script))


def test_another_program_is_no_near_neighbour(glowplug, published, tmp_path):
    assert published.report["publish"]["state"] == "published"
    with glowplug.begin(*slow(tmp_path, "train.py")) as running:
        running.wait_for("compiled", "out")
        ended = running.end()
    assert not ended.said(NEAREST)
    assert not ended.said(FIX)


@pytest.mark.usefixtures("published")
def test_what_cannot_be_listed_is_not_explained_and_costs_nothing(glowplug, vllm):
    for path in glowplug.store.glob("v1/*/envelope.json"):
        path.write_bytes(b"[" * 100_000)
    with glowplug.begin(*vllm, env={"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.9.4"}) as running:
        running.wait_for("published generation")
        running.signal(15)
        ended = running.end()
    assert ended.report["outcome"] == "miss"
    assert not ended.said(NEAREST)
    assert "Traceback" not in ended.err


def test_the_report_s_file_holds_the_envelope_and_the_line_on_standard_error_does_not(glowplug, compiler):
    ended = glowplug.run(*compiler, options=["--json"])
    assert ended.report["cache"]["components"]["engine"] == {"name": "generic"}
    key = json.loads(glowplug("cache", "key", "--json", "--cache-dir", str(glowplug.live), "--", *compiler).out)
    assert ended.report["cache"]["components"] == key["components"]
    [line] = [line for line in ended.err.splitlines() if line.startswith("{")]
    assert "components" not in json.loads(line)["cache"]


def test_the_engine_s_own_record_is_in_the_report_without_secrets(glowplug, vllm):
    script = vllm[0]
    record = {"env": {"VLLM_API_KEY": "hunter2hunter2", "VLLM_X": 1}, "config_hash": "a", "code_hash": "b", "compiler_hash": "c"}
    with open(script, encoding="utf-8") as file:
        text = file.read()
    text = text.replace("factors = {", f"(rank / 'cache_key_factors.json').write_text({json.dumps(record)!r})\nfactors = {{", 1)
    with open(script, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(script, 0o755)
    with glowplug.begin(*vllm, options=["--no-publish"]) as running:
        running.wait_for("cache miss")
        running.signal(15)
        report = running.end().report
    assert report["cache"]["engine_key"]["env"] == {"VLLM_API_KEY": "(a secret)", "VLLM_X": 1}
    shutil.rmtree(glowplug.live)
