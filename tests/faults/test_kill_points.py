"""A wrapper that is killed at any step of publishing or restoring: readers see the old or the new, and a rerun leaves nothing.

Here a few steps of each command, the same ones every time; ``benchmarks/bench_faults_cache.py`` takes hundreds at random.
"""

from __future__ import annotations

import pytest

from glowplug.cache.lease import TTL_S, Holder, take
from tests.faults.trials import TRIALS, Range, sample

_POINTS = 3
_IDS = [trial.name for trial in TRIALS]


@pytest.fixture(scope="module")
def ranges(tmp_path_factory, launcher):
    """Gives the range for a kind of store. The states that trials begin from are made once for all trials there."""
    made = {}

    def range_for(trial, places):
        key = (trial.own_key, places)
        if key not in made:
            made[key] = Range(tmp_path_factory.mktemp("range"), launcher, places, own_key=trial.own_key)
        return made[key]

    return range_for


def kill_at_some(trial, test_range):
    steps = test_range.steps(trial)
    assert len(steps) > 20
    points = sample(len(steps), 2 if trial.words == ("cache", "capture") else _POINTS, seed=trial.name)
    for at in points:
        test_range.kill(trial, at, named=steps[at - 1])


@pytest.mark.parametrize("trial", TRIALS, ids=_IDS)
def test_a_kill_at_any_step_with_a_store_in_a_folder(trial, ranges, folders):
    kill_at_some(trial, ranges(trial, folders))


@pytest.mark.s3
@pytest.mark.parametrize("trial", TRIALS, ids=_IDS)
def test_a_kill_at_any_step_with_a_store_in_a_bucket(trial, ranges, buckets):
    kill_at_some(trial, ranges(trial, buckets))


# --- the harness itself can fail


def test_a_torn_file_of_a_generation_is_seen(tmp_path, launcher, folders):
    node = Range(tmp_path, launcher, folders).node
    place = folders()
    assert node.start(place, "run").code == 0
    [tree] = node.live.glob("*")
    (tree / "inductor" / "2" / "graph.so").write_bytes(b"torn")
    assert node.torn(tree) == ["inductor/2/graph.so"]
    assert node.start(place, "run", "--no-restore").code == 1
    assert node.engines() == (2, ["ended loaded=0 compiled=8 torn=0", "ended loaded=8 compiled=0 torn=1"])


def test_a_mixture_of_two_generations_is_seen(tmp_path, launcher, folders):
    node = Range(tmp_path, launcher, folders).node
    assert node.start(folders(), "run").code == 0
    [tree] = node.live.glob("*")
    assert node.whole(tree) == 4
    (tree / "inductor" / "3" / "graph.so").unlink()
    with pytest.raises(AssertionError):
        node.whole(tree)


def test_a_lease_that_somebody_keeps_is_seen(tmp_path, launcher, folders):
    test_range = Range(tmp_path, launcher, folders)
    place = folders()
    take(place.open(), test_range.envelope, Holder(ttl_s=2 * TTL_S), over=None)
    assert test_range.node.leaked_lease(place, test_range.envelope)


@pytest.mark.s3
def test_a_writer_that_dies_while_it_sends_leaves_no_object_without_its_content(tmp_path, launcher, buckets):
    field = Range(tmp_path, launcher, buckets)
    [trial] = [trial for trial in TRIALS if trial.name == "publish"]
    steps = field.steps(trial)
    sending = [number for number, step in enumerate(steps, 1) if step == "http.client.send"]
    assert len(sending) > 5
    for at in sending:
        place = field.begin(trial)
        assert field.node.start(place, "run", kill=at).code == -9
        assert all(info.size_bytes for info in place.open().list(""))
