"""The node's own copies in front of the start's store, where ``--node-store`` names a folder for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from glowplug.errors import LocalError

if TYPE_CHECKING:
    from glowplug.cache.trust import Trust
    from glowplug.run.start import Start
    from glowplug.store.base import Store

_PATIENCE_S = 5.0  # for a small object; and no more than half of what a restore may take


def nearby(store: Store, start: Start, trust: Trust) -> Store:
    """The store as this start sees it. A folder that can't be used is said, and the store is used alone."""
    options = start.options
    if options.node_store is None:
        return store
    from glowplug.cache.node_folder import NodeFolder  # noqa: PLC0415  only who has one pays for loading it
    from glowplug.cache.node_store import NodeStore  # noqa: PLC0415  the same

    try:
        folder = NodeFolder(Path(os.path.abspath(options.node_store)), max_bytes=options.node_store_bytes)
    except LocalError as error:
        start.console.warn(error.line())
        return store
    patience_s = min(_PATIENCE_S, options.restore_deadline_s / 2)
    return NodeStore(store, folder, trust, patience_s=patience_s, say=start.console.warn)
