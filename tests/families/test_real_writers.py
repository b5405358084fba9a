"""Triton, torch's extensions and TVM-FFI themselves, without a GPU: what they wrote is found by them on another node."""

from __future__ import annotations

import os
import subprocess

import pytest

from glowplug.cache.families import JIT, environment
from glowplug.store import open_store
from tests.cache.cache_samples import publish, start

pytestmark = pytest.mark.vllm

TRITON = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
source = ASTSource(fn=add, signature={"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}, constexprs={"B": 64})
triton.knobs.compilation.listener = lambda **said: print("hit" if said["cache_hit"] else "compiled")
triton.compile(source, target=GPUTarget("cuda", 80, 32))
"""
EXTENSION = """
import sys
from torch.utils import cpp_extension
cpp_extension.load("tiny", [sys.argv[1]], is_python_module=False, verbose=True)
"""
TVM = """
import os, tvm_ffi.cpp
path = tvm_ffi.cpp.build_inline("tiny", cpp_sources="int answer(int x) { return 42 + x; }", functions=["answer"])
print(os.stat(path).st_mtime_ns)
"""


class Node:
    """A node whose live folder has the path that all have, and nothing in it until something is restored."""

    def __init__(self, tmp_path, python):
        self._python = python
        self.live = tmp_path / "live"
        self.root = self.live / "0123456789abcdef"
        self.root.mkdir(parents=True)
        self.store = open_store(f"file://{tmp_path}/store", env={})

    def run(self, program, *words, root=None):
        (script := self.live / "program.py").write_text(program)  # Triton reads a kernel's source from its file
        path = f"{self._python.parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, **environment(JIT, root or self.root)}
        done = subprocess.run([self._python, script, *words], env=env, check=False, capture_output=True, text=True, timeout=240)
        return done.stdout + done.stderr

    def move(self, to=None):
        publish(self.store, self.root)
        self.root.rename(self.root.with_name("gone"))
        target = to or self.root
        target.mkdir()
        start(self.store, target)


@pytest.fixture
def node(tmp_path, vllm_python):
    return Node(tmp_path, vllm_python)


def test_triton_hits(node):
    assert node.run(TRITON) == "compiled\n"
    node.move()
    assert node.run(TRITON) == "hit\n"


def test_triton_compiles_again_in_a_second_engines_folder(node):
    """Its groups name the first one's files, by absolute paths. Without those it is a miss, and no error."""
    node.run(TRITON)
    second = node.root.with_name(f"{node.root.name}-2")
    node.move(to=second)
    assert node.run(TRITON, root=second) == "compiled\n"


def test_triton_fails_on_half_a_group_which_is_why_none_is_published(node):
    node.run(TRITON)
    [binary] = node.root.glob("triton/*/add.cubin")
    binary.unlink()
    assert "KeyError" in node.run(TRITON)
    (node.root / "triton" / "other").write_text("x")
    node.move()
    assert node.run(TRITON) == "compiled\n"


def test_torch_builds_an_extension_once(node, tmp_path):
    source = tmp_path / "tiny.cpp"
    source.write_text('extern "C" int answer() { return 42; }\n')
    assert "[2/2]" in node.run(EXTENSION, str(source))
    node.move()
    assert "ninja: no work to do" in node.run(EXTENSION, str(source))


def test_tvm_builds_a_module_once(node):
    built = node.run(TVM)
    assert built.strip().isdigit(), built
    node.move()
    assert node.run(TVM) == built
