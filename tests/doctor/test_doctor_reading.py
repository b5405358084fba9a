# ruff: noqa: E501  a case a line
"""Files, folders, pipes: what is read, what is passed over, and what is said of the rest."""

from __future__ import annotations

import io
import os
import sys

import pytest

from glowplug.cli.doctor import doctor
from glowplug.doctor.checking import check_manifests
from glowplug.doctor.manifests import Manifests
from glowplug.doctor.reading import MOST_BYTES, read
from glowplug.doctor.render import render
from glowplug.errors import UsageError
from tests.doctor.kube import as_yaml, container, llm, other, service


def give(text):
    return read(["-"], io.BytesIO(text if isinstance(text, bytes) else text.encode()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_gives_its_manifests_in_order_and_no_others(folder):
    for name in ("b.yml", "a.yaml", "c.json", "notes.txt", "values.yaml.bak"):
        (folder / name).write_text(as_yaml(other("v1", "Secret", name=name.partition(".")[0])))
    (folder / "below").mkdir()
    (folder / "below" / "d.yaml").write_text(as_yaml(other("v1", "Secret", name="d")))
    nothing = io.BytesIO()
    assert [each.file for each in read(["."], nothing).objects] == ["./a.yaml", "./b.yml", "./c.json"]
    assert [each.name for each in read(["."], nothing, recursive=True).objects] == ["a", "b", "d", "c"]
    assert [each.name for each in read(["a.yaml", "a.yaml"], nothing).objects] == ["a"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["nowhere.yaml"], "no such file"),
        (["empty"], "no manifest"),
        (["blank.yaml"], "nothing to check"),
        (["-"], "standard input has no document"),
        (["blank.yaml", "-"], "the files have no document"),
        (["values.yaml"], "has no Kubernetes object"),
    ],
    ids=str,
)
def test_nothing_to_check_is_an_error_of_use(folder, names, says):
    (folder / "empty").mkdir()
    (folder / "blank.yaml").write_text("# nothing\n---\n")
    (folder / "values.yaml").write_text("replicaCount: 1\n--- 5\n---\nkind: Deployment\n")
    with pytest.raises(UsageError, match=says) as error:
        read(names, io.BytesIO())
    assert error.value.hint


def test_a_file_that_may_not_be_read_is_said(folder):
    (folder / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(UsageError, match=r"loop\.yaml"):
        read(["loop.yaml"], io.BytesIO())
    os.mkfifo(folder / "here")  # a pipe is named as a file is: bash's <(helm template ...)
    (folder / "there.yaml").write_text(as_yaml(service()))
    assert [each.kind for each in read(["there.yaml"], io.BytesIO()).objects] == ["Service"]


def test_a_standard_input_that_is_closed_is_an_empty_one(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="standard input has no document"):
        doctor(files=["-"])


@pytest.mark.parametrize(
    ("content", "line", "says", "hint"),
    [
        (b"kind: Pod\nspec: [", 2, "", "correct"),
        (b"kind: Pod\nmetadata:\n\tname: x\n", 3, "", "spaces"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe\xfa", 1, "binary", "YAML"),
        ("kind: Pod\n# Gr\u00f6\u00dfe\n".encode("cp1252"), 2, "0xf6", "UTF-8"),
        (b"a" * (MOST_BYTES + 1), 0, "32 MiB", "split"),
        (b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Release.Name }}-llm\n", 4, "Helm", "helm template"),
        (b"{{- if .Values.x }}\napiVersion: v1\n{{- end }}\n", 1, "Helm", "helm template"),
        (b'apiVersion: v1\nkind: Pod\nmetadata:\n  name: "{{ .Release.Name }}"\n', 4, "Helm", "helm template"),
    ],
    ids=["yaml", "tabs", "binary", "Windows", "huge", "helm", "helm control", "helm quoted"],
)
def test_a_file_that_is_no_manifest_is_said_with_its_line(content, line, says, hint):
    (bad,) = give(content).bad
    assert (bad.file, bad.line) == ("<stdin>", line)
    assert says in bad.problem
    assert hint in bad.hint


def test_the_rest_is_checked_all_the_same(folder):
    (folder / "bad.yaml").write_text("a: [")
    (folder / "good.yaml").write_text(as_yaml(service()))
    found = read(["bad.yaml", "/proc/self/mem", "good.yaml"], io.BytesIO())
    assert [each.file for each in found.bad] == ["bad.yaml", "/proc/self/mem"]
    assert found.bad[1].problem == "Input/output error"  # that is what reading this file gives, also to root
    assert [each.file for each in found.objects] == ["good.yaml"]
    assert check_manifests(found).exit_code() == 2
    assert "1 object checked: nothing found; 2 files could not be read" in render(check_manifests(found))


def test_templates_inside_values_are_none_of_ours():
    alert = other("v1", "ConfigMap", data={"alert": "{{ $labels.pod }} is slow"})
    assert give(as_yaml(alert)).bad == []


def test_lists_are_opened_and_unknown_kinds_passed_over():
    inside = [service(), llm(), other("serving.knative.dev/v1", "Service"), other("example.com/v1", "Thing")]
    found = give(as_yaml({"apiVersion": "v1", "kind": "List", "items": inside}, {"replicaCount": 1}) + "--- 5\n---\nkind: Pod\n")
    assert [each.kind for each in found.objects] == ["Service", "Deployment"]
    assert [each.kind for each in found.passed_over] == [
        "serving.knative.dev/v1 Service",
        "example.com/v1 Thing",
        "no kind",
        "no mapping",
        "Pod without an apiVersion",
    ]


def test_json_with_tabs_and_utf_16_are_read():
    assert give(b'{\n\t"apiVersion": "v1",\n\t"kind": "Service",\n\t"metadata": {"name": "a\\tb"}\n}').objects[0].name == "a\tb"
    assert give(as_yaml(service()).encode("utf-16")).objects[0].kind == "Service"


@pytest.mark.parametrize(
    ("kind", "group", "wrap"),
    [
        ("Pod", "v1", lambda pod: {"spec": pod}),
        ("CronJob", "batch/v1", lambda pod: {"spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
        ("Rollout", "argoproj.io/v1alpha1", lambda pod: {"spec": {"template": {"spec": pod}}}),
        (
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io/v1",
            lambda pod: {"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": pod}}}},
        ),
        ("InferenceService", "serving.kserve.io/v1beta1", lambda pod: {"spec": {"predictor": pod}}),
        ("ServingRuntime", "serving.kserve.io/v1alpha1", lambda pod: {"spec": pod}),
        ("LLMInferenceService", "serving.kserve.io/v1alpha1", lambda pod: {"spec": {"template": pod}}),
        ("RayCluster", "ray.io/v1", lambda pod: {"spec": {"workerGroupSpecs": [{"template": {"spec": pod}}]}}),
        ("RayService", "ray.io/v1", lambda pod: {"spec": {"rayClusterConfig": {"headGroupSpec": {"template": {"spec": pod}}}}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_carrier_shows_its_pods(kind, group, wrap):
    given = {"apiVersion": group, "kind": kind, "metadata": {"name": "x"}, **wrap({"containers": [container("m/x", "-tp=2")]})}
    (engine,) = Manifests(give(as_yaml(given)).objects).engines
    assert (engine.model, engine.tp, engine.port) == ("m/x", 2, 8000)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (["vllm", "serve", "m/x", "-tp", "2"], [], ("m/x", 2, True)),
        (None, ["--model", "m/x", "--tensor_parallel_size", "2"], ("m/x", 2, True)),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["--model=m/x", "-tp=2"], ("m/x", 2, True)),
        (["sh", "-c"], ["exec vllm serve m/x --tensor-parallel-size $TP"], ("m/x", 2, True)),
        (["bash", "-c"], ["set -e; pip install x && \\\n  vllm serve m/x \\\n -tp ${TP} | tee log"], ("m/x", 2, True)),
        (["env", "A=1", "numactl", "-N", "0", "vllm", "serve", "$(MODEL)", "-tp=$(TP)"], [], ("m/x", 2, True)),
        (["/glowplug/bin/glowplug", "run", "--store", "s3://b", "--", "vllm", "serve", "m/x", "-tp=2"], [], ("m/x", 2, True)),
        (["vllm", "serve", "m/x", "-tp=2", "--config", "/etc/vllm.yaml"], [], ("m/x", 2, False)),
        (["sh", "-c", 'vllm serve m/x -tp 2 "$@"'], [], ("m/x", 2, False)),
        (["python", "-m", "sglang.launch_server", "--model-path", "m/x", "--tp", "2"], [], ("m/x", 2, True)),
    ],
    ids=range(10),
)
def test_the_engine_is_seen_behind_its_launchers(command, args, expected):
    given = llm(command=command, args=args, env={"TP": "2", "MODEL": "m/x"})
    (engine,) = Manifests(give(as_yaml(given)).objects).engines
    assert (engine.model, engine.tp, engine.complete) == expected


@pytest.mark.parametrize(
    "command",
    [["nginx"], ["vllm", "bench"], ["sh", "-c", "echo 'vllm serve'"], ["sh", "-c", "vllm serve 'm"], ["vllm", "serve", "--a.b=" + "[" * 9000],
     ["vllm", "serve", "--config"], ["python", "-m"], ["glowplug", "run"], [""]],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_engine_or_cant_be_read_is_left_alone(command):
    engines = Manifests(give(as_yaml(llm(command=command, args=None, image="x/y:1"))).objects).engines
    assert all(engine.model == "" for engine in engines)


def test_no_file_that_a_manifest_names_is_read(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("tensor-parallel-size: 8\n")
    (engine,) = Manifests(give(as_yaml(llm("m/x", f"--config={config}"))).objects).engines
    assert engine.tp == 1
    (engine,) = Manifests(give(as_yaml(llm("m/x", "--config", str(config)))).objects).engines
    assert engine.tp == 1
    assert not engine.complete


def test_fields_of_other_types_than_the_kind_has_read_as_absent():
    from tests.doctor.kube import check

    for broken in ("5", "[1, [2]]", "{a: {b: c}}", "~", "'text'", "true"):
        for field in ("spec", "metadata"):
            for kind in ("v1/Pod", "v1/Service", "apps/v1/Deployment", "karpenter.sh/v1/NodePool", "eksctl.io/v1alpha5/ClusterConfig",
                         "keda.sh/v1alpha1/ScaledObject", "autoscaling/v2/HorizontalPodAutoscaler"):  # fmt: skip
                version, _, name = kind.rpartition("/")
                assert check(f"apiVersion: {version}\nkind: {name}\n{field}: {broken}\n").objects == 1
