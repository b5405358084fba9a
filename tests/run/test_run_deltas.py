"""What a serving engine compiles after its start becomes a new generation that holds the old one."""

from __future__ import annotations

import base64
import json
import os
import signal
import time

import pytest

from glowplug.cache.repository import Pointer
from glowplug.run.publishing import Publications
from glowplug.run.restoring import Prepared, Search
from glowplug.timeline.outcome import Lookup
from tests.run.program import eventually, read_report

SOON = ["--publish-interval", "0.2s"]


def graphs(glowplug):
    """The folder where the engine keeps its graphs."""
    [folder] = glowplug.live.glob("*/vllm/torch_compile_cache/*/rank_0_0/backbone")
    return folder


def names(glowplug):
    """Graphs of the newest generation."""
    [manifest] = [path for path in glowplug.published() if path.stem == glowplug.latest()]
    payload = json.loads(base64.b64decode(json.loads(manifest.read_text())["payload"]))
    return {path.rpartition("/")[2] for path, *_ in payload["files"] if "rank_0_0" in path}


def serving(report):
    """Until the engine is ready, and its start is all said and done."""
    eventually(lambda: (read_report(report) or {}).get("publish"))


def stop(start):
    start.signal(signal.SIGTERM)
    return start.end()


STARTED_WITH = {"artifact_compile_range_0", "artifact_compile_range_1"}


def test_a_shape_compiled_after_a_cold_start_is_published_once(glowplug, vllm):
    with glowplug.begin(*vllm, options=SOON) as start:
        start.wait_for("published generation")
        first = glowplug.latest()
        (graphs(glowplug) / "late").write_bytes(b"late")
        start.wait_for("1 compiled file more than the start had")
        second = glowplug.latest()
        (graphs(glowplug) / "later").write_bytes(b"later")
        start.wait_for("published generation", times=3)
        ended = stop(start)
    assert ended.report["publish"]["generation"] == first
    assert len({first, second, glowplug.latest()}) == len(glowplug.published()) == 3
    assert names(glowplug) == STARTED_WITH | {"late", "later"}
    assert not glowplug.half_written()


def test_after_a_hit_as_well(glowplug, vllm):
    with glowplug.begin(*vllm) as start:
        start.wait_for("published generation")
        stop(start)
    glowplug.forget()
    with glowplug.begin(*vllm, options=SOON) as start:
        serving(glowplug.report)
        (graphs(glowplug) / "late").write_bytes(b"late")
        start.wait_for("published generation")
        assert stop(start).report["outcome"] == "hit"
    assert names(glowplug) == STARTED_WITH | {"late"}


def test_two_replicas_with_different_shapes_end_in_one_generation_with_both(glowplug, vllm, tmp_path):
    with glowplug.begin(*vllm) as start:
        start.wait_for("published generation")
        stop(start)
    glowplug.forget()
    other = [*vllm[:-1], f"{vllm[-1]}2"]  # another socket; the address is no part of the envelope
    with (
        glowplug.begin(*vllm, options=SOON) as one,
        glowplug.begin(*other, options=[*SOON, "--cache-dir", str(tmp_path / "live2"), "--report", str(tmp_path / "2")]) as two,
    ):
        serving(glowplug.report)
        serving(tmp_path / "2")
        [there] = (tmp_path / "live2").glob("*/vllm/torch_compile_cache/*/rank_0_0/backbone")
        (graphs(glowplug) / "one").write_bytes(b"1")
        (there / "two").write_bytes(b"2")
        one.wait_for("published generation")
        two.wait_for("published generation")
        stop(one)
        stop(two)
    assert names(glowplug) == STARTED_WITH | {"one", "two"}
    assert not (there / "one").exists()  # a running engine's folder is its own


def test_replicas_that_compile_the_same_shape_publish_it_once_and_say_nothing_otherwise(glowplug, vllm, tmp_path):
    with glowplug.begin(*vllm) as start:
        start.wait_for("published generation")
        stop(start)
    glowplug.forget()
    other = [*vllm[:-1], f"{vllm[-1]}2"]
    with (
        glowplug.begin(*vllm, options=SOON) as one,
        glowplug.begin(
            *other, options=["--publish-interval", "2s", "--cache-dir", str(tmp_path / "live2"), "--report", str(tmp_path / "2")]
        ) as two,
    ):
        serving(glowplug.report)
        serving(tmp_path / "2")
        [there] = (tmp_path / "live2").glob("*/vllm/torch_compile_cache/*/rank_0_0/backbone")
        for folder in (graphs(glowplug), there):
            (folder / "same").write_bytes(os.urandom(10))
        one.wait_for("published generation")
        packs = set(glowplug.store.glob("v1/*/packs/*"))
        (there / "cache_key_factors.json").write_text("{}")
        (there / "also").write_bytes(b"x")
        two.wait_for("published generation")
        assert not stop(one).said("could not")
        assert not stop(two).said("could not")
    assert len(set(glowplug.store.glob("v1/*/packs/*")) - packs) == 1
    assert names(glowplug) >= STARTED_WITH | {"same", "also"}


def test_who_does_not_publish_does_not_look_either(glowplug, vllm):
    with glowplug.begin(*vllm) as start:
        start.wait_for("published generation")
        stop(start)
    soon = ["--publish-interval", "0.05s"]
    for options in (["--publish-interval", "0"], ["--role", "reader", *soon], ["--no-publish", *soon]):
        glowplug.forget()
        with glowplug.begin(*vllm, options=options) as start:
            serving(glowplug.report)
            (graphs(glowplug) / "late").write_bytes(b"late")
            time.sleep(0.3)  # six times the interval; what must not happen sends no event
            ended = stop(start)
        assert ended.code == 0
        assert len(glowplug.published()) == 1
        assert not ended.said("compiled file")


def test_the_same_failure_is_said_once(glowplug, vllm):
    with glowplug.begin(*vllm, options=SOON, env={"VLLM_API_KEY": "my-very-secret-word"}) as start:
        start.wait_for("published generation")
        (graphs(glowplug) / "late.json").write_text('{"key": "my-very-secret-word"}')
        start.wait_for("could not be published")
        first = len(glowplug.published())
        (graphs(glowplug) / "late.json").rename(graphs(glowplug) / "later.json")
        start.wait_for("later.json")
        ended = stop(start)
    assert len(ended.said("late.json")) == 1
    assert "VLLM_API_KEY" in ended.said("could not be published")[0]
    assert len(glowplug.published()) == first
    assert not glowplug.half_written()


def test_a_publication_that_failed_at_readiness_is_made_up_for(glowplug, vllm):
    glowplug.store.mkdir(mode=0o700)
    (glowplug.store / "v1").write_text("in the way")
    with glowplug.begin(*vllm, options=SOON) as start:
        start.wait_for("nothing was published")
        (glowplug.store / "v1").unlink()
        start.wait_for("published generation")
        stop(start)
    assert names(glowplug) == STARTED_WITH


def test_an_engine_that_ends_while_a_later_shape_is_packed_leaves_nothing_of_it(glowplug, vllm):
    with glowplug.begin(*vllm, options=SOON) as start:
        start.wait_for("published generation")
        (graphs(glowplug) / "late").write_bytes(os.urandom(120_000_000))
        eventually(lambda: [path for path in glowplug.store.glob(".glowplug/spool/pack-*") if path.stat().st_size])
        ended = stop(start)
    assert ended.code == 0
    assert names(glowplug) == STARTED_WITH
    assert not ended.said("could not be published")
    assert not glowplug.half_written()


@pytest.mark.parametrize(
    ("state", "timed_out", "displaced"),
    [("refused", False, False), ("off", False, False), ("none", True, False), ("none", False, True)],
)
def test_only_a_generation_of_which_a_part_is_gone_is_displaced_without_another_look(state, timed_out, displaced):
    search = Search(Lookup(state, "why"), Pointer("a" * 64, "etag"), timed_out=timed_out)
    publications = Publications(None, Prepared(None, search=search), None)
    assert ("a" * 64 in publications._known) is displaced
