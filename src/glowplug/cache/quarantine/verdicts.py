"""Verdicts: one object for each generation that is bad for everyone.

That the object exists is the verdict. It is not signed, because it can only withhold: whoever may write it could delete the
generation as well. Its content tells people why, and is never trusted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.cache import layout

if TYPE_CHECKING:
    from glowplug.cache.deadline import Deadline
    from glowplug.store.base import Store

_NAME = re.compile(r"([0-9a-f]{64})\.json")


def condemned(store: Store, envelope: str, *, deadline: Deadline | None = None) -> frozenset[str]:
    """Digests of an envelope's bad generations. One request for each thousand of them.

    Raises:
        RemoteError: the store did not answer.
        DeadlineExceeded: the time is up.
    """
    prefix = layout.quarantine_key(envelope, "").removesuffix(".json")
    found = set()
    for info in store.list(prefix):
        if deadline is not None:
            deadline.check()
        if match := _NAME.fullmatch(info.key[len(prefix) :]):
            found.add(match[1])
    return frozenset(found)
