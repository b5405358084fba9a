"""Every manifest that can be written, against Kubernetes' own schemas, and what must hold of all of them whatever was asked for."""

import json

import kubernetes_validate
import pytest
import yaml

from glowplug.deploy.commented import plain
from glowplug.deploy.make import files, objects, stream
from tests.deploy.conftest import design_of
from tests.deploy.matrix import COMBINATIONS

OLDEST, NEWEST = "1.29", "1.35"
CUSTOM = {"NodePool", "EC2NodeClass", "NodeClass", "ScaledObject", "PodMonitor"}
"""Kinds that Kubernetes itself does not have. A server that has their definitions checks them in tests/cluster."""

every = pytest.mark.parametrize("given", COMBINATIONS.values(), ids=COMBINATIONS)


def pods(design):
    for each in objects(design):
        if each["kind"] in {"Deployment", "Job"}:
            yield each, each["spec"]["template"]["spec"]


def test_at_least_forty_combinations_are_tried_and_all_differ():
    written = {stream(design_of(**given)) for given in COMBINATIONS.values()}
    assert len(written) == len(COMBINATIONS) >= 40


@every
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_core_objects_are_valid(given, version):
    for each in objects(design_of(**given)):
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(plain(each), version, strict=True)


@every
def test_the_stream_and_the_files_hold_the_same_objects(given):
    design = design_of(**given)
    parsed = list(yaml.safe_load_all(stream(design)))
    assert parsed == [plain(each) for each in objects(design)]
    written = {file.path: file.text for file in files(design)}
    listed = yaml.safe_load(written["kustomization.yaml"])["resources"]
    assert [each for path in listed for each in yaml.safe_load_all(written[path])] == parsed


@every
def test_writing_twice_gives_the_same_bytes(given):
    assert [file.text for file in files(design_of(**given))] == [file.text for file in files(design_of(**given))]


@every
def test_names_are_unique_and_short_enough(given):
    design = design_of(**given)
    named = [(each["kind"], each["metadata"]["name"]) for each in objects(design)]
    assert len(set(named)) == len(named)
    assert all(len(name) <= 63 for _, name in named)


@every
def test_selectors_find_the_serving_pods_and_no_others(given):
    by_kind = {}
    for each in objects(design_of(**given)):
        by_kind.setdefault(each["kind"], []).append(plain(each))
    serving = by_kind["Deployment"][0]["spec"]["template"]["metadata"]["labels"]
    others = [job["spec"]["template"]["metadata"]["labels"] for job in by_kind.get("Job", [])]
    selectors = [
        by_kind["Service"][0]["spec"]["selector"],
        by_kind["Deployment"][0]["spec"]["selector"]["matchLabels"],
        by_kind["PodDisruptionBudget"][0]["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"]["matchLabels"] for each in by_kind.get("PodMonitor", [])),
    ]
    for selector in selectors:
        assert selector.items() <= serving.items()
        assert not any(selector.items() <= labels.items() for labels in others)


@every
def test_one_port_everywhere(given):
    design = design_of(**given)
    by_kind = {each["kind"]: each for each in objects(design)}
    container = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"] == [{"name": "http", "containerPort": design.wish.port}]
    assert by_kind["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    words = container["command"]
    said = words[words.index("--port") + 1] if "--port" in words else words[-1].split("--port ")[1].split()[0]
    assert int(said) == design.wish.port
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    if "Ingress" in by_kind:
        backend = by_kind["Ingress"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend == {"name": design.name, "port": {"name": "http"}}
    if "PodMonitor" in by_kind:
        assert by_kind["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["port"] == "http"


@every
def test_every_mount_has_its_volume_and_every_volume_a_mount(given):
    for each, pod in pods(design_of(**given)):
        volumes = [volume["name"] for volume in pod["volumes"]]
        mounts = [
            mount["name"] for container in [*pod.get("initContainers", []), *pod["containers"]]
            for mount in container.get("volumeMounts", [])
        ]  # fmt: skip
        assert len(set(volumes)) == len(volumes)
        assert set(volumes) == set(mounts), each["metadata"]["name"]


@every
def test_pods_meet_the_restricted_standard_unless_root_was_asked_for(given):
    design = design_of(**given)
    for _, pod in pods(design):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in pod["volumes"])
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert container["resources"]["limits"]["memory"]
        if design.wish.run_as_user:
            assert pod["securityContext"]["runAsNonRoot"] is True


@every
def test_engines_get_one_kind_of_device_as_many_as_the_plan_says(given):
    design = design_of(**given)
    for each, pod in pods(design):
        engines = [c for c in [*pod.get("initContainers", []), *pod["containers"]] if c["name"] == "vllm"]
        limits = [key for c in engines for key in c["resources"]["limits"] if key != "memory"]
        if "load-test" in each["metadata"]["name"]:
            assert not engines
        else:
            assert limits == [design.resource]
            assert engines[0]["resources"]["limits"][design.resource] == design.devices


@every
def test_a_start_may_take_as_long_as_the_plan_says(given):
    design = design_of(**given)
    for _, pod in pods(design):
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            if container["name"] == "vllm":
                probe = container["startupProbe"]
                budget = probe["periodSeconds"] * probe["failureThreshold"]
                assert budget >= design.wait_s + design.plan.start("cold").container_high_s
    spec = next(each for each in objects(design) if each["kind"] == "Deployment")["spec"]
    assert spec["progressDeadlineSeconds"] >= design.startup_budget_s + design.grace_s


@every
def test_no_secret_and_no_template_is_left_in_the_text(given):
    design = design_of(**given)
    text = "".join(file.text for file in files(design))
    assert "@" not in text.replace("al2023@", "").replace("{{pod}}", "")
    assert "{{" not in text.replace("{{pod}}", "")
    assert "PRIVATE KEY" not in text


@every
def test_comments_fit_a_screen(given):
    lines = stream(design_of(**given)).splitlines()
    assert all(len(line) <= 120 for line in lines if line.lstrip().startswith("# ") and "create secret" not in line)


@every
def test_the_terraform_file_is_json_and_names_both_buckets(given):
    design = design_of(**given)
    written = next(file.text for file in files(design) if file.path == "glowplug.tf.json")
    document = json.loads(written)
    assert document["resource"]["aws_vpc_endpoint"]["s3"]["vpc_endpoint_type"] == "Gateway"
    for policy in document["resource"]["aws_iam_role_policy"].values():
        rights = json.loads(policy["policy"].replace("$${", "${"))
        assert "arn:aws:s3:::models" in json.dumps(rights)
        assert "arn:aws:s3:::caches" in json.dumps(rights)
