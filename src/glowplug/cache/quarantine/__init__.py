"""Quarantine: generations that have hurt somebody are not offered again.

A signature proves who published a generation, not that an engine survives it. So each node that an engine died on says so
(``testimony``), first to itself in a note that counts at once (``notes``), and then in the store. One node may be at fault itself:
a generation is bad for everyone (``verdicts``) when a writer has read the testimony of two nodes, or has itself seen a signature
or a digest fail (``judging``). Each look-up asks which generations are bad, and takes another one or none (``choosing``).

The worst that a wrong or forged testimony can do is one more compilation: a verdict withholds, it never makes anybody load.
"""

from glowplug.cache.quarantine.choosing import Choice, choose

__all__ = ["Choice", "choose"]
