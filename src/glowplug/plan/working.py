"""Workings: each figure's formula with its inputs, kept while a plan is made: ``--explain`` shows what was really computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Basis: TypeAlias = Literal["exact", "measured", "published", "estimated"]
"""How a figure is known.

``exact``: read from a header or a configuration or given as a size, or it follows from such figures. ``measured``: from the user's
own start reports or options. ``published``: somebody's figure, or a line through several. ``estimated``: our assumption, or it
follows from one; an option or a report corrects it.
"""


@dataclass(frozen=True, slots=True)
class Working:
    """One figure, and how it came about.

    Attributes:
        part: the part of the plan it belongs to: ``memory``, ``fetch``, ``start``, ...
        name: what it is.
        formula: in words and names of the inputs.
        inputs: name to value, with its unit.
        result: the figure with its unit.
        basis: how well it is known.
        sources: keys of ``sources.SOURCES``.
    """

    part: str
    name: str
    formula: str
    inputs: Mapping[str, str]
    result: str
    basis: Basis
    sources: tuple[str, ...] = ()


class Notebook:
    """Takes workings down, in order. Not thread-safe."""

    def __init__(self) -> None:
        self._workings: list[Working] = []

    def __iter__(self) -> Iterator[Working]:
        return iter(self._workings)

    def write(
        self,
        where: tuple[str, str],
        formula: str,
        result: str,
        *,
        inputs: Mapping[str, str] | None = None,
        basis: Basis = "exact",
        sources: tuple[str, ...] = (),
    ) -> None:
        """Take one down; ``where`` is the part and the figure's name."""
        part, name = where
        self._workings.append(Working(part, name, formula, dict(inputs or {}), result, basis, sources))
