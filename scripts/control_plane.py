"""Builds the tests' Kubernetes control plane from source, with a Go tool chain from the Python package index.

A fresh machine needs no Go and no container for it. What Go fetches and compiles stays in the developer's cache folder, so that a
second build, after a change of version, compiles only what differs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import pythons
from scripts.steps import Command, SetupError, only_one, run_step
from testbed.kubernetes.built import (
    COMPILER_FLAGS,
    DEFINITIONS,
    GO_LOCK,
    PROGRAMS,
    SOURCES,
    built_folder,
    go_folder,
    kubernetes_version,
)
from testbed.vllm_env import COMPLETE, dev_cache

if TYPE_CHECKING:
    from scripts.uv import Uv

_NEEDED_GIB = 4
_ADVICE = (
    "Does this machine reach the Go module proxy? Go's own settings (GOPROXY, GOSUMDB, HTTPS_PROXY) apply."
    " Then run make again: it goes on where it stopped."
)


def control_plane(uv: Uv) -> Path:
    """Build the programs and fetch the definitions; some minutes at the first time.

    Returns:
        The folder that has them, or what ``GLOWPLUG_KUBERNETES`` names.

    Raises:
        SetupError: no room, no network, or a module's content is not the one that was pinned.
    """
    if named := os.environ.get("GLOWPLUG_KUBERNETES"):
        return Path(named)
    folder = built_folder()
    with only_one(folder.name):
        if not (folder / COMPLETE).exists():
            free_gib = shutil.disk_usage(dev_cache()).free / 2**30
            if free_gib < _NEEDED_GIB:
                room = f"building Kubernetes needs {_NEEDED_GIB} GiB in {dev_cache()}, which has {free_gib:.1f}"
                raise SetupError(f"{room}. Free some, or name a larger place in GLOWPLUG_DEV_CACHE")
            go = _tool_chain(uv)
            shutil.rmtree(folder, ignore_errors=True)
            _fetch_definitions(go, folder / "definitions")
            _build_programs(go, folder / "bin")
            (folder / COMPLETE).touch()
    return folder


def _tool_chain(uv: Uv) -> Path:
    """Go itself."""
    folder = go_folder()
    with only_one(folder.name):
        if not (folder / COMPLETE).exists():
            interpreter = uv.make_env("Go", pythons.current(), folder)
            uv.install_locked("Go: the tool chain", interpreter, GO_LOCK)
            (folder / COMPLETE).touch()
    return folder / "bin" / "go"


def _build_programs(go: Path, folder: Path) -> None:
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    # Clients ask the server for its version, which Kubernetes' own build writes into the programs.
    said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker_flags = " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in said.items())])
    work = folder.parent / "work"  # not in a temporary folder, where an interrupted build would leave it
    work.mkdir(parents=True)
    folder.mkdir()
    flags = ["-gcflags", COMPILER_FLAGS, "-ldflags", linker_flags]
    command: Command = [go, "build", "-C", SOURCES, *flags, "-o", f"{folder}/", *PROGRAMS.values()]
    name = f"Kubernetes {version}: {' and '.join(PROGRAMS)} from source, about 4 min on two cores"
    # The compiler has memory to spare, and collects its garbage less often for it: 1.5 GB, and a sixth less time.
    run_step(name, command, advice=_ADVICE, env={**_variables(), "GOGC": "400", "GOTMPDIR": str(work)})
    shutil.rmtree(work)


def _fetch_definitions(go: Path, folder: Path) -> None:
    modules = [f"{module.path}@{module.version}" for module in DEFINITIONS]
    run_step("Kubernetes: definitions of custom resources", [go, "mod", "download", *modules], advice=_ADVICE, env=_variables())
    folder.mkdir(parents=True)
    cache = Path(_variables()["GOMODCACHE"])
    for module in DEFINITIONS:
        digest = (cache / "cache" / "download" / module.path / "@v" / f"{module.version}.ziphash").read_text().strip()
        if digest != module.digest:
            raise SetupError(
                f"{module.path} {module.version} has the digest {digest}, and {module.digest} was expected. Do not use it; is the"
                " module proxy to be trusted?"
            )
        for file in module.files:
            shutil.copyfile(cache / f"{module.path}@{module.version}" / file, folder / Path(file).name)


def _variables() -> dict[str, str]:
    """What Go is told: take the sources as they are pinned, and write to the cache folder alone, all of it removable."""
    folder = dev_cache() / "go"
    return {
        "CGO_ENABLED": "0",
        "GOCACHE": str(folder / "build"),
        "GOFLAGS": "-mod=readonly -modcacherw -trimpath -buildvcs=false",
        "GOMODCACHE": str(folder / "modules"),
        "GOPATH": str(folder / "path"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
