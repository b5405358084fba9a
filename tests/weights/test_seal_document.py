"""Seals as documents: what is written is read, and whatever else is there is refused with one error that names it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glowplug.cache.keys import PrivateKey
from glowplug.cache.trust import SEAL, KeySigner, Trust
from glowplug.errors import IntegrityError, UnknownKey, Unsigned, UsageError
from glowplug.weights.base import Checkpoint, Entry, WeightFile
from glowplug.weights.seals.document import parse_seal, seal_document
from glowplug.weights.seals.loading import load_seal
from glowplug.weights.seals.seal import Seal, SealedFile, SealedSmall, new_hash

BLOCK = 4096
BODY = b"".join(number.to_bytes(4, "big") for number in range(2560))  # two blocks and a half, none like another
HEADER = hashlib.sha256(b"header").hexdigest()
FILE = WeightFile("model.safetensors", 100 + len(BODY), '"1"', 100, HEADER)
CONFIG = b'{"model_type":"llama"}'
ALICE = KeySigner(PrivateKey(b"a" * 32))
BOB = KeySigner(PrivateKey(b"b" * 32))


def blocks(body=BODY, algorithm="sha256"):
    digests = b""
    for start in range(0, len(body), BLOCK):
        digest = new_hash(algorithm)()
        digest.update(memoryview(body)[start : start + BLOCK])
        digests += digest.digest()
    return digests


def seal_of(**changes):
    small = SealedSmall("config.json", len(CONFIG), hashlib.sha256(CONFIG).hexdigest())
    parts = {
        "algorithm": "sha256",
        "block_bytes": BLOCK,
        "files": (SealedFile("model.safetensors", FILE.size_bytes, HEADER, blocks()),),
        "others": {"config.json": small},
    }
    return Seal(**parts | changes)


OTHERS = (Entry("config.json", len(CONFIG), '"c"'),)


def checkpoint(files=(FILE,), others=OTHERS):
    return Checkpoint("s3://b/m", files, (), others)


class Shelf:
    """A source that holds one document beside the checkpoint."""

    is_single = False

    def __init__(self, document, size=None):
        self.document = document
        self.entry = Entry("glowplug.seal.json", len(document) if size is None else size, '"s"')

    def entries(self):
        return [Entry("config.json", len(CONFIG), '"c"'), Entry("model.safetensors", FILE.size_bytes, '"1"'), self.entry]

    def read_small(self, entry, start, size_bytes):
        assert entry == self.entry, "nothing but the seal is read"
        return self.document[start : start + size_bytes]

    def name_of(self, file):
        return f"s3://b/m/{file.name}"


def trusting(*signers):
    trust = Trust(tuple(signer.public for signer in signers))
    return lambda document: trust.verify(document, name="s3://b/m/glowplug.seal.json", kind=SEAL)


def signed(seal, signer=ALICE):
    return signer.sign(seal_document(seal), SEAL)


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
def test_a_sealed_block_passes_whole_or_in_pieces_and_any_other_byte_does_not(algorithm):
    if algorithm == "blake3":
        pytest.importorskip("blake3")
    sealed = seal_of(
        algorithm=algorithm, files=(SealedFile("model.safetensors", FILE.size_bytes, HEADER, blocks(algorithm=algorithm)),)
    )
    seal = parse_seal(seal_document(sealed), where="x").fit(checkpoint(), where="x")
    view = memoryview(BODY)
    assert seal.check(0, 0, [view[:BLOCK]])
    assert seal.check(0, 1, [view[BLOCK : BLOCK + 1], view[BLOCK + 1 : 2 * BLOCK]])
    assert seal.check(0, 2, [view[2 * BLOCK :]])
    assert not seal.check(0, 1, [view[:BLOCK]])
    assert not seal.check(0, 3, [view[:0]])
    assert not seal.check(0, 2, [view[2 * BLOCK : -1]])
    altered = bytearray(BODY)
    altered[5000] ^= 1
    assert not seal.check(0, 1, [memoryview(altered)[BLOCK : 2 * BLOCK]])


def test_without_a_seal_there_is_none():
    class Bare(Shelf):
        def entries(self):
            return super().entries()[:-1]

    assert load_seal(Bare(b""), checkpoint(), trusting(ALICE)) is None


def test_a_seal_is_loaded_and_checks_small_files_too():
    seal = load_seal(Shelf(signed(seal_of())), checkpoint(), trusting(ALICE))
    seal.check_small("config.json", CONFIG, where="s3://b/m/config.json")
    with pytest.raises(IntegrityError, match=r"s3://b/m/config\.json: is not what was sealed"):
        seal.check_small("config.json", CONFIG[:-1] + b" ", where="s3://b/m/config.json")
    with pytest.raises(IntegrityError, match=r"evil\.py: is not in the seal"):
        seal.check_small("evil.py", b"", where="evil.py")


def test_a_seal_of_an_unknown_key_or_of_nobody_is_refused():
    with pytest.raises(UnknownKey, match=r"glowplug\.seal\.json"):
        load_seal(Shelf(signed(seal_of(), BOB)), checkpoint(), trusting(ALICE))
    bare = json.dumps(json.loads(signed(seal_of())) | {"signatures": []}).encode()
    with pytest.raises(Unsigned):
        load_seal(Shelf(bare), checkpoint(), trusting(ALICE))


def test_a_manifests_signature_does_not_make_a_seal():
    with pytest.raises(IntegrityError, match="manifest"):
        load_seal(Shelf(ALICE.sign(seal_document(seal_of()))), checkpoint(), trusting(ALICE))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (checkpoint(files=(FILE, FILE.__class__("b.safetensors", 10, "", 8, HEADER))), r"m/b\.safetensors: is not in the seal"),
        (checkpoint(files=()), r"m/model\.safetensors: was sealed, and is not there"),
        (checkpoint(files=(WeightFile(FILE.name, FILE.size_bytes - 1, "", 100, HEADER),)), "bytes were sealed|were sealed"),
        (checkpoint(files=(WeightFile(FILE.name, FILE.size_bytes, "", 100, "0" * 64),)), "another header"),
        (checkpoint(others=()), r"m/config\.json: was sealed, and is not there"),
        (checkpoint(others=(*OTHERS, Entry("modeling.py", 3, ""))), r"m/modeling\.py: is not in the seal"),
        (checkpoint(others=(Entry("config.json", 1, ""),)), r"m/config\.json: has 1 bytes, and 22 were sealed"),
    ],
)
def test_a_seal_of_other_content_is_refused_and_the_file_named(found, says):
    with pytest.raises(IntegrityError, match=says) as caught:
        load_seal(Shelf(signed(seal_of())), found, trusting(ALICE))
    assert caught.value.object.startswith("s3://b/m/")
    assert "glowplug weights seal" in caught.value.hint


def test_a_small_file_that_a_web_server_was_not_asked_for_is_none_that_is_missing():
    class Web(Shelf):
        def name_of(self, file):
            return f"https://host/m/{file.name}"

    assert load_seal(Web(signed(seal_of())), checkpoint(others=()), trusting(ALICE)) is not None
    with pytest.raises(IntegrityError, match=r"https://host/m/config\.json: has 1 bytes"):
        load_seal(Web(signed(seal_of())), checkpoint(others=(Entry("config.json", 1, ""),)), trusting(ALICE))
    with pytest.raises(IntegrityError, match=r"model\.safetensors: was sealed"):
        load_seal(Web(signed(seal_of())), checkpoint(files=()), trusting(ALICE))


def test_glowplugs_own_files_need_no_seal():
    others = (*OTHERS, Entry("glowplug.seal.json", 9, ""), Entry("glowplug.complete.json", 9, ""))
    assert load_seal(Shelf(signed(seal_of())), checkpoint(others=others), trusting(ALICE)) is not None


def test_a_seal_with_too_few_digests_does_not_let_the_rest_pass():
    short = seal_of(files=(SealedFile("model.safetensors", FILE.size_bytes, HEADER, blocks()[:-32]),))
    with pytest.raises(IntegrityError, match="has 3 blocks, and 2 were sealed"):
        load_seal(Shelf(signed(short)), checkpoint(), trusting(ALICE))


def test_a_huge_document_is_refused_unread():
    class Huge(Shelf):
        def read_small(self, *_):
            raise AssertionError("it was read")

    with pytest.raises(IntegrityError, match="more than"):
        load_seal(Huge(b"", size=1 << 40), checkpoint(), trusting(ALICE))


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "glowplug.dev/seal/v2"},
        {"algorithm": "md5"},
        {"algorithm": []},
        {"block_bytes": 1},
        {"block_bytes": 1 << 40},
        {"block_bytes": 4096.0},
        {"block_bytes": True},
        {"weights": None},
        {"weights": [{}]},
        {"weights": [3]},
        {"weights": {"a": 1}},
        {"files": [{"name": "a", "bytes": -1, "sha256": HEADER}]},
        {"files": [{"name": "a", "bytes": 1, "sha256": "x"}]},
        {"files": [{"name": "a", "bytes": 1, "sha256": HEADER}] * 2},
        {"weights": [{"name": "a", "bytes": 1, "header_sha256": HEADER, "blocks": "*"}]},
        {"weights": [{"name": "a", "bytes": 1, "header_sha256": HEADER, "blocks": base64.b64encode(b"short").decode()}]},
        {"weights": [{"name": "a", "bytes": 1, "header_sha256": 4, "blocks": ""}]},
    ],
)
def test_what_is_not_of_the_form_is_refused_with_one_error(changes):
    tree = json.loads(seal_document(seal_of())) | changes
    with pytest.raises(IntegrityError, match=r"^s3://b/m/s: is no seal: ") as caught:
        parse_seal(json.dumps(tree).encode(), where="s3://b/m/s")
    assert caught.value.object == "s3://b/m/s"


@pytest.mark.parametrize("payload", [b"", b"[]", b"[" * 100_000, b"\xff", b"null", b'{"schema":"glowplug.dev/seal/v1"}'])
def test_what_is_no_document_is_refused(payload):
    with pytest.raises(IntegrityError, match="is no seal"):
        parse_seal(payload, where="s")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_to_a_seal_ends_in_anything_but_a_refusal_or_a_seal(data):
    tree = json.loads(seal_document(seal_of()))
    junk = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda kids: st.lists(kids, max_size=2)
    )
    target = data.draw(st.sampled_from([tree, tree["weights"][0], tree["files"][0]]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(junk)
    with contextlib.suppress(IntegrityError):
        parse_seal(json.dumps(tree).encode(), where="s").fit(checkpoint(), where="s")


def test_an_unknown_algorithm_is_a_usage_error():
    with pytest.raises(UsageError, match="md5"):
        new_hash("md5")
