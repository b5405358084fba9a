"""Readers, writers and janitors on a real server that holds each to its policy: it refuses what they may not, and starts go on."""

from __future__ import annotations

import json

import pytest

from glowplug.cache.quarantine import testimony
from glowplug.errors import Forbidden, ObjectNotFound
from glowplug.store import open_store
from tests.security import policies
from tests.security.conftest import STORE

pytestmark = pytest.mark.s3


def run(program, *command, options=(), **rest):
    return program.run(*command, options=["--store", STORE, *options], **rest)


def test_a_reader_that_tries_to_publish_is_refused_by_the_server_and_its_engine_runs(machine, keys, compiler, recorder, shelf):
    recorder.take()
    ended = run(machine("reader", **keys["signs"]), *compiler, options=["--role", "writer"], env={"DOES": "fail"})
    assert ended.code == 3
    ended = run(machine("reader", **keys["signs"]), *compiler, options=["--role", "writer"])
    assert ended.code == 0
    assert b"compiled 4 loaded 0" in ended.out
    assert ended.report["outcome"] == "miss"
    assert ended.report["publish"]["state"] == "failed"
    [line] = ended.said("nothing was published")
    assert "AccessDenied" in line
    assert "Traceback" not in ended.err
    assert [call for call in recorder.take() if call.action == "s3:PutObject" and call.status == 403]
    assert {info.key for info in shelf.list("")} <= {".glowplug/conditional-writes"}


def test_a_reader_restores_with_no_right_to_write_at_all(machine, keys, compiler, recorder):
    run(machine("writer", **keys["signs"]), *compiler)
    recorder.take()
    ended = run(machine("mute", **keys["trusts"]), *compiler)
    assert (ended.code, ended.report["outcome"]) == (0, "hit")
    assert b"compiled 0 loaded 4" in ended.out
    assert {call.action for call in recorder.take()} <= {"s3:GetObject", "s3:ListBucket"}


def test_a_start_is_a_reader_by_its_role_though_it_could_sign(machine, keys, compiler, recorder):
    recorder.take()
    ended = run(machine("writer", **keys["signs"]), *compiler, options=["--role", "reader"])
    assert ended.report["publish"]["state"] == "skipped"
    assert "its role is reader" in ended.report["publish"]["reason"]
    assert {call.action for call in recorder.take()} <= {"s3:GetObject", "s3:ListBucket"}


def test_a_reader_reports_under_its_own_name_and_restarts_cold(machine, keys, poisoned, shelf):
    run(machine("writer", **keys["signs"]), *poisoned)
    reader = machine("reader", GLOWPLUG_REPORTS_AS=policies.READER, GLOWPLUG_NODE_NAME="node-1", **keys["trusts"])
    ended = run(reader, *poisoned)
    assert (ended.code, ended.out) == (0, b"compiled\n")
    [report] = list(shelf.list("v1/reports/"))
    assert report.key.startswith(f"v1/reports/{policies.READER}/")
    assert "Segmentation fault" in shelf.get(report.key).data.decode()


def test_a_reader_that_may_not_report_says_so_in_a_line_and_restarts_cold(machine, keys, poisoned, shelf):
    run(machine("writer", **keys["signs"]), *poisoned)
    ended = run(machine("mute", GLOWPLUG_REPORTS_AS=policies.READER, **keys["trusts"]), *poisoned)
    assert (ended.code, ended.out) == (0, b"compiled\n")
    [line] = ended.said("could not be reported")
    assert "AccessDenied" in line
    assert not list(shelf.list("v1/reports/"))


def test_a_reader_can_neither_move_the_pointer_nor_speak_for_others(guarded, machine, keys, compiler):
    run(machine("writer", **keys["signs"]), *compiler)
    store = open_store(STORE, env=guarded.env_of("reader"))
    [latest] = [info.key for info in store.list("v1/") if info.key.endswith("/latest")]
    root = latest.removesuffix("latest")
    for key in (latest, f"{root}lease", f"{root}generations/{'0' * 64}.json", f"{root}quarantine/{'0' * 64}.json"):
        with pytest.raises(Forbidden):
            store.put(key, b"{}")
        with pytest.raises(Forbidden):
            store.delete(key)
    with pytest.raises(Forbidden):
        store.put("v1/reports/team-b/x.json", b"{}")
    with pytest.raises(Forbidden):
        list(store.list(""))  # beyond its own part of the bucket


def test_a_writer_can_delete_nothing(guarded, machine, keys, compiler, shelf):
    run(machine("writer", **keys["signs"]), *compiler)
    store = open_store(STORE, env=guarded.env_of("writer"))
    before = [info.key for info in shelf.list("v1/")]
    for key in before:
        with pytest.raises(Forbidden):
            store.delete(key)
    assert [info.key for info in shelf.list("v1/")] == before


def test_collecting_with_a_writers_credentials_is_refused_and_removes_nothing(machine, keys, compiler, shelf):
    writer = machine("writer", **keys["signs"])
    run(writer, *compiler)
    [pointer] = [info.key for info in shelf.list("v1/") if info.key.endswith("/latest")]
    shelf.delete(pointer)
    writer.forget()
    run(writer, *compiler)
    before = {info.key for info in shelf.list("v1/")}
    ended = writer("cache", "gc", "--keep", "1", "--min-age", "0s", "--delete")
    assert ended.code == 1
    assert "AccessDenied" in ended.err
    assert {info.key for info in shelf.list("v1/")} == before


def test_stolen_writer_credentials_without_a_key_bring_no_code_to_anybody(guarded, machine, keys, compiler):
    run(machine("writer", **keys["signs"]), *compiler)
    thief = open_store(STORE, env=guarded.env_of("writer"))
    [latest] = [info.key for info in thief.list("v1/") if info.key.endswith("/latest")]
    root = latest.removesuffix("latest")
    good = json.loads(thief.get(latest).data)["generation"]
    [pack] = [info.key for info in thief.list(f"{root}packs/")]
    thief.put(pack, b"evil")
    ended = run(machine("reader", **keys["trusts"]), *compiler)
    assert (ended.code, ended.report["outcome"]) == (0, "refused")
    thief.put(f"{root}generations/{'1' * 64}.json", thief.get(f"{root}generations/{good}.json").data)
    thief.put(latest, json.dumps({"generation": "1" * 64}).encode())
    ended = run(machine("reader", **keys["trusts"]), *compiler)
    assert (ended.code, ended.report["outcome"]) == (0, "refused")
    assert b"compiled 4 loaded 0" in ended.out
    with pytest.raises(ObjectNotFound):
        thief.get(f"{root}quarantine/{good}.json")


def test_a_thief_with_a_readers_credentials_can_take_a_cache_away_and_nothing_else(guarded, machine, keys, compiler, shelf):
    """Two invented nodes are enough for a verdict; a writer compiles again, and what it publishes is used."""
    writer = machine("writer", **keys["signs"])
    generation = run(writer, *compiler).report["publish"]["generation"]
    [latest] = [info.key for info in shelf.list("v1/") if info.key.endswith("/latest")]
    thief = open_store(STORE, env=guarded.env_of("reader"))
    for node in ("0" * 16, "1" * 16):
        lie = testimony.Testimony(
            envelope=latest.split("/")[1],
            generation=generation,
            kind="died",
            node=node,
            reader=policies.READER,
            at=testimony.now(),
            reason="invented",
            engine="generic",
            engine_version=None,
            exit_code=1,
            signal=None,
            seconds=1.0,
            lines=(),
        )
        testimony.report(thief, lie)
    ended = run(machine("writer", **keys["signs"]), *compiler)
    assert (ended.code, ended.report["outcome"]) == (0, "hit")
    assert ended.said("is in quarantine for all")
    assert [info.key for info in shelf.list(latest.removesuffix("latest") + "quarantine/")]
    ended = run(machine("writer", **keys["signs"]), *compiler)
    assert (ended.code, ended.report["publish"]["state"]) == (0, "published")
    ended = run(machine("reader", **keys["trusts"]), *compiler)
    assert (ended.report["outcome"], ended.report["cache"]["generation"] == generation) == ("hit", False)
