"""What the program really asks of S3 against the policy files: each request is allowed, and nothing is allowed in vain."""

from __future__ import annotations

import json

import pytest

from tests.security import policies
from tests.security.conftest import ROLES, STORE

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def used():
    """By role: the calls of all tests of this module."""
    return {role: [] for role in ROLES}


@pytest.fixture
def judge(recorder, guarded, used):
    """Takes the calls since the last time, and holds them to the policies of those who made them."""
    roles = {identity.access_key: name for name, identity in guarded.identities.items() if name in ROLES}
    bucket_policy = policies.parse(policies.text("bucket-conditional-writes"))

    def take(role):
        calls = recorder.take()
        assert calls
        assert {roles[call.who] for call in calls} == {role}
        used[role] += calls
        policy = policies.parse(ROLES[role])
        beyond = [str(call) for call in calls if not policy.allows(call.action, call.resource, call.context)]
        assert not beyond, "\n".join(beyond)
        refused = [str(call) for call in calls if bucket_policy.refuses(call.action, call.resource, call.context)]
        assert not refused, "\n".join(refused)
        assert not [str(call) for call in calls if call.status == 403]  # the real server is of the same mind
        return calls

    recorder.take()
    return take


def run(program, *command, **rest):
    ended = program.run(*command, options=["--store", STORE], **rest)
    assert ended.code == 0, ended.err
    return ended


LARGE = {"BYTES": str(24_000_000)}  # four of these, of random bytes: a pack that goes up in parts


def test_a_writer_that_misses_publishes_and_hits_needs_no_more_than_its_policy(judge, machine, keys, compiler):
    writer = machine("writer", **keys["signs"])
    assert run(writer, *compiler).report["publish"]["state"] == "published"
    judge("writer")
    writer.forget()
    assert run(writer, *compiler).report["outcome"] == "hit"
    calls = judge("writer")
    assert not [call for call in calls if call.action == "s3:DeleteObject"]


def test_a_large_pack_goes_up_in_parts_and_a_part_that_is_refused_ends_the_upload(judge, machine, keys, compiler, recorder):
    writer = machine("writer", **keys["signs"])
    recorder.before = lambda _, path: "partNumber=3" in path
    try:
        ended = run(writer, *compiler, "refused", env=LARGE)
    finally:
        recorder.before = None
    assert ended.report["publish"]["state"] == "failed"
    calls = judge("writer")
    assert [call for call in calls if call.action == "s3:AbortMultipartUpload"]


def test_a_reader_asks_for_nothing_but_what_it_reads(judge, machine, keys, compiler):
    run(machine("writer", **keys["signs"]), *compiler, "read")
    judge("writer")
    reader = machine("reader", **keys["trusts"])
    assert run(reader, *compiler, "read").report["outcome"] == "hit"
    assert run(reader, *compiler, "never-published").report["outcome"] == "miss"
    assert {call.action for call in judge("reader")} == {"s3:GetObject", "s3:ListBucket"}


@pytest.mark.parametrize("role", ["reader", "writer", "janitor"])
def test_whoever_looks_into_the_store_needs_no_more_than_to_read_and_list(judge, machine, keys, compiler, role):
    run(machine("writer", **keys["signs"]), *compiler, "look")
    judge("writer")
    program = machine(role, **keys["trusts"])
    envelope = json.loads(program("cache", "ls", "--json").out)[0]["envelope"]
    assert program("cache", "show", envelope).code == 0
    assert program("cache", "verify").code == 0
    assert program("cache", "explain", "--", *compiler).code in {0, 1}
    assert {call.action for call in judge(role)} == {"s3:GetObject", "s3:ListBucket"}


def test_a_janitor_removes_what_is_old(judge, machine, keys, compiler, shelf):
    writer = machine("writer", **keys["signs"])
    run(writer, *compiler)
    [pointer] = [info.key for info in shelf.list("v1/") if info.key.endswith("/latest")]
    shelf.delete(pointer)
    writer.forget()
    assert run(writer, *compiler).report["publish"]["state"] == "published"
    judge("writer")
    janitor = machine("janitor", **keys["trusts"])
    ended = janitor("cache", "gc", "--keep", "1", "--min-age", "0s", "--delete", "--json")
    removed = [each["kind"] for each in json.loads(ended.out)["objects"]]
    assert (ended.code, sorted(removed)) == (0, ["generation", "pack"]), ended.err
    assert {call.action for call in judge("janitor")} == {"s3:GetObject", "s3:ListBucket", "s3:DeleteObject"}
