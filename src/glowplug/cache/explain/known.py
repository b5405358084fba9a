"""A fact about one component that only an engine's adapter knows. A leaf, so that adapters can hold tables of them at no cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """What an engine's adapter knows about one component, which its path and value do not tell.

    Attributes:
        what: what it is, as a clause.
        fix: what to do, as an instruction.
        likelihood: that nobody meant a difference, from 0 to 1.
    """

    what: str
    fix: str
    likelihood: float
