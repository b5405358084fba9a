"""The buffer as pinned memory for CUDA, so that a copy to the device is one transfer and no detour through a bounce buffer.

``cudaHostRegister`` makes the kernel keep the pages where they are; that costs time for each gigabyte, so it is off unless asked
for. The mapping is shared and read-only, because pages that are copied on write would be copied by being pinned. Whatever fails
here costs speed only.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glowplug.weights.buffer.client import Attachment

logger = logging.getLogger("vllm.model_executor.model_loader.glowplug")

_READ_ONLY = 0x08  # cudaHostRegisterReadOnly


class Pinned:
    """A registered range of memory. Closing it gives it back to the kernel."""

    def __init__(self, runtime: Any, address: int) -> None:
        self._runtime = runtime
        self._address = address

    @classmethod
    def over(cls, attachment: Attachment) -> Pinned | None:
        """Register the buffer that an attachment has mapped; None, and a line in the log, where that can't be."""
        reason = "no CUDA device"
        try:
            import torch  # noqa: PLC0415  the engine's

            if torch.cuda.is_available():
                whole = torch.frombuffer(attachment.mapping, dtype=torch.uint8)
                runtime = torch.cuda.cudart()
                status = runtime.cudaHostRegister(whole.data_ptr(), whole.numel(), _READ_ONLY)
                if int(status) == 0:
                    return cls(runtime, whole.data_ptr())
                reason = f"cudaHostRegister: error {int(status)}"
        except Exception as error:  # noqa: BLE001  fail-open boundary: pinning is only faster
            reason = f"{type(error).__name__}: {error}"
        logger.warning("Glowplug: the buffer is not pinned (%s); copies to the device take the usual way", reason)
        return None

    def close(self) -> None:
        """Unregister it. The mapping itself stays."""
        with contextlib.suppress(Exception):  # the device may be gone already; the kernel cleans up after the process
            self._runtime.cudaHostUnregister(self._address)
