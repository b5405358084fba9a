"""``glowplug weights bench``: the settings that suit this machine and this store."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cli.app import App
from glowplug.cli.fetching import MaxBandwidth, fetch_settings
from glowplug.cli.options import AsJson, Uri
from glowplug.cli.output import print_json
from glowplug.errors import UsageError
from glowplug.timeline.render import glyphs_for
from glowplug.units import MIB, count, format_bytes, format_seconds, parse_bytes, parse_seconds
from glowplug.weights.bench.grid import MOST_BYTES, Bench, bench, describe
from glowplug.weights.bench.plot import check_plot, plot_bench
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources.open import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glowplug.weights.bench.grid import Cell

app = App()

_BAR = 24
_LEAST_LIMIT_BYTES = MIB
_NOISY = 0.2


@app.command(name="bench", epilog="Example: glowplug weights bench s3://bucket/models/qwen3-8b --plot bench.svg")
def bench_command(
    uri: Uri,
    seconds: Annotated[str, typer.Option(metavar="DURATION", help="How long it may take, such as 30s or 5m.")] = "60s",
    limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help=f"Most that one measurement reads. Default: {MOST_BYTES // MIB}MiB.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the results into FILE, .svg or .png. Needs: pip install 'glowplug[plot]'."),
    ] = None,
    max_bandwidth: MaxBandwidth = None,
    as_json: AsJson = False,
) -> None:
    """Find the settings that suit this machine and this store. Tries numbers and sizes of requests, round after round."""
    settings = fetch_settings(max_bandwidth=max_bandwidth)
    limit_bytes = parse_bytes(limit, name="--limit") if limit else MOST_BYTES
    if limit_bytes < _LEAST_LIMIT_BYTES:
        raise UsageError(f"--limit: {limit} leaves nothing to measure", object="--limit", hint="give at least 1MiB")
    time_s = parse_seconds(seconds, name="--seconds")
    if plot is not None:
        check_plot(plot)
    source = open_source(uri, env=os.environ)
    try:
        checkpoint = open_checkpoint(source)
        with _status_line() as tell:
            found = bench(source, checkpoint, settings=settings, seconds=time_s, limit_bytes=limit_bytes, progress=tell)
    except KeyboardInterrupt:
        print("glowplug: interrupted", file=sys.stderr)
        raise
    finally:
        source.close()
    if plot is not None:
        plot_bench(found, plot, title=source.uri)
    if as_json:
        _print_json(found, source.uri, plot)
    else:
        _report(found, source.uri, plot)


@contextlib.contextmanager
def _status_line() -> Iterator[Callable[[str], None]]:
    """What is tried just now, on a terminal only; gone at the end."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield lambda text: print(f"\r\033[K{text[:78]}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _print_json(found: Bench, uri: str, plot: Path | None) -> None:
    chosen = found.chosen
    print_json({
        "uri": uri, "cpus": len(os.sched_getaffinity(0)), "cell_bytes": found.cell_bytes, "rounds": found.rounds,
        "seconds": round(found.seconds, 2), "plot": str(plot) if plot else None,
        "use": {
            "concurrency": chosen.setting.concurrency, "chunk_bytes": chosen.setting.chunk_bytes,
            "gb_per_s": round(chosen.median, 4), "environment": dict(_environment(chosen)),
        },
        "best": {"concurrency": found.best.setting.concurrency, "chunk_bytes": found.best.setting.chunk_bytes},
        "cells": [
            {
                "concurrency": cell.setting.concurrency, "chunk_bytes": cell.setting.chunk_bytes, "settled": cell.settled,
                "median_gb_per_s": round(cell.median, 4), "gb_per_s": [round(value, 4) for value in cell.gb_per_s],
                "cpu_s_per_gb": [round(value, 4) for value in cell.cpu_s_per_gb],
            }
            for cell in found.cells
        ],
    })  # fmt: skip


def _report(found: Bench, uri: str, plot: Path | None) -> None:
    by_setting = {cell.setting: cell for cell in found.cells}
    chunks = sorted({cell.setting.chunk_bytes for cell in found.cells})
    numbers = sorted({cell.setting.concurrency for cell in found.cells if cell.setting.concurrency is not None})
    most = max(cell.median for cell in found.cells)
    cells, rounds = count(len(found.cells), "setting"), count(found.rounds, "round")
    print(f"{uri}")
    print(f"GB/s, median of {rounds} of {cells}, {format_bytes(found.cell_bytes)} or more each, in {format_seconds(found.seconds)}")
    print()
    print(f"{'requests':>8}" + "".join(f"{chunk // MIB:>6} MiB" for chunk in chunks) + "   best of the row")
    for number in [*numbers, None]:
        row = [by_setting.get((number, chunk)) for chunk in chunks]  # type: ignore[call-overload]
        best = max((cell.median for cell in row if cell), default=0.0)
        texts = "".join(f"{cell.median:>10.2f}" if cell else f"{'-':>10}" for cell in row)
        bar = glyphs_for(sys.stdout).full * round(_BAR * best / most) if most else ""
        print(f"{number or 'auto':>8}{texts}   {bar}")
    print()
    chosen = found.chosen
    if found.is_default:
        print("use: the defaults; no setting is needed")
    else:
        flags = [f"--chunk {chosen.setting.chunk_bytes // MIB}MiB"]
        if chosen.setting.concurrency is not None:
            flags.insert(0, f"--concurrency {chosen.setting.concurrency}")
        print(f"use: {' '.join(flags)}")
        for name, value in _environment(chosen):
            print(f"     {name}={value}")
    print(f"why: {chosen.median:.2f} GB/s, within 10 % of the best, {most:.2f},")
    print(f"     {_why(chosen)}")
    if found.spread > _NOISY:
        print(f"note: the middle half of its rounds lies {100 * found.spread:.0f} % apart; try on a quiet machine")
    if plot:
        print(f"plot: {plot}")


def _why(chosen: Cell) -> str:
    if chosen.setting.concurrency is None:
        return f"and it finds the number of requests by itself ({chosen.settled} at the end)"
    return f"with the fewest requests: {describe(chosen.setting)}"


def _environment(chosen: Cell) -> list[tuple[str, str]]:
    found = [("GLOWPLUG_WEIGHTS_CHUNK_SIZE", f"{chosen.setting.chunk_bytes // MIB}MiB")]
    if chosen.setting.concurrency is not None:
        found.insert(0, ("GLOWPLUG_WEIGHTS_CONCURRENCY", str(chosen.setting.concurrency)))
    return found
