"""Machines for the tests of the node's facts and rules."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from tests.doctor.node.machines import Machine


@pytest.fixture
def machine(tmp_path):
    """A machine of files, still without anything in it."""
    root = tmp_path / "machine"
    root.mkdir()
    return Machine(root)


@pytest.fixture
def tmpfs(tmp_path):
    """Mounts real tmpfs with these options, each on a folder of its own; gone after the test."""
    with contextlib.ExitStack() as mounted:

        def make(options, folder=None):
            folder = folder or tmp_path / f"tmpfs-{len(os.listdir(tmp_path))}"
            folder.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"mounting a tmpfs is not allowed here: {done.stderr.strip()}")
            mounted.callback(subprocess.run, ["umount", folder], check=True)
            return folder

        yield make
