"""Where tensors lie and what is read: whatever the checkpoint, window, seal and selection, a load ends with every byte in place."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glowplug.weights.base import Checkpoint, Plan, TensorInfo, WeightFile
from glowplug.weights.buffer.window import Window
from glowplug.weights.fetch import plan as planning
from glowplug.weights.fetch.plan import least_memory_bytes, make_plan


@pytest.fixture(scope="module", autouse=True)
def _small_units():
    """Pages of 64 bytes and gaps of 40, so that small checkpoints meet every case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "_PAGE_BYTES", 64)
        patch.setattr(planning, "GAP_BYTES", 40)
        patch.setattr(planning, "_LEAST_CHUNK_BYTES", 16)
        yield


def checkpoint_of(*files: list[int], data_start: int = 24, trailing: int = 0, holes: int = 0) -> Checkpoint:
    """A checkpoint of tensors with these sizes."""
    weight_files = []
    tensors = []
    for index, sizes in enumerate(files):
        offset = data_start
        for number, size in enumerate(sizes):
            tensors.append(TensorInfo(f"f{index}.t{number}", "U8", (size,), index, offset, offset + size))
            offset += size + holes
        weight_files.append(WeightFile(f"m{index}.safetensors", offset + trailing, "e", data_start, ""))
    return Checkpoint("mem:", tuple(weight_files), tuple(tensors))


def content(checkpoint: Checkpoint) -> list[bytes]:
    return [random.Random(index).randbytes(file.size_bytes) for index, file in enumerate(checkpoint.files)]


class Load:
    """A fetch that completes its requests in any order, and readers at any pace; bytes are really moved."""

    def __init__(self, plan: Plan, block: int | None, readers: int, rng: random.Random) -> None:
        self.plan = plan
        self.block = block
        self.rng = rng
        self.files = content(plan.checkpoint)
        self.memory = bytearray(plan.ring_bytes)
        self.window = Window(plan, readers)
        self.next = 0
        self.flying: list[int] = []
        self.landed = [False] * len(plan.ranges)
        self.verified = 0
        for reader in range(readers):
            assert self.window.attach(reader, reader)
        self.places = dict.fromkeys(range(readers), 0)

    def blocks(self, index: int) -> range:
        piece = self.plan.ranges[index]
        origin = self.plan.checkpoint.files[piece.file].data_start
        return range((piece.start - origin) // self.block, (piece.end - 1 - origin) // self.block + 1)

    def is_verified(self, index: int) -> bool:
        if not self.landed[index]:
            return False
        piece = self.plan.ranges[index]
        if self.block is None:
            return True
        wanted = self.blocks(index)
        for other, fellow in enumerate(self.plan.ranges):
            if fellow.file == piece.file and (set(self.blocks(other)) & set(wanted)):
                if not self.landed[other]:
                    return False
                assert self.bytes_of(other) == self.files[fellow.file][fellow.start : fellow.end], (
                    "overwritten before it was verified"
                )
        return True

    def bytes_of(self, index: int) -> bytes:
        piece = self.plan.ranges[index]
        place = piece.position % self.plan.ring_bytes
        return bytes(self.memory[place : place + piece.size_bytes])

    def start_all(self) -> None:
        ranges = self.plan.ranges
        while self.next < len(ranges):
            end = ranges[self.next].position + ranges[self.next].size_bytes
            if end > self.window.floor + self.plan.ring_bytes:
                break
            self.flying.append(self.next)
            self.next += 1

    def land_one(self) -> None:
        index = self.flying.pop(self.rng.randrange(len(self.flying)))
        piece = self.plan.ranges[index]
        place = piece.position % self.plan.ring_bytes
        assert place + piece.size_bytes <= self.plan.ring_bytes, "a range crosses the ring's end"
        self.memory[place : place + piece.size_bytes] = self.files[piece.file][piece.start : piece.end]
        self.landed[index] = True
        while self.verified < len(self.plan.ranges) and self.is_verified(self.verified):
            self.verified += 1
            last = self.plan.ranges[self.verified - 1]
            self.window.completed(last.position + last.size_bytes)

    def complete(self) -> int:
        last = self.plan.ranges[self.verified - 1] if self.verified else None
        return last.position + last.size_bytes if last else 0

    def read_one(self, reader: int) -> bool:
        """Take or skip one tensor; False: it is not there yet."""
        tensor, position = self.plan.tensors[self.places[reader]]
        skips = self.rng.random() < 0.3
        if not skips and tensor.size_bytes:
            if position + tensor.size_bytes > self.complete():
                return False
            place = position % self.plan.ring_bytes
            assert place + tensor.size_bytes <= self.plan.ring_bytes, "a tensor crosses the ring's end"
            assert self.memory[place : place + tensor.size_bytes] == self.files[tensor.file][tensor.start : tensor.end], tensor
        self.places[reader] += 1
        following = self.places[reader]
        self.window.consume(
            reader, self.plan.tensors[following].position if following < len(self.plan.tensors) else self.plan.length
        )
        return True

    def run(self) -> None:
        while any(place < len(self.plan.tensors) for place in self.places.values()):
            self.start_all()
            busy = [reader for reader, place in self.places.items() if place < len(self.plan.tensors)]
            self.rng.shuffle(busy)
            moved = self.rng.random() < 0.5 and any(self.read_one(reader) for reader in busy)
            if not moved and self.flying:
                self.land_one()
                moved = True
            if not moved:
                moved = any(self.read_one(reader) for reader in busy)
                self.start_all()
            assert moved or self.flying, "the load stands still"


sizes = st.one_of(st.integers(0, 30), st.integers(0, 400), st.sampled_from([0, 1, 63, 64, 65, 128, 300]))
checkpoints = st.builds(
    lambda files, data_start, trailing, holes: checkpoint_of(*files, data_start=data_start, trailing=trailing, holes=holes),
    st.lists(st.lists(sizes, max_size=8), min_size=1, max_size=3),
    st.integers(10, 90),
    st.integers(0, 50),
    st.sampled_from([0, 0, 0, 3, 50]),
)


@settings(max_examples=600, deadline=None)
@given(
    checkpoint=checkpoints,
    memory=st.one_of(st.none(), st.integers(1, 1200)),
    chunk=st.integers(1, 200),
    block=st.sampled_from([None, None, 16, 64, 100]),
    skip=st.sampled_from([1, 2, 3]),
    readers=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@example(  # the first wanted tensor does not begin where its file's data does, and fills the whole window
    checkpoint=checkpoint_of([], [0, 62], data_start=10, holes=3), memory=1, chunk=1, block=None, skip=2, readers=1, seed=0
)
def test_every_load_ends_with_every_byte_in_its_place(checkpoint, memory, chunk, block, skip, readers, seed):
    wanted = None if skip == 1 else (lambda tensor: hash_of(tensor.name) % skip == 0)
    plan = make_plan(checkpoint, chunk_bytes=chunk, memory_bytes=memory, wanted=wanted, block_bytes=block)
    names = [tensor.name for tensor in checkpoint.tensors if wanted is None or wanted(tensor)]
    assert [placed.tensor.name for placed in plan.tensors] == names
    assert_well_formed(plan, block, whole=wanted is None)
    Load(plan, block, readers, random.Random(seed)).run()


def hash_of(name: str) -> int:
    return sum(name.encode())


def assert_well_formed(plan: Plan, block: int | None, *, whole: bool) -> None:
    assert plan.ring_bytes % 64 == 0
    assert plan.ring_bytes > 0
    positions = [placed.position for placed in plan.tensors]
    assert positions == sorted(positions)
    at = 0
    for piece in plan.ranges:
        assert piece.size_bytes > 0
        assert piece.position >= at
        at = piece.position + piece.size_bytes
    assert at <= plan.length
    read: list[set[int]] = [set() for _ in plan.checkpoint.files]
    for piece in plan.ranges:
        covered = set(range(piece.start, piece.end))
        assert not covered & read[piece.file], "read twice"
        read[piece.file] |= covered
        assert piece.end <= plan.checkpoint.files[piece.file].size_bytes
    for tensor, position in plan.tensors:
        assert set(range(tensor.start, tensor.end)) <= read[tensor.file]
        if plan.is_full and whole and tensor.size_bytes:
            assert position % 64 == (tensor.start - plan.checkpoint.files[tensor.file].data_start) % 64
    if block is not None:
        for file, found in zip(plan.checkpoint.files, read, strict=True):
            for offset in found:
                begin = file.data_start + (offset - file.data_start) // block * block
                assert set(range(begin, min(begin + block, file.size_bytes))) <= found, "a part of a sealed block is missing"


def test_one_request_holds_many_tensors_and_is_cut_at_multiples_of_the_chunk_from_the_data():
    plan = make_plan(checkpoint_of([10, 20, 30, 40, 50], data_start=24), chunk_bytes=64)
    assert [(piece.start, piece.end) for piece in plan.ranges] == [(24, 88), (88, 152), (152, 174)]
    assert plan.is_full
    assert plan.size_bytes == 150


def test_each_file_begins_aligned_and_its_own_offsets_decide_within():
    plan = make_plan(checkpoint_of([10, 20], [30]), chunk_bytes=1000)
    assert [placed.position for placed in plan.tensors] == [0, 10, 64]


def test_a_tensor_without_bytes_gets_a_place_and_no_request():
    plan = make_plan(checkpoint_of([0, 8, 0], [0]), chunk_bytes=100)
    assert [placed.tensor.size_bytes for placed in plan.tensors] == [0, 8, 0, 0]
    assert [piece.size_bytes for piece in plan.ranges] == [8]


def test_an_empty_checkpoint_has_a_plan():
    plan = make_plan(checkpoint_of([]), chunk_bytes=100, memory_bytes=10)
    assert (plan.length, plan.ranges, plan.is_full) == (0, (), True)
    assert plan.ring_bytes > 0


def test_a_small_gap_between_wanted_tensors_is_read_along_and_a_large_one_is_not():
    checkpoint = checkpoint_of([10, 30, 10, 50, 10])
    plan = make_plan(checkpoint, chunk_bytes=1000, wanted=lambda tensor: tensor.size_bytes == 10)
    assert [(piece.start - 24, piece.end - 24) for piece in plan.ranges] == [(0, 50), (100, 110)]


def test_a_window_is_raised_to_the_largest_tensor_and_no_further():
    checkpoint = checkpoint_of([10, 300, 20], [200, 290, 10])
    plan = make_plan(checkpoint, chunk_bytes=64, memory_bytes=64)
    assert plan.ring_bytes == 320
    assert not plan.is_full
    assert least_memory_bytes(checkpoint) == 320


def test_memory_that_holds_everything_is_full_mode_without_a_turn():
    checkpoint = checkpoint_of([10, 300, 20])
    assert make_plan(checkpoint, chunk_bytes=64, memory_bytes=100_000) == make_plan(checkpoint, chunk_bytes=64)


def test_a_sealed_window_has_room_for_a_block_that_begins_in_one_turn_and_ends_in_the_next():
    # The first tensor fills nearly the whole ring, and the second must begin the next turn, in the middle of a block.
    checkpoint = checkpoint_of([300, 300, 300], data_start=0)
    plan = make_plan(checkpoint, chunk_bytes=64, memory_bytes=64, block_bytes=64)
    assert 384 <= plan.ring_bytes <= 728
    Load(plan, 64, 1, random.Random(0)).run()


def test_a_small_window_cuts_smaller_requests_so_that_several_fit():
    checkpoint = checkpoint_of([100] * 40)
    plan = make_plan(checkpoint, chunk_bytes=512, memory_bytes=512)
    assert max(piece.size_bytes for piece in plan.ranges) <= 64


@pytest.mark.parametrize(("chunk", "block", "largest"), [(100, 64, 64), (130, 64, 128), (64, 100, 50), (30, 64, 16), (7, 97, 97)])
def test_requests_end_where_sealed_blocks_end(chunk, block, largest):
    plan = make_plan(checkpoint_of([1000]), chunk_bytes=chunk, block_bytes=block)
    assert max(piece.size_bytes for piece in plan.ranges) == largest
