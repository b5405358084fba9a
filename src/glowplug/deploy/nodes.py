"""Nodes for the pods: a Karpenter NodePool with an EC2NodeClass, or EKS Auto Mode's NodeClass.

No startup taint is declared: nothing here would remove it, and a node with a taint that nobody removes is paid and never used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.deploy.commented import note
from glowplug.units import GIB

if TYPE_CHECKING:
    from glowplug.deploy.commented import Node, Object
    from glowplug.deploy.design import Design

_IOPS, _THROUGHPUT_MBPS = 6000, 500
"""A gp3 volume that was told nothing reads at 125 MB/s, which an image of 30 GB on disk takes four minutes of."""


def nodes(design: Design) -> list[Object]:
    """Class and pool, if they are to be written."""
    if design.wish.nodes == "none":
        return []
    return [_ec2_class(design) if design.wish.nodes == "karpenter" else _auto_class(design), _pool(design)]


def _about(design: Design) -> Object:
    return {"name": design.name, "labels": dict(design.labels())}


def _volume_gib(design: Design) -> int:
    """The root volume: the image and the cache, and, where no instance store takes them, the pods' disks."""
    size = design.host.root_volume_bytes
    if design.is_neuron and not design.instance.nvme_bytes:
        size += design.plan.model.weight_bytes * 11 // 10 * design.pods_per_node
    return -(-size // (10 * GIB)) * 10


def _discovery(design: Design) -> list[Node]:
    return [{"tags": {"karpenter.sh/discovery": design.wish.cluster}}]


def _ec2_class(design: Design) -> Object:
    spec: Object = {
        note(
            "amiSelectorTerms",
            "The accelerated variant follows from the instance type. Name a version (al2023@v20261120) to decide yourself when "
            "nodes change; never an AMI's id, which is of one region and goes stale.",
        ): [{"alias": "al2023@latest"}],
        "role": design.wish.node_role or f"KarpenterNodeRole-{design.wish.cluster}",
        "subnetSelectorTerms": _discovery(design),
        "securityGroupSelectorTerms": _discovery(design),
    }
    if design.instance.nvme_bytes:
        spec[
            note(
                "instanceStorePolicy",
                f"Else the {design.instance.nvme_bytes / 10**12:.1f} TB of NVMe are left alone. With it kubelet's and containerd's "
                "folders lie there: images, and the pods' emptyDirs.",
            )
        ] = "RAID0"
    spec |= {
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    note("volumeSize", "The image takes three times its compressed size; the default of 20 GiB is too small."): (
                        f"{_volume_gib(design)}Gi"
                    ),
                    "volumeType": "gp3",
                    note("throughput", "The default of 125 MB/s makes the image's pull slow."): _THROUGHPUT_MBPS,
                    "iops": _IOPS,
                    "encrypted": True,
                    "deleteOnTermination": True,
                },
            }
        ],
        note("metadataOptions", "Pods get no credentials of the node's."): {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
    }
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": _about(design), "spec": spec}


def _auto_class(design: Design) -> Object:
    spec: Object = {
        "role": design.wish.node_role or "AmazonEKSAutoNodeRole",
        "subnetSelectorTerms": _discovery(design),
        "securityGroupSelectorTerms": _discovery(design),
        note(
            "ephemeralStorage",
            f"Smaller than the {design.instance.nvme_bytes / 10**12:.1f} TB of NVMe, at which the EKS guide says that the instance "
            "store is used; an earlier text of the same guide says the opposite. Look at a node's mounts."
            if design.instance.nvme_bytes
            else f"{design.instance.name} has no instance store: everything lies on this volume.",
        ): {"size": f"{max(80, _volume_gib(design))}Gi", "iops": _IOPS, "throughput": _THROUGHPUT_MBPS},
    }
    return {"apiVersion": "eks.amazonaws.com/v1", "kind": "NodeClass", "metadata": _about(design), "spec": spec}


def _pool(design: Design) -> Object:
    is_auto = design.wish.nodes == "auto"
    taint = "aws.amazon.com/neuron" if design.is_neuron else "nvidia.com/gpu"
    pods = design.max_replicas + (design.wish.publish == "job") + (design.wish.rollout == "surge")
    count = -(-pods // design.pods_per_node)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": _about(design),
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {
                        "group": "eks.amazonaws.com" if is_auto else "karpenter.k8s.aws",
                        "kind": "NodeClass" if is_auto else "EC2NodeClass",
                        "name": design.name,
                    },
                    "requirements": [
                        _requirement("node.kubernetes.io/instance-type", design.instance.name),
                        _requirement("kubernetes.io/arch", design.instance.arch),
                        _requirement("karpenter.sh/capacity-type", design.wish.capacity_type),
                    ],
                    note("taints", "Only pods that ask for the accelerator come here."): [
                        {"key": taint, "value": "true", "effect": "NoSchedule"}
                    ],
                    note("expireAfter", "Nodes are replaced after a month, for their security updates."): "720h",
                }
            },
            "disruption": {
                note("consolidationPolicy", "Moving a serving pod to save a node costs a start."): "WhenEmpty",
                "consolidateAfter": f"{min(3600, design.scaling.cooldown_s)}s",
                "budgets": [{"nodes": "1"}],
            },
            note("limits", f"{count} of {design.instance.name}: {_who(design)}."): {"cpu": str(count * design.instance.vcpus)},
        },
    }


def _who(design: Design) -> str:
    said = [f"{design.max_replicas} serving"]
    if design.wish.publish == "job":
        said.append("1 that compiles for all")
    if design.wish.rollout == "surge":
        said.append("1 more in a roll-out")
    return ", ".join(said)


def _requirement(key: str, value: str) -> Node:
    return {"key": key, "operator": "In", "values": [value]}
