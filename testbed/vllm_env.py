"""Where the real vLLM of the tests and the demo lies.

vLLM for the CPU is 5.8 GB and needs an environment of its own, so one copy serves every checkout: it lies in the developer's cache
folder under the hash of its lock file, as does the tiny model. ``make test`` and ``make demo`` build both; this module only says
where they are, never builds anything, and imports the standard library alone: the set-up runs it before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VLLM_LOCK = ROOT / "requirements" / "vllm.lock"
PEERS_LOCK = ROOT / "requirements" / "peers.lock"
MODEL_SCRIPT = ROOT / "testbed" / "tiny_model.py"
COMPLETE = ".complete"
"""Name of the file that is written last into an environment. One without it is a build that was interrupted."""


def dev_cache() -> Path:
    """The folder outside the checkout where the set-up keeps what it installs.

    ``GLOWPLUG_DEV_CACHE`` names it; otherwise it is ``glowplug-dev`` in the user's cache folder.
    """
    if named := os.environ.get("GLOWPLUG_DEV_CACHE"):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "glowplug-dev"


def short_digest(*files: Path) -> str:
    """Twelve hex digits that change with the bytes of any of the files."""
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:12]


def env_folder() -> Path:
    """The environment that holds vLLM; it may not exist yet."""
    return dev_cache() / f"vllm-{short_digest(VLLM_LOCK)}"


def peers_folder() -> Path:
    """The environment that holds the loaders which the benchmarks measure beside ours; it may not exist yet."""
    return dev_cache() / f"peers-{short_digest(PEERS_LOCK, VLLM_LOCK)}"


def model_folder() -> Path:
    """The tiny model; it may not exist yet, and is whole if it does.

    The lock counts, because it pins the libraries that write the model.
    """
    return dev_cache() / f"model-{short_digest(MODEL_SCRIPT, VLLM_LOCK)}"


def vllm_python() -> Path | None:
    """The interpreter of an environment with vLLM; None where there is none.

    ``GLOWPLUG_VLLM_PYTHON`` names one that was made elsewhere.
    """
    if named := os.environ.get("GLOWPLUG_VLLM_PYTHON"):
        return Path(named)
    folder = env_folder()
    return folder / "bin" / "python" if (folder / COMPLETE).exists() else None


def peers_python() -> Path | None:
    """The interpreter that has the other loaders; None where there is none. ``GLOWPLUG_PEERS_PYTHON`` names another."""
    if named := os.environ.get("GLOWPLUG_PEERS_PYTHON"):
        return Path(named)
    folder = peers_folder()
    return folder / "bin" / "python" if (folder / COMPLETE).exists() else None


def tiny_model() -> Path | None:
    """The folder of the tiny model; None where it has not been made. ``GLOWPLUG_TINY_MODEL`` names another one."""
    if named := os.environ.get("GLOWPLUG_TINY_MODEL"):
        return Path(named)
    folder = model_folder()
    return folder if folder.exists() else None
