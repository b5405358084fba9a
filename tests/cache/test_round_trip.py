"""A tree that is captured here and restored there is the same tree."""

import hashlib
import os
import shutil
import subprocess
import sys

import pytest
from cache_samples import (
    ALL,
    DIGEST,
    MTIME_NS,
    SMALL_TREE,
    entry,
    latest_pack,
    leftovers,
    make_tree,
    piece_sizes,
    publish,
    snapshot,
    start,
    unpacked_names,
)

from glowplug.cache.manifest import MAX_BYTES, Manifest
from glowplug.cache.pack import member_header
from glowplug.cache.repository import Repository
from glowplug.cache.tree import scan


def round_trip(store, tmp_path, content):
    here, there = make_tree(tmp_path / "here", content), make_tree(tmp_path / "there", {})
    publish(store, here)
    start(store, there)
    return here, there


def test_bytes_modes_and_times_to_the_nanosecond_come_back(any_store, tmp_path):
    content = SMALL_TREE | {"inductor/bin/tool": (b"#!/bin/sh\n", 0o755), "triton/private": (b"mine", 0o600)}
    here, there = round_trip(any_store, tmp_path, content)
    assert snapshot(there) == snapshot(here)
    assert snapshot(there)["triton/private"][:2] == (0o600, MTIME_NS + 5)
    assert leftovers(there) == leftovers(here) == []


def test_every_size_around_the_piece_size_comes_back(store, tmp_path):
    content = {f"inductor/{size}": os.urandom(size) for size in piece_sizes()}
    here, there = round_trip(store, tmp_path, content)
    assert snapshot(there) == snapshot(here)


@pytest.mark.parametrize("slab_bytes", [1, 100, 512, 700, 1024, 4096])
def test_files_come_back_wherever_a_slab_ends(store, tmp_path, monkeypatch, slab_bytes):
    """In a header, in the padding, in a name, after a run of empty files that leaves a slab without any content."""
    monkeypatch.setattr("glowplug.cache.unpack.SLAB_BYTES", slab_bytes)
    monkeypatch.setattr("glowplug.cache.unpack.SLABS", 2)
    content = {f"inductor/{number:03}": b"" for number in range(40)}
    content |= {f"triton/{size}/x{'n' * (size % 200)}": os.urandom(size) for size in (0, 1, 511, 512, 513, 1024, 5000)}
    here, there = round_trip(store, tmp_path, content | SMALL_TREE)
    assert snapshot(there) == snapshot(here)


def test_long_and_foreign_names_come_back(store, tmp_path):
    content = {
        "vllm/" + "n" * 99: b"just over a hundred",
        "vllm/" + "n" * 95: b"exactly a hundred",
        "vllm/" + "/".join(["d" * 60] * 5) + "/leaf": b"over 255 in total",
        "vllm/" + "m" * 255: b"the longest name there is",
        "vllm/ключ/日本語 ü.py": b"unicode",
        "vllm/with space\tand tab\nand line": b"odd but legal",
    }
    here, there = round_trip(store, tmp_path, content)
    assert snapshot(there) == snapshot(here)


def test_write_access_for_others_is_not_carried_over(store, tmp_path):
    _, there = round_trip(store, tmp_path, {"triton/a": (b"x", 0o666), "triton/b": (b"x", 0o4777), "triton/c": (b"x", 0o664)})
    assert {path: mode for path, (mode, *_) in snapshot(there).items()} == {
        "triton/a": 0o644,
        "triton/b": 0o755,
        "triton/c": 0o644,
    }


def test_restored_folders_are_private_even_where_the_umask_is_open(store, tmp_path):
    here, there = make_tree(tmp_path / "here", SMALL_TREE), make_tree(tmp_path / "there", {})
    publish(store, here)
    before = os.umask(0)
    try:
        start(store, there)
    finally:
        os.umask(before)
    folders = [os.path.join(top, name) for top, names, _ in os.walk(there) for name in names]
    assert len(folders) > 5
    assert {os.stat(folder).st_mode & 0o777 for folder in folders} == {0o700}


def test_python_lists_the_pack(store, tmp_path):
    publish(store, make_tree(tmp_path / "here", SMALL_TREE))
    names = unpacked_names(store.get(latest_pack(store)).data)
    assert set(names) == set(SMALL_TREE)
    assert all(info.isfile() and info.mode == 0o644 and info.mtime == MTIME_NS // 10**9 for info in names.values())


@pytest.mark.skipif(not shutil.which("tar") or not shutil.which("zstd"), reason="needs tar and zstd")
def test_the_systems_tar_unpacks_the_pack(store, tmp_path):
    long_name = "vllm/" + "/".join(["d" * 60] * 5) + "/ü"
    here = make_tree(tmp_path / "here", SMALL_TREE | {long_name: b"long"})
    publish(store, here)
    (tmp_path / "pack").write_bytes(store.get(latest_pack(store)).data)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "--zstd", "-xf", tmp_path / "pack", "-C", tmp_path / "out"], check=True)
    contents = {path: content for path, (*_, content) in snapshot(tmp_path / "out").items()}
    assert contents == SMALL_TREE | {long_name: b"long"}


@pytest.mark.parametrize(
    ("path", "size_bytes", "mtime_ns", "length", "digest"),
    [
        ("vllm/a", 0, 0, 512, "264d56b2c2f3eda41936bec4a89c2e90c5c1b9ad9e8ed03e0450f87514bc71bf"),
        ("vllm/" + "n" * 120, 5, MTIME_NS, 1536, "bd3a2c3accf71f097c7320b3ce89b6b14cb662918fb22eb519251065fb84ef2e"),
        (
            "vllm/é/" + "x/" * 200 + "y",
            9 * 2**30,
            2**62,
            1536,
            "bb48d2e8c7a0d6ac08b6a65af76f5f3c956ba5d2130aa8209e9cd2637d36679a",
        ),
        (
            "/".join(["triton", "d" * 200, "e" * 200, "f" * 200]),
            1,
            1,
            2048,
            "0c45ede1c03c3c820b5ff225b858f7b54a80822bbbbe58fde50c881ef949953e",
        ),
    ],
    ids=["short", "long", "huge", "very long"],
)
def test_headers_are_the_same_on_every_python(path, size_bytes, mtime_ns, length, digest):
    """A wrapper on another Python must read what this one writes. Recorded on 3.11, 3.12 and 3.13."""
    header = member_header(entry(path, size_bytes=size_bytes, mode=0o755, mtime_ns=mtime_ns))
    assert (len(header), hashlib.sha256(header).hexdigest()) == (length, digest)


def test_the_manifest_says_what_was_captured(store, tmp_path):
    captured = publish(store, make_tree(tmp_path / "here", SMALL_TREE))
    repository = Repository(store)
    pointer = repository.latest(DIGEST)
    assert captured.published
    assert pointer.generation == captured.manifest.digest
    assert [file.path for file in captured.manifest.files] == sorted(SMALL_TREE)
    assert captured.manifest.size_bytes == sum(map(len, SMALL_TREE.values())) < MAX_BYTES
    assert captured.manifest.cold_start_s == 12.5
    assert Manifest.parse(captured.manifest.document) == captured.manifest
    info = store.head(latest_pack(store))
    assert info.size_bytes == captured.manifest.pack.size_bytes
    assert hashlib.sha256(store.get(info.key).data).hexdigest() == captured.manifest.pack.sha256
    assert repository.envelope(DIGEST) == captured.manifest.envelope


def test_junk_links_and_special_files_are_not_captured(store, tmp_path):
    here = make_tree(
        tmp_path / "here",
        SMALL_TREE
        | {
            "inductor/locks/a": b"",
            "inductor/ab/.123.456.tmp": b"half",
            "triton/tmp.pid_9_x/k": b"half",
            "vllm/assets/config": b"{}",
            "vllm/torch_compile_cache/dummy_cache/x": b"",
            "other/file": b"of no family",
        },
    )
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    os.symlink(outside, here / "inductor/link")
    os.symlink(tmp_path, here / "inductor/folder")
    os.mkfifo(here / "inductor/pipe")
    assert [file.path for file in publish(store, here).manifest.files] == sorted(SMALL_TREE)


def test_a_family_folder_that_is_a_link_is_not_followed(tmp_path):
    make_tree(tmp_path / "elsewhere", {"vllm/secret": b"x"})
    here = make_tree(tmp_path / "here", {"triton/a": b"x"})
    os.symlink(tmp_path / "elsewhere" / "vllm", here / "vllm")
    assert [file.path for file in scan(here, ALL)] == ["triton/a"]


def test_ten_thousand_files_are_scanned_in_a_blink(tmp_path):
    import time

    root = make_tree(tmp_path / "big", {f"inductor/{number % 100:02d}/{number}": b"" for number in range(10_000)})
    begun = time.process_time()
    assert len(scan(root, ALL)) == 10_000
    assert time.process_time() - begun < 1  # 0.06 s on an idle machine


def test_nothing_heavy_is_loaded_before_it_is_needed():
    """Imports before the engine starts are paid by every start."""
    code = (
        "import sys, glowplug.cache.restore, glowplug.cache.repository, glowplug.cache.capture, glowplug.cache.verify;"
        "print(sorted({'zstandard', 'cryptography', 'securesystemslib', 'botocore', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
