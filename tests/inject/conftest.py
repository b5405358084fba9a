"""One injected folder for all tests here, made by the interpreter that runs them, and moved away from where it was made."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from glowplug.inject.folder import inject


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inject") / "made here"
    old = os.umask(0o077)  # as strict as an init container may have it
    try:
        return inject(folder)
    finally:
        os.umask(old)


@pytest.fixture(scope="session")
def injected(written, tmp_path_factory):
    """The folder under another path. Tests do not write into it."""
    moved = tmp_path_factory.mktemp("elsewhere") / "moved here"
    shutil.copytree(written.folder, moved)
    written.folder.rename(written.folder.with_name("gone"))
    return moved


@pytest.fixture
def damaged(injected, tmp_path):
    """A copy that a test may break: the folder, and its payload."""
    shutil.copytree(injected, tmp_path / "copy")
    return tmp_path / "copy", next((tmp_path / "copy").glob("payload-*"))


def start(folder, *words, env=None, path="/usr/bin:/bin", **options):
    """Run the folder's launcher with nothing but this environment."""
    command = [str(folder / "bin" / "glowplug"), *words]
    return subprocess.run(command, env={"PATH": path, **(env or {})}, capture_output=True, text=True, check=False, **options)
