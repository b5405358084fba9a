"""Signatures: a manifest, or a checkpoint's seal, is used only if somebody whom the reader trusts has signed it.

Why: compiled artefacts are executable code, and a bucket is written by more people than should run code on a GPU
node. What is signed travels as a DSSE envelope (https://github.com/secure-systems-lab/dsse, version 1.0.2): JSON with
the payload, its type and signatures over both, so that a signature for one kind of document never passes for another.
Envelopes are written by securesystemslib, the reference implementation, after the engine is ready. They are verified
with ``cryptography`` alone: importing ``securesystemslib.dsse`` costs 160 to 220 ms before an engine starts, this 20
to 45 ms.

Nothing here parses the payload, reads a key file or looks at the environment (``keyring.py`` does), and a key id,
which anybody can write into an envelope, is never believed: it only says which key to try first.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from glowplug.errors import BadManifest, BadSignature, GlowplugError, IntegrityError, UnknownKey, Unsigned
from glowplug.printable import printable
from glowplug.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from glowplug.cache.keys import PrivateKey, PublicKey

PAYLOAD_TYPE = "application/vnd.glowplug.manifest+json"
MAX_ENVELOPE_BYTES = 64 * MIB
"""A manifest of 100,000 files has about 20 MiB, the seal of a checkpoint of 1 TB about 8. What is larger is refused unread."""
MAX_SIGNATURES = 16
"""Bounds the work that a hostile envelope can ask for: at most this many times the number of trusted keys."""


class Kind(NamedTuple):
    """A kind of signed document."""

    payload_type: str
    """Part of what is signed."""
    noun: str
    """For messages."""
    again: str
    """How to replace a bad one, as an instruction."""
    sign: str
    """How to sign one that is not, as an instruction."""
    error: type[IntegrityError]
    """Raised for what is not such a document at all."""


MANIFEST = Kind(
    PAYLOAD_TYPE,
    "manifest",
    "delete it; the next cold start publishes a new one",
    "publish it again with a key (GLOWPLUG_SIGNING_KEY)",
    BadManifest,
)
SEAL = Kind(
    "application/vnd.glowplug.seal+json",
    "seal",
    "seal the checkpoint again: glowplug weights seal",
    "seal the checkpoint again with a key (GLOWPLUG_SIGNING_KEY)",
    IntegrityError,
)


class Signer(Protocol):
    """Somebody who can sign."""

    @property
    def keyid(self) -> str:
        """64 hex digits, as ``PublicKey.keyid``. May ask AWS KMS, once."""
        ...

    @property
    def public(self) -> PublicKey:
        """The key that verifies. May ask AWS KMS, once."""
        ...

    def sign(self, payload: bytes, kind: Kind = MANIFEST) -> bytes:
        """The signed envelope's JSON. Blocks for a request where AWS KMS signs, and then raises RemoteError. Thread-safe."""
        ...


class RemoteKey(Protocol):
    """A trusted key that is fetched when it is needed (``kms.KmsKey``)."""

    @property
    def name(self) -> str:
        """Its ARN, for messages."""
        ...

    def public_key(self) -> PublicKey:
        """Ask for it; one request for the process. Raises RemoteError or UsageError."""
        ...


class Verified(NamedTuple):
    """A payload, and who vouches for it."""

    payload: bytes
    keyid: str
    signer: str
    """What ``Trust.knows`` can be asked later, over no network: the key id, or the name of a key that was fetched."""


@dataclass(frozen=True, slots=True)
class KeySigner:
    """Signs with an Ed25519 key in memory."""

    key: PrivateKey

    @property
    def keyid(self) -> str:
        """The public half's key id."""
        return self.key.public().keyid

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return self.key.public()

    def sign(self, payload: bytes, kind: Kind = MANIFEST) -> bytes:
        """The signed envelope's JSON. Peak memory: four times the payload."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  a reader never signs

        return seal(payload, self.keyid, Ed25519PrivateKey.from_private_bytes(self.key.seed).sign, kind)


def seal(payload: bytes, keyid: str, sign: Callable[[bytes], bytes], kind: Kind = MANIFEST) -> bytes:
    """Wrap a payload into an envelope with one signature. Peak memory: four times the payload.

    Args:
        payload: the document's bytes.
        keyid: whose signature it is.
        sign: gives the signature over the bytes that it is passed.
        kind: of document.
    """
    from securesystemslib.dsse import Envelope  # noqa: PLC0415  200 ms, spent after the engine is ready
    from securesystemslib.signer import Signature  # type: ignore[attr-defined]  # noqa: PLC0415  the same

    envelope = Envelope(payload, kind.payload_type, {})
    envelope.signatures[keyid] = Signature(keyid, sign(envelope.pae()).hex())
    return json.dumps(envelope.to_dict(), separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose signatures count: any one of these keys is enough.

    Attributes:
        keys: public keys at hand.
        remote: keys that are fetched only when none of ``keys`` has signed.
        origin: where the keys were named, for messages: an option, a variable, a folder.
        notices: lines for the user about how the keys were found.
    """

    keys: tuple[PublicKey, ...] = ()
    remote: tuple[RemoteKey, ...] = ()
    origin: str = ""
    notices: tuple[str, ...] = field(default=(), compare=False)

    def verify(self, document: bytes, *, name: str = "", kind: Kind = MANIFEST) -> bytes:
        """The payload of a signed envelope; see ``check``."""
        return self.check(document, name=name, kind=kind).payload

    def check(self, document: bytes, *, name: str = "", kind: Kind = MANIFEST) -> Verified:
        """The payload and the key that signed it, if a trusted key did.

        One good signature by a trusted key is enough, whatever stands beside it: anybody could append a bad one.

        Args:
            document: the envelope's JSON. Peak memory besides it: four times its size.
            name: what it is (its key in the store), for messages.
            kind: of document that is expected; the signature of any other kind does not count.

        Raises:
            BadManifest: not a DSSE envelope with a manifest, or larger than ``MAX_ENVELOPE_BYTES``.
            IntegrityError: the same for a seal.
            Unsigned: no signature.
            BadSignature: signed in the name of a trusted key, and the signature does not match.
            UnknownKey: signed by none of the trusted keys.
            RemoteError: a trusted key could not be fetched, and no other has signed.
        """
        name = name or kind.noun
        payload, signatures = _parse(document, name, kind)
        if not signatures:
            hint = f"{kind.sign}; what is unsigned may come from anybody"
            raise Unsigned(f"{name}: is not signed", object=name, hint=hint)
        message = _pre_authentication_encoding(payload, kind)
        signer = _signed_by(self.keys, signatures, message)
        if signer is not None:
            return Verified(payload, signer.keyid, signer.keyid)
        fetched, failure = _fetch(self.remote)
        for remote, key in fetched:
            if _signed_by([key], signatures, message) is not None:
                return Verified(payload, key.keyid, remote)
        if failure is not None:
            raise failure
        raise self._refusal([*self.keys, *(key for _, key in fetched)], signatures, name, kind)

    def knows(self, signer: str) -> bool:
        """Whether a ``Verified.signer`` of an earlier start would be believed now. Asks nobody."""
        return any(key.keyid == signer for key in self.keys) or any(key.name == signer for key in self.remote)

    def _refusal(self, keys: list[PublicKey], signatures: list[_Signature], name: str, kind: Kind) -> GlowplugError:
        trusted = {key.keyid for key in keys}
        forged = sorted({signature.keyid for signature in signatures} & trusted)
        if forged:
            return BadSignature(
                f"{name}: the signature in the name of key {_shorts(forged)} does not match",
                object=name,
                hint=f"it was altered after signing; find out by whom, then {kind.again}",
            )
        whose = _shorts(signature.keyid for signature in signatures)
        origin = f" ({self.origin})" if self.origin else ""
        if not keys:
            message = f"{name}: signed by key {whose}, and no key is trusted here{origin}"
        else:
            message = f"{name}: signed by key {whose}, trusted are {_shorts(sorted(trusted))}{origin}"
        return UnknownKey(message, object=name, hint="if you trust its publisher, add the public key to GLOWPLUG_TRUSTED_KEYS")


class _Signature(NamedTuple):
    keyid: str
    value: bytes


def _pre_authentication_encoding(payload: bytes, expected: Kind) -> bytes:
    """What is signed: the type and the payload, each with its length, so that neither can be read as part of the other."""
    kind = expected.payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _parse(document: bytes, name: str, kind: Kind) -> tuple[bytes, list[_Signature]]:
    if len(document) > MAX_ENVELOPE_BYTES:
        size = f"{len(document)} bytes, more than {MAX_ENVELOPE_BYTES}"
        raise kind.error(f"{name}: has {size}", object=name, hint=f"no {kind.noun} is that large; {kind.again}")
    try:
        tree = json.loads(document)
    except (ValueError, RecursionError):  # RecursionError: nested a thousand levels deep
        raise kind.error(f"{name}: is not JSON", object=name, hint=kind.again) from None
    if not isinstance(tree, dict) or not isinstance(tree.get("signatures"), list) or not isinstance(tree.get("payload"), str):
        raise kind.error(f"{name}: is not a signed envelope (DSSE)", object=name, hint=kind.again)
    if tree.get("payloadType") != kind.payload_type:
        found = str(tree.get("payloadType"))[:100]
        raise kind.error(
            f"{name}: holds {found!r}, not {kind.payload_type}",
            object=name,
            hint=f"it is no {kind.noun} of Glowplug's; {kind.again}",
        )
    if len(tree["signatures"]) > MAX_SIGNATURES:
        count = len(tree["signatures"])
        raise kind.error(f"{name}: carries {count} signatures, more than {MAX_SIGNATURES}", object=name, hint=kind.again)
    try:
        return _base64(tree["payload"]), [_signature(entry) for entry in tree["signatures"]]
    except (ValueError, TypeError, KeyError):
        raise kind.error(f"{name}: its payload or a signature is not base64", object=name, hint=kind.again) from None


def _signature(entry: dict[str, str]) -> _Signature:
    keyid = entry.get("keyid") or "" if isinstance(entry, dict) else None
    if not isinstance(keyid, str):
        raise TypeError
    return _Signature(keyid[:128], _base64(entry["sig"]))


def _base64(text: str) -> bytes:
    # DSSE allows the standard and the URL-safe alphabet.
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return base64.b64decode(text, altchars=b"-_", validate=True)


def _signed_by(keys: Iterable[PublicKey], signatures: list[_Signature], message: bytes) -> PublicKey | None:
    for key, signature in _candidates(list(keys), signatures):
        if key.verifies(signature.value, message):
            return key
    return None


def _candidates(keys: list[PublicKey], signatures: list[_Signature]) -> Iterator[tuple[PublicKey, _Signature]]:
    """Which key to try on which signature: the named one; every one where the name is unknown or missing (DSSE: a hint)."""
    by_id = {key.keyid: key for key in keys}
    for signature in signatures:
        named = by_id.get(signature.keyid)
        if named is not None:
            yield named, signature
    for signature in signatures:
        if signature.keyid not in by_id:
            for key in keys:
                yield key, signature


def _fetch(remote: Iterable[RemoteKey]) -> tuple[list[tuple[str, PublicKey]], GlowplugError | None]:
    keys: list[tuple[str, PublicKey]] = []
    failure = None
    for key in remote:
        try:
            keys.append((key.name, key.public_key()))
        except GlowplugError as error:  # another key may have signed; raised by the caller if none has
            failure = error
    return keys, failure


def _shorts(keyids: Iterable[str]) -> str:
    # A key id is whatever the envelope's writer put there.
    return ", ".join(printable(keyid[:12]) or "without an id" for keyid in keyids)
