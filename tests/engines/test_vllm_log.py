"""vLLM's log, replayed with its arrival times, gives the phases and the evidence that a person would read in it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowplug.engines.vllm.log import VllmLog
from glowplug.timeline.outcome import Evidence

LOGS = Path(__file__).parent / "logs"
AOT_ON_CPU = (
    "'function' object has no attribute 'finalize_loading' (vLLM on the CPU can't load what it saved; set VLLM_USE_AOT_COMPILE=0)"
)
SOURCE_CHANGED = (
    "Source code has changed since the last compilation. (a file of the engine or the model differs from the one that was compiled)"
)


def replay(name: str) -> tuple[VllmLog, float, float]:
    """A fixture fed into a reader; the reader, the spawn and the ready moment."""
    log, spawned_s, ready_s = VllmLog(), 0.0, 0.0
    for line in (LOGS / f"{name}.log").read_bytes().decode().split("\n"):  # carriage returns are part of the lines
        if line.startswith("# spawned"):
            _, _, spawned, _, ready = line.split()
            spawned_s, ready_s = float(spawned), float(ready)
        elif line.startswith("+"):
            at, _, text = line.partition(" ")
            log.feed(text, float(at))
    return log, spawned_s, ready_s


INFO = "(EngineCore pid=7) INFO 07-30 12:00:05 [file.py:1] "
LOAD_FAILED = "WARNING 07-30 12:00:05 [decorators.py:333] Compiling model again due to a load failure from /c/model, reason: "


def spans(log: VllmLog, spawned_s: float, ready_s: float) -> list[tuple[str, float, float]]:
    return [(p.name, round(p.start_s, 1), round(p.start_s + p.seconds, 1)) for p in log.phases(spawned_s, ready_s)]


def feed(*lines: tuple[float, str]) -> VllmLog:
    log = VllmLog()
    for at_s, line in lines:
        log.feed(line, at_s)
    return log


# Each log read by eye: what was loaded, compiled, and could not be loaded.
EVIDENCE = {
    "0.8.5-gpu-cold": Evidence(compiled=1),
    "0.8.5-gpu-warm": Evidence(loaded=1),
    "0.10.2-gpu-tp2-cold": Evidence(compiled=2),  # one graph on each of two ranks
    "0.14.1-gpu-aot-warm": Evidence(loaded=1),
    "0.14.1-gpu-aot-load-failure": Evidence(compiled=1, failed=(SOURCE_CHANGED,)),
    "0.17.0-gpu-compose-cold": Evidence(compiled=1),
    "0.20.2-cpu-aot-cold": Evidence(compiled=1),
    "0.20.2-cpu-aot-load-failure": Evidence(compiled=1, failed=(AOT_ON_CPU,)),
    "0.20.2-gpu-tp2-draft-aot-warm": Evidence(loaded=6),  # two models on two ranks, and rank 0 names its graphs as well
    "0.32.0-cpu-aot-cold": Evidence(compiled=1),
    "0.32.0-cpu-aot-load-failure": Evidence(compiled=1, failed=(AOT_ON_CPU,)),
    "0.32.0-cpu-no-aot-cold": Evidence(),
    "0.32.0-cpu-no-aot-warm": Evidence(),
    "0.32.0-gpu-v2-partial": Evidence(loaded=1, compiled=1),
}


def test_every_recorded_log_has_an_expectation():
    assert {path.stem for path in LOGS.glob("*.log")} == EVIDENCE.keys()


@pytest.mark.parametrize("name", EVIDENCE)
def test_each_version_s_evidence(name):
    log, _, _ = replay(name)
    assert log.evidence() == EVIDENCE[name]


PHASES = {
    "0.8.5-gpu-cold": [
        ("imports", 1.0, 24.2),
        ("weights", 24.2, 25.8),
        ("profiling", 25.9, 25.9),
        ("compile", 25.9, 57.9),
        ("profiling", 57.9, 66.9),
        ("graph capture", 67.1, 84.1),
        ("ready", 84.2, 86.0),
    ],
    "0.8.5-gpu-warm": [
        ("imports", 1.0, 24.2),
        ("weights", 24.2, 25.8),
        ("compile", 25.9, 37.6),  # Dynamo, then 4.19 s of loading
        ("profiling", 37.6, 43.1),
        ("graph capture", 43.2, 60.2),
        ("ready", 60.3, 62.0),
    ],
    "0.10.2-gpu-tp2-cold": [
        ("imports", 1.0, 35.2),
        ("weights", 35.2, 58.0),  # until the slower rank has them
        ("profiling", 58.2, 58.6),
        ("compile", 58.6, 110.4),
        ("profiling", 110.4, 123.6),
        ("graph capture", 124.1, 139.5),  # from the progress bar: "15 secs" would begin at 124.4
        ("ready", 139.8, 142.5),
    ],
    "0.14.1-gpu-aot-warm": [
        ("imports", 1.0, 18.4),
        ("weights", 18.4, 24.6),
        ("compile", 24.6, 29.8),  # no duration in the line: from the begin of the engine's initialisation
        ("profiling", 29.8, 33.2),
        ("graph capture", 33.4, 37.4),
        ("ready", 37.5, 40.0),
    ],
    "0.17.0-gpu-compose-cold": [
        ("imports", 1.0, 40.0),
        ("weights", 40.0, 47.0),
        ("profiling", 47.0, 51.5),
        ("compile", 51.5, 77.3),
        ("profiling", 77.3, 88.3),
        ("graph capture", 88.9, 91.6),
        ("ready", 91.7, 94.5),
    ],
    "0.20.2-gpu-tp2-draft-aot-warm": [
        ("imports", 1.0, 29.5),
        ("weights", 29.5, 58.9),
        ("profiling", 59.8, 68.4),
        ("compile", 68.4, 78.1),
        ("profiling", 78.1, 135.2),
        ("compile", 135.2, 135.5),  # the draft model, after the main model's first run
        ("profiling", 135.5, 141.6),
        ("graph capture", 141.9, 149.9),
        ("ready", 150.2, 153.0),
    ],
    "0.32.0-gpu-v2-partial": [
        ("imports", 1.0, 17.6),
        ("weights", 17.6, 26.8),
        ("profiling", 27.1, 27.4),
        ("compile", 27.4, 30.3),
        ("profiling", 30.3, 31.1),
        ("compile", 31.1, 50.4),
        ("profiling", 50.4, 53.2),
        ("graph capture", 58.2, 61.4),
        ("ready", 61.6, 63.0),
    ],
    "0.20.2-cpu-aot-cold": [
        ("imports", 0.0, 62.4),
        ("weights", 62.4, 62.5),
        ("compile", 62.5, 134.6),
        ("profiling", 134.6, 134.7),
        ("compile", 134.7, 137.1),
        ("profiling", 137.1, 137.1),
        ("ready", 139.2, 144.5),
    ],
    "0.32.0-cpu-no-aot-warm": [
        ("imports", 0.0, 48.9),
        ("weights", 48.9, 49.9),
        ("compile", 49.9, 54.9),
        ("ready", 57.9, 59.3),
    ],
}


@pytest.mark.parametrize("name", PHASES)
def test_each_version_s_phases(name):
    assert spans(*replay(name)) == PHASES[name]


@pytest.mark.parametrize("name", EVIDENCE)
def test_phases_never_overlap_and_stay_between_spawn_and_ready(name):
    log, spawned_s, ready_s = replay(name)
    reached = spawned_s
    for phase in log.phases(spawned_s, ready_s):
        assert phase.start_s >= reached - 1e-9
        assert phase.seconds > 0
        reached = phase.start_s + phase.seconds
    assert reached <= ready_s + 1e-9


@pytest.mark.parametrize(
    ("cold", "warm"), [("0.32.0-cpu-no-aot-cold", "0.32.0-cpu-no-aot-warm"), ("0.8.5-gpu-cold", "0.8.5-gpu-warm")]
)
def test_a_warm_start_compiles_in_a_fraction_of_the_cold_one(cold, warm):
    seconds = [
        sum(p.seconds for p in log.phases(spawned, ready) if p.name == "compile")
        for log, spawned, ready in map(replay, (cold, warm))
    ]
    assert seconds[1] < 0.4 * seconds[0]


def test_the_gap_that_no_line_explains_stays_open():
    log, spawned_s, ready_s = replay("0.32.0-gpu-v2-partial")
    phases = log.phases(spawned_s, ready_s)
    # JIT kernel warm-up between "KV cache size" and graph capture belongs to no phase.
    assert not [p for p in phases if p.start_s < 57 and p.start_s + p.seconds > 54]


def test_an_engine_that_died_while_loading_has_only_imports():
    log = feed((5.0, "(Worker_TP0 pid=7) INFO 07-30 12:00:05 [gpu_model_runner.py:5040] Starting to load model x..."))
    assert spans(log, 1.0, 30.0) == [("imports", 1.0, 5.0)]


def test_phases_before_anything_was_said_are_empty():
    assert VllmLog().phases(0.0, 10.0) == []


def test_lines_after_ready_change_no_phase():
    log, spawned_s, ready_s = replay("0.8.5-gpu-cold")
    before = log.phases(spawned_s, ready_s)
    log.feed("INFO 07-30 13:00:00 [gpu_model_runner.py:1347] Model loading took 2.3185 GiB and 9.0 seconds", ready_s + 600)
    log.feed(
        "INFO 07-30 13:00:00 [core.py:159] init engine (profile, create kv cache, warmup model) took 5.00 seconds", ready_s + 700
    )
    assert log.phases(spawned_s, ready_s) == before


def test_several_engines_are_up_when_the_last_is():
    log = feed(
        (5.0, INFO + "Starting to load model x..."),
        (20.0, INFO + "init engine (profile, create kv cache, warmup model) took 9.00 s"),
        (24.0, INFO + "init engine (profile, create kv cache, warmup model) took 9.00 s"),
    )
    assert spans(log, 0.0, 25.0)[-1] == ("ready", 24.0, 25.0)


def test_staggered_ranks_give_one_warm_up_from_the_first_begin_to_the_last_end():
    line = "(Worker_TP{} pid=7) INFO 07-30 12:00:05 [cpu_model_runner.py:87] {}"
    log = feed(
        (10.0, line.format(0, "Warming up model for the compilation...")),
        (11.0, line.format(1, "Warming up model for the compilation...")),
        (30.0, line.format(0, "Warming up done.")),
        (33.0, line.format(1, "Warming up done.")),
    )
    assert spans(log, 0.0, 40.0) == [("compile", 10.0, 33.0)]


def test_an_unknown_logging_configuration_is_still_read():
    log = feed(
        (3.0, '{"level": "INFO", "file": "gpu_model_runner.py", "message": "Starting to load model x..."}'),
        (9.0, "2026-06-10 11:30:27 | gpu_model_runner | 139 | INFO : Model loading took 29.04 GiB memory and 5.9 seconds"),
        (9.5, '{"level": "INFO", "message": "Directly load AOT compilation from path /x/model"}'),
    )
    assert spans(log, 0.0, 20.0)[:2] == [("imports", 0.0, 3.0), ("weights", 3.0, 9.0)]
    assert log.evidence() == Evidence(loaded=1)


def test_coloured_lines_are_read_like_plain_ones():
    process, level, place = "\x1b[0;36m(EngineCore pid=3)\x1b[0;0m", "\x1b[32mINFO\x1b[0m", "\x1b[90m[decorators.py:319]\x1b[0m"
    log = feed(
        (1.0, f"{process} {level} \x1b[90m05-06 20:59:57\x1b[0m {place} [backbone] Directly load AOT compilation from path /x")
    )
    assert log.evidence().loaded == 1


@pytest.mark.parametrize(
    "line",
    [
        # A prompt that quotes the log is not the log.
        INFO + "Received request chatcmpl-1: prompt: 'Directly load AOT compilation from path'",
        # To 0.14 this total is printed on hits as well, and sums what other lines date.
        "INFO 07-30 12:00:05 [monitor.py:33] torch.compile takes 7.51 s in total",
        # Saving failed: nothing was loaded, and no load failed.
        "WARNING 07-30 12:00:05 [decorators.py:749] [backbone] unable to save AOT compiled function to /x/model: disk full",
        "INFO 07-30 12:00:05 [decorators.py:727] AOT compiled function was loaded from cache, skipping save",
    ],
)
def test_lines_that_only_look_like_evidence_are_none(line):
    log = feed((1.0, line))
    assert log.evidence() == Evidence()
    assert log.phases(0.0, 10.0) == []


def test_pieces_of_a_graph_are_not_counted_beside_the_graph():
    piece = (
        "DEBUG 07-01 21:20:33 [backends.py:123] Directly load the {}-th graph for shape 1 from inductor via handle ('f', '/x.py')"
    )
    lines = [(1.0, piece.format(number)) for number in range(29)]
    assert feed(*lines).evidence().loaded == 29
    whole = (
        1.1,
        "INFO 07-01 21:20:33 [backends.py:167] Directly load the compiled graph(s) for shape 1 from the cache, took 4.428 s",
    )
    assert feed(*lines, whole).evidence().loaded == 1


def test_a_graph_without_a_compile_line_is_counted_when_it_is_kept():
    assert feed((1.0, "INFO 07-01 21:20:33 [backends.py:136] Cache the graph of shape None for later use")).evidence().compiled == 1


def test_the_same_failure_on_eight_ranks_is_told_once_and_stays_short():
    line = LOAD_FAILED + "x" * 5000 + "\x1b[2J"
    log = feed(*((1.0, line.replace("/c/", f"/c/rank_{rank}_0/")) for rank in range(8)))
    (failed,) = log.evidence().failed
    assert len(failed) <= 300
    assert failed.isprintable()


def test_an_empty_reason_is_named_as_such():
    assert feed((1.0, LOAD_FAILED)).evidence().failed == ("the engine gave no reason",)


def test_advice_survives_a_long_reason():
    log = feed((1.0, LOAD_FAILED + "'function' object has no attribute 'finalize_loading' " + "y" * 400))
    (failed,) = log.evidence().failed
    assert failed.endswith("set VLLM_USE_AOT_COMPILE=0)")
    assert len(failed) <= 300


WORDS = st.sampled_from(
    [
        "INFO 07-30 12:00:05 [a.py:1] ",
        "(Worker_TP0 pid=1) ",
        "Starting to load model ",
        "Loading weights took ",
        "9" * 9,
        "1.5",
        " seconds",
        "Compiling a graph for ",
        " takes ",
        " s",
        "Directly load the compiled graph(s) for ",
        " from the cache, took ",
        "\r",
        "\x1b[31m",
        "\n",
        "\x00",
        "init engine (profile) took ",
        "Compiling model again due to a load failure from ",
        ", reason: ",
        "Warming up done.",
        "[",
        "]",
        "\ud800",
        "١٢",
    ]
)


@given(
    st.lists(st.tuples(st.one_of(st.text(), st.lists(WORDS).map("".join)), st.floats(0, 1e6)), max_size=30),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_no_text_at_any_time_raises_or_breaks_the_order(lines, spawned_s, ready_s):
    log = feed(*((at_s, line) for line, at_s in lines))
    evidence = log.evidence()
    assert min(evidence.loaded, evidence.compiled) >= 0
    reached = spawned_s
    for phase in log.phases(spawned_s, ready_s):
        assert phase.start_s >= reached - 1e-6
        reached = phase.start_s + phase.seconds
        assert reached <= ready_s + 1e-6


@pytest.mark.parametrize(
    "line",
    [
        "INFO 07-30 12:00:05 [" * 40_000,
        "Compiling model again due to a load failure from " * 20_000,
        "Directly load the compiled graph(s) for " + "x" * 1_000_000,
        "\r" * 1_000_000,
        "\x1b[" * 500_000,
        "(" * 1_000_000,
    ],
)
def test_a_hostile_line_costs_little_time(line):
    started = time.perf_counter()
    feed((1.0, line))
    assert time.perf_counter() - started < 2.0  # quadratic would be minutes


def test_many_lines_of_the_same_kind_are_counted_and_not_kept():
    log = VllmLog()
    for number in range(5000):
        log.feed("INFO 07-30 12:00:05 [backends.py:148] Compiling a graph for shape 8 takes 0.01 s", float(number))
        log.feed(
            f"WARNING 07-30 12:00:05 [d.py:1] Compiling model again due to a load failure from /c, reason: {number}", float(number)
        )
    assert max(len(kept) for kept in log._spans.values()) <= 64
    assert len(log.evidence().failed) <= 16
    assert log.evidence().compiled == 5000
