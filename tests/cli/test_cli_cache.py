"""``glowplug cache`` on a store that two engines have published to: what a person reads, and what a program reads."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.run import stand_ins
from tests.run.program import Program


class Shop(Program):
    """A machine with a store for which every command below names the store."""

    command: tuple[str, ...]

    def cache(self, verb, *words, **rest):
        return self("cache", verb, "--store", f"file://{self.store}", *words, **rest)

    def json(self, verb, *words, **rest):
        ended = self.cache(verb, "--json", *words, **rest)
        return ended.code, json.loads(ended.out)

    def of_command(self, verb, *words, **rest):
        """A verb that takes the engine's command."""
        return self.cache(verb, "--cache-dir", str(self.live), *words, "--", *self.command, **rest)

    @property
    def envelope(self):
        """Of the command; the store holds two."""
        return json.loads(self("cache", "key", "--json", "--cache-dir", str(self.live), "--", *self.command).out)["envelope"]


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    shop = Shop(tmp_path_factory.mktemp("shop"), extra={"OMP_NUM_THREADS": "2"})
    other = tmp_path_factory.mktemp("other")
    shop.command = stand_ins.compiler(shop.folder).words
    words = stand_ins.compiler(other).words
    Path(words[1]).write_text("# another program\n" + stand_ins.COMPILER)
    assert shop.run(*words).report["publish"]["state"] == "published"
    for graphs in ("4", "5"):
        assert shop.run(*shop.command, env={"GRAPHS": graphs}).report["publish"]["state"] == "published"
        shop.forget()
    shutil.copytree(shop.store, shop.folder / "pristine")
    return shop


@pytest.fixture
def shop(stocked):
    for folder in (stocked.store, *stocked.folder.glob("live*")):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(stocked.folder / "pristine", stocked.store)
    stocked.store.chmod(0o700)
    return stocked


@pytest.fixture
def empty(tmp_path):
    return Shop(tmp_path)


# --- key


def test_key_prints_the_digest_first_and_each_component_by_its_path(shop):
    ended = shop("cache", "key", "--cache-dir", str(shop.live), "--", *shop.command)
    first, *rest = ended.out.decode().splitlines()
    assert first == shop.envelope
    assert f'  paths.cache = "{shop.live}"' in rest
    assert any(line.startswith("  python.version = ") for line in rest)


def test_key_changes_with_the_program_and_its_words_and_not_with_the_day(shop):
    assert shop.envelope == shop.envelope
    longer = json.loads(shop("cache", "key", "--json", "--cache-dir", str(shop.live), "--", *shop.command, "--deep").out)
    assert longer["envelope"] != shop.envelope


def test_key_without_a_command_is_a_usage_error(shop):
    ended = shop("cache", "key")
    assert ended.code == 2
    assert "Traceback" not in ended.err


# --- ls


def test_ls_shows_one_line_for_each_envelope(shop):
    ended = shop.cache("ls")
    head, *rows = ended.out.decode().splitlines()
    assert head.split() == ["ENVELOPE", "GENERATIONS", "SIZE", "AGE", "ENGINE", "MODEL"]
    assert len(rows) == 2
    assert {row.split()[0]: row.split()[1] for row in rows}[shop.envelope[:12]] == "2"
    assert all("generic" in row for row in rows)
    assert max(map(len, rows)) <= 80


def test_ls_as_json(shop):
    code, documents = shop.json("ls")
    assert code == 0
    [ours] = [document for document in documents if document["envelope"] == shop.envelope]
    assert set(ours) == {"envelope", "engine", "model", "latest", "generations", "quarantined", "bytes", "modified_s"}
    assert (ours["generations"], ours["engine"]) == (2, "generic")
    assert abs(ours["modified_s"] - time.time()) < 3600


@pytest.mark.parametrize("verb", ["ls", "verify"])
def test_an_empty_store_is_said_to_be_empty(empty, verb):
    ended = empty.cache(verb)
    assert (ended.code, ended.out.decode()) == (0, f"file://{empty.store} holds no caches\n")
    assert empty.json(verb) == (0, [])
    assert not empty.store.exists()  # looking makes nothing


def test_a_store_in_the_environment_is_used(shop):
    ended = shop("cache", "ls", "--json", env={"GLOWPLUG_STORE": f"file://{shop.store}"})
    assert len(json.loads(ended.out)) == 2


def test_without_a_store_the_users_own_is_looked_at(shop):
    assert f"file://{shop.home}/.cache/glowplug/store holds no caches" in shop("cache", "ls").out.decode()


def test_an_envelope_that_is_garbage_is_listed_as_such(shop):
    (shop.store / "v1" / shop.envelope / "envelope.json").write_text("garbage")
    ended = shop.cache("ls")
    assert ended.code == 0
    assert "not JSON" in ended.out.decode()


# --- show


def test_show_tells_components_origin_and_files_of_the_newest_generation(shop):
    ended = shop.cache("show", shop.envelope[:6], "--files")
    text = ended.out.decode()
    assert ended.code == 0
    assert f"envelope    {shop.envelope}" in text
    assert '  engine.name = "generic"' in text
    assert "5 files, 4.9 KiB, pack of" in text
    assert "a start without it took" in text
    assert "inductor/04/c4.so" in text
    code, document = shop.json("show", shop.envelope[:6])
    assert code == 0
    assert len(document["files"]) == 5
    assert document["generation"][:12] in text


def test_show_takes_an_older_generation_by_its_beginning(shop):
    _, newest = shop.json("show", shop.envelope)
    names = {path.stem for path in (shop.store / "v1" / shop.envelope / "generations").iterdir()}
    [older] = names - {newest["generation"]}
    _, document = shop.json("show", shop.envelope[:12], older[:12])
    assert (document["generation"], len(document["files"])) == (older, 4)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["0" * 64], 1, "no envelope 000"),
        (["xyz"], 2, "'xyz' is not the beginning of an envelope's digest"),
        (["../.."], 2, "is not the beginning of an envelope's digest"),
        (["ENVELOPE", "0" * 64], 1, "has no generation 000"),
        (["ENVELOPE", ""], 2, "'' is not the beginning of a generation's digest"),
        ([""], 2, "is not the beginning"),
    ],
)
def test_show_says_what_is_wrong_with_a_prefix(shop, words, code, says):
    ended = shop.cache("show", *[shop.envelope if word == "ENVELOPE" else word for word in words])
    assert ended.code == code
    assert says in ended.err
    assert "hint: " in ended.err
    assert "Traceback" not in ended.err


def test_a_prefix_of_two_envelopes_is_ambiguous(shop):
    twin = shop.envelope[:-1] + ("0" if shop.envelope[-1] != "0" else "1")
    shutil.copytree(shop.store / "v1" / shop.envelope, shop.store / "v1" / twin)
    ended = shop.cache("show", shop.envelope[:-1])
    assert ended.code == 2
    assert "stands for 2 envelopes" in ended.err
    assert "write more digits" in ended.err


def test_show_trusts_nobody_but_the_named_keys(shop, tmp_path):
    shop("keys", "create", "--out", str(tmp_path / "stranger"))
    ended = shop.cache("show", shop.envelope, "--trusted-keys", str(tmp_path / "stranger.pub"))
    assert ended.code == 1
    assert "signed by key" in ended.err


# --- restore and capture


def test_restore_ahead_makes_the_next_run_find_all_in_place(shop):
    ended = shop.of_command("restore")
    assert ended.code == 0
    assert ended.out.decode().startswith("restored generation ")
    assert "5 files, 4.9 KiB in " in ended.out.decode()
    again = json.loads(shop.of_command("restore", "--json").out)
    assert (again["fetched"], again["files"]) == (False, 5)
    run = shop.run(*shop.command, env={"GRAPHS": "5"})
    assert run.report["outcome"] == "hit"
    assert run.report["cache"]["root"] == again["root"]


def test_restore_of_what_nobody_has_published_says_so(empty):
    ended = empty("cache", "restore", "--store", f"file://{empty.store}", "--cache-dir", str(empty.live), "--", "true")
    assert ended.code == 1
    assert "nothing has been published for envelope" in ended.err
    assert "glowplug cache explain" in ended.err


def test_restore_of_a_damaged_pack_leaves_nothing(shop):
    for pack in (shop.store / "v1" / shop.envelope / "packs").iterdir():
        pack.write_bytes(b"no pack")
    ended = shop.of_command("restore")
    assert ended.code == 1
    assert "truncated" in ended.err
    assert not list(shop.live.glob("*/inductor"))
    assert not shop.half_written()


def test_capture_publishes_what_an_earlier_run_left(shop):
    shop.run(*shop.command, env={"GRAPHS": "7"}, options=["--no-publish"])
    document = json.loads(shop.of_command("capture", "--json").out)
    assert (document["published"], document["files"]) == (True, 7)
    assert shop.json("show", shop.envelope)[1]["generation"] == document["generation"]
    ended = shop.of_command("capture")
    assert (ended.code, ended.out.decode().split(":")[0]) == (0, f"nothing new in {document['root']}")


def test_capture_joins_what_others_have_published_meanwhile(shop):
    shop.run(*shop.command, env={"GRAPHS": "2", "DOES": "ignore"}, options=["--no-publish", "--no-restore"])
    ended = shop.of_command("capture")
    assert ended.out.decode().startswith("published generation ")
    assert "7 files" in ended.out.decode()  # its own two, and five of the newest generation
    assert "joined with the newest one" in ended.out.decode()


@pytest.mark.parametrize("verb", ["capture", "restore"])
def test_a_folder_in_use_is_left_alone_and_named(shop, verb):
    root = Path(shop.run(*shop.command, options=["--no-publish"]).report["cache"]["root"])
    with open(root / ".glowplug" / "lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = shop.of_command(verb)
    assert ended.code == 1
    assert f"{root.name} is in use by another engine" in ended.err
    assert [path.name for path in shop.live.iterdir()] == [root.name]


def test_capture_of_nothing_says_so(shop):
    ended = shop.of_command("capture")
    assert ended.code == 1
    assert "holds no cache files" in ended.err


def test_capture_replaces_a_pointer_that_names_nothing(shop):
    shop.run(*shop.command, options=["--no-publish"])
    (shop.store / "v1" / shop.envelope / "latest").write_text("garbage")
    assert shop.of_command("capture").code == 0


def test_capture_without_a_key_says_how_to_get_one(shop, tmp_path):
    shop("keys", "create", "--out", str(tmp_path / "fleet"))
    shop.run(*shop.command, options=["--no-publish"])
    ended = shop.of_command("capture", env={"GLOWPLUG_TRUSTED_KEYS": str(tmp_path / "fleet.pub")})
    assert ended.code == 2
    assert "GLOWPLUG_SIGNING_KEY is not set" in ended.err


# --- verify


def test_verify_finds_a_good_store_good(shop):
    ended = shop.cache("verify")
    _, *rows = ended.out.decode().splitlines()
    assert (ended.code, len(rows)) == (0, 3)
    assert all(row.endswith("good") for row in rows)
    code, findings = shop.json("verify", shop.envelope[:12])
    assert (code, [finding["problem"] for finding in findings]) == (0, ["", ""])


def test_verify_exits_1_and_names_what_is_damaged(shop):
    pack = next((shop.store / "v1" / shop.envelope / "packs").iterdir())
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    ended = shop.cache("verify")
    assert ended.code == 1
    assert ended.out.decode().count("good") == 2
    code, findings = shop.json("verify")
    assert code == 1
    [bad] = [finding for finding in findings if finding["problem"]]
    assert bad["envelope"] == shop.envelope


def test_verify_tells_of_a_pointer_that_names_nothing(shop):
    (shop.store / "v1" / shop.envelope / "latest").write_text("garbage")
    code, findings = shop.json("verify")
    assert code == 1
    assert [finding["generation"] for finding in findings if finding["problem"]] == ["latest"]


# --- gc


def old(shop):
    for path in shop.store.glob("v1/**/*"):
        os.utime(path, (path.stat().st_mtime - 10 * 86400,) * 2)  # and in the order of their publication


def test_gc_says_what_it_would_remove_and_removes_it_only_when_told_to(shop):
    old(shop)
    newest = shop.json("show", shop.envelope)[1]["generation"]
    before = sorted(shop.store.glob("v1/**/*"))
    dry = shop.cache("gc", "--keep", "1")
    assert dry.code == 0
    assert "would remove 2 objects" in dry.out.decode()
    assert "--delete removes them" in dry.out.decode()
    assert sorted(shop.store.glob("v1/**/*")) == before
    code, document = shop.json("gc", "--keep", "1", "--delete")
    assert (code, document["deleted"], sorted(each["kind"] for each in document["objects"])) == (0, True, ["generation", "pack"])
    assert [path.stem for path in (shop.store / "v1" / shop.envelope / "generations").iterdir()] == [newest]
    assert shop.cache("verify").code == 0
    assert shop.run(*shop.command, env={"GRAPHS": "5"}).report["outcome"] == "hit"


def test_gc_touches_nothing_that_is_young(shop):
    assert "would remove 0 objects" in shop.cache("gc", "--keep", "1").out.decode()
    assert "would remove 2 objects" in shop.cache("gc", "--keep", "1", "--min-age", "0s").out.decode()


@pytest.mark.parametrize(("words", "says"), [(["--keep", "0"], "--keep"), (["--min-age", "old"], "--min-age")])
def test_gc_refuses_what_makes_no_sense(shop, words, says):
    ended = shop.cache("gc", *words)
    assert ended.code == 2
    assert says in ended.err


# --- stores that can't be used


@pytest.mark.parametrize("verb", ["ls", "verify", "gc"])
def test_a_store_of_an_unknown_scheme_is_a_usage_error(empty, verb):
    ended = empty("cache", verb, "--store", "ftp://x")
    assert ended.code == 2
    assert "ftp" in ended.err


def test_a_store_that_does_not_answer_exits_1_with_one_line(empty):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_REGION": "r",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    ended = empty("cache", "ls", "--store", "s3://bucket/x", env=env)
    assert ended.code == 1
    assert f"127.0.0.1:{port}" in ended.err
    assert "Traceback" not in ended.err


def generations(shop):
    return sorted(path.stem for path in shop.store.glob(f"v1/{shop.envelope}/generations/*.json"))


def test_a_generation_is_put_into_quarantine_by_hand_shown_everywhere_and_lifted(shop):
    envelope, [one, other] = shop.envelope[:12], generations(shop)
    assert "no generation" in shop.cache("quarantine", envelope).out.decode()
    code, document = shop.json("quarantine", envelope, one[:10], "--reason", "wrong results on H200")
    assert (code, document["changed"]) == (0, [one])
    [entry] = document["generations"]
    assert (entry["generation"], entry["reason"], entry["by"]) == (one, "wrong results on H200", "hand")
    assert shop.json("quarantine", envelope, one[:10])[1]["changed"] == []  # it is there already
    assert one[:12] in shop.cache("quarantine", envelope).out.decode()
    [row] = [row for row in shop.cache("ls").out.decode().splitlines() if envelope in row]
    assert "2 (1 bad)" in row
    assert "in quarantine: wrong results" in shop.cache("show", envelope, one[:10]).out.decode()
    assert shop.json("show", envelope, other[:10])[1]["quarantine"] is None
    code, findings = shop.json("verify", envelope)
    assert (code, {finding["generation"]: finding["quarantined"] for finding in findings}) == (0, {one: True, other: False})
    code, document = shop.json("quarantine", envelope, "--lift")
    assert (code, document["changed"], document["generations"]) == (0, [one], [])


def test_what_is_in_quarantine_is_not_restored_ahead_of_time(shop):
    for generation in generations(shop):
        assert shop.cache("quarantine", shop.envelope, generation).code == 0
    ended = shop.of_command("restore")
    assert ended.code == 1
    assert "quarantine" in ended.err


def test_quarantine_refuses_what_makes_no_sense(shop):
    envelope = shop.envelope[:12]
    assert shop.cache("quarantine", envelope, "--reason", "x").code == 2
    assert shop.cache("quarantine", envelope, "--lift", "--reason", "x").code == 2
    assert shop.cache("quarantine", envelope, "000000", "--lift").code == 1
    assert shop.cache("quarantine", envelope, "000000").code == 1
    assert shop.cache("quarantine", "xyz").code == 2
