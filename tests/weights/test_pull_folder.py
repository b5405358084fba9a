"""Pulling a checkpoint: whole, verified, resumable; nothing of another hand is touched. The source is a folder here."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest
from weights_samples import write_checkpoint

from glowplug.cache.keys import PrivateKey
from glowplug.cache.trust import SEAL, KeySigner, Trust
from glowplug.errors import IntegrityError, LocalError, ObjectChanged, UnknownKey, Unsigned, UsageError
from glowplug.store import open_store
from glowplug.weights.base import Checkpoint, Entry
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.fetch.settings import FetchSettings
from glowplug.weights.seals.document import seal_document
from glowplug.weights.seals.sealing import digest_checkpoint
from glowplug.weights.sources.local import LocalSource
from glowplug.weights.transfer import pull_disk
from glowplug.weights.transfer.marker import COMPLETE_NAME, SEAL_NAME, parse_marker
from glowplug.weights.transfer.pull import pull
from glowplug.weights.transfer.pull_journal import STATE_FOLDER, Journal, Version
from glowplug.weights.transfer.push import push

ALICE = KeySigner(PrivateKey(b"a" * 32))
BOB = KeySigner(PrivateKey(b"b" * 32))
SHARD = "model-00002-of-00002.safetensors"
SETTINGS = FetchSettings()
BLOCK = 4096


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_checkpoint(folder, files=2, tensors=5, elements=(4000, 9000))
    return folder


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pulled"


def trusting(signer=ALICE):
    trust = Trust((signer.public,))
    return lambda document: trust.verify(document, kind=SEAL)


def seal(model, signer=ALICE):
    source = LocalSource(model)
    made = digest_checkpoint(source, open_checkpoint(source), settings=SETTINGS, block_bytes=BLOCK).seal
    (model / SEAL_NAME).write_bytes(signer.sign(seal_document(made), SEAL))


class Counting(LocalSource):
    """Counts what is fetched for the files, and fails where it is told to."""

    def __init__(self, path, *, fail_after=None):
        super().__init__(path)
        self.fetched = 0
        self.fail_after = fail_after

    def read_into(self, file, start, view, meter):
        if self.fail_after is not None and self.fetched >= self.fail_after:
            raise LocalError("cut")
        super().read_into(file, start, view, meter)
        self.fetched += view.nbytes


def pulled(model, folder, *, source=None, **options):
    source = source or LocalSource(model)
    return pull(source, open_checkpoint(source), folder, **{"settings": SETTINGS, "verify": trusting()} | options)


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != COMPLETE_NAME and STATE_FOLDER not in path.parts
    }


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def test_all_files_arrive_and_nothing_else_is_left(model, folder):
    done = pulled(model, folder)
    assert files(folder) == files(model)
    assert done.verified == "sizes and headers"
    assert done.fetched_bytes == done.size_bytes == sum(map(len, files(model).values()))
    assert not (folder / STATE_FOLDER).exists()
    marker = parse_marker((folder / COMPLETE_NAME).read_bytes(), name="m")
    assert {file.name for file in marker.files} == set(files(model))
    assert len(open_checkpoint(LocalSource(folder)).tensors) == 10


def test_a_folder_that_is_complete_is_not_touched(model, folder):
    pulled(model, folder)
    before = {path: path.stat() for path in folder.iterdir()}
    source = Counting(model)
    again = pulled(model, folder, source=source)
    assert again.complete
    assert source.fetched == 0
    assert {path: path.stat() for path in folder.iterdir()} == before


def test_with_a_trusted_seal_it_is_verified_by_it(model, folder):
    seal(model)
    assert pulled(model, folder).verified == "seal"
    assert files(folder) == files(model)  # the seal came along


def test_a_seal_of_a_stranger_does_not_count_and_that_is_said(model, folder):
    seal(model, BOB)
    done = pulled(model, folder)
    assert done.verified == "sizes and headers"
    assert "signed by key" in done.note


def test_where_a_seal_is_required_nothing_else_will_do(model, folder):
    with pytest.raises(Unsigned):
        pulled(model, folder, require_seal=True)
    seal(model, BOB)
    with pytest.raises(UnknownKey):
        pulled(model, folder, require_seal=True)
    assert not folder.exists()


@pytest.mark.parametrize("name", [SHARD, "tokenizer.json"])
def test_a_byte_that_is_not_as_sealed_ends_the_pull_and_never_reaches_its_place(model, folder, name):
    seal(model)
    flip(model / name, (model / name).stat().st_size - 1)
    with pytest.raises(IntegrityError, match="not those that were sealed") as caught:
        pulled(model, folder)
    assert caught.value.object == str(model / name)
    assert not (folder / name).exists()
    assert not (folder / COMPLETE_NAME).exists()


def test_a_byte_that_was_wrong_on_the_way_is_fetched_again(model, folder):
    seal(model)

    class Flipping(LocalSource):
        wrong = 0

        def read_into(self, file, start, view, meter):
            super().read_into(file, start, view, meter)
            if file.name == SHARD and start > 5000 and not Flipping.wrong:
                Flipping.wrong += 1
                view[7] ^= 1

    assert pulled(model, folder, source=Flipping(model)).verified == "seal"
    assert Flipping.wrong == 1
    assert files(folder) == files(model)


def test_after_a_failure_only_the_rest_is_fetched(model, folder):
    seal(model)
    with pytest.raises(LocalError, match="cut"):
        pulled(model, folder, source=Counting(model, fail_after=150_000), settings=FetchSettings(concurrency=1))
    assert not (folder / COMPLETE_NAME).exists()
    source = Counting(model)
    done = pulled(model, folder, source=source)
    total = sum(path.stat().st_size for path in model.iterdir() if path.name != SEAL_NAME)
    assert source.fetched == done.fetched_bytes <= total - 100_000
    assert files(folder) == files(model)


def test_a_file_that_changed_at_the_source_is_begun_again(model, folder):
    seal(model)
    with pytest.raises(LocalError, match="cut"):
        pulled(model, folder, source=Counting(model, fail_after=150_000), settings=FetchSettings(concurrency=1))
    write_checkpoint(model, files=2, tensors=5, seed=5, elements=(4000, 9000))
    seal(model)
    pulled(model, folder)
    assert files(folder) == files(model)


def test_what_was_fetched_without_a_seal_is_fetched_again_to_be_verified(model, folder):
    pulled(model, folder)
    seal(model)
    source = Counting(model)
    assert pulled(model, folder, source=source).verified == "seal"
    assert source.fetched == sum(len(data) for name, data in files(model).items() if name != SEAL_NAME)


def test_an_interrupted_update_of_another_version_never_looks_complete(model, folder):
    pulled(model, folder)
    write_checkpoint(model, files=2, tensors=5, seed=5, elements=(4000, 9000))
    with pytest.raises(LocalError, match="cut"):
        pulled(model, folder, source=Counting(model, fail_after=1))
    assert not (folder / COMPLETE_NAME).exists()
    pulled(model, folder)
    assert files(folder) == files(model)


def test_shards_of_an_older_version_do_not_stay(model, folder):
    pulled(model, folder)
    for path in list(model.iterdir()):
        path.unlink()
    write_checkpoint(model, files=1, seed=6)
    (folder / "my notes.txt").write_text("mine")
    pulled(model, folder)
    (folder / "my notes.txt").unlink()
    assert files(folder) == files(model)


def test_a_file_of_another_hand_is_not_replaced_unless_forced(model, folder):
    folder.mkdir()
    (folder / "config.json").write_text("mine")
    source = Counting(model)
    with pytest.raises(LocalError, match=r"config\.json is there already") as caught:
        pulled(model, folder, source=source)
    assert "--force" in caught.value.hint
    assert source.fetched == 0
    assert list(folder.iterdir()) == [folder / "config.json"]
    pulled(model, folder, force=True)
    assert files(folder) == files(model)


@pytest.mark.parametrize("below", ["", "copy", "a/b"])
def test_a_pull_into_what_is_pulled_is_refused(model, below):
    before = files(model)
    with pytest.raises(UsageError, match="lies in the folder that is to be copied"):
        pulled(model, model / below, force=True)
    assert files(model) == before
    assert not (model / STATE_FOLDER).exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_in_a_files_place_is_named_before_anything_is_fetched(model, folder, force):
    (folder / SHARD).mkdir(parents=True)
    source = Counting(model)
    with pytest.raises(LocalError, match=f"{SHARD} can't be written: a folder is in its place"):
        pulled(model, folder, source=source, force=force)
    (folder / SHARD).rmdir()
    (model / "code").mkdir()
    (model / "code" / "modeling.py").write_text("pass")
    (folder / "code").write_text("a file")
    with pytest.raises(LocalError, match=r"modeling.py can't be written: a file is in the place of its folder"):
        pulled(model, folder, source=source, force=force)
    assert source.fetched == 0
    assert not (folder / STATE_FOLDER).exists()


def test_a_file_that_was_edited_after_the_pull_is_not_replaced(model, folder):
    pulled(model, folder)
    path = folder / "config.json"
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=((folder / COMPLETE_NAME).stat().st_mtime_ns + 10**9,) * 2)
    with pytest.raises(LocalError, match=r"config\.json is there already"):
        pulled(model, folder)


def test_weights_that_no_load_reads_come_only_when_asked_for(model, folder):
    (model / "original").mkdir()
    (model / "original" / "consolidated.00.pth").write_bytes(b"pickle" * 1000)
    pulled(model, folder)
    assert not (folder / "original").exists()
    pulled(model, folder, everything=True)
    assert files(folder) == files(model)


def test_a_ring_of_the_least_size_will_do(model, folder):
    seal(model)
    pulled(model, folder, ring_bytes=1)
    assert files(folder) == files(model)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/../../evil", ".glowplug-pull/journal", "a//b", "x\0y", "config.json/x"]
)
def test_a_name_that_leads_elsewhere_is_refused(model, folder, name):
    source = LocalSource(model)
    checkpoint = open_checkpoint(source)
    hostile = Checkpoint(checkpoint.uri, checkpoint.files, checkpoint.tensors, (*checkpoint.others, Entry(name, 4, '"1"')))
    with pytest.raises(IntegrityError, match="no file may be written"):
        pull(source, hostile, folder, settings=SETTINGS, verify=trusting())
    assert not folder.exists()


def test_two_pulls_into_one_folder_do_not_mix(model, folder):
    folder.mkdir()
    journal = Journal(folder, "elsewhere")
    with pytest.raises(LocalError, match="another pull is at work"):
        pulled(model, folder)
    journal.close()
    pulled(model, folder)


def test_a_header_that_changes_under_the_pull_is_noticed(model, folder):
    source = LocalSource(model)
    checkpoint = open_checkpoint(source)
    path = model / SHARD
    status = path.stat()
    flip(path, 20)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ObjectChanged, match="header has changed"):
        pull(source, checkpoint, folder, settings=SETTINGS, verify=trusting())


# --- disks


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(mount)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("a file system can't be mounted here")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(model, small_disk):
    source = Counting(model)
    with pytest.raises(LocalError, match=r"needs 2\d\d\.\d KiB more, and its disk has \d+\.\d KiB free"):
        pulled(model, small_disk / "m", source=source)
    assert source.fetched == 0
    assert not (small_disk / "m" / STATE_FOLDER).exists()


def test_a_disk_that_turns_out_full_gives_back_what_was_taken(model, small_disk, monkeypatch):
    monkeypatch.setattr(pull_disk.Disk, "_refuse_small_disk", lambda _: None)
    with pytest.raises(LocalError, match="No space left") as caught:
        pulled(model, small_disk / "m")
    assert "free space" in caught.value.hint
    assert not (small_disk / "m" / STATE_FOLDER).exists()


def test_a_limit_on_file_sizes_is_one_clear_error(model, folder):
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536));"
        "sys.argv[0] = 'glowplug'; from glowplug.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-B", "-c", program, "weights", "pull", str(model), str(folder)],  # it would cut off bytecode as well
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert "ulimit -f" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 65536


def test_where_no_room_can_be_reserved_it_is_written_all_the_same(model, folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    pulled(model, folder)
    assert files(folder) == files(model)


def test_a_disk_that_fails_while_it_is_written_ends_the_pull(model, folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(LocalError, match="Input/output error"):
        pulled(model, folder)
    assert not (folder / COMPLETE_NAME).exists()


def test_a_folder_that_can_not_be_written_is_named(model, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(LocalError, match="file"):
        pulled(model, tmp_path / "file" / "m")


# --- the journal


@pytest.fixture
def journal(tmp_path):
    """A journal as the next attempt opens it: what was open before is closed."""
    opened = []

    def make(source="s"):
        for one in opened:
            one._file.close()
        opened.append(Journal(tmp_path, source))
        return opened[-1]

    yield make
    for one in opened:
        one._file.close()


def test_a_torn_last_line_of_the_journal_is_forgotten(journal, tmp_path):
    first = journal()
    first.begin("a", Version(10, '"1"', 0))
    first.note_done([("a", 0, 5)])
    path = tmp_path / STATE_FOLDER / "journal"
    path.write_bytes(path.read_bytes() + b'{"done":"a","sta')
    again = journal()
    assert again.begin("a", Version(10, '"1"', 0)).done == {(0, 5)}
    again.note_done([("a", 5, 10)])
    assert journal().files["a"].done == {(0, 5), (5, 10)}


@pytest.mark.parametrize("content", [b"", b"junk\n", b'{"schema":"x"}\n', b'["done"]\n', b"\xff\n\n"])
def test_a_journal_that_can_not_be_read_is_begun_anew(journal, tmp_path, content):
    (tmp_path / STATE_FOLDER).mkdir()
    (tmp_path / STATE_FOLDER / "journal").write_bytes(content)
    assert journal().files == {}


def test_what_another_source_has_sent_is_forgotten(journal):
    first = journal()
    first.begin("a", Version(10, '"1"', 0))
    first.note_done([("a", 0, 5)])
    assert journal("t").files == {}


def test_a_file_that_can_not_be_told_apart_from_its_next_version_is_begun_again(journal):
    first = journal()
    first.begin("a", Version(10, "", 0))
    first.note_done([("a", 0, 5)])
    assert first.begin("a", Version(10, "", 0)).done == set()


# --- the digests that a push has left


@pytest.fixture
def published(model, tmp_path):
    """The model as a push leaves it."""
    target = tmp_path / "published"
    push(open_checkpoint(LocalSource(model)), model, open_store(f"file://{target}", env={}))
    return target


def test_what_was_pushed_is_verified_by_its_digests(published, folder):
    assert pulled(published, folder).verified == "its push's digests"
    assert pulled(published, folder).complete


@pytest.mark.parametrize("name", ["config.json", SHARD])
def test_a_byte_that_is_not_as_pushed_never_reaches_its_place_and_is_fetched_again(published, folder, name):
    flip(published / name, (published / name).stat().st_size - 2)
    with pytest.raises(IntegrityError, match="is not as it was pushed") as caught:
        pulled(published, folder)
    assert caught.value.object == str(published / name)
    assert not (folder / name).exists()
    assert not (folder / COMPLETE_NAME).exists()
    flip(published / name, (published / name).stat().st_size - 2)
    assert pulled(published, folder).verified == "its push's digests"
    assert (folder / name).read_bytes() == (published / name).read_bytes()


def test_a_file_that_was_pushed_and_is_missing_or_of_another_size_is_named_before_anything_is_fetched(published, folder):
    path = published / "config.json"
    config = path.read_bytes()
    path.write_bytes(config + b" ")
    source = Counting(published)
    with pytest.raises(IntegrityError, match=rf"config\.json: has {len(config) + 1} bytes"):
        pulled(published, folder, source=source)
    path.unlink()
    with pytest.raises(IntegrityError, match=r"config\.json: is missing"):
        pulled(published, folder, source=source)
    assert source.fetched == 0


def test_a_single_file_is_held_to_its_folders_seal_and_goes_without_it(model, folder):
    with pytest.raises(Unsigned, match=r"has no glowplug\.seal\.json") as caught:
        pulled(model / SHARD, folder, require_seal=True)
    assert "seal FOLDER" in caught.value.hint
    seal(model)
    assert pulled(model / SHARD, folder, require_seal=True).verified == "seal"
    assert {path.name for path in folder.iterdir()} == {SHARD, COMPLETE_NAME}  # a seal of other files too would not fit there
    flip(model / SHARD, -1)
    with pytest.raises(IntegrityError, match="not those that were sealed"):
        pulled(model / SHARD, folder.with_name("again"))
