"""The policy files, filled in, and a judge over them: it knows what they use of IAM's language, and refuses all else."""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "policies"
BUCKET, PREFIX, READER = "glowplug", "fleet", "team-a"
MODELS_PREFIX = "models"
KEY_ARN = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
VALUES = {
    "STORE_BUCKET": BUCKET,
    "STORE_PREFIX": PREFIX,
    "REPORTS_AS": READER,
    "MODELS_BUCKET": BUCKET,
    "MODELS_PREFIX": MODELS_PREFIX,
    "KEY_ARN": KEY_ARN,
}
_STATEMENT = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}


@dataclass(frozen=True)
class Statement:
    """One permission, or one refusal."""

    name: str
    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: dict[str, dict[str, tuple[str, ...]]]

    def covers(self, action: str, resource: str, context: dict[str, str]) -> bool:
        return action in self.actions and any(matches(resource, each) for each in self.resources) and self._holds(context)

    def _holds(self, context: dict[str, str]) -> bool:
        wanted = [(operator, *item) for operator, keys in self.condition.items() for item in keys.items()]
        return all(_operator(operator, context.get(key), values) for operator, key, values in wanted)


def _operator(operator: str, value: str | None, wanted: tuple[str, ...]) -> bool:
    match operator:
        case "StringEquals":
            return value in wanted
        case "StringLike":
            return value is not None and any(matches(value, each) for each in wanted)
        case "Null":
            return (value is None) == (wanted == ("true",))
    raise AssertionError(f"the judge does not know {operator}")


def matches(value: str, pattern: str) -> bool:
    """Whether IAM's pattern covers the value: ``*`` and ``?``, across slashes."""
    return fnmatch.fnmatchcase(value, pattern.replace("[", "[[]"))


@dataclass(frozen=True)
class Policy:
    """A policy document."""

    statements: tuple[Statement, ...]

    def allows(self, action: str, resource: str, context: dict[str, str] | None = None) -> bool:
        covering = [each for each in self.statements if each.covers(action, resource, context or {})]
        return bool(covering) and all(each.allows for each in covering)

    def refuses(self, action: str, resource: str, context: dict[str, str] | None = None) -> bool:
        """Whether a statement says no, as opposed to none saying yes."""
        return any(not each.allows and each.covers(action, resource, context or {}) for each in self.statements)


def text(name: str, **values: str) -> str:
    """A policy file with its placeholders filled in."""
    document = (FOLDER / f"{name}.json").read_text()
    for placeholder, value in (VALUES | values).items():
        document = document.replace(f"@{placeholder}@", value)
    assert not re.search(r"@[A-Z_]+@", document), document
    return document


def merged(*names: str, **values: str) -> str:
    """Several files as one document, as an identity with all of them attached has it."""
    documents = [json.loads(text(name, **values)) for name in names]
    return json.dumps(documents[0] | {"Statement": [each for document in documents for each in document["Statement"]]})


def parse(document: str) -> Policy:
    """The judge over a document."""
    content = json.loads(document)
    assert content["Version"] == "2012-10-17"
    return Policy(tuple(_statement(each) for each in content["Statement"]))


def _statement(content: dict) -> Statement:
    assert set(content) <= _STATEMENT, content
    condition = {
        operator: {key: _several(values) for key, values in keys.items()} for operator, keys in content.get("Condition", {}).items()
    }
    return Statement(
        content["Sid"], content["Effect"] == "Allow", _several(content["Action"]), _several(content["Resource"]), condition
    )


def _several(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
