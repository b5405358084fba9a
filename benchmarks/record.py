"""What every benchmark writes: its boundary, the samples, median and spread, the machine and the commit."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def summary(samples: list[float]) -> dict[str, Any]:
    """n, median, lowest and highest of some samples, and the samples themselves."""
    return {
        "n": len(samples),
        "median": round(statistics.median(samples), 4),
        "min": round(min(samples), 4),
        "max": round(max(samples), 4),
        "samples": [round(sample, 4) for sample in samples],
    }


def ratio(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """The median of the ratios of samples that were taken next to each other, and their range."""
    ratios = [left / right for left, right in zip(ours, theirs, strict=True)]
    return {"median": round(statistics.median(ratios), 3), "min": round(min(ratios), 3), "max": round(max(ratios), 3)}


def write(name: str, document: dict[str, Any]) -> Path:
    """Write ``results/NAME.json`` and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    full = {
        "benchmark": name,
        "machine": _machine(),
        "commit": _commit(),
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }
    path.write_text(json.dumps(full | document, indent=2) + "\n")
    return path


def _machine() -> dict[str, Any]:
    processor = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in processor if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "load_average": round(os.getloadavg()[0], 2),
    }


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=RESULTS.parent, check=False).stdout.strip()

    return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", "../src") else "")
