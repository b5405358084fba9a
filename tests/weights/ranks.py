"""Ranks as real processes, and a fetch that needs no network."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import threading
from pathlib import Path

from glowplug.weights.base import Checkpoint, TensorInfo, WeightFile

PROGRAM = Path(__file__).with_name("rank_program.py")


class Rank:
    """One process; ends with the ``with`` block."""

    def __init__(self, path, rank=0, ranks=1, *, user=None, **behaviour):
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(path), str(rank), str(ranks), json.dumps(behaviour)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=user,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def hear(self):
        """The next thing it says; None at its end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """All it says from now on, the last thing first."""
        said = [json.loads(line) for line in self.process.stdout]
        self.process.wait()
        return said[-1] if said else None


def checkpoint_of(sizes, *, files=1):
    """A checkpoint that lies nowhere, with the bytes of its files."""
    weight_files, tensors, contents = [], [], []
    for number in range(files):
        at = 64
        for index, size in enumerate(sizes):
            tensors.append(TensorInfo(f"f{number}.t{index}", "U8", (size,), number, at, at + size))
            at += size
        weight_files.append(WeightFile(f"m{number}.safetensors", at, "e", 64, ""))
        contents.append(random.Random(number).randbytes(at))
    return Checkpoint("mem://model", tuple(weight_files), tuple(tensors)), contents


def digests_of(checkpoint, contents):
    return {
        tensor.name: hashlib.sha256(contents[tensor.file][tensor.start : tensor.end]).hexdigest() for tensor in checkpoint.tensors
    }


class Filler:
    """Fills the buffer in the order of the plan, as far as the floor and ``allow`` let it."""

    def __init__(self, plan, contents, memory, on_progress):
        self.plan, self.contents, self.memory, self.on_progress = plan, contents, memory, on_progress
        self.floor = 0
        self.allowed = len(plan.ranges)
        self.filled = 0
        self.bytes_read = 0
        self.changed = threading.Condition()
        self.stopped = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self.thread.start()

    def consumed(self, floor):
        with self.changed:
            self.floor = max(self.floor, floor)
            self.changed.notify_all()

    def allow(self, ranges):
        with self.changed:
            self.allowed = ranges
            self.changed.notify_all()

    def wait_filled(self, ranges):
        with self.changed:
            assert self.changed.wait_for(lambda: self.filled >= ranges, 20), f"{self.filled} of {ranges} ranges"

    def stop(self):
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        self.thread.join()

    def _run(self):
        for number, piece in enumerate(self.plan.ranges):
            end = piece.position + piece.size_bytes
            with self.changed:
                self.changed.wait_for(
                    lambda number=number, end=end: (
                        self.stopped or (number < self.allowed and end <= self.floor + self.plan.ring_bytes)
                    )
                )
                if self.stopped:
                    return
            place = piece.position % self.plan.ring_bytes
            self.memory[place : place + piece.size_bytes] = self.contents[piece.file][piece.start : piece.end]
            with self.changed:
                self.bytes_read += piece.size_bytes
                self.filled += 1
                self.changed.notify_all()
            self.on_progress(end)
