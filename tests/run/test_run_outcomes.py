"""Each outcome, proven by what the engine did: miss, hit, partial, unused, refused, off; and the report that says so."""

from __future__ import annotations

import datetime as dt
import json
import signal

import pytest

from glowplug.cache.keys import create_pair
from glowplug.timeline.report import StartReport


def test_a_generic_command_misses_then_hits_then_compiles_one_more_then_ignores_the_cache(glowplug, compiler):
    miss = glowplug.run(*compiler)
    assert (miss.code, miss.report["outcome"]) == (0, "miss")
    assert b"compiled 4 loaded 0" in miss.out
    assert miss.report["publish"]["state"] == "published"
    assert miss.report["publish"]["files"] == 4
    [line] = miss.said("published generation")
    assert miss.report["publish"]["generation"][:12] in line
    assert glowplug.latest() == miss.report["publish"]["generation"]

    glowplug.forget()
    hit = glowplug.run(*compiler)
    assert (hit.code, hit.report["outcome"]) == (0, "hit")
    assert b"compiled 0 loaded 4" in hit.out
    assert hit.report["cache"]["generation"] == glowplug.latest()
    assert (hit.report["cache"]["files"], hit.report["cache"]["bytes"]) == (4, 4000)
    assert hit.report["publish"]["state"] == "nothing new"
    assert len(glowplug.published()) == 1

    glowplug.forget()
    partial = glowplug.run(*compiler, env={"GRAPHS": "5"})
    assert (partial.code, partial.report["outcome"]) == (0, "partial")
    assert b"compiled 1 loaded 4" in partial.out
    assert partial.report["publish"]["files"] == 5
    assert glowplug.latest() == partial.report["publish"]["generation"]

    glowplug.forget()
    unused = glowplug.run(*compiler, env={"GRAPHS": "5", "DOES": "ignore"})
    assert (unused.code, unused.report["outcome"]) == (0, "unused")
    assert b"compiled 5 loaded 0" in unused.out
    assert unused.report["publish"]["state"] == "skipped"
    assert unused.said("would not help")
    assert len(glowplug.published()) == 2
    assert not glowplug.half_written()


def test_a_server_misses_then_hits_and_says_what_was_saved(glowplug, vllm):
    with glowplug.begin(*vllm, env={"COMPILE_S": "0.5"}) as start:
        start.wait_for("published generation")
        start.signal(signal.SIGTERM)
        miss = start.end()
    assert (miss.code, miss.report["outcome"], miss.report["exit_code"]) == (0, "miss", 0)
    assert "vllm 0.32.0 ready in" in miss.err
    assert {"envelope", "restore", "spawn", "weights", "compile"} <= {phase["name"] for phase in miss.report["phases"]}

    glowplug.forget()
    with glowplug.begin(*vllm) as start:
        start.wait_for("ready in")
        start.wait_for("generation")
        start.signal(signal.SIGTERM)
        hit = start.end()
    assert (hit.code, hit.report["outcome"], hit.report["engine"]) == (0, "hit", {"name": "vllm", "version": "0.32.0"})
    assert "Compiling a graph" not in hit.err
    assert "the engine loaded 2 compiled artefacts and compiled nothing" in hit.report["reason"]
    assert hit.report["cache"]["saved_s"] == pytest.approx(miss.report["wall_s"] - hit.report["wall_s"], abs=0.002)
    assert hit.report["cache"]["saved_s"] > 0  # of two graphs at 0.5 s each
    assert "saved" in hit.err
    assert hit.report["publish"]["state"] == "nothing new"


def test_a_server_that_compiles_one_more_graph_is_a_partial_hit_and_published_again(glowplug, vllm):
    for graphs, outcome in (("1", "miss"), ("2", "partial")):
        with glowplug.begin(*vllm, env={"GRAPHS": graphs}) as start:
            start.wait_for("published generation")
            start.signal(signal.SIGTERM)
            assert start.end().report["outcome"] == outcome
        glowplug.forget()
    assert len(glowplug.published()) == 2


def test_a_server_that_makes_no_use_of_what_was_restored_is_called_unused(glowplug, vllm):
    with glowplug.begin(*vllm) as start:
        start.wait_for("published generation")
        start.signal(signal.SIGTERM)
        start.end()
    glowplug.forget()
    with glowplug.begin(*vllm, env={"DOES": "ignore"}) as start:
        start.wait_for("nothing was published")
        start.signal(signal.SIGTERM)
        unused = start.end()
    assert unused.report["outcome"] == "unused"
    assert "restored, but not used" in unused.err
    assert len(glowplug.published()) == 1


def test_without_a_cache_the_engine_gets_no_folder_and_nothing_is_made(glowplug, compiler):
    ended = glowplug.run(*compiler, options=["--no-cache"])
    assert (ended.code, ended.report["outcome"]) == (0, "off")
    assert b"without a cache folder" in ended.out
    assert not ended.ours  # the user knows what the user asked for
    assert not glowplug.store.exists()
    assert not glowplug.live.exists()
    assert not glowplug.keys.exists()


def test_without_publishing_nothing_reaches_the_store(glowplug, compiler):
    ended = glowplug.run(*compiler, options=["--no-publish"])
    assert (ended.code, ended.report["outcome"], ended.report["publish"]["state"]) == (0, "miss", "skipped")
    assert not glowplug.store.exists()


def test_without_restoring_the_engine_compiles_although_the_store_has_a_cache(glowplug, compiler):
    glowplug.run(*compiler)
    glowplug.forget()
    ended = glowplug.run(*compiler, options=["--no-restore"])
    assert (ended.code, ended.report["outcome"]) == (0, "off")
    assert b"compiled 4 loaded 0" in ended.out


def test_what_lies_on_the_node_is_used_though_the_store_has_nothing(glowplug, compiler):
    glowplug.run(*compiler, options=["--no-publish"])
    ended = glowplug.run(*compiler)
    assert b"compiled 0 loaded 4" in ended.out
    assert ended.report["outcome"] == "hit"
    assert "nothing was restored" in ended.report["reason"]
    assert ended.report["publish"]["state"] == "published"


def test_a_failed_command_publishes_nothing_and_keeps_its_exit_code(glowplug, compiler):
    ended = glowplug.run(*compiler, env={"DOES": "fail"})
    assert (ended.code, ended.report["exit_code"]) == (3, 3)
    assert ended.report["publish"] == ended.report["publish"] | {"state": "skipped", "reason": "the command ended with exit code 3"}
    assert not glowplug.published()


def test_a_server_that_dies_before_it_is_ready_is_reported_and_publishes_nothing(glowplug, vllm):
    ended = glowplug.run(*vllm, env={"DOES": "die"})
    assert (ended.code, ended.report["exit_code"], ended.report["outcome"]) == (9, 9, "miss")
    assert ended.report["publish"]["state"] == "skipped"
    assert "ready in" not in ended.err
    assert not glowplug.published()


def test_a_command_that_compiles_nothing_is_no_failed_publication(glowplug):
    ended = glowplug.run("true")
    assert (ended.code, ended.report["publish"]["state"]) == (0, "skipped")
    assert ended.said("nothing was compiled into")
    assert not glowplug.keys.exists()  # nothing to sign


def test_the_report_has_every_member_of_its_schema_and_no_other(glowplug, compiler):
    glowplug.run(*compiler)
    report = glowplug.run(*compiler).report
    assert list(report) == [
        "schema", "outcome", "reason", "wall_s", "unattributed_s", "phases", "cache", "engine", "started_at", "exit_code",
        "publish", "notices", "weights", "events",
    ]  # fmt: skip
    assert report["schema"] == "glowplug.dev/start/v1"
    assert {"envelope", "generation", "files", "bytes", "saved_s"} < set(report["cache"])
    assert [set(phase) for phase in report["phases"]] == [{"name", "start_s", "seconds"}] * len(report["phases"])
    assert [phase["name"] for phase in report["phases"]] == ["envelope", "restore", "spawn", "run"]
    assert report["engine"] == {"name": "generic", "version": None}
    assert report["exit_code"] == 0
    assert 0 <= report["unattributed_s"] <= report["wall_s"]
    assert report["unattributed_s"] + sum(phase["seconds"] for phase in report["phases"]) < report["wall_s"] + 0.01
    assert dt.datetime.fromisoformat(report["started_at"]).tzinfo == dt.UTC
    again = json.loads(json.dumps(StartReport.from_json(report).to_json()))
    assert again | {"unattributed_s": report["unattributed_s"]} == report  # which is calculated, from rounded phases


def test_json_puts_the_report_on_one_line_of_stderr_instead_of_the_table(glowplug, compiler):
    ended = glowplug.run(*compiler, options=["--json", "--quiet"])
    assert "─" not in ended.err
    ended = glowplug.run(*compiler, options=["--json"])
    [line] = [line for line in ended.err.splitlines() if line.startswith("{")]
    assert json.loads(line)["schema"] == "glowplug.dev/start/v1"
    assert "─" not in ended.err


def test_quiet_says_nothing_where_nothing_is_wrong(glowplug, compiler):
    assert glowplug.run(*compiler, options=["--quiet"]).err == ""


def test_a_workstation_needs_no_options_and_is_told_of_its_own_store_and_key(glowplug, compiler):
    first = glowplug("run", "--", *compiler)
    assert first.code == 0
    store = glowplug.home / ".cache" / "glowplug" / "store"
    assert first.said(f"using your own, file://{store}")
    [line] = first.said("made a signing key for you")
    second = glowplug("run", "--", *compiler)
    assert not second.said("made a signing key")
    shown = json.loads(glowplug("keys", "show", "--json").out)
    assert shown["signs"]["keyid"].startswith(line.split(" you, ")[1].split(",")[0])
    [private] = glowplug.keys.glob("*.key")
    assert private.stat().st_mode & 0o077 == 0


def test_the_signing_key_does_not_reach_the_engine(glowplug, tmp_path):
    create_pair(tmp_path / "fleet")
    ended = glowplug.run(
        "env", env={"GLOWPLUG_SIGNING_KEY": (tmp_path / "fleet.key").read_text(), "GLOWPLUG_QUIET": "1", "KEPT": "yes"}
    )
    assert ended.code == 0
    assert b"KEPT=yes" in ended.out
    assert b"GLOWPLUG_QUIET=1" in ended.out
    assert b"SIGNING_KEY" not in ended.out
    assert b"PRIVATE KEY" not in ended.out


def test_the_environment_says_what_the_options_say(glowplug, compiler):
    env = {
        "GLOWPLUG_STORE": f"file://{glowplug.store}",
        "GLOWPLUG_CACHE_DIR": str(glowplug.live),
        "GLOWPLUG_REPORT": str(glowplug.report),
        "GLOWPLUG_ENGINE": "generic",
        "GLOWPLUG_PUBLISH": "0",
        "GLOWPLUG_QUIET": "true",
    }
    ended = glowplug("run", "--", *compiler, env=env)
    assert (ended.code, ended.err) == (0, "")
    assert ended.report["cache"]["store"] == f"file://{glowplug.store}"
    assert ended.report["publish"]["reason"] == "publishing is turned off (--no-publish)"
