"""Which files an engine has read, as the file system tells it."""

import os

import pytest
from cache_samples import ALL, MTIME_NS, make_tree, publish, start

from glowplug.cache.tree import scan
from glowplug.cache.usage import age_access_times, read_files, unread_atime_ns

PATHS = {"inductor/a", "inductor/b", "inductor/c"}


def keeps_access_times(folder):
    probe = folder / "probe"
    probe.write_bytes(b"x")
    os.utime(probe, ns=(unread_atime_ns(MTIME_NS), MTIME_NS))
    probe.read_bytes()
    shows = probe.stat().st_atime_ns > unread_atime_ns(MTIME_NS)
    probe.unlink()
    return shows


@pytest.fixture
def live(tmp_path):
    if not keeps_access_times(tmp_path):
        pytest.skip("this file system keeps no access times")
    return make_tree(tmp_path / "live", dict.fromkeys(sorted(PATHS), b"code"))


def marked(live):
    files = scan(live, ALL)
    age_access_times(live, files)
    return files


def test_only_what_was_read_since_counts(live):
    for name in PATHS:
        (live / name).read_bytes()  # before the engine
    files = marked(live)
    assert read_files(live, files) == set()
    (live / "inductor/b").read_bytes()
    assert read_files(live, files) == {"inductor/b"}


def test_marking_changes_no_modification_time(live):
    before = [file.mtime_ns for file in scan(live, ALL)]
    assert [file.mtime_ns for file in marked(live)] == before == [file.mtime_ns for file in scan(live, ALL)]


def test_mapped_files_count_as_read(live):
    import mmap

    files = marked(live)
    with open(live / "inductor/c", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:1] == b"c"
    assert read_files(live, files) == {"inductor/c"}


def test_a_look_at_names_and_metadata_is_no_reading(live):
    files = marked(live)
    os.listdir(live / "inductor")
    os.stat(live / "inductor/a")
    scan(live, ALL)
    assert read_files(live, files) == set()


def test_asking_leaves_no_trace(live):
    files = marked(live)
    assert read_files(live, files) == set()
    assert read_files(live, files) == set()


def test_a_restored_file_is_unread_until_it_is_read(store, live, tmp_path):
    publish(store, live)
    there = make_tree(tmp_path / "there", {})
    start(store, there)
    files = scan(there, ALL)
    assert read_files(there, files) == set()
    (there / "inductor/a").read_bytes()
    assert read_files(there, files) == {"inductor/a"}


def test_a_file_that_was_written_again_is_no_proof_of_reading(live):
    files = marked(live)
    (live / "inductor/a").write_bytes(b"compiled again")
    (live / "new").write_bytes(b"compiled again")
    (live / "new").replace(live / "inductor/b")
    assert read_files(live, files) == set()


def test_files_that_are_gone_do_not_count(live):
    files = marked(live)
    for name in PATHS:
        (live / name).unlink()
    assert read_files(live, files) == set()


def test_where_access_times_are_not_kept_the_answer_is_unknown(live):
    """A file opened without a trace (O_NOATIME) is what every file is like on a file system mounted so."""
    files = marked(live)
    real = open

    def without_trace(path, mode):
        return real(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOATIME))

    from glowplug.cache import usage

    usage.open = without_trace
    try:
        assert read_files(live, files) is None
    finally:
        del usage.open


def test_a_tree_without_content_proves_nothing_and_needs_no_probe(tmp_path):
    live = make_tree(tmp_path / "live", {"inductor/empty": b""})
    files = scan(live, ALL)
    age_access_times(live, files)
    assert read_files(live, files) == set()
    assert read_files(live, []) == set()
