"""User, shared memory, memory, processors and limits: what ends a start, or slows it down, whatever the cache holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from glowplug.doctor.base import Problem, Rule
from glowplug.engines.vllm.host_memory import beside_weights
from glowplug.units import MIB, format_bytes
from glowplug.weights.buffer.memory import MARGIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.node.facts import NodeFacts

_SHM = "/dev/shm"  # noqa: S108  where it is
_DEFAULT_SHM_BYTES = 64 * MIB
_OPEN_FILES = 65_535  # what vLLM raises its own limit to


def _nameless(facts: NodeFacts) -> Iterator[Problem]:
    if not facts.user.name:
        yield Problem("user", "name", f"uid {facts.user.uid} has no entry and USER is not set", "/etc/passwd")


def _homeless(facts: NodeFacts) -> Iterator[Problem]:
    user = facts.user
    if user.home_refused and not facts.xdg_cache_home:
        yield Problem("user", "home", f"uid {user.uid} can't write its home folder: {user.home_refused}", user.home)


def _no_temporary(facts: NodeFacts) -> Iterator[Problem]:
    if not facts.user.temporary:
        yield Problem("user", "temporary", f"uid {facts.user.uid} can write neither TMPDIR nor /tmp nor /var/tmp", "/tmp")  # noqa: S108  where it was tried


def _small_shm(facts: NodeFacts) -> Iterator[Problem]:
    number = facts.devices.count
    if number < 2:
        return
    if facts.shm is None:
        yield Problem(_SHM, "", f"is not there, and an engine may use {number} accelerators", _SHM)
    elif facts.shm.size_bytes <= _DEFAULT_SHM_BYTES:
        size = format_bytes(facts.shm.size_bytes)
        yield Problem(_SHM, "size", f"has {size}, and an engine may use {number} accelerators", _SHM)


def _few_processors(facts: NodeFacts) -> Iterator[Problem]:
    wanted = 2 + facts.devices.count
    if facts.devices.count and math.ceil(facts.cpus) < wanted:
        message = f"{facts.cpus:g} for at least {wanted} processes: server, engine, and one for each accelerator"
        yield Problem("processors", "limit", message, "/sys/fs/cgroup")


def _few_files(facts: NodeFacts) -> Iterator[Problem]:
    if facts.open_files is not None and facts.open_files < _OPEN_FILES:
        yield Problem("open files", "limit", f"at most {facts.open_files}, and vLLM wants {_OPEN_FILES}", "/proc/self/limits")


def _little_memory(facts: NodeFacts) -> Iterator[Problem]:
    number, free = facts.devices.count, facts.room.free_bytes
    needed = beside_weights(max(1, number), on_cpu=False, env={}) + MARGIN_BYTES
    if number and free is not None and free < needed:
        message = f"{format_bytes(free)} free, and vLLM takes about {format_bytes(needed)} beside the weights"
        yield Problem("memory", "free", message, "/sys/fs/cgroup")


def _windowed(facts: NodeFacts) -> Iterator[Problem]:
    model, free = facts.place("model"), facts.room.free_bytes
    if model is None or not model.size_bytes or free is None or model.folder is not None:
        return
    engine = beside_weights(max(1, facts.devices.count), on_cpu=False, env={})
    if model.size_bytes > free - engine - MARGIN_BYTES >= 0:
        message = f"{format_bytes(free)} free: the weights ({format_bytes(model.size_bytes)}) stream through a window"
        yield Problem("memory", "free", message, "/sys/fs/cgroup")


RULES: tuple[Rule[NodeFacts], ...] = (
    Rule(
        "GP920",
        "User without a name",
        "warning",
        "PyTorch before 2.13 asks for the user's name when it is imported. Where neither USER nor /etc/passwd has one it raises"
        " KeyError, 'getpwuid(): uid not found', and vLLM ends before it loads anything.",
        "Set USER to any name in the container's environment.",
        ("https://github.com/vllm-project/vllm/issues/44548", "https://github.com/pytorch/pytorch/issues/140765"),
        _nameless,
    ),
    Rule(
        "GP921",
        "Home folder that can't be written",
        "warning",
        "What glowplug run does not move goes below the home folder: tokenizers and configurations from the hub, vLLM's own notes,"
        " caches of libraries. Without it they fail or are fetched again by each process.",
        "Set HOME, or XDG_CACHE_HOME and HF_HOME, to folders that this user can write.",
        ("https://github.com/llm-d/llm-d-benchmark/pull/1573", "P08"),
        _homeless,
    ),
    Rule(
        "GP922",
        "No folder for temporary files",
        "error",
        "vLLM's processes find each other through sockets there, and compilers write there. With readOnlyRootFilesystem and no"
        " volume at /tmp nothing starts.",
        "Mount an emptyDir at /tmp, or set TMPDIR.",
        ("https://docs.vllm.ai/en/latest/configuration/env_vars/", "https://docs.python.org/3/library/tempfile.html"),
        _no_temporary,
    ),
    Rule(
        "GP923",
        "Few open files",
        "info",
        "vLLM raises its own limit to 65,535 and only warns where it can't; under load it then ends in 'Too many open files'. The"
        " hard limit decides.",
        "Raise LimitNOFILE of containerd or the hard limit of the user.",
        ("https://docs.vllm.ai/en/latest/usage/troubleshooting/",),
        _few_files,
    ),
    Rule(
        "GP924",
        "64 MB of /dev/shm for several accelerators",
        "error",
        "NCCL and vLLM's ranks share buffers in /dev/shm. With a container's default of 64 MB a start with several ranks ends in an"
        " NCCL error, or hangs.",
        "Mount an emptyDir with medium: Memory and a sizeLimit at /dev/shm.",
        ("P10", "P22", "A64"),
        _small_shm,
    ),
    Rule(
        "GP925",
        "Fewer processors than processes",
        "warning",
        "vLLM runs a server, an engine core that never sleeps, and a process for each accelerator. With fewer processors they wait"
        " for each other, at the start and while serving.",
        "Raise the processor limit to twice this number of processes, or take it away.",
        ("https://docs.vllm.ai/en/latest/configuration/optimization/",),
        _few_processors,
    ),
    Rule(
        "GP926",
        "Little memory for the engine",
        "warning",
        "The tightest limit of the control groups, less what is in use, is below what vLLM itself takes while it loads. The kernel"
        " kills the pod in the middle of its start.",
        "Raise the memory limit to what glowplug plan computes.",
        ("A64",),
        _little_memory,
    ),
    Rule(
        "GP927",
        "Weights that are not buffered as a whole",
        "info",
        "With room for all of it beside the engine the checkpoint is fetched ahead while the engine imports. Through a window it is"
        " fetched as the engine reads it, which hides less of the fetch.",
        "Raise the memory limit by the size of the checkpoint, if the start must be faster.",
        ("A64", "X04"),
        _windowed,
    ),
)
