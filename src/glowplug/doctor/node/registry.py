"""All rules over a machine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from glowplug.doctor.node.rules import accelerators, folder, machine, places

if TYPE_CHECKING:
    from glowplug.doctor.base import Rule
    from glowplug.doctor.node.facts import NodeFacts


@cache
def node_rules() -> tuple[Rule[NodeFacts], ...]:
    """By id."""
    return tuple(
        sorted((rule for theme in (folder, machine, accelerators, places) for rule in theme.RULES), key=lambda rule: rule.id)
    )
