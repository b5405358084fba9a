"""Sealed digests while fetching: no position is complete before its block was compared."""

from __future__ import annotations

import hashlib
import threading

import pytest

from glowplug.errors import IntegrityError
from glowplug.weights.fetch.blocks import Blocks
from glowplug.weights.fetch.plan import make_plan
from glowplug.weights.sources.s3 import S3Source
from testbed.range_faults import CORRUPT, RESET, STALL
from tests.weights.fetches import KIB, QUICK, Model, loading

BLOCK = 96 * KIB


class Sealed:
    """A verifier that knows the model's bytes. ``block_bytes`` does not divide the tensors."""

    block_bytes = BLOCK

    def __init__(self, model):
        self.checked = []
        self._digests = [
            [hashlib.sha256(content[at : at + BLOCK]).digest() for at in range(0, len(content), BLOCK)]
            for content in model.contents
        ]

    def check(self, file, block, pieces):
        self.checked.append((file, block))
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        return digest.digest() == self._digests[file][block]


@pytest.fixture
def model(tmp_path):
    return Model(tmp_path, files=2)


def load(model, server, **how):
    return loading(model, S3Source("s3://bucket/m", env=server.env), QUICK, verifier=Sealed(model), **how)


def of_load(call):
    return call.ranged and call.end - call.start > 1


@pytest.mark.parametrize("chunk_bytes", [16 * KIB, BLOCK, 512 * KIB], ids=["parts", "blocks", "many"])
@pytest.mark.parametrize("memory_bytes", [None, 600 * KIB], ids=["full", "windowed"])
def test_every_block_is_compared_once(model, range_server, chunk_bytes, memory_bytes):
    with load(model, range_server(model.served), chunk_bytes=chunk_bytes, memory_bytes=memory_bytes) as running:
        stats = running.read()
    assert stats.verified
    checked = running.fetcher._verifier.checked
    assert sorted(checked) == sorted({(file, block) for file in range(2) for block in range(-(-len(model.contents[0]) // BLOCK))})


@pytest.mark.parametrize("memory_bytes", [None, 600 * KIB], ids=["full", "windowed"])
def test_a_wrong_byte_is_fetched_again_and_never_handed_out(model, range_server, memory_bytes):
    lock, left = threading.Lock(), [3]

    def choose(call):
        with lock:
            if of_load(call) and call.start > 300 * KIB and left[0]:
                left[0] -= 1
                return CORRUPT
        return None

    with load(model, range_server(model.served, faults=choose), memory_bytes=memory_bytes) as running:
        stats = running.read()  # compares every byte
    assert stats.bytes == model.size_bytes
    assert stats.bytes_read > model.size_bytes


def test_bytes_that_stay_wrong_end_in_one_error_that_names_object_and_range(model, range_server):
    at = model.starts[1] + 2 * BLOCK
    name = "model-1.safetensors"

    def choose(call):
        return CORRUPT if of_load(call) and call.key.endswith(name) and at <= call.start < at + BLOCK else None

    with load(model, range_server(model.served, faults=choose)) as running:
        with pytest.raises(IntegrityError, match="not what was sealed, in 3 attempts") as caught:
            running.read()
        assert running.fetcher.complete <= running.plan.length // 2 + 2 * BLOCK + 64 * KIB
    assert f"s3://bucket/m/{name}, bytes {at}-{at + BLOCK - 1}" in caught.value.message
    assert caught.value.hint


def test_a_storm_of_wrong_bytes_stalls_and_resets_lets_none_through(model, range_server):
    asked, lock = set(), threading.Lock()

    def choose(call):
        """Each range goes wrong the first time or not at all, so that no block does three times."""
        with lock:
            first = of_load(call) and call.end not in asked
            asked.add(call.end)
        return {0: CORRUPT, 1: CORRUPT, 2: RESET, 3: STALL}.get(call.end // KIB % 23) if first else None

    server = range_server(model.served)
    with load(model, server, chunk_bytes=32 * KIB, memory_bytes=800 * KIB) as running:
        server.behaviour.faults = choose
        running.read()
    assert server.stats().faults["corrupt"] > 2


def test_a_plan_that_leaves_a_part_of_a_block_out_is_refused(model, range_server):
    source = S3Source("s3://bucket/m", env=range_server(model.served).env)
    plan = make_plan(model.checkpoint(source), chunk_bytes=BLOCK, wanted=lambda tensor: tensor.name != "f0.t0")
    with pytest.raises(ValueError, match="does not cover"):
        Blocks(plan, BLOCK)
