"""Who this start is towards the store: reader or writer, under which name it reports, and on which node.

A **writer** may publish, and takes the lease to compile for others. A **reader** restores, and writes nothing but reports of caches
that have failed, below a prefix of its own, so that its credentials need no more than that (``policies/``). Whoever is refused a
write goes on as if it had not tried.

The role is settled before anything is asked of the store, from options, variables and the keys at hand, and no key is made here.
A process that can sign nothing must not be a writer: it would take the lease, and others would wait for a generation that never
comes. A key that is named and can't be used, because its secret is not mounted, say, makes a reader with a line that says why, and
stops no engine.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from glowplug.cache.keyring import SIGNING_KEY, TRUSTED_KEYS, config_home, load_signer
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from glowplug.cache.keyring import NamedSigner
    from glowplug.run.options import RunOptions

NODE_NAME = "GLOWPLUG_NODE_NAME"
_NODE_DIGITS = 16


class Role(StrEnum):
    """What a start may do to the store."""

    READER = "reader"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Identity:
    """One start, as the store's other users see it.

    Attributes:
        role: what it may do.
        reader: the name below ``v1/reports/`` under which it reports.
        node: the node, as 16 hex digits; the same for every start on it.
        reason: why it is a reader; empty for a writer.
        signer: the signing key that was named for this process; None for a reader, and for who signs with a user's own key.
        problem: why the signing key that was named can't be used, as a line; empty otherwise.
    """

    role: Role
    reader: str
    node: str
    reason: str = ""
    signer: NamedSigner | None = field(default=None, repr=False)
    problem: str = ""

    @property
    def is_writer(self) -> bool:
        """Whether it may publish and take the lease."""
        return self.role is Role.WRITER


def identity_of(options: RunOptions, env: Mapping[str, str]) -> Identity:
    """The identity of a start. Asks nobody over the network, and makes no key.

    Args:
        options: of this run.
        env: the environment the user gave it.

    Raises:
        UsageError: ``--role writer`` contradicts the other options, or the keys.
    """
    signer, problem = None, ""
    if options.publish and options.role != Role.READER:
        try:
            signer = load_signer(env, key=options.signing_key)
        except UsageError as error:
            problem = error.line()
    reason = "its role is reader (--role)" if options.role == Role.READER else problem or _why_not_writer(options, env, signer)
    if reason and options.role == Role.WRITER:
        hint = f"name a key in {SIGNING_KEY}, or use --role auto" if options.publish else "leave one of the two away"
        raise UsageError(f"--role writer: {reason}", object="--role", hint=hint)
    return Identity(Role.READER if reason else Role.WRITER, options.reports_as, node_id(env), reason, signer, problem)


def node_id(env: Mapping[str, str]) -> str:
    """16 hex digits for ``GLOWPLUG_NODE_NAME``, which the downward API gives a pod, else for the host name: a pod's own name."""
    name = env.get(NODE_NAME, "").strip() or os.uname().nodename
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_NODE_DIGITS]


def _why_not_writer(options: RunOptions, env: Mapping[str, str], signer: NamedSigner | None) -> str:
    """Why nothing can be published from here; empty if it can."""
    if not options.publish:
        return "publishing is turned off (--no-publish)"
    if signer is not None:
        return ""
    if options.trusted_keys or env.get(TRUSTED_KEYS, "").strip():
        return f"no signing key: {SIGNING_KEY} is not set, so this process only reads"
    home = config_home(env)
    if home is None or not _can_be_made(home / "keys"):
        return f"no signing key: {SIGNING_KEY} is not set, and this user can keep none of their own"
    if options.role != Role.WRITER and "KUBERNETES_SERVICE_HOST" in env and not _holds_a_key(home / "keys"):
        return f"no signing key: {SIGNING_KEY} is not set, and no other pod would trust one made in this pod"
    return ""


def _holds_a_key(folder: Path) -> bool:
    try:
        return any(name.endswith(".key") for name in os.listdir(folder))
    except OSError:
        return False


def _can_be_made(folder: Path) -> bool:
    """Whether this user can write in the folder, or make it."""
    while not os.path.lexists(folder):
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
