"""``glowplug cache gc``: whole envelopes, reports, and a node's copies, as a person and a program ask for them."""

from __future__ import annotations

import json
import os
import time

import pytest

from glowplug.cache import layout
from tests.run import stand_ins
from tests.run.program import Program, eventually

DAY_S = 86_400


@pytest.fixture
def shop(tmp_path):
    """A machine whose store holds one envelope."""
    made = Program(tmp_path)
    made.command = stand_ins.compiler(made.folder).words
    assert made.run(*made.command).report["publish"]["state"] == "published"
    made.forget()
    return made


def gc(shop, *words):
    return shop("cache", "gc", "--store", f"file://{shop.store}", *words)


def as_json(shop, *words):
    ended = gc(shop, "--json", *words)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def age(shop, days):
    for path in shop.store.glob("v1/**/*"):
        os.utime(path, (path.stat().st_mtime - days * DAY_S,) * 2)


def kinds(document):
    return [each["kind"] for each in document["objects"]]


def test_an_envelope_that_is_too_old_goes_whole_and_the_next_start_publishes_it_again(shop):
    age(shop, 40)
    before = sorted(shop.store.glob("v1/**/*"))
    document = as_json(shop, "--max-age", "30d")
    assert (document["deleted"], kinds(document)) == (False, ["pointer", "generation", "pack"])
    assert sorted(shop.store.glob("v1/**/*")) == before
    assert kinds(as_json(shop, "--max-age", "30d", "--delete")) == ["pointer", "generation", "pack"]
    assert not list(shop.store.glob("v1/*/packs/*"))
    ended = shop.run(*shop.command)
    assert (ended.report["outcome"], ended.report["publish"]["state"]) == ("miss", "published")
    assert "nothing has been published" in ended.report["reason"]


def test_a_store_that_is_too_large_loses_what_is_longest_untouched(shop):
    age(shop, 40)
    assert kinds(as_json(shop, "--max-bytes", "1MB")) == []
    ended = gc(shop, "--max-bytes", "0")
    assert "would remove 3 objects" in ended.out.decode()
    assert "the store is larger than --max-bytes" in ended.out.decode()


def test_reports_are_judged_before_anything_is_removed_and_only_then(shop):
    [manifest] = shop.published()
    envelope, generation = manifest.parts[-3], manifest.stem
    from glowplug.cache.quarantine.testimony import Testimony

    for node in ("0" * 16, "1" * 16):
        testimony = Testimony(envelope=envelope, generation=generation, kind="died", node=node, reader="team", at="", lines=())
        path = shop.store / layout.report_key("team", envelope, generation, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(testimony.document)
    verdict = shop.store / layout.quarantine_key(envelope, generation)
    assert as_json(shop)["condemned"] == []
    assert not verdict.exists()
    assert as_json(shop, "--delete")["condemned"] == [{"envelope": envelope, "generation": generation}]
    assert verdict.exists()
    assert manifest.exists()  # it is the newest


@pytest.fixture
def node(shop):
    """A node's copies, with what one start has fetched."""
    folder = shop.folder / "node"
    with shop.begin(*shop.command, options=["--node-store", str(folder)], env={"DOES": "wait"}) as start:
        eventually(lambda: (folder / "latest").exists() and list((folder / "latest").iterdir()))
        start.end()
    return folder


def test_a_node_s_copies_go_by_size_the_longest_unused_first_and_only_when_told_to(shop, node):
    kept = sorted(path for path in node.rglob("*") if path.is_file())
    assert "would remove 0 objects" in shop("cache", "gc", "--node", str(node)).out.decode()
    [pack] = (node / "packs").iterdir()
    os.utime(pack, (time.time() - 3600,) * 2)
    most = str(sum(path.stat().st_size for path in kept) - 1)
    dry = json.loads(shop("cache", "gc", "--node", str(node), "--max-bytes", most, "--json").out)
    assert [(each["kind"], each["name"], each["unused_s"] // 60) for each in dry["objects"]] == [("packs", pack.name, 60)]
    assert pack.exists()
    assert "removed 1 object," in shop("cache", "gc", "--node", str(node), "--max-bytes", most, "--delete").out.decode()
    assert not pack.exists()
    assert shop("cache", "gc", "--node", str(node), "--max-bytes", "0", "--delete").code == 0
    assert [path.name for path in node.rglob("*") if path.is_file()] in ([], ["lock"])


def test_a_node_s_folder_that_is_not_there_or_not_ours_is_said(shop, tmp_path):
    ended = shop("cache", "gc", "--node", str(tmp_path / "nowhere"))
    assert (ended.code, "is no folder" in ended.err) == (2, True)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    ended = shop("cache", "gc", "--node", str(tmp_path / "open"), "--delete")
    assert (ended.code, "can be written by others" in ended.err) == (1, True)


@pytest.mark.parametrize(("words", "says"), [(["--max-age", "old"], "--max-age"), (["--max-bytes", "much"], "--max-bytes")])
def test_limits_that_make_no_sense_are_usage_errors(shop, words, says):
    ended = gc(shop, *words)
    assert (ended.code, says in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--max-age", "30", "--delete"], 2, "--max-age 30: days, hours or seconds?"),
        (["--min-age", "5"], 2, "write 30d, 24h or 30s"),
        (["--node", ".", "--keep", "1"], 2, "--node is cleaned down to --max-bytes, and by nothing else"),
        (["--store", "file:///tmp/no-such-folder-of-glowplug", "--delete"], 1, "holds no caches"),
    ],
)
def test_what_would_remove_too_much_or_never_anything_is_refused(shop, words, code, says):
    ended = gc(shop, *words)
    assert (ended.code, says in ended.err) == (code, True), ended.err
    assert shop.published()
    assert not os.path.exists("/tmp/no-such-folder-of-glowplug")
