"""``glowplug deploy`` as a process: streams, files, a file of options, and what a shell sees of errors."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from glowplug.deploy.wish import json_schema, options

EXAMPLE = (
    *("--target", "gpu", "--model", "s3://models/qwen3-32b", "--weights", "65GB"),
    *("--instance", "p4d.24xlarge", "--store", "s3://caches/glowplug"),
)
DOCS = Path(__file__).parents[2] / "docs"


def deploy(*words, **given):
    command = [sys.executable, "-m", "glowplug", "deploy", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **given)


def test_the_readmes_example_prints_one_stream():
    done = deploy(*EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert kinds == ["ServiceAccount", "ServiceAccount", "Deployment", "Service", "PodDisruptionBudget", "Job"]


def test_a_file_says_the_same_as_options_and_a_folder_gets_the_files(tmp_path):
    path = tmp_path / "deploy.yaml"
    path.write_text(
        "target: gpu\nmodel: s3://models/qwen3-32b\nweights: 65GB\ninstance: p4d.24xlarge\nstore: s3://caches/glowplug\n"
    )
    stream = deploy(*EXAMPLE).stdout
    assert deploy("--file", str(path)).stdout == stream
    assert deploy("--file", "-", input=path.read_text()).stdout == stream
    out = tmp_path / "out"
    done = deploy("--file", str(path), "--output", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["files"]) == sorted(os.listdir(out))
    again = deploy("--file", str(path), "--output", str(out))
    assert again.returncode == 2
    assert "would be replaced" in again.stderr
    less = ("--publish", "none", "--force")
    assert json.loads(deploy("--file", str(path), "--output", str(out), "--json", *less).stdout)["others"] == ["warmup.yaml"]


def test_the_next_command_can_be_pasted_and_files_of_an_earlier_run_are_named(tmp_path):
    out = tmp_path / "sp ace" / "\xfc"
    out.mkdir(parents=True)
    (out / "old.yaml").write_text("")
    done = deploy(*EXAMPLE, "--output", str(out))
    *_, others, following = done.stdout.splitlines()
    assert others.startswith("Not written by this run: old.yaml (")
    assert shlex.split(following.removeprefix("Next: ")) == ["kubectl", "apply", "-k", str(out)]


def test_objects_as_json():
    made = json.loads(deploy(*EXAMPLE, "--json", "--pod-monitor").stdout)
    assert made[-2]["kind"] == "PodMonitor"


def test_words_and_variables_may_be_given_several_times():
    done = deploy(*EXAMPLE, "--engine-args=--kv-cache-dtype=fp8", "--env", "A=1", "--env", "B=2", "--json")
    container = next(each for each in json.loads(done.stdout) if each["kind"] == "Deployment")["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert container["command"][-1] == "--kv-cache-dtype=fp8"
    assert [each["name"] for each in container["env"]][-2:] == ["A", "B"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*EXAMPLE, "--weights", "65"], "--weights: 65 has no unit"),
        ([*EXAMPLE, "--force"], "nothing is written to files"),
        ([*EXAMPLE, "--iac", "none"], "it is no manifest"),
        ([*EXAMPLE, "--instance", "p4d.99xlarge"], "is not in the catalogue"),
        ([*EXAMPLE, "--output", ""], "--output is empty"),
        ([*EXAMPLE, "--output", "-"], "--output: - is no folder"),
        ([*EXAMPLE, "--cluster", "demo"], "only the files for roles name it"),
        ([*EXAMPLE, "--tp", "0"], "--tp: 0 can't be"),
        ([*EXAMPLE, "--ingress-class", "nginx"], "--ingress-class: there is no Ingress"),
        ([], "--model is missing"),
    ],
)
def test_usage_errors_are_one_line_and_a_hint(words, said):
    done = deploy(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 2


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = deploy(*EXAMPLE, "--output", str(tmp_path / "file" / "out"))
    assert done.returncode == 1
    assert "--output" in done.stderr


def test_a_reader_that_has_gone_ends_it_quietly():
    process = subprocess.Popen(
        [sys.executable, "-m", "glowplug", "deploy", *EXAMPLE, "--dashboard"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141


def test_a_local_checkpoint_is_no_place_for_nodes(tmp_path):
    done = deploy("--model", str(tmp_path), "--instance", "p4d.24xlarge", "--store", "s3://c/g")
    assert done.returncode == 2
    assert "glowplug weights push" in done.stderr


def test_help_names_every_option_that_a_file_may_have():
    text = deploy("--help", env={**os.environ, "COLUMNS": "200"}).stdout
    assert all(f"--{option.name} " in text or f"--{option.name}/" in text or f"--{option.name}\n" in text for option in options())


def test_the_published_schema_is_the_programs():
    assert json.loads((DOCS / "deploy.schema.json").read_text()) == json_schema()
