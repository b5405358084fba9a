"""The model loader of the format ``glowplug``: vLLM's default loader, with its tensors coming from the host buffer.

It derives from ``DefaultModelLoader`` and replaces one step, where the tensors of a source come from. All that vLLM does around it
stays vLLM's: secondary sources, the expert filter, the check for weights that were not initialised, the log line with the seconds.
A source that is no streamed checkpoint (a draft model elsewhere, a source with file patterns of its own, a checkpoint without
safetensors) is loaded by the default loader as ``--load-format auto`` would.

In full mode tensors are views of the buffer, copied on write and alive for as long as somebody holds them. In windowed mode each
is a copy of its own, because the buffer is filled again behind it and some models keep tensors past the iterator's step.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any

from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from glowplug.engines.vllm.loader.feeder import feeder
from glowplug.engines.vllm.loader.filters import passes_over
from glowplug.engines.vllm.loader.ranks import Place, draft_follows, place_of
from glowplug.engines.vllm.loader.settings import RANKS, SOCKET, URI, is_wrapped, read_settings
from glowplug.engines.vllm.loader.streaming import Streaming
from glowplug.errors import GlowplugError
from glowplug.units import format_bytes, format_seconds
from glowplug.weights.buffer.client import BufferGone, BufferLost, LoadFailed, attach
from glowplug.weights.tensors import tensors_keep_their_view

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch
    from torch import nn
    from vllm.config import ModelConfig
    from vllm.config.load import LoadConfig

    from glowplug.weights.buffer.client import Attachment

_WRAPPER_ANSWERS_S = 30.0  # it listens since before the engine was started

# A buffer that this process will read once more: a draft model (MTP) may be a part of the checkpoint, and is loaded after it.
_kept: dict[str, Attachment] = {}

logger = init_logger("vllm.model_executor.model_loader.glowplug")  # below "vllm", or nobody would see it


class GlowplugModelLoader(DefaultModelLoader):  # type: ignore[misc]  # vLLM is not there when types are checked
    """Loads a checkpoint from Glowplug's host buffer. One for each model, in each rank's process."""

    def __init__(self, load_config: LoadConfig) -> None:
        extra = load_config.model_loader_extra_config
        self._glowplug, others = read_settings(extra if isinstance(extra, dict) else {})
        self._primary: tuple[str, ...] = ()
        # For vLLM's own part the format is its default one; its keys are checked by vLLM.
        super().__init__(dataclasses.replace(load_config, load_format="auto", model_loader_extra_config=others))

    def download_model(self, model_config: ModelConfig) -> None:
        """Nothing to download where the buffer brings the weights."""
        if not (self._glowplug.uri or is_wrapped(model_config.model)):
            super().download_model(model_config)

    def get_all_weights(self, model_config: ModelConfig, model: nn.Module) -> Generator[tuple[str, torch.Tensor], None, None]:
        """All tensors, as vLLM's loaders yield them: the model's own sources one after the other."""
        self._primary = (model_config.model, getattr(model_config, "model_weights", "") or model_config.model)
        yield from super().get_all_weights(model_config, model)

    def _get_weights_iterator(self, source: Any) -> Generator[tuple[str, torch.Tensor], None, None]:
        streaming = self._streaming(source)
        if streaming is None:
            yield from super()._get_weights_iterator(source)
            return
        if not self.counter_before_loading_weights:
            self.counter_before_loading_weights: float = time.perf_counter()
        skip = passes_over(self, source, streaming.names)
        try:
            for name, tensor in streaming.tensors(skip, show_progress=self.load_config.use_tqdm_on_load):
                yield source.prefix + name, tensor
            logger.info(
                "Glowplug: %s from %s, %s buffer, rank %d of %d; waited %s for bytes",
                *(format_bytes(streaming.taken_bytes), streaming.uri, streaming.mode),
                *(streaming.place.rank, streaming.place.ranks, format_seconds(streaming.waited_s)),
            )
        except (BufferLost, LoadFailed, GlowplugError) as error:
            raise _said(error) from error
        finally:
            streaming.close()

    def _streaming(self, source: Any) -> Streaming | None:
        """The buffer that holds this source's tensors; None where it is vLLM's own loader's."""
        if source.model_or_path not in self._primary or source.subfolder is not None or source.allow_patterns_overrides is not None:
            return None
        config = get_current_vllm_config()
        place, path = place_of(config), os.path.realpath(source.model_or_path)
        if (kept := _kept.pop(path, None)) is not None:
            return Streaming(kept, place, self._glowplug)
        follows = draft_follows(config, source.model_or_path)
        try:
            attachment = self._attach(source, place, takes_over=not (follows or place.is_replica) and tensors_keep_their_view())
        except (BufferGone, BufferLost, LoadFailed, GlowplugError) as error:
            raise _said(error) from error
        if attachment is None:
            return None
        is_kept = attachment.mode == "full" and follows
        if is_kept:
            _kept[path] = attachment
        return Streaming(attachment, place, self._glowplug, keep=is_kept)

    def _attach(self, source: Any, place: Place, *, takes_over: bool) -> Attachment | None:
        timeout_s = self._glowplug.attach_timeout_s
        how = {"private": not self._glowplug.pin, "takes_over": takes_over}
        uri = self._glowplug.uri
        if is_wrapped(source.model_or_path):
            # A replica of a dense model knows of no other replica on the node; the wrapper does.
            ranks = int(os.environ.get(RANKS, "0")) if place.is_replica else 0
            try:
                if os.path.exists(os.environ[SOCKET]):
                    answer_s = min(timeout_s, _WRAPPER_ANSWERS_S)
                    ranks = max(ranks, place.ranks)
                    return attach(os.environ[SOCKET], rank=place.rank, ranks=ranks, timeout_s=answer_s, **how)
                reason = "it was given back"
            except (BufferGone, BufferLost) as error:
                reason = str(error)
            logger.warning("Glowplug: the wrapper's buffer can't be had: %s; streaming without it", reason)
            uri = uri or os.environ.get(URI, "")
        uri = uri or self._local(source)
        if not uri:
            return None
        socket = feeder(uri, place, self._glowplug)
        rank = place.rank % place.ranks
        return attach(socket, rank=rank, ranks=place.ranks, timeout_s=timeout_s, **how)

    def _local(self, source: Any) -> str:
        """The folder of a checkpoint on this node, downloaded where vLLM would; empty if it holds no safetensors."""
        if "://" in source.model_or_path:
            return str(source.model_or_path)
        prepared = self._prepare_weights(
            source.model_or_path,
            source.subfolder,
            source.revision,
            source.fall_back_to_pt,
            source.allow_patterns_overrides,
        )
        folder, files, is_safetensors = prepared[:3]
        return str(folder) if is_safetensors and files else ""


def _said(error: Exception) -> RuntimeError:
    """The error as vLLM passes it between its processes: as a text."""
    return RuntimeError(f"glowplug: {error.line() if isinstance(error, GlowplugError) else error}")
