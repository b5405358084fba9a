"""The only rank of a node takes the buffer over: what its model has copied is given back while the rest is still being read."""

from __future__ import annotations

import gc
import hashlib
import os

import pytest

from glowplug.weights.buffer.client import BufferGone, attach
from tests.weights.test_service import KIB, Node

SIZES = [256 * KIB, 3, 512 * KIB, 0, 300 * KIB + 5, 128 * KIB, 1024 * KIB]
SMALL_CHANGE = 64 * KIB  # pages that two tensors share, and that the last one still has


@pytest.fixture
def node():
    with Node(sizes=SIZES, files=2) as node:
        node.filler.start()
        yield node


def held_bytes(node):
    """Of the buffer's pages, those that the system has."""
    descriptor = node.buffer.reader()
    try:
        return os.fstat(descriptor).st_blocks * 512
    finally:
        os.close(descriptor)


def attached(node, **options):
    return attach(node.path, rank=0, ranks=1, timeout_s=20, **{"takes_over": True, **options})


def test_pages_go_back_once_nobody_refers_to_them_and_every_byte_was_right(node):
    reader = attached(node)
    seen = {}
    for item in reader.tensors:
        view = reader.wait(item)
        seen[item.name] = hashlib.sha256(view).hexdigest()
        del view
    reader.finish()
    assert seen == node.expected
    gc.collect()
    assert held_bytes(node) < SMALL_CHANGE


def test_what_a_model_keeps_stays_as_it_was(node):
    reader = attached(node)
    kept = {item.name: reader.wait(item) for item in reader.tensors if item.number % 2 == 0}
    reader.finish()
    assert {name: hashlib.sha256(view).hexdigest() for name, view in kept.items()} == {
        name: digest for name, digest in node.expected.items() if name in kept
    }


def test_nobody_can_attach_to_what_is_being_given_back(node):
    reader = attached(node)
    reader.wait(reader.tensors[0])
    with pytest.raises(BufferGone, match="as the only rank"):
        attached(node)
    reader.finish()


@pytest.mark.parametrize("options", [{"private": False}, {"takes_over": False}])
def test_a_rank_that_does_not_ask_for_it_leaves_the_pages_to_others(node, options):
    reader = attached(node, **options)
    for item in reader.tensors:
        reader.wait(item)
    assert held_bytes(node) > sum(SIZES) - SMALL_CHANGE
    attached(node, **options).close()
    reader.finish()


def test_one_of_two_ranks_gives_nothing_back():
    with Node(sizes=SIZES, ranks=2) as node:
        node.filler.start()
        reader = attach(node.path, rank=0, ranks=2, timeout_s=20, takes_over=True)
        for item in reader.tensors:
            reader.wait(item)
        other = attach(node.path, rank=1, ranks=2, timeout_s=20, takes_over=True)
        assert {item.name: hashlib.sha256(other.wait(item)).hexdigest() for item in other.tensors} == node.expected
        other.finish()
        reader.finish()
