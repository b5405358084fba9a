"""What can't be deployed: values out of bounds, options that contradict each other. One clear error each, before reading."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from glowplug.deploy.wish import NEURON_IMAGE, options
from glowplug.engines.environment import is_secret
from glowplug.engines.vllm.weights import OLDEST
from glowplug.errors import UsageError
from glowplug.store.keys import is_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from glowplug.deploy.wish import Wish

MOST_NAME = 40
"""So that what is put behind a name (-warmup-1a2b3c4d and a pod's own digits) still fits 63 characters."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
_IMAGE = r"[a-z0-9][a-z0-9._/-]*(:\d+/[a-z0-9._/-]+)?(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMS = {
    "ingress_host": (
        r"(\*\.)?([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
        "host name",
        "write it as llm.example.com, without https:// and path",
    ),
    "image": (_IMAGE, "image", "write it as registry/name:tag"),
    "glowplug_image": (_IMAGE, "image", "write it as registry/name:tag"),
    "kms_key": (
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+",
        "key's ARN",
        "write arn:aws:kms:REGION:ACCOUNT:key/ID; policies can't name an alias",
    ),
    "account": (r"\d{12}", "AWS account", "it has 12 digits"),
    "region": (r"[a-z]{2}(-[a-z]+)+-\d", "region", "write it as eu-central-1"),
    "cluster": (r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", "name of an EKS cluster", "write it as aws eks list-clusters shows it"),
    "node_role": (r"[A-Za-z0-9+=,.@_-]{1,64}", "role's name", "write the name, not the ARN"),
    "prometheus": (r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9./_-]*)?", "URL", "write http://HOST:9090"),
    "load_test": (r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}", "tokenizer's name", "write it as Qwen/Qwen3-32B"),
}
"""Field to what it must look like, what it then is, and what to write."""
# What deploy writes itself. A second value would win over the one that memory, probes and ports were computed for.
_OURS = {
    "--model": "--model",
    "--tensor-parallel-size": "--tp",
    "-tp": "--tp",
    "--max-model-len": "--max-model-len",
    "--port": "--port",
    "--host": "--port",
    "--served-model-name": "--name",
    "--device": "--target",
    "--max-num-seqs": "--batch",
}


def check(wish: Wish, given: Collection[str] = ()) -> None:
    """Before anything is planned.

    Args:
        wish: what is asked for.
        given: its fields that somebody has written down, be it as what holds anyway. Others count where they differ from that.

    Raises:
        UsageError: the first thing that can't be.
    """
    _check_choices(wish)
    _check_needed(wish)
    _check_empty(wish, given)
    _check_names(wish)
    _check_numbers(wish, given)
    _check_engine(wish)
    _check_needs(wish, given)
    _check_together(wish)


def bucket_and_prefix(uri: str, *, option: str, what: str) -> tuple[str, str]:
    """Of ``s3://bucket/prefix``; the prefix has no slash at its ends and may be empty.

    Raises:
        UsageError: it is nothing of S3.
    """
    found = _BUCKET.fullmatch(uri)
    if found is None:
        hint = f"{what} must be reachable from every node: write s3://BUCKET/PREFIX"
        if uri.startswith(("file:", "/", ".")):
            raise UsageError(f"{option}: {uri} is a folder of one machine", object=option, hint=hint)
        raise UsageError(f"{option}: {uri!r} is no place in S3", object=option, hint=hint)
    prefix = (found[2] or "").strip("/")
    if prefix and {"", ".", ".."} & set(prefix.split("/")):
        hint = "write each part's own name: to S3 they are names like others, and a client or a policy may think otherwise"
        raise UsageError(f"{option}: {uri} has a part that is empty, . or ..", object=option, hint=hint)
    if prefix and not re.fullmatch(r"[A-Za-z0-9!_.()/=+-]+", prefix):
        hint = "use letters, digits and ! _ . - ( ) = + /: a policy and a shell read others in ways of their own"
        raise UsageError(f"{option}: the prefix {prefix!r} has characters that can't be", object=option, hint=hint)
    return found[1], prefix


def _check_choices(wish: Wish) -> None:
    for option in options():
        value = getattr(wish, option.field)
        if option.choices and value not in option.choices:
            hint = f"choose one of {', '.join(option.choices)}"
            raise UsageError(f"--{option.name}: {value!r} is not known", object=f"--{option.name}", hint=hint)


def _check_needed(wish: Wish) -> None:
    for field, example in (
        ("model", "--model s3://bucket/models/qwen3-32b"),
        ("instance", "--instance p4d.24xlarge"),
        ("store", "--store s3://bucket/glowplug"),
    ):
        if not getattr(wish, field):
            raise UsageError(f"--{field} is missing", object=f"--{field}", hint=f"add {example}")
    if not wish.model.startswith("s3://"):
        hint = "bring it there: glowplug weights push FOLDER s3://BUCKET/PREFIX"
        raise UsageError(f"--model: {wish.model!r} is no checkpoint in S3", object="--model", hint=hint)
    _, prefix = bucket_and_prefix(wish.model, option="--model", what="the checkpoint")
    if not prefix:
        raise UsageError(f"--model: {wish.model} names a whole bucket", object="--model", hint="write s3://BUCKET/PREFIX")
    _, prefix = bucket_and_prefix(wish.store, option="--store", what="the store")
    if prefix and not is_key(prefix):
        hint = "use letters, digits and . _ = - in parts separated by /"
        raise UsageError(f"--store: a store can't have the prefix {prefix!r}", object="--store", hint=hint)


def _check_empty(wish: Wish, given: Collection[str]) -> None:
    for option in options():
        if option.kind == "text" and not getattr(wish, option.field) and (option.default or option.field in given):
            raise UsageError(f"--{option.name} is empty", object=f"--{option.name}", hint="leave it out")


def _check_names(wish: Wish) -> None:
    for field in ("name", "namespace", "api_key_secret", "ingress_class", "ingress_tls", "trusted_secret", "signing_secret"):
        text, most, option = getattr(wish, field), MOST_NAME if field == "name" else 63, _shown(field)
        if text and (not _LABEL.fullmatch(text) or len(text) > most):
            hint = f"use at most {most} of a-z, 0-9 and -, beginning with a letter and not ending with -"
            raise UsageError(f"{option}: {text!r} is no name that Kubernetes takes", object=option, hint=hint)
    for field, (form, said, hint) in _FORMS.items():
        text, option = getattr(wish, field), _shown(field)
        if text and (not re.fullmatch(form, text) or len(text) > 512):
            raise UsageError(f"{option}: {text!r} is no {said}", object=option, hint=hint)
    for field in ("image", "glowplug_image"):
        text, option = getattr(wish, field), _shown(field)
        if text and "@" not in text and (":" not in text.rpartition("/")[2] or text.endswith(":latest")):
            hint = "name a tag or a digest: replicas of two versions share no cache"
            raise UsageError(f"{option}: {text} may be another image tomorrow", object=option, hint=hint)


def _shown(field: str) -> str:
    return "--" + field.replace("_", "-")


def _check_numbers(wish: Wish, given: Collection[str]) -> None:
    for each in options():
        if each.kind != "number":
            continue
        value, option = getattr(wish, each.field), f"--{each.name}"
        is_unsaid = value == 0 and not each.default and each.field not in given
        if not is_unsaid and not each.least <= value <= each.most:
            hint = f"write a number from {each.least} to {each.most}"
            if option == "--replicas" and value == 0:
                hint = "with none running nothing tells that requests wait, so nothing would start one again"
            raise UsageError(f"{option}: {value} can't be", object=option, hint=hint)
    if wish.run_as_user and wish.port < 1024:
        hint = "take 8000, or --run-as-user 0"
        raise UsageError(f"--port {wish.port} needs root", object="--port", hint=hint)


def _check_engine(wish: Wish) -> None:
    _check_accelerator(wish)
    _check_version(wish)
    for word in wish.engine_args:
        _check_word(word)
    _check_values(wish.engine_args)
    _check_variables(wish)


def _check_accelerator(wish: Wish) -> None:
    """An image that says by its name for which accelerators it was built."""
    name = wish.image.rpartition("/")[2]
    if wish.target == "neuron" and name.startswith("vllm-openai") and "neuron" not in wish.image:
        hint = f"leave it out, or name one that has: the default is {NEURON_IMAGE}"
        raise UsageError(f"--image: {wish.image} has no Neuron SDK", object="--image", hint=hint)
    if wish.target == "gpu" and "neuron" in name:
        hint = "leave it out, or use --target neuron and an instance type with Neuron devices"
        raise UsageError(f"--image: {wish.image} is for Neuron, not for GPUs", object="--image", hint=hint)


def _check_values(words: tuple[str, ...]) -> None:
    """A word that is no option must be the value of one; several may follow an option that takes a list."""
    takes = False
    for word in words:
        if word in {"-", "--"} or not (takes or word.startswith("-")):
            hint = "write options with their dashes, as --engine-args=--kv-cache-dtype=fp8"
            raise UsageError(f"--engine-args: {word!r} is no option, and no option's value", object="--engine-args", hint=hint)
        if word.startswith("-"):
            takes = "=" not in word


def _check_version(wish: Wish) -> None:
    old = re.search(r"vllm-openai:v?(\d+)\.(\d+)", wish.image) if wish.target == "gpu" else None
    if old and (int(old[1]), int(old[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(
            f"--image: {wish.image} is older than vLLM {oldest}, and would find no weights",
            object="--image",
            hint=f"take {oldest} or later: Glowplug streams the weights to it",
        )


def _check_word(word: str) -> None:
    name = word.partition("=")[0].replace("_", "-")
    if not word or (word.startswith("-") and re.search(r"\s", name)):
        hint = "write --engine-args=--kv-cache-dtype=fp8, or --engine-args twice"
        raise UsageError(f"--engine-args: {word!r} is not one word", object="--engine-args", hint=hint)
    if name in {"--api-key", "--hf-token"}:
        hint = "a manifest is no place for a secret; vLLM's API key goes by --api-key-secret"
        raise UsageError(f"--engine-args: {name} looks like a secret", object="--engine-args", hint=hint)
    if name in _OURS:
        raise UsageError(f"--engine-args: {name} is written by deploy itself", object="--engine-args", hint=f"use {_OURS[name]}")
    if name == "--enforce-eager":
        hint = "leave it out; where nothing may be compiled, there is nothing for a store to share"
        raise UsageError(
            "--engine-args: --enforce-eager compiles nothing, and --store shares what is compiled",
            object="--engine-args",
            hint=hint,
        )
    if name == "--load-format":
        hint = "leave it out: Glowplug streams the weights"
        raise UsageError(
            "--engine-args: with a load format of its own the engine fetches the weights by itself",
            object="--engine-args",
            hint=hint,
        )


def _check_variables(wish: Wish) -> None:
    seen: set[str] = set()
    for entry in wish.env:
        name, equals, value = entry.partition("=")
        if name in seen:
            raise UsageError(f"--env: {name} is given twice", object="--env", hint="give the one that counts")
        seen.add(name)
        if not equals or not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env: {entry!r} is no NAME=VALUE", object="--env", hint="write --env NAME=VALUE")
        if is_secret(name) and value:
            hint = "a manifest is no place for a secret; vLLM's API key goes by --api-key-secret"
            raise UsageError(f"--env: {name} looks like a secret", object="--env", hint=hint)
        if name in {
            "VLLM_CACHE_ROOT",
            "TORCHINDUCTOR_CACHE_DIR",
            "TRITON_CACHE_DIR",
            "NEURON_COMPILED_ARTIFACTS",
        } or name.startswith("GLOWPLUG_"):
            raise UsageError(f"--env: {name} is set by Glowplug itself", object="--env", hint="leave it out")


# Field to whether anything uses it, what it says if nothing does, and what to do.
_NEEDS: tuple[tuple[str, Callable[[Wish], bool], str, str], ...] = (
    ("max_replicas", lambda wish: wish.autoscale != "none", "nothing scales", "add --autoscale keda, or leave it out"),
    ("prometheus", lambda wish: wish.autoscale == "keda", "only KEDA is told of it", "add --autoscale keda, or leave it out"),
    ("ingress_class", lambda wish: bool(wish.ingress_host), "there is no Ingress", "add --ingress-host HOST, or leave it out"),
    ("ingress_tls", lambda wish: bool(wish.ingress_host), "there is no Ingress", "add --ingress-host HOST, or leave it out"),
    ("node_role", lambda wish: wish.nodes != "none", "no nodes are written", "add --nodes karpenter, or leave it out"),
    ("capacity_type", lambda wish: wish.nodes != "none", "no nodes are written", "add --nodes karpenter, or leave it out"),
    (
        "cluster",
        lambda wish: wish.nodes != "none" or (wish.identity == "pod-identity" and wish.iac != "none"),
        "nothing that is written names it",
        "add --nodes karpenter, or leave it out",
    ),
    ("signing_secret", lambda wish: wish.publish != "none", "with --publish none nobody signs", "leave one of the two out"),
    ("signing_secret", lambda wish: not wish.kms_key, "it is the key of --kms-key that signs", "leave one of the two out"),
    ("trusted_secret", lambda wish: not wish.kms_key, "it is the key of --kms-key that is trusted", "leave one of the two out"),
    ("account", lambda wish: wish.identity == "irsa", "is for --identity irsa", "add that, or leave it out"),
    ("neuron_resource", lambda wish: wish.target == "neuron", "is for --target neuron", "leave it out"),
    ("config", lambda wish: bool(wish.weights), "a checkpoint that is read has its own", "add --weights SIZE, or leave it out"),
)


def _check_needs(wish: Wish, given: Collection[str]) -> None:
    """An option that would have no effect."""
    defaults = {field.name: field.default for field in dataclasses.fields(wish)}
    for field, is_used, message, hint in _NEEDS:
        if (field in given or getattr(wish, field) != defaults[field]) and not is_used(wish):
            raise UsageError(f"{_shown(field)}: {message}", object=_shown(field), hint=hint)


def _check_together(wish: Wish) -> None:
    for option, wrong, message, hint in (
        (
            "--max-replicas",
            0 < wish.max_replicas < wish.replicas,
            f"{wish.max_replicas} are fewer than --replicas {wish.replicas}",
            "raise it",
        ),
        (
            "--identity irsa",
            wish.identity == "irsa" and not wish.account,
            "needs the account, for the roles' ARNs",
            "add --account 111122223333",
        ),
        (
            f"--nodes {wish.nodes}",
            wish.nodes != "none" and not wish.cluster,
            "needs the cluster's name, by which subnets are found",
            "add --cluster NAME",
        ),
    ):
        if wrong:
            raise UsageError(f"{option}: {message}", object=option.partition(" ")[0], hint=hint)
