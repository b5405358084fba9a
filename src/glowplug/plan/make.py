"""From a question and a model to a plan: every part in its order, with its workings. Pure: no file, no network, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.plan import fetch as fetching
from glowplug.plan import operations, parallel, runai
from glowplug.plan.base import Plan
from glowplug.plan.checks import check
from glowplug.plan.fitting import explain_fit
from glowplug.plan.host import host_needs
from glowplug.plan.measured import Measured
from glowplug.plan.notes import notes
from glowplug.plan.starting import Predictor
from glowplug.plan.working import Notebook

if TYPE_CHECKING:
    from glowplug.plan.base import Question, StartTime
    from glowplug.plan.model import Model


def make_plan(question: Question, model: Model) -> Plan:
    """The plan.

    Raises:
        UsageError: what was asked contradicts itself, or the model fits nowhere.
    """
    check(question)
    notebook = Notebook()
    accelerator = question.device
    fit = None
    if accelerator is not None:
        fit = parallel.fit(question, model)
        explain_fit(question, model, fit, notebook)
    streamer = runai.settings(question, model, fit, notebook)
    fetch = fetching.fetch(
        question, model, fit, distributed=streamer.distributed, measured=Measured(question.reports).rate(), notebook=notebook
    )
    is_neuron = accelerator is not None and accelerator.kind == "neuron"
    host = None
    if fit is not None:
        host = host_needs(question, model, fit, distributed=streamer.distributed, is_neuron=is_neuron, notebook=notebook)
    starts: tuple[StartTime, ...] = ()
    if fit is not None and fetch is not None:
        starts = Predictor(question, model, fit, fetch, is_neuron=is_neuron).starts(notebook)
    probes = operations.probes(question, starts[0], notebook) if starts else None
    scaling = operations.scaling(question, fit, starts[0], starts[1], notebook) if fit is not None and starts else None
    return Plan(
        question=question,
        model=model,
        fit=fit,
        host=host,
        fetch=fetch,
        runai=streamer,
        starts=starts,
        probes=probes,
        scaling=scaling,
        would_fit=() if question.instance else tuple(parallel.would_fit(question, model)),
        notes=tuple(notes(question, model, fit, host, fetch, streamer)),
        workings=tuple(notebook),
    )
