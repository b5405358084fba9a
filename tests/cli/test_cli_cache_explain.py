"""``glowplug cache explain``: against a store, an envelope in it, a file, and another pod's report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.run import stand_ins
from tests.run.program import Program


class Shop(Program):
    """A machine with a store that one engine has published to."""

    command: tuple[str, ...]

    def explain(self, *words, command=(), env=None):
        given = ["--", *command] if command else []
        return self("cache", "explain", "--store", f"file://{self.store}", "--cache-dir", str(self.live), *words, *given, env=env)

    def json(self, *words, **rest):
        ended = self.explain("--json", *words, **rest)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    shop = Shop(tmp_path_factory.mktemp("shop"), extra={"OMP_NUM_THREADS": "2", "TORCH_MASTER_ADDR": "10.0.3.17"})
    shop.command = stand_ins.compiler(shop.folder).words
    ended = shop.run(*shop.command)
    assert ended.report["publish"]["state"] == "published"
    shutil.copy(shop.report, shop.folder / "pod-a.json")
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


@pytest.fixture
def envelope(shop):
    return shop.json(command=shop.command)["envelope"]


OTHER = {"OMP_NUM_THREADS": "3", "TORCH_MASTER_ADDR": "10.0.9.4"}


def test_the_nearest_cache_is_named_with_what_differs_the_likely_accident_first(shop, envelope):
    ended = shop.explain(command=shop.command, env=OTHER)
    text = ended.out.decode()
    assert ended.code == 0
    assert "nothing is published for it" in " ".join(text.split())
    assert f"nearest: {envelope[:12]}, published " in text
    assert "differs in 2 things:" in text
    first, second = (text.index(f"  environment.{name} ") for name in ("TORCH_MASTER_ADDR", "OMP_NUM_THREADS"))
    assert first < second
    assert (
        "likely an accident\n    here   10.0.9.4\n    there  10.0.3.17\n    an address, of a pod or a node\n    fix: unset it,"
        in text
    )
    assert max(map(len, text.splitlines())) <= 80


def test_as_json(shop, envelope):
    document = shop.json(command=shop.command, env=OTHER)
    assert document["envelope"] != envelope
    [neighbour] = document["neighbours"]
    assert (neighbour["envelope"], neighbour["near"]) == (envelope, True)
    assert [cause["path"] for cause in neighbour["causes"]] == ["environment.TORCH_MASTER_ADDR", "environment.OMP_NUM_THREADS"]
    assert set(neighbour["causes"][0]) == {"path", "ours", "theirs", "kind", "likelihood", "what", "fix", "followers"}


def test_a_command_that_would_hit_is_said_to(shop):
    assert "a start would find generation " in " ".join(shop.explain(command=shop.command).out.decode().split())


def test_a_command_whose_generation_is_refused_or_gone_is_said_to(shop, envelope, tmp_path):
    shop("keys", "create", "--out", str(tmp_path / "other"))
    text = shop.explain("--trusted-keys", str(tmp_path / "other.pub"), command=shop.command).out.decode()
    assert "a start would not use what is published for it" in " ".join(text.split())
    (shop.store / "v1" / envelope / "latest").unlink()
    assert "nothing is published for it" in " ".join(shop.explain(command=shop.command).out.decode().split())


def test_an_empty_store_has_nothing_to_compare(empty):
    ended = empty.explain(command=["true"])
    assert (ended.code, "holds no other to compare it with" in ended.out.decode()) == (0, True)


def test_two_pods_are_compared_by_their_reports_alone(shop, empty):
    report = shop.run(*shop.command, env=OTHER, options=["--no-publish"]).report
    (empty.folder / "pod-b.json").write_text(json.dumps(report))
    files = ["--report", str(empty.folder / "pod-b.json"), "--against", str(shop.folder / "pod-a.json")]
    ended = empty("cache", "explain", *files)
    text = ended.out.decode()
    assert ended.code == 0, ended.err
    assert "The envelopes differ in 2 things:" in text
    assert text.index("TORCH_MASTER_ADDR") < text.index("OMP_NUM_THREADS")
    causes = json.loads(empty("cache", "explain", "--json", *files).out)["against"]["causes"]
    assert [cause["ours"] for cause in causes] == ['"10.0.9.4"', '"3"']
    assert not empty.store.exists()


def test_a_report_stands_for_the_command_that_made_it(shop, envelope):
    document = shop.json("--report", str(shop.folder / "pod-a.json"))
    assert document["envelope"] == envelope
    assert "a start would find generation" in document["state"]


def test_an_envelope_of_the_store_or_of_a_file_can_be_compared_with(shop, envelope, tmp_path):
    key = tmp_path / "key.json"
    key.write_bytes(shop("cache", "key", "--json", "--cache-dir", str(shop.live), "--", *shop.command).out)
    for against in (envelope[:8], str(key), str(shop.store / "v1" / envelope / "envelope.json")):
        document = shop.json("--against", against, command=shop.command, env=OTHER)
        assert document["against"]["envelope"] == envelope
        assert len(document["against"]["causes"]) == 2
        assert shop.json("--against", against, command=shop.command)["against"]["causes"] == []
    text = shop.explain("--against", envelope[:8], command=shop.command).out.decode()
    assert "The envelopes are equal: these two starts share a cache." in text


def records(env):
    return {"path": "x", "env": env, "config_hash": "a", "code_hash": "b", "compiler_hash": "c"}


def test_the_engines_own_records_are_compared_where_both_reports_hold_one(shop, tmp_path):
    for name, port in (("a", 5600), ("b", 5601)):
        report = json.loads((shop.folder / "pod-a.json").read_text())
        report["cache"]["components"]["engine"] = {"name": "vllm", "version": "0.32.0"}
        report["cache"]["engine_key"] = records({"VLLM_NIXL_SIDE_CHANNEL_PORT": port, "VLLM_X": "\x1b[2J"})
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    files = ["--report", str(tmp_path / "b.json"), "--against", str(tmp_path / "a.json")]
    text = shop.explain(*files).out.decode()
    assert "The envelopes are equal" in text
    assert "The engine's own keys differ in 1 thing:" in text
    assert "  VLLM_NIXL_SIDE_CHANNEL_PORT " in text
    assert [cause["path"] for cause in shop.json(*files)["against"]["engine_key"]] == ["VLLM_NIXL_SIDE_CHANNEL_PORT"]
    assert "The engine recorded equal keys for both." in shop.explain(*files[:3], files[1]).out.decode()


def test_the_engines_own_records_are_compared_with_what_lies_in_the_store_and_on_this_node(tmp_path):
    shop = Shop(tmp_path)
    words = stand_ins.vllm(tmp_path).words
    script = Path(words[0])
    plain = script.read_text()
    for host, value in (("10.0.3.17", "a"), ("10.0.9.4", "b")):
        line = f"(rank / 'cache_key_factors.json').write_text({json.dumps(records({'VLLM_X': value}))!r})"
        own = '(key / "cache_key_factors.json").write_text(json.dumps(factors))'
        assert own in plain
        script.write_text(plain.replace(own, line))
        with shop.begin(*words, env={"VLLM_P2P_SIDE_CHANNEL_HOST": host}) as running:
            running.wait_for("published generation")
            running.signal(15)
            published = running.end().report["cache"]["envelope"]
        if value == "a":
            there = published
            shop.forget()
    document = shop.json("--against", there, command=words, env={"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.9.4"})["against"]
    assert [cause["path"] for cause in document["causes"]] == ["environment.VLLM_P2P_SIDE_CHANNEL_HOST"]
    assert [(cause["path"], cause["ours"], cause["theirs"]) for cause in document["engine_key"]] == [("VLLM_X", '"b"', '"a"')]
    pack = next((shop.store / "v1" / there / "packs").iterdir())
    pack.write_bytes(b"no pack")
    assert (
        shop.json("--against", there, command=words, env={"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.9.4"})["against"]["engine_key"]
        is None
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "neither a start report nor an envelope"),
        (b"[1]", "neither a start report nor an envelope"),
        (b'{"schema": "glowplug.dev/start/v1", "cache": {}}', "the report holds no envelope"),
        (b'{"components": {"a": NaN}}', "not plain JSON"),
        (b'{"components": {"a": ' + b"[" * 100_000, "neither a start report nor an envelope"),
        (b'{"components": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}", None),
        (None, "No such file"),
    ],
    ids=["empty", "list", "short", "nan", "unfinished", "deep", "missing"],
)
def test_a_file_that_is_none_of_ours_is_refused_in_one_line(empty, tmp_path, content, says):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    ended = empty.explain("--report", str(path))
    assert "Traceback" not in ended.err
    assert ended.code == (0 if says is None else 1 if "plain" in says else 2)
    assert says is None or says in ended.err


@pytest.mark.parametrize(
    ("words", "command", "says"),
    [
        ([], (), "nothing to explain"),
        (["--report", "x"], ("true",), "either a command or --report"),
        (["--against", "nowhere.json"], ("true",), "--against nowhere.json: no such file"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(empty, words, command, says):
    ended = empty.explain(*words, command=command)
    assert ended.code == 2
    assert says in ended.err


def test_a_digest_that_is_not_there_is_named(shop):
    ended = shop.explain("--against", "00000000", command=shop.command)
    assert ended.code == 1
    assert "no envelope 00000000" in ended.err


def test_nothing_of_a_file_can_steer_the_terminal(shop):
    report = json.loads((shop.folder / "pod-a.json").read_text())
    report["cache"]["components"]["environment"]["\x1b]0;x\x07A_HOST"] = "\x1b[2J\u202e"
    forged = shop.folder / "forged.json"
    forged.write_text(json.dumps(report))
    text = shop.explain("--against", str(forged), command=shop.command).out.decode()
    assert "A_HOST" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_settings_that_poison_the_key_are_told_with_the_remedy(tmp_path):
    shop = Shop(tmp_path)
    words = stand_ins.vllm(tmp_path).words
    env = {"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.3.17", "VLLM_IMAGE_TAG": "v2", "VLLM_NEW_PEER": "10.0.3.17", "VLLM_USE_X": "1"}
    text = shop.explain(command=words, env=env).out.decode()
    assert "Settings that keep starts from sharing a cache unless all have the same:" in text
    assert "  warning: VLLM_P2P_SIDE_CHANNEL_HOST=10.0.3.17\n" in text
    assert "  note: VLLM_IMAGE_TAG=v2\n" in text
    assert "VLLM_USE_X" not in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    found = {each["name"]: (each["severity"], each["seen_by"]) for each in shop.json(command=words, env=env)["poisoners"]}
    assert found == {
        "VLLM_P2P_SIDE_CHANNEL_HOST": ("warning", "both"),
        "VLLM_IMAGE_TAG": ("note", "both"),
        "VLLM_NEW_PEER": ("note", "both"),
    }
