"""The Makefile's targets: set-up, checks, tests, demo, benchmarks, locks and cleaning, each in the order of its steps."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import environments, pythons
from scripts.control_plane import control_plane
from scripts.steps import SetupError, say
from scripts.uv import LOCK as UV_LOCK
from scripts.uv import uv
from testbed.kubernetes.built import GO_LOCK
from testbed.vllm_env import PEERS_LOCK, ROOT, VLLM_LOCK, dev_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LOCKS = {
    UV_LOCK: ["--group", "bootstrap"],
    environments.DEV_LOCK: ["pyproject.toml", "--all-extras", "--group", "dev", "--group", "testbed"],
    VLLM_LOCK: ["--group", "vllm"],
    PEERS_LOCK: ["--no-deps", "--group", "peers"],
    GO_LOCK: ["--group", "go"],
}
_LEFTOVERS = (".venv", *(f".venv-{version}" for version in pythons.TESTED), "dist")
# Tests wait more than they compute. By hand, one after the other is easier to read.
_SIDE_BY_SIDE = ("-n", str((os.cpu_count() or 1) + 1), "--dist", "loadgroup", "--no-loadscope-reorder")
_CHECKER_CACHES = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis")


def main(arguments: Sequence[str]) -> int:
    """Run one target.

    Returns:
        The exit code: 0 done, 1 failed, 130 interrupted, or that of the check, test or demo that failed.
    """
    parser = argparse.ArgumentParser(prog="python3 -m scripts", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(name: str, action: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        added = commands.add_parser(name)
        added.set_defaults(action=action)
        return added

    command("setup", _setup)
    command("testbed", _testbed)
    command("lint", lambda _: _lint(environments.checkout_env(pythons.current(), uv())))
    command("test", _test).add_argument("--pytest", default="", help="arguments for one pytest run in place of all checks")
    command("demo", _demo).add_argument("--store", default="file", choices=("file", "s3"))
    command("bench", _bench).add_argument("--arguments", default="", help="for benchmarks/__main__.py")
    command("lock", _lock).add_argument("--upgrade", action="store_true")
    command("clean", _clean).add_argument("--cache", action="store_true", help="the developer's cache folder as well")
    options = parser.parse_args(arguments)
    try:
        return int(options.action(options))
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run make again to go on", file=sys.stderr, flush=True)
        return 130


def _setup(_: argparse.Namespace) -> int:
    python = environments.checkout_env(pythons.current(), uv())
    say(f"ready: {(python.parent / 'glowplug').relative_to(ROOT)}")
    return 0


def _testbed(_: argparse.Namespace) -> int:
    _real_parts()
    return 0


def _real_parts() -> dict[str, str]:
    """Build all that the tests start besides what `.venv` holds; returns the variables by which they find it."""
    variables = _real_vllm()
    folder = control_plane(uv())
    say(f"ready: Kubernetes in {folder}")
    return {**variables, "GLOWPLUG_KUBERNETES": str(folder)}


def _real_vllm() -> dict[str, str]:
    """Build what runs a real vLLM; returns the variables by which tests and demo find it."""
    vllm_python = environments.vllm_env(uv())
    model = environments.tiny_model(vllm_python)
    say(f"ready: vLLM in {vllm_python.parent.parent}, tiny model in {model}")
    return {"GLOWPLUG_VLLM_PYTHON": str(vllm_python), "GLOWPLUG_TINY_MODEL": str(model)}


def _lint(python: Path) -> int:
    for tool, *arguments in (("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)):
        code = _show([python.parent / tool, *arguments])
        if code != 0:
            return code
    return 0


def _test(options: argparse.Namespace) -> int:
    # A background job may start with SIGINT ignored. The tests' processes would inherit that, and some are there to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main_python = pythons.current()
    python = environments.checkout_env(main_python, uv())
    if options.pytest:
        return _show([python, "-m", "pytest", *shlex.split(options.pytest)], _real_parts())
    code = _lint(python)
    if code != 0:
        return code
    other_version = next(version for version in reversed(pythons.TESTED) if version != main_python.version)
    other_python = pythons.find_or_install(other_version, uv().path)
    variables = _real_parts()
    if other_python is None:
        say(f"NOT TESTED on Python {other_version}: this machine has none, and uv could not install one")
        return _show([python, "-m", "pytest", *_SIDE_BY_SIDE], variables)
    variables["PATH"] = pythons.named_on_path(main_python, other_python)
    # The quick tests on the other Python come first, so that the last line of the run, which CI reads, counts all tests.
    other = environments.checkout_env(other_python, uv(), name=f".venv-{other_version}")
    code = _show([other, "-m", "pytest", "-m", "not vllm and not cluster", "-p", "no:cacheprovider", *_SIDE_BY_SIDE], variables)
    return code or _show([python, "-m", "pytest", *_SIDE_BY_SIDE], variables)


def _demo(options: argparse.Namespace) -> int:
    python = environments.checkout_env(pythons.current(), uv())
    return _show([python, "-m", "demo.demo", "--store", options.store], _real_vllm())


def _bench(options: argparse.Namespace) -> int:
    python = environments.checkout_env(pythons.current(), uv())
    variables = _real_vllm()
    variables["GLOWPLUG_PEERS_PYTHON"] = str(environments.peers_env(uv(), Path(variables["GLOWPLUG_VLLM_PYTHON"])))
    return _show([python, "-m", "benchmarks", *shlex.split(options.arguments)], variables)


def _lock(options: argparse.Namespace) -> int:
    for lock, sources in _LOCKS.items():
        uv().compile_lock(lock, sources, upgrade=options.upgrade)
    return 0


def _clean(options: argparse.Namespace) -> int:
    for name in (*_LEFTOVERS, *_CHECKER_CACHES):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    if options.cache:
        say(f"removing {dev_cache()}")
        shutil.rmtree(dev_cache(), ignore_errors=True)
    return 0


def _show(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> int:
    """Run a command whose output is for the person, from the root of the checkout; returns its exit code."""
    words = [str(part) for part in command]
    process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "GLOWPLUG_DEV_CACHE": str(dev_cache()), **(env or {})})
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue  # the terminal has told the command as well; it cleans up and ends in its own time
        return code if code >= 0 else 128 - code
