"""An engine that dies of a restore is started again without it; what that proves, and to whom it is said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from tests.run import stand_ins
from tests.run.program import Program, eventually
from tests.weights.weights_samples import write_checkpoint

READER = ["--role", "reader"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The engine of all tests here, and the machine on which it was started for the first time, and published."""
    program = Program(tmp_path_factory.mktemp("shop"))
    words = stand_ins.vllm(program.folder).words
    served(program, words, until="published generation")
    return program, words


@pytest.fixture
def vllm(shop, tmp_path):
    """The engine, with an address of its own, which is no part of the envelope."""
    return (*shop[1][:-1], str(tmp_path / "s"))


@pytest.fixture
def bad(glowplug, shop):
    """The generation that the fleet's first start has published, on a node of its own."""
    for name in ("store", "home/.config"):
        shutil.copytree(shop[0].folder / name, glowplug.folder / name)
    return glowplug.latest()


@pytest.fixture
def node(glowplug):
    """Makes another node of the same fleet: with disks of its own, and the same store and keys."""

    def make(name, *, report="pods"):
        node = Program(glowplug.folder / name, {"GLOWPLUG_NODE_NAME": name, "GLOWPLUG_REPORTS_AS": report})
        shutil.copytree(glowplug.home / ".config", node.home / ".config")
        node.store.symlink_to(glowplug.store)
        return node

    return make


def served(program, vllm, *, does="", options=(), until="generation", env=None, number=signal.SIGTERM):
    """Start the server, wait for something that it says after it is ready, and stop it."""
    with program.begin(*vllm, options=options, env={"DOES": does, **(env or {})}) as start:
        start.wait_for("ready in")
        start.wait_for(until)
        start.signal(number)
        return start.end()


def reports(glowplug):
    return [json.loads(path.read_bytes()) for path in sorted(glowplug.store.glob("v1/reports/*/*/*/*.json"))]


def quarantined(glowplug):
    return sorted(path.stem for path in glowplug.store.glob("v1/*/quarantine/*.json"))


def notes(program):
    return sorted(path.stem for path in program.live.glob(".glowplug-bad/*.json"))


def events(ended):
    return [event["name"] for event in ended.report["events"]]


# --- a server


def test_a_server_that_dies_of_a_restore_is_started_again_cold_and_serves(glowplug, vllm, node, bad):
    here = node("a")
    secret = "hf_" + "s" * 34
    ended = served(here, vllm, does="poison", options=READER, until="reported", env={"HF_TOKEN": secret})
    assert (ended.code, ended.report["outcome"], events(ended)) == (0, "refused", ["cold fallback", "evidence"])
    [line] = ended.said("it is started once more without the cache")
    assert bad[:12] in line
    assert "exit code 1" in line
    assert ended.err.count("Compiling a graph") == 2  # nothing of the poisoned folder was there
    [evidence] = reports(glowplug)
    assert (evidence["generation"], evidence["kind"], evidence["reader"], evidence["exit_code"]) == (bad, "died", "pods", 1)
    assert "AssertionError in the loaded graph" not in "\n".join(evidence["lines"])  # it held a secret
    assert secret not in json.dumps(evidence)
    assert any("withheld" in text for text in evidence["lines"])
    assert any("Directly load" in text for text in evidence["lines"])
    assert notes(here) == [bad]
    assert quarantined(glowplug) == []
    assert "failed start" in {phase["name"] for phase in ended.report["phases"]}


def test_the_node_does_not_crash_again_and_others_are_not_kept_from_it(vllm, node, bad):
    here = node("a")
    served(here, vllm, does="poison", options=READER, until="reported")
    here.forget_live_files()
    again = served(here, vllm, does="poison", options=READER, until="cold start")
    assert (again.report["outcome"], events(again)) == ("refused", [])
    assert "on this node" in again.report["reason"]
    other = served(node("b"), vllm, options=READER)
    assert (other.report["outcome"], other.report["cache"]["generation"]) == ("hit", bad)


def test_two_nodes_put_it_into_quarantine_and_the_fleet_heals(glowplug, vllm, node, bad):
    served(node("a"), vllm, does="poison", options=READER, until="reported")
    second = served(node("b", report="others"), vllm, does="poison", until="published generation")
    assert quarantined(glowplug) == [bad]
    assert events(second) == ["cold fallback", "evidence", "quarantine"]
    assert second.said("in quarantine for all: 2 nodes")
    good = glowplug.latest()
    assert good != bad
    third = served(node("c"), vllm, options=READER)
    assert (third.report["outcome"], third.report["cache"]["generation"]) == ("hit", good)


def test_one_writer_that_died_displaces_nothing_whatever_it_compiles_until_another_agrees(glowplug, vllm, node, bad):
    broken = node("a")
    ended = served(broken, vllm, does="poison", until="nothing was published")
    assert ended.said("by this node's word alone")
    broken.forget_live_files()
    again = served(broken, vllm, does="poison", until="nothing was published")  # compiles, for it passes the generation over
    assert "on this node" in again.report["reason"]
    assert (glowplug.latest(), len(glowplug.published()), quarantined(glowplug)) == (bad, 1, [])
    assert served(node("b"), vllm).report["outcome"] == "hit"
    served(node("c"), vllm, does="poison", until="published generation")
    assert (quarantined(glowplug), glowplug.latest() != bad) == ([bad], True)


def test_readers_alone_leave_the_verdict_to_the_next_writer(glowplug, vllm, node, bad):
    for name in "ab":
        served(node(name), vllm, does="poison", options=READER, until="reported")
    assert quarantined(glowplug) == []  # a reader may not
    writer = served(node("c"), vllm, until="in quarantine for all")
    assert (writer.report["outcome"], events(writer)) == ("hit", ["quarantine"])
    assert quarantined(glowplug) == [bad]
    miss = served(node("d"), vllm, does="poison", until="published generation")
    assert (miss.report["outcome"], events(miss)) == ("refused", [])
    assert served(node("e"), vllm, options=READER).report["outcome"] == "hit"


@pytest.mark.usefixtures("bad")
def test_an_error_of_the_users_own_dies_twice_and_proves_nothing(glowplug, vllm, node):
    here = node("a")
    ended = here.run(*vllm, env={"DOES": "doomed"})
    assert (ended.code, ended.report["exit_code"]) == (1, 1)
    assert ended.err.count("AssertionError") == 2
    assert ended.said("the cache was not the cause")
    assert (reports(glowplug), notes(here), quarantined(glowplug)) == ([], [], [])


@pytest.mark.usefixtures("bad")
def test_what_dies_before_it_has_read_the_cache_is_not_started_again(vllm, node):
    here = node("a")
    ended = here.run(*vllm, env={"DOES": "die"})
    assert (ended.code, events(ended), notes(here)) == (9, [], [])
    assert ended.err.count("No available memory") == 1


@pytest.mark.usefixtures("bad")
def test_with_a_window_of_0_nothing_is_started_again(vllm, node):
    here = node("a")
    ended = here.run(*vllm, options=["--poison-window", "0"], env={"DOES": "poison"})
    assert (ended.code, events(ended), notes(here)) == (1, [], [])


def test_a_cold_start_that_dies_is_not_started_again(glowplug, vllm):
    ended = glowplug.run(*vllm, env={"DOES": "doomed"})
    assert (ended.code, events(ended)) == (1, [])
    assert ended.err.count("AssertionError") == 1


def test_signals_reach_the_second_attempt_and_its_exit_code_counts(glowplug, vllm, node, bad):
    here = node("a")
    with here.begin(*vllm, env={"DOES": "poison slow"}) as start:
        start.wait_for("compiles slowly")
        start.signal(signal.SIGTERM)
        ended = start.end()
    assert (ended.code, ended.report["exit_code"]) == (7, 7)
    assert not ended.said("the cache was not the cause")  # it was told to end
    assert (notes(here), reports(glowplug)) == ([bad], [])  # this node will not do it again; nothing is proven to others


def test_a_death_soon_after_ready_counts_and_a_later_one_does_not(glowplug, vllm, node, bad):
    for window, again in (("1ms", False), ("60s", True)):
        with node(window).begin(*vllm, options=[*READER, "--poison-window", window], env={"DOES": "late"}) as start:
            start.wait_for("ready in")
            start.signal(signal.SIGUSR1)
            if again:
                start.wait_for("reported")
                start.signal(signal.SIGTERM)
            ended = start.end()
        assert (ended.code, bool(events(ended))) == ((0, True) if again else (1, False))
    assert [evidence["generation"] for evidence in reports(glowplug)] == [bad]


@pytest.mark.usefixtures("bad")
def test_an_engine_that_somebody_else_has_told_to_end_is_left_ended(vllm, node):
    here = node("a")
    with here.begin(*vllm, options=READER) as start:
        start.wait_for("ready in")
        [engine] = _engines(vllm)
        os.kill(engine, signal.SIGINT)
        ended = start.end()
    assert (ended.code, events(ended), notes(here)) == (130, [], [])
    assert ended.err.count("Starting to load model") == 1


def test_the_second_attempt_has_weights_of_its_own(glowplug, vllm, node, range_server, tmp_path):
    buckets = tmp_path / "buckets"
    write_checkpoint(buckets / "bucket" / "models" / "tiny", files=2, tensors=6, elements=(1000, 40_000))
    server = range_server(buckets)
    engine = [*vllm[:2], "s3://bucket/models/tiny", *vllm[3:]]
    served(glowplug, engine, until="published generation", env=server.env)
    ended = served(node("a"), engine, does="poison", options=READER, until="reported", env=server.env)
    assert (ended.code, events(ended)) == (0, ["cold fallback", "evidence"])
    tensors = [line.split()[2:] for line in ended.out.decode().splitlines() if line.startswith("tensor 0 ")]
    assert len(tensors) == 24
    assert tensors[:12] == tensors[12:]
    assert ended.report["weights"]["error"] == ""


@pytest.mark.usefixtures("bad")
def test_what_the_first_attempt_has_left_running_is_ended(vllm, node):
    with node("a").begin(*vllm, options=READER, env={"DOES": "poison orphan"}) as start:
        start.wait_for("reported")
        assert len(_engines(vllm)) == 1  # the second server, and not the child that the first has forked
        start.signal(signal.SIGTERM)
        assert start.end().code == 0


def _engines(vllm):
    """Processes of the stand-in that have this address."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _runs(path, vllm[-1])]


def _runs(process, address):
    try:
        return (
            address.encode() in (process / "cmdline").read_bytes().split(b"\0")
            and b"glowplug\0" not in (process / "cmdline").read_bytes()
        )
    except OSError:
        return False


def test_what_the_engine_can_not_load_is_said_and_not_used_again_without_a_restart(glowplug, vllm, node, bad):
    here = node("a")
    ended = served(here, vllm, does="broken", options=READER, until="reported")
    assert (ended.report["outcome"], events(ended)) == ("unused", ["evidence"])
    assert ended.err.count("Starting to load model") == 1
    [evidence] = reports(glowplug)
    assert (evidence["kind"], evidence["generation"], notes(here)) == ("unusable", bad, [bad])
    assert "bad magic number" in evidence["reason"]


def test_a_recompilation_counts_unless_the_engines_own_key_differs(glowplug, vllm, node):
    served(glowplug, vllm, until="published generation", env={"KEY": "4c3e1a"})
    bad = glowplug.latest()
    ours = served(node("a"), vllm, options=READER, until="unused", env={"KEY": "5d4f2b"})
    assert (ours.report["outcome"], events(ours), notes(node("a2"))) == ("unused", [], [])
    assert "VLLM_KEY" in ours.report["reason"]
    other = served(node("b"), vllm, does="ignore", options=READER, until="reported", env={"KEY": "4c3e1a"})
    assert (other.report["outcome"], events(other)) == ("unused", ["evidence"])
    assert [(evidence["kind"], evidence["generation"]) for evidence in reports(glowplug)] == [("recompiled", bad)]


def test_a_death_of_files_that_an_earlier_start_left_is_restarted_and_blames_no_generation(glowplug, vllm):
    served(glowplug, vllm, until="published generation")
    ended = served(glowplug, vllm, does="poison", options=["--no-restore"], until="ready in")
    assert (ended.code, events(ended)) == (0, ["cold fallback"])
    assert ended.said("it used files of an earlier start on this node")
    assert (reports(glowplug), notes(glowplug)) == ([], [])


def test_a_store_that_takes_no_reports_keeps_no_server_from_serving(glowplug, vllm, node, bad):
    here = node("a")
    (glowplug.store / "v1" / "reports").write_text("a file where a folder should be")
    ended = served(here, vllm, does="poison", options=READER, until="could not be reported")
    assert (ended.code, notes(here)) == (0, [bad])


# --- signatures and digests


def damage(glowplug):
    [pack] = glowplug.store.glob("v1/*/packs/*.zst")
    pack.chmod(stat.S_IMODE(pack.stat().st_mode) | stat.S_IWUSR)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0x80
    pack.write_bytes(data)


def test_a_reader_reports_a_damaged_pack_and_a_writer_looks_for_itself(glowplug, vllm, node, bad):
    damage(glowplug)
    reader = served(node("a"), vllm, options=READER, until="reported")
    assert (reader.report["outcome"], events(reader)) == ("refused", ["evidence"])
    assert quarantined(glowplug) == []
    assert [report["kind"] for report in reports(glowplug)] == ["integrity"]
    writer = served(node("b"), vllm, until="published generation")
    assert (events(writer), quarantined(glowplug)) == (["evidence", "quarantine"], [bad])
    assert served(node("c"), vllm, options=READER).report["outcome"] == "hit"


# --- plain commands


@pytest.fixture
def compiled(glowplug, compiler):
    """A command whose cache is published. Its envelope holds the live folder's path, so the next node is ``glowplug`` itself."""
    glowplug.run(*compiler)
    glowplug.forget()
    return compiler


def test_a_command_that_crashes_is_run_again_and_one_that_fails_is_not(glowplug, compiled):
    bad = glowplug.latest()
    failed = glowplug.run(*compiled, options=READER, env={"DOES": "fail"})  # it may have written results
    assert (failed.code, events(failed), failed.out.count(b"loaded 4")) == (3, [], 1)
    crashed = glowplug.run(*compiled, options=READER, env={"DOES": "crash"})
    assert (crashed.code, events(crashed)) == (0, ["cold fallback", "evidence"])
    assert crashed.out.count(b"compiled 4 loaded 0") == 1
    [evidence] = reports(glowplug)
    assert (evidence["generation"], evidence["signal"], evidence["exit_code"]) == (bad, 11, 139)


def test_a_command_that_reads_a_pipe_is_not_run_again(glowplug, compiled):
    ended = glowplug.run(*compiled, env={"DOES": "crash"}, input=b"what can be read once only")
    assert (ended.code, events(ended)) == (139, [])


# --- metrics


def parsed(path):
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(path.read_text())}
    return families, {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families.values() for sample in family.samples
    }


def test_metrics_are_read_by_prometheus_own_parser_and_say_what_the_report_says(glowplug, compiled, tmp_path):
    path = tmp_path / "collector" / 'glow"plug.prom'
    path.parent.mkdir()
    ended = glowplug.run(*compiled, options=["--metrics", str(path)], env={"DOES": "crash"})
    families, values = parsed(path)
    assert all(name.startswith("glowplug_") and family.documentation for name, family in families.items())
    assert values["glowplug_start_seconds",] == pytest.approx(ended.report["wall_s"], abs=0.001)
    assert values["glowplug_start_outcome", ("outcome", "refused")] == 1
    assert sum(value for name, value in values.items() if name[0] == "glowplug_start_outcome") == 1
    assert values["glowplug_cold_fallbacks_total",] == 1
    assert values["glowplug_evidence_total",] == 1
    assert values["glowplug_quarantines_total",] == 0
    assert values["glowplug_publish_state", ("state", "skipped")] == 1
    assert values["glowplug_engine_exit_code",] == 0
    assert families["glowplug_cold_fallbacks"].type == "counter"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # no half of it
    assert path.stat().st_mode & 0o444 == 0o444


def test_metrics_that_can_not_be_written_are_said_once_and_stop_nothing(glowplug, compiler):
    ended = glowplug.run(*compiler, options=["--metrics", "/nonexistent/x.prom"])
    assert ended.code == 0
    assert len(ended.said("metrics not written to /nonexistent/x.prom")) == 1


def test_metrics_go_through_a_link_or_to_a_device_and_replace_neither(glowplug, compiler, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.prom").symlink_to(tmp_path / "there" / "x.prom")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for target in (tmp_path / "link.prom", tmp_path / "pipe"):
        assert not glowplug.run(*compiler, options=["--metrics", str(target)]).said("metrics")
    assert "glowplug_start_seconds" in (tmp_path / "there" / "x.prom").read_text()
    assert os.read(reader, 100_000).startswith(b"# HELP glowplug_start_info")
    os.close(reader)
    assert (tmp_path / "link.prom").is_symlink()


def test_every_documented_metric_is_written_and_every_written_one_documented(glowplug, vllm, tmp_path):
    path = tmp_path / "x.prom"
    served(glowplug, vllm, options=["--metrics", str(path)], until="published generation")
    eventually(lambda: "glowplug_engine_exit_code" in path.read_text())
    families, _ = parsed(path)
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    described = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `glowplug_")}
    written = {f"{name}_total" if family.type == "counter" else name for name, family in families.items()}
    assert written <= described
    assert {name for name in described - written if "weights" not in name} == {"glowplug_saved_seconds"}  # of a hit alone
