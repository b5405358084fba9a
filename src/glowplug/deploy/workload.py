"""The Deployment and what stands around it: ServiceAccounts, Service, Ingress, PodDisruptionBudget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.deploy.commented import note
from glowplug.deploy.design import PUBLISHER, SERVER
from glowplug.deploy.pod import engine, init_containers, pod_spec

if TYPE_CHECKING:
    from glowplug.deploy.commented import Node, Object
    from glowplug.deploy.design import Design

_NO_REPLICAS = (
    "No replicas here: the autoscaler sets them, and an apply must not undo that. Where the Deployment is there already with "
    "replicas of its own, hand them over first (docs/deploy.md), or this apply sets them to 1."
)


def metadata(design: Design, name: str = "") -> Object:
    """Of a namespaced object."""
    return {"name": name or design.name, "namespace": design.wish.namespace, "labels": dict(design.labels())}


def accepted(about: Object, rule: str, reason: str) -> Object:
    """Metadata that tells ``glowplug doctor`` to accept what was asked for against its advice."""
    return {**about, "annotations": {"glowplug.dev/ignore": f"{rule}: {reason}"}}


def accounts(design: Design) -> list[Object]:
    """The server's, and the publisher's where that is another identity."""
    made = [_account(design, design.name, SERVER)]
    if design.wish.publish == "job":
        made.append(_account(design, design.publisher_account, PUBLISHER))
    return made


def _account(design: Design, name: str, component: str) -> Object:
    about = metadata(design, name)
    if design.wish.identity == "irsa":
        arn = f"arn:aws:iam::{design.wish.account}:role/{design.role_name(component)}"
        about["annotations"] = {note("eks.amazonaws.com/role-arn", f"Rights of the {component} alone, not the node's."): arn}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about, "automountServiceAccountToken": False}


def deployment(design: Design) -> Object:
    """The Deployment."""
    scaled = design.wish.autoscale != "none"
    why = [_NO_REPLICAS] if scaled else []
    why.append("Node, image pull and the slowest start of the plan; the default of 600 s calls that failed.")
    spec: Object = {} if scaled else {"replicas": design.wish.replicas}
    spec |= {
        note("progressDeadlineSeconds", *why): design.progress_deadline_s,
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": dict(design.labels(SERVER))},
        "strategy": _strategy(design),
        "template": {"metadata": {"labels": dict(design.labels(SERVER))}, "spec": _serving_pod(design)},
    }
    about = metadata(design)
    if design.wish.rollout == "surge":
        about = accepted(about, "GP107", "spare accelerators were promised (--rollout surge)")
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec}


def _strategy(design: Design) -> Object:
    if design.wish.rollout == "surge":
        return {
            "type": "RollingUpdate",
            "rollingUpdate": {
                note(
                    "maxSurge", f"Needs {design.devices} more {design.resource}, on this node or a new one, for each roll-out."
                ): 1,
                "maxUnavailable": 0,
            },
        }
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {
            note(
                "maxSurge",
                "A surged pod would wait for devices that the old one holds, and the old one for the new one: for ever.",
            ): 0,
            "maxUnavailable": 1,
        },
    }


def _serving_pod(design: Design) -> Object:
    container = engine(design, publisher=design.is_served_by_publishers)
    probes = design.probes
    container |= {
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": probes.readiness_period_s,
            "failureThreshold": probes.readiness_failures,
            "timeoutSeconds": 3,
        },
        note("livenessProbe", "Asked only after the startup probe has succeeded, so it can't kill a start."): {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": probes.liveness_period_s,
            "failureThreshold": probes.liveness_failures,
            "timeoutSeconds": 5,
        },
        note("lifecycle", "Until all proxies know that the pod ends, it goes on serving."): {
            "preStop": {"exec": {"command": ["sleep", str(design.drain_s)]}}
        },
    }
    spec = pod_spec(design, account=design.name, publisher=design.is_served_by_publishers)
    laid_out: Object = {}
    for key, value in spec.items():
        if key == "volumes":
            laid_out |= _spread(design)
            laid_out["initContainers"] = init_containers(design)
            laid_out["containers"] = [container]
        laid_out[key] = value
    return laid_out


def _spread(design: Design) -> Object:
    if design.max_replicas == 1:
        return {}
    return {
        note("topologySpreadConstraints", "A wish, no condition: accelerators are not to be had in every zone."): [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(design.labels(SERVER))},
            }
        ]
    }


def service(design: Design) -> Object:
    """The Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(design),
        "spec": {
            "selector": dict(design.labels(SERVER)),
            "ports": [{"name": "http", "port": design.wish.port, "targetPort": "http", "appProtocol": "http"}],
        },
    }


def ingress(design: Design) -> list[Object]:
    """The Ingress, if there is to be one."""
    wish = design.wish
    if not wish.ingress_host:
        return []
    about = metadata(design)
    if wish.ingress_class == "nginx":
        about["annotations"] = {
            note("nginx.ingress.kubernetes.io/proxy-read-timeout", "The default of 60 s cuts long answers off."): "3600",
            "nginx.ingress.kubernetes.io/proxy-send-timeout": "3600",
            note("nginx.ingress.kubernetes.io/proxy-buffering", "Tokens are passed on as they come."): "off",
            "nginx.ingress.kubernetes.io/proxy-body-size": "32m",
        }
    backend: Node = {"service": {"name": design.name, "port": {"name": "http"}}}
    warning = [] if wish.api_key_secret else ["Whoever reaches the host may use the model: add --api-key-secret."]
    spec: Object = {"ingressClassName": wish.ingress_class}
    if wish.ingress_tls:
        spec["tls"] = [{"hosts": [wish.ingress_host], "secretName": wish.ingress_tls}]
    spec["rules"] = [
        {
            "host": wish.ingress_host,
            "http": {
                "paths": [
                    {
                        note("path", "Not /: that would show /metrics and vLLM's other doors to everybody.", *warning): "/v1",
                        "pathType": "Prefix",
                        "backend": backend,
                    }
                ]
            },
        }
    ]
    return [{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": about, "spec": spec}]


def disruption_budget(design: Design) -> Object:
    """The PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(design),
        "spec": {
            note("maxUnavailable", "minAvailable: 1 with one replica would block every drain for ever."): 1,
            note("unhealthyPodEvictionPolicy", "A pod that is still starting does not hold a drain up."): "AlwaysAllow",
            "selector": {"matchLabels": dict(design.labels(SERVER))},
        },
    }
