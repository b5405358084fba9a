"""A node whose wall clock is a day wrong: caches are published, restored and collected all the same; S3's refusal names the clock.

The shift reaches whoever asks Python for the time. The kernel, and with it a store in a folder, keeps its own, as a file server
does.
"""

from __future__ import annotations

import json

import pytest

from tests.faults.nodes import Node

DAY_S = 86_400.0
both_ways = pytest.mark.parametrize("shift_s", [DAY_S, -DAY_S], ids=["ahead", "behind"])


@pytest.fixture
def node(tmp_path, launcher):
    return Node(tmp_path, launcher)


@both_ways
def test_what_a_wrong_clock_publishes_a_right_one_restores_and_the_other_way_round(node, folders, shift_s):
    for publisher_s, reader_s in ((shift_s, 0.0), (0.0, shift_s)):
        place = folders()
        node.reset()
        ended = node.start(place, "run", shift_s=publisher_s)
        assert "published generation" in ended.said
        node.reset()
        ended = node.start(place, "run", shift_s=reader_s)
        assert json.loads(node.report.read_text())["outcome"] in {"hit", "unused"}
        assert node.engines() == (1, ["ended loaded=8 compiled=0 torn=0"])
        assert "Traceback" not in ended.said


@both_ways
def test_a_lease_of_a_killed_start_is_taken_over_and_none_is_waited_for_longer(node, folders, shift_s):
    place = folders()
    steps = node.start(place, "run").steps
    place = folders()
    node.reset()
    spawn = next(number for number, step in enumerate(steps, 1) if step.startswith("os.posix_spawn"))
    assert node.start(place, "run", kill=spawn).code == -9
    ended = node.start(place, "run", shift_s=shift_s)
    assert "published generation" in ended.said
    assert not node.leaked_lease(place, node.envelope(place))


@both_ways
def test_a_collection_by_a_wrong_clock_leaves_what_is_young(node, folders, shift_s):
    place = folders()
    node.start(place, "run")
    graphs = node.envelope(place)
    ended = node.launcher(
        ["cache", "gc", "--store", place.url, "--delete"], node.env | {"GLOWPLUG_TRUSTED_KEYS": ""}, shift_s=shift_s
    )
    assert ended.code == 0, ended.said
    assert node.seen_by_a_reader(place, graphs) == 4
    assert not node.bad_generations(place)


@both_ways
def test_what_others_are_writing_is_not_taken_for_a_dead_publisher_s(node, folders, shift_s):
    from glowplug import temporary

    place = folders()
    spool = place.folder / ".glowplug" / "spool"
    spool.mkdir(parents=True)
    place.folder.chmod(0o700)
    with open(temporary.create(spool / "pack-of-another.tmp"), "wb"):
        assert "published generation" in node.start(place, "run", shift_s=shift_s).said
        assert [path.name for path in spool.iterdir()] == ["pack-of-another.tmp"]


@pytest.mark.s3
@both_ways
def test_s3_refuses_a_wrong_clock_and_the_start_is_cold_with_a_line_that_names_it(node, buckets, shift_s):
    place = buckets()
    ended = node.start(place, "run", shift_s=shift_s)
    assert ended.code == 0
    assert node.engines() == (1, ["ended loaded=0 compiled=8 torn=0"])
    [line] = [line for line in ended.said.splitlines() if line.startswith("glowplug: cold start:")]
    assert "RequestTimeTooSkewed" in line
    assert "set this machine's clock" in line
