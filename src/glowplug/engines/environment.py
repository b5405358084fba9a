"""The environment variables that can change compiled code, without secrets.

The rule is a prefix list, not a list of names, because engines add variables with every release and a variable that is left out by
mistake could restore wrong code. Adapters take away what they know to be harmless. A variable whose name says that it is a secret
is never looked at, and a URL loses its password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.engines.model import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from glowplug.cache.envelope import Json

_PREFIXES = (
    "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCHAOTI_", "TRITON_", "PYTORCH_", "FLASHINFER_", "DG_", "TILELANG_", "CUTE_DSL_",
    "NEURON_", "XLA_",
)  # fmt: skip
# Compilers, thread counts and precision: CC and CXX build Inductor's C++, OMP_NUM_THREADS is compiled into it.
_NAMES = frozenset(("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY", "NVIDIA_TF32_OVERRIDE"))
# Logs, profiles, downloads and communication: they change no generated code.
_HARMLESS = re.compile(
    r"TORCH_(LOGS\w*|TRACE\w*|HOME|NCCL_\w+|GLOO_\w+|CPP_LOG_LEVEL|SHOW_CPP_STACKTRACES|DISTRIBUTED_DEBUG|FR_\w+)|TORCH_COMPILE_DEBUG\w*"
    r"|TORCHINDUCTOR_(REDIS_\w+|COMPILE_THREADS|WORKER_START|PROGRESS)|TRITON_(PRINT_AUTOTUNING|REDIS_\w+|HOME)|NEURON_RT_(LOG|NUM|VISIBLE)\w*"
)
# What Kubernetes adds to every pod for each Service of its namespace, in the names of docker's links: a Service called `vllm` makes
# VLLM_SERVICE_HOST, VLLM_PORT=tcp://10.1.2.3:80 and more, which differ from cluster to cluster and which no engine reads.
_SERVICE_NAME = re.compile(r"\w+_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")
_SECRET = re.compile(
    r"(^|[_.-])(api_?key|access_?key(_?id)?|signing_?key|private_?key|secrets?|password|passwd|passphrase|credentials?|auth\w*)([_.-]|$)"
    r"|(^|[_.-])(token|key|keys)$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a variable, option or field says by its name that its value is a secret. ``max-num-batched-tokens`` does not."""
    return _SECRET.search(name) is not None


def environment_component(
    env: Mapping[str, str], *, prefixes: Iterable[str] = (), names: Iterable[str] = (), ignored: Iterable[str] = ()
) -> dict[str, Json]:
    """The variables that count, with their values.

    Args:
        env: the engine's environment.
        prefixes: an engine's own prefixes, besides torch's and its friends'.
        names: an engine's own names.
        ignored: names that count under no circumstances, such as those the caches' own folders are given in.
    """
    all_prefixes, all_names, left_out = (*_PREFIXES, *prefixes), _NAMES.union(names), frozenset(ignored)
    return {
        name: without_credentials(value)
        for name, value in sorted(env.items())
        if (name in all_names or name.startswith(all_prefixes))
        and name not in left_out
        and not _HARMLESS.fullmatch(name)
        and not _SERVICE_NAME.fullmatch(name)
        and not (name.endswith("_PORT") and _SERVICE_URL.match(value))
        and not is_secret(name)
    }


def without_secrets(tree: Json) -> Json:
    """A JSON value without the texts that fields with a secret's name hold, and with URLs that lost their passwords."""
    if isinstance(tree, dict):
        return {
            name: without_secrets(branch)
            for name, branch in tree.items()
            if not (is_secret(name) and isinstance(branch, str | list))
        }
    if isinstance(tree, list):
        return [without_secrets(branch) for branch in tree]
    return without_credentials(tree) if isinstance(tree, str) else tree
