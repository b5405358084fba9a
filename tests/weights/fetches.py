"""A checkpoint of chance bytes on a server or a disk, and loads of it through the real fetcher, with every byte compared."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager

from glowplug.weights.base import Checkpoint, TensorInfo, WeightFile
from glowplug.weights.fetch.fetcher import Fetcher
from glowplug.weights.fetch.plan import make_plan
from glowplug.weights.fetch.settings import FetchSettings
from tests.weights.weights_samples import header_bytes

KIB, MIB = 1024, 1024 * 1024
QUICK = FetchSettings(low_speed_window_s=0.6, attempts=4)
"""Patience for tests: a stalled request is given up soon."""


class Model:
    """Files of chance bytes below ``folder/bucket/m``.

    ``data``: everything but the headers, in the order of the files.
    """

    def __init__(self, folder, *, files=1, tensors=8, tensor_bytes=256 * KIB, seed=0):
        chance = random.Random(seed)
        self.served = folder
        self.path = folder / "bucket" / "m"
        self.path.mkdir(parents=True, exist_ok=True)
        self.names, self.starts, self.contents = [], [], []
        for number in range(files):
            name = f"model-{number}.safetensors" if files > 1 else "model.safetensors"
            spans = [[index * tensor_bytes, (index + 1) * tensor_bytes] for index in range(tensors)]
            header = header_bytes(
                {f"f{number}.t{i}": {"dtype": "U8", "shape": [tensor_bytes], "data_offsets": span} for i, span in enumerate(spans)}
            )
            data = chance.randbytes(tensors * tensor_bytes)
            (self.path / name).write_bytes(header + data)
            self.names.append(name)
            self.starts.append(len(header))
            self.contents.append(data)
        self.tensors, self.tensor_bytes = tensors, tensor_bytes

    @property
    def data(self):
        return b"".join(self.contents)

    @property
    def size_bytes(self):
        return sum(len(content) for content in self.contents)

    def checkpoint(self, source):
        """As ``checkpoint.open_checkpoint`` would make it, from the source's own listing."""
        entries = {entry.name: entry for entry in source.entries()}
        files, tensors = [], []
        for number, (name, start) in enumerate(zip(self.names, self.starts, strict=True)):
            entry = entries[name]
            files.append(WeightFile(name, entry.size_bytes, entry.etag, start, "0" * 64))
            for index in range(self.tensors):
                begin = start + index * self.tensor_bytes
                tensors.append(
                    TensorInfo(f"f{number}.t{index}", "U8", (self.tensor_bytes,), number, begin, begin + self.tensor_bytes)
                )
        return Checkpoint(source.uri, tuple(files), tuple(tensors))


class Load:
    """A fetcher at work, and a reader that takes tensor after tensor and compares it."""

    def __init__(self, model, source, settings=QUICK, *, chunk_bytes=64 * KIB, memory_bytes=None, verifier=None):
        self.model, self.source = model, source
        block_bytes = verifier.block_bytes if verifier else None
        self.plan = make_plan(model.checkpoint(source), chunk_bytes=chunk_bytes, memory_bytes=memory_bytes, block_bytes=block_bytes)
        self.memory = bytearray(self.plan.ring_bytes)
        self.told, self.errors = [], []
        self.fetcher = Fetcher(
            source,
            self.plan,
            memoryview(self.memory),
            settings,
            verifier=verifier,
            on_progress=self.told.append,
            on_error=self.errors.append,
            write=self._write if memory_bytes is None else None,  # as a host buffer has it: written in full, received into a window
        )

    def _write(self, offset, data):
        self.memory[offset : offset + data.nbytes] = data

    def read(self, *, timeout_s=60):
        """Every tensor's bytes, in order; gives its memory back, overwritten, as soon as it was copied."""
        wanted, taken = self.model.data, 0
        for placed in self.plan.tensors:
            tensor, end = placed.tensor, placed.position + placed.tensor.size_bytes
            assert self.fetcher.wait(end, timeout_s) >= end, "not there in time"
            place = placed.position % self.plan.ring_bytes
            got = bytes(self.memory[place : place + tensor.size_bytes])
            assert got == wanted[taken : taken + len(got)], f"wrong bytes in {tensor.name}"
            taken += len(got)
            self.fetcher.consumed(end)
        assert taken == len(wanted)
        return self.fetcher.stats()


@contextmanager
def loading(*args, **kwargs):
    """A load that has begun. Afterwards no thread of it is left, and nothing holds its memory."""
    load = Load(*args, **kwargs)
    load.fetcher.start()
    try:
        yield load
    finally:
        load.fetcher.close()
        load.source.close()
        assert not fetch_threads()
        load.memory.clear()  # raises BufferError if a view of it is left


def fetch_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("glowplug-fetch")]
