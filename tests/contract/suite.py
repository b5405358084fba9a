"""What every store must do, whatever it is made of.

A backend passes it by subclassing ``StoreContract`` and saying how a store is made. ``make_store`` is called with a prefix, so that
isolation between neighbours can be shown; two stores of one prefix share their objects, as two processes do.
"""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from glowplug.errors import (
    ObjectChanged,
    ObjectNotFound,
    PreconditionFailed,
    TooLarge,
    Unreachable,
    UsageError,
)
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from glowplug.store.base import Store

WRITERS = 16
BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/.",
    "a b",
    "a\\b",
    "a\nb",
    "ä",
    "a?b",
    "a%2e",
    "a\0b",
    ".glowplug/x",
    "a/.glowplug/x",
]


class StoreContract:
    """Subclass as ``Test...`` and override ``make_store``."""

    rounds = 20
    listed = 1105
    large_bytes = 70 * MIB + 12345

    def make_store(self, prefix: str) -> Store:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _fresh_prefix(self, request):
        name = f"{type(self).__name__}-{request.node.name}-{time.time_ns()}"
        self.prefix = hashlib.sha256(name.encode()).hexdigest()[:16]

    @pytest.fixture
    def store(self) -> Store:
        return self.make_store(self.prefix)

    # --- reading and writing

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000], ids=["empty", "one-byte", "1.2MB"])
    def test_what_is_put_is_got(self, store, data):
        etag = store.put("dir/a.json", data)
        blob = store.get("dir/a.json")
        assert blob.data == data
        assert blob.etag == etag != ""

    def test_another_client_sees_what_is_put(self, store):
        etag = store.put("a", b"one")
        assert self.make_store(self.prefix).get("a") == (b"one", etag)

    def test_every_allowed_character_is_kept_apart(self, store):
        keys = ["a=1/b", "a.b_c-d", "a-b", "a_b", "a.b", "A.B", "..a", "a..", "0/1/2/3/4/5/6", "x=y=z"]
        for key in keys:
            store.put(key, key.encode())
        assert {key: store.get(key).data for key in keys} == {key: key.encode() for key in keys}
        assert [info.key for info in store.list("")] == sorted(keys)

    def test_put_replaces_and_changes_the_etag(self, store):
        seen = {store.put("a", str(n).encode()) for n in range(20)}
        assert len(seen) == 20
        assert store.get("a").data == b"19"
        assert store.head("a").etag == store.get("a").etag

    def test_an_object_of_equal_length_has_another_etag(self, store):
        assert store.put("a", b"one") != store.put("a", b"two")

    def test_head_tells_size_etag_and_age_without_reading(self, store):
        before = time.time()
        etag = store.put("a", b"12345")
        info = store.head("a")
        assert (info.key, info.size_bytes, info.etag) == ("a", 5, etag)
        assert before - 5 < info.modified_s < time.time() + 5

    def test_age_is_that_of_the_last_write(self, store):
        store.put("a", b"1")
        first = store.head("a").modified_s
        time.sleep(1.1)  # some servers count in whole seconds
        store.put("a", b"2")
        assert store.head("a").modified_s > first

    @pytest.mark.parametrize("operation", ["get", "head", "read_into"])
    def test_a_missing_object_is_named(self, store, operation):
        store.put("there", b"1")
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: store.get("gone/away"),
            "head": lambda: store.head("gone/away"),
            "read_into": lambda: store.read_into("gone/away", 0, memoryview(bytearray(1))),
        }
        with pytest.raises(ObjectNotFound, match="gone/away"):
            calls[operation]()

    @pytest.mark.parametrize("operation", ["get", "head", "list"])
    def test_a_store_that_nobody_has_written_to_is_empty(self, store, operation):
        if operation == "list":
            assert list(store.list("")) == []
            return
        with pytest.raises(ObjectNotFound):
            getattr(store, operation)("a")

    def test_delete_removes_and_nothing_there_is_no_error(self, store):
        store.put("d/a", b"1")
        store.put("d/b", b"2")
        store.delete("d/a")
        store.delete("d/a")
        store.delete("never/was")
        assert [info.key for info in store.list("")] == ["d/b"]
        with pytest.raises(ObjectNotFound):
            store.get("d/a")

    def test_a_key_can_be_written_again_after_its_folder_emptied(self, store):
        for n in range(5):
            store.put("deep/er/a", b"%d" % n)
            store.delete("deep/er/a")
        store.put("deep/er/a", b"last")
        assert store.get("deep/er/a").data == b"last"

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_a_key_outside_the_rule_is_refused_by_every_method(self, store, key, tmp_path):
        file = tmp_path / "file"
        file.write_bytes(b"x")
        for call in (
            lambda: store.get(key),
            lambda: store.head(key),
            lambda: store.read_into(key, 0, memoryview(bytearray(1))),
            lambda: store.put(key, b"x"),
            lambda: store.put_file(key, file, sha256=hashlib.sha256(b"x").hexdigest()),
            lambda: store.put_if_absent(key, b"x"),
            lambda: store.put_if_match(key, b"x", '"1"'),
            lambda: store.delete(key),
        ):
            with pytest.raises(UsageError):
                call()
        assert list(store.list("")) == []

    def test_an_object_that_is_too_large_to_be_read_whole_is_not_read(self, store):
        store.put("a", bytes(101))
        with pytest.raises(TooLarge, match="101 bytes, more than 100"):
            store.get("a", most_bytes=100)
        assert store.get("a", most_bytes=101).data == bytes(101)

    # --- ranges

    def test_read_into_fills_a_buffer_from_anywhere_and_tells_the_whole_length(self, store):
        data = bytes(range(256)) * 4096
        etag = store.put("a", data)
        for start, size in [(0, 1), (0, len(data)), (1, 7), (65_535, 131_073), (len(data) - 1, 1)]:
            buffer = bytearray(b"?" * (size + 2))
            assert store.read_into("a", start, memoryview(buffer)[1:-1], if_match=etag) == len(data)
            assert buffer == b"?" + data[start : start + size] + b"?"

    def test_an_empty_buffer_asks_for_nothing(self, store):
        store.read_into("not-even-there", 5, memoryview(b""))

    def test_a_buffer_of_wider_items_is_filled_by_bytes(self, store):
        store.put("a", bytes(range(16)))
        buffer = bytearray(16)
        store.read_into("a", 0, memoryview(buffer).cast("I"))
        assert buffer == bytes(range(16))

    @pytest.mark.parametrize("start", [1, 9, 10, 1000])
    def test_a_range_past_the_end_is_an_error_not_a_short_read(self, store, start):
        store.put("a", b"0123456789")
        with pytest.raises(Unreachable, match=r"\ba\b"):
            store.read_into("a", start, memoryview(bytearray(10)))

    def test_a_read_pinned_to_an_etag_notices_a_replacement(self, store):
        old = store.put("a", b"old content")
        store.put("a", b"new content")
        with pytest.raises(ObjectChanged, match=r"\ba\b"):
            store.read_into("a", 0, memoryview(bytearray(11)), if_match=old)

    def test_a_read_pinned_to_an_etag_notices_a_removal(self, store):
        old = store.put("a", b"old content")
        store.delete("a")
        with pytest.raises(ObjectNotFound):
            store.read_into("a", 0, memoryview(bytearray(11)), if_match=old)

    def test_threads_read_their_own_ranges(self, store):
        data = hashlib.sha256(b"seed").digest() * 32_768  # 1 MiB
        store.put("a", data)
        target = bytearray(len(data))
        step = 50_000

        def read(start):
            store.read_into("a", start, memoryview(target)[start : start + step])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(read, range(0, len(data), step)))
        assert target == data

    # --- files

    def test_put_file_leaves_a_foreign_file_alone(self, store, tmp_path):
        file = tmp_path / "file"
        file.write_bytes(b"content")
        etag = store.put_file("d/a", file, sha256=hashlib.sha256(b"content").hexdigest())
        assert store.get("d/a") == (b"content", etag)
        assert file.read_bytes() == b"content"

    def test_put_file_moves_a_file_of_the_spool(self, store):
        spool = store.spool
        if spool is None:
            pytest.skip("this store has no spool")
        file = spool / "pack.tmp"
        file.write_bytes(b"content")
        inode = file.stat().st_ino
        etag = store.put_file("d/a", file, sha256=hashlib.sha256(b"content").hexdigest())
        assert not file.exists()
        assert store.get("d/a") == (b"content", etag)
        assert f"{inode:x}" in etag  # moved, not copied: the local store's ETag holds the inode

    def test_put_file_of_an_empty_file(self, store, tmp_path):
        file = tmp_path / "empty"
        file.touch()
        store.put_file("a", file, sha256=hashlib.sha256(b"").hexdigest())
        assert store.head("a").size_bytes == 0

    def test_a_large_file_arrives_whole(self, store, tmp_path):
        file, digest = write_pattern(tmp_path / "large", self.large_bytes)
        etag = store.put_file("packs/large", file, sha256=digest)
        info = store.head("packs/large")
        assert (info.size_bytes, info.etag) == (self.large_bytes, etag)
        target = bytearray(self.large_bytes)
        step = 8 * MIB
        for start in range(0, self.large_bytes, step):
            store.read_into("packs/large", start, memoryview(target)[start : start + step], if_match=etag)
        assert hashlib.sha256(target).hexdigest() == digest

    def test_put_file_replaces_and_changes_the_etag(self, store, tmp_path):
        first, second = tmp_path / "1", tmp_path / "2"
        first.write_bytes(b"one")
        second.write_bytes(b"two")
        old = store.put_file("a", first, sha256=hashlib.sha256(b"one").hexdigest())
        new = store.put_file("a", second, sha256=hashlib.sha256(b"two").hexdigest())
        assert old != new
        assert store.get("a") == (b"two", new)

    # --- lists

    def test_list_is_in_key_order_and_by_the_beginning_of_the_key(self, store):
        for key in ["b", "a/2", "a/1", "a-1", "a.1", "a/b/c", "ab", "a0"]:
            store.put(key, key.encode())
        assert [info.key for info in store.list("")] == ["a-1", "a.1", "a/1", "a/2", "a/b/c", "a0", "ab", "b"]
        assert [info.key for info in store.list("a/")] == ["a/1", "a/2", "a/b/c"]
        assert [info.key for info in store.list("a/b")] == ["a/b/c"]
        assert [info.key for info in store.list("a")] == ["a-1", "a.1", "a/1", "a/2", "a/b/c", "a0", "ab"]
        assert list(store.list("nothing/here")) == []

    def test_list_tells_what_head_tells(self, store):
        store.put("d/a", b"12345")
        (listed,) = store.list("d/")
        head = store.head("d/a")
        assert (listed.key, listed.size_bytes, listed.etag) == (head.key, head.size_bytes, head.etag)
        assert abs(listed.modified_s - head.modified_s) < 2

    @pytest.mark.parametrize("prefix", ["..", "../", "a/../b", "/a", "a//", "a b", "*"])
    def test_list_refuses_a_prefix_that_leaves_the_store(self, store, prefix):
        with pytest.raises(UsageError):
            list(store.list(prefix))

    def test_list_goes_on_past_a_page(self, store):
        keys = [f"k/{n:05}" for n in range(self.listed)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), keys))
        assert [info.key for info in store.list("k/")] == keys

    def test_neighbouring_prefixes_never_meet(self):
        inner, neighbour, outer = (self.make_store(f"{self.prefix}{suffix}") for suffix in ("/a", "/ab", ""))
        neighbour.put("x", b"neighbour")
        inner.put("x", b"inner")
        assert [info.key for info in inner.list("")] == ["x"]
        assert [info.key for info in outer.list("")] == ["a/x", "ab/x"]
        assert inner.get("x").data == b"inner"
        inner.delete("x")
        assert neighbour.get("x").data == b"neighbour"

    # --- conditional writes

    def test_put_if_absent_writes_once(self, store):
        etag = store.put_if_absent("d/a", b"first")
        with pytest.raises(PreconditionFailed, match="d/a"):
            store.put_if_absent("d/a", b"second")
        assert store.get("d/a") == (b"first", etag)

    def test_put_if_absent_succeeds_again_after_a_delete(self, store):
        store.put_if_absent("a", b"first")
        store.delete("a")
        store.put_if_absent("a", b"second")
        assert store.get("a").data == b"second"

    def test_put_if_match_replaces_what_was_read(self, store):
        old = store.put("a", b"1")
        new = store.put_if_match("a", b"2", old)
        assert store.get("a") == (b"2", new)
        with pytest.raises(PreconditionFailed, match=r"\ba\b"):
            store.put_if_match("a", b"3", old)
        assert store.get("a").data == b"2"

    def test_put_if_match_of_a_missing_object_loses(self, store):
        etag = store.put("a", b"1")
        store.delete("a")
        with pytest.raises(PreconditionFailed):
            store.put_if_match("a", b"2", etag)
        with pytest.raises(ObjectNotFound):
            store.get("a")

    def test_what_the_store_keeps_for_itself_is_never_listed(self, store):
        store.put_if_absent("a", b"1")
        store.put_if_match("a", b"2", store.head("a").etag)
        _ = store.spool
        assert [info.key for info in store.list("")] == ["a"]

    def test_one_of_sixteen_creates(self):
        for round_ in range(self.rounds):
            key = f"lease-{round_}"
            won = race(lambda n, key=key: self.make_store(self.prefix).put_if_absent(key, b"writer %d" % n))
            assert len(won) == 1
            assert self.make_store(self.prefix).get(key) == (b"writer %d" % won[0][0], won[0][1])

    def test_one_of_sixteen_replaces(self):
        etag = self.make_store(self.prefix).put("pointer", b"start")
        for round_ in range(self.rounds):
            current = etag
            won = race(
                lambda n, etag=current, round_=round_: self.make_store(self.prefix).put_if_match(
                    "pointer", b"round %d writer %d" % (round_, n), etag
                )
            )
            assert len(won) == 1
            etag = won[0][1]
            assert self.make_store(self.prefix).get("pointer") == (b"round %d writer %d" % (round_, won[0][0]), etag)

    def test_a_counter_that_all_threads_raise_loses_no_step(self, store):
        store.put("counter", b"0")

        def add_one(_):
            while True:
                blob = store.get("counter")
                try:
                    store.put_if_match("counter", b"%d" % (int(blob.data) + 1), blob.etag)
                except PreconditionFailed:
                    continue
                return

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(add_one, range(20)))
        assert store.get("counter").data == b"20"

    def test_readers_see_the_old_or_the_new_and_never_a_part(self, store):
        contents = [bytes([n]) * 300_000 for n in range(4)]
        store.put("a", contents[0])
        done = threading.Event()
        torn: list[bytes] = []

        def read():
            while not done.is_set():
                data = store.get("a").data
                if data not in contents:
                    torn.append(data)

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for n in range(40):
                store.put("a", contents[n % 4])
            done.set()
            for reader in readers:
                reader.result()
        assert torn == []


def race(write: Callable[[int], str]) -> list[tuple[int, str]]:
    """Let all writers start at once; who won, and with which ETag."""
    barrier = threading.Barrier(WRITERS)

    def run(number: int) -> tuple[int, str] | None:
        barrier.wait()
        try:
            return number, write(number)
        except PreconditionFailed:
            return None

    with ThreadPoolExecutor(WRITERS) as pool:
        return [result for result in pool.map(run, range(WRITERS)) if result]


def write_pattern(path: Path, size_bytes: int) -> tuple[Path, str]:
    """A file whose every part differs, and its digest."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        left, number = size_bytes, 0
        while left:
            block = (hashlib.sha256(b"%d" % number).digest() * 32_768)[:left]
            file.write(block)
            digest.update(block)
            left -= len(block)
            number += 1
    return path, digest.hexdigest()
