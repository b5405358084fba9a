"""Keys for seals: who signs one here, and whose signature counts, from the same options and variables as for bundles."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cache.keyring import SIGNING_KEY, config_home, load_publishing, load_trust
from glowplug.cache.trust import SEAL
from glowplug.errors import UsageError
from glowplug.weights.transfer.marker import SEAL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

SigningKey = Annotated[
    str | None,
    typer.Option(
        "--signing-key",
        "--key",
        metavar="KEY",
        help="Private key that signs the seal: a PEM file, PEM text or awskms:ARN."
        " Default: $GLOWPLUG_SIGNING_KEY, else your own key.",
    ),
]
Algorithm = Annotated[
    str, typer.Option(metavar="sha256|blake3", help="Digests of the seal. blake3 needs: pip install 'glowplug[blake3]'.")
]


def seal_signer(signing_key: str | None) -> Callable[[bytes], bytes]:
    """The function that signs seals; a key of the user's own is made where none is named.

    Raises:
        UsageError: there is nobody who signs.
    """
    publishing = load_publishing(os.environ, key=signing_key, home=config_home(os.environ))
    if publishing.signer is None:
        hint = f"name a private key: --signing-key or {SIGNING_KEY}; glowplug keys create makes one"
        raise UsageError(f"the seal can't be signed: {publishing.reason}", object="--signing-key", hint=hint)
    if publishing.created:
        print(f"glowplug: made a signing key for you, {publishing.signer.keyid[:12]} (glowplug keys show)", file=sys.stderr)
    if publishing.reason:
        print(f"glowplug: {publishing.reason}", file=sys.stderr)
    return partial(publishing.signer.sign, kind=SEAL)


def seal_verifier(trusted_keys: list[str] | None, *, signing_key: str | None = None) -> Callable[[bytes], bytes]:
    """The function that gives what a trusted key has sealed, and raises ``TrustError`` for anything else.

    Raises:
        UsageError: a name leads to no key.
    """
    trust = load_trust(os.environ, keys=tuple(trusted_keys or ()), signing_key=signing_key, home=config_home(os.environ))
    return partial(trust.verify, name=SEAL_NAME, kind=SEAL)
