"""What an S3 server's refusal means: from status and error code to an error of ours that says what to do.

The codes are Amazon's (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html); other servers use the same ones, or
only the status. This module never decides whether to try again, except that it knows which answers ask for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

from glowplug.errors import (
    BucketNotFound,
    ConditionalWritesUnsupported,
    Forbidden,
    ObjectChanged,
    ObjectNotFound,
    PreconditionFailed,
    RemoteError,
    Unreachable,
    WrongRegion,
)
from glowplug.store.proxy import hint_for

_RETRY_STATUS = {429, 500, 502, 503, 504}
_RETRY_CODES = {
    "RequestTimeout",  # a 400: the server tired of waiting for the body
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "ThrottlingException",
    "ConditionalRequestConflict",  # a 409: another conditional write of this key is under way
    "OperationAborted",
}
_EXPIRED_CODES = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_FORBIDDEN_HINTS = {
    "AccessDenied": "give the identity s3:GetObject and, to publish, s3:PutObject on the prefix, and s3:ListBucket on the bucket: "
    "without it S3 calls a missing object forbidden",
    "AllAccessDisabled": "the bucket is closed to everyone; ask its owner",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY; it does not belong to the access key",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID; this server does not know it",
    "ExpiredToken": "the session token has expired; fetch new credentials",
    "ExpiredTokenException": "the session token has expired; fetch new credentials",
    "InvalidToken": "check AWS_SESSION_TOKEN; it does not belong to these keys",
    "TokenRefreshRequired": "fetch new credentials",
    "RequestTimeTooSkewed": "set this machine's clock; it differs from the server's by more than the server allows",
    "AccountProblem": "ask the owner of the AWS account",
}
_REGION_CODES = {
    "PermanentRedirect",
    "TemporaryRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
}
_CONDITION_UNKNOWN = {"NotImplemented", "InvalidArgument", "InvalidRequest", "UnsupportedHeader", "UnsupportedArgument"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's refusal, as it came."""

    status: int
    code: str
    """Amazon's error code; empty if the answer had no body, as with HEAD."""
    text: str
    """The server's message."""
    region: str
    """Where the bucket is, if the answer says so."""
    date: str
    """The server's clock, as it wrote it."""

    @property
    def asks_to_retry(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status in _RETRY_STATUS or self.code in _RETRY_CODES

    @property
    def is_expired(self) -> bool:
        """Whether the credentials were good once."""
        return self.code in _EXPIRED_CODES

    @property
    def asks_for_less(self) -> bool:
        """Whether the server wants fewer requests."""
        return self.status in {429, 503} or self.code in {"SlowDown", "ThrottlingException"}

    @property
    def summary(self) -> str:
        """Status, code and text in one line."""
        return " ".join(part for part in (str(self.status), self.code, self.text) if part)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the refused request was about, for the message."""

    object: str
    """The object's URL, or the bucket's."""
    bucket: str
    region: str
    server: str
    """Scheme, host and port."""
    conditional: bool = False
    """A write with a condition."""
    pinned: bool = False
    """A read with ``If-Match``."""
    through: str = ""
    """The proxy on the way, as ``Proxy.through``."""


def parse_answer(status: int, header_region: str, date: str, body: bytes) -> Answer:
    """Read an error's body: Amazon's XML, or anything at all."""
    text = body.decode("utf-8", "replace")
    message = " ".join(_element(text, "Message").split())[:300]
    return Answer(status, _element(text, "Code"), message, header_region or _element(text, "Region"), date)


def translate(answer: Answer, asked: Asked) -> RemoteError:  # noqa: PLR0911  a table, one case an answer
    """The error to raise for an answer that is not worth another try."""
    code, status, name = answer.code, answer.status, asked.object
    if code == "NoSuchBucket":
        hint = f"create it, or check the URL; asked {asked.server}, region {asked.region}"
        return BucketNotFound(f"there is no bucket {asked.bucket}", object=asked.bucket, hint=hint)
    if code in _REGION_CODES or status in {301, 307} or (answer.region and answer.region != asked.region and status == 400):
        return _wrong_region(answer, asked)
    if status == 412 or code == "PreconditionFailed":
        if asked.pinned:
            return ObjectChanged(f"{name} has changed since it was looked up", object=name, hint="look it up again")
        return PreconditionFailed(f"{name} exists already or has changed since it was read", object=name, hint="read it again")
    if asked.conditional and (status == 501 or (status == 400 and code in _CONDITION_UNKNOWN)):
        return unsupported(asked)
    if status in {401, 403} or code in _FORBIDDEN_HINTS:
        return _forbidden(answer, asked)
    if status == 416:
        hint = "the object is not what was expected; publish it again"
        return Unreachable(f"{name} ends before the range that was asked for", object=name, hint=hint)
    if status == 404:
        # A condition on a missing object is one that failed (Amazon answers NoSuchKey to If-Match).
        kind = PreconditionFailed if asked.conditional else ObjectNotFound
        return kind(f"no object {name}", object=name)
    if answer.asks_to_retry:
        hint = "the store has a fault or is overloaded; see its own log"
        return Unreachable(f"{asked.server} can't answer for {name}: {answer.summary}", object=name, hint=hint)
    what = answer.summary if code else f"{answer.summary}{asked.through}"
    return RemoteError(f"{asked.server} refused {name}: {what}", object=name, hint=hint_for(what, "see the store's own log"))


def unsupported(asked: Asked) -> ConditionalWritesUnsupported:
    """The server takes no conditions on writes, or ignores them."""
    return ConditionalWritesUnsupported(
        f"{asked.server} does not write conditionally, so two writers could overwrite each other",
        object=asked.server,
        hint="use a server with If-None-Match and If-Match on PUT (Amazon S3, a current SeaweedFS or MinIO, versitygw)",
    )


def _wrong_region(answer: Answer, asked: Asked) -> WrongRegion:
    lives = f"lives in {answer.region}" if answer.region and answer.region != asked.region else "lives in another region"
    hint = f"set AWS_REGION={answer.region}" if answer.region else "set AWS_REGION to the bucket's region"
    return WrongRegion(f"the bucket {asked.bucket} {lives}, not in {asked.region}", object=asked.bucket, hint=hint)


def _forbidden(answer: Answer, asked: Asked) -> Forbidden:
    hint = _FORBIDDEN_HINTS.get(answer.code, "check the credentials and the bucket's policy")
    why = answer.code or f"{answer.status}{asked.through}"  # S3 gives a code; without one the proxy may have refused
    hint = hint_for(why, hint)
    if answer.code == "RequestTimeTooSkewed":
        why += f", the server's clock is {answer.date}"
    return Forbidden(f"{asked.server} refuses access to {asked.object}: {why}", object=asked.object, hint=hint)


def _element(text: str, name: str) -> str:
    # Error bodies are flat and come from whoever answers at that address: no parser is let loose on them.
    match = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return unescape(match[1]).strip() if match else ""
