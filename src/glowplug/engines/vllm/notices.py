"""Settings that make vLLM's compile cache useless or never hit, told to the user in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.engines.vllm.installed import version_tuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from glowplug.cache.envelope import Json
    from glowplug.cache.families import Family
    from glowplug.engines.base import Poisoner
    from glowplug.engines.vllm.arguments import Arguments

_NO_COMPILATION = (0, "0", "none", "NONE")


def notices(
    arguments: Arguments,
    env: Mapping[str, str],
    model: Mapping[str, Json],
    found: Iterable[Poisoner],
    families: Iterable[Family],
    *,
    on_cpu: bool,
    torch: str | None,
) -> Iterator[str]:
    """What the user should know before the engine starts.

    Args:
        arguments: vLLM's.
        env: the engine's environment, before the cache variables are set.
        model: the envelope's ``model`` group.
        found: what poisons the cache's key; the warnings among it are told.
        families: whose writers are sent to folders of ours.
        on_cpu: vLLM computes on the processor.
        torch: torch's version; None if unknown.
    """
    yield from _no_cache(arguments, env)
    for poisoner in found:
        if poisoner.severity == "warning":
            yield poisoner.line()
    for family in families:
        for variable in family.variables:
            if variable in env:
                yield f"{variable}={env[variable]} is replaced by Glowplug's own folder; choose that with --cache-dir"
    if on_cpu and env.get("VLLM_USE_AOT_COMPILE") is None and torch is not None and version_tuple(torch) >= (2, 10):
        yield (
            "on the CPU vLLM cannot load the AOT artefact that it saves, and compiles again at every start; "
            "with VLLM_USE_AOT_COMPILE=0 its cache hits"
        )
    if "commit" in model and model["commit"] is None:
        yield (
            f"{model['reference']} is not in the local Hugging Face cache, so its commit is unknown; with --revision COMMIT nodes "
            "with and without a local copy share a cache"
        )
    if arguments.ignored_config is not None:
        yield f"vLLM does not read --config={arguments.ignored_config}; write --config {arguments.ignored_config}"


def _no_cache(arguments: Arguments, env: Mapping[str, str]) -> Iterator[str]:
    compilation = arguments.tree("compilation-config")
    mode = compilation.get("mode", compilation.get("level"))
    if arguments.values.get("enforce-eager") is True:
        yield "--enforce-eager: nothing is compiled, so there is little to share"
    elif arguments.values.get("optimization-level") in _NO_COMPILATION or mode in _NO_COMPILATION:
        yield "optimization level 0: nothing is compiled, so there is little to share"
    if env.get("VLLM_DISABLE_COMPILE_CACHE", "0") not in ("", "0"):
        yield "VLLM_DISABLE_COMPILE_CACHE is set: vLLM neither reads nor writes its compile cache"
