"""The node's accelerators that a command may use, from ``/proc``, ``/sys`` and ``/dev``.

Drivers publish what is needed in files, which costs a millisecond; starting CUDA or NVML can cost seconds and memory on the
device. NVML is asked only where files do not tell: a container that sees the device and not the driver's files, or a part of a
GPU (MIG). No device is opened here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.cache.envelope import Json

_FIELD = re.compile(r"^([^:\n]+):[ \t]*(.*?)\s*$", re.MULTILINE)
_DRIVER = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")
_NVIDIA_DEVICE = re.compile(r"nvidia(\d+)")
_NEURON_DEVICE = re.compile(r"neuron(\d+)")
_OTHER_DEVICE = re.compile(r"(accel|davinci|hl|metax|mlu)\d*")  # Gaudi and TPU, Ascend, older Gaudi, MetaX, Cambricon


@dataclass(frozen=True, slots=True)
class Accelerators:
    """What a command may use.

    Attributes:
        kind: whose; ``none`` means that the engine computes on the processor.
        models: one name for each device, sorted; ``unknown`` where a device is there and its name isn't to be had.
        driver: the kernel driver's version; empty where it does not tell.
    """

    kind: Literal["nvidia", "amd", "neuron", "other", "none"]
    models: tuple[str, ...] = ()
    driver: str = ""

    def component(self) -> Json:
        """The envelope's ``accelerator`` group."""
        if self.kind == "none":
            return {"kind": "none"}
        return {
            "kind": self.kind,
            "models": dict(Counter(self.models)),
            "count": len(self.models),
            "driver": self.driver or "unknown",
        }


def accelerators(env: Mapping[str, str], root: str = "/") -> Accelerators:
    """The accelerators a command with this environment may use.

    Args:
        env: the command's environment; ``CUDA_VISIBLE_DEVICES`` and its siblings count.
        root: where ``proc``, ``sys`` and ``dev`` lie; a test's own tree.
    """
    for find in (_nvidia, _amd, _neuron, _other):
        found = find(env, root)
        if found.models:
            return found
    return Accelerators("none")


def _nvidia(env: Mapping[str, str], root: str) -> Accelerators:
    minors = _numbers(os.path.join(root, "dev"), _NVIDIA_DEVICE)
    if not minors:
        return Accelerators("nvidia")
    gpus = []  # (UUID, model) in the order of the bus
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    for bus in _names(folder):
        fields = dict(_FIELD.findall(_text(os.path.join(folder, bus, "information"))))
        # /proc shows the whole node's GPUs where devices were injected by CDI; the device file shows whether this one may be used.
        minor = fields.get("Device Minor", "")
        if "Model" in fields and (not minor.isdecimal() or int(minor) in minors):
            gpus.append((fields.get("GPU UUID", ""), fields["Model"]))
    match = _DRIVER.search(_text(os.path.join(root, "proc/driver/nvidia/version")))
    wanted = _visible(env, "CUDA_VISIBLE_DEVICES")
    if wanted is None and any(item.startswith(("GPU-", "MIG-")) for item in _visible(env, "NVIDIA_VISIBLE_DEVICES") or []):
        wanted = _visible(env, "NVIDIA_VISIBLE_DEVICES")
    parts = [item for item in wanted or [] if item.startswith("MIG-")]
    if parts or not gpus:
        named = _nvml_names(parts) if root == "/" else []
        models = named or ["unknown"] * (len(parts) or len(minors))
        models = models if parts else _choose([("", model) for model in models], wanted)
    else:
        models = _choose(gpus, wanted)
    return Accelerators("nvidia", tuple(sorted(models)), match[1] if match else "")


def _amd(env: Mapping[str, str], root: str) -> Accelerators:
    gpus = []
    folder = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    for node in sorted(_names(folder), key=lambda name: (len(name), name)):
        properties = dict(
            line.split(maxsplit=1) for line in _text(os.path.join(folder, node, "properties")).splitlines() if " " in line
        )
        target = int(properties.get("gfx_target_version", "0"))
        if target:  # the processor is a node too, and has none
            architecture = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"  # 90402 is gfx942, 90010 is gfx90a
            gpus.append(("", f"{architecture} {properties.get('simd_count', '?')} SIMD device {properties.get('device_id', '?')}"))
    wanted = _visible(env, "HIP_VISIBLE_DEVICES")
    if wanted is None:
        wanted = _visible(env, "ROCR_VISIBLE_DEVICES")
    return Accelerators("amd", tuple(sorted(_choose(gpus, wanted))), _text(os.path.join(root, "sys/module/amdgpu/version")).strip())


def _neuron(env: Mapping[str, str], root: str) -> Accelerators:
    devices = _numbers(os.path.join(root, "dev"), _NEURON_DEVICE)
    if not devices:
        return Accelerators("neuron")
    model = ""
    for path in ("sys/class/neuron_device/neuron0/info/architecture/instance_type", "sys/devices/virtual/dmi/id/product_name"):
        model = model or _text(os.path.join(root, path)).strip()
    cores = env.get("NEURON_RT_VISIBLE_CORES") or env.get("NEURON_RT_NUM_CORES")
    name = f"{model or 'unknown'} cores {cores}" if cores else model or "unknown"
    return Accelerators("neuron", (name,) * len(devices), _text(os.path.join(root, "sys/module/neuron/version")).strip())


def _other(_env: Mapping[str, str], root: str) -> Accelerators:
    """Devices that are no processors, whatever they are: their caches must not be taken for ones of the processor."""
    devices = [match[1] for name in _names(os.path.join(root, "dev")) if (match := _OTHER_DEVICE.fullmatch(name))]
    return Accelerators("other", tuple(devices))


def _visible(env: Mapping[str, str], variable: str) -> list[str] | None:
    """The devices that a variable names; None where it does not restrict them."""
    value = env.get(variable)
    if value is None or value in ("all", "void"):  # void: the container's runtime injects devices by other means
        return None
    return [item.strip() for item in value.split(",") if item.strip()]


def _choose(devices: list[tuple[str, str]], wanted: list[str] | None) -> list[str]:
    """Models of the wanted devices, by index or by the start of their UUID. The first invalid one ends the list, as CUDA has it."""
    if wanted is None:
        return [model for _, model in devices]
    chosen = []
    for item in wanted:
        if item.isdecimal():
            match = devices[int(item)][1] if int(item) < len(devices) else None
        else:
            match = next((model for uuid, model in devices if uuid and uuid.startswith(item)), None)
        if match is None:
            break
        chosen.append(match)
    return chosen


def _nvml_names(parts: list[str]) -> list[str]:
    """Names of these parts of GPUs, or of all GPUs, from NVML; empty without nvidia-ml-py, its library, or an answer."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001  fail open: the binding raises its own errors, and the name is one component of many
        return []
    try:
        if parts:
            handles = [nvml.nvmlDeviceGetHandleByUUID(part) for part in parts]
        else:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        names = [nvml.nvmlDeviceGetName(handle) for handle in handles]
        return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    except Exception:  # noqa: BLE001  fail open, as above
        return []
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _numbers(folder: str, pattern: re.Pattern[str]) -> set[int]:
    return {int(match[1]) for name in _names(folder) if (match := pattern.fullmatch(name))}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024)
    except OSError:
        return ""
