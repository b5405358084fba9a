"""From an error of the store or of a source to a fact: what sort of failure it is, in the words that it came with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.doctor.node.facts import Failure
from glowplug.errors import BucketNotFound, Forbidden, ObjectNotFound, WrongRegion

if TYPE_CHECKING:
    from glowplug.doctor.node.facts import Failed
    from glowplug.errors import GlowplugError


def failure_of(error: GlowplugError) -> Failure:
    """What an error means for whoever wants to use the place."""
    kinds: list[tuple[type[GlowplugError], Failed]] = [
        (BucketNotFound, "no bucket"), (WrongRegion, "wrong region"), (Forbidden, "refused"), (ObjectNotFound, "nothing there")
    ]  # fmt: skip
    kind: Failed = next((kind for one, kind in kinds if isinstance(error, one)), "unreachable")
    if kind == "refused" and error.object == "AWS credentials":
        kind = "no credentials"
    return Failure(kind, error.message, error.hint)
