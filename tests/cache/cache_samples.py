"""What the tests of the cache are made of: trees, generations good and forged, and a look at what they leave behind."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile

from glowplug.cache import layout
from glowplug.cache.capture import capture
from glowplug.cache.deadline import Deadline
from glowplug.cache.envelope import Envelope, canonical_json
from glowplug.cache.families import FAMILIES
from glowplug.cache.keys import PrivateKey
from glowplug.cache.manifest import FileEntry, Manifest, PackInfo
from glowplug.cache.repository import Repository
from glowplug.cache.restore import restore
from glowplug.cache.secrets import SecretScan
from glowplug.cache.trust import KeySigner, Trust
from glowplug.units import MIB

SIGNER = KeySigner(PrivateKey(b"s" * 32))
STRANGER = KeySigner(PrivateKey(b"x" * 32))
TRUST = Trust((SIGNER.public,))
ENVELOPE = Envelope({"engine": {"name": "vllm", "version": "0.32.0"}, "parallelism": {"tensor": 1}})
DIGEST = ENVELOPE.digest
ALL = tuple(FAMILIES.values())
MTIME_NS = 1_700_000_000_123_456_789

SMALL_TREE = {
    "vllm/torch_compile_cache/aa/rank_0_0/backbone/graph": b"compiled " * 500,
    "vllm/torch_compile_cache/aa/cache_key_factors.json": b"{}",
    "inductor/ab/cabc.so": b"\x7fELF" + bytes(range(256)) * 40,
    "triton/XYZ/kernel.cubin": b"cubin" * 100,
}


def make_tree(root, content, *, mtime_ns=MTIME_NS):
    """Write files; a value is the content, or the content and a mode."""
    for number, (path, value) in enumerate(content.items()):
        data, mode = value if isinstance(value, tuple) else (value, 0o644)
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode)
        os.utime(target, ns=(mtime_ns + number, mtime_ns + number))
    root.mkdir(parents=True, exist_ok=True)
    return root


def publish(store, root, *, replaces="latest", envelope=ENVELOPE, signer=SIGNER, deadline=None, ranks=1, env=None, families=ALL):
    repository = Repository(store)
    return capture(
        repository,
        envelope,
        root,
        families,
        signer,
        replaces=repository.latest(envelope.digest) if replaces == "latest" else replaces,
        cold_start_s=12.5,
        ranks=ranks,
        settle_s=0,
        scan_secrets=SecretScan(env or {}),
        deadline=deadline or Deadline(60, step="publish"),
    )


def start(store, root, *, trust=TRUST, deadline=None):
    """What a start does: look up, check, restore."""
    repository = Repository(store)
    pointer = repository.latest(DIGEST)
    manifest = repository.load(DIGEST, pointer.generation, trust)
    pack_key = layout.pack_key(DIGEST, manifest.pack.sha256)
    return restore(store, pack_key, manifest, root, deadline=deadline or Deadline(60, step="restore"))


def snapshot(root):
    """Every entry below the root but our own notes: path to mode, time and content."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".glowplug"]
        for name in names:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if os.path.islink(path):
                content = os.readlink(path)
            elif not os.path.isfile(path):
                content = None
            else:
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, root)] = (info.st_mode & 0o7777, info.st_mtime_ns, content)
    return found


def leftovers(root):
    """What lies in our own folder of a live tree, besides the lock and the note on what is installed."""
    notes = root / ".glowplug"
    return sorted({path.name for path in notes.iterdir()} - {"lock", "installed.json", "sources.json"}) if notes.exists() else []


def entry(path, data=b"data", *, mode=0o644, mtime_ns=MTIME_NS, sha256=None, size_bytes=None):
    digest = hashlib.sha256(data).hexdigest() if sha256 is None else sha256
    return FileEntry(path, len(data) if size_bytes is None else size_bytes, mode, mtime_ns, digest)


NO_PACK = PackInfo("0" * 64, 1)


def manifest(files, *, pack=NO_PACK, envelope=ENVELOPE, cold_start_s=12.5):
    return Manifest(envelope, tuple(files), pack, cold_start_s, "2026-01-01T00:00:00Z", "glowplug test")


def plant(store, files, pack, *, signer=SIGNER, document=None, size_bytes=None, envelope=ENVELOPE):
    """Put a generation of any kind into a store, past all checks of a publisher, and point at it."""
    info = PackInfo(hashlib.sha256(pack).hexdigest(), len(pack) if size_bytes is None else size_bytes)
    made = manifest(files, pack=info, envelope=envelope)
    payload = made.document if document is None else document
    generation = hashlib.sha256(payload).hexdigest()
    store.put(f"v1/{envelope.digest}/packs/{info.sha256}.tar.zst", pack)
    store.put(f"v1/{envelope.digest}/generations/{generation}.json", signer.sign(payload))
    store.put(f"v1/{envelope.digest}/latest", canonical_json({"generation": generation}))
    return made


def member(path, data=b"data", *, kind=tarfile.REGTYPE, mode=0o644, link="", size=None):
    """A tar header and its content, as any tar writer could write it."""
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.mtime, info.linkname = kind, mode, MTIME_NS // 10**9, link
    info.size = (len(data) if kind == tarfile.REGTYPE else 0) if size is None else size
    body = data if kind == tarfile.REGTYPE else b""
    return info.tobuf(tarfile.PAX_FORMAT) + body + bytes(-len(body) % 512)


def compress(*parts, end=bytes(1024)):
    import zstandard

    return zstandard.ZstdCompressor().compress(b"".join(parts) + end)


def pack_of(content, **options):
    """The pack that a publisher would write for these files."""
    return compress(*(member(path, data, **options) for path, data in content.items()))


def unpacked_names(pack):
    import zstandard

    with tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().stream_reader(pack).readall())) as tar:
        return {info.name: info for info in tar}


def latest_pack(store):
    repository = Repository(store)
    loaded = repository.load(DIGEST, repository.latest(DIGEST).generation, TRUST)
    return layout.pack_key(DIGEST, loaded.pack.sha256)


def peak_rss_bytes():
    """The most memory this process has had. Not ``ru_maxrss``: a child inherits that from whoever started it."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def piece_sizes():
    return [0, 1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 3 * MIB]
