"""What follows from a start's length: budgets of probes, thresholds of autoscaling, and how many warm replicas to keep."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from glowplug.plan.base import NODE_PHASES, Probes, Scaling
from glowplug.plan.figures import seconds, up

if TYPE_CHECKING:
    from glowplug.plan.base import Fit, Question, StartTime
    from glowplug.plan.working import Notebook

LEAST_STARTUP_S = 300
POLL_S = 15
LEAST_COOLDOWN_S = 300
_READINESS_FAILURES = 3
_LIVENESS_PERIOD_S, _LIVENESS_FAILURES = 10, 6


def probes(question: Question, cold: StartTime, notebook: Notebook) -> Probes:
    """Budgets that a cold start on a slow day still meets."""
    slow, usual = cold.container_high_s, cold.container_s
    budget = up(max(LEAST_STARTUP_S, slow, 1.5 * usual), 60)
    period = question.probe_period_s
    failures = math.ceil(budget / period)
    notebook.write(
        ("probes", "startup budget"), "max(300 s, slowest cold start, 1.5 x expected), from the container's start, to the minute",
        f"{failures} x {period} s = {failures * period} s", basis="estimated",
        inputs={"slowest": seconds(slow), "expected": seconds(usual)},
    )  # fmt: skip
    before = sum(term.high_s for term in cold.terms if term.phase in NODE_PHASES)
    deadline = up(failures * period + before, 60)
    notebook.write(
        ("probes", "roll-out deadline"), "startup budget + slowest node and image pull, to the minute", f"{deadline} s",
        inputs={"budget": f"{failures * period} s", "node and image": seconds(before)}, basis="estimated",
    )  # fmt: skip
    return Probes(
        startup_period_s=period,
        startup_failures=failures,
        readiness_period_s=period,
        readiness_failures=_READINESS_FAILURES,
        liveness_period_s=_LIVENESS_PERIOD_S,
        liveness_failures=_LIVENESS_FAILURES,
        progress_deadline_s=deadline,
    )


def scaling(question: Question, fit: Fit, cold: StartTime, warm: StartTime, notebook: Notebook) -> Scaling:
    """Thresholds at which a new replica is ready just when the load has grown into it."""
    lead = warm.total_s + POLL_S
    growth = question.growth_per_minute * lead / 60
    running = max(1, math.floor(fit.batch / (1 + growth)))
    pool = math.ceil(round(question.replicas * growth, 9))
    cooldown = up(max(LEAST_COOLDOWN_S, 2 * cold.total_s), 60)
    said = {"growth": f"{question.growth_per_minute:.0%} a minute", "lead": seconds(lead)}
    notebook.write(
        ("scaling", "lead"), "warm start on a new node + polling", seconds(lead), basis="estimated", sources=("keda",),
        inputs={"warm start": seconds(warm.total_s), "polling": f"{POLL_S} s"},
    )  # fmt: skip
    notebook.write(
        ("scaling", "running requests"), "floor(batch / (1 + growth x lead)): the rest grows in while a replica starts",
        str(running), inputs={"batch": str(fit.batch), **said}, basis="estimated",
    )  # fmt: skip
    notebook.write(
        ("scaling", "warm pool"), "ceil(replicas x growth x lead)", str(pool), inputs={"replicas": str(question.replicas), **said},
        basis="estimated",
    )  # fmt: skip
    notebook.write(
        ("scaling", "cooldown"), "max(300 s, 2 x cold start), to the minute: taking away what is needed again costs a start",
        f"{cooldown} s", inputs={"cold start": seconds(cold.total_s)}, basis="estimated", sources=("hpa", "keda"),
    )  # fmt: skip
    return Scaling(lead_s=lead, poll_s=POLL_S, running=running, waiting=1, cooldown_s=cooldown, warm_pool=pool)
