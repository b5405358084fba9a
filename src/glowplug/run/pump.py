"""Pass-through of the engine's output: byte for byte to where it was going, and line by line to a reader.

The bytes come first: they are written before anything looks at them, and whatever the reader does cannot hold them up or change
them. If the far end is gone, reading ends too, and the engine meets the same broken pipe that it would have met without us. Where
it can't be written for another reason (a full disk), the engine goes on, and what can't be written is lost until it can again.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import termios
import threading
from typing import TYPE_CHECKING

from glowplug.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK_BYTES = 64 * 1024
_POLL_S = 0.1
_LINE_BYTES = 16 * 1024  # a longer line is cut for the reader, never for the user
_LAST_BYTES = 16 * 1024


class Pump:
    """A pipe whose far end the engine writes to.

    Args:
        target: descriptor to which every byte goes.
        on_line: given each line, without its end, and decoded with replacement; gets no more once it raises.

    Attributes:
        error: why output could not be passed on for the first time; None as long as all could.
    """

    def __init__(self, target: int, on_line: Callable[[str], None]) -> None:
        self._target = target
        self._on_line: Callable[[str], None] | None = on_line
        self._source, self.inlet = os.pipe()  # neither is inherited: posix_spawn's dup2 makes the child's own
        self._partial = b""
        self._passed = 0
        self._last = b""
        self._writing = False
        self.error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="glowplug-pump", daemon=True)

    def start(self) -> bool:
        """Begin. False where the machine gives no thread; the pump is then closed."""
        begun = begin(self._thread)
        if not begun:
            os.close(self._source)
            os.close(self.inlet)
        return begun

    def release(self) -> None:
        """Let go of the inlet, once the engine holds it: reading ends when nobody has it any more."""
        os.close(self.inlet)

    @property
    def last_lines(self) -> list[str]:
        """What went through last, up to 16 KiB of it, also after reading lines has stopped. The first line may be cut."""
        return self._last.decode("utf-8", "replace").splitlines()

    def stop_reading_lines(self) -> None:
        """Only pass through from now on."""
        self._on_line = None

    def join(self, timeout_s: float | None) -> None:
        """Wait until the engine and all who inherited its output have closed it, but no longer than this."""
        self._thread.join(timeout_s)

    def drain(self, gave_up: Callable[[], bool]) -> None:
        """Wait until all is passed on that was written before this call, for as long as a slow reader takes.

        Children that the engine left may hold the pipe open, and go on writing: for them nobody waits.

        Args:
            gave_up: asked a few times a second; true ends the waiting.
        """
        owed = self._passed + _CHUNK_BYTES + self._waiting_bytes()  # at most: the chunk at hand may be a part of a chunk, or none
        while self._thread.is_alive() and self._passed < owed and (self._writing or self._waiting_bytes()) and not gave_up():
            self._thread.join(_POLL_S)

    def _waiting_bytes(self) -> int:
        """Bytes in the pipe that have not been read yet."""
        count = array.array("i", [0])
        try:
            fcntl.ioctl(self._source, termios.FIONREAD, count)
        except OSError:
            return 0  # closed: reading has ended
        return count[0]

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(self._source, _CHUNK_BYTES):
                self._writing = True
                try:
                    write_all(self._target, chunk)
                except OSError as error:
                    self.error = self.error or error
                    if isinstance(error, (BrokenPipeError, ConnectionResetError)):
                        raise
                self._passed += len(chunk)
                self._last = (self._last + chunk)[-_LAST_BYTES:]
                self._writing = False
                if self._on_line is not None:
                    self._read_lines(chunk)
        os.close(self._source)

    def _read_lines(self, chunk: bytes) -> None:
        try:
            self._split(chunk)
        except Exception:  # noqa: BLE001  fail-open boundary: the bytes go on, whatever the reader stumbled over
            self._on_line = None

    def _split(self, chunk: bytes) -> None:
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        self._partial = self._partial[-_LINE_BYTES:]
        for line in lines:
            on_line = self._on_line
            if on_line is not None:
                on_line(line[:_LINE_BYTES].decode("utf-8", "replace").rstrip("\r"))


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, also where somebody who shares the descriptor has made it non-blocking. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def same_target(left: int, right: int) -> bool:
    """Whether two descriptors lead to the same file, pipe or terminal: then one pipe keeps the order of what is written to both."""
    try:
        return os.path.samestat(os.fstat(left), os.fstat(right))
    except OSError:
        return False
