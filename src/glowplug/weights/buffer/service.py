"""Hands the buffer to the ranks of this node: descriptors, layout and progress over a Unix socket.

A rank maps the memory itself; only words go through the socket, one JSON document a line. ::

    rank    {"hello": {"protocol", "rank", "ranks", "pid", "takes_over"}}
    here    {"welcome": {"mode", "uri", "ring_bytes", "length", "complete", "pid", "takes_over"}}  and two descriptors: data, layout
            {"gone": reason}      what it would need is overwritten, or given back: it must stream by itself
            {"error": message, "hint"}   now or later: the load failed
            {"complete": position}       all below has arrived; only the newest is sent
    rank    {"consumed": position}       windowed mode: all below may be overwritten
            {"done": RankStats}

Only processes of the same user are answered. One thread serves all ranks and never waits for one: a rank that does not read gets
the newest position later. A rank that closes without ``done`` has died, and no longer holds anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import threading
import time
from typing import TYPE_CHECKING, Any

from glowplug.threads import begin, none_left
from glowplug.weights.base import RankStats
from glowplug.weights.buffer.client import PROTOCOL
from glowplug.weights.buffer.host_buffer import document
from glowplug.weights.buffer.peer import Peer
from glowplug.weights.buffer.socket_path import Listener
from glowplug.weights.buffer.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from glowplug.errors import GlowplugError
    from glowplug.weights.base import Mode, Plan
    from glowplug.weights.buffer.host_buffer import HostBuffer

GRACE_S = 60.0
"""How long ranks that never came may hold up those that did."""
_NO_DESCRIPTORS_S = 0.02


class Service:
    """The socket and its thread. Listens from the begin, answers once started.

    Args:
        plan: what is loaded.
        buffer: where it lands; stays the caller's.
        uri: for the readers' messages.
        ranks: readers that are expected, until one of them tells how many there are.
        path: of the socket; None: in a new private folder.
        grace_s: see ``GRACE_S``.
        on_floor: called from the service's thread with the position from which on nothing may be overwritten.
        on_over: called once from there when all ranks are done, gone or given up.

    Raises:
        LocalError: no folder for the socket, or no memory for the layout.
    """

    def __init__(
        self,
        plan: Plan,
        buffer: HostBuffer,
        *,
        uri: str,
        ranks: int,
        path: Path | None = None,
        grace_s: float = GRACE_S,
        on_floor: Callable[[int], None] = lambda _: None,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan = plan
        self._buffer = buffer
        self._uri = uri
        self.mode: Mode = "full" if plan.is_full else "windowed"
        self._window = Window(plan, ranks)
        self._grace_s = grace_s
        self._on_floor = on_floor
        self._on_over = on_over
        self._peers: dict[int, Peer] = {}
        self._most_ranks = 0
        self._is_taken = False
        self._complete = 0
        self._failure: bytes = b""
        self._held_since: float | None = None
        self._held_s = 0.0
        self._told_floor = 0
        self._over = threading.Event()
        self._closing = False
        self.ranks: tuple[RankStats, ...] = ()
        self._has_served = False
        self._listener = Listener(path)
        self._layout = document("glowplug-layout", _layout(plan))
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="glowplug-weights-service", daemon=True)

    @property
    def path(self) -> Path:
        """Of the socket."""
        return self._listener.path

    @property
    def attached(self) -> int:
        """Ranks that read at the moment."""
        return sum(peer.is_reader for peer in list(self._peers.values()))

    def start(self) -> None:
        """Begin to answer.

        Raises:
            LocalError: its thread can't be started.
        """
        self._selector.register(self._listener.socket, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)
        if not begin(self._thread):
            raise none_left()

    def progress(self, complete: int) -> None:
        """All below this position has arrived and was verified. From any thread; returns at once."""
        self._complete = max(self._complete, complete)
        self._poke()

    def fail(self, error: GlowplugError) -> None:
        """The load ends here: tell every rank, and those that come later. From any thread."""
        self._failure = _line({"error": error.message, "hint": error.hint})
        self._poke()

    def wait_over(self, timeout_s: float | None = None) -> bool:
        """Wait until all ranks are done, gone or given up. False: not in time."""
        return self._over.wait(timeout_s)

    def close(self) -> None:
        """Hang up and remove the socket. Ranks that wait for bytes learn that they will not come."""
        if self._closing:
            return
        self._closing = True
        self._poke()
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()
        self._selector.close()
        os.close(self._wake)
        os.close(self._layout)

    def _poke(self) -> None:
        with contextlib.suppress(OSError):  # closed meanwhile, or poked 2 ** 64 times
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            while not self._closing:
                for key, events in self._selector.select(self._patience_s()):
                    key.data(events)
                self._settle()
        finally:  # whatever ended it: nobody is left waiting for a word that does not come
            self._listener.close()
            for peer in list(self._peers.values()):
                self._drop(peer)

    def _woken(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _accept(self, _: int) -> None:
        try:
            connection, _address = self._listener.socket.accept()
        except OSError:  # it hung up again, or there are no descriptors left: the others are served all the same
            time.sleep(_NO_DESCRIPTORS_S)
            return
        peer = Peer(connection)
        if peer.user() != os.geteuid():
            connection.close()
            return
        connection.setblocking(False)  # noqa: FBT003  the standard library's own
        self._peers[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ, lambda events: self._serve(peer, events))

    def _serve(self, peer: Peer, events: int) -> None:
        """Read what the peer says, and write what is still owed to it."""
        try:
            if events & selectors.EVENT_READ:
                for line in peer.read():
                    self._hear(peer, json.loads(line))
            if events & selectors.EVENT_WRITE:
                self._flush(peer)
        except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError):
            self._drop(peer)  # gone, or it talks nonsense

    def _hear(self, peer: Peer, message: dict[str, Any]) -> None:
        if not isinstance(message, dict):
            raise TypeError
        if "hello" in message:
            self._greet(peer, message["hello"])
        elif "consumed" in message and peer.is_reader:
            self._window.consume(peer, int(message["consumed"]))
        elif "done" in message and peer.is_reader:
            self.ranks = (*self.ranks, _rank_stats(message["done"]))
            peer.is_reader = False
            self._window.detach(peer)

    def _greet(self, peer: Peer, hello: dict[str, int]) -> None:
        rank, ranks = int(hello["rank"]), int(hello["ranks"])
        if hello["protocol"] != PROTOCOL:
            reason = f"the loader in the engine speaks protocol {hello['protocol']}, the process that streams speaks {PROTOCOL}"
            self._send(peer, _line({"gone": reason}))
        elif self._failure:
            self._send(peer, self._failure)
            peer.is_told = True
        elif self._is_taken:
            self._send(peer, _line({"gone": "another process has taken the buffer over, as the only rank"}))
        elif self._over.is_set():
            self._send(peer, _line({"gone": "all ranks had their weights, and the buffer was freed"}))
        elif not self._window.attach(rank, peer):
            self._send(peer, _line({"gone": "the window has moved past the first tensors"}))
        else:
            self._most_ranks = max(self._most_ranks, ranks)
            self._window.expect(self._most_ranks)
            self._is_taken = bool(hello.get("takes_over")) and self.mode == "full" and self._is_alone()
            peer.is_reader = self._has_served = True
            peer.sent = self._complete
            data = self._buffer.owner() if self._is_taken else self._buffer.reader()
            try:
                self._send(peer, _line({"welcome": {
                    "mode": self.mode, "uri": self._uri, "ring_bytes": self._plan.ring_bytes, "length": self._plan.length,
                    "complete": peer.sent, "pid": os.getpid(), "takes_over": self._is_taken,
                }}), [data, self._layout])  # fmt: skip
            finally:
                os.close(data)

    def _is_alone(self) -> bool:
        """Whether no other rank has been here, or is expected."""
        return self._most_ranks == 1 and not self._has_served and not self._window.absent

    def _send(self, peer: Peer, line: bytes, descriptors: list[int] | None = None) -> None:
        peer.send(line, descriptors)
        self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        peer.flush()
        key = self._selector.get_key(peer.socket)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.outbox else 0)
        if key.events != events:
            self._selector.modify(peer.socket, events, key.data)

    def _drop(self, peer: Peer) -> None:
        descriptor = peer.socket.fileno()
        if self._peers.pop(descriptor, None) is None:
            return
        self._selector.unregister(peer.socket)
        peer.socket.close()
        peer.is_reader = False
        self._window.detach(peer)

    def _settle(self) -> None:
        """Whatever has happened: move the window, tell what is new, and see whether it is over."""
        self._window.completed(self._complete)
        self._give_up_absent()
        if self._window.floor > self._told_floor:
            self._told_floor = self._window.floor
            self._on_floor(self._told_floor)
        for peer in list(self._peers.values()):
            with contextlib.suppress(OSError):
                self._tell(peer)
        if not self._over.is_set() and self._has_served and not self._window.absent and not self.attached:
            self._over.set()
            self._on_over()

    def _tell(self, peer: Peer) -> None:
        if not peer.is_reader or peer.outbox:
            return
        if self._complete > peer.sent:
            peer.sent = self._complete
            self._send(peer, _line({"complete": peer.sent}))
        if self._failure and not peer.is_told:
            peer.is_told = True
            self._send(peer, self._failure)

    def _give_up_absent(self) -> None:
        now = time.monotonic()
        if self._held_since is not None:
            self._held_s += now - self._held_since
        waits = self._window.is_held_by_absent() or (self._has_served and not self.attached and bool(self._window.absent))
        self._held_since = now if waits else None
        if waits and self._held_s >= self._grace_s:
            self._window.give_up()
            self._held_since = None

    def _patience_s(self) -> float | None:
        """How long nothing needs to happen."""
        return None if self._held_since is None else max(0.01, self._grace_s - self._held_s)


def _line(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _layout(plan: Plan) -> bytes:
    """Tensors as ``client`` reads them."""
    rows = [
        (placed.tensor.name, placed.tensor.dtype, placed.tensor.shape, placed.tensor.size_bytes, placed.position)
        for placed in plan.tensors
    ]
    return json.dumps(rows, separators=(",", ":")).encode()


def _rank_stats(told: dict[str, float]) -> RankStats:
    rank, tensors, skipped, size_bytes = (int(told[name]) for name in ("rank", "tensors", "skipped", "bytes"))
    attached_s, wanted_s, done_s, waited_s = (float(told[name]) for name in ("attached_s", "wanted_s", "done_s", "waited_s"))
    return RankStats(rank, attached_s, wanted_s, done_s, waited_s, tensors, skipped, size_bytes)
