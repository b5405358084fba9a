"""Two engines that have compiled different things end in one generation that holds both, whatever happens meanwhile."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import uuid

import pytest
from cache_samples import ALL, DIGEST, ENVELOPE, SIGNER, STRANGER, TRUST, leftovers, make_tree, publish, snapshot, start

from glowplug.cache import layout, merge
from glowplug.cache.deadline import Deadline
from glowplug.cache.merge import Tainted, Tree, names_all, publish_tree
from glowplug.cache.repository import Repository
from glowplug.cache.secrets import SecretScan
from glowplug.cache.trust import Trust
from glowplug.cache.verify import verify_generation
from glowplug.errors import BadManifest, DeadlineExceeded, LocalError, SecretFound, UnknownKey
from glowplug.store import open_store
from glowplug.store.memory import MemoryStore
from glowplug.units import MIB

OLD = {"inductor/aa/old.so": b"old", "vllm/notes.json": b"{}"}


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return open_store(f"file://{tmp_path}/store", env={})
    server = request.getfixturevalue("seaweedfs")
    return open_store(f"s3://{server.bucket}/merge/{uuid.uuid4().hex}", env=server.env)


def put_out(store, root, *, restored=None, known=(), deadline=None, env=None, signer=SIGNER, trust=TRUST, may_displace=False):
    """What a wrapper does beside its engine."""
    return publish_tree(
        Repository(store),
        ENVELOPE,
        Tree(root, ALL, 1, 0, restored, known),
        signer,
        trust,
        may_displace=may_displace,
        cold_start_s=3.0,
        scan_secrets=SecretScan(env or {}),
        deadline=deadline or Deadline(60, step="publish"),
    )


def newest(store):
    repository = Repository(store)
    return repository.load(DIGEST, repository.latest(DIGEST).generation, TRUST)


def paths(manifest):
    return {entry.path for entry in manifest.files}


def content(root):
    return {path: data for path, (_, _, data) in snapshot(root).items()}


def replica(tmp_path, name, new, old=OLD):
    """The live folder of an engine that began with the old generation, and has compiled since."""
    return make_tree(tmp_path / name, old | new)


def test_a_tree_that_began_with_the_newest_generation_replaces_it(store, tmp_path):
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    tree = replica(tmp_path, "live", {"inductor/bb/new.so": b"new"})
    ended = put_out(store, tree, restored=base, known={base})
    assert ended.state == "published"
    assert newest(store).digest == ended.manifest.digest
    assert paths(ended.manifest) == set(OLD) | {"inductor/bb/new.so"}


def test_what_was_published_meanwhile_is_joined_and_the_live_folder_is_left_as_it_is(store, tmp_path):
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    theirs = {"inductor/bb/theirs.so": b"theirs" * 1000, "triton/K/theirs.cubin": (b"x", 0o755)}
    publish(store, replica(tmp_path, "other", theirs))
    live = replica(tmp_path, "live", {"inductor/bb/ours.so": b"ours"})
    before = snapshot(live)
    ended = put_out(store, live, restored=base, known={base})
    assert ended.state == "joined"
    assert snapshot(live) == before
    assert leftovers(live) == []
    assert start(store, make_tree(tmp_path / "there", {})).generation == ended.manifest.digest
    both = snapshot(tmp_path / "other") | before
    assert snapshot(tmp_path / "there") == both


def test_where_both_have_compiled_one_name_the_published_one_counts(store, tmp_path):
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    publish(store, replica(tmp_path, "other", {"inductor/same.so": b"theirs", "inductor/folder/x": b"1", "inductor/file": b"2"}))
    make_tree(
        tmp_path / "live",
        OLD
        | {
            "inductor/same.so": b"ours",
            "inductor/folder": b"a file",
            "inductor/file/x": b"in a folder",
            "inductor/ours.so": b"ours",
        },
    )
    for path in (tmp_path / "live").rglob("*.so"):
        os.utime(path)  # ours are younger
    ended = put_out(store, tmp_path / "live", restored=base, known={base})
    start(store, make_tree(tmp_path / "there", {}))
    assert ended.state == "joined"
    assert content(tmp_path / "there") == content(tmp_path / "other") | {"inductor/ours.so": b"ours"}


def test_what_others_have_published_already_is_not_published_again(store, tmp_path):
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    theirs = publish(store, replica(tmp_path, "other", {"inductor/x.so": b"theirs", "inductor/y.so": b"more"})).manifest
    before = [info.key for info in store.list("")]
    live = replica(tmp_path, "live", {"inductor/x.so": b"ours"})
    ended = put_out(store, live, restored=base, known={base})
    assert (ended.state, ended.manifest.digest) == ("contained", theirs.digest)
    assert [info.key for info in store.list("")] == before


def test_notes_beside_compiled_code_and_junk_are_nothing_new(store, tmp_path):
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest
    live = replica(tmp_path, "live", {"vllm/more-notes.json": b"{}", "inductor/x.lock": b"", "inductor/tmp.pid_1_2/x": b"x"})
    assert put_out(store, live).state == "contained"
    assert newest(store).digest == base.digest


def test_names_decide_what_is_new_and_only_compiled_ones(tmp_path):
    tree = replica(tmp_path, "live", {"vllm/torch_compile_cache/a/rank_0_0/g": b"g"})
    made = publish(MemoryStore(), make_tree(tmp_path / "base", OLD)).manifest
    files = merge.scan_tree(tree, ALL)
    assert not names_all(made, files)
    assert names_all(made, [file for file in files if "rank_0_0" not in file.path])


def test_two_that_publish_at_once_end_in_one_generation_with_both(store, tmp_path):
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    trees = [replica(tmp_path, f"live{number}", {f"inductor/{number}.so": b"%d" % number}) for number in range(2)]
    barrier, ended = threading.Barrier(2), []

    def work(tree):
        barrier.wait(20)
        ended.append(put_out(store, tree, restored=base, known={base}))

    threads = [threading.Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.state for each in ended} <= {"published", "joined"}
    assert paths(newest(store)) == set(OLD) | {"inductor/0.so", "inductor/1.so"}
    assert not verify_generation(Repository(store), DIGEST, newest(store).digest, TRUST).problem


def test_of_a_fleet_that_compiles_the_same_at_once_one_replica_publishes(store, tmp_path):
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    trees = [replica(tmp_path, f"live{number}", {"inductor/same.so": b"%d" % number}) for number in range(8)]
    barrier, ended = threading.Barrier(len(trees)), []

    def work(tree):
        barrier.wait(20)
        ended.append(put_out(store, tree, restored=base, known={base}))

    threads = [threading.Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.state for each in ended) == ["contained"] * 7 + ["published"]
    assert {each.manifest.digest for each in ended} == {newest(store).digest}


PUBLISHER = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from cache_samples import *
from glowplug.cache.merge import Tree, publish_tree
from glowplug.store import open_store
url, root, base = sys.argv[2:]
sys.stdin.read(1)
tree = Tree(pathlib.Path(root), ALL, 1, 0, base, {base})
ended = publish_tree(Repository(open_store(url, env=os.environ)), ENVELOPE, tree, SIGNER, TRUST, may_displace=False,
    cold_start_s=None, scan_secrets=SecretScan({}), deadline=Deadline(60, step="publish"))
print(ended.state)
"""


@pytest.mark.parametrize("where", ["file", pytest.param("s3", marks=pytest.mark.s3)])
def test_three_processes_that_publish_at_once_lose_nothing(where, request, tmp_path):
    env, url = dict(os.environ), f"file://{tmp_path}/store"
    if where == "s3":
        server = request.getfixturevalue("seaweedfs")
        env, url = env | server.env, f"s3://{server.bucket}/merge/{uuid.uuid4().hex}"
    store = open_store(url, env=env)
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    children = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                PUBLISHER,
                os.path.dirname(__file__),
                url,
                replica(tmp_path, f"live{number}", {f"inductor/{number}.so": bytes([number]) * 50_000}),
                base,
            ],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for child in children:
        child.stdin.write("x")
        child.stdin.flush()
    assert {child.communicate(timeout=60)[0].strip() for child in children} <= {"published", "joined"}
    assert {child.returncode for child in children} == {0}
    assert paths(newest(store)) == set(OLD) | {f"inductor/{number}.so" for number in range(3)}


class Busy(MemoryStore):
    """Somebody else publishes whenever a pack has been put, so that every attempt comes too late."""

    def __init__(self, tmp_path):
        super().__init__()
        self.serial = itertools.count()
        self.tmp_path = tmp_path
        self.busy = False

    def put_file(self, key, path, *, sha256):
        etag = super().put_file(key, path, sha256=sha256)
        if self.busy:
            self.busy = False
            number = next(self.serial)
            publish(self, make_tree(self.tmp_path / f"rival{number}", OLD | {f"inductor/rival{number}.so": b"r"}))
            self.busy = True
        return etag


def test_whoever_is_always_too_late_gives_up_and_displaces_nobody(tmp_path):
    store = Busy(tmp_path)
    base = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    store.busy = True
    ended = put_out(store, replica(tmp_path, "live", {"inductor/ours.so": b"ours"}), restored=base, known={base})
    assert ended.state == "overtaken"
    assert next(store.serial) == merge._ATTEMPTS
    assert "inductor/ours.so" not in paths(newest(store))
    store.busy = False
    assert put_out(store, tmp_path / "live", restored=base, known={base}).state == "joined"
    assert {"inductor/ours.so", "inductor/rival3.so"} <= paths(newest(store))


# --- generations that must not be joined ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"garbage", b"", None])
def test_a_generation_whose_pack_is_damaged_or_gone_is_replaced(store, tmp_path, damage):
    theirs = publish(store, make_tree(tmp_path / "other", {"inductor/theirs.so": b"theirs"})).manifest
    key = layout.pack_key(DIGEST, theirs.pack.sha256)
    store.delete(key) if damage is None else store.put(key, damage)
    live = replica(tmp_path, "live", {})
    assert put_out(store, live).state in {"published", "joined"}
    assert paths(newest(store)) == set(OLD)
    assert leftovers(live) == []


def test_a_pointer_at_nothing_and_a_broken_pointer_are_replaced(tmp_path):
    for pointer in (b"broken", b'{"generation":"%s"}' % (b"0" * 64)):
        store = MemoryStore()
        store.put(layout.latest_key(DIGEST), pointer)
        assert put_out(store, make_tree(tmp_path / "live", OLD)).state == "published"
        assert paths(newest(store)) == set(OLD)


def test_a_stranger_s_generation_is_neither_joined_nor_displaced_unless_that_is_wanted(store, tmp_path):
    theirs = publish(store, make_tree(tmp_path / "other", {"inductor/theirs.so": b"theirs"}), signer=STRANGER).manifest
    live = replica(tmp_path, "live", {})
    with pytest.raises(UnknownKey):
        put_out(store, live)
    assert Repository(store).latest(DIGEST).generation == theirs.digest
    assert put_out(store, live, may_displace=True).state == "published"
    assert paths(newest(store)) == set(OLD)


def test_a_generation_in_quarantine_is_replaced_and_nothing_of_it_is_kept(store, tmp_path):
    bad = publish(store, make_tree(tmp_path / "other", {"inductor/bad.so": b"bad"})).manifest.digest
    store.put(layout.quarantine_key(DIGEST, bad), b"{}")
    assert put_out(store, replica(tmp_path, "live", {})).state == "published"
    assert paths(newest(store)) == set(OLD)


def test_a_tree_that_began_with_a_generation_now_in_quarantine_is_not_published(store, tmp_path):
    bad = publish(store, make_tree(tmp_path / "base", OLD)).manifest.digest
    store.put(layout.quarantine_key(DIGEST, bad), b"{}")
    before = [info.key for info in store.list("")]
    with pytest.raises(Tainted, match="in quarantine"):
        put_out(store, replica(tmp_path, "live", {"inductor/new.so": b"new"}), restored=bad, known={bad})
    assert [info.key for info in store.list("")] == before


def test_a_union_that_is_refused_never_displaces_the_generation_that_it_was_to_hold(tmp_path, monkeypatch):
    """As when the very same files are in quarantine."""
    store = MemoryStore()
    theirs = publish(store, make_tree(tmp_path / "other", {"inductor/theirs.so": b"theirs"})).manifest
    tried = []

    def refuse(_, manifest, *__, **___):
        tried.append(paths(manifest))
        raise BadManifest("these very files are in quarantine")

    monkeypatch.setattr(Repository, "publish", refuse)
    with pytest.raises(BadManifest):
        put_out(store, replica(tmp_path, "live", {}))
    assert tried == [set(OLD) | {"inductor/theirs.so"}]
    assert newest(store).digest == theirs.digest


# --- failures leave nothing -----------------------------------------------------------------------------------------------------


def test_a_secret_in_either_tree_stops_the_publication(tmp_path):
    for where in ("theirs", "ours"):
        store, folder = MemoryStore(), tmp_path / where
        secret = {f"inductor/{where}.json": b'"a-secret-value"'}
        publish(store, make_tree(folder / "other", OLD | (secret if where == "theirs" else {})))
        live = replica(folder, "live", {"inductor/new.so": b"n"} | (secret if where == "ours" else {}))
        with pytest.raises(SecretFound, match=f"{where}.json"):
            put_out(store, live, env={"MY_API_KEY": "a-secret-value"})
        assert leftovers(live) == []


def test_a_publication_called_off_while_it_fetches_leaves_nothing(tmp_path):
    deadline = Deadline(60, step="publish")

    class Telling(MemoryStore):
        def read_into(self, key, start, buffer, *, if_match=None):
            deadline.cancel("the engine has ended")
            super().read_into(key, start, buffer, if_match=if_match)

    store = Telling()
    theirs = publish(store, make_tree(tmp_path / "other", {"inductor/theirs.so": os.urandom(9 * MIB)})).manifest
    live = replica(tmp_path, "live", {})
    with pytest.raises(DeadlineExceeded, match="the engine has ended"):
        put_out(store, live, deadline=deadline)
    assert leftovers(live) == []
    assert newest(store).digest == theirs.digest


def test_a_disk_without_room_for_their_files_is_an_error_that_says_so(tmp_path, monkeypatch):
    store = MemoryStore()
    publish(store, make_tree(tmp_path / "other", {"inductor/theirs.so": b"theirs"}))
    live = replica(tmp_path, "live", {})
    real = os.statvfs(live)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((real.f_bsize, real.f_frsize, real.f_blocks, 1, 1, *real[5:])))
    with pytest.raises(LocalError, match=r"and .* has .* free"):
        put_out(store, live)
    assert leftovers(live) == []


def test_a_disk_that_fills_up_while_their_files_are_written_leaves_nothing(tmp_path):
    """The kernel stops the file in the middle of a write."""
    store_folder = tmp_path / "store"
    store = open_store(f"file://{store_folder}", env={})
    publish(store, make_tree(tmp_path / "other", {"inductor/theirs.so": os.urandom(3 * MIB)}))
    live = replica(tmp_path, "live", {})
    code = f"""
import pathlib, resource, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_merge import *
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    put_out(open_store("file://{store_folder}", env={{}}), pathlib.Path("{live}"))
except LocalError as error:
    print(error.line())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "File too large (free space" in done.stdout
    assert leftovers(live) == []
    assert paths(newest(store)) == {"inductor/theirs.so"}
    shutil.rmtree(live)


def test_a_stranger_who_is_trusted_is_joined(tmp_path):
    store = MemoryStore()
    publish(store, make_tree(tmp_path / "other", {"inductor/theirs.so": b"theirs"}), signer=STRANGER)
    both = Trust((SIGNER.public, STRANGER.public))
    assert put_out(store, replica(tmp_path, "live", {}), trust=both).state == "joined"
    assert paths(newest(store)) == set(OLD) | {"inductor/theirs.so"}
