"""The one tool that installs everything: a pinned uv, itself installed by pip with its hash checked.

Its cache lies in the developer's cache folder beside the environments, so that a second checkout downloads nothing. It never
touches an environment that it was not told to make, and never fetches a Python to make one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import pythons
from scripts.steps import Command, SetupError, only_one, run_step, say
from testbed.vllm_env import COMPLETE, ROOT, dev_cache, short_digest

if TYPE_CHECKING:
    from scripts.pythons import Python

LOCK = ROOT / "requirements" / "uv.lock"
NETWORK_ADVICE = (
    "Does this machine reach the Python package index? pip's and uv's own settings (proxy, mirror, certificates) apply."
    " Then run make again: it goes on where it stopped."
)


@dataclass(frozen=True, slots=True)
class Uv:
    """The installed tool."""

    path: Path

    def make_env(self, name: str, python: Python, folder: Path) -> Path:
        """Make an empty environment, in place of what lies there; returns its interpreter."""
        command: Command = [self.path, "venv", "--clear", "--no-project", "--python", python.path, folder]
        run_step(f"{name}: environment on Python {python.version}", command, advice=NETWORK_ADVICE, env=self.variables(folder))
        return folder / "bin" / "python"

    def install_locked(self, name: str, interpreter: Path, lock: Path) -> None:
        """Install exactly what a lock file lists, each file's hash checked.

        Bytecode is compiled once, here: where it may not be written later, each start would compile every module again.
        """
        flags = ["--no-deps", "--require-hashes", "--compile-bytecode"]
        command: Command = [self.path, "pip", "install", "--python", interpreter, *flags, "-r", lock]
        run_step(name, command, advice=NETWORK_ADVICE, env=self.variables(interpreter.parent))

    def install_editable(self, name: str, interpreter: Path, project: Path) -> None:
        """Install a checkout itself; its build backend must be installed already."""
        flags = ["--no-deps", "--no-build-isolation"]
        command: Command = [self.path, "pip", "install", "--python", interpreter, *flags, "--editable", project]
        run_step(name, command, advice="Is pyproject.toml in order?", env=self.variables(interpreter.parent))

    def compile_lock(self, lock: Path, sources: list[str], *, upgrade: bool) -> None:
        """Resolve requirements for every platform and write them with their hashes; no URL and no path goes into the file."""
        flags = ["--universal", "--generate-hashes", f"--python-version={pythons.TESTED[0]}"]
        quiet = ["--no-header", "--no-annotate", "--no-emit-index-url", "--quiet"]
        upgrading = ["--upgrade"] if upgrade else []
        command: Command = [self.path, "pip", "compile", *flags, *quiet, *upgrading, "--output-file", lock, *sources]
        advice = "Do the version ranges in pyproject.toml contradict each other?"
        run_step(f"requirements/{lock.name}", command, advice=advice, env=self.variables(lock))

    def variables(self, target: Path) -> dict[str, str]:
        """What uv is told by environment variables when it writes to ``target``."""
        cache = Path(os.environ.get("UV_CACHE_DIR") or dev_cache() / "uv-cache")
        cache.mkdir(parents=True, exist_ok=True)
        variables = {
            "UV_CACHE_DIR": str(cache),
            "UV_HTTP_TIMEOUT": "180",
            "UV_PYTHON_DOWNLOADS": "never",
        }
        existing = next(folder for folder in (target, *target.parents) if folder.exists())
        if cache.stat().st_dev != existing.stat().st_dev:
            variables["UV_LINK_MODE"] = "copy"  # hard links cannot cross file systems, and uv would complain at each package
        return variables


def uv() -> Uv:
    """The pinned uv; installed at the first use.

    Raises:
        SetupError: it cannot be installed.
    """
    folder = dev_cache() / f"uv-{short_digest(LOCK)}"
    tool = folder / "bin" / "uv"
    with only_one("uv"):
        if not ((folder / COMPLETE).exists() and tool.exists()):
            _install(pythons.current(), folder)
            if not runs(tool, "--version"):
                raise SetupError(f"{tool} does not run on this machine. Remove {folder} and run make again")
            (folder / COMPLETE).touch()
    return Uv(tool)


def runs(*command: str | Path) -> bool:
    """Whether a command can be started and exits 0."""
    try:
        return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def _install(python: Python, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    wanted: Command = ["install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", LOCK]
    if runs(python.path, "-c", "import ensurepip, venv"):
        run_step("uv: environment", [python.path, "-m", "venv", folder], advice=f"Remove {folder} and run make again.")
        run_step("uv: from the package index", [folder / "bin" / "python", "-m", "pip", *wanted], advice=NETWORK_ADVICE)
    elif runs(python.path, "-c", "import pip"):
        # Debian's bare python3 has no ensurepip, so it makes no environment with pip in it; pip itself may be there.
        run_step("uv: from the package index", [python.path, "-m", "pip", *wanted, "--target", folder], advice=NETWORK_ADVICE)
    elif known := shutil.which("uv"):
        say(f"{python.path} has neither ensurepip nor pip; using {known}")
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "uv").symlink_to(known)
    else:
        raise SetupError(
            f"{python.path} has neither ensurepip nor pip, so nothing can be installed with it."
            " Install them (Debian: python3-venv), or name another Python: make setup PYTHON=/path/to/python3.11"
        )
