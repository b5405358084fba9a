"""The picture of a benchmark: throughput against requests at once, one line for each size of a request.

Needs matplotlib, an extra, which is loaded only to draw. Draws without a display.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from glowplug.errors import IncompatibleError, LocalError, UsageError
from glowplug.units import MIB, format_bytes
from glowplug.weights.whole_file import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from glowplug.weights.bench.grid import Bench

_SUFFIXES = (".svg", ".png")
# Okabe and Ito's colours, which people who see fewer colours tell apart too, and a mark for each line.
_STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))


def check_plot(path: Path) -> None:
    """Refuse before anything is measured what could not be drawn afterwards.

    Raises:
        UsageError: neither SVG nor PNG.
        IncompatibleError: matplotlib is not installed.
        LocalError: the folder can't be written.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{path}: a plot is .svg or .png", object=str(path), hint="name it bench.svg")
    if not os.access(path.absolute().parent, os.W_OK):
        raise LocalError(f"{path}: its folder can't be written", object=str(path), hint="name another folder")
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415  an extra, for who asks for a picture
    except ImportError:
        hint = "install glowplug[plot], or leave --plot out"
        raise IncompatibleError("a plot needs matplotlib, which is not installed", object="--plot", hint=hint) from None


def plot_bench(bench: Bench, path: Path, *, title: str) -> None:
    """Draw a benchmark.

    Args:
        bench: with at least one round.
        path: .svg or .png; replaced if it is there.
        title: what was measured.

    Raises:
        LocalError: the file can't be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  the same
    from matplotlib.figure import Figure  # noqa: PLC0415  the same

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    numbers = sorted({cell.setting.concurrency for cell in bench.cells if cell.setting.concurrency is not None})
    chunks = sorted({cell.setting.chunk_bytes for cell in bench.cells})
    automatic = len(numbers)
    for index, chunk in enumerate(chunks):
        color, marker = _STYLES[index % len(_STYLES)]
        cells = [cell for cell in bench.cells if cell.setting.chunk_bytes == chunk]
        fixed = [cell for cell in cells if cell.setting.concurrency is not None]
        places = [float(numbers.index(cell.setting.concurrency)) for cell in fixed if cell.setting.concurrency is not None]
        # A little apart from each other, so that no range hides another.
        offset = (index - (len(chunks) - 1) / 2) * 0.1
        label = f"{chunk // MIB} MiB"
        places = [place + offset for place in places]
        axes.plot(places, [cell.median for cell in fixed], color=color, marker=marker, markersize=5, linewidth=1.4, label=label)
        for cell in cells:
            number = cell.setting.concurrency
            place = (automatic if number is None else numbers.index(number)) + offset
            axes.vlines(place, *cell.middle_half, color=color, linewidth=3.0, alpha=0.35)
            if number is None:
                axes.plot([place], [cell.median], color=color, marker=marker, markersize=5, linestyle="none")
    axes.set_xticks([*range(len(numbers)), automatic], [*map(str, numbers), "auto"])
    axes.set_xlabel("requests at once (auto: found while it runs)")
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    axes.axvline(automatic - 0.5, color="#bbbbbb", linewidth=0.8, linestyle=":")
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(title="size of\na request", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    rounds = f"{bench.rounds} rounds" if bench.rounds > 1 else "one round"
    what = f"median and middle half of {rounds}, {format_bytes(bench.cell_bytes)} or more each"
    axes.set_title(f"{title}\n{what}", loc="left", fontsize=10)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=path.suffix[1:].lower())
    write_whole(path, picture.getvalue(), again="bench again, or name another file")
