"""Pack and publish, fetch and restore, against ``tar --zstd`` to and from the same disk.

Boundary: 5,000 files, 500 MB, pieces of real shared objects. Publish: from the start of ``capture`` (scan, read, digest,
search for secrets, compress, sign, write pack, manifest and pointer to a store in a folder) to its return, the tree having
been quiet; against ``tar -I 'zstd -3 -T2' -cf`` of the same tree to the same disk. Restore: from the look-up (pointer,
manifest, signature) to files renamed into place; against ``tar -I zstd -xf`` of its own archive into an empty folder. Each
sample runs in a process of its own; the time is taken inside ours (without Python's start) and around tar's. The two
alternate, and swap places every round. Nothing is synced; the page cache is warm. CPU seconds are user plus system of the
process and its children.

    python -m benchmarks.bench_pack
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import record
from benchmarks.bench_wrapper import make_tree
from glowplug.cache import layout
from glowplug.cache.capture import capture
from glowplug.cache.deadline import unbounded
from glowplug.cache.envelope import Envelope
from glowplug.cache.families import INDUCTOR
from glowplug.cache.keys import PrivateKey, read_private
from glowplug.cache.repository import Repository
from glowplug.cache.restore import restore
from glowplug.cache.secrets import SecretScan
from glowplug.cache.trust import KeySigner, Trust
from glowplug.store import open_store

FILES, SIZE_BYTES = 5_000, 500_000_000


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=7)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(*options.child)
        return
    samples: dict[str, list[dict[str, float]]] = {"publish": [], "tar_c": [], "restore": [], "tar_x": []}
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as folder:
        work = Path(folder)
        make_tree(work / "tree" / "inductor", files=FILES, size_bytes=SIZE_BYTES)
        for number in range(options.n + 1):
            for ours, theirs in (("publish", "tar_c"), ("restore", "tar_x")):
                pair = (ours, theirs) if number % 2 else (theirs, ours)
                results = {name: _sample(name, work) for name in pair}
                if number:  # the first round warms the page cache
                    for name, result in results.items():
                        samples[name].append(result)
        pack_bytes = sum(path.stat().st_size for path in (work / "store").rglob("*.tar.zst"))
        tar_bytes = (work / "theirs.tar.zst").stat().st_size
    document: dict[str, object] = {"boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " ")}
    for ours, theirs in (("publish", "tar_c"), ("restore", "tar_x")):
        columns = {name: [sample["wall_s"] for sample in samples[name]] for name in (ours, theirs)}
        cpu = {name: [sample["cpu_s"] for sample in samples[name]] for name in (ours, theirs)}
        document[ours] = {
            "wall_s": record.summary(columns[ours]),
            "cpu_s": record.summary(cpu[ours]),
            "tar_wall_s": record.summary(columns[theirs]),
            "tar_cpu_s": record.summary(cpu[theirs]),
            "ratio_wall": record.ratio(columns[ours], columns[theirs]),
            "ratio_cpu": record.ratio(cpu[ours], cpu[theirs]),
            "peak_memory_bytes": max(sample["peak_bytes"] for sample in samples[ours]),
            "target": "ratio_wall median <= 1.0",
        }
        print(ours, document[ours]["ratio_wall"], "cpu", document[ours]["ratio_cpu"])  # type: ignore[index]
    document["pack_bytes"], document["tar_bytes"] = pack_bytes, tar_bytes
    print(record.write("pack", document))


def _sample(name: str, work: Path) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if name in {"publish", "restore"}:
        shutil.rmtree(work / ("store" if name == "publish" else "restored"), ignore_errors=True)
        output = subprocess.check_output([sys.executable, "-m", "benchmarks.bench_pack", "--child", name, str(work)])
        result: dict[str, float] = json.loads(output)
        return result
    target = work / "untarred"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if name == "tar_c":
        (work / "theirs.tar.zst").unlink(missing_ok=True)
    command = (
        ["tar", "-C", str(work / "tree"), "-I", "zstd -3 -T2", "-cf", str(work / "theirs.tar.zst"), "inductor"]
        if name == "tar_c"
        else ["tar", "-C", str(target), "-I", "zstd", "-xf", str(work / "theirs.tar.zst")]
    )
    begun = time.perf_counter()
    subprocess.run(command, check=True)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall, "cpu_s": cpu, "peak_bytes": 0}


def _child(name: str, folder: str) -> None:
    work = Path(folder)
    key_file = work / "key.pem"
    if not key_file.exists():
        key_file.write_text(PrivateKey.generate().pem)
    signer = KeySigner(read_private(key_file.read_text(), "key"))
    store = open_store(f"file://{work}/store", env={})
    repository, envelope = Repository(store), Envelope({"benchmark": "pack"})
    before = _cpu()
    begun = time.perf_counter()
    if name == "publish":
        captured = capture(
            repository,
            envelope,
            work / "tree",
            (INDUCTOR,),
            signer,
            replaces=None,
            cold_start_s=None,
            ranks=1,
            settle_s=0,
            scan_secrets=SecretScan(os.environ),
            deadline=unbounded("publish"),
        )
        assert captured.published
    else:
        (work / "restored").mkdir(mode=0o700)
        pointer = repository.latest(envelope.digest)
        assert pointer is not None
        manifest = repository.load(envelope.digest, pointer.generation, Trust((signer.public,)))
        pack_key = layout.pack_key(envelope.digest, manifest.pack.sha256)
        restore(store, pack_key, manifest, work / "restored", deadline=unbounded("restore"))
    wall = time.perf_counter() - begun
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent's memory before the exec
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"wall_s": wall, "cpu_s": _cpu() - before, "peak_bytes": peak}))


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
