"""What the adapters know of caches' keys beyond what an envelope shows, by the name of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from glowplug.cache.envelope import Json
    from glowplug.cache.explain.causes import Cause
    from glowplug.cache.explain.known import Known


def known_causes(engine: str) -> Mapping[str, Known]:
    """Facts on single components of this engine's envelopes, by path."""
    if engine != "vllm":
        return {}
    from glowplug.engines.vllm.poisoners import KNOWN  # noqa: PLC0415  for a miss only

    return KNOWN


def compare_records(engine: str, ours: Json, theirs: Json) -> list[Cause]:
    """In what two records of the engine's own key differ (``Launch.key_record``), the likeliest accident first.

    Raises:
        ValueError: one of them is no such record.
    """
    if engine != "vllm":
        return []
    from glowplug.engines.vllm.key_factors import KeyFactors  # noqa: PLC0415  the same
    from glowplug.engines.vllm.why_unused import factors  # noqa: PLC0415  the same

    return factors(KeyFactors.from_json(ours), KeyFactors.from_json(theirs))


def record_path(engine: str, paths: Collection[str]) -> str | None:
    """Which of a generation's files is the engine's record of its own key; None if there is none, or there are several keys."""
    if engine != "vllm":
        return None
    from glowplug.cache.families import VLLM  # noqa: PLC0415  the same
    from glowplug.engines.vllm.key_factors import FILE_NAME  # noqa: PLC0415  the same

    parts = (path.split("/") for path in paths)
    found = sorted(
        part
        for part in parts
        if part[:2] == [VLLM.name, "torch_compile_cache"]
        and part[-1] == FILE_NAME
        and len(part) > 4
        and part[3].startswith("rank_")
    )
    return "/".join(found[0]) if len({part[2] for part in found}) == 1 else None
