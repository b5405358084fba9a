"""What a rank of an engine uses to read the weights that another process streams into memory.

Runs inside the engine: the standard library only, Python 3.10, nothing of Glowplug but this file. No threads, no polling: a rank
that must wait sleeps in a read of the socket. The other side's half of the protocol is described in ``service``.

**Full mode**: the memory is mapped privately. What a model writes into a tensor it was given stays its own (copy on write), and
tensors stay valid after ``close``. A page is handed out only once all of it has arrived, so that such a write can't hide a later
tensor's first bytes. The only rank of a node may ask to take the memory over: then the pages of a tensor go back to the system as
soon as nothing refers to its view any more, so that a model that copies its weights never needs their memory twice. **Windowed
mode**: the mapping can't be written, and a tensor is valid until ``release`` or the next ``wait``.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import time
import weakref
from functools import partial
from typing import Any, NamedTuple

PROTOCOL = 1

_MAP_NORESERVE = 0x4000  # private pages are few; do not ask the kernel to set aside as many as the checkpoint has
_RETRY_S = 0.02
_RECEIVE_BYTES = 64 * 1024
_TELLS_A_TURN = 16  # how often a windowed reader says how far it is, without waiting for anything, while it reads one ring


class BufferLost(Exception):
    """The process that streams the weights can't be reached, or has ended before all of them were there."""


class BufferGone(Exception):
    """There is a process that streams the weights, and it has nothing for this rank any more: stream them yourself."""


class LoadFailed(Exception):
    """The weights could not be streamed.

    Attributes:
        hint: what to do about it; may be empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.hint = hint


class Item(NamedTuple):
    """A tensor in the buffer."""

    number: int
    name: str
    dtype: str
    """safetensors' name."""
    shape: tuple[int, ...]
    size_bytes: int
    position: int


def attach(
    socket_path: str | os.PathLike[str],
    *,
    rank: int,
    ranks: int,
    timeout_s: float,
    private: bool = True,
    takes_over: bool = False,
) -> Attachment:
    """Connect to the process that streams. Blocks until it answers; one that is just starting is waited for.

    Args:
        socket_path: where it listens.
        rank: number of this process among those of the node that load, from 0.
        ranks: how many these are.
        timeout_s: for all of it.
        private: full mode: map the memory so that tensors can be written to. False: shared and read-only, for who pins it.
        takes_over: full mode: give a tensor's pages back as soon as nothing refers to the view that ``wait`` gave (a slice of it
            does not count), if this is the only rank. Nobody can attach after it, and each tensor can be asked for once.

    Raises:
        BufferLost: nobody answers there in time.
        BufferGone: it no longer has what this rank needs.
        LoadFailed: it could not stream.
    """
    path = os.fspath(socket_path)
    connection = _connect(path, time.monotonic() + timeout_s)
    try:
        hello = {"protocol": PROTOCOL, "rank": rank, "ranks": ranks, "pid": os.getpid(), "takes_over": takes_over and private}
        connection.sendall(json.dumps({"hello": hello}).encode() + b"\n")
        received, descriptors, _, _ = socket.recv_fds(connection, _RECEIVE_BYTES, 2)
        while received and b"\n" not in received:
            received += connection.recv(_RECEIVE_BYTES)
    except OSError as error:
        connection.close()
        raise BufferLost(f"the process that streams the weights does not answer at {path}: {error}") from error
    line, _, rest = received.partition(b"\n")
    answer: dict[str, Any] = json.loads(line) if line else {}
    if "welcome" in answer and len(descriptors) == 2:
        connection.settimeout(None)
        return Attachment(connection, answer["welcome"], descriptors, rest, rank=rank, private=private)
    connection.close()
    for descriptor in descriptors:
        os.close(descriptor)
    if "gone" in answer:
        raise BufferGone(answer["gone"])
    if "error" in answer:
        raise LoadFailed(answer["error"], answer.get("hint", ""))
    raise BufferLost(f"the process that streams the weights hung up at {path}: is it another user's?")


def _connect(path: str, deadline_s: float) -> socket.socket:
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        left_s = deadline_s - time.monotonic()
        try:
            connection.settimeout(max(left_s, 0.001))
            connection.connect(path)
        except OSError as error:
            connection.close()
            if left_s <= _RETRY_S or not isinstance(error, (FileNotFoundError, ConnectionRefusedError, BlockingIOError)):
                raise BufferLost(f"no process streams the weights at {path}: {error}") from error
            time.sleep(_RETRY_S)
        else:
            connection.settimeout(max(deadline_s - time.monotonic(), 0.001))
            return connection


class Attachment:
    """A rank's view of the buffer. For one thread.

    Attributes:
        mode: ``full`` or ``windowed``.
        uri: of the checkpoint, without credentials.
        tensors: in the order in which they arrive. In windowed mode they must be asked for in this order; any may be left out.
    """

    def __init__(
        self,
        connection: socket.socket,
        welcome: dict[str, Any],
        descriptors: list[int],
        received: bytes,
        *,
        rank: int,
        private: bool,
    ) -> None:
        self.mode: str = welcome["mode"]
        self.uri: str = welcome["uri"]
        self._connection = connection
        self._received = received
        self._ring = int(welcome["ring_bytes"])
        self._length = int(welcome["length"])
        self._complete = int(welcome["complete"])
        self._pid = int(welcome["pid"])
        self._rank = rank
        data, layout = descriptors
        try:
            rows = json.loads(os.pread(layout, os.fstat(layout).st_size, 0))  # all ranks share one offset: never move it
            self._map = self._mapped(data, private=private and self.mode == "full")
            self._pages = mmap.mmap(data, self._ring) if welcome.get("takes_over") else None
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(data)
            os.close(layout)
        self._view = memoryview(self._map)
        self.tensors = tuple(
            Item(number, name, dtype, tuple(shape), size_bytes, position)
            for number, (name, dtype, shape, size_bytes, position) in enumerate(rows)
        )
        self._views: dict[int, weakref.ref[memoryview]] = {}
        self._unused: list[int] = []
        self._consumed = 0
        self._told = 0
        self._attached_s = time.monotonic()
        self._wanted_s = 0.0
        self._waited_s = 0.0
        self._taken = 0
        self._taken_bytes = 0

    def _mapped(self, data: int, *, private: bool) -> mmap.mmap:
        if private:
            flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
            return mmap.mmap(data, self._ring, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        return mmap.mmap(data, self._ring, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)

    @property
    def mapping(self) -> memoryview:
        """All of the buffer, whether it has arrived or not. For registering it with a device."""
        return self._view

    def wait(self, item: Item) -> memoryview:
        """The tensor's bytes, once they are there. In windowed mode everything before it is released.

        Raises:
            BufferLost: the process that streams has ended.
            LoadFailed: it could not go on.
            ValueError: windowed, and the tensor was released before.
        """
        if not self._taken:
            self._wanted_s = time.monotonic()
        end = item.position + item.size_bytes
        if self.mode == "full":
            end = min(-(-end // mmap.PAGESIZE) * mmap.PAGESIZE, self._length)
        else:
            if item.position < self._consumed:
                raise ValueError(f"{item.name} was released: in windowed mode tensors are read in the order of the buffer")
            self._consume(item.position)
        if self._complete < end and item.size_bytes:
            begun_s = time.monotonic()
            self._tell()
            while self._complete < end:
                self._hear()
            self._waited_s += time.monotonic() - begun_s
        self._taken += 1
        self._taken_bytes += item.size_bytes
        place = item.position % self._ring
        # Mapping the pages ahead (MADV_POPULATE_READ) was measured to cost more than the faults of torch's copying threads.
        view = self._view[place : place + item.size_bytes]
        if self._pages is not None:
            self._give_back()
            self._views[item.number] = weakref.ref(view, partial(self._let_go, item.number))
        return view

    def release(self, item: Item) -> None:
        """Windowed mode: this tensor and all before it may be overwritten. Full mode: nothing happens."""
        if self.mode == "windowed":
            following = item.number + 1
            self._consume(self.tensors[following].position if following < len(self.tensors) else self._length)

    def finish(self, *, skipped: int = 0) -> None:
        """All that this rank needs was taken. Views of full mode stay valid. Never raises, and may be called once.

        Args:
            skipped: tensors that were passed over.
        """
        if self.mode == "windowed":
            self._consumed = self._length
        self._give_back()
        done = {
            "rank": self._rank, "attached_s": self._attached_s, "wanted_s": self._wanted_s or time.monotonic(),
            "done_s": time.monotonic(), "waited_s": self._waited_s, "tensors": self._taken, "skipped": skipped,
            "bytes": self._taken_bytes,
        }  # fmt: skip
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps({"done": done}).encode() + b"\n")
        self.close()

    def close(self) -> None:
        """Hang up. Without ``finish`` before, this rank counts as dead. Views of full mode stay valid."""
        self._connection.close()
        self._view.release()
        self._views.clear()
        if self._pages is not None:
            self._pages.close()
            self._pages = None
        with contextlib.suppress(BufferError):  # the last view that is let go unmaps it
            self._map.close()

    def _let_go(self, number: int, _: object) -> None:
        """Nothing refers to a tensor's view any more. Called by the interpreter, from any thread."""
        self._unused.append(number)

    def _give_back(self) -> None:
        """Free the whole pages of tensors that are not referred to."""
        while self._unused:
            number = self._unused.pop()
            self._views.pop(number, None)
            item = self.tensors[number]
            start = -(-item.position // mmap.PAGESIZE) * mmap.PAGESIZE
            length = (item.position + item.size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
            if self._pages is not None and length > 0:
                self._pages.madvise(mmap.MADV_REMOVE, start, length)

    def _consume(self, position: int) -> None:
        self._consumed = max(self._consumed, position)
        if self._consumed - self._told >= max(1, self._ring // _TELLS_A_TURN):
            self._tell()

    def _tell(self) -> None:
        if self._consumed > self._told:
            self._told = self._consumed
            with contextlib.suppress(OSError):  # what is wrong is said by the next read
                self._connection.sendall(b'{"consumed":%d}\n' % self._told)

    def _hear(self) -> None:
        """Block until the other side says something."""
        try:
            chunk = self._connection.recv(_RECEIVE_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            raise BufferLost(
                f"the process that streams the weights (pid {self._pid}) has gone: {self._complete} of {self._length} bytes of"
                f" {self.uri} had arrived; see the pod's log above for its last words"
            )
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "error" in message:
                raise LoadFailed(message["error"], message.get("hint", ""))
            self._complete = max(self._complete, int(message.get("complete", 0)))
