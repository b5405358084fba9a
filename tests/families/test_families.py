"""Every family from a tree as its writer leaves it, through a real store, to another node."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from glowplug.cache.families import CUDA_DRIVER, FAMILIES, FLASHINFER, JIT, TORCH_EXTENSIONS, TRITON, TVM_FFI, chosen, environment
from glowplug.cache.tree import complete, scan
from glowplug.errors import LocalError
from glowplug.store import open_store
from tests.cache.cache_samples import make_tree, publish, snapshot, start
from tests.families.family_trees import K1, TREES, group
from tests.run.program import Program

LIVE = "0123456789abcdef"
each_family = pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.family.name)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "live" / LIVE


@pytest.fixture
def store(tmp_path):
    return open_store(f"file://{tmp_path}/store", env={})


def lay_out(root, tree):
    """Kept files, junk and half groups, with times of their own."""
    content = {**tree.kept, **dict.fromkeys(tree.junk, "junk"), **tree.broken}
    return make_tree(
        root, {f"{tree.family.name}/{path}": text.replace("ROOT", str(root)).encode() for path, text in content.items()}
    )


def names(tree, paths):
    return {f"{tree.family.name}/{path}" for path in paths}


def test_every_family_has_a_tree():
    assert {tree.family for tree in TREES} == set(FAMILIES.values())


@each_family
def test_what_is_kept_reaches_another_node_byte_for_byte_and_with_its_times(root, store, tree):
    lay_out(root, tree)
    before = snapshot(root)
    assert publish(store, root).published
    root.rename(root.with_name("gone"))
    root.mkdir()
    start(store, root)
    after = snapshot(root)
    assert set(after) == names(tree, tree.kept)
    assert after == {path: before[path] for path in after}


@each_family
def test_publishing_what_was_restored_gives_the_same_files(root, store, tree):
    lay_out(root, tree)
    first = publish(store, root).manifest
    root.rename(root.with_name("gone"))
    root.mkdir()
    start(store, root)
    second = publish(store, root)
    assert second.manifest.files == first.files
    assert second.left_out == ()


@each_family
def test_a_group_with_something_missing_is_left_out_and_named(root, tree):
    lay_out(root, tree)
    left, lines = complete(root, FAMILIES.values(), scan(root, FAMILIES.values()))
    assert {file.path for file in left} == names(tree, tree.kept)
    assert len(lines) == len(tree.lacks)
    for lacks in tree.lacks:
        assert [line for line in lines if lacks in line], (lacks, lines)


@each_family
def test_code_is_told_from_notes(root, tree):
    lay_out(root, tree)
    compiled = tree.compiled or tree.kept
    left, _ = complete(root, FAMILIES.values(), scan(root, FAMILIES.values()))
    assert {file.path for file in left if file.compiled} == names(tree, compiled)


def test_the_drivers_files_without_their_index_are_left_out(root, store):
    make_tree(root, {"cuda_driver/a/b/0123": b"cubin", "triton/x": b"x"})
    captured = publish(store, root)
    assert [file.path for file in captured.manifest.files] == ["triton/x"]
    assert captured.left_out == (f"{CUDA_DRIVER.name}: no index",)


def test_a_tree_with_nothing_complete_is_not_published(root, store):
    make_tree(root, {f"triton/{K1}/add.ttir": b"ttir"})
    with pytest.raises(LocalError, match=f"nothing complete: triton/{K1}: no __grp__"):
        publish(store, root)


def test_a_group_of_a_second_engines_folder_is_left_out(root):
    """It names files of that folder, which no first engine of another node has. What that engine was given stays."""
    second = root.with_name(f"{LIVE}-2")
    own, given = K1, "B" * 52
    content = {}
    for kernel, home in ((own, second), (given, root)):
        content[f"triton/{kernel}/add.cubin"] = b"cubin"
        content[f"triton/{kernel}/__grp__add.json"] = group(f"triton/{kernel}", "add.cubin").replace("ROOT", str(home)).encode()
    make_tree(second, content)
    left, lines = complete(second, [TRITON], scan(second, [TRITON]))
    assert {file.path.split("/")[1] for file in left} == {given}
    assert lines == [f"triton/{own}: no {second}/triton/{own}/add.cubin"]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"child_paths": 3}', b'{"child_paths": null}', b"\xff\xfe", b'{"child_paths": [1]}']
)
def test_a_group_that_cannot_be_read_is_left_out(root, text):
    make_tree(root, {f"triton/{K1}/__grp__add.json": text, f"triton/{K1}/add.cubin": b"cubin"})
    left, lines = complete(root, [TRITON], scan(root, [TRITON]))
    assert left == []
    assert lines == [f"triton/{K1}: __grp__add.json can't be read"]


def test_no_two_families_share_a_folder_or_a_variable():
    variables = [variable for family in FAMILIES.values() for variable in family.variables]
    assert len(variables) == len(set(variables))
    assert all(name == family.name for name, family in FAMILIES.items())


def test_the_table_for_readers_has_every_family():
    text = (Path(__file__).parents[2] / "docs" / "caches.md").read_text()
    rows = {row.split("|")[1].strip(" `"): row.split("|")[3].strip(" `") for row in text.splitlines() if row.startswith("| `")}
    assert set(rows) == set(FAMILIES)
    assert {name: rows[name] for name, family in FAMILIES.items() if family.variables} == {
        name: family.variables[0] for name, family in FAMILIES.items() if family.variables
    }


def test_each_writer_is_sent_to_its_own_folder(root):
    sent = environment(JIT, root)
    assert sent["DG_JIT_CACHE_DIR"] == str(root / "deep_gemm")
    assert len(set(sent.values())) == len(sent) == len(JIT) - 1  # the headers have no variable


@pytest.mark.parametrize(
    ("family", "env", "folder"),
    [
        (FLASHINFER, {}, ".cache/flashinfer"),
        (FLASHINFER, {"FLASHINFER_WORKSPACE_BASE": "{home}/base"}, "base/.cache/flashinfer"),
        (TORCH_EXTENSIONS, {}, ".cache/torch_extensions"),
        (TORCH_EXTENSIONS, {"XDG_CACHE_HOME": "{home}/xdg"}, "xdg/torch_extensions"),
        (TORCH_EXTENSIONS, {"TORCH_EXTENSIONS_DIR": "{home}/mine"}, "mine"),
        (TVM_FFI, {}, ".cache/tvm-ffi"),
        (TVM_FFI, {"TVM_FFI_CACHE_DIR": "{home}/mine"}, "mine"),
    ],
)
def test_a_writer_whose_own_folder_the_image_has_filled_is_left_there(tmp_path, family, env, folder):
    env = {"HOME": str(tmp_path), **{name: value.format(home=tmp_path) for name, value in env.items()}}
    assert chosen(JIT, env) == JIT
    (tmp_path / folder).mkdir(parents=True)
    assert chosen(JIT, env) == JIT
    (tmp_path / folder / "cubins").mkdir()
    assert chosen(JIT, env) == tuple(other for other in JIT if other is not family)
    shutil.rmtree(tmp_path / folder)
    assert chosen(JIT, env) == JIT


def test_without_a_home_every_writer_is_sent():
    assert chosen(JIT, {}) == JIT


HALF = """
import os, pathlib
for key in ("A" * 52, "B" * 52):
    folder = pathlib.Path(os.environ["TRITON_CACHE_DIR"], key)
    folder.mkdir(parents=True)
    (folder / "add.ttir").write_text("ttir")
pathlib.Path(os.environ["DG_JIT_CACHE_DIR"], "notes").mkdir(parents=True)
pathlib.Path(os.environ["DG_JIT_CACHE_DIR"], "notes", "a").write_text("a")
"""


def test_a_start_says_what_it_did_not_publish(tmp_path):
    ended = Program(tmp_path).run(sys.executable, "-c", HALF)
    assert ended.report["publish"]["files"] == 1
    assert ended.said("not complete") == [f"not complete, so not published: triton/{K1}: no __grp__*.json, and 1 more like it"]
