"""A checkpoint in a bucket of Amazon S3, or of any server that speaks its protocol.

Built on the store's client (endpoint, credentials, signature, connections), but not a store: keys may hold whatever a model's files
are called, ranges go straight into the caller's memory, and a single attempt can be watched and ended from another thread.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from glowplug.errors import Forbidden, IntegrityError, ObjectNotFound, RemoteError, Unreachable, UsageError
from glowplug.store import s3_errors, s3_http, s3_listing
from glowplug.store.keys import RESERVED
from glowplug.store.s3_client import Refused, S3Client
from glowplug.store.s3_endpoint import Location
from glowplug.weights.base import Entry, Retry
from glowplug.weights.fetch.settings import s3_environment
from glowplug.weights.sources import range_answer
from glowplug.weights.sources.attempts import Attempts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.store.http_exchange import Exchange
    from glowplug.weights.base import Meter, WeightFile

_RANGES = frozenset({200, 206})


class S3Source:
    """Objects below a prefix, or one object. Satisfies ``weights.base.Source``.

    Args:
        url: ``s3://bucket/prefix``, or ``s3://bucket/prefix/name.safetensors``. Nothing in it is quoted.
        env: the environment: credentials, region, endpoint, and the Run:ai streamer's names of these.

    Raises:
        UsageError: the URL names no bucket, or can't be one.
    """

    def __init__(self, url: str, *, env: Mapping[str, str]) -> None:
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme.lower() != "s3" or "@" in bucket:
            hint = "write s3://bucket/prefix, and give credentials in the environment"
            raise UsageError("this is not the URL of a place in a bucket", object="URI", hint=hint)
        self._bucket = Location.parse(f"s3://{bucket}").bucket
        key = key.strip("/")
        self._is_file = key.endswith(".safetensors")
        self._prefix = key.rpartition("/")[0] if self._is_file else key
        self._prefix += "/" if self._prefix else ""
        self._single = key.rpartition("/")[2]
        self._uri = f"s3://{bucket}/{key}"
        self._client = S3Client(bucket, s3_environment(env))
        self._attempts = Attempts()

    @property
    def uri(self) -> str:
        """See ``Source.uri``."""
        return self._uri

    @property
    def is_local(self) -> bool:
        """No."""
        return False

    @property
    def is_single(self) -> bool:
        """See ``Source.is_single``."""
        return self._is_file

    def entries(self) -> list[Entry]:
        """See ``Source.entries``. One request for each 1000 objects; markers of folders are left out."""
        if self._is_file:
            return [self._head(self._single)]
        entries = []
        with self._refusals(self._uri):
            for info in s3_listing.objects(self._client, self._prefix):
                name = info.key.removeprefix(self._prefix)
                if name and not name.endswith("/") and self._can_be_file(name):
                    entries.append(Entry(name, info.size_bytes, info.etag))
        if not entries:
            hint = "check the bucket and the prefix"
            raise ObjectNotFound(f"there is nothing under {self._uri.rstrip('/')}/", object=self._uri, hint=hint)
        return sorted(entries)

    def beside(self, name: str) -> Entry | None:
        """See ``Source.beside``."""
        try:
            return self._head(name)
        except (ObjectNotFound, Forbidden):
            return None

    def read_small(self, entry: Entry, start: int, size_bytes: int) -> bytes:
        """See ``Source.read_small``."""
        if not size_bytes:
            return b""
        content = bytearray(size_bytes)
        name = self.name_of(entry)

        def consume(reply: s3_http.Reply) -> None:
            try:
                range_answer.check(reply, entry, start, size_bytes, name=name)
            except Retry as retry:
                raise s3_http.Broken(retry.reason) from retry
            if reply.fill(memoryview(content)) != size_bytes:
                raise s3_http.Broken("the answer was cut short")
            reply.read()  # nothing is left; this tells the connection so

        with self._refusals(name, start, size_bytes):
            headers = range_answer.range_headers(entry, start, size_bytes)
            self._client.call("GET", self._key(entry), consume, headers=headers, expect=_RANGES)
        return bytes(content)

    def read_into(self, file: Entry | WeightFile, start: int, view: memoryview, meter: Meter) -> None:
        """See ``Source.read_into``. After a failure the same thread's next request goes over a new connection."""
        target = view.cast("B")
        if not target.nbytes:
            return
        with self._attempts.one(lambda error: self._client.unreachable(str(error), 1)) as fresh:
            renewals = self._client.renewals
            refused = self._attempt(file, start, target, meter, fresh=fresh)
            if refused is not None and refused.is_expired and self._client.renew(renewals):
                refused = self._attempt(file, start, target, meter, fresh=fresh)
            if refused is not None and refused.asks_to_retry:
                raise Retry(f"the server answers {refused.summary}{self._client.through}", slow_down=refused.asks_for_less)
            if refused is not None:
                raise self._error(refused, self.name_of(file), start, target.nbytes)

    def name_of(self, file: Entry | WeightFile) -> str:
        """``s3://bucket/key``."""
        return f"s3://{self._bucket}/{self._key(file)}"

    def close(self) -> None:
        """See ``Source.close``."""
        self._client.close()

    def _attempt(
        self, file: Entry | WeightFile, start: int, target: memoryview, meter: Meter, *, fresh: bool
    ) -> s3_errors.Answer | None:
        """One request: the refusal, or None when the view is full."""
        headers = range_answer.range_headers(file, start, target.nbytes)
        with self._client.exchange(
            self._key(file), headers, fresh=fresh, connected=meter.connected, advance=meter.advance
        ) as answer:
            if answer.status not in _RANGES:
                return _refusal(answer)
            range_answer.check(answer, file, start, target.nbytes, name=self.name_of(file))
            answer.fill(target, meter.most_bytes)
            return None

    def _head(self, name: str) -> Entry:
        """Size and ETag, from a request for one byte: the answer to a HEAD could not say why it fails."""
        key = self._prefix + name

        def consume(reply: s3_http.Reply) -> Entry:
            if reply.status == 200:
                raise s3_http.Broken("it ignores ranges and sends whole objects")
            reply.read(1)
            size = range_answer.total_bytes(reply) if reply.status == 206 else 0
            if size is None:
                raise s3_listing.no_s3(self._client)
            return Entry(name, size, reply.header("ETag"))

        with self._refusals(f"s3://{self._bucket}/{key}"):
            return self._client.call("GET", key, consume, headers={"Range": "bytes=0-0"}, expect=_RANGES | {416})

    def _key(self, file: Entry | WeightFile) -> str:
        return self._prefix + file.name

    def _can_be_file(self, name: str) -> bool:
        """Whether a key below the prefix can be a path below a folder. Weights that can't are an error, not passed over."""
        parts = name.split("/")
        if RESERVED in parts:
            return False  # what a store keeps for itself
        if not any(part in {"", ".", ".."} for part in parts) and "\0" not in name:
            return True
        if name.endswith(".safetensors"):
            whole = f"s3://{self._bucket}/{self._prefix}{name}"
            hint = "remove it, or copy it to a key without empty parts, . and .."
            raise IntegrityError(f"{whole} has a key that can't be a file's path", object=whole, hint=hint)
        return False

    @contextmanager
    def _refusals(self, name: str, start: int = 0, size_bytes: int = 0) -> Iterator[None]:
        try:
            yield
        except Refused as refused:
            raise self._error(refused.answer, name, start, size_bytes) from refused
        except Unreachable as error:
            what = f"{name}, bytes {start}-{start + size_bytes - 1}" if size_bytes else name
            raise Unreachable(f"{what}: {error.message}", object=name, hint=error.hint) from error

    def _error(self, refused: s3_errors.Answer, name: str, start: int, size_bytes: int) -> RemoteError:
        if refused.status == 412:
            return range_answer.changed(name, start, size_bytes)
        endpoint = self._client.endpoint
        error = s3_errors.translate(
            refused, s3_errors.Asked(name, self._bucket, endpoint.region, endpoint.origin, through=self._client.through)
        )
        if isinstance(error, ObjectNotFound):
            return ObjectNotFound(error.message, object=name, hint="check the URL; or it was removed while it was loaded")
        if refused.status == 416:
            what = f"{name} has no bytes {start}-{start + size_bytes - 1}: it is shorter than its listing said"
            return Unreachable(what, object=name, hint="publish the checkpoint again")
        return error


def _refusal(answer: Exchange) -> s3_errors.Answer:
    region, date = answer.header("x-amz-bucket-region"), answer.header("date")
    return s3_errors.parse_answer(answer.status, region, date, answer.refusal())
