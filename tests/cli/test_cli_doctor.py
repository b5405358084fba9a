"""``glowplug doctor`` as its users meet it: files and pipes in, findings and exit codes out."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from glowplug.cli.main import main
from testbed.range_faults import SILENT
from testbed.store_proxy import StoreProxy, on
from tests.doctor.kube import as_yaml, llm, other
from tests.run.program import GLOWPLUG, SOURCE, eventually

ERROR = llm("m/x", "--tensor-parallel-size=2")
WARNING = llm(spec={"strategy": None})


@pytest.fixture
def doctor(monkeypatch, capsys, tmp_path):
    """Calls the command in this process: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    for name, given in (("error", ERROR), ("warning", WARNING), ("good", llm())):
        (tmp_path / f"{name}.yaml").write_text(as_yaml(given))

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["glowplug", "doctor", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code or 0, told.out, told.err

    return call


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("good.yaml",), 0, "nothing found"),
        (("warning.yaml",), 0, "1 warning;"),
        (("warning.yaml", "--strict"), 1, "GP107"),
        (("error.yaml",), 1, "GP030"),
        (("good.yaml", "error.yaml", "--json"), 1, '"rule": "GP030"'),
        ((".", "--sarif"), 1, '"version": "2.1.0"'),
        (("good.yaml", "-v"), 0, "1 object checked"),
    ],
    ids=str,
)
def test_findings_decide_the_exit_code(doctor, words, code, says):
    ended = doctor(*words)
    assert (ended[0], ended[2]) == (code, "")
    assert says in ended[1]


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ((), "nothing to check", "k8s/"),
        (("nowhere.yaml",), "no such file", "-"),
        (("good.yaml", "--json", "--sarif"), "two formats", "choose"),
        (("--explain", "GP015x"), "no rule", "GP015"),
        (("--explain", "zzz"), "no rule", "--rules"),
        (("--explain", "GP014", "good.yaml"), "check nothing", "leave"),
        (("--rules", "--node"), "check nothing", "leave"),
        (("--node", "good.yaml"), "reads no file", "twice"),
        (("--node", "-R"), "reads no file", "twice"),
        (("good.yaml", "--cache-dir", "/x"), "--cache-dir is about a machine", "--node"),
        (("--store", "s3://x/y"), "--store is about a machine", "--node"),
        (("--node", "--store", "gs://x/y"), "gs:// is not supported", "s3://"),
        (("--node", "--instance", "p5.48xlage"), "not in the catalogue", "p5.48xlarge"),
    ],
    ids=str,
)
def test_mistakes_get_one_clear_error(doctor, words, says, hint):
    code, out, err = doctor(*words)
    assert (code, out) == (2, "")
    assert err.count("glowplug: ") == 1
    assert says in err.splitlines()[0]
    assert hint in err.splitlines()[1]


def test_a_file_that_cant_be_read_is_said_and_the_others_are_checked(doctor, tmp_path):
    (tmp_path / "bad.yaml").write_text("kind: Pod\nspec: [\n")
    (tmp_path / "chart.yaml").write_text("metadata:\n  name: {{ .Values.name }}\n")
    code, out, err = doctor("bad.yaml", "chart.yaml", "error.yaml")
    assert code == 2
    assert "GP030" in out
    assert "glowplug: bad.yaml:3: " in err
    assert "glowplug: chart.yaml:2: this is the source of a Helm chart" in err
    assert "helm template" in err


def test_a_rule_is_explained(doctor):
    code, out, err = doctor("--explain", "gp014")
    assert (code, err) == (0, "")
    for text in ("GP014", "--enforce-eager", "Fix: ", "A24", "glowplug.dev/ignore"):
        assert text in out
    document = json.loads(doctor("--explain", "GP014", "--json")[1])
    assert set(document) == {"id", "title", "severity", "why", "fix", "sources"}


def test_rules_are_listed(doctor):
    lines = doctor("--rules")[1].splitlines()
    assert lines[0].split() == ["ID", "SEVERITY", "TITLE"]
    assert any(line.startswith("GP014  warning") for line in lines)
    assert len(json.loads(doctor("--rules", "--json")[1])) == len(lines) - 1 >= 60


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """An environment in which nobody is asked."""
    for name in ("GLOWPLUG_STORE", "GLOWPLUG_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path / "cache"


def test_this_machine_is_checked(doctor, offline):
    code, out, err = doctor("--node", "--cache-dir", str(offline))
    assert err == ""
    assert f"cachefolder{offline},tobemadein{offline.parent}" in re.sub(r"\s+", "", out)
    assert re.search(r"^this machine: ", out, re.MULTILINE)
    assert code == int(bool(re.search(r"^  error ", out, re.MULTILINE)))
    document = json.loads(doctor("--node", "--cache-dir", str(offline), "--json")[1])
    assert document["facts"]["cache_dir"]["path"] == str(offline)
    assert not offline.exists()


def test_an_error_of_the_machine_ends_with_1(doctor, offline):
    offline.write_text("a file in the way")
    code, out, _ = doctor("--node", "--cache-dir", str(offline))
    assert code == 1
    assert re.search(r"^  error   GP900  uid \d+ can't write: not a directory$", out, re.MULTILINE)
    (run,) = json.loads(doctor("--node", "--cache-dir", str(offline), "--sarif")[1])["runs"]
    (found,) = [result for result in run["results"] if result["ruleId"] == "GP900"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == f"file://{offline}"


def test_a_start_s_own_variables_name_the_folder_and_the_store(doctor, offline, monkeypatch):
    monkeypatch.setenv("GLOWPLUG_CACHE_DIR", str(offline))
    monkeypatch.setenv("GLOWPLUG_STORE", f"file://{offline}-store")
    facts = json.loads(doctor("--node", "--json")[1])["facts"]
    assert (facts["cache_dir"]["path"], facts["store"]["url"]) == (str(offline), f"file://{offline}-store")


def test_a_rule_about_machines_is_explained_without_an_annotation(doctor):
    out = doctor("--explain", "gp903")[1]
    assert "DirectoryOrCreate" in out
    assert "glowplug.dev/ignore" not in out
    assert "doctor --node" in out


@pytest.mark.s3
def test_ctrl_c_while_a_store_is_silent_is_quiet(seaweedfs, tmp_path):
    with StoreProxy(seaweedfs.port, rule=on(SILENT, numbers=())) as proxy:
        env = {**os.environ, **seaweedfs.env, **proxy.env, "PYTHONPATH": str(SOURCE)}
        words = [*GLOWPLUG, "doctor", "--node", "--store", f"s3://{seaweedfs.bucket}/x", "--cache-dir", str(tmp_path)]
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            eventually(lambda: proxy.seen)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert os.listdir(tmp_path) == []


def test_it_reads_a_pipe_and_offers_nothing_that_does_not_exist(tmp_path):
    def run(*words, given=b""):
        env = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"}
        return subprocess.run(
            [*GLOWPLUG, "doctor", *words], input=given, env=env, capture_output=True, check=False, timeout=60, cwd=tmp_path
        )

    piped = run("-", given=as_yaml(ERROR, other("example.com/v1", "Thing")).encode())
    assert piped.returncode == 1
    assert b"<stdin>:" in piped.stdout
    assert run("-").returncode == 2
    assert b"standard input" in run("-").stderr
    help_ = run("--help").stdout.decode()
    assert max(map(len, help_.splitlines())) <= 80
    assert "--cluster" not in help_
