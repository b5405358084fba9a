"""The report's JSON is a contract: other programs read it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowplug.errors import IncompatibleError
from glowplug.timeline.phases import Phase
from glowplug.timeline.report import CacheReport, EngineInfo, PublishReport, StartReport, WeightsReport

FULL = StartReport(
    outcome="partial",
    reason="the engine loaded 2 compiled artefacts and compiled 1 graph again",
    wall_s=60.1234567,
    phases=(Phase("envelope", 0.05, 0.2), Phase("restore", 0.25, 0.5), Phase("imports", 0.8, 40.0)),
    cache=CacheReport("7a" * 32, "39" * 32, 64, 3_412_331, 40.5, "s3://bucket/glowplug", "/var/tmp/cache", 58, 3),
    engine=EngineInfo("vllm", "0.32.0"),
    started_at="2026-11-29T16:07:28.000Z",
    exit_code=0,
    publish=PublishReport("published", "", "ab" * 32, 67, 3_500_000, 900_000, 1.25),
    notices=("TORCHINDUCTOR_CACHE_DIR is overwritten by vLLM",),
    weights=WeightsReport("s3://bucket/m", "windowed", 6_000_000_000, 40.0, 0.3, 800, 2, 1, 0, 2, 1.5, 30.0, 10.0, verified=True),
)
BARE = StartReport("off", "the cache is turned off", 1.0, (), CacheReport(None), EngineInfo("generic", None))


def test_the_documented_members_are_there_under_their_names():
    document = FULL.to_json()
    assert document["schema"] == "glowplug.dev/start/v1"
    assert list(document)[:6] == ["schema", "outcome", "reason", "wall_s", "unattributed_s", "phases"]
    assert document["wall_s"] == 60.123
    assert document["unattributed_s"] == 19.423
    assert document["phases"][1] == {"name": "restore", "start_s": 0.25, "seconds": 0.5}
    assert {"envelope", "generation", "files", "bytes", "saved_s"} <= document["cache"].keys()
    assert document["weights"]["bytes_per_s"] == 150_000_000.0
    assert {"uri", "mode", "bytes", "seconds", "hidden_s", "visible_s", "waited_s", "retries"} <= document["weights"].keys()
    assert document["engine"] == {"name": "vllm", "version": "0.32.0"}


@pytest.mark.parametrize("report", [FULL, BARE])
def test_a_written_report_is_read_back(report):
    document = json.loads(json.dumps(report.to_json()))
    assert StartReport.from_json(document).to_json() == document


def test_members_of_a_later_version_are_ignored():
    document = FULL.to_json() | {"later": 1}
    document["cache"] = document["cache"] | {"later": 2}
    document["phases"] = [phase | {"later": 3} for phase in document["phases"]]
    assert StartReport.from_json(document).to_json() == FULL.to_json()


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "text",
        {},
        {"schema": "glowplug.dev/start/v2"},
        FULL.to_json() | {"outcome": "great"},
        FULL.to_json() | {"outcome": []},
        FULL.to_json() | {"wall_s": "1"},
        FULL.to_json() | {"wall_s": True},
        FULL.to_json() | {"phases": {}},
        FULL.to_json() | {"phases": [1]},
        FULL.to_json() | {"cache": {}},
        FULL.to_json() | {"engine": None},
        FULL.to_json() | {"notices": [1]},
        {name: value for name, value in FULL.to_json().items() if name != "reason"},
    ],
)
def test_what_is_no_report_is_refused_with_a_hint(document):
    with pytest.raises(IncompatibleError) as caught:
        StartReport.from_json(document)
    assert caught.value.hint


def test_phases_that_overlap_are_not_counted_twice():
    report = StartReport(
        "hit", "", 10.0, (Phase("restore", 0.0, 6.0), Phase("imports", 4.0, 4.0)), CacheReport(None), EngineInfo("vllm", None)
    )
    assert report.unattributed_s == 2.0


PHASES = st.lists(st.builds(Phase, st.sampled_from(["a", "b"]), st.floats(-5, 50), st.floats(0, 50)), max_size=6)


@given(PHASES, st.floats(0, 60))
def test_the_unattributed_rest_is_never_negative_nor_longer_than_the_start(phases, wall_s):
    report = StartReport("hit", "", wall_s, tuple(phases), CacheReport(None), EngineInfo("vllm", None))
    assert 0.0 <= report.unattributed_s <= wall_s


def test_a_report_from_before_there_were_weights_is_read():
    document = FULL.to_json()
    del document["weights"]
    assert StartReport.from_json(document).weights is None
