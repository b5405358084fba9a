"""The part that runs inside vLLM: the load format ``glowplug``.

It attaches to the host buffer that the wrapper fills while the engine imports, and hands its tensors to the model. Without a
wrapper it starts what fills the buffer by itself. It imports the standard library, torch and vLLM, and of Glowplug what is as
frugal: the interpreter here is the engine's, with the engine's packages. Nothing is imported before ``register`` is called.
"""

from __future__ import annotations

LOAD_FORMAT = "glowplug"
"""What ``--load-format`` takes. Lower case, as vLLM makes it."""


def register() -> None:
    """Make the load format known to vLLM. May be called any number of times, in every process of the engine."""
    from vllm.model_executor import model_loader  # noqa: PLC0415  only inside an engine

    from glowplug.engines.vllm.loader.model_loader import GlowplugModelLoader  # noqa: PLC0415  imports vLLM and torch

    known = getattr(model_loader, "_LOAD_FORMAT_TO_MODEL_LOADER", {}).get(LOAD_FORMAT)
    if known is None or known.__name__ != GlowplugModelLoader.__name__:  # vLLM warns when a format is registered twice
        model_loader.register_model_loader(LOAD_FORMAT)(GlowplugModelLoader)
