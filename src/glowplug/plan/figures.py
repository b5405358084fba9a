"""Figures as workings and tables show them: sizes in both units where a person may mean either, speeds, shares."""

from __future__ import annotations

from glowplug.units import format_bytes

GB = 10**9


def both(size_bytes: int) -> str:
    """``67.0 GB (62.4 GiB)``: disks and buckets are told in GB, memory in GiB, and the 7 % between them decide a fit."""
    if size_bytes < GB // 10:
        return format_bytes(size_bytes)
    return f"{size_bytes / GB:.1f} GB ({format_bytes(size_bytes)})"


def speed(bytes_per_s: float) -> str:
    """``8.1 GB/s``, ``550 MB/s``."""
    return f"{bytes_per_s / GB:.1f} GB/s" if bytes_per_s >= GB else f"{bytes_per_s / 10**6:.0f} MB/s"


def seconds(value: float) -> str:
    """``8.7 s``, ``154 s``."""
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def up(value: float, step: int) -> int:
    """The next multiple of ``step`` that is not less."""
    return -int(-value // step) * step
