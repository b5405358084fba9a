"""All rules by their id. A theme adds its table here; an id never changes its meaning."""

from __future__ import annotations

import difflib
from functools import cache
from typing import TYPE_CHECKING

from glowplug.doctor import suppressing
from glowplug.doctor.node.registry import node_rules
from glowplug.doctor.rules import (
    autoscaling,
    cache_volumes,
    compiling,
    disks,
    eksctl,
    engine,
    fields,
    karpenter,
    monitoring,
    network,
    neuron,
    node_storage,
    pods,
    probes,
    rollout,
    scheduling,
    secrets,
    storage,
    streamer,
)
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.doctor.base import AnyRule, Rule
    from glowplug.doctor.manifests import Manifests

_THEMES = (
    streamer, compiling, engine, pods, fields, probes, rollout, cache_volumes, disks, storage, neuron, autoscaling, monitoring,
    scheduling, karpenter, node_storage, eksctl, secrets, network,
)  # fmt: skip


@cache
def manifest_rules() -> tuple[Rule[Manifests], ...]:
    """Rules over manifests, by id."""
    known = [rule for theme in _THEMES for rule in theme.RULES]
    known += suppressing.rules([rule.id for rule in known])
    return tuple(sorted(known, key=lambda rule: rule.id))


def all_rules() -> Mapping[str, AnyRule]:
    """Every rule of every subject, by id."""
    known: list[AnyRule] = [*manifest_rules(), *node_rules()]
    return {rule.id: rule for rule in known}


def find_rule(name: str) -> AnyRule:
    """The rule of this id, in any case.

    Raises:
        UsageError: there is none.
    """
    known = all_rules()
    wanted = name.strip().upper()
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "glowplug doctor --rules lists all"
        raise UsageError(f"there is no rule {name!r}", object=name, hint=hint)
    return known[wanted]
