"""A machine of its own for each test of the program, and the stand-in engines."""

from __future__ import annotations

import pytest

from tests.run import stand_ins
from tests.run.program import Program


@pytest.fixture
def glowplug(tmp_path):
    return Program(tmp_path)


@pytest.fixture
def compiler(tmp_path):
    return stand_ins.compiler(tmp_path).words


@pytest.fixture
def vllm(tmp_path):
    return stand_ins.vllm(tmp_path).words
