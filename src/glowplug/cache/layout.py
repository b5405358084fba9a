"""Where things lie in a store: every key of the repository, in one place.

Relative to the store's prefix::

    v1/<envelope>/envelope.json                              what the digest stands for, readable
    v1/<envelope>/packs/<sha256>.tar.zst                     content, immutable
    v1/<envelope>/generations/<generation>.json              signed manifest, immutable
    v1/<envelope>/latest                                     which generation to use; moves by compare-and-swap
    v1/<envelope>/lease                                      who compiles for this envelope now
    v1/<envelope>/quarantine/<generation>.json               this generation is bad, for everyone, and why
    v1/reports/<reader>/<envelope>/<generation>/<node>.json  one node's evidence against a generation
    v1/clock                                                 empty; gc writes it to learn the store's time

``<envelope>`` and ``<generation>`` are sha256 in 64 hex digits. Reports are the only place that a reader may write to, each under a
name of its own, so that a policy can bind an identity to its prefix.
"""

from __future__ import annotations

ROOT = "v1/"
REPORTS = f"{ROOT}reports/"
CLOCK = f"{ROOT}clock"


def envelope_key(envelope: str) -> str:
    """The readable envelope."""
    return f"{ROOT}{envelope}/envelope.json"


def pack_key(envelope: str, pack_sha256: str) -> str:
    """A generation's content."""
    return f"{ROOT}{envelope}/packs/{pack_sha256}.tar.zst"


def generation_key(envelope: str, generation: str) -> str:
    """A generation's signed manifest."""
    return f"{ROOT}{envelope}/generations/{generation}.json"


def latest_key(envelope: str) -> str:
    """The pointer."""
    return f"{ROOT}{envelope}/latest"


def lease_key(envelope: str) -> str:
    """The lease of single flight."""
    return f"{ROOT}{envelope}/lease"


def quarantine_key(envelope: str, generation: str) -> str:
    """The verdict against a generation."""
    return f"{ROOT}{envelope}/quarantine/{generation}.json"


def report_key(reader: str, envelope: str, generation: str, node: str) -> str:
    """One node's evidence against a generation."""
    return f"{REPORTS}{reader}/{envelope}/{generation}/{node}.json"
