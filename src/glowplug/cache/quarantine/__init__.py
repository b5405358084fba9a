"""Quarantine: generations that have hurt somebody are not offered again.

A signature proves who published a generation, not that an engine survives it. So each node that an engine died on says so
(``testimony``), first to itself in a note that counts at once (``notes``), and then in the store. One node may be at fault itself:
a generation is bad for everyone (``verdicts``) when a writer has read the testimony of two nodes, or has itself seen a signature
or a digest fail (``judging``). Each look-up asks which generations are bad, and takes another one or none (``choosing``).

The worst that a wrong or forged testimony can do is one more compilation: a verdict withholds, it never makes anybody load.
Where a bad generation has been on a node, or one whose key is trusted no more, its live folder is emptied (``traces``).
"""

from glowplug.cache.quarantine.choosing import Choice, choose
from glowplug.cache.quarantine.notes import drop_note, noted, put_note
from glowplug.cache.quarantine.traces import cleanse, empty, untrusted

__all__ = ["Choice", "choose", "cleanse", "drop_note", "empty", "noted", "put_note", "untrusted"]
