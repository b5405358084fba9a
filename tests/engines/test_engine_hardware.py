"""Accelerators and processor, from trees that look like /proc, /sys and /dev."""

import os
import sys
import types

import pytest

from glowplug.engines.accelerators import _nvml_names, accelerators
from glowplug.engines.cpu import cpu_component, cpu_threads

H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "dev").mkdir()
    return tmp_path


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def nvidia(root, *models, devices=None):
    for minor, model in enumerate(models):
        put(
            root,
            f"proc/driver/nvidia/gpus/0000:{minor:02x}:00.0/information",
            f"Model: \t\t {model}\nIRQ:   \t\t 0\nGPU UUID: \t GPU-{minor}aaa\n"
            f"Bus Location: \t 0000:0{minor}:00.0\nDevice Minor: \t {minor}\n",
        )
    for minor in range(len(models)) if devices is None else devices:
        put(root, f"dev/nvidia{minor}", "")
    put(root, "dev/nvidiactl", "")
    put(
        root,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version:  gcc 12\n",
    )


def test_nvidia_gpus_by_name_count_and_driver(root):
    nvidia(root, H100, H100)
    assert accelerators({}, str(root)).component() == {"kind": "nvidia", "models": {H100: 2}, "count": 2, "driver": "570.86.15"}


@pytest.mark.parametrize(
    ("env", "models"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, (H200,)),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, (H100, H200)),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a"}, (H200,)),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, (H100,)),
        ({"CUDA_VISIBLE_DEVICES": "0,7"}, (H100,)),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-1aaa"}, (H200,)),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, (H100, H200)),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, (H100, H200)),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-1aaa", "CUDA_VISIBLE_DEVICES": "0"}, (H100,)),
    ],
)
def test_only_visible_gpus_count(root, env, models):
    nvidia(root, H100, H200)
    assert accelerators(env, str(root)).models == models


@pytest.mark.parametrize("value", ["", "-1", "none"])
def test_a_command_that_may_use_no_gpu_computes_on_the_processor(root, value):
    nvidia(root, H100)
    assert accelerators({"CUDA_VISIBLE_DEVICES": value}, str(root)).component() == {"kind": "none"}


def test_a_gpu_whose_device_file_is_missing_is_not_this_containers(root):
    nvidia(root, H100, H200, devices=[1])
    assert accelerators({}, str(root)).models == (H200,)


def test_a_driver_without_devices_is_no_accelerator(root):
    nvidia(root, H100, devices=[])
    assert accelerators({}, str(root)).kind == "none"


def test_a_gpu_that_nothing_names_is_unknown_and_not_none(root):
    put(root, "dev/nvidia0", "")
    assert accelerators({}, str(root)).component() == {"kind": "nvidia", "models": {"unknown": 1}, "count": 1, "driver": "unknown"}


def test_a_part_of_a_gpu_is_not_taken_for_the_whole(root):
    nvidia(root, H100)
    assert accelerators({"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}, str(root)).models == ("unknown", "unknown")
    assert accelerators({"NVIDIA_VISIBLE_DEVICES": "MIG-1"}, str(root)).models == ("unknown",)


def test_nvml_names_parts_where_it_is_there_and_says_nothing_where_it_fails(monkeypatch):
    class NvmlError(Exception):
        pass

    def refuse():
        raise NvmlError

    shut = []
    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: shut.append(1),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda handle: f"{H100} MIG 1g.10gb {handle}".encode(),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert _nvml_names(["MIG-1"]) == [f"{H100} MIG 1g.10gb MIG-1"]
    assert shut == [1]
    monkeypatch.setattr(nvml, "nvmlInit", refuse)
    assert _nvml_names(["MIG-1"]) == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert _nvml_names([]) == []


def test_amd_gpus_by_architecture(root):
    nodes = "sys/class/kfd/kfd/topology/nodes"
    put(root, f"{nodes}/0/properties", "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n")
    put(root, f"{nodes}/1/properties", "simd_count 1216\ndevice_id 29857\ngfx_target_version 90402\n")
    put(root, f"{nodes}/10/properties", "simd_count 416\ndevice_id 29704\ngfx_target_version 90010\n")
    found = accelerators({}, str(root))
    assert found.kind == "amd"
    assert found.models == ("gfx90a 416 SIMD device 29704", "gfx942 1216 SIMD device 29857")
    assert accelerators({"HIP_VISIBLE_DEVICES": "0"}, str(root)).models == ("gfx942 1216 SIMD device 29857",)
    assert accelerators({"ROCR_VISIBLE_DEVICES": ""}, str(root)).kind == "none"


def test_neuron_devices_by_instance_type(root):
    for number in range(2):
        put(root, f"dev/neuron{number}", "")
    put(root, "sys/devices/virtual/dmi/id/product_name", "trn1.32xlarge\n")
    put(root, "sys/module/neuron/version", "2.21.37.0\n")
    expected = {"kind": "neuron", "models": {"trn1.32xlarge": 2}, "count": 2, "driver": "2.21.37.0"}
    assert accelerators({}, str(root)).component() == expected
    assert accelerators({"NEURON_RT_VISIBLE_CORES": "0-3"}, str(root)).models == ("trn1.32xlarge cores 0-3",) * 2


@pytest.mark.parametrize("device", ["accel0", "davinci0", "hl0"])
def test_a_device_of_another_kind_is_not_the_processor(root, device):
    put(root, f"dev/{device}", "")
    assert accelerators({}, str(root)).kind == "other"


def test_a_machine_without_accelerators(root):
    assert accelerators({}, str(root)).component() == {"kind": "none"}


def test_instruction_sets_count_and_the_kernels_other_flags_do_not(root):
    head = "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: {mhz}\nflags\t\t: fpu sse2 avx512f amx_tile {more}\nbugs\t\t: x\n"
    put(root, "proc/cpuinfo", head.format(mhz=2600, more="hypervisor md_clear constant_tsc"))
    component = cpu_component(str(root))
    assert component == {"machine": os.uname().machine, "isa": ["amx_tile", "avx512f", "sse2"]}
    put(root, "proc/cpuinfo", head.format(mhz=800, more="ibrs_enhanced"))
    assert cpu_component(str(root)) == component
    put(root, "proc/cpuinfo", head.format(mhz=2600, more="avx512_fp16"))
    assert cpu_component(str(root)) != component


def test_arm_features_all_count(root):
    put(root, "proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd sve sve2 bf16\nCPU part\t: 0xd4f\n")
    assert cpu_component(str(root))["isa"] == ["asimd", "bf16", "fp", "sve", "sve2"]


@pytest.mark.parametrize("text", [None, "processor : 0\n"])
def test_a_processor_that_does_not_tell_is_unknown(root, text):
    if text:
        put(root, "proc/cpuinfo", text)
    assert cpu_component(str(root))["isa"] == "unknown"


def test_this_machine_has_an_instruction_set_and_a_thread():
    assert len(cpu_component()["isa"]) > 3
    assert cpu_threads() >= 1
