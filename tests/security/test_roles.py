"""Which starts may write: from options, variables and keys, before anything is asked of a store."""

from __future__ import annotations

import sys

import pytest

from glowplug.cache.keyring import user_signer
from glowplug.cache.keys import create_pair
from glowplug.errors import UsageError
from glowplug.run.identity import Role, identity_of, node_id
from glowplug.run.options import RunOptions
from tests.run.program import Program


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    return {"HOME": str(folder)}


@pytest.fixture
def pair(tmp_path):
    create_pair(tmp_path / "fleet")
    return {"GLOWPLUG_SIGNING_KEY": str(tmp_path / "fleet.key")}, {"GLOWPLUG_TRUSTED_KEYS": str(tmp_path / "fleet.pub")}


def test_on_a_workstation_everybody_is_a_writer_and_no_key_is_made_for_it(home, tmp_path):
    identity = identity_of(RunOptions(), home)
    assert (identity.role, identity.reason) == (Role.WRITER, "")
    assert not list((tmp_path / "home").iterdir())


def test_a_named_signing_key_makes_a_writer_and_trusted_keys_alone_a_reader(pair, home):
    signs, trusts = pair
    assert identity_of(RunOptions(), home | signs | trusts).is_writer
    reader = identity_of(RunOptions(), home | trusts)
    assert (reader.role, "only reads" in reader.reason) == (Role.READER, True)


def test_whoever_is_told_to_read_reads_and_whoever_may_not_publish_as_well(pair, home):
    signs, _ = pair
    assert not identity_of(RunOptions(role="reader"), home | signs).is_writer
    assert not identity_of(RunOptions(publish=False), home | signs).is_writer


def test_a_pod_without_a_key_is_a_reader_for_nobody_would_trust_one_that_it_made(home, tmp_path):
    pod = home | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert "no other pod would trust" in identity_of(RunOptions(), pod).reason
    assert identity_of(RunOptions(role="writer"), pod).is_writer  # somebody's own decision
    user_signer(tmp_path / "home" / ".config" / "glowplug")
    assert identity_of(RunOptions(), pod).is_writer  # a key that lasts, as in a home on a volume


@pytest.mark.parametrize("env", [{"HOME": "relative"}, {"HOME": "/dev/null/home"}])
def test_who_can_keep_no_key_is_a_reader(env):
    assert not identity_of(RunOptions(), env).is_writer


def test_a_writer_that_cannot_be_one_is_a_usage_error(pair, home):
    _, trusts = pair
    with pytest.raises(UsageError, match=r"--role writer: no signing key"):
        identity_of(RunOptions(role="writer"), home | trusts)
    with pytest.raises(UsageError, match=r"--role writer: publishing is turned off"):
        identity_of(RunOptions(role="writer", publish=False), home)


def test_a_contradiction_ends_a_start_before_anything_begins(tmp_path):
    program = Program(tmp_path)
    ended = program.run("touch", str(tmp_path / "began"), options=["--role", "writer", "--no-publish"])
    assert (ended.code, "Traceback" in ended.err, (tmp_path / "began").exists()) == (2, False, False)


# Tells how often a file was opened before the first process was spawned, which is the engine.
COUNTS = """
import os, runpy, sys
opened = 0
def hear(event, arguments):
    global opened
    opened += event == "open" and str(arguments[0]) == os.environ["GLOWPLUG_SIGNING_KEY"]
    if event == "os.posix_spawn":
        print("opened", opened, "times", flush=True)
sys.addaudithook(hear)
sys.argv = sys.argv[3:]
runpy.run_module("glowplug", run_name="__main__")
"""


@pytest.mark.parametrize("trusts", [True, False])
def test_a_signing_key_is_read_once_before_the_engine_is_spawned(pair, tmp_path, trusts):
    program = Program(tmp_path)
    ended = program.run("true", env=pair[0] | (pair[1] if trusts else {}), prefix=[sys.executable, "-c", COUNTS])
    assert (ended.code, ended.out) == (0, b"opened 1 times\n")


@pytest.mark.parametrize("name", ["", "..", ".", ".glowplug", "a/b", "a b", "ä", "a=b", "x" * 129, "${aws:PrincipalTag/x}"])
def test_a_name_to_report_under_is_one_part_of_a_key(name):
    with pytest.raises(UsageError, match="--reports-as"):
        RunOptions(reports_as=name)
    assert RunOptions(reports_as="team-a_1.x").reports_as == "team-a_1.x"


def test_a_role_that_is_none_is_named():
    with pytest.raises(UsageError, match="--role: 'admin' is no role"):
        RunOptions(role="admin")


def test_a_node_is_known_by_its_name_where_it_has_one():
    assert node_id({"GLOWPLUG_NODE_NAME": "ip-10-0-0-1"}) == node_id({"GLOWPLUG_NODE_NAME": " ip-10-0-0-1 "})
    assert node_id({"GLOWPLUG_NODE_NAME": "ip-10-0-0-1"}) != node_id({"GLOWPLUG_NODE_NAME": "ip-10-0-0-2"})
    assert node_id({"GLOWPLUG_NODE_NAME": ""}) == node_id({})
    assert len(node_id({})) == 16
