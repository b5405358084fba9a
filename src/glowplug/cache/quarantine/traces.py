"""Traces of generations in a live folder: which ones have been put there, who had signed them, and how to be rid of them.

A live folder outlives its engine, and a later restore keeps the files that it does not bring itself. So a bad generation is gone
from a node only when the folders that ever held it have been emptied, and with it what a key has signed that is trusted no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from typing import TYPE_CHECKING

from glowplug.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from glowplug.cache.trust import Trust

_NOTES = ".glowplug"
_SOURCES = "sources.json"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_SOURCES = 256


def sources(live: Path) -> dict[str, str]:
    """Digests of the generations that have been put into a live folder since it was empty, in order, and who signed each."""
    try:
        tree = json.loads((live / _NOTES / _SOURCES).read_bytes())
        return {digest: str(signer) for digest, signer in tree.items() if _DIGEST.fullmatch(digest)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def untrusted(live: Path, trust: Trust) -> frozenset[str]:
    """Digests of those among them that nobody has signed who is trusted now."""
    return frozenset(digest for digest, signer in sources(live).items() if not trust.knows(signer))


def remember(live: Path, generation: str, signer: str) -> None:
    """Note that a generation, and whose it is, is about to be put into a live folder. Raises OSError."""
    known = sources(live)
    if known.get(generation) == signer:
        return
    path = live / _NOTES / _SOURCES
    half = path.with_name(f"staging-{uuid.uuid4().hex}")
    half.write_text(json.dumps(dict([*known.items(), (generation, signer)][-_MAX_SOURCES:])))
    half.replace(path)


def cleanse(live: Path, bad: Collection[str]) -> bool:
    """Empty a live folder that has held a bad generation. False if it has not. Raises LocalError."""
    if bad and not set(bad).isdisjoint(sources(live)):
        empty(live)
        return True
    return False


def empty(live: Path) -> None:
    """Make a live folder as good as new, under the same path, and with the caller's lock still on it.

    What lies there is renamed aside before it is deleted, so that a process which still writes there does not write into what the
    next engine uses.

    Raises:
        LocalError: it can't be done.
    """
    aside = live / _NOTES / f"staging-{uuid.uuid4().hex}"
    try:
        aside.mkdir()
        for name in os.listdir(live):
            if name != _NOTES:
                os.rename(live / name, aside / name)
        for name in ("installed.json", _SOURCES):
            with contextlib.suppress(FileNotFoundError):
                (live / _NOTES / name).unlink()
    except OSError as error:
        raise LocalError(
            f"cannot empty the cache folder {live}: {error.strerror or error}",
            object=str(live),
            hint="delete it by hand, or name another with --cache-dir",
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
