"""All files of a deployment, in the order in which they are applied. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glowplug.deploy.cloud import cloudformation, terraform
from glowplug.deploy.emit import heading, to_stream, to_yaml
from glowplug.deploy.load import load_test
from glowplug.deploy.monitoring import dashboard, pod_monitor
from glowplug.deploy.neuron import helm_values
from glowplug.deploy.nodes import nodes
from glowplug.deploy.publishing import publisher
from glowplug.deploy.scaling import autoscaler
from glowplug.deploy.workload import accounts, deployment, disruption_budget, ingress, service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.deploy.commented import Object
    from glowplug.deploy.design import Design

KUSTOMIZATION = "kustomization.yaml"


@dataclass(frozen=True, slots=True)
class File:
    """One file.

    Attributes:
        path: below the folder.
        objects: of a manifest; empty for a file that is none.
        text: what is written.
    """

    path: str
    objects: tuple[Object, ...]
    text: str


def manifests(design: Design) -> list[tuple[str, list[Object]]]:
    """The objects for the cluster, by file, without the files that would be empty."""
    made = [
        ("serviceaccount.yaml", accounts(design)),
        ("nodes.yaml", nodes(design)),
        ("deployment.yaml", [deployment(design)]),
        ("service.yaml", [service(design)]),
        ("ingress.yaml", ingress(design)),
        ("poddisruptionbudget.yaml", [disruption_budget(design)]),
        ("autoscaling.yaml", autoscaler(design)),
        ("podmonitor.yaml", pod_monitor(design)),
        ("dashboard.yaml", dashboard(design)),
        ("warmup.yaml", publisher(design)),
        ("load-test.yaml", load_test(design)),
    ]
    return [(path, objects) for path, objects in made if objects]


def objects(design: Design) -> list[Object]:
    """All of them, in order."""
    return [each for _, group in manifests(design) for each in group]


def stream(design: Design) -> str:
    """One YAML stream, for ``kubectl apply -f -``."""
    heads = [introduction(design)] + [""] * (len(objects(design)) - 1)
    return to_stream(zip(heads, objects(design), strict=True))


def files(design: Design) -> list[File]:
    """All files of a folder."""
    made = [File(path, tuple(group), to_stream(("", each) for each in group)) for path, group in manifests(design)]
    kustomization: Object = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [file.path for file in made],
    }
    made.append(File(KUSTOMIZATION, (), heading(introduction(design)) + to_yaml(kustomization)))
    return [*made, *_beside(design)]


def _beside(design: Design) -> Iterator[File]:
    """What is no manifest, and so not in the kustomization."""
    values = helm_values(design)
    if values is not None:
        yield File("neuron-helm-values.yaml", (), heading(_HELM) + to_yaml(values))
    if design.wish.iac == "terraform":
        yield File("glowplug.tf.json", (), terraform(design))
    elif design.wish.iac == "cloudformation":
        yield File("cloudformation.yaml", (), heading(_CLOUDFORMATION) + to_yaml(cloudformation(design)))


_HELM = """\
For AWS's chart:
  helm upgrade --install neuron oci://public.ecr.aws/neuron/neuron-helm-chart -n kube-system -f neuron-helm-values.yaml
"""
_CLOUDFORMATION = """\
Creates named roles:
  aws cloudformation deploy --template-file cloudformation.yaml --stack-name glowplug --capabilities CAPABILITY_NAMED_IAM
"""


def introduction(design: Design) -> str:
    """What must be there first, and what the plan expects."""
    wish = design.wish
    cold, warm = design.plan.start("cold"), design.plan.start("warm")
    expected = (
        f"Expected from the wish for a node to ready: {cold.total_s:.0f} s cold, {warm.total_s:.0f} s with a restored cache; "
        f"in the pod {cold.container_s:.0f} s and {warm.container_s:.0f} s (glowplug plan tells how it is known)."
    )
    lines = [f"{wish.model} on {design.instance.name}, tensor parallelism {design.tp}. Written by glowplug deploy.", expected]
    if not wish.kms_key:
        lines += ["Before it is applied, the keys (docs/keys.md):", "  glowplug keys create --out fleet"]
        create = f"  kubectl -n {wish.namespace} create secret generic"
        if wish.publish != "none":
            lines.append(f"{create} {wish.signing_secret} --from-file=glowplug.key=fleet.key")
        lines.append(f"{create} {wish.trusted_secret} --from-file=glowplug.pub=fleet.pub")
    lines.append(
        "The roles of the ServiceAccounts and the S3 gateway endpoint: glowplug deploy --output FOLDER writes them, for Terraform "
        "or CloudFormation."
    )
    return "\n".join(lines)
