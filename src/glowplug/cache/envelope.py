"""The compatibility envelope: everything that must be equal for compiled code to be safe to load and likely to hit.

Two starts share a cache if and only if their envelopes are equal. The envelope is kept as readable JSON, so that a miss can be
explained; its digest is the object prefix. Over-keying costs one compile, under-keying costs a crash loop, so in doubt a component
is in. The components come from the engines' adapters, which read files and metadata only. This module never looks at the machine.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from glowplug.errors import BadManifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEMA = "glowplug.dev/envelope/v1"
_DELETE = "delete it; the next cold start writes a new one"

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True)
class Envelope:
    """Named components, each a small JSON tree.

    Attributes:
        components: group (``engine``, ``python``, ``packages``, ``accelerator``, ``cpu``, ``parallelism``, ``model``,
            ``arguments``, ``environment``, ``paths``) to its content. Holds no secret.
    """

    components: Mapping[str, Json]

    @cached_property
    def document(self) -> bytes:
        """The envelope as canonical JSON: sorted keys, no spaces, UTF-8. Equal envelopes have equal documents."""
        return canonical_json({"schema": SCHEMA, "components": dict(self.components)})

    @cached_property
    def digest(self) -> str:
        """sha256 of the document, 64 hex digits: the object prefix."""
        return hashlib.sha256(self.document).hexdigest()

    @classmethod
    def parse(cls, document: bytes) -> Envelope:
        """Read a document that ``document`` wrote.

        Raises:
            BadManifest: not JSON, of another schema, or with a value that canonical JSON does not have.
        """
        try:
            tree = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise BadManifest(f"envelope is not JSON: {error}", hint=_DELETE) from None
        if not isinstance(tree, dict) or tree.get("schema") != SCHEMA or not isinstance(tree.get("components"), dict):
            raise BadManifest(f"envelope is not of schema {SCHEMA}", hint="it was written by another version of Glowplug")
        envelope = cls(tree["components"])
        try:
            # Nobody signs this document, so whoever may write to the store may put NaN, half a surrogate pair or a thousand levels
            # into it. Every later use goes through these two.
            envelope.flat()
            envelope.digest  # noqa: B018  cached
        except (ValueError, RecursionError) as error:
            raise BadManifest(f"envelope is not plain JSON: {error}", hint=_DELETE) from None
        return envelope

    def flat(self) -> dict[str, str]:
        """Every leaf by its dotted path (``packages.torch``), with its value as compact JSON."""
        return dict(_leaves("", dict(self.components)))


@dataclass(frozen=True, slots=True)
class Difference:
    """One component in which two envelopes differ."""

    path: str
    """Dotted, such as ``arguments.max-model-len``."""
    ours: str | None
    """Compact JSON; None where this side lacks it."""
    theirs: str | None
    """The same for the other side."""


def compare(ours: Envelope, theirs: Envelope) -> list[Difference]:
    """The components in which two envelopes differ, sorted by path; empty if and only if their digests are equal."""
    left, right = ours.flat(), theirs.flat()
    paths = sorted(left.keys() | right.keys())
    differing = [path for path in paths if left.get(path) != right.get(path)]
    # A group that is empty on one side is not a difference of its own beside the leaves that the other side has in it.
    return [Difference(path, left.get(path), right.get(path)) for path in differing if not _has_leaves(path, differing)]


def _has_leaves(group: str, paths: Sequence[str]) -> bool:
    """Whether one of these paths, sorted, lies below a group."""
    first = bisect.bisect_left(paths, f"{group}.")
    return first < len(paths) and paths[first].startswith(f"{group}.")


def canonical_json(tree: Json) -> bytes:
    """Equal trees give equal bytes: sorted keys, no spaces, UTF-8, no NaN."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _leaves(path: str, tree: Json) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict) and tree:
        for name, branch in tree.items():
            yield from _leaves(f"{path}.{name}" if path else name, branch)
    else:
        yield path, canonical_json(tree).decode()
