"""What a push did, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PushedFile:
    """One file, and what became of it.

    Attributes:
        name: relative to the checkpoint.
        size_bytes: its length.
        sha256: hex digest; empty in a dry run for what would be sent.
        state: it was sent, it was there already, or (in a dry run) it would be sent.
        kept_bytes: of a file that was sent: what an earlier attempt had sent.
    """

    name: str
    size_bytes: int
    sha256: str
    state: Literal["sent", "there", "to send"]
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did.

    Attributes:
        files: weights first.
        sealed: a seal was written.
        marked: a complete marker was written.
        complete: the marker lies there, and did so before: nothing was changed.
        left: weight files at the target that are no part of the checkpoint.
        seconds: all in all.
        notes: what the user should know beside, a line each.
    """

    files: tuple[PushedFile, ...]
    sealed: bool
    marked: bool
    complete: bool
    left: tuple[str, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of the checkpoint."""
        return sum(file.size_bytes for file in self.files)

    @property
    def sent_bytes(self) -> int:
        """That were sent now."""
        return sum(file.size_bytes - file.kept_bytes for file in self.files if file.state == "sent")
