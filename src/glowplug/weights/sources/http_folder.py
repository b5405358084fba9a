"""Which files a checkpoint on a web server may have: what its index names, and the small ones that engines look for.

A web server does not list, so this is a list of names to ask for. Names that only one family of models uses belong here too: asking
costs one small request, and what is missing is missing in the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.errors import BadCheckpoint
from glowplug.weights.transfer.marker import COMPLETE_NAME, PUSHING_NAME, SEAL_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_MOST_FILES = 20_000
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


def names_in(weight_map: Mapping[str, str], *, index: str) -> list[str]:
    """The weight files that an index names.

    Args:
        weight_map: of the index.
        index: its name, for messages.

    Raises:
        BadCheckpoint: it names something outside its folder, or more files than any checkpoint has.
    """
    names = sorted(set(weight_map.values()))
    odd = next((name for name in names if "\\" in name or "://" in name or {"", ".", ".."} & set(name.split("/"))), None)
    if odd is None and len(names) <= _MOST_FILES:
        return names
    problem = f"{len(names)} files, too many for one checkpoint" if odd is None else f"{odd[:200]!r}, which is no file beside it"
    raise BadCheckpoint(f"{index} names {problem}", object=index, hint="publish the checkpoint again")
