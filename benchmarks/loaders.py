"""Each loader of weights that the benchmarks compare, in a process of its own: the same work, measured from inside.

The work: find the tensors of a checkpoint whose files are known, deliver every one into memory, and read one byte of each 4 KiB
of it, so that a lazy mapping has to bring all of it in. The sum of those bytes must be the same for all. Measured from the first
request to the last tensor: wall seconds, and processor seconds of all threads of the process. Imports come before (PyTorch costs
some two seconds that are no loader's fault); for Glowplug, reading the checkpoint's headers once does the imports.

    python -m benchmarks.loaders NAME URI --set concurrency=8 --set chunk_bytes=16777216

The interpreter is Glowplug's for ``glowplug`` and the peers' environment for all others.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import glob
import json
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
_PAGE_BYTES = 4096


def measure(python: Path | str, name: str, uri: str, *, env: Mapping[str, str], **settings: object) -> dict[str, Any]:
    """Run one loader once; returns what ``main`` prints."""
    command = [str(python), "-m", "benchmarks.loaders", name, uri]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, env={**os.environ, **env}, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{name} {settings} failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


class Delivered:
    """Counts what a loader delivered.

    Args:
        copies: copy each tensor as well, into memory that is used again.
    """

    def __init__(self, *, copies: bool = False) -> None:
        self.tensors = self.bytes = self.sample = 0
        self._copies = copies
        self._memory: Any = None

    def view(self, view: memoryview) -> None:
        """A tensor as bytes."""
        view = view.cast("B")
        self.tensors += 1
        self.bytes += view.nbytes
        self.sample += sum(view[::_PAGE_BYTES])
        if self._copies:
            if self._memory is None or len(self._memory) < view.nbytes:
                self._memory = bytearray(view.nbytes)
            memoryview(self._memory)[: view.nbytes] = view

    def tensor(self, tensor: Any) -> None:
        """A torch tensor."""
        import torch  # noqa: PLC0415  not in Glowplug's environment

        flat = tensor.reshape(-1).view(torch.uint8)
        self.tensors += 1
        self.bytes += flat.numel()
        self.sample += int(flat[::_PAGE_BYTES].sum(dtype=torch.int64))
        if self._copies:
            if self._memory is None or self._memory.numel() < flat.numel():
                self._memory = torch.empty(flat.numel(), dtype=torch.uint8)
            self._memory[: flat.numel()].copy_(flat)


def prepare_glowplug(uri: str, settings: Mapping[str, str]) -> Callable[[Delivered], dict[str, Any]]:
    """Ours, through the public API."""
    from glowplug.weights.checkpoint import opening as checkpoint  # noqa: PLC0415  not in the peers' environment
    from glowplug.weights.fetch.settings import FetchSettings  # noqa: PLC0415
    from glowplug.weights.streaming.stream import stream_bytes  # noqa: PLC0415

    memory_bytes = int(settings["memory_bytes"]) if "memory_bytes" in settings else None
    overrides = {key: int(value) for key, value in settings.items() if key != "memory_bytes"}
    fetch = FetchSettings.from_env(os.environ).over(**overrides)
    checkpoint.open(uri, env=os.environ)

    def load(delivered: Delivered) -> dict[str, Any]:
        with stream_bytes(uri, env=os.environ, settings=fetch, memory_bytes=memory_bytes) as stream:
            for _, view in stream:
                delivered.view(view)
            stats = stream.stats()
        return {name: getattr(stats, name) for name in ("concurrency", "chunk_bytes", "requests", "retries", "hedges", "stalls")}

    return load


def prepare_runai(uri: str, settings: Mapping[str, str]) -> Callable[[Delivered], dict[str, Any]]:
    """The Run:ai model streamer. Its variables must be set before it is loaded, so they come through the environment."""
    import torch  # noqa: PLC0415  not in Glowplug's environment
    from runai_model_streamer import SafetensorsStreamer, list_safetensors  # noqa: PLC0415  the same

    torch.zeros(1)
    files = sorted(list_safetensors(uri))
    owned = settings.get("owned") == "1"

    def load(delivered: Delivered) -> dict[str, Any]:
        with SafetensorsStreamer() as streamer:
            streamer.stream_files(files, owned=owned)
            for _, tensor in streamer.get_tensors():
                delivered.tensor(tensor)
        return {}

    return load


def prepare_obstore(uri: str, settings: Mapping[str, str]) -> Callable[[Delivered], dict[str, Any]]:
    """``obstore.get_range`` from threads, one range a tensor: nothing is copied after it.

    It has no loader of safetensors: the headers are read by hand.
    """
    import obstore  # noqa: PLC0415  not in Glowplug's environment
    from obstore.store import S3Store  # noqa: PLC0415  the same

    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    store = S3Store(
        bucket,
        prefix=prefix,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        region="us-east-1",
        virtual_hosted_style_request=False,
        # The test's authority can't be named to it; not to check a certificate costs it nothing.
        client_options={"allow_http": True, "allow_invalid_certificates": True},
    )
    names = sorted(row["path"] for row in obstore.list(store).collect() if row["path"].endswith(".safetensors"))
    concurrency = int(settings.get("concurrency", 8))

    def load(delivered: Delivered) -> dict[str, Any]:
        with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
            spans = [
                (name, *span)
                for name in names
                for span in _spans(lambda a, b, of=name: obstore.get_range(store, of, start=a, end=b))
            ]
            running: list[concurrent.futures.Future[Any]] = []
            for name, start, end in spans:
                running.append(pool.submit(obstore.get_range, store, name, start=start, end=end))
                if len(running) > concurrency:  # bounded: about as many tensors in memory as requests
                    delivered.view(memoryview(running.pop(0).result()))
            for each in running:
                delivered.view(memoryview(each.result()))
        return {}

    return load


def prepare_safetensors(uri: str, settings: Mapping[str, str]) -> Callable[[Delivered], dict[str, Any]]:
    """``safetensors.safe_open``, which maps a local file."""
    del settings
    import torch  # noqa: PLC0415  not in Glowplug's environment
    from safetensors import safe_open  # noqa: PLC0415  the same

    torch.zeros(1)

    def load(delivered: Delivered) -> dict[str, Any]:
        for path in sorted(glob.glob(f"{uri}/*.safetensors")):
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  no dict
                    delivered.tensor(file.get_tensor(name))
        return {}

    return load


def prepare_fastsafetensors(uri: str, settings: Mapping[str, str]) -> Callable[[Delivered], dict[str, Any]]:
    """Into the CPU's memory, with fastsafetensors."""
    import torch  # noqa: PLC0415  not in Glowplug's environment
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup  # noqa: PLC0415  the same

    torch.zeros(1)
    threads = int(settings.get("concurrency", 16))

    def load(delivered: Delivered) -> dict[str, Any]:
        for path in sorted(glob.glob(f"{uri}/*.safetensors")):
            loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True, max_threads=threads)
            try:
                loader.add_filenames({0: [path]})
                buffer = loader.copy_files_to_device()
                try:
                    for name in loader.get_keys():
                        delivered.tensor(buffer.get_tensor(name))
                finally:
                    buffer.close()
            finally:
                loader.close()
        return {}

    return load


LOADERS = {
    "glowplug": prepare_glowplug,
    "runai": prepare_runai,
    "obstore": prepare_obstore,
    "safetensors": prepare_safetensors,
    "fastsafetensors": prepare_fastsafetensors,
}


def _spans(read: Callable[[int, int], Any]) -> Iterator[tuple[int, int]]:
    """First byte and first byte after each tensor of a file."""
    size = int.from_bytes(bytes(read(0, 8)), "little")
    header = json.loads(bytes(read(8, 8 + size)))
    header.pop("__metadata__", None)
    for tensor in sorted(header.values(), key=lambda row: row["data_offsets"]):
        begin, end = tensor["data_offsets"]
        yield 8 + size + begin, 8 + size + end


def main() -> None:
    """Run one loader once and print what it took as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(LOADERS))
    parser.add_argument("uri")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    settings = dict(text.split("=", 1) for text in options.set)
    delivered = Delivered(copies=settings.pop("copies", "") == "1")
    load = LOADERS[options.name](options.uri, settings)
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    details = load(delivered)
    wall_s, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    result = {
        "wall_s": wall_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "bytes": delivered.bytes,
        "tensors": delivered.tensors,
        "sample": delivered.sample,
        "peak_bytes": int(peak.split()[1]) * 1024,
        **details,
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # some have threads that take their time


if __name__ == "__main__":
    main()
