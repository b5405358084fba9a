"""From an attached buffer to tensors: views where the buffer stays, copies where it is filled again.

Needs torch, and of vLLM only its progress bar where there is one.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from glowplug.engines.vllm.loader.pinning import Pinned
from glowplug.weights.tensors import tensor_of, tensor_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from glowplug.engines.vllm.loader.ranks import Place
    from glowplug.engines.vllm.loader.settings import LoaderSettings
    from glowplug.weights.buffer.client import Attachment


class Streaming:
    """One rank's way through one buffer. Not thread-safe; to be closed.

    Args:
        attachment: to the buffer.
        place: which rank.
        settings: of the loader.
        keep: somebody else goes through the same buffer afterwards, and lets go of it.

    Attributes:
        place: which rank.
        taken_bytes: of the tensors handed out so far.
        waited_s: time in which bytes were waited for.
    """

    def __init__(self, attachment: Attachment, place: Place, settings: LoaderSettings, *, keep: bool = False) -> None:
        self._attachment = attachment
        self._keep = keep
        self.place = place
        self.taken_bytes = 0
        self.waited_s = 0.0
        self._skipped = 0
        self._pinned = Pinned.over(attachment) if settings.pin else None

    @property
    def uri(self) -> str:
        """Of the checkpoint."""
        return str(self._attachment.uri)

    @property
    def mode(self) -> str:
        """Full or windowed."""
        return str(self._attachment.mode)

    @property
    def names(self) -> list[str]:
        """Of all tensors."""
        return [item.name for item in self._attachment.tensors]

    def tensors(self, skip: Callable[[str], bool], *, show_progress: bool) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and tensor, in the order of the files, as their bytes arrive.

        Host memory beside the buffer: in windowed mode one tensor at a time, plus what the model keeps.

        Raises:
            GlowplugError: the fetch failed, or whoever fetched is gone.
        """
        is_full = self.mode == "full"
        for item in _progress(self._attachment.tensors, wanted=show_progress):
            if skip(item.name):
                self._skipped += 1
                self._attachment.release(item)
                continue
            begun_s = time.monotonic()
            view = self._attachment.wait(item)
            self.waited_s += time.monotonic() - begun_s
            self.taken_bytes += item.size_bytes
            tensor = (tensor_over if is_full else tensor_of)(view, item.dtype, item.shape)
            del view
            self._attachment.release(item)
            yield item.name, tensor
        if not self._keep:
            self._attachment.finish(skipped=self._skipped)

    def close(self) -> None:
        """Let go of the buffer. Tensors that somebody still holds stay valid."""
        if self._pinned is not None:
            self._pinned.close()
        if not self._keep:
            self._attachment.close()


def _progress(items: Iterable[Any], *, wanted: bool) -> Iterable[Any]:
    """The bar of vLLM itself, where this version has one under these names."""
    with contextlib.suppress(ImportError):
        from vllm.model_executor.model_loader import weight_utils  # noqa: PLC0415  a name may be missing in another version

        if hasattr(weight_utils, "enable_tqdm") and hasattr(weight_utils, "tqdm"):
            bar: Iterable[Any] = weight_utils.tqdm(
                items,
                desc="Loading safetensors from Glowplug's buffer",
                disable=not weight_utils.enable_tqdm(wanted),
                bar_format=getattr(weight_utils, "_BAR_FORMAT", None),
                mininterval=2,
            )
            return bar
    return items
