"""Ports for servers that must be told theirs before they start."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
_FIRST = 10_000
_LOCKS = Path(tempfile.gettempdir(), f"glowplug-ports-{os.getuid()}")
_held: list[IO[bytes]] = []


def free_ports(count: int) -> list[int]:
    """That many ports of this machine's loopback address that nobody listens on, all different.

    They are this process's until it ends: no other that asks here gets them, and no client's connection, since they lie below the
    ports that the kernel gives away by itself.

    Raises:
        OSError: there are not as many.
    """
    found: list[int] = []
    for port in range(_FIRST, _first_ephemeral()):
        if len(found) == count:
            return found
        if _reserve(port):
            found.append(port)
    raise OSError(f"no {count} ports between {_FIRST} and {_first_ephemeral()} are free")


def _reserve(port: int) -> bool:
    _LOCKS.mkdir(exist_ok=True)
    lock = (_LOCKS / str(port)).open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind((HOST, port))
    except OSError:
        lock.close()
        return False
    _held.append(lock)
    return True


def _first_ephemeral() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
