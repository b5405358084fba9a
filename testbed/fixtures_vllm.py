"""pytest fixtures for tests that start a real vLLM. ``make test`` sets both up; a bare ``pytest`` skips where they are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed import vllm_env

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter of the environment that holds vLLM."""
    python = vllm_env.vllm_python()
    if python is None:
        pytest.skip("vLLM is not set up: make testbed")
    return python


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The folder of a model that vLLM serves from a CPU in seconds."""
    model = vllm_env.tiny_model()
    if model is None:
        pytest.skip("the tiny model is not made: make testbed")
    return model
