"""What weights and compiled code cost on a machine with an NVIDIA GPU, in under 8 minutes: one script, one JSON file.

It needs PyTorch, Triton, safetensors and this checkout, and nothing else: no vLLM, no network, no installation. Each part runs in a
process of its own with a time limit; one that fails or takes too long is noted, and what came before is written already.

Parts: the limits of this machine (the bare copy to the device from pageable, pinned and registered memory, and what
``cudaHostRegister`` itself costs); a checkpoint of 10 GB into device memory by safetensors, and by Glowplug's fetcher from a
local HTTP server and from the disk through pageable memory, through one registered buffer (whole, and a ring of 1 GiB), and
through a pinned ring beside a pageable one; the same from a cold disk where this runs as root; and a program with
``torch.compile`` under ``glowplug run``, cold and from a published cache (by hand with a copied cache folder where the wrapper's
requirements are missing).

Boundary of a load: headers are known; from the first request to the last byte on the device, registration included, one byte of
each 4 KiB summed there; process and CUDA start outside. The server is a process on the same machine.

    python benchmarks/gpu_check.py --out gpu_check.json
    python benchmarks/gpu_check.py --device cpu --size 1GB      # only sees that it works
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import mmap
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from testbed.checkpoints import make_plain_checkpoint  # noqa: E402  found only now
from testbed.range_bandwidth import parse_bandwidth  # noqa: E402
from testbed.range_server import RangeServerProcess  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RING_BYTES = 1 << 30
_SLOT_BYTES, _SLOTS = 64 << 20, 4
_PAGE_BYTES = 4096
_PROGRAM = """
import json, sys, time
import torch
device = sys.argv[1]
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = torch.nn.RMSNorm(width), torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))) * torch.sigmoid(x.mean(-1, keepdim=True)))
model = torch.nn.Sequential(*(Block(1024) for _ in range(4))).to(device)
x = torch.randn(64, 1024, device=device)
begun = time.perf_counter()
with torch.no_grad():
    y = torch.compile(model)(x)
    total = float(y.float().sum())
print("COMPILED " + json.dumps({"first_call_s": time.perf_counter() - begun, "sum": total}), flush=True)
"""


class Device:
    """The device that tensors go to; on ``cpu`` nothing is pinned and every copy is done when it returns."""

    def __init__(self, name: str) -> None:
        import torch  # noqa: PLC0415  only in the parts' processes

        self.torch = torch
        self.name = name
        self.is_cuda = name.startswith("cuda")
        torch.zeros(1, device=name)
        self.sync()

    def sync(self) -> None:
        """Wait for all copies."""
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def host(self, memory: Any) -> Any:
        """A tensor of bytes over host memory, without a copy."""
        return self.torch.frombuffer(memory, dtype=self.torch.uint8)

    def empty(self, size_bytes: int) -> Any:
        """Bytes on the device."""
        return self.torch.empty(size_bytes, dtype=self.torch.uint8, device=self.name)

    def pinned(self, size_bytes: int) -> Any:
        """Page-locked bytes on the host."""
        return self.torch.empty(size_bytes, dtype=self.torch.uint8, pin_memory=self.is_cuda)

    def register(self, memory: Any) -> float:
        """Lock the pages of host memory for the device; returns the seconds that took."""
        if not self.is_cuda:
            return 0.0
        tensor, begun = self.host(memory), time.perf_counter()
        code = int(self.torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.numel(), 0))
        if code:
            raise RuntimeError(f"cudaHostRegister: error {code}")
        return time.perf_counter() - begun

    def unregister(self, memory: Any) -> None:
        """Undo ``register``."""
        if self.is_cuda:
            self.torch.cuda.cudart().cudaHostUnregister(self.host(memory).data_ptr())

    def event(self) -> Any:
        """Something that is done when all copies so far are; None where they are done already."""
        if not self.is_cuda:
            return None
        event = self.torch.cuda.Event()
        event.record()
        return event


# --- parts


def machine(device: Device, options: argparse.Namespace) -> dict[str, Any]:
    """What this runs on."""
    torch = device.torch
    found: dict[str, Any] = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "folder_free_bytes": shutil.disk_usage(options.folder).free,
        "is_root": os.geteuid() == 0,
    }
    for name in ("enabled", "shmem_enabled"):
        with contextlib.suppress(OSError):
            found[f"huge_pages_{name}"] = Path(f"/sys/kernel/mm/transparent_hugepage/{name}").read_text().strip()
    if device.is_cuda:
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "gpu_bytes": torch.cuda.mem_get_info()[1]}
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            query = [
                "nvidia-smi",
                "--query-gpu=driver_version,pcie.link.gen.current,pcie.link.width.current",
                "--format=csv,noheader",
            ]
            found["nvidia_smi"] = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    return found


def limits(device: Device, options: argparse.Namespace) -> dict[str, Any]:
    """The bare copy from each kind of memory, and the cost of registering."""
    size = min(_RING_BYTES, options.size)
    target = device.empty(size)
    found: dict[str, Any] = {"bytes": size}

    def copy(name: str, source: Any) -> None:
        target.copy_(source, non_blocking=True)
        device.sync()
        begun = time.perf_counter()
        for _ in range(3):
            target.copy_(source, non_blocking=True)
        device.sync()
        found[f"{name}_gb_per_s"] = round(3 * size / (time.perf_counter() - begun) / 1e9, 2)

    for name, memory in (("memfd", _memfd(size)), ("anonymous", mmap.mmap(-1, size))):
        found[f"register_fresh_{name}_s_per_gb"] = round(device.register(memory) / size * 1e9, 4)
        device.unregister(memory)
        device.host(memory).fill_(1)
        copy(f"pageable_{name}", device.host(memory))
        found[f"register_touched_{name}_s_per_gb"] = round(device.register(memory) / size * 1e9, 4)
        copy(f"registered_{name}", device.host(memory))
        device.unregister(memory)
    copy("pinned", device.pinned(size).fill_(1))
    return found


def by_safetensors(device: Device, options: argparse.Namespace) -> dict[str, Any]:
    """``safetensors.torch.load_file``, one file after the other."""
    from safetensors.torch import load_file  # noqa: PLC0415  only in this part's process

    def load() -> int:
        total = device.torch.zeros((), dtype=device.torch.int64, device=device.name)
        kept = []
        for path in sorted(_model(options).glob("*.safetensors")):
            kept.append(load_file(path, device=device.name))
            for tensor in kept[-1].values():
                total += tensor.reshape(-1).view(device.torch.uint8)[::_PAGE_BYTES].sum(dtype=device.torch.int64)
        return int(total)

    return _timed(device, options, load)


def by_glowplug(device: Device, options: argparse.Namespace, *, way: str) -> dict[str, Any]:
    """The fetcher from ``options.uri``, and one of the ways to the device."""
    from glowplug.weights.checkpoint import opening as checkpoint  # noqa: PLC0415  the parent imports none of it
    from glowplug.weights.fetch.fetcher import Fetcher  # noqa: PLC0415
    from glowplug.weights.fetch.plan import make_plan  # noqa: PLC0415
    from glowplug.weights.fetch.settings import FetchSettings  # noqa: PLC0415
    from glowplug.weights.sources.open import open_source  # noqa: PLC0415

    source = open_source(options.uri, env={})
    ring_bytes = None if way in {"pageable", "registered"} else _RING_BYTES
    chunk_bytes = (16 if source.is_local else 8) << 20
    plan = make_plan(checkpoint.open_checkpoint(source), chunk_bytes=chunk_bytes, memory_bytes=ring_bytes)
    following = [placed.position for placed in plan.tensors[1:]] + [plan.length]
    details: dict[str, Any] = {}

    def load() -> int:
        memory = _memfd(plan.ring_bytes)
        if way.startswith("registered"):
            details["register_s"] = round(device.register(memory), 3)
        fetcher = Fetcher(source, plan, memoryview(memory), FetchSettings())
        fetcher.start()
        copier = _COPIERS[way](device, fetcher.consumed)
        total = device.torch.zeros((), dtype=device.torch.int64, device=device.name)
        kept = []
        try:
            for placed, after in zip(plan.tensors, following, strict=True):
                copier.make_room(placed.position + placed.tensor.size_bytes - plan.ring_bytes)
                fetcher.wait(placed.position + placed.tensor.size_bytes)
                offset = placed.position % plan.ring_bytes
                target = device.empty(placed.tensor.size_bytes)
                if placed.tensor.size_bytes:
                    copier.copy(target, device.host(memoryview(memory)[offset : offset + placed.tensor.size_bytes]))
                    total += target[::_PAGE_BYTES].sum(dtype=device.torch.int64)
                copier.done(after)
                kept.append(target)
            result = int(total)
            details["concurrency"] = fetcher.stats().concurrency
        finally:
            fetcher.close()
            device.sync()
            if way.startswith("registered"):
                device.unregister(memory)
        return result

    result = _timed(device, options, load) | details
    source.close()
    return result


class Blocking:
    """Copies that are done when they return."""

    def __init__(self, device: Device, consumed: Callable[[int], None]) -> None:
        self._device = device
        self._consumed = consumed

    def make_room(self, position: int) -> None:
        """All before this position must be free soon."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy a tensor."""
        target.copy_(source)

    def done(self, position: int) -> None:
        """All before this position has been copied, or soon will be."""
        self._consumed(position)


class Asynchronous(Blocking):
    """Copies straight from registered memory; a stretch is free when the device says so."""

    def __init__(self, device: Device, consumed: Callable[[int], None]) -> None:
        super().__init__(device, consumed)
        self._running: collections.deque[tuple[Any, int]] = collections.deque()

    def make_room(self, position: int) -> None:
        """See ``Blocking``."""
        while self._running and (self._running[0][1] <= position or self._running[0][0] is None or self._running[0][0].query()):
            self._free()

    def copy(self, target: Any, source: Any) -> None:
        """See ``Blocking``."""
        target.copy_(source, non_blocking=True)

    def done(self, position: int) -> None:
        """See ``Blocking``."""
        self._running.append((self._device.event(), position))
        while len(self._running) > _SLOTS:
            self._free()

    def _free(self) -> None:
        event, position = self._running.popleft()
        if event is not None:
            event.synchronize()
        self._consumed(position)


class Staged(Blocking):
    """Copies within the host into pinned slots, from there to the device."""

    def __init__(self, device: Device, consumed: Callable[[int], None]) -> None:
        super().__init__(device, consumed)
        self._slots: collections.deque[tuple[Any, Any]] = collections.deque(
            (device.pinned(_SLOT_BYTES), None) for _ in range(_SLOTS)
        )

    def copy(self, target: Any, source: Any) -> None:
        """See ``Blocking``."""
        for begin in range(0, source.numel(), _SLOT_BYTES):
            size = min(_SLOT_BYTES, source.numel() - begin)
            slot, event = self._slots.popleft()
            if event is not None:
                event.synchronize()
            slot[:size].copy_(source[begin : begin + size])
            target[begin : begin + size].copy_(slot[:size], non_blocking=True)
            self._slots.append((slot, self._device.event()))


_COPIERS = {"pageable": Blocking, "registered": Asynchronous, "registered_ring": Asynchronous, "pinned_slots": Staged}


def compiled(device: Device, options: argparse.Namespace) -> dict[str, Any]:
    """A program with ``torch.compile``: cold, and with what the cold one compiled."""
    del device
    work = Path(tempfile.mkdtemp(prefix="compile-", dir=options.folder))
    program = work / "program.py"
    program.write_text(_PROGRAM)
    try:
        probe = "import botocore, cryptography, rich, securesystemslib, typer, yaml, zstandard"
        has_all = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode == 0
        run = _compile_under_glowplug if has_all else _compile_by_hand
        found: dict[str, Any] = {"by": "glowplug run" if has_all else "hand: the wrapper's requirements are missing"}
        for kind in ("cold", "warm", "again"):
            begun = time.perf_counter()
            output = run(program, work, kind, options.device)
            line = next(line for line in output.splitlines() if "COMPILED " in line)
            found[kind] = {"wall_s": round(time.perf_counter() - begun, 2), **json.loads(line.partition("COMPILED ")[2])}
            if has_all:
                found[kind]["outcome"] = json.loads((work / f"{kind}.json").read_text())["outcome"]
        return found
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile_under_glowplug(program: Path, work: Path, kind: str, device: str) -> str:
    shutil.rmtree(
        work / "live", ignore_errors=True
    )  # the same path each time: of an unknown program nobody knows what it writes down
    options = ["--store", f"file://{work}/store", "--cache-dir", str(work / "live"), "--report", str(work / f"{kind}.json")]
    command = [sys.executable, "-m", "glowplug", "run", *options, "--settle", "0s", "--", sys.executable, str(program), device]
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "XDG_CONFIG_HOME": str(work / "config")}
    return _output(command, env)


def _compile_by_hand(program: Path, work: Path, kind: str, device: str) -> str:
    cache = work / f"live-{kind}"
    if kind != "cold":
        shutil.copytree(work / "live-cold", cache)
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
    return _output([sys.executable, str(program), device], env)


# --- around them


def _timed(device: Device, options: argparse.Namespace, load: Callable[[], int]) -> dict[str, Any]:
    size = sum(path.stat().st_size for path in _model(options).glob("*.safetensors"))
    walls, cpus, sums = [], [], set()
    for _ in range(1 if options.cold else 2):
        if options.cold:
            _drop_caches(options)
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        sums.add(load())
        device.sync()
        walls.append(time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if device.is_cuda:
            device.torch.cuda.empty_cache()
    best = min(walls)
    return {
        "wall_s": [round(wall, 3) for wall in walls],
        "gb_per_s": round(size / best / 1e9, 2),
        "cpu_s_per_gb": round(min(cpus) / size * 1e9, 3),
        "sample": sorted(sums),
    }


def _memfd(size_bytes: int) -> mmap.mmap:
    fd = os.memfd_create("gpu-check")
    try:
        os.ftruncate(fd, size_bytes)
        memory = mmap.mmap(fd, size_bytes)
    finally:
        os.close(fd)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _model(options: argparse.Namespace) -> Path:
    return Path(options.folder) / "buckets" / "bench" / "model"


def _drop_caches(options: argparse.Namespace) -> None:
    os.sync()
    for path in _model(options).glob("*.safetensors"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1")


def _output(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def _parts(options: argparse.Namespace, server: str) -> Iterator[tuple[str, list[str], float]]:
    """Name, arguments and most seconds of each part, what matters most first."""
    disk = str(_model(options))
    yield "machine", ["--part", "machine"], 60
    yield "limits", ["--part", "limits"], 60
    yield "safetensors", ["--part", "safetensors"], 60
    for way in ("pageable", "registered", "registered_ring", "pinned_slots"):
        yield f"http {way}", ["--part", way, "--uri", server], 60
    for way in ("pageable", "registered", "registered_ring", "pinned_slots"):
        yield f"disk {way}", ["--part", way, "--uri", disk], 60
    yield "compile", ["--part", "compile"], 180
    if os.geteuid() == 0:
        yield "cold disk safetensors", ["--part", "safetensors", "--cold"], 60
        for way in ("pageable", "registered_ring", "pinned_slots"):
            yield f"cold disk {way}", ["--part", way, "--uri", disk, "--cold"], 60


def main() -> int:
    """Run all parts, or one in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=lambda text: int(parse_bandwidth(text)), default=10_000_000_000)
    parser.add_argument("--folder", default=None, help="on a disk with room for the checkpoint; default: a temporary one")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"))
    parser.add_argument("--budget-s", type=float, default=450.0, help="begin no part after so many seconds")
    parser.add_argument("--only", default="", help="only parts whose names hold this text")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--uri", default="", help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print("RESULT " + json.dumps(_run_part(options)), flush=True)
        return 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-check-", dir=options.folder) as folder:
        options.folder = folder
        make_plain_checkpoint(_model(options), size_bytes=options.size)
        document: dict[str, Any] = {
            "made_checkpoint_s": round(time.monotonic() - begun, 1),
            "size_bytes": options.size,
            "parts": {},
        }
        with RangeServerProcess(Path(folder) / "buckets") as server:
            for name, arguments, limit_s in _parts(options, server.url("bench/model/")):
                left_s = options.budget_s - (time.monotonic() - begun)
                if options.only in name:
                    document["parts"][name] = (
                        _in_process(options, arguments, min(limit_s, left_s)) if left_s > 5 else "no time left"
                    )
                    print(f"[{time.monotonic() - begun:5.0f} s] {name}: {json.dumps(document['parts'][name])[:1000]}", flush=True)
                    document["seconds"] = round(time.monotonic() - begun, 1)
                    options.out.write_text(json.dumps(document, indent=2) + "\n")
    samples = {str(part["sample"]) for part in document["parts"].values() if isinstance(part, dict) and "sample" in part}
    document["same_bytes"] = len(samples) <= 1
    options.out.write_text(json.dumps(document, indent=2) + "\n")
    print(f"{options.out}: same bytes everywhere: {document['same_bytes']}")
    return 0 if document["same_bytes"] else 1


def _run_part(options: argparse.Namespace) -> dict[str, Any]:
    device = Device(options.device)
    parts: dict[str, Callable[[Device, argparse.Namespace], dict[str, Any]]] = {
        "machine": machine,
        "limits": limits,
        "safetensors": by_safetensors,
        "compile": compiled,
    }
    if options.part in parts:
        return parts[options.part](device, options)
    return by_glowplug(device, options, way=options.part)


def _in_process(options: argparse.Namespace, arguments: list[str], limit_s: float) -> dict[str, Any] | str:
    more = ["--device", options.device, "--size", str(options.size), "--folder", options.folder]
    command = [sys.executable, str(Path(__file__).resolve()), *more, *arguments]
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {limit_s:.0f} s"
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        return f"failed ({done.returncode}): {(done.stdout + done.stderr)[-1500:]}"
    return {**json.loads(line.removeprefix("RESULT ")), "part_s": round(time.monotonic() - begun, 1)}


if __name__ == "__main__":
    sys.exit(main())
