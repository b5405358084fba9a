"""The node's own memory and disk for one pod: weights buffer, engine, ``/dev/shm``, processors, image, caches.

The buffer follows ``weights.buffer.memory``, which decides again at the start from what the kernel says; a pod that is given what
is computed here gets the mode that is said here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from glowplug.engines.vllm.host_memory import beside_weights
from glowplug.plan import runai
from glowplug.plan.base import HostNeeds
from glowplug.plan.figures import both, up
from glowplug.units import GIB, MIB, format_bytes
from glowplug.weights.buffer.memory import LEAST_WINDOW_BYTES, MARGIN_BYTES, MOST_WINDOW_BYTES

if TYPE_CHECKING:
    from glowplug.plan.base import Fit, Question
    from glowplug.plan.model import Model
    from glowplug.plan.working import Notebook

DEFAULT_ROOT_BYTES = 20 * GIB
"""Of a node whose class names no volume, in Karpenter."""
DEFAULT_IMAGE_BYTES = 10_760_000_000
NEURON_IMAGE_BYTES = int(7.9 * GIB)
_SHM_BYTES = GIB
_UNPACKED = 2
"""Bytes on disk for a byte of the compressed image, beside that byte itself, which containerd keeps."""
_CACHE_BYTES = 2 * GIB
_SYSTEM_DISK_BYTES = 10 * GIB
_WHOLE_CPU = 1000


def image_bytes(question: Question, *, is_neuron: bool) -> int:
    """Of the compressed image: as was said, or what the vendors' are."""
    return question.image_bytes or (NEURON_IMAGE_BYTES if is_neuron else DEFAULT_IMAGE_BYTES)


def host_needs(question: Question, model: Model, fit: Fit, *, distributed: bool, is_neuron: bool, notebook: Notebook) -> HostNeeds:
    """Of one pod."""
    engine = beside_weights(fit.tp, on_cpu=False, env={})
    shm = _SHM_BYTES * (1 + fit.tp) if fit.tp > 1 else _SHM_BYTES
    share = _share(question, fit)
    fixed = engine + MARGIN_BYTES + shm
    mode, buffer = _buffer(question, model, fit, None if share is None else share - fixed, distributed=distributed)
    _explain(notebook, mode, model, buffer=buffer, engine=engine, shm=shm, share=share, tp=fit.tp)
    image = image_bytes(question, is_neuron=is_neuron)
    weights_disk = model.weight_bytes if question.via in {"nvme", "root"} else 0
    image_disk = image * (1 + _UNPACKED)
    root = _SYSTEM_DISK_BYTES + image_disk + _CACHE_BYTES + (weights_disk if question.via == "root" else 0)
    root_volume = up(root, 10 * GIB)
    notebook.write(
        ("host", "root volume"), "image x 3 (packed and unpacked) + cache + system + weights on it, in steps of 10 GiB",
        format_bytes(root_volume), basis="estimated",
        inputs={
            "image": both(image), "cache": format_bytes(_CACHE_BYTES), "system": format_bytes(_SYSTEM_DISK_BYTES),
            "weights on it": both(weights_disk) if question.via == "root" else "none",
        },
    )  # fmt: skip
    return HostNeeds(
        buffer=mode,
        buffer_bytes=buffer,
        engine_bytes=engine,
        shm_bytes=shm,
        memory_bytes=up(fixed + buffer, MIB),
        share_bytes=share,
        cpus=_cpus(question, fit),
        image_disk_bytes=image_disk,
        cache_disk_bytes=_CACHE_BYTES,
        weights_disk_bytes=weights_disk,
        root_volume_bytes=root_volume,
    )


def _share(question: Question, fit: Fit) -> int | None:
    """What a pod may have: its limit, or its part of the node when replicas fill it."""
    if question.pod_memory_bytes is not None:
        return question.pod_memory_bytes
    if question.instance is None or not fit.replicas_per_node:
        return None
    return question.instance.allocatable_bytes // fit.replicas_per_node


def _cpus(question: Question, fit: Fit) -> int | None:
    if question.instance is None or not fit.replicas_per_node:
        return None
    return max(1, question.instance.allocatable_mcpu // fit.replicas_per_node // _WHOLE_CPU)


def _buffer(
    question: Question, model: Model, fit: Fit, left: int | None, *, distributed: bool
) -> tuple[Literal["full", "windowed", "streamer", "page cache"], int]:
    if question.via in {"nvme", "root"}:
        return "page cache", 0
    if question.loader == "runai":
        return "streamer", runai.buffer_bytes(model, fit, distributed=distributed)
    if left is None or model.weight_bytes <= left:
        return "full", model.weight_bytes
    return "windowed", max(model.largest_tensor_bytes, min(max(left, LEAST_WINDOW_BYTES), MOST_WINDOW_BYTES))


def _explain(
    notebook: Notebook, mode: str, model: Model, *, buffer: int, engine: int, shm: int, share: int | None, tp: int
) -> None:
    formulas = {
        "full": "checkpoint, since checkpoint + engine + 512 MiB + shm <= share",
        "windowed": "share - engine - 512 MiB - shm, within 64 MiB and 4 GiB, and no less than the largest tensor",
        "streamer": "checkpoint where distributed, else TP x min(checkpoint, 40 GB)",
        "page cache": "none: files of a disk are read ahead into file cache, which the kernel can drop",
    }
    notebook.write(
        ("host", f"buffer ({mode})"), formulas[mode], format_bytes(buffer),
        inputs={
            "checkpoint": both(model.weight_bytes), "engine": format_bytes(engine), "shm": format_bytes(shm),
            "share": "unknown" if share is None else format_bytes(share),
        },
        basis="published" if mode == "streamer" else "exact", sources=("runai",) if mode == "streamer" else ("glowplug",),
    )  # fmt: skip
    notebook.write(
        ("host", "engine"),
        "2 GiB + 3 GiB x TP",
        format_bytes(engine),
        inputs={"TP": str(tp)},
        basis="estimated",
        sources=("glowplug",),
    )
    notebook.write(
        ("host", "shared memory"), "1 GiB, with TP > 1 another for each rank: the default 64 MB is too small for NCCL",
        format_bytes(shm), inputs={"TP": str(tp)}, basis="estimated", sources=("shm",),
    )  # fmt: skip
    notebook.write(
        ("host", "pod memory"), "buffer + engine + 512 MiB + shm", format_bytes(buffer + engine + MARGIN_BYTES + shm),
        inputs={"buffer": format_bytes(buffer), "engine": format_bytes(engine), "shm": format_bytes(shm)}, basis="estimated",
    )  # fmt: skip
