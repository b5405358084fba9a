import pytest

from glowplug.cache.envelope import Envelope
from glowplug.cache.families import JIT
from glowplug.engines.base import ExitReadiness
from glowplug.engines.generic.adapter import GenericAdapter
from glowplug.engines.generic.log import GenericLog
from glowplug.timeline.outcome import Evidence
from glowplug.timeline.phases import Phase


def launch(venv, *words, env=None, cwd="/"):
    return GenericAdapter().launch(tuple(map(str, words)), venv.env | (env or {}), str(cwd))


def digest(*args, **kwargs):
    return Envelope(launch(*args, **kwargs).components).digest


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import torch\n")
    return path


def test_a_script_is_ready_when_it_exits_and_caches_through_torch(vllm_venv, script):
    found = launch(vllm_venv, "python", script, "--steps", "3")
    assert found.engine.name == "generic"
    assert found.engine.version is None
    assert found.readiness == ExitReadiness()
    assert found.families == JIT
    assert (found.relocatable, found.ranks, found.notices) == (False, 1, ())
    assert found.components["packages"]["torch"] == "2.13.0"
    assert found.components["arguments"]["words"] == ["--steps", "3"]


def test_a_scripts_content_counts_and_its_place_does_not(vllm_venv, script, tmp_path):
    before = digest(vllm_venv, "python", script)
    (tmp_path / "sub").mkdir()
    moved = script.rename(tmp_path / "sub" / script.name)
    assert digest(vllm_venv, "python", moved) == before
    moved.write_text("import torch  # edited\n")
    assert digest(vllm_venv, "python", moved) != before


def test_launchers_do_not_count_and_words_do(vllm_venv, script):
    plain = digest(vllm_venv, "python", script, "a")
    assert digest(vllm_venv, "nice", "-n", "5", "python", script, "a") == plain
    assert digest(vllm_venv, "python", script, "b") != plain


def test_modules_and_code_are_told_apart(vllm_venv):
    assert launch(vllm_venv, "python", "-m", "pkg.train", "x").components["arguments"] == {"words": ["x"], "module": "pkg.train"}
    assert digest(vllm_venv, "python", "-c", "a = 1") != digest(vllm_venv, "python", "-c", "a = 2")


def test_secrets_on_the_command_line_are_left_out(vllm_venv, script):
    words = launch(
        vllm_venv,
        "python",
        script,
        "--api-key",
        "s3cret",
        "--hf-token=s3cret",
        "HF_TOKEN=s3cret",
        "http://u:s3cret@h",
        "--token",
        "--keep",
        "1",
    ).components["arguments"]["words"]
    assert words == ["--api-key", "--hf-token=", "HF_TOKEN=", "http://h", "--token", "--keep", "1"]


def test_a_command_that_is_no_python_is_described_by_itself(vllm_venv):
    found = launch(vllm_venv, "sleep", "1")
    assert found.components["arguments"] == {"program": "sleep", "words": ["1"]}
    assert found.components["python"]["unknown"].endswith("/sleep")
    assert "no Python was found behind sleep" in found.notices[0]


def test_a_command_that_does_not_exist_is_described_too(vllm_venv):
    assert launch(vllm_venv, "no-such-command").components["python"] == {"unknown": "no-such-command"}


def test_vllm_behind_something_unknown_is_pointed_out(vllm_venv):
    assert any("put `vllm serve` itself" in line for line in launch(vllm_venv, "uv", "run", "vllm", "serve", "m").notices)
    assert not any("vllm serve" in line for line in launch(vllm_venv, "vllm", "bench").notices)


def test_folders_that_are_replaced_are_named(vllm_venv, script):
    found = launch(vllm_venv, "python", script, env={"TRITON_CACHE_DIR": "/mine"})
    assert "TRITON_CACHE_DIR=/mine is replaced" in found.notices[0]
    assert found.components["environment"] == {}


def test_the_log_is_one_phase_without_evidence():
    log = GenericLog()
    log.feed("anything", 1.0)
    assert log.phases(2.0, 5.5) == [Phase("run", 2.0, 3.5)]
    assert log.phases(2.0, 1.0) == [Phase("run", 2.0, 0.0)]
    assert log.evidence() == Evidence()
