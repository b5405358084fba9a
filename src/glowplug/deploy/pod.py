"""The pod that serves: Glowplug is put beside the vendor's image, then starts the engine. The publisher's has the same parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.deploy.command import command, environment, inject_command
from glowplug.deploy.commented import note
from glowplug.units import GIB, MIB

if TYPE_CHECKING:
    from glowplug.deploy.commented import Node, Object
    from glowplug.deploy.design import Design

INJECTED = "/glowplug"
CACHE = "/var/cache/glowplug"
WEIGHTS = "/var/lib/weights"
STARTS = "/var/run/glowplug"
TRUSTED, SIGNING = "/etc/glowplug/trusted", "/etc/glowplug/signing"
_KEY_MODE = 0o440
"""Of a private key: its owner reads it, and the pod's group."""
_INJECTED_MIB = 512
_TMP_MIB = 2048


def pod_spec(design: Design, *, account: str, publisher: bool) -> Object:
    """A pod's spec without its containers: whom it runs as, where, and with which volumes.

    Args:
        design: of the deployment.
        account: its ServiceAccount.
        publisher: whether it signs.
    """
    spec: Object = {
        "serviceAccountName": account,
        note("automountServiceAccountToken", "The engine asks nothing of the cluster; AWS credentials come another way."): False,
        note(
            "enableServiceLinks",
            "Else a Service called vllm sets VLLM_PORT=tcp://..., and each Service changes the variables that vLLM hashes.",
        ): False,
        note(
            "terminationGracePeriodSeconds", f"{design.drain_s} s until nobody sends requests any more, the rest to answer them."
        ): (design.grace_s),
        "securityContext": _security(design),
        "nodeSelector": _node_selector(design),
        "tolerations": [{"key": _taint(design), "operator": "Exists", "effect": "NoSchedule"}],
    }
    if design.needs_neuron_scheduler:
        spec[
            note(
                "schedulerName",
                f"{design.devices} of {design.total} must be neighbours, which the default scheduler does not know. "
                "The Neuron scheduler extension must run (neuron-helm-values.yaml).",
            )
        ] = "my-scheduler"
    spec["volumes"] = volumes(design, publisher=publisher)
    return spec


def _security(design: Design) -> Object:
    user = design.wish.run_as_user
    if user == 0:
        return {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        note("fsGroup", "Volumes are this group's, so that keys can be read and caches written."): user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _taint(design: Design) -> str:
    return "aws.amazon.com/neuron" if design.is_neuron else "nvidia.com/gpu"


def _node_selector(design: Design) -> Object:
    return {
        note(
            "node.kubernetes.io/instance-type",
            "Memory, probes and tensor parallelism were planned for this type, and a compile cache fits one kind of accelerator.",
        ): design.instance.name
    }


def volumes(design: Design, *, publisher: bool) -> list[Node]:
    """All of a pod's volumes."""
    made: list[Node] = [
        {note("name", "Glowplug with a Python of its own, written by the first init container."): "glowplug",
         "emptyDir": {"sizeLimit": f"{_INJECTED_MIB}Mi"}},
        {
            note(
                "name",
                "The live cache: private to the pod, on the node's disk (on instance NVMe where kubelet's folder lies there, as "
                "with instanceStorePolicy RAID0). A hostPath with DirectoryOrCreate would land on the root volume without a word.",
            ): "cache",
            "emptyDir": {"sizeLimit": _mib(design.host.cache_disk_bytes)},
        },
        {"name": "tmp", "emptyDir": {"sizeLimit": f"{_TMP_MIB}Mi"}},
    ]  # fmt: skip
    if design.is_neuron:
        made.append({
            note("name", "The checkpoint, on the node's disk: NxD Inference loads from files."): "weights",
            "emptyDir": {"sizeLimit": _mib(weights_disk_bytes(design))},
        })  # fmt: skip
    if design.tp > 1:
        made.append({
            note("name", "Ranks talk through shared memory; the default of 64 MB ends in NCCL errors. Counts as memory."): "shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": _mib(design.host.shm_bytes)},
        })  # fmt: skip
    if not design.wish.kms_key:
        made.append({"name": "trusted", "secret": {"secretName": design.wish.trusted_secret}})
        if publisher:
            made.append({
                "name": "signing",
                "secret": {"secretName": design.wish.signing_secret, note("defaultMode", f"0{_KEY_MODE:o}."): _KEY_MODE},
            })  # fmt: skip
    return made


def weights_disk_bytes(design: Design) -> int:
    """Of the checkpoint on a disk, with what lies beside the weights."""
    return design.plan.model.weight_bytes * 11 // 10 + GIB


def init_containers(design: Design) -> list[Node]:
    """What runs before the engine."""
    made: list[Node] = [_inject(design)]
    if design.is_neuron:
        made.append(_pull(design))
    return made


def _inject(design: Design) -> Object:
    image, words, why = inject_command(design)
    return {
        "name": "glowplug",
        note("image", why): image,
        "command": words,
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": confined(),
        "volumeMounts": [{"name": "glowplug", "mountPath": INJECTED}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }


def _pull(design: Design) -> Object:
    region = aws_environment(design)
    return {
        note("name", "Resumes what was interrupted, and a file has its name only when it is whole."): "weights",
        "image": design.image,
        "command": [f"{INJECTED}/bin/glowplug", "weights", "pull", design.wish.model, f"{WEIGHTS}/{design.name}"],
        **({"env": region} if region else {}),
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "securityContext": confined(),
        "volumeMounts": [
            {"name": "glowplug", "mountPath": INJECTED, "readOnly": True},
            {"name": "weights", "mountPath": WEIGHTS},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }


def engine(design: Design, *, publisher: bool) -> Object:
    """The container that serves, without probes of its later life."""
    container: Object = {"name": "vllm", note("image", "The vendor's, as it is."): design.image, "command": command(design)}
    container |= {
        "env": environment(design, publisher=publisher) + aws_environment(design),
        "ports": [{"name": "http", "containerPort": design.wish.port}],
        "startupProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": design.probes.startup_period_s,
            note(
                "failureThreshold",
                f"{design.startup_budget_s} s: the slowest cold start of the plan ({design.probes.startup_budget_s} s) after a "
                f"wait of {design.wait_s} s for a pod that compiles the same. A smaller budget kills what is nearly ready.",
            ): design.startup_failures,
            "timeoutSeconds": 3,
        },
        "resources": _resources(design),
        "securityContext": confined(),
        "volumeMounts": _mounts(design, publisher=publisher),
    }
    return container


def aws_environment(design: Design) -> list[Node]:
    """Where the buckets are; empty if nobody said it, since EKS tells pods the cluster's own region."""
    return [{"name": "AWS_REGION", "value": design.wish.region}] if design.wish.region else []


def confined() -> Object:
    """A container's security context, as the restricted pod security standard asks for."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _resources(design: Design) -> Object:
    host = design.host
    parts = f"{host.engine_bytes // GIB} GiB of engine, {_mib(host.shm_bytes)} of /dev/shm, 512 MiB"
    buffer = f"{host.buffer_bytes / GIB:.1f} GiB of weights ({host.buffer})"
    devices: Object = {
        note(
            design.resource,
            *(
                [f"Never {_other(design)} as well: both count the same silicon, and the scheduler does not know."]
                if design.is_neuron
                else [f"The fewest that hold the model; tensor parallelism is {design.tp}."]
            ),
        ): design.devices
    }
    disk = host.cache_disk_bytes + (_INJECTED_MIB + _TMP_MIB) * MIB + (weights_disk_bytes(design) if design.is_neuron else 0)
    return {
        "requests": {
            "cpu": str(_cpus(design)),
            note("memory", f"The buffer that the weights pass through counts: {buffer}, {parts}."): _mib(host.memory_bytes),
            "ephemeral-storage": _mib(disk),
        },
        note("limits", "No CPU limit: throttling makes imports and compiling slow."): {
            "memory": _mib(host.memory_bytes),
            **devices,
        },
    }


def _other(design: Design) -> str:
    return "aws.amazon.com/neuroncore" if design.resource == "aws.amazon.com/neuron" else "aws.amazon.com/neuron"


def _cpus(design: Design) -> int:
    """A few for each rank and some to compile with; at most three quarters of a pod's part, since agents run on the node too."""
    return max(1, min(4 + 4 * design.tp, (design.host.cpus or 1) * 3 // 4))


def _mounts(design: Design, *, publisher: bool) -> list[Node]:
    mounts: list[Node] = [
        {"name": "glowplug", "mountPath": INJECTED, "readOnly": True},
        {"name": "cache", "mountPath": CACHE},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    if design.is_neuron:
        mounts.append({"name": "weights", "mountPath": WEIGHTS})
    if design.tp > 1:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    if not design.wish.kms_key:
        mounts.append({"name": "trusted", "mountPath": TRUSTED, "readOnly": True})
        if publisher:
            mounts.append({"name": "signing", "mountPath": SIGNING, "readOnly": True})
    return mounts


def _mib(size_bytes: int) -> str:
    """Whole MiB, never fewer than it is."""
    return f"{-(-size_bytes // MIB)}Mi"
