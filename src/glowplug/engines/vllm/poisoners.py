"""Settings that make vLLM's cache key differ where no compiled code does, and what to do about each.

vLLM hashes every variable it knows but for an ignore list, so values that differ from pod to pod or from image to image end up in
its key (``compile_factors`` in ``vllm/envs.py`` of 0.32.0). Glowplug's envelope has to hold them too: if it did not, a start would
restore a cache that vLLM then does not look at. So most of these are seen by both, a few by vLLM alone; none can be taken out of
the key from outside, but for leaving the setting away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from glowplug.cache.explain.known import Known
from glowplug.engines.base import Poisoner
from glowplug.engines.model import without_credentials
from glowplug.engines.vllm.environment import vllm_environment
from glowplug.engines.vllm.installed import version_tuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.engines.vllm.arguments import Arguments

_FOLDER_SINCE = (0, 30)  # vllm#47573 took folders below HOME and XDG_* out of the key
_NIXL_HOST_SINCE = (0, 22)  # vllm#46235, dynamo#10695
_OWN = ("VLLM_", "MOONCAKE_")
_NIXL_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
_ANY_POD = "unset it, or give it the same value in every pod"
_PEERS = "leave it unset unless pods on other nodes must reach this one; where they must, each address has a cache of its own"
_PORT = "give every pod the same port, since each has a network of its own; unset, it is the same"
_RANK = "let vLLM set it (--data-parallel-size), or unset it; each value has a cache of its own"
_HOME = "set HOME alike in every pod, or use vLLM 0.30 or later"
_BUILT = 'set it to nothing in the pod (value: ""), in all pods; vLLM only reports it'

# Differ from pod to pod as a rule: worth a line at each start.
_PER_POD = {
    "VLLM_NIXL_SIDE_CHANNEL_PORT": Known("the port where NIXL's peers find this pod", _PORT, 0.97),
    "VLLM_P2P_SIDE_CHANNEL_HOST": Known("the address where P2P's peers find this pod", _PEERS, 0.99),
    "VLLM_P2P_SIDE_CHANNEL_PORT": Known("the port where P2P's peers find this pod", _PORT, 0.97),
    "VLLM_EC_SIDE_CHANNEL_HOST": Known("the address where encoder-cache peers find this pod", _PEERS, 0.99),
    "VLLM_EC_SIDE_CHANNEL_PORT": Known("the port where encoder-cache peers find this pod", _PORT, 0.97),
    "VLLM_LOOPBACK_IP": Known("the loopback address", "unset it: vLLM finds it", 0.99),
    "VLLM_MOONCAKE_BOOTSTRAP_PORT": Known("the port where Mooncake's peers find this pod", _PORT, 0.97),
    "MOONCAKE_REQUESTER_LOCAL_HOSTNAME": Known("the name under which Mooncake's peers find this pod", _PEERS, 0.99),
    "MOONCAKE_PREFERRED_SEGMENT": Known("the Mooncake segment that this pod prefers", _ANY_POD, 0.96),
    "VLLM_RAY_BUNDLE_INDICES": Known("the Ray bundles that this engine got", "let Ray place the engine by itself", 0.96),
    "VLLM_RAY_DP_PLACEMENT_NODE_IPS": Known("the addresses of the nodes for data parallelism", _ANY_POD, 0.99),
    "VLLM_DP_RANK": Known("the number of this engine among its data-parallel peers", _RANK, 0.95),
    "VLLM_DP_RANK_LOCAL": Known("the number of this engine among those of the node", _RANK, 0.95),
    "VLLM_PROCESS_NAME_PREFIX": Known("what the processes are called, for monitoring", _ANY_POD, 0.96),
    "VLLM_LORA_RESOLVER_CACHE_DIR": Known("the folder that LoRA adapters are found in", "mount it at one path", 0.94),
}  # fmt: skip
# The same in all pods of one image, as a rule: told when somebody asks.
_PER_IMAGE = {
    "VLLM_IMAGE_TAG": Known("the tag of the image", _BUILT, 0.96),
    "VLLM_BUILD_COMMIT": Known("the commit that the image was built from", _BUILT, 0.95),
    "VLLM_BUILD_PIPELINE": Known("the pipeline that built the image", _BUILT, 0.95),
    "VLLM_BUILD_URL": Known("the URL of the image's build", _BUILT, 0.95),
    "VLLM_PLUGINS": Known("which plug-ins vLLM loads, as written: the order counts", "write the same list everywhere", 0.6),
    "VLLM_CPU_OMP_THREADS_BIND": Known("the cores that the threads are bound to", "leave it at auto where nodes differ", 0.8),
    "VLLM_CUDART_SO_PATH": Known("the path of a CUDA library", "leave it unset, or the same in every image", 0.85),
    "VLLM_NCCL_SO_PATH": Known("the path of the NCCL library", "leave it unset, or the same in every image", 0.85),
    "VLLM_RUST_FRONTEND_PATH": Known("the path of vLLM's front end", "leave it unset, or the same in every image", 0.85),
}  # fmt: skip
# In the engine's key by name, and derived from other variables where they are not set.
_DERIVED = {
    "VLLM_CONFIG_ROOT": Known("a folder below XDG_CONFIG_HOME or HOME", _HOME, 0.93),
    "VLLM_XLA_CACHE_PATH": Known("a folder below VLLM_CACHE_ROOT", "use the same --cache-dir, or vLLM 0.30 or later", 0.93),
    "VLLM_CACHE_ROOT": Known("where the live cache lies", "use the same --cache-dir, or vLLM 0.30 or later", 0.93),
    "VLLM_ASSETS_CACHE": Known("a folder below XDG_CACHE_HOME or HOME", _HOME, 0.93),
    _NIXL_HOST: Known("the address where NIXL's peers find this pod", "use vLLM 0.22 or later", 0.99),
    "VLLM_HOST_IP": Known("the address of this pod", "unset it: vLLM finds it", 0.99),
}  # fmt: skip

KNOWN = {
    f"environment.{name}": fact
    for table in (_PER_POD, _PER_IMAGE, _DERIVED)
    for name, fact in table.items()
}  # fmt: skip
"""What is known of components of an envelope, by their path."""


def poisoners(arguments: Arguments, env: Mapping[str, str], *, version: str | None) -> Iterator[Poisoner]:
    """What of a command and its environment keeps starts from sharing a cache, the worst first.

    Args:
        arguments: vLLM's.
        env: the engine's environment, before the cache variables are set.
        version: vLLM's; None if unknown.
    """
    if pinned := arguments.tree("compilation-config").get("cache_dir"):
        what = "pinned, so vLLM writes outside the cache that is shared, and loads whatever lies there without checking its key"
        yield Poisoner("compilation_config.cache_dir", str(pinned), "warning", "engine", what, "leave it out")
    yield from _of(_PER_POD, env, severity="warning", seen_by="both")
    numbers = version_tuple(version or "")
    if numbers and numbers < _NIXL_HOST_SINCE:
        yield from _of({_NIXL_HOST: _DERIVED[_NIXL_HOST]}, env, severity="warning", seen_by="engine")
    yield from _of(_PER_IMAGE, env, severity="note", seen_by="both")
    yield from _by_shape(env)
    if numbers and numbers < _FOLDER_SINCE:
        what = f"vLLM {version} hashes folders below HOME, XDG_CACHE_HOME and XDG_CONFIG_HOME"
        remedy = "set them alike in every pod, or use vLLM 0.30 or later"
        yield Poisoner("HOME", env.get("HOME", ""), "note", "engine", what, remedy)
    if arguments.model is not None and "://" in arguments.model:
        what = "vLLM hashes the model's URL, and the folder below HOME where it keeps the model's small files"
        remedy = "use one URL and one HOME everywhere, or let glowplug run stream the weights: then the content counts"
        yield Poisoner("--model", without_credentials(arguments.model), "note", "both", what, remedy)


def _of(
    table: Mapping[str, Known], env: Mapping[str, str], *, severity: Literal["warning", "note"], seen_by: Literal["both", "engine"]
) -> Iterator[Poisoner]:
    for name, fact in table.items():
        if name in env:
            yield Poisoner(name, without_credentials(env[name]), severity, seen_by, f"{fact.what}, in vLLM's cache key", fact.fix)


def _by_shape(env: Mapping[str, str]) -> Iterator[Poisoner]:
    """Variables that no table knows, and whose value looks like one of this pod or this node."""
    counted = vllm_environment(env)
    unknown = [name for name in counted if name.startswith(_OWN) and f"environment.{name}" not in KNOWN]
    if not unknown:
        return
    from glowplug.cache.explain.classify import kind_of  # noqa: PLC0415  some ms, for the few that set such variables
    from glowplug.cache.explain.kinds import LIKELY_ACCIDENT  # noqa: PLC0415  the same

    for name in unknown:
        kind = kind_of(f"environment.{name}", counted[name], None)
        if kind.likelihood >= LIKELY_ACCIDENT:
            yield Poisoner(name, str(counted[name]), "note", "both", f"{kind.what}, in the cache's key", kind.fix)
