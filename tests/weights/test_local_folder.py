"""Which files a local checkpoint has: links are followed, and none of them makes a walk endless or a copy incomplete."""

from __future__ import annotations

import os

import pytest
from commands import weights
from weights_samples import write_checkpoint

from glowplug.errors import Forbidden, GlowplugError, LocalError, ObjectNotFound
from glowplug.weights.sources import local_folder
from glowplug.weights.sources.local import LocalSource


@pytest.fixture
def model(tmp_path):
    """A checkpoint as the Hugging Face cache has it: a folder of links to files named by their content."""
    snapshot, blobs = tmp_path / "hub" / "snapshots" / "abc", tmp_path / "hub" / "blobs"
    write_checkpoint(snapshot)
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(f"../../blobs/{number}")
    return snapshot


def names(folder):
    return [entry.name for entry in LocalSource(folder).entries()]


def test_a_listing_goes_two_folders_deep_and_leaves_out_what_is_hidden(tmp_path):
    for name in ("b.json", "a/b.json", "a/b/c.json", "a/b/c/d.json", ".git/config", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / os.fsdecode(b"no-text-\xff.json")).write_bytes(b"1")
    assert names(tmp_path) == ["a/b.json", "a/b/c.json", "b.json"]


def test_a_snapshot_of_links_is_pulled_as_whole_files(model, tmp_path):
    ended = weights("pull", model, tmp_path / "pulled", env={"HOME": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    for path in model.iterdir():
        assert (tmp_path / "pulled" / path.name).read_bytes() == path.read_bytes()
        assert not (tmp_path / "pulled" / path.name).is_symlink()


LOOPS = {
    "to its own folder": [("loop", ".")],
    "to the folder above": [("sub/up", "..")],
    "to the root": [("sub/root", "/")],
    "to what holds the model": [("parent", "..")],
    "to each other": [("a/b", "../c"), ("c/a", "../a")],
}


@pytest.mark.parametrize("links", LOOPS.values(), ids=LOOPS)
def test_a_link_to_a_folder_above_it_brings_nothing_twice(model, links):
    before = names(model)
    for link, target in links:
        (model / link).parent.mkdir(exist_ok=True)
        (model / link).symlink_to(target)
    assert names(model) == before


def test_a_link_to_a_folder_elsewhere_is_followed(model, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "tokenizer.json").write_text("{}")
    (model / "tok").symlink_to(tmp_path / "shared")
    assert "tok/tokenizer.json" in names(model)


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "config.json", "code/modeling.py"])
@pytest.mark.parametrize(("target", "says"), [("nowhere", "to a file that is not there"), ("{}", "that leads in a circle")])
def test_a_file_that_is_a_link_to_nowhere_is_named(model, tmp_path, name, target, says):
    path = model / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target.format(path.name))
    with pytest.raises(ObjectNotFound) as caught:
        names(model)
    assert caught.value.object == str(path)
    ended = weights("pull", model, tmp_path / "pulled", env={"HOME": str(tmp_path)})
    assert ended.returncode == 1
    assert ended.stderr == f"glowplug: {path} is a link {says}\n  hint: download the model again, or remove the link\n"
    assert not (tmp_path / "pulled").exists()


def test_a_link_to_nowhere_that_no_engine_reads_is_left_out(model):
    before = names(model)
    (model / "picture.png").symlink_to("nowhere")
    (model / "notes.md").symlink_to("notes.md")
    assert names(model) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_link_to_what_may_not_be_read_is_named(model, tmp_path):
    (tmp_path / "locked").mkdir(mode=0)
    (model / "extra.json").symlink_to(tmp_path / "locked" / "extra.json")
    with pytest.raises(Forbidden) as caught:
        names(model)
    assert caught.value.object == str(model / "extra.json")


@pytest.mark.parametrize("linked", [True, False])
def test_a_folder_of_too_many_files_is_refused_and_the_link_to_it_named(model, tmp_path, monkeypatch, linked):
    monkeypatch.setattr(local_folder, "_MOST_FILES", 30)
    (tmp_path / "home").mkdir()
    for number in range(40):
        (tmp_path / "home" / f"{number}.txt").touch()
    link = model / "home"
    link.symlink_to(tmp_path / "home")
    with pytest.raises(LocalError, match="holds more than 30 files") as caught:
        names(model if linked else tmp_path / "home")
    assert caught.value.object == str(link if linked else tmp_path / "home")
    assert ("remove this link" in caught.value.hint) is linked


def test_a_folder_that_is_a_link_in_a_circle_is_named(tmp_path):
    (tmp_path / "model").symlink_to("model")
    with pytest.raises(GlowplugError) as caught:
        names(tmp_path / "model")
    assert caught.value.object == str(tmp_path / "model")
    assert "symbolic links" in caught.value.message
