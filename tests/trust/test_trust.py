"""Envelopes: what is believed, and what is refused. securesystemslib, the reference implementation, judges in both directions."""

import base64
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glowplug.cache.keys import PrivateKey, PublicKey, read_public_der
from glowplug.cache.trust import MANIFEST, MAX_ENVELOPE_BYTES, PAYLOAD_TYPE, SEAL, KeySigner, Trust
from glowplug.errors import BadManifest, BadSignature, IntegrityError, UnknownKey, Unreachable, Unsigned

PAYLOAD = b'{"schema":"glowplug.dev/manifest/v1"}'
ALICE = KeySigner(PrivateKey(b"a" * 32))
BOB = KeySigner(PrivateKey(b"b" * 32))


def trusting(*signers):
    return Trust(tuple(signer.public for signer in signers))


def altered(document, **changes):
    return json.dumps(json.loads(document) | changes).encode()


def test_what_a_trusted_key_signed_comes_back_with_its_signer():
    assert trusting(BOB, ALICE).check(ALICE.sign(PAYLOAD)) == (PAYLOAD, ALICE.keyid, ALICE.keyid)


def test_the_reference_implementation_accepts_our_envelopes_and_agrees_on_the_key_id():
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    key = SSlibKey.from_crypto(load_pem_public_key(ALICE.public.pem.encode()))
    envelope = Envelope.from_dict(json.loads(ALICE.sign(PAYLOAD)))
    assert set(envelope.verify([key], 1)) == {ALICE.keyid}
    assert envelope.payload == PAYLOAD
    assert envelope.payload_type == PAYLOAD_TYPE


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_envelopes_of_the_reference_implementation_are_accepted(kind):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    signer = getattr(CryptoSigner, f"generate_{kind}")()
    envelope = Envelope(PAYLOAD, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    public = signer._private_key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    verified = Trust((read_public_der(public, "test"),)).check(json.dumps(envelope.to_dict()).encode())
    assert (verified.payload, verified.keyid) == (PAYLOAD, signer.public_key.keyid)


def test_an_unsigned_envelope_is_refused():
    with pytest.raises(Unsigned, match=r"generations/1\.json: is not signed"):
        trusting(ALICE).verify(altered(ALICE.sign(PAYLOAD), signatures=[]), name="generations/1.json")


def test_a_stranger_is_refused_and_both_keys_are_named():
    with pytest.raises(UnknownKey) as caught:
        trusting(BOB).verify(ALICE.sign(PAYLOAD))
    assert ALICE.public.short in caught.value.message
    assert BOB.public.short in caught.value.message
    assert "GLOWPLUG_TRUSTED_KEYS" in caught.value.hint


def test_nobody_is_trusted_without_keys():
    with pytest.raises(UnknownKey, match="no key is trusted here"):
        Trust().verify(ALICE.sign(PAYLOAD))


def test_a_strangers_signature_under_a_trusted_key_id_is_a_bad_signature():
    document = json.loads(BOB.sign(PAYLOAD))
    document["signatures"][0]["keyid"] = ALICE.keyid
    with pytest.raises(BadSignature, match=ALICE.public.short):
        trusting(ALICE).verify(json.dumps(document).encode())


def test_an_altered_payload_is_a_bad_signature():
    other = base64.b64encode(PAYLOAD + b" ").decode()
    with pytest.raises(BadSignature):
        trusting(ALICE).verify(altered(ALICE.sign(PAYLOAD), payload=other))


def test_a_signature_over_another_type_of_document_does_not_pass_for_a_manifest():
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    key = CryptoSigner.generate_ed25519()
    envelope = Envelope(PAYLOAD, "application/vnd.in-toto+json", {})
    envelope.sign(key)
    public = PublicKey("ed25519", bytes.fromhex("302a300506032b6570032100" + key.public_key.keyval["public"]))
    trust = Trust((public,))
    with pytest.raises(BadManifest, match=r"application/vnd\.in-toto\+json"):
        trust.verify(json.dumps(envelope.to_dict()).encode())
    with pytest.raises(BadSignature):  # the type is signed too
        trust.verify(altered(json.dumps(envelope.to_dict()), payloadType=PAYLOAD_TYPE))


def test_a_manifests_signature_never_passes_for_a_seals_nor_a_seals_for_a_manifests():
    for signed, expected in ((MANIFEST, SEAL), (SEAL, MANIFEST)):
        document = ALICE.sign(PAYLOAD, signed)
        assert trusting(ALICE).verify(document, kind=signed) == PAYLOAD
        with pytest.raises(IntegrityError, match="holds") as caught:
            trusting(ALICE).verify(document, kind=expected)
        assert f"holds {signed.payload_type!r}, not {expected.payload_type}" in caught.value.message
        assert caught.value.hint.endswith(expected.again)
        with pytest.raises(BadSignature):  # the type is signed too
            trusting(ALICE).verify(altered(document, payloadType=expected.payload_type), kind=expected)


def test_one_good_signature_is_enough_beside_strangers_and_a_bad_one():
    document = json.loads(ALICE.sign(PAYLOAD))
    stranger = json.loads(KeySigner(PrivateKey(b"x" * 32)).sign(PAYLOAD))["signatures"][0]
    bad = {"keyid": BOB.keyid, "sig": stranger["sig"]}
    document["signatures"] = [bad, stranger, *document["signatures"]]
    assert trusting(ALICE, BOB).check(json.dumps(document).encode()).keyid == ALICE.keyid


@pytest.mark.parametrize("keyid", [None, "", "made-up-by-another-tool"])
def test_a_key_id_is_only_a_hint(keyid):
    document = json.loads(ALICE.sign(PAYLOAD))
    document["signatures"][0].pop("keyid")
    if keyid is not None:
        document["signatures"][0]["keyid"] = keyid
    assert trusting(BOB, ALICE).check(json.dumps(document).encode()).keyid == ALICE.keyid


def test_the_url_safe_alphabet_is_read():
    document = json.loads(ALICE.sign(b"\xfb\xff" * 9))
    document["payload"] = base64.urlsafe_b64encode(b"\xfb\xff" * 9).decode()
    assert trusting(ALICE).verify(json.dumps(document).encode()) == b"\xfb\xff" * 9


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"not json",
        b"[" * 200_000,
        b"[]",
        b"{}",
        b'{"payload":"","payloadType":"application/vnd.glowplug.manifest+json","signatures":{}}',
        b'{"payload":1,"payloadType":"application/vnd.glowplug.manifest+json","signatures":[]}',
        b'{"payload":"*","payloadType":"application/vnd.glowplug.manifest+json","signatures":[]}',
        b'{"payload":"","payloadType":"application/vnd.glowplug.manifest+json","signatures":[1]}',
        b'{"payload":"","payloadType":"application/vnd.glowplug.manifest+json","signatures":[{"keyid":1,"sig":""}]}',
        b'{"payload":"","payloadType":"application/vnd.glowplug.manifest+json","signatures":[{"keyid":""}]}',
        b'{"payload":"","payloadType":"application/vnd.glowplug.manifest+json","signatures":[{"sig":null}]}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_envelope_is_a_bad_manifest(document):
    with pytest.raises(BadManifest) as caught:
        trusting(ALICE).verify(document, name="generations/1.json")
    assert caught.value.object == "generations/1.json"
    assert caught.value.hint


def test_an_oversized_document_is_refused_unread():
    with pytest.raises(BadManifest, match="more than 67108864"):
        trusting(ALICE).verify(b"[" * (MAX_ENVELOPE_BYTES + 1))


def test_the_number_of_signatures_is_bounded():
    signature = json.loads(ALICE.sign(PAYLOAD))["signatures"][0]
    with pytest.raises(BadManifest, match="17 signatures"):
        trusting(ALICE).verify(altered(ALICE.sign(PAYLOAD), signatures=[signature] * 17))


def test_a_hostile_key_id_writes_no_control_characters_into_a_log():
    document = altered(ALICE.sign(PAYLOAD), signatures=[{"keyid": "\x1b[31m\n", "sig": ""}])
    with pytest.raises(UnknownKey) as caught:
        trusting(BOB).verify(document)
    assert "\x1b" not in caught.value.line()
    assert "\n" not in caught.value.line()


SIGNED = ALICE.sign(PAYLOAD)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(SIGNED) - 1), st.integers(0, 255))
def test_no_changed_byte_ever_brings_back_another_payload(position, byte):
    document = SIGNED[:position] + bytes([byte]) + SIGNED[position + 1 :]
    try:
        payload = trusting(ALICE, BOB).verify(document)
    except (BadManifest, BadSignature, UnknownKey, Unsigned):
        return
    assert payload == PAYLOAD


class _Remote:
    name = "arn:aws:kms:eu-central-1:111122223333:key/1"

    def __init__(self, key):
        self.key, self.asked = key, 0

    def public_key(self):
        self.asked += 1
        if self.key is None:
            raise Unreachable("no answer", object=self.name)
        return self.key


def test_a_remote_key_is_asked_for_only_if_no_key_at_hand_has_signed():
    remote = _Remote(BOB.public)
    trust = Trust((ALICE.public,), (remote,))
    trust.verify(ALICE.sign(PAYLOAD))
    assert remote.asked == 0
    assert trust.check(BOB.sign(PAYLOAD)).keyid == BOB.keyid


def test_whoever_has_signed_once_is_known_later_without_asking_for_as_long_as_he_is_trusted():
    remote = _Remote(BOB.public)
    trust = Trust((ALICE.public,), (remote,))
    alice, bob = (trust.check(signer.sign(PAYLOAD)).signer for signer in (ALICE, BOB))
    asked = remote.asked
    assert trust.knows(alice)
    assert trust.knows(bob)
    assert not Trust((ALICE.public,)).knows(bob)
    assert not Trust((BOB.public,), (remote,)).knows(alice)
    assert not Trust((ALICE.public,), (remote,)).knows("")
    assert remote.asked == asked


def test_a_remote_key_that_cannot_be_fetched_does_not_hide_one_that_can():
    trust = Trust((), (_Remote(None), _Remote(BOB.public)))
    assert trust.check(BOB.sign(PAYLOAD)).keyid == BOB.keyid
    with pytest.raises(Unreachable):
        trust.verify(ALICE.sign(PAYLOAD))


def test_verifying_loads_neither_securesystemslib_nor_botocore_nor_the_serialization_module(tmp_path):
    (tmp_path / "k.pub").write_text(ALICE.public.pem)
    (tmp_path / "document").write_bytes(ALICE.sign(PAYLOAD))
    code = f"""
import sys
from glowplug.cache.keyring import load_trust
trust = load_trust({{"GLOWPLUG_TRUSTED_KEYS": {str(tmp_path / "k.pub")!r}}})
assert not any(name.startswith("cryptography") for name in sys.modules), "before a signature is verified"
trust.verify(open({str(tmp_path / "document")!r}, "rb").read())
heavy = ("securesystemslib", "botocore", "cryptography.hazmat.primitives.serialization", "rich", "yaml")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
