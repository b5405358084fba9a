"""What a user asks for: one table of options, which the command line, the file and its JSON schema are all made of.

A value is what was written; whether it can be is decided in ``checks``, and what follows from it in ``design``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = Literal["text", "number", "switch", "list", "map"]

GPU_IMAGE = "vllm/vllm-openai:v0.32.0"
NEURON_IMAGE = "public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.9.1-neuronx-py310-sdk2.25.0-ubuntu22.04"


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that can be asked for.

    Attributes:
        name: as in a file and, after ``--``, on the command line.
        kind: what its value is.
        help: one line.
        metavar: stands for the value in help.
        choices: the only values; empty for any.
        default: what holds if nothing was said, as a text for people; empty where there is none.
        least: of a number; inclusive.
        most: of a number; inclusive.
    """

    name: str
    kind: Kind
    help: str
    metavar: str
    choices: tuple[str, ...]
    default: str
    least: int
    most: int

    @property
    def field(self) -> str:
        """The attribute of a ``Wish``."""
        return self.name.replace("-", "_")


def _option(
    default: object,
    about: str,
    *,
    kind: Kind = "text",
    metavar: str = "",
    choices: tuple[str, ...] = (),
    least: int = 0,
    most: int = 0,
) -> object:
    said = {"help": about, "kind": kind, "metavar": metavar, "choices": choices, "least": least, "most": most}
    return dataclasses.field(default=default, metadata=said)


def _text(default: str, about: str, metavar: str = "", *, choices: tuple[str, ...] = ()) -> str:
    return cast("str", _option(default, about, metavar=metavar, choices=choices))


def _number(default: int, about: str, metavar: str = "N", *, least: int = 1, most: int) -> int:
    return cast("int", _option(default, about, kind="number", metavar=metavar, least=least, most=most))


def _switch(about: str) -> bool:
    return cast("bool", _option(default=False, about=about, kind="switch"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be deployed. A default of 0 or an empty text means: as follows from the rest. Written down it is refused."""

    target: str = _text("gpu", "Accelerators that serve.", choices=("gpu", "neuron"))
    model: str = _text("", "The checkpoint.", "s3://BUCKET/PREFIX")
    weights: str = _text("", "Size of the weights, such as 65GB. Default: as the checkpoint's headers say.", "SIZE")
    config: str = _text("", "The model's config.json, where --weights is given; in a file relative to it.", "FILE")
    instance: str = _text("", "EC2 instance type of the nodes.", "TYPE")
    store: str = _text("", "Where compile caches are shared.", "s3://BUCKET/PREFIX")
    name: str = _text("", "Name of all objects. Default: from the model.", "NAME")
    namespace: str = _text("default", "Namespace of all objects.", "NAME")
    image: str = _text("", f"The engine's image. Default: {GPU_IMAGE}, or for neuron {NEURON_IMAGE}.", "IMAGE")
    glowplug_image: str = _text("", "Image in which glowplug is installed. Default: python:3.11-slim-bullseye, and pip.", "IMAGE")
    tp: int = _number(
        0, "Tensor parallelism. Default: the least that fits; for neuron all cores of the chips that it takes.", most=1024
    )
    max_model_len: int = _number(
        0, "Longest sequence, in tokens. Default: the model's, at most 8192; for neuron 2048.", most=100_000_000
    )
    batch: int = _number(8, "Sequences that a replica holds at once; neuron is compiled for exactly so many.", most=65536)
    engine_args: tuple[str, ...] = cast(
        "tuple[str, ...]",
        _option(
            (), "One more word for vllm serve, as --engine-args=--kv-cache-dtype=fp8; repeatable.", kind="list", metavar="WORD"
        ),
    )
    env: tuple[str, ...] = cast(
        "tuple[str, ...]", _option((), "A variable for the engine, no secret; repeatable.", kind="map", metavar="NAME=VALUE")
    )
    port: int = _number(8000, "Port of the server, its Service and its probes.", "PORT", most=65535)
    run_as_user: int = _number(1000, "User id of the containers; 0 is root.", "UID", least=0, most=2**31 - 1)
    api_key_secret: str = _text("", "Secret with the key api-key, which requests must then present.", "NAME")
    replicas: int = _number(1, "Least number of replicas.", most=1000)
    max_replicas: int = _number(0, "Largest number of replicas that autoscaling starts. Default: twice the replicas.", most=1000)
    rollout: str = _text(
        "in-place",
        "in-place: a new pod takes the devices of an old one. surge: spare devices, no gap.",
        choices=("in-place", "surge"),
    )
    autoscale: str = _text(
        "none",
        "Scale by running and waiting requests (keda, hpa), or by the processor (cpu).",
        choices=("none", "keda", "hpa", "cpu"),
    )
    prometheus: str = _text("http://prometheus-operated.monitoring.svc:9090", "The Prometheus that KEDA asks.", "URL")
    pod_monitor: bool = _switch("Write a PodMonitor, for the Prometheus operator.")
    dashboard: bool = _switch("Write a dashboard, as a ConfigMap that Grafana's sidecar finds.")
    ingress_host: str = _text("", "Write an Ingress for this host.", "HOST")
    ingress_class: str = _text("nginx", "Class of the Ingress.", "NAME")
    ingress_tls: str = _text("", "Secret with the certificate of the Ingress.", "NAME")
    publish: str = _text(
        "job", "Who compiles and publishes for all: a job that ends, every replica, or nobody.", choices=("job", "replicas", "none")
    )
    trusted_secret: str = _text("glowplug-trusted", "Secret with public keys (*.pub).", "NAME")
    signing_secret: str = _text("glowplug-signing", "Secret with the private key, as glowplug.key.", "NAME")
    kms_key: str = _text("", "Sign and verify with this key of KMS, and without the two secrets.", "ARN")
    identity: str = _text("pod-identity", "How pods get their AWS rights.", choices=("pod-identity", "irsa"))
    account: str = _text("", "AWS account, for the roles' names with irsa.", "ID")
    region: str = _text("", "AWS region of the buckets.", "REGION")
    nodes: str = _text(
        "none", "Write a NodePool and its class: Karpenter's own, or EKS Auto Mode's.", choices=("none", "karpenter", "auto")
    )
    cluster: str = _text("", "The EKS cluster's name: tags of its subnets, roles, Terraform.", "NAME")
    node_role: str = _text(
        "", "IAM role of the nodes. Default: KarpenterNodeRole-CLUSTER; with auto AmazonEKSAutoNodeRole.", "NAME"
    )
    capacity_type: str = _text("on-demand", "Capacity of the nodes.", choices=("on-demand", "spot"))
    neuron_resource: str = _text("chips", "What a Neuron pod asks for; one kind in the whole cluster.", choices=("chips", "cores"))
    load_test: str = _text("", "Write a suspended inference-perf Job, with this tokenizer.", "TOKENIZER")
    iac: str = _text(
        "terraform",
        "With --output: write roles and S3 endpoint for Terraform or CloudFormation.",
        choices=("terraform", "cloudformation", "none"),
    )


def options() -> tuple[Option, ...]:
    """All, in order."""
    return tuple(
        Option(
            name=field.name.replace("_", "-"),
            kind=field.metadata["kind"],
            help=field.metadata["help"],
            metavar=field.metadata["metavar"],
            choices=field.metadata["choices"],
            default="" if not field.default else str(field.default),
            least=field.metadata["least"],
            most=field.metadata["most"],
        )
        for field in dataclasses.fields(Wish)
    )


def json_schema() -> dict[str, object]:
    """The schema of a file (``--file``), JSON Schema 2020-12."""
    properties: dict[str, object] = {}
    shapes: Mapping[Kind, dict[str, object]] = {
        "text": {"type": "string", "minLength": 1},
        "number": {"type": "integer"},
        "switch": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    for option in options():
        shape = {**shapes[option.kind], "description": option.help}
        if option.kind == "number":
            shape |= {"minimum": option.least, "maximum": option.most}
        if option.choices:
            shape["enum"] = list(option.choices)
        if option.default:
            shape["default"] = int(option.default) if option.kind == "number" else option.default
        properties[option.name] = shape
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://glowplug.dev/schema/deploy.v1.json",
        "title": "What glowplug deploy --file reads",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
