"""The table is read in a terminal of 80 columns by someone who is tired: places, widths and words are what matters."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowplug.timeline.bars import ASCII, BLOCKS
from glowplug.timeline.phases import Phase
from glowplug.timeline.render import compare, glyphs_for, render
from glowplug.timeline.report import CacheReport, EngineInfo, PublishReport, StartReport, WeightsReport

WARM = StartReport(
    outcome="hit",
    reason="the engine loaded 3 compiled artefacts and compiled nothing",
    wall_s=50.0,
    phases=(
        Phase("envelope", 0.0, 0.2),
        Phase("restore", 0.2, 0.5),
        Phase("imports", 0.75, 29.25),
        Phase("weights", 30.0, 5.0),
        Phase("compile", 35.0, 2.0),
        Phase("profiling", 37.0, 1.0),
        Phase("compile", 38.0, 2.0),
        Phase("ready", 45.0, 5.0),
    ),
    cache=CacheReport("7a2f" * 16, "39ce" * 16, 64, 3_412_331, 53.5, "s3://bucket/glowplug", "/var/tmp/cache", 58, 0),
    engine=EngineInfo("vllm", "0.32.0"),
)
COLD = StartReport(
    "miss",
    "no generation for this envelope in the store",
    103.5,
    (Phase("envelope", 0.0, 0.2), Phase("imports", 0.75, 46.0), Phase("weights", 46.75, 5.0), Phase("compile", 52.0, 40.0)),
    CacheReport("7a2f" * 16, store="s3://bucket/glowplug"),
    EngineInfo("vllm", "0.32.0"),
)
FETCHED = replace(
    WARM,
    weights=WeightsReport(
        "s3://bucket/qwen3-32b", "full", 65_536_000_000, 40.0, start_s=0.25, requests=7813, retries=3, hedges=1, ranks=2,
        waited_s=5.31, hidden_s=29.75, visible_s=10.25, verified=True,
    ),
)  # fmt: skip
BARE = StartReport("off", "the cache is turned off", 0.0, (), CacheReport(None), EngineInfo("generic", None))


def row(text, name):
    return next(line for line in text.splitlines() if line.startswith(name))


def bar(text, name):
    return row(text, name).partition("│ ")[2]


def test_the_whole_table_at_80_columns():
    assert render(WARM) == (
        "vllm 0.32.0 ready in 50.0 s                                            cache hit\n"
        "────────────────────────────────────────────────────────────────────────────────\n"
        "envelope         0.20 s │ ▎\n"
        "restore          0.50 s │ ▌\n"
        "imports          29.2 s │ ▕███████████████████████████████▍\n"
        "weights          5.00 s │                                 ▐████▊\n"
        "compile          4.00 s │                                      ▕██ ██▎\n"
        "profiling        1.00 s │                                         █\n"
        "ready            5.00 s │                                                 ▐█████\n"
        "unattributed     5.05 s │                                            ░░░░░░\n"
        "────────────────────────────────────────────────────────────────────────────────\n"
        "cache     hit: the engine loaded 3 compiled artefacts and compiled nothing\n"
        "restored  64 files, 58 read, 3.3 MiB, generation 39ce39ce39ce\n"
        "saved     53.5 s against the recorded cold start of 103.5 s\n"
        "store     s3://bucket/glowplug, envelope 7a2f7a2f7a2f\n"
    )


def test_the_fetch_has_a_row_beside_the_phases_and_two_lines_of_facts():
    text = render(FETCHED)
    assert row(text, "fetch").split()[1:3] == ["40.0", "s"]
    assert set(bar(text, "fetch").strip()) == {"░"}
    assert text.splitlines().index(row(text, "fetch")) < text.splitlines().index(row(text, "imports"))
    assert row(text, "unattributed") == row(render(WARM), "unattributed")  # it is no phase of its own
    facts = text.splitlines()
    first = facts.index(row(text, "weights   61"))
    assert facts[first : first + 3] == [
        "weights   61.0 GiB in 40.0 s (1.5 GiB/s), full buffer, verified, 3 retries, 1",
        "          hedge",
        "          29.8 s hidden behind the start, 10.2 s not; 2 ranks waited 5.31 s",
    ]


def test_a_fetch_that_failed_and_files_that_were_read_ahead_are_told_apart():
    failed = render(replace(WARM, weights=WeightsReport("s3://b/m", "windowed", 1024, 2.0, error="s3://b/m/x: has changed")))
    assert "the fetch failed: s3://b/m/x: has changed" in failed
    ahead = render(replace(WARM, weights=WeightsReport("/models/m", "page cache", 3 * 1024**3, 3.0)))
    assert "3.0 GiB in 3.00 s (1.0 GiB/s) read ahead of the engine" in ahead
    assert "fetch " not in ahead


def test_bars_stand_where_their_phase_stood_in_time():
    text = render(WARM)
    columns = 80 - len(row(text, "ready").partition("│ ")[0]) - 2
    for name, start_s in (("weights", 30.0), ("ready", 45.0)):
        first = len(bar(text, name)) - len(bar(text, name).lstrip())
        assert abs(first - start_s / 50.0 * columns) <= 1


def test_a_phase_of_a_blink_is_still_visible():
    report = replace(WARM, wall_s=3600.0)
    assert bar(render(report), "envelope").strip()


def test_the_rest_that_nobody_accounts_for_is_a_row_of_its_own():
    text = render(COLD)
    assert row(text, "unattributed").split()[1:3] == ["12.3", "s"]
    assert "░" in bar(text, "unattributed")


@pytest.mark.parametrize("width", [60, 80, 100, 132])
@pytest.mark.parametrize("report", [WARM, COLD, BARE, FETCHED])
@pytest.mark.parametrize("glyphs", [BLOCKS, ASCII])
def test_no_line_is_wider_than_asked(report, width, glyphs):
    for line in render(report, width=width, glyphs=glyphs).splitlines():
        assert len(line) <= width
        assert line == line.rstrip()


def test_colour_adds_nothing_but_colour():
    plain = render(WARM)
    coloured = render(WARM, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert "\x1b" not in plain


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("hit", "hit:"),
        ("partial", "partial hit:"),
        ("unused", "restored, but not used:"),
        ("miss", "miss:"),
        ("refused", "refused:"),
        ("off", "off:"),
    ],
)
def test_each_outcome_is_said_in_words(outcome, words):
    text = render(replace(WARM, outcome=outcome))
    assert row(text, "cache").startswith(f"cache     {words}")
    assert text.splitlines()[0].endswith(f"cache {outcome}")


def test_a_slower_start_than_the_cold_one_is_not_called_saved():
    text = render(replace(WARM, cache=replace(WARM.cache, saved_s=-4.0)))
    assert row(text, "lost") == "lost      4.00 s against the recorded cold start of 46.0 s"
    assert "saved" not in text


def test_a_long_reason_is_wrapped_and_stays_aligned():
    text = render(replace(WARM, reason="because " * 30))
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("cache "))
    assert lines[first + 1].startswith(" " * 10 + "because")


def test_a_url_is_never_broken():
    url = "s3://" + "a-long-bucket-name-" * 6 + "/glowplug"
    assert url in render(replace(WARM, cache=replace(WARM.cache, store=url)))


def test_publication_and_notices_are_told():
    report = replace(
        WARM,
        publish=PublishReport("published", generation="ab" * 32, files=67, bytes=3_500_000, pack_bytes=900_000, seconds=1.25),
        notices=("VLLM_DISABLE_COMPILE_CACHE=1 defeats the cache",),
    )
    text = render(report)
    assert " ".join(text.split()).count("publish 67 files, 3.3 MiB (878.9 KiB packed in 1.25 s) as abababababab") == 1
    assert row(text, "notice") == "notice    VLLM_DISABLE_COMPILE_CACHE=1 defeats the cache"
    failed = render(replace(WARM, publish=PublishReport("failed", "the store is read-only")))
    assert row(failed, "publish") == "publish   failed: the store is read-only"


def test_control_characters_from_outside_do_not_reach_the_terminal():
    text = render(replace(WARM, reason="a\x1b[2Jb\nc", notices=("d\x07\r",), phases=(Phase("x\x1b[31m", 0, 1),)))
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text) is None


def test_ascii_stays_ascii_whatever_the_report_holds():
    render(replace(WARM, reason="Gerät läuft"), glyphs=ASCII).encode("ascii")


def test_a_generic_command_has_ended():
    assert render(replace(BARE, exit_code=0)).startswith("generic ended after 0.00 s")


@pytest.mark.parametrize(("encoding", "glyphs"), [("utf-8", BLOCKS), ("ascii", ASCII), ("iso-8859-1", ASCII)])
def test_the_stream_s_encoding_chooses_the_characters(encoding, glyphs):
    assert glyphs_for(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is glyphs


def test_a_stream_without_an_encoding_gets_ascii():
    assert glyphs_for(io.StringIO()) is ASCII


def test_two_starts_side_by_side():
    assert compare([("cold", COLD), ("warm", WARM)]) == (
        "                     cold       warm   ratio\n"
        "────────────────────────────────────────────────────────────────────────────────\n"
        "envelope           0.20 s     0.20 s    1.00  ▏\n"
        "restore                 -     0.50 s          ▍\n"
        "imports            46.0 s     29.2 s    0.64  █████████████████████▋░░░░░░░░░░░░\n"
        "weights            5.00 s     5.00 s    1.00  ███▊\n"
        "compile            40.0 s     4.00 s    0.10  ███░░░░░░░░░░░░░░░░░░░░░░░░░░░\n"
        "profiling               -     1.00 s          ▊\n"
        "ready                   -     5.00 s          ███▊\n"
        "unattributed       12.3 s     5.05 s    0.41  ███▊░░░░░\n"
        "────────────────────────────────────────────────────────────────────────────────\n"
        "wall              103.5 s     50.0 s    0.48\n"
        "cache                miss        hit\n"
    )


def test_the_ratio_of_many_starts_is_the_last_to_the_first():
    text = compare([("cold", COLD), ("warm 1", replace(WARM, wall_s=70.0)), ("warm 2", WARM)])
    assert row(text, "wall").split() == ["wall", "103.5", "s", "70.0", "s", "50.0", "s", "0.48"]
    assert max(map(len, text.splitlines())) <= 80


def test_one_start_alone_has_no_ratio():
    assert "ratio" not in compare([("cold", COLD)])


def test_comparing_nothing_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="nothing"):
        compare([])


SECONDS = st.floats(0, 1e5)
REPORTS = st.builds(
    replace,
    st.just(WARM),
    outcome=st.sampled_from(["hit", "partial", "unused", "miss", "refused", "off"]),
    reason=st.text(),
    wall_s=SECONDS,
    phases=st.lists(
        st.builds(Phase, st.sampled_from(["compile", "graph capture", "a new phase"]), SECONDS, SECONDS), max_size=6
    ).map(tuple),
    notices=st.lists(st.text(), max_size=2).map(tuple),
)


@given(REPORTS, st.integers(-5, 300), st.booleans(), st.sampled_from([BLOCKS, ASCII]))
def test_any_report_can_be_shown(report, width, color, glyphs):
    assert render(report, width=width, color=color, glyphs=glyphs).endswith("\n")
    assert compare([("a", report), ("b", WARM)], width=width, glyphs=glyphs).endswith("\n")


@given(st.lists(st.tuples(st.floats(-10, 110), st.floats(-10, 110)), max_size=6), st.integers(1, 120), st.booleans())
def test_a_bar_never_leaves_its_columns(spans, columns, light):
    assert len(BLOCKS.bar(spans, 100.0, columns, light=light)) <= columns
