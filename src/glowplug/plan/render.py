"""A plan as a person reads it: 80 columns, the answer first, every figure with its unit, sources as numbered footnotes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from glowplug.plan.base import SCENARIOS
from glowplug.plan.figures import both, seconds, speed
from glowplug.plan.sources import SOURCES, numbered
from glowplug.plan.starting import PHASES
from glowplug.printable import printable
from glowplug.units import count, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from glowplug.plan.base import Plan, StartTime, Term

WIDTH = 80
_LABEL = 12
_CELL = 10
_PHASE = 16


def render(plan: Plan, *, explain: bool = False) -> str:
    """All of it, the workings on request; ends with a newline."""
    numbers = numbered([*_cited(plan), *(key for working in plan.workings for key in working.sources if explain)])
    lines = [_title(plan), "-" * WIDTH]
    for label, text in _facts(plan, numbers):
        lines += _fact(label, text)
    if plan.starts:
        lines += ["", *_table(plan, numbers)]
        for label, text in _operations(plan):
            lines += _fact(label, text)
    for title, environment in _environments(plan):
        lines += ["", title, *(f"  {name}={value}" for name, value in environment.items())]
    if plan.notes:
        lines += ["", "NOTES"]
        for note in plan.notes:
            lines += _wrap(note, first="- ", rest="  ")
    if explain:
        lines += _workings(plan, numbers)
    lines += _footnotes(numbers)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _workings(plan: Plan, numbers: Mapping[str, int]) -> Iterator[str]:
    """Every formula with its inputs, part by part."""
    part = ""
    for working in plan.workings:
        if working.part != part:
            part = working.part
            yield from ("", f"HOW: {part.upper()}")
        known = working.basis + (" " if working.sources else "") + "".join(f"[{numbers[key]}]" for key in working.sources)
        yield from _wrap(f"{working.name} = {working.result}  ({known})", first="  ", rest="      ")
        yield from _wrap(working.formula, first="    = ", rest="      ")
        for name, value in working.inputs.items():
            yield from _wrap(f"{name}: {value}", first="      ", rest="        ")


def _title(plan: Plan) -> str:
    name = plan.model.name.rstrip("/").rpartition("/")[2] or both(plan.model.weight_bytes)
    question = plan.question
    accelerator = question.device
    where = f" on {question.instance.name}" if question.instance else f" on {accelerator.name}" if accelerator else ""
    if plan.fit is not None:
        where += f", TP {plan.fit.tp}"
    room = WIDTH - len(where)
    name = printable(name)
    return (name if len(name) <= room else f"{name[: room - 3]}...") + where


def _facts(plan: Plan, numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    model = plan.model
    told = f"{both(model.weight_bytes)} of weights"
    if model.is_exact:
        types = ", ".join(name for name, _ in model.dtypes[:3])
        told += f" in {count(model.files, 'file')}, {model.parameters / 1e9:.1f} billion elements of {types}"
    yield "model", f"{told}{'' if model.is_exact else ', as given'}"
    architecture = model.architecture
    if architecture is not None:
        extra = f", {architecture.experts} experts" if architecture.experts else ""
        quant = f", {architecture.quantization}" if architecture.quantization else ""
        yield "", f"{count(architecture.layers, 'layer')}, {architecture.attention}{extra}{quant}"
    yield from _fit_facts(plan)
    if plan.would_fit:
        yield "would fit", ", ".join(plan.would_fit)
    yield from _host_facts(plan)
    fetch = plan.fetch
    if fetch is not None:
        ways = {"endpoint": "S3 gateway endpoint", "nat": "NAT gateway", "nvme": "instance store", "root": "root volume"}
        nodes = f", {plan.question.nodes} nodes at once" if plan.question.nodes > 1 else ""
        marks = "".join(f"[{numbers[key]}]" for key in fetch.sources)
        yield (
            "fetch",
            (
                f"{both(fetch.bytes)} in {seconds(fetch.seconds)} at {speed(fetch.rate)}{nodes} through: "
                f"{ways[plan.question.via]}; bound by: {fetch.bound} ({fetch.basis}{marks and f' {marks}'})"
            ),
        )


def _fit_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    fit, question = plan.fit, plan.question
    if fit is None:
        return
    accelerator = question.device
    noun = accelerator.noun if accelerator else "device"
    yield (
        "devices",
        (
            f"TP {fit.tp} of {', '.join(map(str, fit.valid_tp))}; each {noun} holds {format_bytes(fit.weight_bytes)} of weights + "
            f"{format_bytes(fit.kv_bytes)} of KV cache + {format_bytes(fit.overhead_bytes)} of overhead = "
            f"{format_bytes(fit.used_bytes)} of {format_bytes(fit.budget_bytes)}"
        ),
    )
    if fit.kv_token_bytes:
        yield (
            "KV cache",
            (
                f"{format_bytes(fit.kv_token_bytes)} a token on each; room for {fit.kv_tokens:,} tokens, "
                f"asked for {fit.batch} x {fit.max_model_len:,} = {fit.batch * fit.max_model_len:,}"
            ),
        )


def _host_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    host = plan.host
    if host is None:
        return
    share = "" if host.share_bytes is None else f" of {format_bytes(host.share_bytes)}"
    cpus = "" if host.cpus is None else f", {count(host.cpus, 'CPU')}"
    yield (
        "pod",
        (
            f"{format_bytes(host.memory_bytes)}{share} of host memory: {format_bytes(host.buffer_bytes)} of weights "
            f"({host.buffer}) + {format_bytes(host.engine_bytes)} of engine + {format_bytes(host.shm_bytes)} of /dev/shm "
            f"+ 512 MiB{cpus}"
        ),
    )
    weights = f", {both(host.weights_disk_bytes)} of weights" if host.weights_disk_bytes else ""
    yield (
        "disk",
        (
            f"{format_bytes(host.root_volume_bytes)} root volume: image {format_bytes(host.image_disk_bytes)}, compile cache "
            f"{format_bytes(host.cache_disk_bytes)}{weights}"
        ),
    )


def _table(plan: Plan, numbers: Mapping[str, int]) -> Iterator[str]:
    yield f"{'START TO READY':<{_PHASE}}" + "".join(f"{scenario.upper():>{_CELL}}" for scenario in SCENARIOS) + "  KNOWN HOW"
    found = {start.scenario: {term.phase: term for term in start.terms} for start in plan.starts}
    for phase in PHASES:
        terms = [found[scenario].get(phase) for scenario in SCENARIOS]
        told = [term for term in terms if term is not None]
        if not told:
            continue
        cells = "".join(f"{'-' if term is None else format_seconds(term.seconds):>{_CELL}}" for term in terms)
        first, *rest = _known(told, numbers)
        yield f"{phase:<{_PHASE}}{cells}  {first}"
        yield from (" " * (_PHASE + len(SCENARIOS) * _CELL + 2) + line for line in rest)
    yield "-" * WIDTH
    yield _totals("total", [start.total_s for start in plan.starts])
    yield _totals("in the pod", [start.container_s for start in plan.starts])
    yield _range(plan.starts)
    yield from ("", "cold: new node, nothing cached. warm: new node, compile cache restored.", "restart: on the same node.", "")


def _totals(label: str, values: Sequence[float]) -> str:
    return f"{label:<{_PHASE}}" + "".join(f"{format_seconds(value):>{_CELL}}" for value in values)


def _range(starts: Sequence[StartTime]) -> str:
    cells = "".join(f"{f'{start.low_s:.0f}-{start.high_s:.0f}':>{_CELL}}" for start in starts)
    return f"{'range, seconds':<{_PHASE}}{cells}"


def _known(terms: Sequence[Term], numbers: Mapping[str, int]) -> list[str]:
    """How a row's figures are known, each way once with its footnotes; in lines that fit beside the figures."""
    ways: dict[str, list[str]] = {}
    for term in terms:
        marks = ways.setdefault(f"{term.basis}: {term.note}" if term.note else term.basis, [])
        marks += [mark for key in term.sources if (mark := f"[{numbers[key]}]") not in marks]
    told = [f"{way} {''.join(marks)}".rstrip() for way, marks in ways.items()]
    room = WIDTH - _PHASE - len(SCENARIOS) * _CELL - 2
    if len(together := ", ".join(told)) <= room:
        return [together]
    return [line for each in told for line in textwrap.wrap(each, room, break_on_hyphens=False)]


def _operations(plan: Plan) -> Iterator[tuple[str, str]]:
    probes, scaling = plan.probes, plan.scaling
    if probes is not None:
        yield (
            "startup",
            (
                f"probe every {probes.startup_period_s} s, failureThreshold {probes.startup_failures}: "
                f"{probes.startup_budget_s} s from the container's start; roll-out deadline {probes.progress_deadline_s} s"
            ),
        )
        yield (
            "after it",
            (
                f"readiness every {probes.readiness_period_s} s x {probes.readiness_failures}, "
                f"liveness every {probes.liveness_period_s} s x {probes.liveness_failures}"
            ),
        )
    if scaling is not None:
        yield (
            "scale out",
            (
                f"at {count(scaling.running, 'running request')} a replica, at the latest at {scaling.waiting} waiting; a new one "
                f"serves {format_seconds(scaling.lead_s)} later (load growing {plan.question.growth_per_minute:.0%} a minute)"
            ),
        )
        yield (
            "",
            (
                f"{count(scaling.warm_pool, 'warm replica')} beyond the load of {count(plan.question.replicas, 'replica')}; "
                f"cooldown {scaling.cooldown_s} s"
            ),
        )


def _environments(plan: Plan) -> Iterator[tuple[str, Mapping[str, str]]]:
    if plan.fetch is not None and plan.fetch.environment:
        yield "GLOWPLUG'S SETTINGS", plan.fetch.environment
    if plan.question.loader == "runai" or plan.fit is None:
        flags = f"--load-format {plan.runai.load_format} --model-loader-extra-config '{plan.runai.extra_config}'"
        title = "RUN:AI STREAMER'S SETTINGS, WITH\n" + "\n".join(_wrap(flags, first="  ", rest="  "))
        yield title, plan.runai.environment


def _cited(plan: Plan) -> Iterator[str]:
    for start in plan.starts:
        for term in start.terms:
            yield from term.sources
    if plan.fetch is not None:
        yield from plan.fetch.sources


def _footnotes(numbers: Mapping[str, int]) -> list[str]:
    lines: list[str] = []
    for key, number in numbers.items():
        mark = f"[{number}] "
        lines += _wrap(SOURCES[key], first=mark, rest=" " * len(mark))
    return ["", "SOURCES", *lines] if lines else []


def _fact(label: str, text: str) -> list[str]:
    return _wrap(text, first=f"{label:<{_LABEL}}", rest=" " * _LABEL)


def _wrap(text: str, *, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
