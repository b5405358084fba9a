"""A place in a bucket, asked a few small questions: can it be reached, by whom, in which region, how soon does it answer.

Only listings are asked for, of the prefix that a reader may list by ``policies/``; nothing is written. What is known is kept after
each step, so that a server that falls silent in the middle leaves all that came before.
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal

from glowplug.doctor.node.facts import Place
from glowplug.doctor.node.failures import failure_of
from glowplug.doctor.node.identity import STS, find_who, named
from glowplug.errors import GlowplugError, ObjectNotFound
from glowplug.store import s3_errors, s3_listing
from glowplug.store.s3_client import Refused, S3Client
from glowplug.weights.base import Entry
from glowplug.weights.fetch.settings import s3_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.store import s3_http

_QUESTIONS = 4
_MOST_KEYS = 1000
_HALF_A_SECOND = 0.5  # a Date header has whole seconds: on average it is half a one old


class Bucket:
    """One visit.

    Args:
        role: what the place is for.
        url: ``s3://bucket/prefix``; of a model also of one ``.safetensors`` file.
        env: the environment.

    Attributes:
        place: what is known so far.
        entries: objects of the first page, named as a source at the same URL names them; of a store, below ``v1/``.
    """

    def __init__(self, role: Literal["store", "model"], url: str, *, env: Mapping[str, str]) -> None:
        self.place = Place(role, url)
        self.entries: list[Entry] = []
        self._bucket, _, key = url[len("s3://") :].partition("/")
        key = key.strip("/")
        self._folder = f"{key}/" if key else ""
        if role == "store":
            self._folder += "v1/"  # what a reader may list
        self._prefix = self._folder
        if role == "model" and key.endswith(".safetensors"):
            self._folder, self._prefix = key.rpartition("/")[0] + "/" * ("/" in key), key
        self._env = dict(env) if role == "store" else s3_environment(env)

    def visit(self) -> None:
        """Ask everything. Blocks as long as the store does; raises nothing that the store or its settings cause."""
        client = S3Client(self._bucket, self._env)
        try:
            self._find(client)
            self._question(client)
        except GlowplugError as error:
            self.place = replace(self.place, failure=failure_of(error))
        finally:
            client.close()

    def _find(self, client: S3Client) -> None:
        """The server, the way to it, and as whom."""
        endpoint = client.endpoint
        place = replace(self.place, server=endpoint.origin, is_aws=endpoint.is_aws, region=endpoint.region)
        self.place = replace(place, proxy=client.through.removeprefix(", "))
        if not self.place.proxy:
            self.place = replace(self.place, addresses=_addresses(endpoint.host, endpoint.port))
        from glowplug.store.s3_session import Session  # noqa: PLC0415  0.4 s, which the client has paid already

        self._session = Session(self._env)
        self.place = replace(self.place, who=find_who(self._session))

    def _question(self, client: S3Client) -> None:
        """A few small requests. Whoever was refused is named as well."""
        try:
            for _ in range(_QUESTIONS):
                self._ask(client)
            self._list(client)
        except Refused as refused:
            answer, endpoint = refused.answer, client.endpoint
            self.place = replace(self.place, bucket_region=answer.region, clock_ahead_s=_ahead(time.time(), answer.date))
            asked = s3_errors.Asked(self.place.url, self._bucket, endpoint.region, endpoint.origin, through=client.through)
            error = s3_errors.translate(answer, asked)
            if isinstance(error, ObjectNotFound):  # a listing finds nothing, or has no bucket; whoever says so is no S3 server
                error = s3_listing.no_s3(client)
            self.place = replace(self.place, failure=failure_of(error))
        if self.place.who is not None and (self.place.is_aws or self._env.get(STS)):
            self.place = replace(self.place, who=named(self.place.who, self._session, self._env))

    def _ask(self, client: S3Client) -> None:
        """The smallest listing, timed."""
        begun_s = time.monotonic()
        query = {"list-type": "2", "max-keys": "1", "prefix": self._prefix}
        date, region = client.call("GET", "", _headers, query=query)
        took_s = time.monotonic() - begun_s
        known = self.place.latency_s
        self.place = replace(
            self.place,
            latency_s=took_s if known is None else min(known, took_s),
            clock_ahead_s=_ahead(time.time() - took_s / 2, date),
            bucket_region=region,
        )

    def _list(self, client: S3Client) -> None:
        found = islice(s3_listing.objects(client, self._prefix), _MOST_KEYS)
        listed = [(info.key.removeprefix(self._folder), info) for info in found]
        self.entries = [Entry(name, info.size_bytes, info.etag) for name, info in listed if name and not name.endswith("/")]
        self.place = replace(self.place, objects=len(self.entries))


def _headers(reply: s3_http.Reply) -> tuple[str, str]:
    reply.read()
    return reply.header("Date"), reply.header("x-amz-bucket-region")


def _addresses(host: str, port: int) -> tuple[str, ...]:
    """None where the name can't be resolved: the request says so in better words."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def _ahead(now_s: float, date: str) -> float | None:
    try:
        return now_s - parsedate_to_datetime(date).timestamp() - _HALF_A_SECOND
    except (ValueError, TypeError):
        return None
