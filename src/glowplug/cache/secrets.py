"""Secrets must not leave the pod: what a captured file is searched for.

Old vLLM versions wrote ``VLLM_API_KEY`` into ``cache_key_factors.json``, and a tree that is shared is a tree that is published.
Three kinds are looked for: the values of secret variables of this very environment (in any file), well-known token formats, and
assignments to names that say they are secret (both in text only). Found ones are named by file and kind, never by value.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from glowplug.errors import SecretFound

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRET_NAME = re.compile(
    r"(^|_)(API_?KEY|ACCESS_KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?|SIGNING_KEY)(_|$)|PASSWORD$", re.IGNORECASE
)
_NOT_A_SECRET = re.compile(r"(_FILE|_PATH|_DIR|_URI|_URL|_ARN|_NAME|_ID)$", re.IGNORECASE)  # where a secret is, not the secret
_MIN_VALUE = 8  # shorter values (`true`, `none`, `12345`) would match by chance

# Formats published by their issuers. Each has a literal part that is searched first, because a search for bytes is fast.
_TOKENS = (
    ("an AWS access key", b"AKIA", re.compile(rb"\bAKIA[0-9A-Z]{16}\b")),
    ("an AWS access key", b"ASIA", re.compile(rb"\bASIA[0-9A-Z]{16}\b")),
    ("a Hugging Face token", b"hf_", re.compile(rb"\bhf_[A-Za-z0-9]{30,}\b")),
    ("a GitHub token", b"gh", re.compile(rb"\bgh[pousr]_[A-Za-z0-9]{36,}\b")),
    ("a private key", b"PRIVATE KEY-----", re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
)
# NAME = "value", "NAME": "value", NAME: value. The name must be all capitals, as environment variables are: generated code is full
# of `cache_key = ...` with high-entropy values that are no secrets.
_ASSIGNMENT = re.compile(
    rb"\b([A-Z0-9_]*(?:API_?KEY|ACCESS_KEY|ACCESS_KEY_ID|SECRET|TOKEN|PASSWORD|SIGNING_KEY)(?:_[A-Z0-9_]+)?)[\"']?\s*[:=]\s*[\"']?"
    rb"([^\s\"',}]{8,})"
)
_ASSIGNMENT_HINTS = (b"KEY", b"TOKEN", b"SECRET", b"PASSWORD")
# A placeholder, or code that fetches the value: `os.environ.get(`, `settings["`.
_HARMLESS_VALUES = re.compile(rb"(?i)^(none|null|undefined|\*+|<[^>]*>|\$\{?[A-Z_]+\}?|[A-Z_][\w.]*[(\[].*)$")
_NUMBER = re.compile(rb"[\d._]+;?")  # how many tokens, or the number of one
_OVERLAP_BYTES = 4096


class SecretScan:
    """Looks at content piece by piece, for one thread. What straddles two pieces is found up to a length of 4 KiB.

    Args:
        env: the environment whose secret variables' values are looked for.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._values: list[tuple[str, bytes]] = []
        for name, value in env.items():
            if not _SECRET_NAME.search(name) or _NOT_A_SECRET.search(name) or len(value) < _MIN_VALUE or os.path.exists(value):
                continue
            # As it is, and as JSON would write it: a quote or a backslash in a password looks different there.
            spellings = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
            self._values += [(name, spelling.encode(errors="surrogateescape")) for spelling in spellings]
        self._path = ""
        self._tail = b""

    def check_values(self, what: str, document: bytes) -> None:
        """Look at a document of our own, for the values of secret variables alone: its names are not assignments.

        Raises:
            SecretFound: and names the document and the variable.
        """
        for name, value in self._values:
            if value in document:
                raise SecretFound(
                    f"{what} holds the value of {name}",
                    object=what,
                    hint="pass the secret in the variable alone, not on the command line or in a file's name",
                )

    def check(self, path: str, data: bytes | memoryview) -> None:
        """Look at the next piece of a file. Pieces of one file come in order and without another's between them.

        Raises:
            SecretFound: and names the file and what kind of secret it holds.
        """
        content = self._tail + data if path == self._path else bytes(data)
        self._path, self._tail = path, content[-_OVERLAP_BYTES:]
        for name, value in self._values:
            if value in content:
                raise _found(path, f"the value of {name}")
        if b"\0" in content[:8192]:
            return
        for kind, literal, pattern in _TOKENS:
            if literal in content and pattern.search(content):
                raise _found(path, kind)
        if any(hint in content for hint in _ASSIGNMENT_HINTS):
            for match in _ASSIGNMENT.finditer(content):
                counted = b"TOKEN" in match[1] and _NUMBER.fullmatch(match[2])
                if not counted and not _HARMLESS_VALUES.match(match[2]):
                    raise _found(path, f"a value for {match[1].decode()}")


def _found(path: str, what: str) -> SecretFound:
    return SecretFound(
        f"{path} holds {what}",
        object=path,
        hint="delete it from the live folder, and start once without the secret or with a newer engine",
    )
