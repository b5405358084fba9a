"""Requests to one bucket: signed, sent, tried again when that makes sense.

An attempt is repeated on a new connection, at most three times with a back-off and jitter, after a connection failure, a time-out,
a broken body, or an answer that asks for it (5xx, 429, SlowDown). Where the server calls credentials expired and there are newer
ones, these are used. Everything else is the server's word and is raised at once. A time-out while connecting is repeated only
once, as a host that does not answer costs 5 s each time.

This module knows no operation of a store: what to send is the caller's business, and so is what a refusal means to it.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from glowplug import __version__
from glowplug.errors import IncompatibleError, Unreachable, UsageError
from glowplug.store import http_exchange, s3_endpoint, s3_errors, s3_http
from glowplug.store.proxy import hint_for, proxy_for

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

    from glowplug.store.s3_session import Session

_T = TypeVar("_T")

RETRIES = 3
_BACKOFF_S = 0.2
"""Upper bound of the first pause; it doubles each time. The pause is drawn evenly below the bound ("full jitter")."""
_ERROR_BODY_BYTES = 64 * 1024
_AGENT = {"User-Agent": f"glowplug/{__version__}", "Accept-Encoding": "identity"}
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


class Refused(Exception):
    """The server's answer, when it was none of those expected.

    Attributes:
        answer: what it said.
        in_doubt: an earlier attempt at the same request may have been carried out, so the answer may be about ourselves.
    """

    def __init__(self, answer: s3_errors.Answer, *, in_doubt: bool) -> None:
        super().__init__(answer.summary)
        self.answer = answer
        self.in_doubt = in_doubt


class S3Client:
    """One bucket. Safe to use from several threads; the first request loads botocore and finds the endpoint.

    Args:
        bucket: its name.
        env: the environment.
        sleep: pauses between attempts; tests replace it.
    """

    def __init__(self, bucket: str, env: Mapping[str, str], *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.bucket = bucket
        self._env = dict(env)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._parts: tuple[Session, s3_endpoint.Endpoint, s3_http.Connections, s3_http.Connections] | None = None

    @cached_property
    def endpoint(self) -> s3_endpoint.Endpoint:
        """Where requests go."""
        return self._resolved()[1]

    def call(
        self,
        method: str,
        key: str,
        consume: Callable[[s3_http.Reply], _T],
        *,
        query: dict[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[memoryview] = b"",
        body_sha256: str | None = None,
        expect: frozenset[int] = frozenset({200}),
    ) -> _T:
        """Send a request until it is answered, and return what ``consume`` makes of the reply.

        Args:
            method: HTTP method.
            key: whole key in the bucket; empty for the bucket itself.
            consume: reads the body; called once an attempt, so it must start over each time.
            query: parameters, unquoted.
            headers: further headers, all signed.
            body: to send; an iterable is iterated once an attempt and needs a ``Content-Length`` header and a digest.
            body_sha256: hex digest of the body, computed here if it is bytes; not used over TLS.
            expect: statuses that ``consume`` understands; any other is a refusal.

        Raises:
            Refused: another status.
            Unreachable: no answer after all attempts.
            Forbidden: no credentials.
            UsageError: the configuration can't be used.
            IncompatibleError: botocore is not installed.
        """
        session, endpoint, connections, _ = self._resolved()
        target = endpoint.target(key, query)
        digest = _digest(body, body_sha256, https=endpoint.https)
        named = {"Host": endpoint.authority, "User-Agent": f"glowplug/{__version__}", **(headers or {})}
        in_doubt = renewed = False
        failure = ""
        for attempt in range(1, RETRIES + 2):
            if attempt > 1:
                self._sleep(random.uniform(0, _BACKOFF_S * 2 ** (attempt - 2)))
            renewals = session.renewals
            signed = session.sign(method, endpoint.origin + target, named, region=endpoint.region, payload_sha256=digest)
            try:
                outcome = _attempt(connections, s3_http.Request(method, target, signed, body), consume, expect)
            except s3_http.ConnectFailed as error:
                failure = str(error)
                if error.is_final or (error.timed_out and attempt > 1):
                    break
            except s3_http.Broken as error:
                failure = str(error)
                in_doubt = True
            else:
                if not isinstance(outcome, s3_errors.Answer):
                    return outcome[0]
                if outcome.is_expired and not renewed and session.renew(renewals):
                    renewed = True
                elif not outcome.asks_to_retry:
                    raise Refused(outcome, in_doubt=in_doubt)
                failure = f"it answers {outcome.summary}{connections.through}"
                in_doubt = in_doubt or outcome.status >= 500
        raise _unreachable(endpoint, failure, attempt)

    def exchange(
        self,
        key: str,
        headers: Mapping[str, str],
        *,
        fresh: bool,
        connected: Callable[[Callable[[], None]], None],
        advance: Callable[[int], None],
    ) -> http_exchange.Exchange:
        """One attempt at a GET, to be entered; see ``Exchange``. Signed for this moment.

        Args:
            key: whole key in the bucket.
            headers: further headers; they are not signed.
            fresh: as for ``Exchange``. Its connections are not those of ``call``.
            connected: the same.
            advance: the same.

        Raises:
            Forbidden: no credentials.
            UsageError: the configuration can't be used.
        """
        session, endpoint, _, connections = self._resolved()
        target = endpoint.target(key)
        signed = session.sign_read(endpoint.origin + target, endpoint.authority, region=endpoint.region)
        return http_exchange.Exchange(
            connections, target, {**_AGENT, **signed, **headers}, fresh=fresh, connected=connected, advance=advance
        )

    @property
    def through(self) -> str:
        """The proxy on the way to it, for messages; empty if there is none."""
        return self._resolved()[2].through

    @property
    def renewals(self) -> int:
        """How often credentials were thrown away; see ``renew``."""
        return self._resolved()[0].renewals

    def renew(self, renewals: int) -> bool:
        """Look for credentials anew, since the server calls these expired. Whether there are others; see ``Session.renew``."""
        return self._resolved()[0].renew(renewals)

    def unreachable(self, failure: str, attempts: int) -> Unreachable:
        """The error for a server that can't be used."""
        return _unreachable(self.endpoint, failure, attempts)

    def close(self) -> None:
        """Close idle connections. The client can still be used."""
        if self._parts is not None:
            for connections in self._parts[2:]:
                connections.close()

    def _resolved(self) -> tuple[Session, s3_endpoint.Endpoint, s3_http.Connections, s3_http.Connections]:
        with self._lock:
            if self._parts is None:
                try:
                    from glowplug.store.s3_session import FALLBACK_CA_BUNDLE, Session  # noqa: PLC0415  0.4 s, by the first request
                except ModuleNotFoundError as error:
                    if (error.name or "").partition(".")[0] != "botocore":
                        raise
                    hint = "pip install botocore, beside glowplug"
                    raise IncompatibleError("S3 needs botocore, which is not installed", object="botocore", hint=hint) from None

                session = Session(self._env)
                endpoint = s3_endpoint.resolve(
                    self.bucket,
                    endpoint_url=session.endpoint_url,
                    region=session.region,
                    addressing=session.addressing,
                    dualstack=session.dualstack,
                    fips=session.fips,
                )
                tls = _tls(session.ca_bundle, FALLBACK_CA_BUNDLE) if endpoint.https else None
                proxy = proxy_for(endpoint, self._env)
                calls, exchanges = (s3_http.Connections(endpoint, tls=tls, proxy=proxy) for _ in range(2))
                self._parts = session, endpoint, calls, exchanges
            return self._parts


def _attempt(
    connections: s3_http.Connections,
    request: s3_http.Request,
    consume: Callable[[s3_http.Reply], _T],
    expect: frozenset[int],
) -> s3_errors.Answer | tuple[_T]:
    """One exchange: the refusal, or the result."""
    connection, used = connections.take()
    reusable = False
    try:
        try:
            reply = connections.send(connection, request)
        except s3_http.Broken:
            if not used or request.method not in {"GET", "HEAD"}:
                raise
            # A kept connection that the server had given up: the normal end of one, no reason to wait.
            connection.close()
            connection = connections.fresh()
            reply = connections.send(connection, request)
        try:
            if reply.status in expect:
                result = (consume(reply),)
                reusable = reply.reusable
                return result
            body = reply.read(_ERROR_BODY_BYTES)
        except s3_http.BODY_ERRORS as error:
            raise connections.broken(error) from error
        reusable = reply.reusable
        return s3_errors.parse_answer(reply.status, reply.header("x-amz-bucket-region"), reply.header("Date"), body)
    finally:
        connections.give(connection, reusable=reusable)


def _digest(body: bytes | Iterable[memoryview], known: str | None, *, https: bool) -> str:
    if not body:
        return _EMPTY_SHA256
    if https:
        return "UNSIGNED-PAYLOAD"  # TLS protects the body; hashing it again would cost as much as sending it
    if known:
        return known
    if isinstance(body, bytes):
        return hashlib.sha256(body).hexdigest()
    raise TypeError("a streamed body needs its digest")


def _unreachable(endpoint: s3_endpoint.Endpoint, failure: str, attempts: int) -> Unreachable:
    where = f"{endpoint.host}:{endpoint.port}"
    hint = "check AWS_ENDPOINT_URL and AWS_REGION, the network policy and the route to it"
    if "certificate" in failure:
        hint = "set AWS_CA_BUNDLE to the file of the certificate authority that signed it"
    elif failure.startswith("it answers"):
        hint = "the store has a fault or is overloaded; see its own log"
    hint = hint_for(failure, hint)
    tries = f" after {attempts} attempts" if attempts > 1 else ""
    return Unreachable(f"the store at {where} can't be used{tries}: {failure}", object=where, hint=hint)


def _tls(ca_bundle: str | None, fallback_bundle: str) -> ssl.SSLContext:
    try:
        return s3_http.tls_context(ca_bundle, fallback_bundle=fallback_bundle)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "name a file of PEM certificates"
        raise UsageError(f"AWS_CA_BUNDLE: {ca_bundle} can't be used: {reason}", object="AWS_CA_BUNDLE", hint=hint) from error
