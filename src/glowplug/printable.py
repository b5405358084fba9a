"""Text that others wrote, made fit for a terminal or a log: a leaf, like ``errors`` and ``units``.

Names of models, envelopes nobody has signed and a server's messages reach a person's screen. An escape sequence in one of them
could repaint that screen, hide a line of ours or forge one, so it is shown as what it is.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with every character that is not printable as its escape: ``\x1b[31m``, ``\u202e``, ``\n``."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def one_line(text: str) -> str:
    """The same on one line: white space of any kind and length is one blank."""
    return printable(" ".join(text.split()))
