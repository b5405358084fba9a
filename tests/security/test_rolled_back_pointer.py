"""What was once signed, and should no longer be used: an old generation that is offered again, and what it has left on a node."""

from __future__ import annotations

import pytest

from glowplug.cache.keys import create_pair
from glowplug.cache.quarantine.testimony import now
from glowplug.cache.quarantine.verdicts import Verdict, condemn
from glowplug.store import open_store
from tests.run import stand_ins
from tests.run.program import Program


@pytest.fixture
def program(tmp_path):
    program = Program(tmp_path)
    for name in ("old", "new"):
        create_pair(tmp_path / name)
    return program


@pytest.fixture
def compiler(tmp_path):
    return stand_ins.compiler(tmp_path).words


@pytest.fixture
def rolled_back(program, compiler, tmp_path):
    """A store whose pointer names the older of two generations; gives that one's digest and the envelope's."""
    old = {"GLOWPLUG_SIGNING_KEY": str(tmp_path / "old.key")}
    first = program.run(*compiler, env=old).report["publish"]["generation"]
    [pointer] = program.store.glob("v1/*/latest")
    was = pointer.read_bytes()
    pointer.unlink()
    program.forget()
    new = old | {"GLOWPLUG_SIGNING_KEY": str(tmp_path / "new.key")}
    second = program.run(*compiler, env=new).report["publish"]["generation"]
    assert second == program.latest() != first
    pointer.write_bytes(was)
    program.forget()
    return first, pointer.parent.name


def trusting(tmp_path, *names):
    return {"GLOWPLUG_TRUSTED_KEYS": ",".join(str(tmp_path / f"{name}.pub") for name in names)}


def test_it_is_used_for_it_was_made_for_exactly_this_software_hardware_and_command(program, compiler, rolled_back, tmp_path):
    generation, _ = rolled_back
    ended = program.run(*compiler, env=trusting(tmp_path, "old", "new"))
    assert (ended.code, ended.report["outcome"], ended.report["cache"]["generation"]) == (0, "hit", generation)


def test_it_is_not_used_if_it_was_condemned(program, compiler, rolled_back, tmp_path):
    generation, envelope = rolled_back
    store = open_store(f"file://{program.store}", env={})
    condemn(store, Verdict(envelope=envelope, generation=generation, reason="killed two nodes", by="hand", at=now()))
    ended = program.run(*compiler, env=trusting(tmp_path, "old", "new"))
    assert ended.code == 0
    assert ended.report["cache"]["generation"] != generation


@pytest.mark.usefixtures("rolled_back")
def test_it_is_refused_once_its_key_is_no_longer_trusted(program, compiler, tmp_path):
    ended = program.run(*compiler, env=trusting(tmp_path, "new"))
    assert (ended.code, ended.report["outcome"], ended.report["cache"]["generation"]) == (0, "refused", None)
    assert b"compiled 4 loaded 0" in ended.out


def test_what_a_key_has_signed_goes_from_the_nodes_with_the_trust_in_it(program, compiler, tmp_path):
    program.run(*compiler, env={"GLOWPLUG_SIGNING_KEY": str(tmp_path / "old.key")})
    program.forget()
    untrusting = [trusting(tmp_path, "new"), {}, {"GLOWPLUG_TRUSTED_KEYS": "/no/such.pub"}]
    for env, options in [*((env, []) for env in untrusting), (untrusting[0], ["--no-restore"])]:
        assert b"compiled 0 loaded 4" in program.run(*compiler, env=trusting(tmp_path, "old")).out
        ended = program.run(*compiler, env=env, options=["--no-publish", *options])
        assert b"compiled 4 loaded 0" in ended.out
    again = program.run(*compiler, env=trusting(tmp_path, "new"), options=["--no-publish"])
    assert b"compiled 0 loaded 4" in again.out  # what the node has compiled itself stays
    assert again.said("nothing was restored: ")
