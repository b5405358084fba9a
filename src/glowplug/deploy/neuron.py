"""Values for AWS's neuron-helm-chart: the device plug-in always, the scheduler extension only where neighbours must be found.

EKS Auto Mode has a plug-in of its own; a second one counts the same devices again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.deploy.commented import note

if TYPE_CHECKING:
    from glowplug.deploy.commented import Object
    from glowplug.deploy.design import Design


def helm_values(design: Design) -> Object | None:
    """The values; None where the cluster needs nothing."""
    if not design.is_neuron or design.wish.nodes == "auto":
        return None
    values: Object = {
        note(
            "devicePlugin",
            "Without it a node has no aws.amazon.com/neuron, and pods are Pending although the chips are there. eksctl installs "
            "one by itself: have one of the two, or versions drift. It advertises chips and cores, and the scheduler counts both: "
            "let all pods of the cluster ask for the same kind.",
        ): {"tolerations": [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}]},
        "npd": {"enabled": False},
    }
    if design.needs_neuron_scheduler:
        values[note("scheduler", f"A pod takes {design.devices} of {design.total}, which must be neighbours.")] = {
            "enabled": True,
            note("nodeSelector", "The chart's default is a label that no node of EKS has: the extension would stay Pending."): {
                "node-role.kubernetes.io/master": None
            },
            "tolerations": [],
            "customScheduler": {
                "enabled": True,
                "fullnameOverride": "my-scheduler",
                note("image", "Set the tag to your cluster's version; the chart's default is of 1.28."): {
                    "repository": "public.ecr.aws/eks-distro/kubernetes/kube-scheduler"
                },
            },
        }
    else:
        values[
            note(
                "scheduler",
                f"Not needed: a pod takes {design.devices} of {design.total}"
                + (", so there is nothing to be a neighbour of." if design.devices == 1 else ", which is all."),
            )
        ] = {"enabled": False}
    return values
