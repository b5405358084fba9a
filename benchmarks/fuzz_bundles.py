"""Fuzzed bundles: whatever a store holds, and whoever has signed it, no file elsewhere, no error but ours, no memory without bound.

Boundary: each case puts a damaged bundle (or one document) into a store in memory, and lets the program do what a start does with
it: pointer, quarantine, signature, manifest, pack, restore into a live folder that holds a file of its own. Most manifests are
signed by a key that the reader trusts, so that what stands in them gets through. Cases are drawn by hypothesis (which mutators,
which JSON) and by mutators of our own (``fuzz_mutators``), from a fixed seed. A case has failed if

- something was opened for writing, made, renamed, linked, removed or changed outside of its live folder (``fuzz_watch``), or the
  canary folder beside it is another one afterwards;
- anything was raised but a ``GlowplugError``, also a MemoryError: each process may have 2 GiB of addresses;
- it was accepted, and the tree is not what the manifest says; or refused, and the live folder is another one than before;
- ``cache verify``, which looks at every fifth bundle first, has said something else of it than the restore.

Peak memory is each process's own (VmHWM): the fuzzer, hypothesis and the bombs are in it.

    python -m benchmarks.fuzz_bundles --cases 100000 --folder /dev/shm
    python -m benchmarks.fuzz_bundles --case "('pack', 439955986, [], 4, [])"
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks import fuzz_mutators as mutate
from benchmarks import record
from benchmarks.fuzz_watch import Watch
from glowplug.cache import layout
from glowplug.cache.deadline import Deadline
from glowplug.cache.envelope import Envelope, canonical_json
from glowplug.cache.explain.causes import causes
from glowplug.cache.explain.text import two_lines
from glowplug.cache.keys import PrivateKey, read_private, read_public
from glowplug.cache.lease import Holder
from glowplug.cache.lease import Watch as LeaseWatch
from glowplug.cache.manifest import FileEntry, Manifest, PackInfo
from glowplug.cache.quarantine import choose
from glowplug.cache.quarantine.testimony import Testimony
from glowplug.cache.quarantine.verdicts import verdict_on
from glowplug.cache.repository import Repository
from glowplug.cache.restore import restore
from glowplug.cache.trust import PAYLOAD_TYPE, Trust
from glowplug.cache.verify import verify_shelf
from glowplug.errors import GlowplugError, IntegrityError
from glowplug.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

_KEY = PrivateKey(b"f" * 32)
_TRUST = Trust((_KEY.public(),))
_ENVELOPE = Envelope({"engine": {"name": "vllm", "version": "0.32.0"}, "packages": {"torch": "2.13.0"}, "paths": {"cache": "/c"}})
_DIGEST = _ENVELOPE.digest
_CONTENT = {
    "inductor/0/a.so": b"\x7fELF" + bytes(range(256)) * 9,
    "inductor/0/b.py": b"",
    "triton/K/k.cubin": b"cubin" * 103,
    "triton/K/" + "l" * 120 + "/k.json": b"{}",
    "vllm/torch_compile_cache/ab/rank_0_0/backbone/graph": bytes(512),
}
_MTIME_NS = 1_700_000_000_123_456_789
_MOST_ADDRESSES = 2 * 1024**3
_BATCH = 500

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_CASES = st.tuples(
    st.sampled_from(("pack",) * 5 + ("manifest",) * 4 + ("signed", "pointer", "lease", "verdict", "testimony", "envelope", "key")),
    st.integers(0, 2**32 - 1),
    st.lists(st.sampled_from(range(len(mutate.TAR))), max_size=3),
    st.sampled_from(range(len(mutate.FRAMES))),
    _JSON,
)


def _entries() -> list[FileEntry]:
    return [
        FileEntry(path, len(data), 0o644, _MTIME_NS, hashlib.sha256(data).hexdigest()) for path, data in sorted(_CONTENT.items())
    ]


def _sign(document: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  once for a process

    pae = b"DSSEv1 %d %b %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(document), document)
    signature = Ed25519PrivateKey.from_private_bytes(_KEY.seed).sign(pae)
    tree = {
        "payload": base64.b64encode(document).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": _KEY.public().keyid, "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(tree).encode()


class Fuzzer:
    """One process's cases.

    Args:
        folder: scratch; the live folder and the canary lie in it.
    """

    def __init__(self, folder: Path) -> None:
        self._live, self._canary = folder / "live", folder / "canary"
        self._canary.mkdir()
        (self._canary / "file").write_bytes(b"alive")
        self._watch = Watch()
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []

    def case(self, kind: str, number: int, tars: list[int], frame: int, value: Any) -> None:
        """One case. Raises AssertionError if it has failed."""
        chance = random.Random(number)
        shutil.rmtree(self._live, ignore_errors=True)
        (self._live / ".glowplug").mkdir(parents=True)
        (self._live / "inductor").mkdir()
        (self._live / "inductor" / "own.so").write_bytes(b"own")
        if chance.random() < 0.3:  # whatever an engine may leave in its folder
            (self._live / chance.choice(("triton", "inductor/0"))).symlink_to(self._canary)
        do: Callable[[], str] = {
            "pack": lambda: self._pack(chance, tars, frame),
            "manifest": lambda: self._manifest(chance, value),
            "signed": lambda: self._signed(chance, value),
        }.get(kind, lambda: self._document(kind, chance, value))
        self._watch.arm(self._live)
        try:
            outcome = do()
        except GlowplugError as error:
            outcome = type(error).__name__
            str(error.line())
        finally:
            self._watch.disarm()
        self.outcomes[f"{kind}: {outcome}"] += 1
        assert not self._watch.escapes, self._watch.escapes
        assert os.listdir(self._canary) == ["file"], "the canary folder has changed"
        assert (self._canary / "file").read_bytes() == b"alive", "the canary has changed"
        assert (self._live / "inductor" / "own.so").read_bytes() == b"own"
        if outcome not in {"restored", "read"}:
            left = {path.relative_to(self._live).as_posix() for path in self._live.rglob("*") if path.is_file()}
            assert left <= {"inductor/own.so", ".glowplug/sources.json"}, left

    def _pack(self, chance: random.Random, tars: list[int], frame: int) -> str:
        entries = _entries()
        members = [mutate.member_of(entry, _CONTENT[entry.path]) for entry in entries]
        good = mutate.compress(b"".join(member.header + member.body for member in members) + bytes(1024))
        for number in tars:
            members = mutate.TAR[number](chance, members)
        end = chance.choice((bytes(1024), bytes(1024), bytes(1024), b"", bytes(512), bytes(4096), b"x" * 10))
        pack = mutate.FRAMES[frame](chance, b"".join(member.header + member.body for member in members) + end)
        named = pack if chance.random() < 0.7 else good  # signed so, or put in the place of what was
        return self._start(entries, pack, named, chance)

    def _manifest(self, chance: random.Random, value: Any) -> str:
        entries = _entries()
        tree = json.loads(Manifest(_ENVELOPE, tuple(entries), PackInfo("0" * 64, 1), 12.5, "2026-01-01T00:00:00Z", "fuzz").document)
        if chance.random() < 0.6:  # one file's row: the part that decides what is written where
            at = chance.randrange(len(tree["files"]))
            column = chance.randrange(5)
            tree["files"][at][column] = chance.choice(mutate.EVIL_PATHS if column in {0, 4} else mutate.NUMBERS)
            if chance.random() < 0.7:
                tree["files"].sort(key=lambda row: str(row[0]))
        else:
            tree = mutate.graft(chance, tree, value)
        pack = self._pack_for(tree)
        if isinstance(tree, dict) and isinstance(tree.get("pack"), dict) and chance.random() < 0.8:
            tree["pack"] |= {"sha256": hashlib.sha256(pack).hexdigest(), "size_bytes": len(pack)}
        document = mutate.write_json(chance, tree)
        generation = hashlib.sha256(document).hexdigest()
        store = MemoryStore()
        store.put(layout.pack_key(_DIGEST, hashlib.sha256(pack).hexdigest()), pack)
        store.put(layout.generation_key(_DIGEST, generation), _sign(document))
        store.put(layout.latest_key(_DIGEST), canonical_json({"generation": generation}))
        return self._restore(store, chance)

    def _pack_for(self, tree: Any) -> bytes:
        """The pack that goes with a manifest, as far as it describes files."""
        parts = []
        with contextlib.suppress(Exception):  # what describes no file has no member
            for path, size, mode, mtime, _ in tree["files"]:
                data = _CONTENT.get(path, b"x" * min(int(size), 4096))
                parts.append(mutate.member_of(FileEntry(path, size, mode, mtime, ""), data))
        return mutate.compress(b"".join(member.header + member.body for member in parts) + bytes(1024))

    def _start(self, entries: list[FileEntry], pack: bytes, named: bytes, chance: random.Random) -> str:
        info = PackInfo(hashlib.sha256(named).hexdigest(), len(named))
        manifest = Manifest(_ENVELOPE, tuple(entries), info, 12.5, "2026-01-01T00:00:00Z", "fuzz")
        store = MemoryStore()
        store.put(layout.pack_key(_DIGEST, info.sha256), pack)
        store.put(layout.generation_key(_DIGEST, manifest.digest), _sign(manifest.document))
        store.put(layout.latest_key(_DIGEST), canonical_json({"generation": manifest.digest}))
        return self._restore(store, chance)

    def _restore(self, store: MemoryStore, chance: random.Random) -> str:
        """What a start does, and now and then what ``cache verify`` does before it."""
        repository = Repository(store)
        looked = chance.random() >= 0.8
        refused = looked and any(
            finding.problem for shelf in repository.shelves() for finding in verify_shelf(repository, shelf, _TRUST)
        )
        try:
            manifest = self._choose_and_restore(repository, chance)
        except IntegrityError:
            assert refused or not looked, "verify has accepted what was not restored"
            raise
        for entry in manifest.files:
            data = (self._live / entry.path).read_bytes()
            assert hashlib.sha256(data).hexdigest() == entry.sha256, f"{entry.path} is not what its digest says"
        assert not refused, "verify has refused what was restored"
        return "restored"

    def _choose_and_restore(self, repository: Repository, chance: random.Random) -> Manifest:
        deadline = Deadline(30, step="restore")
        pointer = repository.latest(_DIGEST)
        assert pointer is not None
        manifest = choose(repository, _DIGEST, pointer, _TRUST, live_base=None, deadline=deadline).manifest
        assert manifest is not None
        in_use = chance.random() < 0.3
        key = layout.pack_key(_DIGEST, manifest.pack.sha256)
        restore(repository.store, key, manifest, self._live, deadline=deadline, in_use=lambda: in_use)
        return manifest

    def _signed(self, chance: random.Random, value: Any) -> str:
        tree: Any = json.loads(_sign(Manifest(_ENVELOPE, tuple(_entries()), PackInfo("0" * 64, 1), None, "", "").document))
        document = mutate.write_json(chance, mutate.graft(chance, tree, value) if chance.random() < 0.8 else tree)
        _TRUST.check(document, name="fuzz")
        return "read"

    def _document(self, kind: str, chance: random.Random, value: Any) -> str:
        store, generation = MemoryStore(), "a" * 64
        if kind == "key":
            text = mutate.flip(chance, chance.choice((_KEY.pem, _KEY.public().pem)).encode()).decode("utf-8", "replace")
            (read_private if chance.random() < 0.5 else read_public)(text, "fuzz")
            return "read"
        good: dict[str, Any] = {
            "pointer": {"generation": generation},
            "lease": json.loads(Holder(node="n").document),
            "verdict": {"schema": "s", "reason": "r", "by": "reports", "at": "t", "pack": generation, "evidence": [{"node": "n"}]},
            "testimony": json.loads(_testimony().document),
            "envelope": json.loads(_ENVELOPE.document),
        }
        document = mutate.write_json(chance, mutate.graft(chance, good[kind], value))
        match kind:
            case "pointer":
                store.put(layout.latest_key(_DIGEST), document)
                Repository(store).latest(_DIGEST)
            case "lease":
                store.put(layout.lease_key(_DIGEST), document)
                seen = LeaseWatch(store, _DIGEST).look()
                assert seen is not None
                assert 0 < seen.holder.ttl_s <= 60
                assert seen.holder.name.isprintable()
            case "verdict":
                store.put(layout.quarantine_key(_DIGEST, generation), document)
                verdict_on(store, _DIGEST, generation)
            case "testimony":
                Testimony.parse(document, name=_testimony().key)
            case _:
                found = causes(_ENVELOPE, Envelope.parse(document))
                if found:
                    two_lines(found)
        return "read"


def _testimony() -> Testimony:
    return Testimony(
        envelope=_DIGEST, generation="a" * 64, kind="died", node="0" * 16, reader="r", at="2026-01-01T00:00:00Z", reason="it died",
        engine="vllm", engine_version="1", exit_code=1, signal=None, seconds=1.0, lines=("last words",),
    )  # fmt: skip


def work(cases: int, start: int, folder: Path) -> dict[str, Any]:
    """Run so many cases in this process; what came of them."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESSES, _MOST_ADDRESSES))
    fuzzer = Fuzzer(folder)
    done = 0
    for batch in range(-(-cases // _BATCH)):

        @seed(start * 1_000_000 + batch)
        @settings(
            max_examples=min(_BATCH, cases - batch * _BATCH), deadline=None, database=None, suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        )  # fmt: skip
        @given(_CASES)
        def run(case: tuple[str, int, list[int], int, Any]) -> None:
            nonlocal done
            done += 1
            case = (case[0], (case[1] + done * 2_654_435_761) % 2**32, *case[2:])  # hypothesis likes to draw a number again
            try:
                fuzzer.case(*case)
            except Exception as error:  # noqa: BLE001  noted, and the next case is another one
                fuzzer.failures.append(f"{type(error).__name__}: {error}"[:1000] + f" in {case!r}"[:1000])

        run()
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    return {"cases": done, "failures": fuzzer.failures, "peak_bytes": peak, "outcomes": dict(fuzzer.outcomes)}


def replay(cases: list[str], folder: Path) -> int:
    """Run these cases alone, and say what came of each; 1 if one has failed."""
    with tempfile.TemporaryDirectory(prefix="glowplug-fuzz-", dir=folder) as scratch:
        fuzzer = Fuzzer(Path(scratch))
        for case in cases:
            try:
                fuzzer.case(*ast.literal_eval(case))
            except Exception as error:  # noqa: BLE001  said, and the next case is another one
                fuzzer.failures.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"failures": fuzzer.failures, "outcomes": fuzzer.outcomes}, indent=1))
    return 1 if fuzzer.failures else 0


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="scratch; a tmpfs is quickest (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="2,000 cases, nothing is written")
    parser.add_argument("--case", action="append", default=[], help="this case alone, as a result names it; may be given again")
    parser.add_argument("--worker", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker >= 0:
        print(json.dumps(work(options.cases, options.seed * 1000 + options.worker, options.folder)))
        return 0
    if options.case:
        return replay(options.case, options.folder)
    cases = 2000 if options.quick else options.cases
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="glowplug-fuzz-", dir=options.folder) as scratch:
        processes = []
        for number in range(options.processes):
            folder = Path(scratch, str(number))
            folder.mkdir()
            share = cases // options.processes + (number < cases % options.processes)
            command = [sys.executable, "-m", "benchmarks.fuzz_bundles", "--worker", str(number), "--cases", str(share)]
            command += ["--seed", str(options.seed), "--folder", str(folder)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        outputs = [process.communicate()[0] for process in processes]
    ended_badly = [process.returncode for process in processes if process.returncode]
    results = [json.loads(output) for output, process in zip(outputs, processes, strict=True) if not process.returncode]
    outcomes: Counter[str] = Counter()
    for result in results:
        outcomes.update(result["outcomes"])
    failures = [failure for result in results for failure in result["failures"]] + [
        f"a process ended with {code}" for code in ended_badly
    ]
    document = {
        "boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "),
        "cases": sum(result["cases"] for result in results),
        "seed": options.seed,
        "processes": options.processes,
        "seconds": round(time.monotonic() - begun, 1),
        "failures": failures,
        "peak_bytes": max((result["peak_bytes"] for result in results), default=0),
        "outcomes": dict(sorted(outcomes.items())),
        "target": "100,000 cases; no failure (escape, uncaught exception, half-applied refusal); peak below 512 MiB",
    }
    print(json.dumps({key: document[key] for key in ("cases", "seconds", "failures", "peak_bytes", "outcomes")}, indent=1))
    if not options.quick:
        print(record.write("fuzz_bundles", document))
    return 1 if failures or document["peak_bytes"] > 512 * 1024**2 else 0


if __name__ == "__main__":
    sys.exit(main())
