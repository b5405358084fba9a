"""The folder that an engine gets as its model: named by content, whole or not there, and never somebody else's."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pytest
from weights_samples import random_tensors, write_checkpoint, write_index, write_safetensors

from glowplug.errors import LocalError
from glowplug.weights.checkpoint import metadata_folder
from glowplug.weights.checkpoint.header_stubs import header_stubs
from glowplug.weights.checkpoint.metadata_folder import make_metadata_folder
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.checkpoint.small_files import is_small_file
from glowplug.weights.sources.local import LocalSource

STRANGER = 54321


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_checkpoint(folder, files=2)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "glowplug.seal.json").write_text("{}")
    (folder / "glowplug.complete.json").write_text("{}")
    return folder


@pytest.fixture
def base(tmp_path):
    return tmp_path / "tmp" / "glowplug-models"


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """The last resort, not that of the machine."""
    (tmp_path / "last").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "last"))


def make(folder, base):
    source = LocalSource(folder)
    return make_metadata_folder(source, open_checkpoint(source), base=base)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stages(base):
    return [path.name for path in base.iterdir() if path.name.startswith(".")]


def give_away(path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(path, STRANGER, -1, follow_symlinks=False)


def private(base):
    return base.parent / f"glowplug-models-{os.geteuid()}"


def test_it_holds_what_an_engine_reads_and_nothing_else(model, base):
    made = make(model, base)
    expected = {name: data for name, data in content(model).items() if is_small_file(name)}
    assert set(expected) == {"config.json", "tokenizer.json", "model.safetensors.index.json", "1_Pooling/config.json"}
    stubs = header_stubs(open_checkpoint(LocalSource(model)))
    assert content(made.path) == expected | stubs
    assert made.path == base / made.identity[:32]
    assert re.fullmatch(r"[0-9a-f]{64}", made.identity)
    assert (made.files, made.bytes, made.notice) == (4, sum(map(len, expected.values())), "")
    assert stages(base) == []


def test_others_can_read_it_and_only_its_owner_write(model, base):
    before = os.umask(0o077)
    try:
        made = make(model, base)
    finally:
        os.umask(before)
    assert base.stat().st_mode & 0o7777 == 0o1777
    assert {path.stat().st_mode & 0o777 for path in [made.path, *made.path.rglob("*")]} == {0o755, 0o644}


def test_a_copy_elsewhere_is_the_same_folder(model, base, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("another card")
    (tmp_path / "copy" / "glowplug.seal.json").unlink()
    assert make(tmp_path / "copy", base) == make(model, base)


@pytest.mark.parametrize("change", ["config", "a new file", "header", "size", "name"])
def test_another_content_is_another_folder(model, base, change):
    first = make(model, base)
    shard = model / "model-00001-of-00002.safetensors"
    if change == "config":
        (model / "config.json").write_text("{}")
    elif change == "a new file":
        (model / "chat_template.jinja").write_text("")
    elif change == "header":
        raw = shard.read_bytes()
        shard.write_bytes(raw.replace(b'"pt"', b'"np"'))
    elif change == "size":
        raw = write_safetensors(shard, random_tensors(6, prefix="model.layers.1", elements=(700, 700))).read_bytes()
        assert len(raw) > 6 * 700
    else:
        shard.rename(model / "a.safetensors")
        (model / "model-00002-of-00002.safetensors").rename(model / "b.safetensors")
        (model / "model.safetensors.index.json").unlink()
    assert make(model, base).identity != first.identity


def test_weights_of_the_same_layout_are_the_same_folder(model, base):
    first = make(model, base)
    shard = model / "model-00001-of-00002.safetensors"
    raw = shard.read_bytes()
    shard.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert make(model, base) == first


def test_a_whole_folder_is_used_as_it_is(model, base):
    made = make(model, base)
    before = {path: path.stat().st_ino for path in made.path.rglob("*")}
    assert make(model, base) == made
    assert {path: path.stat().st_ino for path in made.path.rglob("*")} == before


def alter(folder):
    (folder / "config.json").write_bytes(b"x" * len((folder / "config.json").read_bytes()))


def add(folder):
    (folder / "modeling_evil.py").write_text("import os")


def link(folder):
    (folder / "elsewhere").write_bytes((folder / "config.json").read_bytes())
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(folder / "elsewhere")


DAMAGES = {
    "altered": alter,
    "extra file": add,
    "link": link,
    "file gone": lambda folder: (folder / "config.json").unlink(),
    "cut": lambda folder: os.truncate(folder / "tokenizer.json", 1),
    "writable by others": lambda folder: (folder / "config.json").chmod(0o666),
    "folder writable by others": lambda folder: folder.chmod(0o777),
    "inner folder writable by others": lambda folder: (folder / "1_Pooling").chmod(0o775),
    "a file in its place": lambda folder: (shutil.rmtree(folder), folder.write_text("x")),
    "a link in its place": lambda folder: (folder.rename(folder.with_name("x")), folder.symlink_to("x")),
    "a dangling link in its place": lambda folder: (shutil.rmtree(folder), folder.symlink_to("none")),
    "a pipe in a file's place": lambda folder: ((folder / "config.json").unlink(), os.mkfifo(folder / "config.json")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_replaced(model, base, damage):
    made = make(model, base)
    expected = content(made.path)
    DAMAGES[damage](made.path)
    assert make(model, base) == made
    assert not made.path.is_symlink()
    assert content(made.path) == expected
    assert not any(path.is_symlink() for path in made.path.rglob("*"))
    assert stages(base) == []


@pytest.mark.parametrize("what", ["base", "folder", "link in its place"])
def test_what_belongs_to_another_user_is_passed_over(model, base, what):
    made = make(model, base)
    expected = content(made.path)
    if what == "link in its place":
        made.path.rename(base / "x")
        made.path.symlink_to("x")
    give_away(base if what == "base" else made.path)
    other = make(model, base)
    assert other.path == private(base) / made.identity[:32]
    assert f"belongs to user {STRANGER}" in other.notice
    assert "compile cache" in other.notice
    assert private(base).stat().st_mode & 0o777 == 0o700
    assert content(other.path) == expected


def test_a_file_of_another_user_in_it_is_replaced(model, base):
    made = make(model, base)
    give_away(made.path / "config.json")
    assert make(model, base) == made
    assert (made.path / "config.json").stat().st_uid == os.geteuid()


def test_a_base_that_others_could_rearrange_is_passed_over(model, base):
    base.mkdir(parents=True)
    base.chmod(0o777)
    made = make(model, base)
    assert made.path.parent == private(base)
    assert "writable by others" in made.notice


def test_a_base_that_is_a_link_is_passed_over(model, base, tmp_path):
    (tmp_path / "trap").mkdir()
    base.parent.mkdir()
    base.symlink_to(tmp_path / "trap")
    made = make(model, base)
    assert made.path.parent == private(base)
    assert list((tmp_path / "trap").iterdir()) == []


def failing(monkeypatch, number, below):
    """The kernel's answer to every new folder or file there."""
    real = {name: getattr(os, name) for name in ("open", "mkdir")}

    def fail(name):
        def call(path, *rest, **more):
            writes = name == "mkdir" or (rest and rest[0] & os.O_CREAT)
            if writes and f"{path}/".startswith(f"{below}/".replace("//", "/")) and not os.path.lexists(path):
                raise OSError(number, os.strerror(number), os.fspath(path))
            return real[name](path, *rest, **more)

        return call

    for name in real:
        monkeypatch.setattr(os, name, fail(name))


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_base_that_can_not_be_written_is_passed_over(model, base, monkeypatch, number):
    failing(monkeypatch, number, base)
    made = make(model, base)
    assert made.path.parent == private(base)
    assert os.strerror(number) in made.notice


def test_a_disk_that_fills_up_half_way_leaves_nothing(model, base, monkeypatch):
    base.mkdir(parents=True, mode=0o700)
    real = os.open

    def fail(path, flags, *rest, **more):
        if flags & os.O_CREAT and str(path).startswith(f"{base}/") and str(path).endswith("tokenizer.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", fail)
    made = make(model, base)
    assert made.path.parent == private(base)
    assert list(base.iterdir()) == []


def test_a_machine_that_can_not_be_written_at_all_is_an_error(model, base, monkeypatch):
    failing(monkeypatch, errno.EROFS, "/")
    with pytest.raises(LocalError, match="Read-only file system") as caught:
        make(model, base)
    assert "emptyDir" in caught.value.hint


def test_a_whole_folder_on_a_read_only_disk_is_used(model, base, monkeypatch):
    made = make(model, base)
    failing(monkeypatch, errno.EROFS, "/")
    assert make(model, base) == made


def test_processes_that_start_at_once_share_one_folder(model, base):
    code = (
        "import sys; from pathlib import Path; from glowplug.weights.checkpoint.opening import open_checkpoint;"
        "from glowplug.weights.checkpoint.metadata_folder import make_metadata_folder;"
        "from glowplug.weights.sources.local import LocalSource; source = LocalSource(sys.argv[1]);"
        "print(make_metadata_folder(source, open_checkpoint(source), base=Path(sys.argv[2])))"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, model, base], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {process.communicate()[0] for process in started}
    assert [process.returncode for process in started] == [0] * 4
    assert len(answers) == 1
    assert "notice=''" in answers.pop()
    assert stages(base) == []


def test_another_process_may_be_quicker(model, base, monkeypatch):
    real = os.rename

    def late(stage, path):
        monkeypatch.setattr(os, "rename", real)
        shutil.copytree(stage, path)
        real(stage, path)

    monkeypatch.setattr(os, "rename", late)
    made = make(model, base)
    assert made.notice == ""
    assert stages(base) == []


def test_what_a_killed_process_left_is_removed_after_an_hour(model, base):
    base.mkdir(parents=True)
    for name in (".stage-1-old", ".stage-2-new"):
        (base / name).mkdir()
        (base / name / "config.json").write_text("half")
    os.utime(base / ".stage-1-old", (time.time() - 7200,) * 2)
    make(model, base)
    assert stages(base) == [".stage-2-new"]


def test_a_file_too_large_to_be_configuration_is_left_out_and_told(model, base, monkeypatch):
    (model / "huge.json").write_bytes(b"1" * 2000)
    monkeypatch.setattr("glowplug.weights.checkpoint.small_files.MOST_BYTES", 1000)
    made = make(model, base)
    assert not (made.path / "huge.json").exists()
    assert "huge.json left out" in made.notice


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", True),
        ("modeling_custom.py", True),
        ("tokenizer.model", True),
        ("tokenizer.model.v3", True),
        ("tekken.json", True),
        ("merges.txt", True),
        ("chat_template.jinja", True),
        ("qwen.tiktoken", True),
        ("1_Pooling/config.json", True),
        ("a/b/config.json", False),
        ("../config.json", False),
        ("a/../config.json", False),
        ("/config.json", False),
        ("a//config.json", False),
        (".git/config.json", False),
        ("x\0.json", False),
        ("x" * 256 + ".json", False),
        ("original/params.json", False),
        ("LICENSE.txt", False),
        ("README.md", False),
        ("USE_POLICY.md", False),
        ("cat.png", False),
        ("model.safetensors", False),
        ("pytorch_model.bin", False),
        ("glowplug.seal.json", False),
        ("glowplug.complete.json", False),
    ],
)
def test_which_files_an_engine_reads(name, read):
    assert is_small_file(name) is read


def test_the_place_does_not_depend_on_home_or_user(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert str(metadata_folder.BASE) == "/tmp/glowplug-models"


def test_the_index_is_written_as_it_is(model, base):
    write_index(model, json.loads((model / "model.safetensors.index.json").read_text())["weight_map"])
    made = make(model, base)
    assert (made.path / "model.safetensors.index.json").read_bytes() == (model / "model.safetensors.index.json").read_bytes()


def test_the_headers_of_the_weights_are_there_and_no_weight(model, base):
    """vLLM reads types and names from the headers beside the configuration before it loads anything."""
    made = make(model, base)
    for path in model.glob("*.safetensors"):
        header, stub = (read_header(file) for file in (path, made.path / path.name))
        assert stub == {name: entry for name, entry in header.items() if name != "__metadata__"}
        size = (made.path / path.name).stat().st_size
        assert size == 8 + int.from_bytes((made.path / path.name).read_bytes()[:8], "little")  # nothing follows


def read_header(path):
    """As vLLM's ``parse_safetensors_file_metadata`` reads it."""
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))
