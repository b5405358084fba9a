"""Keys in AWS KMS, against a local server that speaks KMS's JSON protocol and holds a real P-256 key. Not proven: AWS itself."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from glowplug.cache.keyring import describe, load_signer, load_trust
from glowplug.cache.keys import PrivateKey
from glowplug.cache.kms import KmsKey
from glowplug.cache.trust import KeySigner
from glowplug.errors import Forbidden, UnknownKey, Unreachable, UsageError

ARN = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


class Kms(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.error = None
        self.spec = "ECC_NIST_P256"
        self.requests = []

    def answer(self, target, body):
        if self.error:
            return self.error[0], {"__type": self.error[1], "message": "no"}
        if target == "TrentService.GetPublicKey":
            der = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            public = base64.b64encode(der).decode()
            return 200, {"KeyId": ARN, "PublicKey": public, "KeySpec": self.spec, "KeyUsage": "SIGN_VERIFY"}
        digest = base64.b64decode(body["Message"])
        assert (body["MessageType"], body["SigningAlgorithm"], len(digest)) == ("DIGEST", "ECDSA_SHA_256", 32)
        signature = self.key.sign(digest, ec.ECDSA(Prehashed(SHA256())))
        return 200, {"KeyId": ARN, "Signature": base64.b64encode(signature).decode(), "SigningAlgorithm": "ECDSA_SHA_256"}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        target = self.headers["X-Amz-Target"]
        self.server.requests.append((target, body["KeyId"], self.headers["Authorization"]))
        status, answer = self.server.answer(target, body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def kms(monkeypatch):
    server = Kms()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("source", [ARN, f"awskms:{ARN}"])
def test_a_manifest_signed_in_kms_verifies_with_the_key_named_by_its_arn(kms, source):
    document = load_signer({"GLOWPLUG_SIGNING_KEY": source}).sign(b"payload")
    trust = load_trust({"GLOWPLUG_TRUSTED_KEYS": source})
    assert trust.verify(document) == b"payload"
    assert trust.verify(document) == b"payload"
    # The signer asks twice, the reader once, however often it verifies; and the region is the ARN's.
    assert [target.removeprefix("TrentService.") for target, _, _ in kms.requests] == ["GetPublicKey", "Sign", "GetPublicKey"]
    assert all(key == ARN and "/eu-central-1/kms/" in authorization for _, key, authorization in kms.requests)


def test_a_reader_needs_no_kms_if_it_has_the_public_key_as_a_file(kms, tmp_path):
    signer = load_signer({"GLOWPLUG_SIGNING_KEY": ARN})
    document = signer.sign(b"payload")
    (tmp_path / "kms.pub").write_text(describe(ARN)[0].key.pem)
    kms.requests.clear()
    assert load_trust({"GLOWPLUG_TRUSTED_KEYS": str(tmp_path)}).check(document).keyid == signer.keyid
    assert kms.requests == []


def test_the_reference_implementation_accepts_what_kms_signed(kms):
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    envelope = Envelope.from_dict(json.loads(KmsKey(ARN).sign(b"payload")))
    assert len(envelope.verify([SSlibKey.from_crypto(kms.key.public_key())], 1)) == 1


def test_naming_a_key_asks_nobody(kms):
    load_signer({"GLOWPLUG_SIGNING_KEY": ARN})
    load_trust({"GLOWPLUG_SIGNING_KEY": ARN})
    assert kms.requests == []


@pytest.mark.usefixtures("kms")
def test_another_key_than_the_trusted_one_is_refused():
    document = KeySigner(PrivateKey(b"a" * 32)).sign(b"payload")
    with pytest.raises(UnknownKey):
        load_trust({"GLOWPLUG_TRUSTED_KEYS": ARN}).verify(document)


@pytest.mark.parametrize(
    ("error", "raised", "says"),
    [
        ((400, "AccessDeniedException"), Forbidden, "kms:GetPublicKey"),
        ((400, "UnrecognizedClientException"), Forbidden, "identity"),
        ((400, "DisabledException"), Forbidden, "enable the key"),
        ((400, "NotFoundException"), UsageError, "check the ARN"),
        ((500, "KMSInternalException"), Unreachable, "try again"),
    ],
)
def test_what_kms_refuses_says_who_must_act(kms, error, raised, says):
    kms.error = error
    with pytest.raises(raised) as caught:
        KmsKey(ARN).sign(b"payload")
    assert says in caught.value.hint
    assert error[1] in caught.value.message
    assert caught.value.object == ARN


def test_a_key_of_another_kind_is_refused(kms):
    kms.spec = "RSA_2048"
    with pytest.raises(UsageError, match="RSA_2048"):
        KmsKey(ARN).sign(b"payload")


@pytest.mark.usefixtures("kms")
def test_no_answer_is_unreachable(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match="could not be asked"):
        KmsKey(ARN).sign(b"payload")


@pytest.mark.usefixtures("kms")
def test_no_credentials_are_forbidden(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Forbidden, match="redentials"):
        KmsKey(ARN).sign(b"payload")


@pytest.mark.usefixtures("kms")
def test_an_alias_without_a_region_says_so():
    with pytest.raises(UsageError, match="region"):
        KmsKey("awskms:alias/fleet").sign(b"payload")


@pytest.mark.parametrize("source", ["awskms:", "awskms:a b", "arn:aws:s3:::bucket", "arn:aws:kms:eu-central-1:1:key/x"])
def test_what_is_no_kms_key_is_a_usage_error(source):
    with pytest.raises(UsageError):
        load_signer({"GLOWPLUG_SIGNING_KEY": source})
