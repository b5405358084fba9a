"""What the control plane of the tests is built from, and where it lies.

Kubernetes' programs come from its Go modules (``go/go.mod`` pins them, ``go/go.sum`` has their digests), and the definitions of
custom resources from the modules of those who publish them. One copy serves every checkout: it lies in the developer's cache folder
under the hash of all this. ``make test`` builds it; this module never builds anything, and imports the standard library alone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from testbed.vllm_env import COMPLETE, ROOT, dev_cache, short_digest

GO_LOCK = ROOT / "requirements" / "go.lock"
SOURCES = Path(__file__).parent / "go"
PROGRAMS = {"etcd": "./etcd", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}
"""Name of each program, and its Go package. A further one of Kubernetes' own also needs a ``tool`` line in ``go.mod``."""
COMPILER_FLAGS = "all=-l -dwarf=false"
"""Neither inlining nor debug information: compiling takes two thirds of the time, and the server one second more to start."""
_INPUTS = (GO_LOCK, SOURCES / "go.mod", SOURCES / "go.sum", SOURCES / "etcd" / "main.go", Path(__file__))


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module that carries definitions of custom resources.

    Attributes:
        path: the module's.
        version: of the module.
        digest: of its content, as a ``go.sum`` has it.
        files: the definitions, below the module's root.
    """

    path: str
    version: str
    digest: str
    files: tuple[str, ...]


DEFINITIONS = (
    Module(
        "github.com/aws/karpenter-provider-aws",  # with the core's node pools, to which it adds rules for AWS's labels
        "v1.14.3",
        "h1:XS61hMCoPL0sXWh5JtJeyTCZLN5Y1So1uNU70pmLccY=",
        ("pkg/apis/crds/karpenter.sh_nodepools.yaml", "pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml"),
    ),
    Module(
        "github.com/kedacore/keda/v2",
        "v2.21.0",
        "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    ),
    Module(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        ("example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",),
    ),
)


def kubernetes_version() -> str:
    """Of the control plane, such as ``v1.35.4``."""
    found = re.search(r"^\tk8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{SOURCES / 'go.mod'} requires no k8s.io/kubernetes")
    return found[1]


def go_folder() -> Path:
    """The environment that holds the Go tool chain; it may not exist yet."""
    return dev_cache() / f"go-{short_digest(GO_LOCK)}"


def built_folder() -> Path:
    """The folder with ``bin`` and ``definitions``; it may not exist yet."""
    return dev_cache() / f"kubernetes-{short_digest(*_INPUTS)}"


def built() -> Path | None:
    """The same; None where it has not been built. ``GLOWPLUG_KUBERNETES`` names one that was made elsewhere."""
    if named := os.environ.get("GLOWPLUG_KUBERNETES"):
        return Path(named)
    folder = built_folder()
    return folder if (folder / COMPLETE).exists() else None
