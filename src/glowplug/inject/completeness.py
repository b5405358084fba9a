"""Imports everything that a payload holds, and tells which files came from elsewhere.

Run as a script by the payload's own Python, with an empty environment, before the payload gets its name: what is
missing is found here and not in a pod. Prints the foreign files as JSON; fails with the first import that does.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys

# What Glowplug imports inside functions, so that importing its modules does not reach it.
LAZILY_IMPORTED = (
    *("bz2", "ctypes", "decimal", "hashlib", "lzma", "ssl", "urllib.request", "zlib"),
    *(
        "botocore.session",
        "botocore.auth",
        "rich.console",
        "rich.progress",
        "securesystemslib.dsse",
        "typer.main",
        "yaml",
        "zstandard",
    ),
    "cryptography.hazmat.primitives.asymmetric.ec",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
)

# These run inside an engine and import its torch, which is not here.
IN_ENGINES = ("glowplug.engines.vllm.loader.", "glowplug.weights.tensors")


def import_all() -> None:
    """Every module of Glowplug, and what those import only when they need it. Raises the first ImportError."""
    import glowplug  # noqa: PLC0415  the path is set only now

    for module in pkgutil.walk_packages(glowplug.__path__, "glowplug."):
        if not module.name.endswith("__main__") and not module.name.startswith(IN_ENGINES):
            importlib.import_module(module.name)
    for name in LAZILY_IMPORTED:
        importlib.import_module(name)


def foreign_files(home: str) -> list[str]:
    """Loaded modules and mapped shared libraries that do not lie below ``home``."""
    with open("/proc/self/maps") as file:
        used = {line.split(None, 5)[5].strip() for line in file if ".so" in line}
    used |= {path for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    return sorted(path for path in used if not os.path.realpath(path).startswith(home + os.sep))


if __name__ == "__main__":
    payload = os.path.realpath(sys.argv[1])
    sys.path.append(os.path.join(payload, "site"))
    import_all()
    print(json.dumps(foreign_files(payload)))
