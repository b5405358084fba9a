"""Settings that make vLLM's compile cache useless or never hit, told to the user in one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.cache.families import FAMILIES
from glowplug.engines.vllm.environment import PER_POD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.cache.envelope import Json
    from glowplug.engines.vllm.arguments import Arguments

_NO_COMPILATION = (0, "0", "none", "NONE")


def notices(
    arguments: Arguments, env: Mapping[str, str], model: Mapping[str, Json], *, on_cpu: bool, torch: str | None
) -> Iterator[str]:
    """What the user should know before the engine starts.

    Args:
        arguments: vLLM's.
        env: the engine's environment, before the cache variables are set.
        model: the envelope's ``model`` group.
        on_cpu: vLLM computes on the processor.
        torch: torch's version; None if unknown.
    """
    yield from _no_cache(arguments, env)
    compilation = arguments.tree("compilation-config")
    if pinned := compilation.get("cache_dir"):
        yield (
            f"compilation_config.cache_dir is pinned to {pinned}: vLLM then writes outside the cache that is shared, and loads "
            "whatever lies there without checking its key; leave it out"
        )
    for family in FAMILIES.values():
        for variable in family.variables:
            if variable in env:
                yield f"{variable}={env[variable]} is replaced by Glowplug's own folder; choose that with --cache-dir"
    for variable in PER_POD:
        if variable in env:
            yield (
                f"{variable} is part of vLLM's cache key: pods share a cache only if they all have the same value "
                f"(this one has {env[variable]!r})"
            )
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


def version_tuple(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.13.0+cpu`` is (2, 13, 0), ``0.32.0rc1`` is (0, 32)."""
    numbers = []
    for part in version.split("+", 1)[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _no_cache(arguments: Arguments, env: Mapping[str, str]) -> Iterator[str]:
    compilation = arguments.tree("compilation-config")
    mode = compilation.get("mode", compilation.get("level"))
    if arguments.values.get("enforce-eager") is True:
        yield "--enforce-eager: nothing is compiled, so there is little to share"
    elif arguments.values.get("optimization-level") in _NO_COMPILATION or mode in _NO_COMPILATION:
        yield "optimization level 0: nothing is compiled, so there is little to share"
    if env.get("VLLM_DISABLE_COMPILE_CACHE", "0") not in ("", "0"):
        yield "VLLM_DISABLE_COMPILE_CACHE is set: vLLM neither reads nor writes its compile cache"
