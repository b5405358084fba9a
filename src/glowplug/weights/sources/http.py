"""A checkpoint on a web server: one file, or a folder whose files are found through the index, since web servers list nothing.

Redirects are followed, because hubs answer with one to a content network; where it led is kept for the next range, and asked for
anew when that address has expired. Such addresses are signed: a query is never part of a message. Credentials come from the URL
(``https://user:password@host/``), or for the Hugging Face hub from ``HF_TOKEN``, and are sent to that host only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import unquote

from glowplug.errors import Forbidden, ObjectNotFound, RemoteError, Unreachable
from glowplug.store.proxy import hint_for
from glowplug.weights.base import Entry, Retry
from glowplug.weights.checkpoint.weight_map import read_weight_map
from glowplug.weights.fetch.crew import each
from glowplug.weights.sources import range_answer
from glowplug.weights.sources.attempts import Attempts
from glowplug.weights.sources.http_address import Address, Servers
from glowplug.weights.sources.http_folder import INDEX, SINGLE, SMALL_FILES, names_in
from glowplug.weights.sources.patience import with_patience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from glowplug.store import s3_http
    from glowplug.store.http_exchange import Exchange
    from glowplug.weights.base import Meter, WeightFile

_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 5
_ABSENT = {401, 403, 404, 410}
"""Some servers call forbidden what is not there. From an address that a redirect led to: it has expired."""
_RETRY = {408, 425, 429, 500, 502, 503, 504}
_ASKS_FOR_LESS = {429, 503}
_PROBES = 8
_T = TypeVar("_T")


class _Found(NamedTuple):
    """What a request for one byte tells of a file."""

    entry: Entry
    status: int
    lacks: str
    """What its server does that streaming can't do with; empty if nothing."""


class HttpSource:
    """Files of a web server. Satisfies ``weights.base.Source``.

    Args:
        url: of a file that ends in ``.safetensors``, or of the folder that holds a checkpoint. A query is sent with every request.
        env: the environment: proxy, certificates (``AWS_CA_BUNDLE``, ``SSL_CERT_FILE``), ``HF_TOKEN``.

    Raises:
        UsageError: not such a URL, or certificates that can't be read.
    """

    def __init__(self, url: str, *, env: Mapping[str, str]) -> None:
        address = Address.parse(url, env)
        self._is_file = address.path.endswith(".safetensors")
        self._folder = address.parent if self._is_file else address
        self._single = unquote(address.path.rpartition("/")[2])
        self._uri = address.shown
        self._servers = Servers(env)
        self._led_to: dict[str, Address] = {}
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
        """See ``Source.entries``. Of a folder: what its index names or ``model.safetensors``, and small files with known names.

        Raises:
            RemoteError: the server answers no ranges or sends no ETag.
            BadCheckpoint: the index is none.
        """
        if self._is_file:
            return [self._weights(self._single)]
        index = self._probe(INDEX)
        names = [SINGLE]
        if index is not None:
            names = names_in(read_weight_map(self, index), index=self.name_of(index))
        weights = each(self._weights, names, threads=_PROBES, name="glowplug-probe")
        small = each(self._probe, SMALL_FILES, threads=_PROBES, name="glowplug-probe")
        return sorted({*weights, *(entry for entry in small if entry is not None), *([index] if index else [])})

    def beside(self, name: str) -> Entry | None:
        """See ``Source.beside``."""
        return self._probe(name)

    def read_small(self, entry: Entry, start: int, size_bytes: int) -> bytes:
        """See ``Source.read_small``."""
        content = bytearray(size_bytes)
        view = memoryview(content)
        with_patience(lambda meter: self.read_into(entry, start, view, meter), name=self.name_of(entry))
        return bytes(content)

    def read_into(self, file: Entry | WeightFile, start: int, view: memoryview, meter: Meter) -> None:
        """See ``Source.read_into``. After a failure the same thread's next request goes over a new connection."""
        target = view.cast("B")
        if not target.nbytes:
            return
        name = self.name_of(file)

        def take(answer: Exchange) -> None:
            if answer.status == 412:
                raise range_answer.changed(name, start, target.nbytes)
            if answer.status not in {200, 206}:
                raise self._refused(answer.status, name)
            range_answer.check(answer, file, start, target.nbytes, name=name)
            answer.fill(target, meter.most_bytes)

        self._get(file.name, range_answer.range_headers(file, start, target.nbytes), meter, take)

    def name_of(self, file: Entry | WeightFile) -> str:
        """The URL, without credentials and query."""
        return self._folder.child(file.name).shown

    def close(self) -> None:
        """See ``Source.close``."""
        self._servers.close()

    def _probe(self, name: str) -> Entry | None:
        """A file that need not be there."""
        found = self._look(name)
        return found.entry if found.status in {200, 206, 416} and found.entry.size_bytes >= 0 else None

    def _weights(self, name: str) -> Entry:
        """A file that must be there, with ranges and an ETag."""
        found = self._look(name)
        shown = self.name_of(found.entry)
        if found.status in _ABSENT and name == SINGLE and not self._is_file:
            hint = "name a folder with one of them, or a file that ends in .safetensors"
            kind = Forbidden if found.status in {401, 403} else ObjectNotFound
            raise kind(f"{self._uri} has neither {INDEX} nor {SINGLE}: {found.status}", object=self._uri, hint=hint)
        if found.status not in {200, 206, 416}:
            raise self._refused(found.status, shown)
        if found.lacks:
            hint = "serve it with a server that sends ranges, their lengths and ETags (nginx and S3 do), or download it first"
            raise RemoteError(f"{shown} can't be streamed: its server {found.lacks}", object=shown, hint=hint)
        return found.entry

    def _look(self, name: str) -> _Found:
        """Ask for one byte, as not every server answers HEAD as it answers GET, and a signed address allows only one of them."""

        def take(answer: Exchange) -> _Found:
            if answer.status in _RETRY:
                raise self._refused(answer.status, shown)
            size = -1
            if answer.status == 200 and answer.length is not None:
                size = answer.length
            else:
                total = range_answer.total_bytes(answer) if answer.status in {206, 416} else None
                size = -1 if total is None else total
                answer.refusal()  # the byte, or the words: the connection is kept
            return _Found(Entry(name, size, answer.header("etag")), answer.status, _lacks(answer, size))

        shown = self._folder.child(name).shown
        return with_patience(lambda meter: self._get(name, {"Range": "bytes=0-0"}, meter, take), name=shown)

    def _get(self, name: str, headers: Mapping[str, str], meter: Meter, take: Callable[[Exchange], _T]) -> _T:
        """One attempt at a GET, wherever it leads; ``take`` reads the answer."""
        origin = self._folder.child(name)
        address = self._led_to.get(name, origin)
        may_return = address != origin
        with self._attempts.one(lambda error: _unreachable(address, error)) as fresh:
            for _ in range(_MOST_REDIRECTS + 2):
                with self._servers.exchange(address, headers, meter, fresh=fresh) as answer:
                    if answer.status in _REDIRECTS and answer.header("location"):
                        answer.refusal()
                        address = address.follow(answer.header("location"))
                        continue
                    if answer.status in _ABSENT and may_return:
                        answer.refusal()
                        address, may_return = origin, False
                        continue
                    result = take(answer)
                self._led_to[name] = address
                return result
            raise RemoteError(f"{origin.shown} redirects in circles", object=origin.shown, hint="check the URL")

    def _refused(self, status: int, name: str) -> Exception:
        """What an answer other than success means. It may be the proxy's."""
        through = self._servers.through(self._folder.server)
        if status in _RETRY:
            return Retry(f"the server answers {status}{through}", slow_down=status in _ASKS_FOR_LESS)
        if status in {404, 410}:
            return ObjectNotFound(f"there is no {name}", object=name, hint="check the URL")
        if status in {401, 403}:
            hint = "put user:password@ before the host, or set HF_TOKEN for the Hugging Face hub; a signed URL may have expired"
            return Forbidden(f"the server refuses access to {name}: {status}{through}", object=name, hint=hint_for(through, hint))
        if status == 416:
            return Unreachable(f"{name} is shorter than it was when it was looked up", object=name, hint="publish it again")
        hint = hint_for(through, "see the server's own log")
        return RemoteError(f"the server refuses {name}: {status}{through}", object=name, hint=hint)


def _lacks(answer: Exchange, size_bytes: int) -> str:
    if answer.status == 200 or size_bytes < 0:
        return "ignores ranges"
    if answer.status == 206 and range_answer.is_chunked(answer):
        return range_answer.CHUNKED
    return "" if answer.header("etag") else "sends no ETag, so that a change under the load would not be noticed"


def _unreachable(address: Address, error: s3_http.ConnectFailed) -> Unreachable:
    hint = "set AWS_CA_BUNDLE or SSL_CERT_FILE to the file of the certificate authority that signed it"
    return Unreachable(f"{address.origin} can't be used: {error}", object=address.origin, hint=hint if error.is_final else "")
