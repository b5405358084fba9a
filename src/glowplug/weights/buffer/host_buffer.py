"""The memory that a load fills: one anonymous file (memfd) that other processes can map.

A memfd needs no ``/dev/shm``, which has 64 MB in a default pod, and no file system at all; it goes when the last process that holds
or maps it lets go, also when that process is killed. Its pages count against the memory limit of the pod whose process touched them
first. Never swapped in a pod without swap, and never larger than it was made.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os

from glowplug.errors import LocalError

# Linux's numbers, from <linux/fcntl.h>; the standard library has names for them only from Python 3.13 on.
_F_ADD_SEALS = 1033
_F_SEAL_SHRINK_AND_GROW = 0x0002 | 0x0004
_F_SEAL_WRITE = 0x0008
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"


class HostBuffer:
    """A memfd, mapped for writing.

    Fresh pages cost 0.6-1.2 s of processor time a GB when they are touched first. Where the node's administrator lets programs ask
    for huge pages (``advise`` in ``/sys/kernel/mm/transparent_hugepage/shmem_enabled``) we do, and it is a tenth of that. Elsewhere
    ``write`` costs half: the kernel neither faults page by page nor clears what it is about to fill. Received into memory that is
    used again and then written, a GB took 0.56-0.64 s in all on two processors, straight into fresh pages 1.0-1.2 s. Touching
    pages ahead of the network (``MADV_POPULATE_WRITE``) was measured to save 0.1 s, and no time on the clock; so it is not done,
    and memory is taken no sooner than it is needed.

    Args:
        name: shown in ``/proc/PID/maps``.
        size_bytes: a multiple of the page size; memory is taken page by page as it is written.

    Raises:
        LocalError: the kernel gives no such file, or no address space for it.
    """

    def __init__(self, name: str, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._file = -1
        try:
            self._file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._file, size_bytes)
            fcntl.fcntl(self._file, _F_ADD_SEALS, _F_SEAL_SHRINK_AND_GROW)
            self._map: mmap.mmap | None = mmap.mmap(self._file, size_bytes)
        except (OSError, ValueError, OverflowError) as error:
            if self._file >= 0:
                os.close(self._file)
            raise LocalError(
                f"can't make a buffer of {size_bytes} bytes for the weights: {error}",
                object="host memory",
                hint="give a smaller --host-memory, or raise the limit on address space (ulimit -v)",
            ) from error
        with contextlib.suppress(OSError):  # a kernel without huge pages for shared memory
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._map)

    def reader(self) -> int:
        """A new descriptor of the same memory that can't be mapped for shared writing; the caller closes it."""
        return _read_only(self._file)

    def owner(self) -> int:
        """A new descriptor with which pages can be given back as well; the caller closes it."""
        return os.dup(self._file)

    @property
    def has_huge_pages(self) -> bool:
        """Whether the kernel gives this memory in huge pages, which are touched as cheaply as they are written."""
        with contextlib.suppress(OSError), open(_HUGE_PAGES, encoding="ascii") as file:
            said = file.read()
            return "[never]" not in said and "[deny]" not in said
        return False

    def write(self, offset: int, data: memoryview) -> None:
        """Put bytes there; see the class for when that is cheaper than through ``view``. Safe for several threads.

        Raises:
            LocalError: there is no memory left, or the buffer is closed.
        """
        try:
            while data:
                count = os.pwrite(self._file, data, offset)
                data, offset = data[count:], offset + count
        except OSError as error:
            hint = "give a smaller --host-memory, or the pod more memory"
            raise LocalError(f"can't write to the weights' buffer: {error.strerror}", object="host memory", hint=hint) from error

    def close(self) -> None:
        """Let go of the memory. Others that map it keep it; slices of ``view`` that are still alive keep it mapped here."""
        if self._map is None:
            return
        self.view.release()
        with contextlib.suppress(BufferError):
            self._map.close()
        self._map = None
        os.close(self._file)
        self._file = -1


def document(name: str, content: bytes) -> int:
    """A read-only descriptor of a memfd that holds these bytes and can't be changed any more; the caller closes it.

    Raises:
        LocalError: no memory for it.
    """
    try:
        file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
            fcntl.fcntl(file, _F_ADD_SEALS, _F_SEAL_SHRINK_AND_GROW | _F_SEAL_WRITE)
            return _read_only(file)
        finally:
            os.close(file)
    except OSError as error:
        raise LocalError(f"can't keep {len(content)} bytes in memory: {error}", object="host memory") from error


def _read_only(file: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no /proc: the reader gets our own rights, and maps the memory as it should all the same
        return os.dup(file)
