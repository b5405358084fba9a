"""Precompiled headers: built by a stand-in with torch's folder, lock and names, and once by a real torch and a real compiler."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glowplug.cache.families import INDUCTOR_HEADERS
from glowplug.cache.temp_links import lend
from glowplug.errors import LocalError
from tests.run.program import SOURCE, Program

# What torch/_inductor/codecache.py does: the header, the lock, and only where there is none yet, the compiler.
BUILDER = """
import fcntl, getpass, os, pathlib, tempfile
folder = pathlib.Path(tempfile.gettempdir(), "torchinductor_" + getpass.getuser(), "precompiled_headers")
(folder / "locks").mkdir(parents=True, exist_ok=True)
header = folder / "cabc.h"
header.write_text("#include <torch.h>")
with open(folder / "locks" / "cabc.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    built = folder / "cabc.h.gch"
    if built.exists():
        print("found", len(built.read_bytes()))
    else:
        built.write_bytes(b"gpch" + bytes(1000))
        print("built")
"""
NAME = "cabc"


@pytest.fixture
def places(tmp_path):
    """A live folder, a temporary folder, and the environment of an engine that has it."""
    live, temp = tmp_path / "live", tmp_path / "temp"
    live.mkdir()
    temp.mkdir()
    return live, temp / "torchinductor_me" / "precompiled_headers", {"TMPDIR": str(temp), "LOGNAME": "me"}


def build(folder, name=NAME, *, content=b"gpch built", header=True):
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    if header:
        (folder / f"{name}.h").write_text("#include <torch.h>")
    (folder / f"{name}.h.gch").write_bytes(content)


@contextlib.contextmanager
def held(folder):
    """Another process builds the header."""
    (folder / "locks").mkdir()
    with open(folder / "locks" / f"{NAME}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.exists() else []


def with_torch(tmp_path):
    """A machine on which every Python has torch, by its list of packages."""
    info = tmp_path / "site" / "torch-2.13.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    (info / "RECORD").touch()
    return Program(tmp_path, {"PYTHONPATH": f"{SOURCE}:{info.parent}"})


def test_headers_that_an_engine_without_torch_can_not_have_built_are_not_taken(tmp_path):
    ended = Program(tmp_path).run(sys.executable, "-c", BUILDER, env={"TMPDIR": make(tmp_path / "temp")})
    assert (ended.out, ended.report["publish"]["state"]) == (b"built\n", "skipped")


def test_a_new_node_finds_what_the_first_one_built(tmp_path):
    first = with_torch(tmp_path)
    cold = first.run(sys.executable, "-c", BUILDER, env={"TMPDIR": make(tmp_path / "temp-1")})
    assert cold.out == b"built\n"
    assert cold.report["publish"]["files"] == 2
    first.forget()
    warm = first.run(sys.executable, "-c", BUILDER, env={"TMPDIR": make(tmp_path / "temp-2")})
    assert warm.out == b"found 1004\n"
    assert warm.report["outcome"] == "hit"
    assert not cold.said("headers") + warm.said("headers")


def test_lent_headers_outlive_the_live_folder(places):
    live, theirs, env = places
    build(live / INDUCTOR_HEADERS.name)
    lend(live, env)
    (live / INDUCTOR_HEADERS.name).rename(live / "gone")
    assert (theirs / "cabc.h.gch").read_bytes() == b"gpch built"
    assert not theirs.is_symlink()
    assert theirs.parent.stat().st_mode & 0o777 == 0o700


def test_headers_that_come_later_are_lent_then(places):
    """As where the engine is spawned before the restore has ended."""
    live, theirs, env = places
    lent = lend(live, env)
    build(live / INDUCTOR_HEADERS.name)
    lent.give()
    assert names(theirs) == ["cabc.h", "cabc.h.gch"]
    assert lent.take_over() == 0


def test_what_was_lent_is_taken_back_and_nothing_else(places):
    """As after an engine that died: its second start, without the cache, must not find them, nor publish them again."""
    live, theirs, env = places
    build(theirs, "before")
    build(live / INDUCTOR_HEADERS.name)
    lent = lend(live, env)
    build(theirs, "built-now")
    lent.take_back()
    assert [name for name in names(theirs) if name.endswith(".gch")] == ["before.h.gch", "built-now.h.gch"]
    assert (live / INDUCTOR_HEADERS.name / "cabc.h.gch").exists()


def test_what_is_there_already_is_left_alone(places):
    live, theirs, env = places
    build(live / INDUCTOR_HEADERS.name, content=b"gpch ours")
    build(theirs, content=b"gpch theirs")
    lend(live, env)
    assert (theirs / "cabc.h.gch").read_bytes() == b"gpch theirs"


def test_only_what_the_engine_built_or_read_is_taken_over(places):
    live, theirs, env = places
    for name in ("built-before", "read-before"):
        build(theirs, name)
    lent = lend(live, env)
    (theirs / "read-before.h.gch").read_bytes()
    build(theirs, "built-now")
    assert lent.take_over() == 2
    assert names(live / INDUCTOR_HEADERS.name) == ["built-now.h", "built-now.h.gch", "read-before.h", "read-before.h.gch"]
    assert lent.take_over() == 0


def test_half_a_header_an_empty_one_and_another_compilers_are_not_taken_over(places):
    live, theirs, env = places
    lent = lend(live, env)
    build(theirs, "alone", header=False)
    build(theirs, "empty", content=b"")
    build(theirs, "clang", content=b"CPCH built")
    assert lent.take_over() == 0
    assert names(live / INDUCTOR_HEADERS.name) == []


def test_a_header_that_another_process_builds_is_not_taken_over(places):
    live, theirs, env = places
    lent = lend(live, env)
    build(theirs)
    with held(theirs):
        assert lent.take_over() == 0
    assert lent.take_over() == 1


def test_a_header_that_another_process_builds_is_not_lent(places):
    """Its compiler may be about to open the file, and would write into ours."""
    live, theirs, env = places
    build(live / INDUCTOR_HEADERS.name)
    theirs.mkdir(parents=True)
    with held(theirs):
        lend(live, env)
    assert names(theirs) == []


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_is_refused(places, mode):
    live, theirs, env = places
    build(live / INDUCTOR_HEADERS.name)
    build(theirs, "planted")
    theirs.parent.chmod(mode)
    with pytest.raises(LocalError, match="not a private folder") as caught:
        lend(live, env)
    assert "TMPDIR" in caught.value.hint
    assert names(theirs) == ["planted.h", "planted.h.gch"]


def test_a_folder_that_is_opened_to_others_meanwhile_is_refused(places):
    live, theirs, env = places
    lent = lend(live, env)
    build(theirs)
    theirs.chmod(0o777)
    with pytest.raises(LocalError, match="not a private folder"):
        lent.take_over()
    assert names(live / INDUCTOR_HEADERS.name) == []


def test_a_link_in_place_of_the_folder_is_refused(places, tmp_path):
    live, theirs, env = places
    build(live / INDUCTOR_HEADERS.name)
    build(tmp_path / "elsewhere")
    theirs.parent.mkdir()
    theirs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocalError, match="not a private folder"):
        lend(live, env)


def test_a_temporary_folder_where_anybody_can_rename_is_refused(places):
    live, theirs, env = places
    build(live / INDUCTOR_HEADERS.name)
    theirs.parent.parent.chmod(0o777)
    with pytest.raises(LocalError, match="sticky"):
        lend(live, env)
    theirs.parent.parent.chmod(0o1777)
    lend(live, env)
    assert names(theirs) == ["cabc.h", "cabc.h.gch"]


def test_an_engine_that_dies_of_its_cache_starts_again_without_the_lent_header(tmp_path):
    program = with_torch(tmp_path)
    code = (
        BUILDER
        + """
cached = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "ab", "c.so")
if cached.exists():
    cached.read_bytes()
    os.abort()
cached.parent.mkdir(parents=True)
cached.write_bytes(b"so")
"""
    )
    temps = [make(tmp_path / f"temp-{number}") for number in (1, 2)]
    assert program.run(sys.executable, "-u", "-c", code, env={"TMPDIR": temps[0]}).code == 0
    program.forget()
    ended = program.run(sys.executable, "-u", "-c", code, env={"TMPDIR": temps[1]})
    assert (ended.code, ended.out) == (0, b"found 1004\nbuilt\n"), ended.err


def test_refused_headers_cost_a_line_and_nothing_else(tmp_path):
    program, temp = with_torch(tmp_path), make(tmp_path / "temp")
    build(Path(temp, "torchinductor_nobody-else", "precompiled_headers"), "planted")
    Path(temp, "torchinductor_nobody-else").chmod(0o777)
    ended = program.run(sys.executable, "-c", BUILDER, env={"TMPDIR": temp})
    assert (ended.code, ended.out) == (0, b"built\n")
    assert len(ended.said("precompiled headers are built anew")) == 1
    assert not program.published()


def test_no_folder_is_made_where_there_is_nothing_to_lend(places):
    live, theirs, env = places
    assert lend(live, env).take_over() == 0
    assert not theirs.parent.exists()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_cannot_be_had_the_files_are_copied_with_their_times(places, monkeypatch, code):
    live, theirs, env = places

    def refuse(*_args, **_options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)  # two file systems, which no test can count on
    build(live / INDUCTOR_HEADERS.name)
    ours = live / INDUCTOR_HEADERS.name / "cabc.h.gch"
    os.utime(ours, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    lend(live, env)
    assert names(theirs) == ["cabc.h", "cabc.h.gch"]
    assert (theirs / "cabc.h.gch").stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert (theirs / "cabc.h.gch").stat().st_ino != ours.stat().st_ino


WHERE = "import getpass, re, tempfile; print(tempfile.gettempdir(), re.sub(r'[\\\\/:*?\"<>|]', '_', getpass.getuser()))"


@pytest.mark.parametrize(
    "variables",
    [
        {"TMPDIR": "{0}", "TEMP": "/nowhere"},
        {"TMPDIR": "/does/not/exist", "TMP": "{0}"},
        {"TMPDIR": "", "TEMP": "{0}", "LOGNAME": "", "USER": "second"},
        {"TMPDIR": "{0}", "LOGNAME": "a/b:c*d", "USER": "second"},
        {"TMPDIR": "{0}", "LNAME": "third", "USERNAME": "fourth"},
        {"TMPDIR": "{0}"},
    ],
)
def test_the_folder_is_where_python_says(tmp_path, variables):
    env = {name: value.format(make(tmp_path / "temp")) for name, value in variables.items()}
    said = subprocess.run([sys.executable, "-c", WHERE], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    live = tmp_path / "live"
    build(live / INDUCTOR_HEADERS.name)
    assert lend(live, env).theirs == Path(said[0], f"torchinductor_{said[1]}", "precompiled_headers")


TORCH = """
import os, shutil, torch
if "FORGET" in os.environ:
    shutil.rmtree(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    os.mkdir(os.environ["TORCHINDUCTOR_CACHE_DIR"])
torch.compile(lambda x: torch.sin(x) + torch.cos(x) * x.exp())(torch.randn(1000))
"""


@pytest.mark.vllm
def test_a_real_torch_builds_no_header_that_was_restored(tmp_path, vllm_python):
    """The second node compiles the kernel anew, so that its compiler needs the header."""
    program = Program(tmp_path)
    temps = [Path(make(tmp_path / f"temp-{number}")) for number in (1, 2)]
    cold = program.run(str(vllm_python), "-c", TORCH, env={"TMPDIR": str(temps[0])}, timeout=240)
    assert cold.report["publish"]["state"] == "published", cold.err
    [built] = temps[0].glob("torchinductor_*/precompiled_headers/*.gch")
    program.forget()
    warm = program.run(str(vllm_python), "-c", TORCH, env={"TMPDIR": str(temps[1]), "FORGET": "1"}, timeout=240)
    assert warm.code == 0, warm.err
    [found] = temps[1].glob("torchinductor_*/precompiled_headers/*.gch")
    [ours] = program.live.glob("*/inductor_headers/*.gch")
    assert (found.name, found.stat().st_mtime_ns) == (built.name, built.stat().st_mtime_ns)
    assert found.stat().st_ino == ours.stat().st_ino
    assert found.stat().st_atime_ns > found.stat().st_mtime_ns  # the compiler read it


def make(folder):
    folder.mkdir(exist_ok=True)
    return str(folder)
