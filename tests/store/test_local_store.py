"""What only a store in a folder can get wrong: modes, links, full disks, rights, other processes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import multiprocessing
import os
import shutil
import stat
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from glowplug import temporary
from glowplug.errors import (
    ConditionalWritesUnsupported,
    Forbidden,
    LocalError,
    ObjectNotFound,
    PreconditionFailed,
    Unreachable,
    UsageError,
)
from glowplug.store import local, local_errors
from glowplug.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path):
    return tmp_path / "not" / "yet" / "there"


@pytest.fixture
def store(root):
    return LocalStore(root, url=str(root))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_root_is_private_and_below_it_the_umask_decides(root, store):
    old = os.umask(0o027)
    try:
        store.put("d/k", b"x")
        store.put_if_absent("d/l", b"x")
    finally:
        os.umask(old)
    assert mode(root) == 0o700
    assert mode(root / "d") == 0o750
    assert mode(root / "d/k") == mode(root / "d/l") == 0o640


def test_a_root_that_was_there_keeps_its_mode(root, store):
    root.mkdir(parents=True)
    root.chmod(0o775)
    store.put("k", b"x")
    assert mode(root) == 0o775


def test_reading_creates_nothing(root, store):
    with pytest.raises(ObjectNotFound):
        store.get("k")
    store.delete("k")
    assert list(store.list("")) == []
    assert not root.parent.exists()


def test_a_file_in_place_of_the_store_is_no_empty_store(tmp_path):
    root = tmp_path / "root"
    root.write_bytes(b"something else")
    store = LocalStore(root, url=str(root))
    for act in (lambda: store.get("k"), lambda: store.head("k"), lambda: store.list(""), lambda: store.put("k", b"x")):
        with pytest.raises(LocalError, match="is a file, and a store is a folder"):
            act()


def test_nothing_is_left_in_the_spool(store, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x")
    etag = store.put("k", b"x")
    store.put_if_match("k", b"y", etag)
    store.put_file("f", file, sha256=hashlib.sha256(b"x").hexdigest())
    for lost in (lambda: store.put_if_absent("k", b"z"), lambda: store.put_if_match("k", b"z", etag)):
        with pytest.raises(PreconditionFailed):
            lost()
    assert list(store.spool.iterdir()) == []


def test_the_spool_is_swept_of_what_nobody_holds_by_the_next_who_writes(root, store):
    store.put("k", b"x")
    held, left = store.spool / "held", store.spool / "left"
    left.touch()
    with open(temporary.create(held), "wb"):
        LocalStore(root, url="").put("another", b"x")
        assert set(store.spool.iterdir()) == {held}
    LocalStore(root, url="").put("another", b"y")
    assert set(store.spool.iterdir()) == set()


def test_a_moved_file_is_dated_by_the_move(store):
    file = store.spool / "pack"
    file.write_bytes(b"x")
    os.utime(file, (1, 1))
    store.put_file("k", file, sha256=hashlib.sha256(b"x").hexdigest())
    assert abs(store.head("k").modified_s - time.time()) < 5


def test_an_inode_used_again_within_a_tick_of_the_clock_has_another_etag(store, monkeypatch):
    # Many kernels' clocks tick every few milliseconds, and a file system may give a freed inode out at once.
    file = store.spool / "file"
    file.touch()
    set_times = os.utime
    monkeypatch.setattr(os, "utime", lambda path, ns=(10**18, 10**18): set_times(path, ns=ns))
    assert len({local._stamp(file) for _ in range(50)}) == 50


@pytest.mark.parametrize("operation", ["get", "head", "read_into"])
def test_a_link_is_no_object(root, store, tmp_path, operation):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    store.put("d/k", b"x")
    (root / "d" / "link").symlink_to(secret)
    (root / "e").symlink_to(tmp_path)
    assert [info.key for info in store.list("")] == ["d/k"]
    more = (0, memoryview(bytearray(1))) if operation == "read_into" else ()
    with pytest.raises(ObjectNotFound, match="d/link"):
        getattr(store, operation)("d/link", *more)


@pytest.mark.parametrize("key", ["d", "d/k/deeper", "pipe"])
def test_a_folder_and_what_is_below_a_file_are_no_objects(root, store, key):
    store.put("d/k", b"x")
    os.mkfifo(root / "pipe")
    for call in (store.get, store.head):
        with pytest.raises(ObjectNotFound):
            call(key)


def test_foreign_files_are_not_listed(root, store):
    store.put("k", b"x")
    (root / "a file").touch()
    (root / "no key~").touch()
    assert [info.key for info in store.list("")] == ["k"]


def test_an_object_cannot_stand_below_another(store):
    store.put("a", b"x")
    with pytest.raises(LocalError, match="a/b"):
        store.put("a/b", b"x")
    store.put("c/d", b"x")
    with pytest.raises(LocalError):
        store.put("c", b"x")
    assert list(store.spool.iterdir()) == []


def test_a_name_that_the_file_system_cannot_hold_is_refused(store):
    with pytest.raises(UsageError, match="too long"):
        store.put("x" * 300, b"x")


def test_a_missing_file_is_named_and_not_the_object(store, tmp_path):
    with pytest.raises(LocalError, match="nowhere: No such file"):
        store.put_file("k", tmp_path / "nowhere", sha256="0" * 64)


@pytest.mark.parametrize(
    "operation",
    [
        lambda store: store.get("k"),
        lambda store: store.head("k"),
        lambda store: list(store.list("")),
        lambda store: store.put("k2", b"x"),
        lambda store: store.put_if_absent("k2", b"x"),
        lambda store: store.put_if_match("k", b"x", '"1"'),
        lambda store: store.delete("k"),
        lambda store: store.spool,
    ],
    ids=["get", "head", "list", "put", "put_if_absent", "put_if_match", "delete", "spool"],
)
def test_a_folder_without_rights_is_forbidden(store, operation, as_nobody):
    store.put("k", b"x")
    with as_nobody(), pytest.raises(Forbidden, match="Permission denied") as caught:
        operation(store)
    assert "right" in caught.value.hint


@pytest.fixture
def as_nobody():
    """Root may do anything, so these tests give it up for a while. pytest's folders are closed to others."""

    @contextlib.contextmanager
    def switch():
        if os.geteuid():
            pytest.skip("needs root, to be nobody for a while")
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return switch


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("needs root, to mount a small file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "glowplug-test", folder], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"can't mount: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("operation", ["put", "put_if_absent", "put_file"])
def test_a_full_disk_is_named_and_nothing_half_written_is_left(small_disk, tmp_path, operation):
    store = LocalStore(small_disk / "store", url="")
    store.put("k", b"before")
    file = tmp_path / "file"
    file.write_bytes(bytes(1_000_000))
    arguments = (file,) if operation == "put_file" else (bytes(1_000_000),)
    digest = {"sha256": "0" * 64} if operation == "put_file" else {}
    with pytest.raises(LocalError, match=r"disk full while writing .*/k2") as caught:
        getattr(store, operation)("k2", *arguments, **digest)
    assert "free space" in caught.value.hint
    assert [info.key for info in store.list("")] == ["k"]
    assert list(store.spool.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, ObjectNotFound),
        (errno.EROFS, Forbidden),
        (errno.EDQUOT, LocalError),
        (errno.EIO, Unreachable),
        (errno.ESTALE, Unreachable),
        (errno.EMFILE, LocalError),
    ],
)
def test_every_error_of_the_system_becomes_one_of_ours(number, kind):
    with pytest.raises(kind, match="the/path"), local_errors.named("the/path"):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/nowhere", path)], ids=["folder", "pipe", "link"])
def test_what_is_no_file_is_not_taken_for_somebody_elses_object(root, store, make):
    store.put("v1/there", b"")
    make(root / "v1" / "latest")
    with pytest.raises(LocalError, match="v1/latest is no file") as caught:
        store.put_if_absent("v1/latest", b"x")
    assert caught.value.hint == "remove it"


def test_a_file_system_without_links_says_so(store, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ConditionalWritesUnsupported, match="no hard links"):
        store.put_if_absent("k", b"x")
    assert list(store.list("")) == []


def _add(root, count):
    store = LocalStore(root, url="")
    for _ in range(count):
        while True:
            blob = store.get("counter")
            try:
                store.put_if_match("counter", b"%d" % (int(blob.data) + 1), blob.etag)
            except PreconditionFailed:
                continue
            break


def test_processes_do_not_lose_each_others_steps(root, store):
    store.put("counter", b"0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add, args=(root, 50)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert store.get("counter").data == b"150"


def test_puts_and_deletes_of_one_folder_do_not_trip_over_each_other(store):
    from concurrent.futures import ThreadPoolExecutor

    def work(number):
        for _ in range(100):
            store.put(f"d/e/{number}", b"x")
            store.delete(f"d/e/{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert list(store.list("")) == []
