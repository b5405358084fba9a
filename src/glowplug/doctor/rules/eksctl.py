"""eksctl's ClusterConfig: node groups with accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import at, items, number, text, tree
from glowplug.plan.catalogue import instances

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.documents import Map
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.objects import Object, Path

_LEAST_GB = 80


class _Group(NamedTuple):
    config: Object
    body: Map
    path: Path

    def types(self) -> list[str]:
        """Its instance types."""
        several = [*items(self.body, "instanceTypes"), *items(self.body, "instancesDistribution", "instanceTypes")]
        return [text(self.body, "instanceType") or "", *map(str, several)]

    @property
    def accelerated(self) -> bool:
        """Whether a type of it is known to have accelerators."""
        return any(name in instances() for name in self.types())

    def problem(self, path: Path, message: str) -> Problem:
        """Something wrong in it."""
        return self.config.problem((*self.path, *path), f"node group {text(self.body, 'name') or self.path[-1]}: {message}")


def _groups(manifests: Manifests) -> Iterator[_Group]:
    for config in manifests.of("ClusterConfig"):
        for field in ("managedNodeGroups", "nodeGroups"):
            for index, body in enumerate(items(config.body, field)):
                if tree(items(config.body, field), index):
                    yield _Group(config, body, (field, index))


def _open_ssh(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        ssh = tree(group.body, "ssh")
        if at(ssh, "allow") is True and not items(ssh, "sourceSecurityGroupIds"):
            yield group.problem(("ssh", "allow"), "ssh.allow without sourceSecurityGroupIds opens port 22 to 0.0.0.0/0")


def _fixed_image(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        image = text(group.body, "ami")
        if image.startswith("ami-"):
            yield group.problem(("ami",), f"{image[:40]} is of one region, and grows old")


def _small_volume(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        size = number(group.body, "volumeSize", default=_LEAST_GB)
        if group.accelerated and size < _LEAST_GB:
            yield group.problem(("volumeSize",), f"a root volume of {size} GiB for images of engines")


def _old_volume(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        if group.accelerated and text(group.body, "volumeType") == "gp2":
            yield group.problem(("volumeType",), "gp2: at most 250 MiB/s, and slower the smaller it is")


def _old_family(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        version = text(group.config.body, "metadata", "version").split(".")
        new = (
            len(version) == 2
            and all(part.isdecimal() and len(part) < 4 for part in version)
            and (int(version[0]), int(version[1])) >= (1, 33)
        )
        if text(group.body, "amiFamily") == "AmazonLinux2" and (new or _is_neuron(group)):
            what = f"which has no image for Kubernetes {'.'.join(version)}" if new else "whose plain image has no Neuron driver"
            yield group.problem(("amiFamily",), f"AmazonLinux2, {what}")


def _is_neuron(group: _Group) -> bool:
    known = [instances()[name] for name in group.types() if name in instances()]
    return bool(known) and all(each.accelerator.kind == "neuron" for each in known)


def _all_of_s3(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        for index, arn in enumerate(items(group.body, "iam", "attachPolicyARNs")):
            if str(arn).endswith(("AmazonS3FullAccess", "AmazonS3ReadOnlyAccess", "AdministratorAccess")):
                path = ("iam", "attachPolicyARNs", index)
                yield group.problem(path, f"{str(arn).rpartition('/')[2]} on the nodes' role: every pod on them has it")


def _public_nodes(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        placed = "subnets" in group.body or "privateCluster" in group.config.body
        if group.accelerated and at(group.body, "privateNetworking") is not True and not placed:
            yield group.problem((), "privateNetworking is not set: nodes get public addresses")


def _one_zone(manifests: Manifests) -> Iterator[Problem]:
    for group in _groups(manifests):
        zones = items(group.body, "availabilityZones")
        if group.accelerated and len(zones) == 1 and number(group.body, "maxSize", default=1) > 1:
            yield group.problem(("availabilityZones",), f"all nodes in {zones[0]}: when it has none of this type, none is started")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP521",
        "SSH open to the world",
        "error",
        "eksctl opens port 22 of the workers to 0.0.0.0/0 when ssh is allowed and no security group is named.",
        "Remove the block and use SSM Session Manager, or set sourceSecurityGroupIds.",
        ("B27", "B28", "B33"),
        _open_ssh,
    ),
    Rule(
        "GP522",
        "Fixed machine image in a node group",
        "warning",
        "An AMI that is not in the region ends the creation with InvalidAMIID.NotFound, and one that is there grows old.",
        "Leave ami out: eksctl takes the right one for type and version from SSM.",
        ("B25", "B31"),
        _fixed_image,
    ),
    Rule(
        "GP523",
        "Small root volume of a node group",
        "warning",
        "Images of engines take 8 to 30 GB unpacked, and the kubelet deletes images from 85 % on.",
        "Set volumeSize: 200.",
        ("B26", "P24", "B14"),
        _small_volume,
    ),
    Rule(
        "GP524",
        "gp2 under an engine's image",
        "info",
        "Unpacking an image is bound by the volume: gp2 gives 250 MiB/s at most, gp3 up to 1,000 MiB/s.",
        "Set volumeType: gp3 and volumeThroughput.",
        ("B26", "A40"),
        _old_volume,
    ),
    Rule(
        "GP525",
        "Machine image without driver, or without a future",
        "error",
        "EKS publishes no AL2 images for Kubernetes 1.33 and later. Before that, a managed group for Neuron with this family got"
        " the plain image, without driver: no device is ever counted.",
        "Use amiFamily: AmazonLinux2023.",
        ("P23", "B04", "B05", "B25"),
        _old_family,
    ),
    Rule(
        "GP526",
        "Accelerators in one zone only",
        "info",
        "Accelerated types run out by zone.",
        "Ask first: aws ec2 describe-instance-type-offerings --location-type availability-zone; then name all zones that have it.",
        ("B29",),
        _one_zone,
    ),
    Rule(
        "GP527",
        "Nodes in public subnets",
        "info",
        "Workers with public addresses need none for serving. In private subnets S3 goes through a NAT gateway unless the VPC has"
        " a gateway endpoint.",
        "Set privateNetworking: true, and add the S3 gateway endpoint.",
        ("B30", "A02", "A04", "P36"),
        _public_nodes,
    ),
    Rule(
        "GP528",
        "S3 rights on the nodes' role",
        "warning",
        "Every pod on the node has them, for every bucket.",
        "Use IRSA or EKS Pod Identity, with one bucket and prefix.",
        ("B19", "A18"),
        _all_of_s3,
    ),
)
