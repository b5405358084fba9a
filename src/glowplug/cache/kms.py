"""Keys in AWS KMS: the private half never leaves the service.

Why botocore and not securesystemslib's AWSSigner: that one needs boto3, which adds nothing to two kinds of request. A
key must be of spec ``ECC_NIST_P256`` and usage ``SIGN_VERIFY``; only the sha256 of what is signed is sent, since KMS
signs at most 4096 bytes. The public half is asked for once for an object. Nothing here keeps anything on disk,
creates keys, or loads botocore before it is needed.
"""

from __future__ import annotations

import hashlib
import re
import threading
from typing import TYPE_CHECKING

from glowplug.cache.keys import PublicKey, read_public_der
from glowplug.cache.trust import MANIFEST, seal
from glowplug.errors import Forbidden, GlowplugError, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.cache.trust import Kind

PREFIX = "awskms:"
_ARN = re.compile(r"arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):\d{12}:(key|alias)/\S+")
_NAME = re.compile(r"[A-Za-z0-9/_-]{1,256}")
_TIMEOUT_S = 5
_ALGORITHM = "ECDSA_SHA_256"
_WANTED = "create one with: aws kms create-key --key-spec ECC_NIST_P256 --key-usage SIGN_VERIFY"

# What KMS answers, by who must act. https://docs.aws.amazon.com/kms/latest/APIReference/API_Sign.html#API_Sign_Errors
_NOT_ALLOWED = {
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "UnrecognizedClientException",
}
_WRONG_KEY = {
    "InvalidArnException",
    "InvalidKeyUsageException",
    "NotFoundException",
    "UnsupportedOperationException",
    "ValidationException",
}


class KmsKey:
    """A key of KMS by ARN, id or alias: signs, and has a public half. Thread-safe; blocks at most some 15 s for a request."""

    def __init__(self, source: str) -> None:
        """Take the key's name apart; asks nobody.

        Args:
            source: ``awskms:`` and an ARN, key id or alias, or a bare ARN.

        Raises:
            UsageError: it cannot be the name of a key.
        """
        self.name = source.removeprefix(PREFIX)
        arn = _ARN.fullmatch(self.name)
        if arn is None and not _NAME.fullmatch(self.name):
            hint = "write awskms:arn:aws:kms:REGION:ACCOUNT:key/ID"
            raise UsageError(f"{source[:300]}: is not the ARN, id or alias of a KMS key", object=source[:300], hint=hint)
        self._region = arn.group("region") if arn else None
        self._public: PublicKey | None = None
        self._lock = threading.Lock()

    @property
    def keyid(self) -> str:
        """The public half's key id; asks KMS once."""
        return self.public.keyid

    @property
    def public(self) -> PublicKey:
        """The public half; asks KMS once."""
        return self.public_key()

    def public_key(self) -> PublicKey:
        """The public half; asks KMS once (needs ``kms:GetPublicKey``).

        Raises:
            Forbidden: no credentials, or not this right.
            Unreachable: no answer.
            UsageError: no such key, or one that can't sign for Glowplug.
        """
        with self._lock:
            if self._public is None:
                answer = self._ask("get_public_key", {})
                spec = answer.get("KeySpec") or answer.get("CustomerMasterKeySpec")
                if spec != "ECC_NIST_P256" or answer.get("KeyUsage") != "SIGN_VERIFY":
                    what = f"is of spec {spec} and usage {answer.get('KeyUsage')}"
                    raise UsageError(f"{self.name}: {what}", object=self.name, hint=f"use ECC_NIST_P256 and SIGN_VERIFY; {_WANTED}")
                self._public = read_public_der(_bytes(answer, "PublicKey"), self.name)
            return self._public

    def sign(self, payload: bytes, kind: Kind = MANIFEST) -> bytes:
        """The signed envelope's JSON (needs ``kms:Sign``, and ``kms:GetPublicKey`` the first time). Raises as ``public_key``."""
        return seal(payload, self.keyid, self._sign, kind)

    def _sign(self, message: bytes) -> bytes:
        request = {"Message": hashlib.sha256(message).digest(), "MessageType": "DIGEST", "SigningAlgorithm": _ALGORITHM}
        return _bytes(self._ask("sign", request), "Signature")

    def _ask(self, operation: str, request: Mapping[str, object]) -> Mapping[str, object]:
        import botocore.session  # noqa: PLC0415  costs 300 ms, which only users of KMS should pay
        from botocore.config import Config  # noqa: PLC0415  the same
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  the same

        config = Config(connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"total_max_attempts": 3, "mode": "standard"})
        try:
            client = botocore.session.get_session().create_client("kms", region_name=self._region, config=config)
            answer: Mapping[str, object] = getattr(client, operation)(KeyId=self.name, **request)
        except ClientError as error:
            raise self._refused(error.response.get("Error", {}), operation) from None
        except BotoCoreError as error:
            raise self._failed(error) from None
        return answer

    def _refused(self, error: Mapping[str, str], operation: str) -> GlowplugError:
        code, text = error.get("Code", "unknown"), error.get("Message", "")[:300]
        permission = {"get_public_key": "kms:GetPublicKey", "sign": "kms:Sign"}[operation]
        message = f"{self.name}: AWS KMS answered {code}{f': {text}' if text else ''}"
        if code in _NOT_ALLOWED:
            return Forbidden(message, object=self.name, hint=f"allow {permission} on this key for this identity")
        if code in _WRONG_KEY:
            return UsageError(message, object=self.name, hint=f"check the ARN and the key's usage; {_WANTED}")
        if code in {"DisabledException", "KMSInvalidStateException"}:
            return Forbidden(message, object=self.name, hint="enable the key, or name another one")
        return Unreachable(message, object=self.name, hint="try again; AWS_ENDPOINT_URL_KMS is the address if it is set")

    def _failed(self, error: Exception) -> GlowplugError:
        kind, text = type(error).__name__, str(error)[:300]
        message = f"{self.name}: AWS KMS could not be asked: {text}"
        if kind == "NoRegionError":
            return UsageError(message, object=self.name, hint="name the key by its ARN, or set AWS_REGION")
        if "Credential" in kind or "Token" in kind or kind in {"ProfileNotFound", "MetadataRetrievalError"}:
            return Forbidden(message, object=self.name, hint="give this process AWS credentials (IRSA, Pod Identity, a profile)")
        hint = "check the network; if AWS_ENDPOINT_URL is set for an object store, set AWS_ENDPOINT_URL_KMS too"
        return Unreachable(message, object=self.name, hint=hint)


def _bytes(answer: Mapping[str, object], field: str) -> bytes:
    value = answer.get(field)
    if not isinstance(value, bytes):
        raise Unreachable(f"AWS KMS answered without {field}", object=field, hint="is AWS_ENDPOINT_URL_KMS the address of KMS?")
    return value
