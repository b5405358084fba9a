"""A store that fails at any single request, or from any on: the engine starts, readers see the old or the new, a rerun succeeds.

The requests of a start that nothing happens to are counted first. Then the same start is run again and again, and each time one of
its requests meets one of the faults, another one for each request.
"""

from __future__ import annotations

import json
import threading

import pytest

from glowplug.cache.repository import Repository
from testbed.range_faults import CORRUPT, DROP, FORBIDDEN, INTERNAL_ERROR, RESET, SHORT, SLOW_DOWN, Fault
from testbed.store_proxy import LOST, RESET_AT_ONCE, on
from tests.cache.cache_samples import DIGEST, SMALL_TREE, make_tree, publish
from tests.faults.nodes import Place
from tests.faults.trials import TRIALS, Range

pytestmark = pytest.mark.s3
_FAULTS = (DROP, LOST, CORRUPT, RESET_AT_ONCE, SLOW_DOWN, SHORT, FORBIDDEN, RESET, INTERNAL_ERROR)
_BY_NAME = {trial.name: trial for trial in TRIALS}


@pytest.fixture
def field(tmp_path, launcher, proxied):
    return Range(tmp_path, launcher, proxied)


def direct(place: Place, seaweedfs) -> Place:
    """The same store without the proxy."""
    return Place(place.url, seaweedfs.env)


def count_requests(field, trial, proxy) -> int:
    place = field.begin(trial)
    proxy.forget()
    assert field.node.start(place, *trial.words).code == 0
    return len(proxy.seen)


def meet(field, trial, proxy, seaweedfs, rule) -> str:
    """Run under a rule, look, run without it, look again. The publication's state in the first run."""
    node, place = field.node, field.begin(trial)
    proxy.forget(rule)
    ended = node.start(place, *trial.words)
    met = [seen for seen in proxy.seen if seen.fault]
    proxy.forget()
    assert met, "the fault was not met"
    assert ended.code == 0, ended.said
    assert "Traceback" not in ended.said
    assert "internal error" not in ended.said
    began, ends = node.engines()
    assert (began, len(ends)) == (1, 1)
    report = json.loads(node.report.read_text())
    check(field, trial, direct(place, seaweedfs), trial.seen)
    assert node.start(place, *trial.words).code == 0
    check(field, trial, direct(place, seaweedfs), trial.final)
    assert not node.temporary(place)
    return (report["publish"] or {}).get("state", "")


def check(field, trial, place, expected):
    node = field.node
    assert node.seen_by_a_reader(place, field.envelope) in expected
    assert not node.bad_generations(place)
    assert not node.leaked_lease(place, field.envelope)
    assert all("torn=0" in line for line in node.engines()[1])
    for tree in node.live.glob("[0-9a-f]*"):
        assert node.whole(tree) == trial.graphs


@pytest.mark.parametrize("name", ["publish", "restore"])
def test_a_fault_at_any_request(field, name, proxy, seaweedfs):
    trial = _BY_NAME[name]
    requests = count_requests(field, trial, proxy)
    assert requests >= 4
    for number in range(1, requests + 1):
        fault = _FAULTS[(number + len(name)) % len(_FAULTS)]
        try:
            meet(field, trial, proxy, seaweedfs, lambda call, number=number, fault=fault: fault if call.number == number else None)
        except AssertionError as error:
            raise AssertionError(f"{name}: {fault} at request {number} of {requests}: {error}") from error


@pytest.mark.parametrize(("name", "share"), [("publish", 0.0), ("publish", 0.6), ("restore", 0.3)])
def test_a_store_that_goes_away_for_good(field, name, share, proxy, seaweedfs):
    trial = _BY_NAME[name]
    first = 1 + int(share * count_requests(field, trial, proxy))
    meet(field, trial, proxy, seaweedfs, lambda call: DROP if call.number >= first else None)


@pytest.mark.parametrize("path_end", ["/latest", "/generations/"])
def test_a_write_whose_answer_is_lost_is_published_all_the_same(field, path_end, proxy, seaweedfs):
    state = meet(field, _BY_NAME["publish"], proxy, seaweedfs, on(LOST, "PUT", path_end))
    assert state == "published"


def test_of_two_publications_the_one_whose_pointer_is_held_up_loses_and_both_are_whole(tmp_path, proxied, proxy, seaweedfs):
    place = proxied()
    near, far = direct(place, seaweedfs).open(), place.open()
    first = make_tree(tmp_path / "first", SMALL_TREE)
    second = make_tree(tmp_path / "second", SMALL_TREE | {"inductor/zz/more.so": b"more"})
    proxy.forget(on(Fault("hold", seconds=30, after=("PUT", "/lease")), "PUT", "/latest"))
    results = []
    held = threading.Thread(target=lambda: results.append(publish(far, first, replaces=None)))
    held.start()
    while not any(seen.fault for seen in proxy.seen):
        assert held.is_alive()
        held.join(0.01)
    quicker = publish(near, second, replaces=None)
    far.put(f"v1/{DIGEST}/lease", b"any")  # lets the held one go
    held.join(30)
    assert quicker.published
    assert not results[0].published
    assert Repository(near).latest(DIGEST).generation == quicker.manifest.digest
