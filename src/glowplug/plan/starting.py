"""Start to ready, phase by phase: cold on a new node, warm on a new node, and a restart on the same one.

What a phase takes is the user's own figure where there is one (an option, a start report), else a line through published figures,
else an assumption; each has a range, and the range is what probe budgets are made of. vLLM's start is bound by one processor, by
versions and by luck: published figures for the same model lie apart by a factor of two, and this can't be better than they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from glowplug.plan.base import NODE_PHASES, SCENARIOS, StartTime, Term
from glowplug.plan.compiling import compile_term
from glowplug.plan.figures import GB, both, seconds, speed
from glowplug.plan.host import image_bytes
from glowplug.plan.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from glowplug.plan.base import Fetch, Fit, Question, Scenario
    from glowplug.plan.measured import Kind
    from glowplug.plan.model import Model
    from glowplug.plan.working import Basis, Notebook

PHASES = (
    "node", "image pull", "container", "restore", "imports", "weights", "compile", "profiling", "graph capture", "unattributed",
    "ready",
)  # fmt: skip
IMAGE_BYTES_PER_S = 70_000_000
"""Between the published 78 MB/s and 55 MB/s."""
COPY_BYTES_PER_S = 4_810_000_000
"""From host memory to one device."""
IMPORTS_S = 8.7
NEW_NODE_IMPORTS_S = 30.0
RANKS_IMPORTS_S = 10.0
UNKNOWN_LAYERS = 40
_FIGURE = "a figure as it was published or assumed"


class Reasoned(NamedTuple):
    """A term, and how it came about."""

    term: Term
    formula: str = _FIGURE
    inputs: Mapping[str, str] = {}


class Predictor:
    """Makes the terms of one plan."""

    def __init__(self, question: Question, model: Model, fit: Fit, fetch: Fetch, *, is_neuron: bool) -> None:
        self._question, self._model, self._fit, self._fetch = question, model, fit, fetch
        self._is_neuron = is_neuron
        self._measured = Measured(question.reports)
        self._layers = model.architecture.layers if model.architecture else UNKNOWN_LAYERS
        self._predict: dict[str, Callable[[Scenario, Sequence[Reasoned]], Reasoned]] = {
            "node": lambda *_: Reasoned(Term("node", 90.0, 40.0, 410.0, "estimated", ("node", "kaito"))),
            "image pull": self._image,
            "container": lambda *_: Reasoned(Term("container", 3.0, 1.0, 10.0, "published", ("kaito",))),
            "restore": self._restore,
            "imports": self._imports,
            "weights": self._weights,
            "compile": self._compile,
            "profiling": self._profiling,
            "graph capture": self._capture,
            "unattributed": lambda *_: Reasoned(Term("unattributed", 7.0, 1.8, 30.0, "published", ("ice", "vllm-20264"))),
            "ready": self._ready,
        }

    def starts(self, notebook: Notebook) -> tuple[StartTime, ...]:
        """All scenarios, and their workings."""
        made = {scenario: self._reasoned(scenario) for scenario in SCENARIOS}
        _explain(made, notebook)
        return tuple(StartTime(scenario, tuple(each.term for each in reasoned)) for scenario, reasoned in made.items())

    def _reasoned(self, scenario: Scenario) -> list[Reasoned]:
        made: list[Reasoned] = []
        for phase in PHASES:
            if scenario == "restart" and phase in NODE_PHASES:
                continue
            found = self._known(phase, scenario) or self._predict[phase](scenario, made)
            if found.term.high_s > 0:
                made.append(found)
        return made

    def _known(self, phase: str, scenario: Scenario) -> Reasoned | None:
        kind: Kind = "cold" if scenario == "cold" else "warm"
        given = self._question.phases.get(f"{kind}:{phase}", self._question.phases.get(phase))
        if given is not None:
            return Reasoned(Term(phase, given, given, given, "measured", note="--phase"), "as given with --phase")
        term = self._measured.term(phase, kind, self._model)
        return None if term is None else Reasoned(term, f"median of {term.note}")

    def _image(self, _: Scenario, __: Sequence[Reasoned]) -> Reasoned:
        size = image_bytes(self._question, is_neuron=self._is_neuron)
        took = size / IMAGE_BYTES_PER_S
        term = Term("image pull", took, took / 2, took * 2, "published" if self._question.image_bytes else "estimated", ("image",))
        return Reasoned(term, "compressed image / rate", {"image": both(size), "rate": speed(IMAGE_BYTES_PER_S)})

    def _restore(self, scenario: Scenario, _: Sequence[Reasoned]) -> Reasoned:
        is_found = scenario != "cold" and not self._question.enforce_eager
        took, low, high = (1.0, 0.3, 30.0) if is_found else (0.5, 0.1, 2.0)
        return Reasoned(Term("restore", took, low, high, "estimated", ("glowplug",)))

    def _imports(self, scenario: Scenario, _: Sequence[Reasoned]) -> Reasoned:
        is_new = scenario != "restart"
        low, took, high = (8.7, NEW_NODE_IMPORTS_S, 95.0) if is_new else (6.0, IMPORTS_S, 34.0)
        ranks = RANKS_IMPORTS_S if self._fit.tp > 1 else 0.0
        term = Term(
            "imports", took + ranks, low + ranks / 3, high + 3 * ranks, "estimated" if is_new or ranks else "published",
            ("ice", "tensorfuse", "kaito") if is_new else ("ice",),
        )  # fmt: skip
        formula = "imports from a cold disk, between 8.7 s and 95 s" if is_new else "imports from file cache"
        inputs = {"imports": seconds(took)} | ({"ranks": seconds(ranks)} if ranks else {})
        return Reasoned(term, f"{formula}{' + start of the ranks' if ranks else ''}", inputs)

    def _weights(self, _: Scenario, before: Sequence[Reasoned]) -> Reasoned:
        fetch = self._fetch
        copy = self._model.weight_bytes / self._fit.tp / COPY_BYTES_PER_S
        inputs = {"copy": f"{seconds(copy)} = checkpoint / TP / {speed(COPY_BYTES_PER_S)}", "fetch": seconds(fetch.seconds)}
        if self._is_neuron:
            took = fetch.seconds + copy
            term = Term("weights", took, copy, max(3 * copy, 2 * fetch.seconds, took), fetch.basis, fetch.sources)
            return Reasoned(term, "fetch to the node's disk, then copy to the devices", inputs)
        is_ahead = self._question.loader == "glowplug"
        lead = sum(each.term.seconds for each in before if each.term.phase == "imports") if is_ahead else 0.0
        visible = max(copy, fetch.seconds - lead)
        is_copy = visible == copy
        term = Term(
            "weights", visible, copy, max(3 * copy, 2 * fetch.seconds, visible), "published" if is_copy else fetch.basis,
            ("instanttensor",) if is_copy else fetch.sources,
        )  # fmt: skip
        if is_ahead:
            inputs["imports"] = f"{seconds(lead)}, while the weights stream"
        return Reasoned(term, f"max(copy to the devices, fetch{' - imports' if is_ahead else ''})", inputs)

    def _compile(self, scenario: Scenario, _: Sequence[Reasoned]) -> Reasoned:
        term, formula, inputs = compile_term(
            self._question, self._model, self._fit, self._layers, scenario, is_neuron=self._is_neuron
        )
        return Reasoned(term, formula, inputs)

    def _profiling(self, _: Scenario, __: Sequence[Reasoned]) -> Reasoned:
        if self._is_neuron:
            return Reasoned(Term("profiling", 0.0, 0.0, 0.0, "estimated"))
        took = 2.4 + 0.089 * self._fit.weight_bytes / GB
        term = Term("profiling", took, took / 2, took * 4, "published", ("ice", "vllm-44881"))
        return Reasoned(term, "2.4 s + 0.089 s a GB of weights on one device", {"weights": both(self._fit.weight_bytes)})

    def _capture(self, _: Scenario, __: Sequence[Reasoned]) -> Reasoned:
        if self._is_neuron or self._question.enforce_eager:
            return Reasoned(Term("graph capture", 0.0, 0.0, 0.0, "exact"))
        took = 0.43 + 0.0245 * self._layers
        basis: Basis = "published" if self._model.architecture else "estimated"
        term = Term("graph capture", took, took / 2, max(17.0, took * 4), basis, ("ice", "vllm-20264"))
        return Reasoned(term, "0.43 s + 0.0245 s a layer", {"layers": _layers(self._model, self._layers)})

    def _ready(self, _: Scenario, __: Sequence[Reasoned]) -> Reasoned:
        period = self._question.probe_period_s
        return Reasoned(Term("ready", period / 2, 0.0, period, "estimated"), "half a probe period", {"period": f"{period} s"})


def _layers(model: Model, layers: int) -> str:
    return str(layers) if model.architecture else f"{layers}, assumed"


def _explain(made: Mapping[Scenario, Sequence[Reasoned]], notebook: Notebook) -> None:
    """Each way in which a phase was found, once, with the scenarios that it is for."""
    for phase in PHASES:
        ways: list[tuple[Reasoned, list[str]]] = []
        for scenario, reasoned in made.items():
            for each in (each for each in reasoned if each.term.phase == phase):
                names = next((names for known, names in ways if known == each), None)
                if names is None:
                    ways.append((each, [scenario]))
                else:
                    names.append(scenario)
        for (term, formula, inputs), scenarios in ways:
            spread = {"range": f"{seconds(term.low_s)} to {seconds(term.high_s)}"}
            notebook.write(
                ("start", f"{phase} ({', '.join(scenarios)})"), formula, seconds(term.seconds), inputs={**inputs, **spread},
                basis=term.basis, sources=term.sources,
            )  # fmt: skip
