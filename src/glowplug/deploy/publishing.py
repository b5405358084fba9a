"""The Job that compiles once for all: the same engine with the same command, as one who may publish, until it has.

The engine is a sidecar (an init container that restarts), and what makes the Job end is a small container beside it that waits for
the publication. Needs Kubernetes 1.29.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from glowplug.deploy.commented import note, plain
from glowplug.deploy.design import PUBLISHER
from glowplug.deploy.pod import STARTS, confined, engine, init_containers, pod_spec
from glowplug.deploy.workload import metadata

if TYPE_CHECKING:
    from glowplug.deploy.commented import Node, Object
    from glowplug.deploy.design import Design

_METRICS = f"{STARTS}/start.prom"
_PUBLISH_S = 600
_KEPT_S = 86_400
_DIGITS = 8
_WAIT = f"""\
until grep -q '^glowplug_publish_state' {_METRICS} 2>/dev/null; do sleep 2; done
grep '^glowplug_publish_state' {_METRICS}
grep -Eq '^glowplug_publish_state.*"(published|exists|nothing new)"' {_METRICS}
"""


def publisher(design: Design) -> list[Object]:
    """The Job, if it is to be one that publishes."""
    if design.wish.publish != "job":
        return []
    labels = design.labels(PUBLISHER)
    spec: Object = {
        note("backoffLimit", "Serving pods do not wait for this Job; without it each compiles for itself."): 2,
        note("activeDeadlineSeconds", "A roll-out's deadline, the slowest start included, and the publication."): (
            design.progress_deadline_s + design.startup_budget_s + _PUBLISH_S
        ),
        "ttlSecondsAfterFinished": _KEPT_S,
        "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(design)},
    }
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": job_metadata(design, "warmup", spec), "spec": spec}]


def job_metadata(design: Design, what: str, spec: Object) -> Object:
    """Of a Job."""
    digest = hashlib.sha256(json.dumps(plain(spec), sort_keys=True).encode()).hexdigest()[:_DIGITS]
    about = metadata(design, f"{design.name}-{what}-{digest}")
    why = "Ends in a digest of the spec: a Job can't be changed, so another spec is another Job."
    return {note("name", why) if key == "name" else key: value for key, value in about.items()}


def _pod(design: Design) -> Object:
    sidecar = _plain(engine(design, publisher=True))
    sidecar["env"] = [*_list(sidecar["env"]), {"name": "GLOWPLUG_METRICS", "value": _METRICS}]
    sidecar["volumeMounts"] = [*_list(sidecar["volumeMounts"]), {"name": "starts", "mountPath": STARTS}]
    sidecar = {
        "name": sidecar.pop("name"),
        note("restartPolicy", "A sidecar: it ends when the container below has."): "Always",
        **sidecar,
    }
    spec = _plain(pod_spec(design, account=design.publisher_account, publisher=True))
    spec["volumes"] = [*_list(spec["volumes"]), {"name": "starts", "emptyDir": {"sizeLimit": "16Mi"}}]
    why = "The Deployment's pod, where the reasons are, with an identity that may publish."
    made: Object = {note("restartPolicy", why): "Never"}
    for key, value in spec.items():
        if key == "volumes":
            made["initContainers"] = [*(_plain(each) for each in init_containers(design)), sidecar]
            made["containers"] = [_waiting(design)]
        made[key] = value
    return made


def _waiting(design: Design) -> Object:
    return {
        note(
            "name", "Starts once the engine is ready, and ends when its cache is published, or there was nothing to publish."
        ): "published",
        note("image", "The engine's, since it is on the node."): design.image,
        "command": ["/bin/sh", "-c", _WAIT],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "32Mi"}},
        "securityContext": confined(),
        "volumeMounts": [{"name": "starts", "mountPath": STARTS, "readOnly": True}],
    }


def _list(node: Node) -> list[Node]:
    """What a builder has made a list."""
    return node if isinstance(node, list) else []


def _plain(node: Node) -> Object:
    """An object without comments."""
    made = plain(node)
    return made if isinstance(made, dict) else {}
