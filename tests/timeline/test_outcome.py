"""The outcome follows from what the engine did, never from what was copied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowplug.timeline.outcome import CompiledFiles, Evidence, Lookup, judge

RESTORED = Lookup("restored", generation="39ce")
NONE = Lookup("none", "no generation for this envelope in the store")
REFUSED = Lookup("refused", "signed by a key that this reader does not trust")
OFF = Lookup("off", "the cache is turned off (--no-cache)")
SILENT = Evidence()
FAILURE = "'function' object has no attribute 'finalize_loading' (set VLLM_USE_AOT_COMPILE=0)"


@pytest.mark.parametrize(
    ("lookup", "outcome", "reason"),
    [
        (NONE, "miss", "no generation for this envelope in the store"),
        (Lookup("none"), "miss", "no generation for this envelope in the store"),
        (Lookup("none", "the store did not answer within 30 s"), "miss", "the store did not answer within 30 s"),
        (REFUSED, "refused", "signed by a key that this reader does not trust"),
        (OFF, "off", "the cache is turned off (--no-cache)"),
    ],
)
@pytest.mark.parametrize("evidence", [SILENT, Evidence(compiled=3)])
def test_nothing_there_is_what_the_look_up_says(lookup, outcome, reason, evidence):
    assert judge(lookup, evidence, CompiledFiles(new=12)) == (outcome, reason)


FILES_THAT_SAY_THE_OPPOSITE = CompiledFiles(restored=64, read=0, new=70)


@pytest.mark.parametrize(
    ("evidence", "outcome", "words"),
    [
        (Evidence(loaded=3), "hit", ["loaded 3 compiled artefacts", "compiled nothing"]),
        (Evidence(loaded=1), "hit", ["loaded 1 compiled artefact and"]),
        (Evidence(loaded=2, compiled=1), "partial", ["loaded 2 compiled artefacts", "compiled 1 graph again"]),
        (Evidence(loaded=2, compiled=1, failed=(FAILURE,)), "partial", ["loaded 2", "compiled 1 graph", FAILURE]),
        (Evidence(loaded=2, failed=(FAILURE,)), "partial", ["loaded 2", "not all", FAILURE]),
        (Evidence(compiled=4), "unused", ["compiled 4 graphs", "loaded none"]),
        (Evidence(compiled=1, failed=(FAILURE, "another")), "unused", ["compiled again", FAILURE]),
        (Evidence(failed=(FAILURE,)), "unused", [FAILURE]),
    ],
)
def test_the_engine_s_own_words_decide_before_any_file(evidence, outcome, words):
    got, reason = judge(RESTORED, evidence, FILES_THAT_SAY_THE_OPPOSITE)
    assert got == outcome
    for word in words:
        assert word in reason


@pytest.mark.parametrize(
    ("read", "new", "outcome", "words"),
    [
        (58, 0, "hit", ["58 of 64 compiled files were read", "nothing was compiled"]),
        (1, 0, "hit", ["1 of 64 compiled files was read"]),
        (0, 0, "unused", ["nothing was compiled", "none of the 64 compiled files", "was read"]),
        (0, 1, "unused", ["1 new compiled file appeared", "none of the 64"]),
        (0, 70, "unused", ["70 new compiled files appeared"]),
        (58, 3, "partial", ["58 of 64", "3 new compiled files appeared"]),
        (58, 70, "partial", ["58 of 64", "70 new"]),  # most of it was used, and as much came on top
        (6, 31, "partial", ["6 of 64", "31 new"]),  # 31 is less than half of 64
        (7, 32, "partial", ["7 of 64", "32 new"]),  # 7 is more than a tenth of 64
        (6, 32, "unused", ["only 6 of 64", "32 new"]),  # opened by a search that found nothing that fits
        (None, 0, "hit", ["no new compiled file", "64", "does not tell"]),
        (None, 3, "partial", ["3 new compiled files", "64", "does not tell"]),
        (None, 64, "unused", ["64 new compiled files", "does not tell"]),
    ],
)
def test_where_the_log_is_silent_the_files_decide(read, new, outcome, words):
    got, reason = judge(RESTORED, SILENT, CompiledFiles(restored=64, read=read, new=new))
    assert got == outcome
    for word in words:
        assert word in reason


def test_a_generation_without_compiled_files_is_no_hit():
    assert judge(RESTORED, SILENT, CompiledFiles(read=None, new=0))[0] == "unused"


@pytest.mark.parametrize(
    ("lookup", "evidence", "files", "outcome", "words"),
    [
        (
            NONE,
            Evidence(loaded=1),
            CompiledFiles(held=20),
            "hit",
            ["20 compiled files of an earlier start on this node", "nothing was restored"],
        ),
        (NONE, SILENT, CompiledFiles(held=20, read=9), "hit", ["9 of 20", "nothing was restored"]),
        (NONE, Evidence(loaded=1, compiled=1), CompiledFiles(held=20), "partial", ["nothing was restored"]),
        (REFUSED, Evidence(loaded=1), CompiledFiles(held=20), "hit", ["refused", "does not trust"]),
        (
            NONE,
            Evidence(compiled=1),
            CompiledFiles(held=20),
            "miss",
            ["no generation", "20 compiled files of an earlier start", "loaded none"],
        ),
        (REFUSED, Evidence(compiled=1), CompiledFiles(held=20), "refused", ["does not trust"]),
        (OFF, Evidence(loaded=1), CompiledFiles(held=20), "off", ["turned off"]),
    ],
)
def test_files_of_an_earlier_start_on_the_node_are_told_apart_from_a_restore(lookup, evidence, files, outcome, words):
    got, reason = judge(lookup, evidence, files)
    assert got == outcome
    for word in words:
        assert word in reason


def test_a_negative_number_of_files_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="negative"):
        CompiledFiles(restored=-1)


COUNTS = st.integers(0, 10_000)


@given(
    st.sampled_from([RESTORED, NONE, REFUSED, OFF]),
    st.builds(Evidence, loaded=COUNTS, compiled=COUNTS, failed=st.sampled_from([(), (FAILURE,)])),
    st.builds(CompiledFiles, restored=COUNTS, held=COUNTS, read=st.none() | COUNTS, new=COUNTS),
)
def test_every_verdict_is_one_line_and_no_hit_is_called_without_use(lookup, evidence, files):
    outcome, reason = judge(lookup, evidence, files)
    assert reason
    assert "\n" not in reason
    assert not reason.endswith(".")
    if outcome == "hit":
        assert evidence.compiled == 0
        assert not evidence.failed
        assert evidence.loaded or (files.had and files.read != 0 and files.new == 0)
    if lookup is not RESTORED:
        assert outcome != "unused"
