"""What an engine in an unmodified image gets from an injected folder: one module on its path, and the loader behind it."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

STUBS = {
    "torch/__init__.py": "__version__ = 'stub'\n",
    "vllm/__init__.py": "",
    "vllm/config/__init__.py": "def get_current_vllm_config(): ...\n",
    "vllm/logger.py": "import logging\ninit_logger = logging.getLogger\n",
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/model_loader/__init__.py": """
calls = []
_LOAD_FORMAT_TO_MODEL_LOADER = {}
def register_model_loader(load_format):
    def register(loader):
        calls.append(load_format)
        _LOAD_FORMAT_TO_MODEL_LOADER[load_format] = loader
        return loader
    return register
""",
    "vllm/model_executor/model_loader/default_loader.py": "class DefaultModelLoader: ...\n",
}
ENGINE = """
import json, sys
from importlib.metadata import entry_points
before = set(sys.modules)
[point] = entry_points(group="vllm.general_plugins")
register = point.load()
register()
register()  # vLLM does, in some of its processes
from vllm.model_executor import model_loader
loader = model_loader._LOAD_FORMAT_TO_MODEL_LOADER["glowplug"]
files = sorted(f for name in set(sys.modules) - before if (f := getattr(sys.modules[name], "__file__", None)) and "site" in f)
print(json.dumps([model_loader.calls, loader.__mro__[1].__module__, sys.dont_write_bytecode, files, sys.path]))
"""


def pythons():
    """This one, and whatever other versions since 3.10 this machine has."""
    folders = [*os.environ["PATH"].split(os.pathsep), *map(str, Path.home().glob(".pyenv/versions/3.*/bin"))]
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(10, 20):
        path = shutil.which(f"python3.{minor}", path=os.pathsep.join(folder for folder in folders if "shims" not in folder))
        if path:
            found.setdefault((3, minor), path)
    return [pytest.param(path, id=".".join(map(str, version))) for version, path in found.items()]


@pytest.fixture
def plug_in(injected, written):
    return injected / written.payload / "site" / "glowplug" / "engines" / "vllm" / "plugin"


@pytest.fixture
def stubs(tmp_path):
    for name, text in STUBS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_it_is_a_folder_of_one_module_and_its_metadata_that_anybody_may_read(plug_in):
    files = {str(path.relative_to(plug_in)): path for path in plug_in.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert set(files) == {
        "glowplug_vllm.py",
        "glowplug_vllm-1.dist-info/METADATA",
        "glowplug_vllm-1.dist-info/entry_points.txt",
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o644}


@pytest.mark.parametrize("python", pythons())
def test_an_engine_registers_the_loader_once_from_the_standard_library_and_its_own_packages(plug_in, injected, stubs, python):
    before = set(map(str, injected.rglob("*")))
    env = {"PYTHONPATH": f"{plug_in}{os.pathsep}{stubs}"}
    done = subprocess.run([python, "-S", "-c", ENGINE], env=env, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls, base, writes_no_bytecode, files, path = json.loads(done.stdout)
    assert (calls, base) == (["glowplug"], "vllm.model_executor.model_loader.default_loader")
    assert not writes_no_bytecode, "the engine's own setting is back"
    package = plug_in.parent.parent.parent
    assert files, "the loader was imported"
    assert [file for file in files if not file.startswith(str(package))] == []
    assert str(package.parent) not in path, "nothing that Glowplug carries can be imported by mistake"
    left = set(map(str, injected.rglob("*"))) - before
    assert {os.path.basename(path).partition(".")[0] for path in left} <= {"glowplug_vllm"}, "Python's own, where it may write"
