"""Credentials in plain text, and whose rights a pod uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, text, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests

_NAMES = frozenset(
    """
    HF_TOKEN HUGGING_FACE_HUB_TOKEN HUGGINGFACE_TOKEN HUGGINGFACEHUB_API_TOKEN AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
    VLLM_API_KEY OPENAI_API_KEY NGC_API_KEY GITHUB_TOKEN
    """.split()  # noqa: SIM905
)
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{30,}|\bnvapi-[A-Za-z0-9_-]{30,}|\bgh[pousr]_[A-Za-z0-9]{30,}")
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_PLACEHOLDER = re.compile(
    r"^$|[<>${}*]|your|change|replace|example|placeholder|dummy|xxx|\.\.\.|^(?:none|null|empty|token|secret|test|fake)$",
    re.IGNORECASE,
)
_OWN_AWS = ("AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE")


def _plain_variable(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        for container in (*pod.inits, *pod.containers):
            for index, entry in enumerate(items(container.body, "env")):
                name, value = text(entry, "name"), text(entry, "value")
                named = name in _NAMES and not _PLACEHOLDER.search(value)
                if named or _TOKEN.search(value) or _ACCESS_KEY.search(value):
                    yield container.problem(("env", index, "value"), f"{name[:60]} is written into the manifest")


def _plain_argument(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        for container in (*pod.inits, *pod.containers):
            for field in ("command", "args"):
                for index, word in enumerate(items(container.body, field)):
                    if _TOKEN.search(str(word)) or _ACCESS_KEY.search(str(word)):
                        yield container.problem((field, index), "a token is written into the command")
    for engine in manifests.engines:
        keys = engine.arguments.values.get("api-key")
        given = keys if isinstance(keys, list) else [keys]
        if any(isinstance(key, str) and not _PLACEHOLDER.search(key) for key in given):
            yield engine.problem("--api-key is written into the command", "api-key")


def _in_config(manifests: Manifests) -> Iterator[Problem]:
    for config in manifests.of("ConfigMap"):
        for name, value in tree(config.body, "data").items():
            if _TOKEN.search(text(value)) or _ACCESS_KEY.search(text(value)):
                yield config.problem(("data", name), f"{name[:60]} holds a token, and a ConfigMap is read by many")


def _rights_of_node(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container, pod = engine.container, engine.container.pod
        account = text(pod.spec, "serviceAccountName") or text(pod.spec, "serviceAccount")
        own = any(name in container.env for name in _OWN_AWS) or container.has_foreign_env
        elsewhere = "AWS_ENDPOINT_URL" in container.env or "AWS_ENDPOINT_URL_S3" in container.env
        if engine.model.startswith("s3://") and account in ("", "default") and not own and not elsewhere:
            yield pod.problem((), f"reads {engine.model[:60]} with the default service account: with the node's rights")


def _account_without_role(manifests: Manifests) -> Iterator[Problem]:
    seen = set()
    for engine in manifests.engines:
        pod = engine.container.pod
        account = manifests.find("ServiceAccount", text(pod.spec, "serviceAccountName"), pod.object.namespace)
        if account is None or account in seen or not engine.model.startswith("s3://"):
            continue
        seen.add(account)
        role = text(account.body, "metadata", "annotations", "eks.amazonaws.com/role-arn")
        if role and not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/.+", role) and not _PLACEHOLDER.search(role):
            yield account.problem(("metadata", "annotations"), f"eks.amazonaws.com/role-arn is no role's ARN: {role[:60]!r}")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP601",
        "Token in a variable, in plain text",
        "error",
        "Whoever reads the manifest, its repository or the pod's description has the token, and it stays there after it has"
        " expired.",
        "Put it into a Secret and refer to it by valueFrom.secretKeyRef.",
        ("B24", "B23"),
        _plain_variable,
    ),
    Rule(
        "GP602",
        "Token in a ConfigMap",
        "error",
        "A ConfigMap is neither encrypted nor guarded as Secrets are.",
        "Move it to a Secret.",
        ("B24",),
        _in_config,
    ),
    Rule(
        "GP603",
        "Model read with the node's rights",
        "warning",
        "Without a service account of its own the pod uses what the node's role may do, as every other pod there; and where pods"
        " are kept from the metadata service, it may do nothing.",
        "Name a serviceAccountName with IRSA or EKS Pod Identity.",
        ("A18", "B19"),
        _rights_of_node,
    ),
    Rule(
        "GP604",
        "Role of a service account that is no ARN",
        "error",
        "IRSA needs the whole ARN; the pod gets no credentials otherwise.",
        "Write arn:aws:iam::123456789012:role/NAME.",
        ("A18",),
        _account_without_role,
    ),
    Rule(
        "GP605",
        "Token in a command",
        "error",
        "Arguments are seen in the pod's description and in the node's process list.",
        "Put it into a Secret, and into a variable from there.",
        ("B24",),
        _plain_argument,
    ),
)
