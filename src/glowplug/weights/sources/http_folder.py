"""Which files a checkpoint on a web server may have: what its index names, and the small ones that engines look for.

A web server does not list, so this is a list of names to ask for. Names that only one family of models uses belong here too: asking
costs one small request, and what is missing is missing in the engine.
"""

from __future__ import annotations

import json

from glowplug.errors import IntegrityError
from glowplug.weights.transfer.marker import COMPLETE_NAME, PUSHING_NAME, SEAL_NAME

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SMALL_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    COMPLETE_NAME,
    PUSHING_NAME,
    SEAL_NAME,
    "hf_quant_config.json",
    "merges.txt",
    "params.json",
    "preprocessor_config.json",
    "processor_config.json",
    "quantize_config.json",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
    "vocab.txt",
)


def names_in_index(content: bytes, *, name: str) -> list[str]:
    """The weight files that an index names.

    Args:
        content: of ``model.safetensors.index.json``.
        name: the index's, for messages.

    Raises:
        IntegrityError: it is no index, or names something outside its folder.
    """
    try:
        names = sorted({str(value) for value in json.loads(content)["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "publish the checkpoint again"
        raise IntegrityError(f"{name} can't be read: it has no weight_map", object=name, hint=hint) from error
    for file in names:
        if "\\" in file or "://" in file or any(part in {"", ".", ".."} for part in file.split("/")):
            hint = "publish the checkpoint again"
            raise IntegrityError(f"{name} names {file!r}, which is no file beside it", object=name, hint=hint)
    return names
