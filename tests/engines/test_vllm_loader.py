"""The parts of the loader that need no vLLM: where this process stands, what it was told, and the feeder it starts by itself."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import glowplug
from glowplug.engines.vllm.host_memory import beside_weights
from glowplug.engines.vllm.loader import filters
from glowplug.engines.vllm.loader.feeder import feeder
from glowplug.engines.vllm.loader.ranks import Place, draft_follows, place_of
from glowplug.engines.vllm.loader.settings import LoaderSettings, is_wrapped, read_settings
from glowplug.errors import IncompatibleError, LocalError

# --- the place


def config(**parallel):
    base = {"rank": 0, "world_size": 1, "local_world_size": 1, "data_parallel_size": 1, "data_parallel_size_local": 1}
    return SimpleNamespace(instance_id="ab12c", parallel_config=SimpleNamespace(**{**base, **parallel}))


@pytest.mark.parametrize(
    ("parallel", "rank", "ranks"),
    [
        ({}, 0, 1),
        ({"rank": 3, "world_size": 4, "local_world_size": 4}, 3, 4),
        ({"rank": 5, "world_size": 8, "local_world_size": 4}, 1, 4),  # the second of two nodes
        (
            {
                "rank": 1, "world_size": 2, "local_world_size": 2, "data_parallel_size": 4, "data_parallel_size_local": 2,
                "data_parallel_index": 3, "data_parallel_rank_local": 1,
            },
            3,
            4,
        ),  # a mixture of experts: two replicas of two ranks on this node, two more elsewhere
    ],
)  # fmt: skip
def test_ranks_are_counted_on_this_node_alone(parallel, rank, ranks):
    place = place_of(config(**parallel))
    assert (place.rank, place.ranks) == (rank, ranks)


def test_every_rank_of_a_node_has_a_number_of_its_own_and_they_share_an_engine():
    places = [
        place_of(
            config(
                rank=rank, world_size=2, local_world_size=2, data_parallel_size=2, data_parallel_size_local=2,
                data_parallel_index=index, data_parallel_rank_local=index,
            )
        )
        for index in range(2)
        for rank in range(2)
    ]  # fmt: skip
    assert [place.rank for place in places] == [0, 1, 2, 3]
    assert {(place.ranks, place.engine) for place in places} == {(4, places[0].engine)}


def test_replicas_of_a_dense_model_are_told_apart_though_each_thinks_it_is_alone():
    first, second = (place_of(config(data_parallel_index=index, data_parallel_rank_local=index)) for index in range(2))
    assert (first.rank, second.rank) == (0, 1)
    assert first.engine != second.engine
    assert first.is_replica


def test_a_version_that_lacks_a_field_counts_as_one_process():
    place = place_of(SimpleNamespace(parallel_config=SimpleNamespace(rank=0)))
    assert (place.rank, place.ranks) == (0, 1)
    assert place.engine


def test_the_buffer_is_kept_for_a_draft_that_is_a_part_of_the_same_checkpoint(tmp_path):
    def speculative(draft, **more):
        made = config()
        made.speculative_config = SimpleNamespace(draft_model_config=SimpleNamespace(model=draft), draft_load_config=None, **more)
        return made

    assert draft_follows(speculative(str(tmp_path)), str(tmp_path))
    assert not draft_follows(speculative("another/draft"), str(tmp_path))
    assert not draft_follows(config(), str(tmp_path))
    pipeline = speculative(str(tmp_path))
    pipeline.parallel_config.pipeline_parallel_size = 2
    assert not draft_follows(pipeline, str(tmp_path))
    own = speculative(str(tmp_path))
    own.speculative_config.draft_load_config = object()
    assert not draft_follows(own, str(tmp_path))


# --- what it was told


def test_keys_of_vllms_own_loader_are_handed_on_and_ours_are_not():
    settings, others = read_settings({"uri": "s3://b/m", "concurrency": 8, "memory_limit": 5_000_000_000, "num_threads": 4, "x": 1})
    assert settings == LoaderSettings(uri="s3://b/m", concurrency=8, memory="5000000000")
    assert others == {"num_threads": 4, "x": 1}


@pytest.mark.parametrize(
    "extra", [{"uri": 7}, {"concurrency": -1}, {"concurrency": True}, {"pin": "yes"}, {"memory": []}, {"attach_timeout_s": 0}]
)
def test_a_value_that_makes_no_sense_names_its_key(extra):
    with pytest.raises(ValueError, match=next(iter(extra))):
        read_settings(extra)


def test_the_buffer_is_the_models_only_if_the_command_names_its_folder(tmp_path):
    env = {"GLOWPLUG_WEIGHTS_SOCKET": "/s", "GLOWPLUG_WEIGHTS_FOLDER": str(tmp_path)}
    (tmp_path.parent / f"{tmp_path.name}-link").symlink_to(tmp_path)
    assert is_wrapped(str(tmp_path), env)
    assert is_wrapped(f"{tmp_path}-link", env)
    assert not is_wrapped("/another/draft-model", env)
    assert not is_wrapped(str(tmp_path), {"GLOWPLUG_WEIGHTS_FOLDER": str(tmp_path)})


# --- what is passed over


def test_a_weight_that_the_model_calls_unused_is_passed_over_unless_nothing_would_be_left():
    loader = SimpleNamespace(local_expert_ids=None)
    source = SimpleNamespace(is_unused_weight=lambda name: name.startswith("mtp."))
    skip = filters.passes_over(loader, source, ["mtp.a", "b"])
    assert [skip("mtp.a"), skip("b")] == [True, False]
    assert not filters.passes_over(loader, source, ["mtp.a"])("mtp.a")


def test_a_version_without_the_filters_passes_nothing_over():
    assert not filters.passes_over(SimpleNamespace(), SimpleNamespace(), ["a"])("a")


# --- a feeder of its own

STAND_IN = """
import os, socket, sys, time
words = sys.argv[1:]
with open(os.environ["NOTES"], "a") as notes:
    notes.write(" ".join(words) + "\\n")
if os.environ.get("FAILS"):
    sys.exit("glowplug: s3://bucket/m: access denied")
server = socket.socket(socket.AF_UNIX)
server.bind(words[words.index("--socket") + 1])
server.listen()
sys.stdin.read()
"""


@pytest.fixture
def env(tmp_path):
    script = tmp_path / "stand-in.py"
    script.write_text(STAND_IN)
    command = shlex.join([sys.executable, str(script)])
    return {"GLOWPLUG_COMMAND": command, "TMPDIR": str(tmp_path), "NOTES": str(tmp_path / "notes"), "PATH": os.environ["PATH"]}


def test_several_ranks_at_once_start_one_feeder_and_it_gets_what_it_needs(env):
    settings = LoaderSettings(concurrency=8, memory="512MiB")
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda rank=rank: found.append(feeder("s3://b/m", Place(rank, 4, "e"), settings, env=env)))
        for rank in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [path] = set(found)
    notes = Path(env["NOTES"]).read_text().splitlines()
    memory = beside_weights(4, on_cpu=False, env=env)
    expected = f"weights serve s3://b/m --socket {path} --ranks 4 --engine-memory {memory} --concurrency 8 --host-memory 512MiB"
    assert notes == [expected]
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700


def test_on_a_cpu_the_feeder_is_told_that_the_weights_stay_in_the_hosts_memory(env):
    env = {**env, "VLLM_CPU_KVCACHE_SPACE": "7"}
    feeder("s3://b/m", Place(0, 2, "e", on_cpu=True), LoaderSettings(), env=env)
    words = Path(env["NOTES"]).read_text().split()
    assert "--on-cpu" in words
    memory = int(words[words.index("--engine-memory") + 1])
    assert memory - beside_weights(2, on_cpu=False, env=env) == 2 * 7 * 2**30


def test_another_engine_and_another_checkpoint_have_feeders_of_their_own(env):
    paths = {feeder(uri, Place(0, 1, engine), LoaderSettings(), env=env) for uri, engine in [("a", "e"), ("b", "e"), ("a", "f")]}
    assert len(paths) == 3


def test_a_feeder_that_fails_is_quoted(env):
    with pytest.raises(LocalError, match=r"exit code 1: glowplug: s3://bucket/m: access denied"):
        feeder("s3://bucket/m", Place(0, 1, "e"), LoaderSettings(), env={**env, "FAILS": "1"})


def test_a_feeder_that_never_listens_is_given_up(env, tmp_path):
    env = {**env, "GLOWPLUG_COMMAND": "sleep 60 #"}
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    with pytest.raises(LocalError, match="not ready in time"):
        feeder("s3://b/m", Place(0, 1, "e"), LoaderSettings(attach_timeout_s=0.3), env={**env, "GLOWPLUG_COMMAND": str(script)})


def test_the_feeder_learns_that_its_rank_has_died(env, tmp_path):
    code = (
        "import os, signal, sys\n"
        "from glowplug.engines.vllm.loader.feeder import feeder\n"
        "from glowplug.engines.vllm.loader.ranks import Place\n"
        "from glowplug.engines.vllm.loader.settings import LoaderSettings\n"
        "feeder('s3://b/m', Place(0, 1, 'e'), LoaderSettings())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ends = tmp_path / "ends.py"
    ends.write_text(STAND_IN + 'open(os.environ["NOTES"] + "-end", "w").close()\n')
    env = {
        **env,
        "GLOWPLUG_COMMAND": shlex.join([sys.executable, str(ends)]),
        "PYTHONPATH": str(Path(glowplug.__file__).parents[1]),
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    from tests.run.program import eventually

    eventually(Path(env["NOTES"] + "-end").exists)


def test_a_folder_that_others_can_write_is_refused(env, tmp_path):
    folder = tmp_path / f"glowplug-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LocalError, match="not a folder of this user alone"):
        feeder("s3://b/m", Place(0, 1, "e"), LoaderSettings(), env=env)


def test_without_a_glowplug_to_start_it_says_what_to_do(env, monkeypatch):
    from glowplug.engines.vllm.loader import feeder as module

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    del env["GLOWPLUG_COMMAND"]
    with pytest.raises(IncompatibleError) as caught:
        feeder("s3://b/m", Place(0, 1, "e"), LoaderSettings(), env=env)
    assert "glowplug run" in caught.value.hint
