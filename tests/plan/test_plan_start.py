"""Start to ready: phases, what is measured and what is not, and what follows for probes and autoscaling."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_models import MODELS, plan

from glowplug.errors import UsageError
from glowplug.plan.base import GB
from glowplug.plan.compiling import guide_s
from glowplug.plan.measured import read_report
from glowplug.timeline.phases import Phase
from glowplug.timeline.report import CacheReport, EngineInfo, StartReport, WeightsReport


def term(made, scenario, phase):
    return next((term for term in made.start(scenario).terms if term.phase == phase), None)


def report(outcome="miss", **phases):
    laid, at = [], 0.0
    for name, seconds in phases.items():
        laid.append(Phase(name.replace("_", " "), at, seconds))
        at += seconds
    return StartReport(
        outcome=outcome, reason="", wall_s=at + 2.0, phases=tuple(laid), engine=EngineInfo("vllm", "0.32.0"),
        cache=CacheReport(envelope="e" * 64, generation="g" * 64 if outcome == "hit" else None),
    )  # fmt: skip


def test_the_phases_of_a_new_node_and_of_a_restart():
    made = plan("llama-3.1-8b", "g6e.xlarge")
    new = ["node", "image pull", "container", "restore", "imports", "weights", "compile", "profiling", "graph capture"]
    assert [term.phase for term in made.start("cold").terms] == [*new, "unattributed", "ready"]
    assert [term.phase for term in made.start("restart").terms] == [*new[2:], "unattributed", "ready"]
    assert made.start("restart").total_s < made.start("warm").total_s < made.start("cold").total_s


def test_the_guides_compile_table_is_met_exactly():
    assert [guide_s(size * GB) for size in (60, 140, 640)] == [53.0, 60.0, 80.0]
    made = plan(60 * GB, "p5.48xlarge", tp=2)
    assert (term(made, "cold", "compile").seconds, term(made, "warm", "compile").seconds) == (53.0, 6.0)


def test_compiling_grows_with_the_layers_and_experts():
    dense, mixture = plan("qwen3-32b", "p5e.48xlarge"), plan("qwen3-30b-a3b", "p5.48xlarge")
    assert term(dense, "cold", "compile").seconds == pytest.approx(10.2 + 0.4 * 64)
    assert term(mixture, "cold", "compile").seconds == pytest.approx(1.5 * (10.2 + 0.4 * 48))
    assert (term(dense, "cold", "compile").basis, term(mixture, "cold", "compile").basis) == ("published", "estimated")


def test_loading_from_the_cache_took_longer_before_vllm_0_21():
    assert term(plan("qwen3-32b", "p5e.48xlarge", vllm_version=(0, 20)), "warm", "compile").seconds == 15.0
    assert term(plan("qwen3-32b", "p5e.48xlarge", vllm_version=(0, 21)), "warm", "compile").seconds == 6.0


def test_eager_mode_compiles_and_captures_nothing():
    made = plan("llama-3.1-8b", "g6e.xlarge", enforce_eager=True)
    for scenario in ("cold", "warm", "restart"):
        assert term(made, scenario, "compile") is None
        assert term(made, scenario, "graph capture") is None
        assert term(made, scenario, "restore").seconds == 0.5  # the look-up: nothing was ever published
    assert any("compile cache stays empty" in note for note in made.notes)


def test_weights_stream_while_the_engine_imports():
    # 16.06 GB at 0.203 GB/s take 79.1 s, of which imports on a new node hide 30; the streamer begins after them
    ours, streamer = (plan("llama-3.1-8b", "g5.xlarge", batch=1, loader=loader) for loader in ("glowplug", "runai"))
    assert term(ours, "cold", "weights").seconds == pytest.approx(16.060522496 / 0.203125 - 30, abs=0.01)
    assert term(streamer, "cold", "weights").seconds == pytest.approx(16.060522496 / 0.203125, abs=0.01)
    # 16.06 GB at 8.1 GB/s are there before the imports end: what is left is the copy to one device
    assert term(plan("llama-3.1-8b", "g6e.12xlarge"), "cold", "weights").seconds == pytest.approx(16.060522496 / 4.81, abs=0.01)


def test_with_neuron_weights_are_on_the_disk_before_the_engine_starts():
    made = plan("llama-3.1-8b", "trn1.2xlarge", batch=1)
    for scenario in ("cold", "warm", "restart"):
        assert term(made, scenario, "weights").seconds == pytest.approx(made.fetch.seconds + 16.060522496 / 2 / 4.81, abs=0.01)


def test_neuron_compiles_for_long_and_captures_nothing():
    made = plan("llama-3.1-8b", "trn1.2xlarge", batch=1)
    assert (term(made, "cold", "compile").seconds, term(made, "cold", "compile").basis) == (900.0, "estimated")
    assert term(made, "cold", "profiling") is None
    assert term(made, "cold", "graph capture") is None
    assert made.probes.startup_budget_s >= 3600
    assert term(made, "cold", "image pull").seconds == pytest.approx(7.9 * 2**30 / 70e6)


def test_without_a_speed_no_start_is_predicted():
    made = plan("llama-3.1-8b", gpu="h100")
    assert (made.starts, made.probes, made.scaling, made.fetch) == ((), None, None, None)
    assert any("No start time without a speed" in note for note in made.notes)
    with pytest.raises(KeyError):
        made.start("cold")


def test_reports_replace_what_was_published_and_are_called_measured():
    reports = (
        report("miss", imports=20.0, compile=70.0, profiling=9.0),
        report("miss", imports=24.0, compile=90.0),
        report("hit", imports=22.0, compile=5.0, graph_capture=4.0),
    )
    made = plan("llama-3.1-8b", "g6e.12xlarge", reports=reports)
    assert term(made, "cold", "compile").seconds == 80.0
    assert (term(made, "cold", "compile").low_s, term(made, "cold", "compile").high_s) == (70.0, 90.0)
    assert term(made, "warm", "compile").seconds == 5.0
    assert term(made, "cold", "imports").seconds == term(made, "restart", "imports").seconds == 22.0
    assert term(made, "warm", "unattributed").seconds == 2.0
    assert (term(made, "cold", "graph capture").basis, term(made, "cold", "graph capture").note) == ("measured", "1 report")
    assert term(made, "cold", "node").basis == "estimated"


def test_where_only_hits_are_known_what_they_saved_is_added():
    hit = report("hit", imports=20.0, compile=4.0)
    hit = replace(hit, cache=replace(hit.cache, saved_s=31.0))
    cold = term(plan("llama-3.1-8b", "g6e.12xlarge", reports=(hit,)), "cold", "compile")
    assert (cold.seconds, cold.basis) == (35.0, "measured")
    assert "saved" in cold.note


def test_a_partial_hit_tells_nothing_about_compiling():
    made = plan("llama-3.1-8b", "g6e.12xlarge", reports=(report("partial", compile=33.0),))
    assert term(made, "cold", "compile").basis == term(made, "warm", "compile").basis == "published"


def test_a_reports_fetch_tells_the_speed_and_its_weights_phase_only_of_the_same_model():
    fetched = WeightsReport(uri="s3://b/m", mode="full", bytes=16_060_522_496, seconds=8.0)
    same = replace(report("hit", weights=1.5), weights=fetched)
    made = plan("llama-3.1-8b", "g6e.12xlarge", reports=(same,))
    assert (made.fetch.rate, made.fetch.bound, made.fetch.basis) == (16_060_522_496 // 8, "reports", "measured")
    assert term(made, "warm", "weights").seconds == 1.5
    other = plan("llama-3.1-70b", "p5.48xlarge", reports=(same,))
    assert other.fetch.bound == "reports"
    assert term(other, "warm", "weights").note == ""
    assert plan("llama-3.1-8b", gpu="l40s", reports=(same,)).starts  # a speed is all that a start time lacks


def test_what_the_user_gives_goes_before_reports():
    reports = (report("miss", compile=70.0),)
    made = plan("llama-3.1-8b", "g6e.12xlarge", reports=reports, phases={"cold:compile": 41.0, "node": 75.0})
    assert (term(made, "cold", "compile").seconds, term(made, "cold", "compile").note) == (41.0, "--phase")
    assert term(made, "warm", "compile").seconds == 6.0
    assert term(made, "cold", "node").seconds == term(made, "warm", "node").seconds == 75.0
    assert term(made, "restart", "node") is None


def test_a_report_is_read_from_its_file(tmp_path):
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report("miss", compile=70.0).to_json()))
    assert read_report(file).phases == (Phase("compile", 0.0, 70.0),)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ('{"schema": "other"}', "not a start report"),
        (json.dumps(replace(report(), engine=EngineInfo("generic", None)).to_json()), "of a command that is no engine"),
        (json.dumps(replace(report(imports=3.0), exit_code=1).to_json()), "ended with exit code 1 before it was ready"),
    ],
)
def test_a_file_that_is_no_report_is_one_error_that_names_it(content, says, tmp_path):
    file = tmp_path / "report.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match="--report") as raised:
        read_report(file)
    assert says in raised.value.message
    assert str(file) in raised.value.message


def test_the_startup_budget_covers_a_slow_cold_start_from_the_containers_begin():
    made = plan("llama-3.1-8b", "g6e.12xlarge")
    cold = made.start("cold")
    assert made.probes.startup_budget_s >= cold.container_high_s > cold.container_s
    assert cold.total_s - cold.container_s == pytest.approx(90 + 10.76e9 / 70e6)
    assert made.probes.progress_deadline_s >= made.probes.startup_budget_s + 410
    by_hand = plan("llama-3.1-8b", "g6e.12xlarge", phases=dict.fromkeys(["imports", "weights", "cold:compile"], 200.0))
    # 3 + 0.5 + 3 x 200 + 3.8 + 1.2 + 7 + 2.5 = 618 s, x 1.5 = 927; slowest 10 + 2 + 600 + 15.3 + 17 + 30 + 5 = 679
    assert by_hand.probes.startup_budget_s == 960
    assert by_hand.probes.startup_failures == 192


@pytest.mark.parametrize("period", [1, 5, 10, 7])
def test_failures_times_period_is_the_budget(period):
    probes = plan("llama-3.1-8b", "g6e.12xlarge", probe_period_s=period).probes
    assert probes.startup_budget_s == probes.startup_failures * period
    assert probes.startup_budget_s >= 300


def test_thresholds_follow_from_the_time_until_a_replica_serves():
    made = plan("llama-3.1-8b", "g6e.12xlarge", batch=12, replicas=10)
    lead = made.start("warm").total_s + 15
    scaling = made.scaling
    assert scaling.lead_s == pytest.approx(lead)
    assert scaling.running == int(12 / (1 + 0.1 * lead / 60))
    assert scaling.warm_pool == -(-10 * 0.1 * lead // 60)
    given = dict.fromkeys(["node", "image pull", "container", "restore", "imports", "weights", "compile", "profiling"], 0.0)
    phases = given | {"graph capture": 0.0, "unattributed": 0.0, "ready": 285.0}
    # 285 s and 15 s of polling: with 10 % a minute the load grows by half, so 8 of 12 requests leave room
    by_hand = plan("llama-3.1-8b", "g6e.12xlarge", batch=12, replicas=10, phases=phases).scaling
    assert (by_hand.lead_s, by_hand.running, by_hand.warm_pool, by_hand.cooldown_s) == (300.0, 8, 5, 600)
    still = plan("llama-3.1-8b", "g6e.12xlarge", batch=12, replicas=10, growth_per_minute=0.0).scaling
    assert (still.running, still.warm_pool) == (12, 0)


def test_every_figure_of_a_start_is_explained():
    made = plan("llama-3.1-70b", "p5.48xlarge")
    explained = {working.name for working in made.workings if working.part == "start"}
    for start in made.starts:
        for each in start.terms:
            assert any(name.startswith(each.phase) and start.scenario in name for name in explained), each.phase
    assert {working.part for working in made.workings} == {"memory", "runai", "fetch", "host", "start", "probes", "scaling"}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(MODELS)), st.integers(1, 400), st.sampled_from(["endpoint", "nat"]), st.booleans())
def test_ranges_hold_what_is_expected(name, nodes, via, eager):
    try:
        made = plan(name, "p5en.48xlarge", nodes=nodes, via=via, enforce_eager=eager, batch=1)
    except UsageError:
        return
    for start in made.starts:
        for each in start.terms:
            assert 0 <= each.low_s <= each.seconds <= each.high_s
        assert start.low_s <= start.total_s <= start.high_s
    assert made.start("restart").total_s <= made.start("cold").total_s


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 500), st.integers(1, 500))
def test_more_nodes_never_start_sooner(one, other):
    few, many = (plan("qwen3-32b", "p5.48xlarge", nodes=nodes, via="nat").start("cold").total_s for nodes in sorted((one, other)))
    assert few <= many
