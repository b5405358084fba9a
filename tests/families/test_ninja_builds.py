"""A real ninja, which builds anew what looks older than its source, after a cache has come from another node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import ninja
import pytest

from glowplug.cache.families import FLASHINFER, TORCH_EXTENSIONS, TVM_FFI
from glowplug.store import open_store
from tests.cache.cache_samples import publish, start

NINJA = Path(ninja.BIN_DIR, "ninja")
# A "compiler" that copies, and says what it has included, as a compiler does with -MMD.
BUILD = """ninja_required_version = 1.3
rule compile
  command = cat $in {header} > $out && printf '%s: %s %s\\n' $out $in {header} > $out.d
  depfile = $out.d
  deps = gcc
rule link
  command = cp $in $out
build {folder}main.o: compile {folder}main.cpp
build {folder}op.so: link {folder}main.o
default {folder}op.so
"""
FAMILIES = [(TORCH_EXTENSIONS, "op"), (TVM_FFI, "op_0123"), (FLASHINFER, ".cache/flashinfer/0.6.1/90a/cached_ops/op")]


class Project:
    """A build folder of a family in a live tree; the header lies in the image."""

    def __init__(self, tmp_path, family, folder):
        self.root = tmp_path / "live" / "0123456789abcdef"
        self.build = self.root / family.name / folder
        self.header = tmp_path / "image" / "op.h"
        self.header.parent.mkdir()
        self.header.write_text("struct op;\n")
        self.build.mkdir(parents=True)
        absolute = family is FLASHINFER
        text = BUILD.format(header=self.header, folder=f"{self.build}/" if absolute else "")
        (self.build / "build.ninja").write_text(text)
        (self.build / "main.cpp").write_text("int main;\n")
        self.store = open_store(f"file://{tmp_path}/store", env={})

    def ninja(self, *options):
        return subprocess.run([NINJA, "-C", self.build, *options], check=False, capture_output=True, text=True).stdout

    def move_to_another_node(self):
        captured = publish(self.store, self.root)
        self.root.rename(self.root.with_name("gone"))
        self.root.mkdir()
        start(self.store, self.root)
        return captured


@pytest.fixture(params=FAMILIES, ids=lambda given: given[0].name)
def project(tmp_path, request):
    return Project(tmp_path, *request.param)


def test_nothing_is_built_again_after_a_restore(project):
    assert "[2/2]" in project.ninja()
    assert "no work to do" in project.ninja()
    assert project.move_to_another_node().left_out == ()
    assert "no work to do" in project.ninja()


def test_an_image_with_a_newer_header_builds_again(project):
    """The limit of such a cache: an image that was built after the bundle, from the same packages, has newer files."""
    project.ninja()
    project.move_to_another_node()
    os.utime(project.header)
    assert "[1/2]" in project.ninja()


def test_a_build_that_failed_is_left_out(project):
    project.ninja()
    other = project.build.with_name("failed")
    other.mkdir()
    (other / "build.ninja").write_text("rule fail\n  command = false\nbuild failed.so: fail\ndefault failed.so\n")
    project.build = other
    assert "FAILED" in project.ninja()
    [line] = project.move_to_another_node().left_out
    assert "failed: no failed.so" in line
    assert not other.exists()
