"""vLLM's way to Glowplug's load format: the entry point that an unmodified image finds through ``PYTHONPATH`` alone.

This folder is what is put on that path: it holds this module and its metadata, and nothing that an engine could import by
mistake. The ``glowplug`` package that lies above it is loaded by its path. Neither its requirements nor its other neighbours
become importable, and no bytecode is written beside it.
"""

from __future__ import annotations

import importlib.util
import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def register() -> None:
    """Make the load format known to vLLM. vLLM calls it in each of its processes, some of them more than once."""
    wrote_bytecode = not sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the folder may be read-only, and belongs to another Python
    try:
        _import_package()
        from glowplug.engines.vllm.loader import register as register_format  # noqa: PLC0415  only now importable

        register_format()
    finally:
        sys.dont_write_bytecode = not wrote_bytecode


def _import_package() -> None:
    """Import ``glowplug`` from above this file, unless this process has one already."""
    if "glowplug" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "glowplug", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no glowplug package in {_PACKAGE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["glowplug"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["glowplug"]
        raise
