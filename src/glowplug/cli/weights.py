"""``glowplug weights``: look at checkpoints, and move them."""

from __future__ import annotations

from glowplug.cli.app import App
from glowplug.cli.lazy import lazy_group

# Each command is a file of its own, with one command in its ``app``.
_COMMANDS = {
    "inspect": ("glowplug.cli.weights_inspect", "Show what a checkpoint holds."),
    "stream": ("glowplug.cli.weights_stream", "Load every tensor and drop it, to measure."),
    "bench": ("glowplug.cli.weights_bench", "Find the settings that suit this machine and this store."),
    "pull": ("glowplug.cli.weights_pull", "Download a checkpoint into a folder, and verify it."),
    "push": ("glowplug.cli.weights_push", "Upload a checkpoint to a store."),
    "seal": ("glowplug.cli.weights_seal", "Sign a checkpoint's digests, or check it against them."),
    "serve": ("glowplug.cli.weights_serve", "Stream a checkpoint to the ranks of this node."),
}

app = App(
    cls=lazy_group("glowplug weights", _COMMANDS), no_args_is_help=True, help="Inspect, measure, pull, push and seal checkpoints."
)


@app.callback()
def _root() -> None:
    """Inspect, measure, pull, push and seal checkpoints."""
