"""Key files: written once, readable by other tools, refused with a reason."""

import base64
import os
import shutil
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from glowplug.cache.keys import PrivateKey, create_pair, read_private, read_public
from glowplug.errors import LocalError, UsageError


def private_pem(key, encryption=None, form=PrivateFormat.PKCS8):
    return key.private_bytes(Encoding.PEM, form, encryption or NoEncryption()).decode()


def public_pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def test_a_pair_has_the_modes_of_its_roles_whatever_the_umask(tmp_path):
    old = os.umask(0o077)
    try:
        files = create_pair(tmp_path / "made" / "fleet")
    finally:
        os.umask(old)
    assert stat.S_IMODE(files.private.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.public.stat().st_mode) == 0o644
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["fleet.key", "fleet.pub"]


def test_what_is_written_is_read_back_here_and_by_other_libraries(tmp_path):
    files = create_pair(tmp_path / "fleet")
    private = read_private(files.private.read_text(), "fleet.key")
    assert read_public(files.public.read_text(), "fleet.pub") == [files.key] == [private.public()]
    theirs = load_pem_private_key(files.private.read_bytes(), None)
    assert theirs.private_bytes_raw() == private.seed
    assert load_pem_public_key(files.public.read_bytes()) == theirs.public_key()


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_openssl_derives_the_same_public_half(tmp_path):
    files = create_pair(tmp_path / "fleet")
    done = subprocess.run(["openssl", "pkey", "-in", files.private, "-pubout"], capture_output=True, text=True, check=True)
    assert done.stdout == files.public.read_text()


def test_keys_of_openssl_are_read():
    theirs = ed25519.Ed25519PrivateKey.generate()
    assert read_private(private_pem(theirs), "x").seed == theirs.private_bytes_raw()
    assert read_public(public_pem(theirs), "x") == [read_private(private_pem(theirs), "x").public()]


def test_an_openssh_key_is_read():
    theirs = ed25519.Ed25519PrivateKey.generate()
    assert read_private(private_pem(theirs, form=PrivateFormat.OpenSSH), "x").seed == theirs.private_bytes_raw()


def test_one_p256_key_has_one_id_however_its_point_is_written():
    key = ec.generate_private_key(ec.SECP256R1())
    compressed = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
    compressed += key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    pem = f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(compressed).decode()}\n-----END PUBLIC KEY-----"
    assert read_public(pem, "x") == read_public(public_pem(key), "x")
    assert read_public(pem, "x")[0].keyid == read_public(public_pem(key), "x")[0].keyid


def test_pem_survives_a_variable_that_lost_its_ends_of_line():
    pem = PrivateKey(b"a" * 32).pem
    assert read_private(pem.replace("\n", "\\n"), "x").seed == b"a" * 32
    assert read_private(pem.replace("\n", " "), "x").seed == b"a" * 32


def test_a_key_is_not_replaced_unasked(tmp_path):
    before = create_pair(tmp_path / "fleet").private.read_text()
    with pytest.raises(UsageError, match=r"fleet\.key: exists"):
        create_pair(tmp_path / "fleet")
    assert (tmp_path / "fleet.key").read_text() == before
    create_pair(tmp_path / "fleet", force=True)
    assert (tmp_path / "fleet.key").read_text() != before


def test_a_public_half_alone_is_not_overwritten_either(tmp_path):
    (tmp_path / "fleet.pub").write_text("precious")
    with pytest.raises(UsageError, match=r"fleet\.pub: exists"):
        create_pair(tmp_path / "fleet")
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.pub"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match="file/fleet"):
        create_pair(tmp_path / "file" / "fleet")


RSA = rsa.generate_private_key(65537, 2048)
P384 = ec.generate_private_key(ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.generate()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no PEM block"),
        ("hello", "no PEM block"),
        (private_pem(RSA), "kind RSA"),
        (private_pem(P384), "kind EC on secp384r1"),
        (private_pem(RSA, form=PrivateFormat.TraditionalOpenSSL), "kind RSA"),
        (private_pem(ED, BestAvailableEncryption(b"passphrase")), "encrypted"),
        (public_pem(ED), "is a public key"),
        (private_pem(ED) * 2, "2 PEM blocks"),
        (private_pem(ED).replace("MC4C", "****"), "damaged"),
        (private_pem(ED).replace("MC4C", "M\u00e94C"), "damaged"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "not a private key that can be read"),
    ],
)
def test_what_cannot_sign_is_refused_with_a_reason_and_without_its_bytes(text, says):
    with pytest.raises(UsageError) as caught:
        read_private(text, "secret.key")
    assert says in caught.value.message
    assert caught.value.message.startswith("secret.key: ")
    assert caught.value.hint
    for line in text.splitlines():
        assert "-----" in line or len(line) < 8 or line not in caught.value.line()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no PEM block"),
        (public_pem(RSA), "kind RSA"),
        (public_pem(P384), "secp384r1"),
        (private_pem(ED), "is a private key"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "type CERTIFICATE"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "not a public key that can be read"),
    ],
)
def test_what_cannot_verify_is_refused_with_a_reason(text, says):
    with pytest.raises(UsageError, match=says) as caught:
        read_public(text, "trusted.pub")
    assert caught.value.object == "trusted.pub"


def test_a_secret_is_not_in_the_text_form_of_a_key():
    key = PrivateKey(b"z" * 32)
    assert "zzz" not in repr(key)
    assert key.seed.hex() not in repr(key)
