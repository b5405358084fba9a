"""The parts that a whole folder would not show to be right: ELF files, bytecode, what can't be moved."""

import importlib.util
import os
import py_compile
import re
import shutil
import subprocess
import sys

import pytest

from glowplug.errors import UsageError
from glowplug.inject import distributions, interpreter
from glowplug.inject.bytecode import unchecked_bytecode
from glowplug.inject.elf import read_elf, without_debug_symbols
from glowplug.inject.interpreter import belongs_to_glibc

READELF = shutil.which("readelf")
needs_readelf = pytest.mark.skipif(READELF is None, reason="needs readelf")


def _binaries():
    zstandard = importlib.util.find_spec("zstandard")
    return [os.path.realpath(sys.executable), *interpreter.Path(zstandard.origin).parent.glob("*.so")]


@needs_readelf
@pytest.mark.parametrize("path", _binaries(), ids=os.path.basename)
def test_glibc_and_loader_are_what_readelf_says(path):
    elf = read_elf(interpreter.Path(path))
    versions = subprocess.run([READELF, "-V", path], capture_output=True, text=True, check=True).stdout
    assert elf.glibc_minor == max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", versions))
    segments = subprocess.run([READELF, "-l", path], capture_output=True, text=True, check=True).stdout
    named = re.search(r"interpreter: ([^]]+)\]", segments)
    assert elf.interpreter == (named.group(1) if named else "")


def test_a_program_runs_without_its_symbols(tmp_path):
    source = interpreter.Path("/bin/true").resolve()
    elf = read_elf(source)
    program = tmp_path / "true"
    program.write_bytes(without_debug_symbols(source.read_bytes() + b"debug" * 1000, elf))
    program.chmod(0o755)
    assert program.stat().st_size <= source.stat().st_size
    subprocess.run([program], check=True)


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01" + b"\0" * 100, b"\x7fELF\x02\x01" + b"\xff" * 100]
)
def test_what_is_no_program_is_passed_over(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    assert read_elf(tmp_path / "file") is None


@pytest.mark.parametrize(
    ("path", "belongs"),
    [
        ("/lib/x86_64-linux-gnu/libc.so.6", True),
        ("/lib64/ld-linux-x86-64.so.2", True),
        ("/lib/ld-linux-aarch64.so.1", True),
        ("/lib/libnss_files.so.2", True),
        ("/usr/lib/libcrypt.so.1", False),
        ("/usr/lib/libcrypto.so.3", False),
        ("/usr/lib/libmd.so.0", False),
        ("/usr/lib/libgcc_s.so.1", False),
    ],
)
def test_glibc_is_left_to_the_image_and_nothing_else_is(path, belongs):
    assert belongs_to_glibc(path) is belongs


def _module(folder, text):
    source = folder / "module_under_test.py"
    source.write_text(text)
    return source


def test_bytecode_beside_the_source_is_reused_if_it_fits(tmp_path):
    source = _module(tmp_path, "value = 1\n")
    py_compile.compile(str(source))
    made = unchecked_bytecode(source.read_bytes(), source, "m.py")
    existing = interpreter.Path(importlib.util.cache_from_source(source)).read_bytes()
    assert made[16:] == existing[16:]
    assert made[4:8] == b"\x01\0\0\0"


def test_stale_bytecode_is_not_reused(tmp_path):
    source = _module(tmp_path, "value = 1\n")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    source.write_text("value = 2\n")
    space = {}
    import marshal

    exec(marshal.loads(unchecked_bytecode(source.read_bytes(), source, "m.py")[16:]), space)
    assert space["value"] == 2


def test_it_is_imported_without_looking_at_the_source(tmp_path):
    source = _module(tmp_path, "value = 1\n")
    target = interpreter.Path(importlib.util.cache_from_source(source))
    target.parent.mkdir()
    target.write_bytes(unchecked_bytecode(source.read_bytes(), source, "m.py"))
    source.write_text("value = 2  # and another size\n")
    code = "import module_under_test as m; print(m.value, m.__file__)"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", str(source)]


def test_what_does_not_compile_has_no_bytecode(tmp_path):
    assert unchecked_bytecode(b"def (", tmp_path / "template.py", "template.py") is None


def test_a_python_that_cannot_be_moved_says_why():
    here = interpreter.ask()
    assert here.movable() == ""
    from dataclasses import replace

    assert "not CPython" in replace(here, implementation="pypy").movable()
    assert "not a dynamically linked" in replace(here, loader="").movable()
    assert "not in files" in replace(here, stdlib=interpreter.Path("/nonexistent")).movable()


def test_glowplug_must_be_installed(monkeypatch):
    monkeypatch.setattr(distributions, "ROOT", "no-such-distribution")
    with pytest.raises(UsageError, match="no-such-distribution is not installed"):
        distributions.closure()
