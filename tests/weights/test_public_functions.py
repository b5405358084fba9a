"""What ``help`` shows of the functions that programs call, and what they say where a library is missing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
import traceback

import pytest
from weights_samples import write_checkpoint

import glowplug
from glowplug import weights
from glowplug.errors import IncompatibleError, UsageError
from glowplug.weights.streaming.stream import stream
from tests.store.stub import CREDENTIALS


def functions():
    for module in pkgutil.walk_packages(glowplug.__path__, "glowplug."):
        if module.name.endswith("__main__"):
            continue
        try:
            found = importlib.import_module(module.name)
        except ImportError:  # those that run inside an engine
            continue
        yield from (value for value in vars(found).values() if inspect.isfunction(value) and value.__module__ == module.name)


def test_no_default_shows_the_environment():
    shown = [f"{one.__module__}.{one.__qualname__}" for one in functions() if "environ(" in str(inspect.signature(one))]
    assert not shown


def test_help_of_the_library_shows_no_secret():
    script = "import glowplug.weights as w; help(w.stream); help(w.stream_bytes); help(w.open)"
    ended = subprocess.run([sys.executable, "-c", script], env={"A_SECRET": "hunter2"}, capture_output=True, text=True, check=True)
    assert "uri" in ended.stdout
    assert "hunter2" not in ended.stdout


def test_the_environment_of_the_process_is_what_none_means(tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "model")
    monkeypatch.setenv("GLOWPLUG_WEIGHTS_DIRECT", "banana")
    for call in (weights.open, weights.stream_bytes):
        with pytest.raises(UsageError, match="banana"):
            call(str(tmp_path / "model"))
        call(str(tmp_path / "model"), env={})


def test_without_torch_the_error_is_the_only_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "glowplug.weights.tensors", raising=False)
    with pytest.raises(UsageError, match="torch is not installed") as caught:
        stream("/nowhere", env={})
    assert "ModuleNotFoundError" not in "".join(traceback.format_exception(caught.value))
    assert "stream_bytes" in caught.value.hint


def test_without_botocore_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"] + ["botocore"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "glowplug.store.s3_session", raising=False)
    with pytest.raises(IncompatibleError, match="needs botocore") as caught:
        weights.open("s3://bucket/model", env=CREDENTIALS)
    assert "pip install botocore" in caught.value.hint
    assert "ModuleNotFoundError" not in "".join(traceback.format_exception(caught.value))
