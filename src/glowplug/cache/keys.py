"""Key material: public and private keys, read from and written as PEM.

Why by hand: the two forms that Glowplug writes (RFC 8410: Ed25519 as SubjectPublicKeyInfo and as PKCS#8) are a fixed
prefix and 32 bytes. Reading them without ``cryptography``'s serialization module saves some 60 ms on every start; any
other form goes through it. Ed25519 signs and verifies; ECDSA on P-256, which AWS KMS offers, verifies. No message
here ever holds a key's bytes, and nothing here looks at the environment (``keyring.py`` does).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from glowplug import temporary
from glowplug.errors import LocalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind: TypeAlias = Literal["ed25519", "ecdsa-p256"]

# RFC 8410, section 10: everything before the 32 bytes.
_ED25519_PUBLIC = bytes.fromhex("302a300506032b6570032100")
_ED25519_PRIVATE = bytes.fromhex("302e020100300506032b657004220420")
# RFC 5480: id-ecPublicKey, prime256v1, a bit string of 65 bytes (an uncompressed point, which begins with 04).
_P256_PUBLIC = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_PART = re.compile(r"\..*\.\d+\.[0-9a-f]{8}\.tmp")
_CREATE = "make a pair with: glowplug keys create"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that signatures are verified with."""

    kind: Kind
    der: bytes = field(repr=False)
    """SubjectPublicKeyInfo in DER."""
    source: str = field(default="", compare=False)
    """Where it was read from: a path, a variable's name, an ARN."""

    @property
    def keyid(self) -> str:
        """64 hex digits: sha256 of the canonical key, as securesystemslib, in-toto and TUF compute it."""
        if self.kind == "ed25519":
            keytype, scheme, public = "ed25519", "ed25519", self.der[len(_ED25519_PUBLIC) :].hex()
        else:
            keytype, scheme, public = "ecdsa", "ecdsa-sha2-nistp256", self.pem
        # Canonical JSON escapes only the quote and the backslash, so the PEM's ends of line stay as they are.
        document = f'{{"keytype":"{keytype}","keyval":{{"public":"{public}"}},"scheme":"{scheme}"}}'
        return hashlib.sha256(document.encode()).hexdigest()

    @property
    def short(self) -> str:
        """The key id's first 12 digits, for people."""
        return self.keyid[:12]

    @property
    def pem(self) -> str:
        """The key as a ``PUBLIC KEY`` block."""
        return _pem_block("PUBLIC KEY", self.der)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` was made over ``message`` by this key's private half. Never raises on any bytes."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  costs 20 to 45 ms, and a miss never verifies

        try:
            if self.kind == "ed25519":
                from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415  as above

                Ed25519PublicKey.from_public_bytes(self.der[len(_ED25519_PUBLIC) :]).verify(signature, message)
            else:
                from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415  only keys from KMS need it
                from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415  the same

                point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), self.der[len(_P256_PUBLIC) :])
                point.verify(signature, message, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """An Ed25519 key that signs."""

    seed: bytes = field(repr=False)
    """32 bytes; the secret."""
    source: str = field(default="", compare=False)
    """Where it was read from."""

    def public(self) -> PublicKey:
        """The public half."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  a reader never needs it

        raw = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        return PublicKey("ed25519", _ED25519_PUBLIC + raw, self.source)

    @property
    def pem(self) -> str:
        """The key as an unencrypted ``PRIVATE KEY`` block (PKCS#8)."""
        return _pem_block("PRIVATE KEY", _ED25519_PRIVATE + self.seed)

    @classmethod
    def generate(cls, source: str = "") -> PrivateKey:
        """A new key from the operating system's random numbers."""
        return cls(os.urandom(32), source)


def read_public(text: str, source: str) -> list[PublicKey]:
    """Every public key in a text of one or more PEM blocks.

    Raises:
        UsageError: no block, a private key, or a kind of key that Glowplug does not verify with. Names ``source``.
    """
    keys = [_public_block(label, body, source) for label, body in _blocks(text)]
    if not keys:
        hint = f"it should begin with -----BEGIN PUBLIC KEY-----; {_CREATE}"
        raise UsageError(f"{source}: holds no PEM block", object=source, hint=hint)
    return keys


def read_private(text: str, source: str) -> PrivateKey:
    """The one private key in a text.

    Raises:
        UsageError: no block or several, a public key, an encrypted key, or not an Ed25519 key. Names ``source``.
    """
    blocks = list(_blocks(text))
    if len(blocks) != 1:
        what = "no PEM block" if not blocks else f"{len(blocks)} PEM blocks"
        raise UsageError(f"{source}: holds {what}, not one private key", object=source, hint=_CREATE)
    label, body = blocks[0]
    if label == "PUBLIC KEY":
        raise UsageError(f"{source}: is a public key, and signing needs the private one", object=source, hint="name the .key file")
    if "ENCRYPTED" in label or "ENCRYPTED" in body[:200]:
        hint = "decrypt it with: openssl pkey -in OLD -out NEW; keep NEW in a secret store"
        raise UsageError(f"{source}: the key is encrypted with a passphrase", object=source, hint=hint)
    der = _decode(body, source) if label == "PRIVATE KEY" else b""
    if der.startswith(_ED25519_PRIVATE) and len(der) == len(_ED25519_PRIVATE) + 32:
        return PrivateKey(der[len(_ED25519_PRIVATE) :], source)
    return _other_private(label, body, source)


def read_public_der(der: bytes, source: str) -> PublicKey:
    """A public key from SubjectPublicKeyInfo in DER.

    Raises:
        UsageError: neither Ed25519 nor ECDSA on P-256, or not a key at all. Names ``source``.
    """
    if der.startswith(_ED25519_PUBLIC) and len(der) == len(_ED25519_PUBLIC) + 32:
        return PublicKey("ed25519", der, source)
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm  # noqa: PLC0415  only unusual keys get here
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey  # noqa: PLC0415  the same
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415  the same
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key  # noqa: PLC0415  the same

    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm, InternalError):  # the last where OpenSSL names a reason that is not known
        raise UsageError(f"{source}: is not a public key that can be read", object=source, hint=_CREATE) from None
    # Written anew, so that one key has one form, and with it one key id.
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return PublicKey("ecdsa-p256", key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), source)
    if isinstance(key, Ed25519PublicKey):
        return PublicKey("ed25519", _ED25519_PUBLIC + key.public_bytes_raw(), source)
    raise _unsupported(key, source, "Ed25519 and ECDSA on P-256 verify")


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """A pair that was just written."""

    private: Path
    """Mode 0600."""
    public: Path
    """Mode 0644."""
    key: PublicKey


def create_pair(prefix: Path, *, force: bool = False) -> KeyFiles:
    """Write a new pair as ``PREFIX.key`` and ``PREFIX.pub``; the folder is made if it is missing.

    Args:
        prefix: path without the two suffixes.
        force: replace files that exist. What the old key signed stays readable only for those who keep its public half.

    Raises:
        UsageError: one of the files exists.
        LocalError: the folder can't be written.
    """
    private, public = Path(f"{prefix}.key"), Path(f"{prefix}.pub")
    for path in (private, public):
        if not force and os.path.lexists(path):
            hint = "choose another --out, or replace it with --force"
            raise UsageError(f"{path}: exists, and a key is not replaced unasked", object=str(path), hint=hint)
    key = PrivateKey.generate(str(private))
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        write_new(private, key.pem, 0o600, replace=force)
        write_new(public, key.public().pem, 0o644, replace=force)
    except OSError as error:
        raise LocalError(
            f"{prefix}: {error.strerror}", object=str(prefix), hint="choose a folder that you may write with --out"
        ) from None
    return KeyFiles(private, public, PublicKey("ed25519", key.public().der, str(public)))


def write_new(path: Path, text: str, mode: int, *, replace: bool = False) -> None:
    """Write a small file whole or not at all, with exactly this mode.

    Raises:
        FileExistsError: there is one, and ``replace`` is not set.
        OSError: the folder can't be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    descriptor = temporary.create(part, mode)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, mode)  # the umask may have taken bits that a reader needs
            file.write(text)
            file.flush()
            os.fsync(descriptor)
            if replace:  # while the lock is held: else whoever sweeps meanwhile takes the part for a dead process's
                part.replace(path)
            else:
                os.link(part, path)  # unlike a rename, fails if somebody else was first
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def sweep(folder: Path) -> None:
    """Remove what ``write_new`` left in a folder when its process was killed: it may be a private key."""
    temporary.sweep(folder, _PART)


def pem_blocks(text: str) -> tuple[list[str], str]:
    """The PEM blocks of a text, each whole, and what is left of the text without them."""
    return [match.group(0) for match in _PEM.finditer(text)], _PEM.sub("\n", text)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    # A variable often holds the two characters \n where the file had an end of line.
    for match in _PEM.finditer(text.replace("\\n", "\n")):
        yield match.group(1), match.group(2)


def _pem_block(label: str, der: bytes) -> str:
    body = base64.b64encode(der).decode()
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _decode(body: str, source: str) -> bytes:
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except ValueError:  # also of letters that base64 does not have, beside binascii's own
        raise UsageError(f"{source}: the PEM block is damaged", object=source, hint="copy the file again, whole") from None


def _public_block(label: str, body: str, source: str) -> PublicKey:
    if "PRIVATE KEY" in label:
        hint = "name its public half, the .pub file; private keys belong on the machine that publishes, nowhere else"
        raise UsageError(f"{source}: is a private key, and trust needs public ones", object=source, hint=hint)
    if label != "PUBLIC KEY":
        hint = "convert it with: openssl pkey -pubin -in OLD -pubout, or for a certificate: openssl x509 -in OLD -noout -pubkey"
        raise UsageError(f"{source}: is a PEM block of type {label}, not PUBLIC KEY", object=source, hint=hint)
    return read_public_der(_decode(body, source), source)


def _other_private(label: str, body: str, source: str) -> PrivateKey:
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm  # noqa: PLC0415  only unusual keys get here
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  the same
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_ssh_private_key  # noqa: PLC0415  the same

    try:
        if label == "OPENSSH PRIVATE KEY":
            key: object = load_ssh_private_key(_pem_block(label, _decode(body, source)).encode(), password=None)
        else:
            key = load_der_private_key(_decode(body, source), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        raise UsageError(f"{source}: is not a private key that can be read", object=source, hint=_CREATE) from None
    if isinstance(key, Ed25519PrivateKey):
        return PrivateKey(key.private_bytes_raw(), source)
    raise _unsupported(key, source, "Ed25519 signs; a P-256 key signs only inside AWS KMS")


def _unsupported(key: object, source: str, allowed: str) -> UsageError:
    kind = type(key).__name__.removesuffix("PrivateKey").removesuffix("PublicKey").removesuffix("_")
    curve = getattr(getattr(key, "curve", None), "name", "")
    return UsageError(
        f"{source}: is a key of kind {kind}{f' on {curve}' if curve else ''}, which Glowplug does not use",
        object=source,
        hint=f"{allowed}; {_CREATE}",
    )
