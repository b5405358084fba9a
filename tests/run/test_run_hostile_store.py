"""A store that holds what it should not: nothing of it is unpacked, one line says what is wrong, the engine starts cold.

One generation is published for all of these tests; each damages a copy of the store.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from glowplug.cache.envelope import canonical_json
from glowplug.cache.keys import PrivateKey, create_pair, read_private
from glowplug.cache.trust import KeySigner
from tests.run import stand_ins
from tests.run.program import Program


@dataclass
class Shelf:
    """What the store holds for the command."""

    program: Program
    command: tuple[str, ...]

    @property
    def folder(self) -> Path:
        [pointer] = self.program.store.glob("v1/*/latest")
        return pointer.parent

    @property
    def pointer(self) -> Path:
        return self.folder / "latest"

    @property
    def pack(self) -> Path:
        [pack] = (self.folder / "packs").iterdir()
        return pack

    @property
    def manifest(self) -> Path:
        return self.folder / "generations" / f"{self.program.latest()}.json"

    @property
    def owner(self) -> KeySigner:
        """Who signs what this user publishes."""
        [path] = self.program.keys.glob("*.key")
        return KeySigner(read_private(path.read_text(), str(path)))

    def payload(self) -> dict:
        return json.loads(base64.b64decode(json.loads(self.manifest.read_text())["payload"]))

    def resign(self, payload: dict, signer: KeySigner) -> None:
        """Publish another manifest, past all checks of a publisher."""
        document = canonical_json(payload)
        digest = hashlib.sha256(document).hexdigest()
        (self.folder / "generations" / f"{digest}.json").write_bytes(signer.sign(document))
        self.pointer.write_bytes(canonical_json({"generation": digest}))

    def with_file(self, path: str, *, mode: int = 0o644) -> None:
        """Publish a manifest of the owner's whose first file is called so."""
        payload = self.payload()
        payload["files"][0] = [path, *payload["files"][0][1:]]
        payload["files"][0][2] = mode
        payload["files"].sort()
        self.resign(payload, self.owner)

    def run(self, **rest):
        return self.program.run(*self.command, **rest)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    program = Program(tmp_path_factory.mktemp("hostile"))
    shelf = Shelf(program, stand_ins.compiler(program.folder).words)
    assert shelf.run().report["publish"]["state"] == "published"
    shutil.copytree(program.store, program.folder / "pristine")
    return shelf


@pytest.fixture
def shelf(pristine):
    program = pristine.program
    for folder in (program.store, *program.folder.glob("live*")):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(program.folder / "pristine", program.store)
    return pristine


# --- damage


def truncate_pack(shelf):
    shelf.pack.write_bytes(shelf.pack.read_bytes()[:-1000])


def empty_pack(shelf):
    shelf.pack.write_bytes(b"")


def flip_a_byte_of_the_pack(shelf):
    data = bytearray(shelf.pack.read_bytes())
    data[len(data) // 2] ^= 1
    shelf.pack.write_bytes(data)


def flip_a_byte_of_the_signature(shelf):
    envelope = json.loads(shelf.manifest.read_text())
    signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    signature[0] ^= 1
    envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    shelf.manifest.write_text(json.dumps(envelope))


def alter_what_was_signed(shelf):
    envelope = json.loads(shelf.manifest.read_text())
    payload = base64.b64decode(envelope["payload"]).replace(b'"producer":"glowplug', b'"producer":"g1owplug')
    envelope["payload"] = base64.b64encode(payload).decode()
    shelf.manifest.write_text(json.dumps(envelope))


def take_the_signature_away(shelf):
    envelope = json.loads(shelf.manifest.read_text())
    shelf.manifest.write_text(json.dumps(envelope | {"signatures": []}))


def garble_the_manifest(shelf):
    shelf.manifest.write_bytes(b"\xff\x00 no json")


def garble_the_pointer(shelf):
    shelf.pointer.write_bytes(b"\xff\x00 no json")


def make_it_huge(path):
    with path.open("r+b") as file:
        file.truncate(2**33)


def point_to_another_envelope(shelf):
    payload = shelf.payload()
    payload["envelope"]["engine"] = {"name": "another"}
    shelf.resign(payload, shelf.owner)


def describe_another_pack(shelf):
    payload = shelf.payload()
    payload["files"][0][4] = "0" * 64
    shelf.resign(payload, shelf.owner)


REFUSED = [
    (truncate_pack, "is truncated"),
    (empty_pack, "is truncated"),
    (flip_a_byte_of_the_pack, "pack"),
    (flip_a_byte_of_the_signature, "does not match"),
    (alter_what_was_signed, "does not match"),
    (take_the_signature_away, "is not signed"),
    (garble_the_manifest, "is not JSON"),
    (garble_the_pointer, "names no generation"),
    (lambda shelf: make_it_huge(shelf.pointer), "names no generation"),
    (lambda shelf: make_it_huge(shelf.manifest), "8589934592 bytes, more than 67108864"),
    (point_to_another_envelope, "was made for another envelope"),
    (describe_another_pack, "is not what its digest says"),
    (lambda shelf: shelf.with_file("inductor/../../../evil"), "leads out of its folder"),
    (lambda shelf: shelf.with_file("/etc/evil"), "is absolute"),
    (lambda shelf: shelf.with_file("evil/x"), "belongs to no cache family"),
    (lambda shelf: shelf.with_file("inductor/00/c0.so", mode=0o4755), "set-id bits"),
]
_LAMBDAS = iter(["huge pointer", "huge manifest", "leads out", "absolute", "no family", "set-id"])
NAMES = [next(_LAMBDAS) if damage.__name__ == "<lambda>" else damage.__name__.replace("_", " ") for damage, _ in REFUSED]


@pytest.mark.parametrize(("damage", "says"), REFUSED, ids=NAMES)
def test_a_damaged_or_hostile_generation_is_refused_and_replaced(shelf, damage, says):
    damage(shelf)
    ended = shelf.run()
    refused(ended, says)
    assert not (shelf.program.folder / "evil").exists()
    assert not Path("/etc/evil").exists()
    assert not shelf.program.half_written()
    assert ended.report["publish"]["state"] == "published"
    assert shelf.program.latest() == ended.report["publish"]["generation"]


def test_what_replaced_a_damaged_generation_is_a_hit(shelf):
    flip_a_byte_of_the_pack(shelf)
    shelf.run()
    shelf.program.forget()
    ended = shelf.run()
    assert b"compiled 0 loaded 4" in ended.out
    assert ended.report["outcome"] == "hit"


def test_a_generation_of_an_unknown_key_is_refused_and_left_to_its_owner(shelf):
    shelf.resign(shelf.payload(), KeySigner(PrivateKey(b"x" * 32)))
    before = shelf.program.latest()
    ended = shelf.run()
    refused(ended, "signed by key")
    assert "GLOWPLUG_TRUSTED_KEYS" in ended.report["reason"]
    assert ended.report["publish"]["state"] == "skipped"
    assert not ended.said("nothing was published")  # the reason has been said
    assert shelf.program.latest() == before


def test_a_named_writer_replaces_what_a_key_signed_that_it_no_longer_trusts(shelf, tmp_path):
    create_pair(tmp_path / "new")
    ended = shelf.run(env={"GLOWPLUG_SIGNING_KEY": str(tmp_path / "new.key")})
    refused(ended, "signed by key")
    assert ended.report["publish"]["state"] == "published"
    shelf.program.forget()
    assert shelf.run(env={"GLOWPLUG_TRUSTED_KEYS": str(tmp_path / "new.pub")}).report["outcome"] == "hit"


@pytest.mark.parametrize("part", ["pack", "manifest"])
def test_a_part_that_is_missing_is_a_miss_and_is_published_again(shelf, part):
    getattr(shelf, part).unlink()
    ended = shelf.run()
    assert (ended.code, ended.report["outcome"]) == (0, "miss")
    assert b"compiled 4 loaded 0" in ended.out
    assert "a part of the newest generation is missing" in ended.report["reason"]
    assert ended.report["publish"]["state"] == "published"
    shelf.program.forget()
    assert shelf.run().report["outcome"] == "hit"


def refused(ended, says):
    assert ended.code == 0
    assert b"compiled 4 loaded 0" in ended.out
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err
    [line] = ended.said("cold start:")
    assert says in line
    assert ended.report["outcome"] == "refused"
    assert ended.report["reason"] == line.removeprefix("cold start: ")
    assert ended.report["cache"]["generation"] is None
    assert "cache refused" in ended.err
