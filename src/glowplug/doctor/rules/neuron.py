"""AWS Neuron: what counts devices, who schedules them, and where compiled graphs go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from glowplug.doctor import placing
from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, text, tree
from glowplug.doctor.pods import CHIPS, CORES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.pods import Container, PodTemplate

_TRN1_SIZES = (1, 4, 8, 16)
_DEFAULT_SCHEDULERS = ("", "default-scheduler")
_EMPTY_TEST = re.compile(r"""(?:-z|-n)\s+"?(?:\$\(|`)\s*ls\b|\[\s+"?\$\(ls\s+-A|if\s+!?\s*ls\s+-A?\b|find\s[^\n]*-empty""")
_PLUGINS = ("neuron-device-plugin", "k8s-device-plugin", "nvidia-device-plugin")
_MASTER = "node-role.kubernetes.io/master"


def _chips(container: Container) -> int:
    return container.count(*CHIPS)


def _both_resources(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.containers:
        if _chips(container) and container.count(CORES):
            yield container.problem(("resources",), f"asks for chips ({CHIPS[0]}) and for cores ({CORES}) of them")


def _mixed_resources(manifests: Manifests) -> Iterator[Problem]:
    by_chip = [each for each in manifests.containers if _chips(each) and not each.count(CORES)]
    by_core = [each for each in manifests.containers if each.count(CORES) and not _chips(each)]
    for container in by_core if by_chip else ():
        other = by_chip[0].pod.object.label
        yield container.problem(("resources",), f"asks for cores ({CORES}), and {other} for chips: one silicon is counted twice")


def _scheduler_unneeded(manifests: Manifests) -> Iterator[Problem]:
    for pod, container in _neuron_pods(manifests):
        name = text(pod.spec, "schedulerName")
        amount = _chips(container) or container.count(CORES)
        types = placing.instance_types(manifests, pod)
        whole = bool(types) and all(_whole(container, each.chips, each.devices) for each in types)
        if name not in _DEFAULT_SCHEDULERS and (amount == 1 or whole):
            what = "one device" if amount == 1 else "all devices of the node"
            yield pod.problem(
                ("schedulerName",), f"{name} is not needed for {what}, and nothing starts while it or its extender is down"
            )


def _whole(container: Container, chips: int, cores: int) -> bool:
    return _chips(container) == chips if _chips(container) else container.count(CORES) == cores


def _scheduler_missing(manifests: Manifests) -> Iterator[Problem]:
    for pod, container in _neuron_pods(manifests):
        types = placing.instance_types(manifests, pod)
        amount = _chips(container) or container.count(CORES)
        part = bool(types) and all(not _whole(container, each.chips, each.devices) for each in types)
        auto = placing.compute(manifests, pod) == "auto"
        if amount > 1 and part and not auto and text(pod.spec, "schedulerName") in _DEFAULT_SCHEDULERS:
            what = f"takes {amount} of a node's devices without the Neuron scheduler extension: they may not be neighbours"
            yield pod.problem(("schedulerName",), what)


def _neuron_pods(manifests: Manifests) -> Iterator[tuple[PodTemplate, Container]]:
    for pod in manifests.accelerated:
        for container in pod.containers:
            if _chips(container) or container.count(CORES):
                yield pod, container
                break


def _size_refused(manifests: Manifests) -> Iterator[Problem]:
    for pod, container in _neuron_pods(manifests):
        types = {each.name for each in placing.instance_types(manifests, pod)}
        chips = _chips(container)
        if (
            chips
            and types
            and types <= {"trn1.32xlarge", "trn1n.32xlarge"}
            and chips not in _TRN1_SIZES
            and chips < _TRN1_SIZES[-1]
        ):
            yield container.problem(("resources",), f"asks for {chips} chips of a {min(types)}, which gives 1, 4, 8 or 16")


def _tp_and_cores(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        container = engine.container
        cores = container.count(CORES)
        if not cores and _chips(container):
            types = placing.instance_types(manifests, container.pod)
            each_chip = {kind.devices // kind.chips for kind in types if kind.chips and kind.accelerator.kind == "neuron"}
            cores = _chips(container) * each_chip.pop() if len(each_chip) == 1 else 0
        if cores and engine.complete and engine.given("tensor-parallel-size") and engine.tp > cores:
            yield engine.problem(
                f"tensor parallelism {engine.tp} on {cores} NeuronCores: vLLM counts one core as one device", "tensor-parallel-size"
            )


def _remote_cache(manifests: Manifests) -> Iterator[Problem]:
    for container in manifests.containers:
        if "VLLM_NEURON_REMOTE_CACHE" in container.env:
            path = container.env_path("VLLM_NEURON_REMOTE_CACHE")[len(container.path) :]
            yield container.problem(path, "VLLM_NEURON_REMOTE_CACHE has no effect")


def _empty_folder(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.accelerated:
        for container in (*pod.inits, *pod.containers):
            if _EMPTY_TEST.search(container.script):
                field = "command" if any(_EMPTY_TEST.search(str(word)) for word in items(container.body, "command")) else "args"
                yield container.problem(
                    (field,), "decides by whether a folder is empty: half of a cache, or another model's, looks complete"
                )


def _second_plugin(manifests: Manifests) -> Iterator[Problem]:
    auto = [pool for pool in manifests.of("NodePool") if placing.class_group(pool) == placing.AUTO_GROUP]
    others = [pool for pool in manifests.of("NodePool") if pool not in auto]
    for pod in manifests.pods if auto and not others else ():
        excludes = "eks.amazonaws.com/compute-type" in str(tree(pod.spec, "affinity"))
        if pod.kind == "DaemonSet" and not excludes and any(name in each.image for each in pod.containers for name in _PLUGINS):
            yield pod.problem((), "a device plugin beside EKS Auto Mode, which brings its own")


def _no_master(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        if any(mark in each.image for each in pod.containers for mark in ("neuron", "kube-scheduler")) and (
            _MASTER in tree(pod.spec, "nodeSelector") or _MASTER in placing.required(pod)
        ):
            yield pod.problem(("nodeSelector",), f"wants a node with {_MASTER}, which EKS has none of: Pending for ever")


def _not_ignorable(manifests: Manifests) -> Iterator[Problem]:
    for config in manifests.of("ConfigMap"):
        for name, value in tree(config.body, "data").items():
            written = text(value)
            if "KubeSchedulerConfiguration" in written and "neuron" in written and re.search(r"ignorable\W+false", written):
                yield config.problem(
                    ("data", name), "the Neuron extender is not ignorable: while it is down, its scheduler places nothing"
                )


def _plugin_untolerant(manifests: Manifests) -> Iterator[Problem]:
    for pod in manifests.pods:
        if pod.kind != "DaemonSet" or not any(name in each.image for each in pod.containers for name in _PLUGINS):
            continue
        for pool in manifests.of("NodePool"):
            startup = items(pool.body, "spec", "template", "spec", "startupTaints")
            missing = [*placing.untolerated(pool, pod), *_keys_untolerated(pod, [text(each, "key") for each in startup])]
            if missing and placing.wants_accelerators(pool) and placing.compute(manifests, pod) != "auto":
                yield pod.problem(
                    ("tolerations",), f"doesn't tolerate {missing[0]} of {pool.label}: devices there are never counted"
                )


def _keys_untolerated(pod: PodTemplate, keys: list[str]) -> list[str]:
    tolerated = {text(each, "key") for each in items(pod.spec, "tolerations")}
    return [] if "" in tolerated else [key for key in keys if key not in tolerated]


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP301",
        "Chips and cores of Neuron at once",
        "error",
        "aws.amazon.com/neuron counts chips and aws.amazon.com/neuroncore counts cores of the same chips. A pod that asks for"
        " both is given devices twice, or none.",
        "Ask for one of the two.",
        ("B01", "B10"),
        _both_resources,
    ),
    Rule(
        "GP302",
        "Some pods count chips, others cores",
        "warning",
        "The scheduler keeps two accounts of one silicon and gives the same cores to two pods.",
        "Use one resource in all pods of the cluster.",
        ("B10",),
        _mixed_resources,
    ),
    Rule(
        "GP303",
        "Scheduler extension that is not needed",
        "info",
        "The Neuron scheduler extension is needed only for more than one and fewer than all devices of a node. Elsewhere it is"
        " one more thing that can be down, and with ignorable: false nothing starts then.",
        "Remove schedulerName.",
        ("B11", "X17", "X18", "P21"),
        _scheduler_unneeded,
    ),
    Rule(
        "GP304",
        "Part of a node's Neuron devices without the extension",
        "warning",
        "Ranks of one engine need neighbouring cores. The default scheduler counts devices and doesn't know which are neighbours:"
        " engines hung on inf2.24xlarge until the extension was used.",
        "Take all devices of a smaller type, or deploy the scheduler extension and name it in schedulerName.",
        ("B11", "B12", "X17", "P22"),
        _scheduler_missing,
    ),
    Rule(
        "GP305",
        "Number of chips that a Trn1 does not give",
        "error",
        "A trn1.32xlarge gives 1, 4, 8 or 16 chips. With another number the pod stays Pending.",
        "Ask for 1, 4, 8 or 16.",
        ("X17",),
        _size_refused,
    ),
    Rule(
        "GP306",
        "More ranks than NeuronCores",
        "error",
        "vLLM counts one NeuronCore as one device, not one chip: tensor parallelism can't be above the cores that the pod gets.",
        "Lower --tensor-parallel-size, or ask for more cores; glowplug plan knows the valid sizes.",
        ("B01", "B02"),
        _tp_and_cores,
    ),
    Rule(
        "GP307",
        "VLLM_NEURON_REMOTE_CACHE",
        "warning",
        "The variable is documented and read by nothing: the cache is at $VLLM_CACHE_ROOT/neuron/compile_cache, and each pod"
        " compiles for itself.",
        "Keep that folder, by a volume or by glowplug run --store.",
        ("X12", "P18"),
        _remote_cache,
    ),
    Rule(
        "GP308",
        "Compiled or not, decided by an empty folder",
        "warning",
        "The test trusts the mount: half-written artefacts, those of another model, parallelism or SDK, or a mount that is not"
        " there, all give the wrong answer.",
        "Write a marker file last, named by what was compiled, and test for that; glowplug run does it by a signed manifest.",
        ("B15", "B16"),
        _empty_folder,
    ),
    Rule(
        "GP312",
        "Device plugin beside EKS Auto Mode",
        "warning",
        "Auto Mode includes the plugins for Neuron and NVIDIA. A second one advertises the same devices again.",
        "Remove it, or keep it off Auto Mode's nodes by eks.amazonaws.com/compute-type NotIn auto.",
        ("B06", "X16"),
        _second_plugin,
    ),
    Rule(
        "GP313",
        "Scheduler on a node that EKS does not have",
        "error",
        "The Neuron chart of 2024 puts its scheduler on node-role.kubernetes.io/master. EKS has no such node, and Kubernetes"
        " dropped the label.",
        "Remove the node selector.",
        ("X18", "B11"),
        _no_master,
    ),
    Rule(
        "GP314",
        "Scheduler extender that may not be ignored",
        "warning",
        "While the extender is down, the scheduler that uses it places no pod at all. It has crashed on EKS (nil pointer).",
        "Run two replicas of the extender, and send only pods to this scheduler that need it.",
        ("X18", "P21"),
        _not_ignorable,
    ),
    Rule(
        "GP316",
        "Device plugin that does not tolerate the nodes' taints",
        "error",
        "The plugin never runs there, nobody counts the devices, and pods that want them stay Pending.",
        "Add a toleration with operator: Exists.",
        ("B07", "https://github.com/nebari-dev/nebari/issues/3074"),
        _plugin_untolerant,
    ),
)
