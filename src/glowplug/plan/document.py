"""A plan as JSON: all figures in bytes, seconds and counts, stable names, workings on request."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from glowplug.plan.base import SCENARIOS
from glowplug.plan.sources import SOURCES

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.plan.base import Plan, StartTime

SCHEMA = "glowplug.dev/plan/v1"


def to_json(plan: Plan, *, workings: bool) -> dict[str, Json]:
    """The document, seconds rounded to tenths. ``sources`` holds what the document cites."""
    question = plan.question
    accelerator = question.device
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "model": _model(plan),
        "instance": question.instance.name if question.instance else None,
        "accelerator": accelerator.name if accelerator else None,
        "fit": None if plan.fit is None else {**asdict(plan.fit), "used_bytes": plan.fit.used_bytes},
        "host": None if plan.host is None else asdict(plan.host),
        "fetch": None if plan.fetch is None else {**asdict(plan.fetch), "nodes": question.nodes, "via": question.via},
        "runai": asdict(plan.runai),
        "start": {scenario: _start(plan.start(scenario)) for scenario in SCENARIOS} if plan.starts else None,
        "probes": None if plan.probes is None else {**asdict(plan.probes), "startup_budget_s": plan.probes.startup_budget_s},
        "scaling": None if plan.scaling is None else asdict(plan.scaling),
        "would_fit": list(plan.would_fit),
        "notes": list(plan.notes),
    }
    if workings:
        document["workings"] = [asdict(working) for working in plan.workings]
    cited = sorted(_cited(document))
    document["sources"] = {key: SOURCES[key] for key in cited}
    return _rounded(document)  # type: ignore[no-any-return]


def _model(plan: Plan) -> dict[str, Any]:
    model = asdict(plan.model)
    model["dtypes"] = dict(plan.model.dtypes)
    if plan.model.architecture is not None:
        model["architecture"]["attention"] = plan.model.architecture.attention
    return model


def _start(start: StartTime) -> dict[str, Any]:
    return {
        "total_s": start.total_s,
        "low_s": start.low_s,
        "high_s": start.high_s,
        "container_s": start.container_s,
        "container_high_s": start.container_high_s,
        "terms": [asdict(term) for term in start.terms],
    }


def _cited(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        found = set(tree["sources"]) if isinstance(tree.get("sources"), tuple | list) else set()
        return found.union(*(_cited(branch) for branch in tree.values()))
    if isinstance(tree, list | tuple):
        return set().union(*(_cited(branch) for branch in tree))
    return set()


def _rounded(tree: Any) -> Any:
    if isinstance(tree, float):
        return round(tree, 1 if tree >= 1 else 3)
    if isinstance(tree, dict):
        return {name: _rounded(branch) for name, branch in tree.items()}
    if isinstance(tree, list | tuple):
        return [_rounded(branch) for branch in tree]
    return tree
