"""IAM documents of the two identities of a deployment, from the repository's ``policies/``: read here, never written a second time.

The server reads caches and weights; the publisher may put caches besides. Nobody deletes anything.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from glowplug.deploy.checks import bucket_and_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.deploy.design import Design


def statements(design: Design, *, publisher: bool) -> list[dict[str, Any]]:
    """What an identity may do.

    Args:
        design: of the deployment.
        publisher: for the one that signs.
    """
    wish = design.wish
    reader = "cache-reader-eks" if wish.identity == "pod-identity" else "cache-reader"
    names = ["cache-writer" if publisher else reader, "weights-reader"]
    if wish.kms_key:
        names.append("signing-key" if publisher else "trusted-key")
    store_bucket, store_prefix = bucket_and_prefix(wish.store, option="--store", what="the store")
    models_bucket, models_prefix = bucket_and_prefix(wish.model, option="--model", what="the checkpoint")
    values = {
        "@STORE_BUCKET@": store_bucket,
        "@STORE_PREFIX@": store_prefix,
        "@MODELS_BUCKET@": models_bucket,
        "@MODELS_PREFIX@": models_prefix,
        "@REPORTS_AS@": wish.namespace,
        "@KEY_ARN@": wish.kms_key,
    }
    return [statement for name in names for statement in _filled(name, values)]


def _filled(name: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
    text = resources.files("glowplug.deploy").joinpath(f"policies/{name}.json").read_text("utf-8")
    if not values["@STORE_PREFIX@"]:
        text = text.replace("@STORE_PREFIX@/", "")
    for placeholder, value in values.items():
        text = text.replace(placeholder, json.dumps(value)[1:-1])
    document: dict[str, list[dict[str, Any]]] = json.loads(text)
    return document["Statement"]
