"""``glowplug plan`` as its users meet it: 80 columns, JSON, every formula on request, one clear error for each mistake."""

from __future__ import annotations

import json
import re
import sys

import pytest

from glowplug.cli.main import main
from tests.run.program import Program

CONFIG = {
    "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip
SIZE = ("--weights", "67GB")
QWEN = ("--weights", "65524246528B", "--config", "config.json")


@pytest.fixture
def plan(monkeypatch, capsys, tmp_path):
    """Calls the command in this process: exit code, standard output, standard error."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["glowplug", "plan", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code or 0, told.out, told.err

    return call


def document(plan, *words):
    code, out, err = plan(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(("weights", "concurrency"), [("10GB", 3), ("67GB", 17), ("140GB", 35)])
def test_a_size_alone_has_the_streamers_settings(plan, weights, concurrency):
    found = document(plan, "--weights", weights, "--chunk", "4GB")
    assert found["schema"] == "glowplug.dev/plan/v1"
    assert found["runai"]["concurrency"] == concurrency
    assert found["runai"]["environment"]["RUNAI_STREAMER_CONCURRENCY"] == str(concurrency)
    assert found["fit"] is found["start"] is found["host"] is None
    assert found["would_fit"]


def test_the_whole_document(plan):
    found = document(plan, *QWEN, "--instance", "p4d.24xlarge", "--explain")
    assert (found["instance"], found["accelerator"], found["fit"]["tp"]) == ("p4d.24xlarge", "a100-40gb", 4)
    assert found["fit"]["kv_token_bytes"] == 65_536
    assert found["model"]["architecture"]["attention"] == "GQA, 64 heads, 8 of KV, 128 wide"
    assert found["host"]["buffer"] == "full"
    assert found["fetch"]["bound"] == "network card"
    assert {term["basis"] for term in found["start"]["cold"]["terms"]} <= {"measured", "published", "estimated", "exact"}
    total = sum(term["seconds"] for term in found["start"]["cold"]["terms"])
    assert found["start"]["cold"]["total_s"] == pytest.approx(total, abs=0.6)
    assert found["probes"]["startup_budget_s"] == found["probes"]["startup_period_s"] * found["probes"]["startup_failures"]
    assert found["scaling"]["running"] >= 1
    cited = set(re.findall(r'"sources": \[([^\]]*)\]', json.dumps(found)))
    assert {key for keys in cited for key in re.findall(r'"([^"]+)"', keys)} == set(found["sources"])
    assert all(working["formula"] and working["result"] for working in found["workings"])


def test_workings_are_given_on_request_only(plan):
    assert "workings" not in document(plan, *SIZE)


PLANS = [
    SIZE,
    (*SIZE, "--instance", "p5.48xlarge"),
    (*QWEN, "--instance", "p4d.24xlarge", "--loader", "runai", "--via", "nat", "--nodes", "20"),
    (*QWEN, "--gpu", "h100"),
    (*QWEN, "--gpu", "h100", "--bandwidth", "20Gbit/s", "--enforce-eager", "--vllm-version", "0.20.1"),
    (*QWEN, "--instance", "trn1.32xlarge", "--max-model-len", "2048"),
    (*QWEN, "--instance", "p5.48xlarge", "--host-memory", "16GiB", "--phase", "node=75s", "--phase", "cold:compile=1m"),
    (*QWEN, "--instance", "p5en.48xlarge", "--via", "nvme", "--replicas", "40", "--growth", "50%", "--image-size", "25GB"),
    ("--weights", "9000000GB", "--chunk", "1TB"),
]


@pytest.mark.parametrize("more", [(), ("--explain",)], ids=["plain", "explain"])
@pytest.mark.parametrize("words", PLANS, ids=" ".join)
def test_what_a_person_reads_fits_80_columns_and_every_footnote_is_cited(plan, words, more):
    code, out, err = plan(*words, *more)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line != line.rstrip() for line in lines)
    body, _, footnotes = out.partition("\nSOURCES\n")
    cited, told = ({int(number) for number in re.findall(r"\[(\d+)\]", text)} for text in (body, footnotes))
    assert cited == told == set(range(1, len(told) + 1))
    assert "Traceback" not in out


def test_the_answer_comes_first_and_each_phase_says_how_it_is_known(plan):
    _, out, _ = plan(*QWEN, "--instance", "p4d.24xlarge", "--phase", "node=75s")
    lines = out.splitlines()
    assert lines[0] == "65.5 GB (61.0 GiB) on p4d.24xlarge, TP 4"
    assert re.search(r"^node +75\.0 s +75\.0 s +-  measured: --phase$", out, re.MULTILINE)
    assert re.search(r"^compile +53\.5 s +6\.00 s +6\.00 s  published \[\d+\]$", out, re.MULTILINE)
    assert re.search(r"^total +\d", out, re.MULTILINE)
    assert "S3 is not reached" in out
    assert "HOW:" not in out


def test_explain_shows_formulas_with_their_inputs(plan):
    _, out, _ = plan(*QWEN, "--instance", "p4d.24xlarge", "--explain")
    for part in ("MEMORY", "FETCH", "HOST", "RUNAI", "START", "PROBES", "SCALING"):
        assert f"HOW: {part}" in out
    assert "KV cache of a token = 65536 bytes on one device  (exact)" in out
    assert "= 2 (K and V) x KV heads on a device x head width x bytes an element x" in out
    assert "KV heads on a device: 2 of 8" in out


def test_a_checkpoint_is_read_by_a_real_process(tmp_path):
    from testbed.checkpoints import Tensor, write_checkpoint

    model = tmp_path / "model"
    model.mkdir()
    write_checkpoint(model, [Tensor("lm_head.weight", (1000, 512)), Tensor("norm.weight", (512,))], files=1)
    (model / "config.json").write_text(json.dumps(CONFIG))
    glowplug = Program(tmp_path / "machine")
    ended = glowplug("plan", str(model), "--instance", "g6.xlarge", "--batch", "1", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found["model"]["weight_bytes"] == 1_025_024
    assert found["model"]["is_exact"] is True
    assert any("MODEL lies on a disk here" in note for note in found["notes"])
    assert b"512 wide" not in ended.out
    shown = glowplug("plan", str(model), "--instance", "g6.xlarge", "--batch", "1").out.decode()
    assert "1001.0 KiB of weights in 1 file" in shown


def test_reports_of_a_real_start_are_taken(plan, tmp_path):
    glowplug = Program(tmp_path / "machine")
    assert glowplug.run("sh", "-c", "true").report is not None
    code, _, err = plan("--weights", "1GB", "--report", glowplug.report)
    assert (code, "of a command that is no engine" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ((), "there is nothing to plan for", "glowplug plan --weights 67GB"),
        (("--weights", "67"), "--weights: 67 has no unit", "write 67GB or 67GiB"),
        (("--weights", "67.5"), "--weights: 67.5 has no unit", "write 67.5GB"),
        (("--weights", "many"), "--weights: 'many' is not a size", "write 512MiB, 2GB or 1.5GiB"),
        (("--weights", "0GB"), "--weights: 0GB is nothing", "67GB"),
        ((*SIZE, "--chunk", "4"), "--chunk: 4 has no unit", "write 4GB or 4GiB"),
        ((*SIZE, "--chunk", "1MB"), "--chunk: 1000000 bytes are less", "at least 5MiB"),
        ((*SIZE, "--bandwidth", "20"), "--bandwidth: 20 has no unit", "20GB/s or 20Gbit/s"),
        ((*SIZE, "--bandwidth", "fast"), "--bandwidth: 'fast' is not a speed", "1GB/s"),
        ((*SIZE, "--image-size", "10"), "--image-size: 10 has no unit", "10GB"),
        ((*SIZE, "--host-memory", "80"), "--host-memory: 80 has no unit", "80GiB"),
        ((*SIZE, "--instance", "p5.48xlrage"), "'p5.48xlrage' is not in the catalogue", "did you mean p5.48xlarge"),
        ((*SIZE, "--gpu", "h10"), "'h10' is not in the catalogue", "did you mean h100"),
        ((*SIZE, "--gpu", "a100"), "'a100' could be several", "a100-40gb or a100-80gb"),
        ((*SIZE, "--instance", "p5.48xlarge", "--gpu", "l4"), "--gpu l4 contradicts --instance p5.48xlarge", "one of"),
        ((*SIZE, "--tp", "2"), "--tp needs to know of what", "--instance or --gpu"),
        (("--weights", "700GB", "--instance", "p5.48xlarge"), "do not fit p5.48xlarge: at TP 8 each GPU would", "what would: p"),
        (("--weights", "9TB", "--gpu", "b300"), "do not fit b300", "no single node of the catalogue holds it"),
        (("s3://bucket/model", "--weights", "67GB"), "MODEL is read for its size, and --weights gives another", "one of the two"),
        ((*SIZE, "--config", "nowhere.json"), "--config: nowhere.json: No such file", "config.json"),
        ((*SIZE, "--config", "/dev/null"), "/dev/null is not JSON", "config.json"),
        ((*SIZE, "--loader", "tensorizer"), "--loader: 'tensorizer' is not known", "glowplug or runai"),
        ((*SIZE, "--via", "pigeon"), "--via: 'pigeon' is not known", "endpoint, nat, nvme, root"),
        ((*SIZE, "--kv-dtype", "int3"), "--kv-dtype: 'int3' is not known", "fp8"),
        ((*SIZE, "--vllm-version", "new"), "--vllm-version: 'new' is no version", "0.21"),
        ((*SIZE, "--growth", "3"), "--growth: '3' is no percentage", "10%"),
        ((*SIZE, "--phase", "node"), "--phase: 'node' has no time", "node=75s"),
        ((*SIZE, "--phase", "node=75"), "--phase: 75 has no unit", "write node=75s"),
        ((*SIZE, "--phase", "node=soon"), "--phase: 'soon' is not a duration", "30s"),
        ((*SIZE, "--phase", "lunch=1h"), "--phase: there is no 'lunch'", "image pull"),
        ((*SIZE, "--phase", "node=75s", "--phase", "Node=80s"), "--phase: 'node' is given twice", "the one that counts"),
        ((*SIZE, "--instance", "p5.48xlarge", "--host-memory", "9TiB"), "more than the 2.0 TiB of p5.48xlarge", "leave it out"),
        ((*SIZE, "--report", "nowhere.json"), "--report: nowhere.json: No such file", "glowplug run --report"),
        ((*SIZE, "--distributed"), "--distributed is of the Run:ai streamer", "--loader runai"),
        (
            (*SIZE, "--distributed", "--loader", "runai", "--enforce-eager"),
            "--distributed can't be with --enforce-eager",
            "leave one of the two out",
        ),
        ((*SIZE, "--via", "nvme", "--nodes", "3"), "--nodes 3 share a network, and --via nvme uses none", "leave one out"),
        ((*SIZE, "--batch", "0"), "--batch: 0 is out of bounds", "give 1 to"),
        ((*QWEN, "--gpu", "h100", "--max-model-len", "50000"), "50000 tokens are more than the 40960", "at most 40960"),
        (("Qwen/Qwen3-32B",), "Qwen/Qwen3-32B", "a name of the Hugging Face hub isn't read"),
        (("ftp://host/model",), "weights can't be read from ftp://", "s3://bucket/prefix"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_error(plan, words, says, hint):
    code, out, err = plan(*words)
    assert (code, out) == (2, "")
    problem, *hints = err.splitlines()
    assert problem.startswith("glowplug: ")
    assert says in problem
    assert len(hints) == 1
    assert hint in hints[0]


def test_a_folder_that_is_not_there_is_no_wrong_usage(plan):
    code, _, err = plan("/nowhere/at/all")
    assert code == 1
    assert "there is no file or folder /nowhere/at/all" in err


def test_help_fits_80_columns(tmp_path):
    ended = Program(tmp_path)("plan", "--help", env={"COLUMNS": "80"})
    assert ended.code == 0
    assert max(map(len, ended.out.decode().splitlines())) <= 80
