"""A Unix socket that only this user can reach: in a folder of its own, where the path is short enough for the kernel."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from pathlib import Path

from glowplug.errors import LocalError

_MOST_PATH_BYTES = 107  # sun_path has 108, and ends with a zero
_BACKLOG = 64
_NAME = "weights"


class Listener:
    """A listening socket, and its place in the file system until it is closed.

    Args:
        path: where; a socket that nobody listens at any more is replaced. None: in a new folder under ``XDG_RUNTIME_DIR``, the
            temporary folder or ``/dev/shm``, whichever can be written.

    Raises:
        LocalError: nowhere can a socket be made, or somebody listens there.
    """

    def __init__(self, path: Path | None) -> None:
        self._folder: Path | None = None
        if path is None:
            self._folder = _new_folder()
            path = self._folder / _NAME
        else:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if _is_abandoned(path):
                path.unlink()
            self.socket.bind(str(path))
            os.chmod(path, 0o600)
            self.socket.listen(_BACKLOG)
            self.socket.setblocking(False)  # noqa: FBT003  the standard library's own
        except OSError as error:
            self.socket.close()
            self._remove_folder()
            raise LocalError(
                f"can't listen at {path}: {error.strerror or error}", object=str(path), hint="name a socket in a folder of your own"
            ) from error

    def close(self) -> None:
        """Stop listening and remove the socket, and the folder if it was made for it. May be called more than once."""
        if self.socket.fileno() < 0:
            return  # by now it may be another one's socket that lies there
        self.socket.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def _new_folder() -> Path:
    tried = []
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108  the folder made there is private
        if not base or len(os.fsencode(base)) + len("/glowplug-12345678/") + len(_NAME) > _MOST_PATH_BYTES:
            continue
        try:
            return Path(tempfile.mkdtemp(prefix="glowplug-", dir=base))
        except OSError as error:
            tried.append(f"{base}: {error.strerror or error}")
    raise LocalError(
        f"no folder for a socket ({'; '.join(tried)})", object="TMPDIR", hint="set TMPDIR to a folder that can be written"
    )


def _is_abandoned(path: Path) -> bool:
    """A socket is there, and nobody listens at it."""
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
