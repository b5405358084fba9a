"""Predictions beside published figures: within 25 % where that is claimed, and the table in the docs shows them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_models import plan
from published_cases import cases, lines

DOCS = Path(__file__).parents[2] / "docs" / "plan.md"


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.what}, {case.given or 'nothing given'}") for case in cases()])
def test_a_prediction_is_as_near_as_the_docs_say(case):
    assert (abs(case.off) <= 0.25) is case.is_within


def test_the_docs_show_each_prediction_as_it_is_now():
    text = DOCS.read_text()
    for line in lines():
        assert line in text, "run: python tests/plan/published_cases.py, and put its lines into docs/plan.md"


@pytest.mark.parametrize(
    ("of", "instance", "container_s"),
    [
        ("qwen3-32b", "p5e.48xlarge", 3 + 74 + 21 + 62 + 195),  # kaito #2325: a 27B on an A100, without its own benchmark
        ("llama-3.1-8b", "g6e.xlarge", 294),  # tensorfuse.io
        ("llama-3.2-3b", "g6.xlarge", 59),  # vLLM #20264
        ("qwen3-30b-a3b-fp8", "g6e.xlarge", 277),  # vLLM #44881
        ("qwen2.5-7b", "g6.xlarge", 92),  # vLLM PR #40331
    ],
)
def test_a_published_slow_start_ends_within_the_probes_budget(of, instance, container_s):
    assert plan(of, instance, batch=1).probes.startup_budget_s >= container_s
