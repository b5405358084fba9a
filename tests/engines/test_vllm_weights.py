"""A vLLM command, in whatever way it names its model, becomes one that loads the same model from the buffer, or stays as it is."""

import json
import os
import subprocess
import sys

import pytest

from glowplug.engines.base import Handover
from glowplug.engines.command import unwrap
from glowplug.engines.interpreter import python_command
from glowplug.engines.registry import weights_request
from glowplug.engines.vllm.adapter import _entry
from glowplug.engines.vllm.arguments import parse
from glowplug.engines.vllm.weights import PLUGIN_FOLDER

S3 = "s3://bucket/models/qwen3"
FOLDER = "/tmp/glowplug-models/0123456789abcdef"
HANDOVER = Handover(FOLDER, S3, "/run/user/1/s", "/opt/glowplug/bin/glowplug")


def request(venv, words, env=None, cwd="/"):
    return weights_request(words, venv.env | (env or {}), str(cwd))


def rewritten(venv, words, env=None, cwd="/"):
    found = request(venv, words, env, cwd)
    assert found.rewrite is not None, found.notice
    return found.rewrite(HANDOVER)


def understood(venv, words, env=None, cwd="/"):
    """vLLM's arguments in a command, launchers looked through, as vLLM would read them."""
    command = unwrap(words, venv.env | (env or {}), str(cwd))
    serve, arguments = _entry(command, python_command(command))
    return parse(arguments, serve=serve, cwd=str(cwd))


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve S3",
        "vllm serve S3 --port 9000 -tp 2",
        "vllm serve --port 9000 -tp 2 S3",
        "vllm serve --enforce-eager S3 --port 9000",
        "vllm serve --model S3 --port 9000",
        "vllm serve --port 9000 --model=S3 -tp=2",
        "vllm serve S3 --load-format auto",
        "vllm serve S3 --load_format=auto",
        "vllm serve S3 --served-model-name mine also-mine --port 9000",
        "vllm serve S3 --tokenizer S3",
        "vllm serve S3 --tokenizer other/tokenizer",
        "vllm serve S3 --speculative-config.model S3-draft --speculative-config.num_speculative_tokens 2",
        "vllm serve S3 -cc.mode 0 --compilation-config.cudagraph_mode NONE",
        "vllm serve S3 --lora-modules a=/lora b=/lora",
        "vllm serve --config CONFIG",
        "vllm serve --config CONFIG --port 9000",
        "vllm serve S3 --config CONFIG",
        "python -m vllm.entrypoints.openai.api_server --model S3 --port 9000",
        "python -m vllm.entrypoints.openai.api_server --port 9000 --model=S3",
        "python -m vllm.entrypoints.openai.api_server --config CONFIG",
        "python -u -m vllm.entrypoints.cli.main serve S3",
        "env A=1 numactl -N 0 vllm serve S3",
        "VENV/bin/vllm serve S3",
    ],
)
def test_only_the_model_the_format_and_a_missing_name_change(vllm_venv, tmp_path, line):
    config = tmp_path / "vllm.yaml"
    config.write_text(f"model: {S3}\nmax-model-len: 128\nmax_num_seqs: 4\n")
    words = line.replace("S3", S3).replace("CONFIG", str(config)).replace("VENV", str(vllm_venv.root)).split()
    argv, _ = rewritten(vllm_venv, words)
    before, after = understood(vllm_venv, words), understood(vllm_venv, argv)
    assert after.model == FOLDER
    expected = {**before.values, "load-format": "glowplug"}
    expected.setdefault("served-model-name", [S3])
    if before.values.get("tokenizer") == S3:
        expected["tokenizer"] = FOLDER
    assert after.values == expected
    assert argv[: argv.index("vllm") if "vllm" in argv else 1] == tuple(words[: argv.index("vllm") if "vllm" in argv else 1])


def test_a_name_that_is_the_url_too_stays(vllm_venv):
    argv, _ = rewritten(vllm_venv, ["vllm", "serve", "--served-model-name", S3, "--port", "9000", "--model", S3])
    after = understood(vllm_venv, argv)
    assert (after.model, after.values["served-model-name"], after.values["port"]) == (FOLDER, [S3], 9000)


@pytest.mark.parametrize("options", [["-c"], ["-ec"], ["-o", "pipefail", "-c"]])
def test_a_shell_runs_the_rewritten_words_and_no_others(vllm_venv, tmp_path, options):
    """Run for real: what the program gets is what was meant, whatever characters are in it."""
    vllm_venv.script(
        "vllm", f"#!{vllm_venv.python}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ['A'], os.environ['B']]))\n"
    )
    line = "A=\"x 'y' $HOME\" B='$HOME *' exec vllm serve $MODEL --chat-template 'a b;c \"d\" `e`' --port $PORT"
    env = vllm_venv.env | {"MODEL": S3, "PORT": "9000", "HOME": str(tmp_path)}
    words = ["bash", *options, line]
    argv, _ = rewritten(vllm_venv, words, env)
    assert argv[:-1] == tuple(words[:-1])
    said, a, b = json.loads(subprocess.run(argv, env=env, capture_output=True, check=True).stdout)
    assert said == [
        *("serve", FOLDER, "--chat-template", 'a b;c "d" `e`', "--port", "9000"),
        *("--load-format", "glowplug", "--served-model-name", S3),
    ]
    assert (a, b) == (f"x 'y' {tmp_path}", "$HOME *")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("vllm serve S3 --load-format runai_streamer", f"--load-format runai_streamer is left as it is: vLLM fetches {S3}"),
        ("vllm serve S3 --load-format=sharded_state", "--load-format sharded_state is left as it is"),
        ("vllm serve S3 --load_format dummy", "--load-format dummy is left as it is"),
        ("vllm serve S3 --load-format pt", f"--load-format pt is left as it is: vLLM loads nothing from {S3} with it;"),
        ("vllm serve --port 9000 -- S3", "the model's name can't be replaced"),
        ("vllm serve --config CONFIG S3", "the model's name can't be replaced"),
    ],
)
def test_what_the_user_chose_or_we_cannot_be_sure_of_stays_and_is_said(vllm_venv, tmp_path, line, says):
    config = tmp_path / "vllm.yaml"
    config.write_text(f"model: {S3}\n")
    found = request(vllm_venv, line.replace("S3", S3).replace("CONFIG", str(config)).split())
    assert found.rewrite is None
    assert found.notice.startswith(says)
    assert S3 in found.notice


@pytest.mark.parametrize("model", ["gs://bucket/m", "az://container/m", "Qwen/Qwen3-8B", "/nowhere/model"])
def test_a_model_that_nobody_streams_is_not_spoken_of(vllm_venv, model):
    assert request(vllm_venv, ["vllm", "serve", model]) is None


def test_a_command_that_starts_no_server_loads_nothing(vllm_venv):
    assert request(vllm_venv, ["vllm", "bench", S3]) is None
    assert request(vllm_venv, ["python", "train.py", S3]) is None


def test_a_folder_and_a_cached_repository_are_found_where_they_lie(vllm_venv, tmp_path):
    (tmp_path / "model").mkdir()
    found = request(vllm_venv, ["vllm", "serve", "model", "-tp", "2"], cwd=tmp_path)
    assert (found.uri, found.is_remote, found.rewrite, found.ranks) == (str(tmp_path / "model"), False, None, 2)
    repository = tmp_path / "hub" / "models--Qwen--Qwen3"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    found = request(vllm_venv, ["vllm", "serve", "Qwen/Qwen3"], {"HF_HUB_CACHE": str(tmp_path / "hub")})
    assert (found.uri, found.is_remote) == (str(snapshot), False)


def test_the_engine_is_told_where_the_buffer_is_and_finds_the_plug_in(vllm_venv):
    _, variables = rewritten(vllm_venv, ["vllm", "serve", S3, "-tp", "2", "-dp", "2"])
    assert variables == {
        "PYTHONPATH": PLUGIN_FOLDER,
        "GLOWPLUG_WEIGHTS_SOCKET": HANDOVER.socket,
        "GLOWPLUG_WEIGHTS_URI": S3,
        "GLOWPLUG_WEIGHTS_FOLDER": FOLDER,
        "GLOWPLUG_WEIGHTS_RANKS": "4",
        "GLOWPLUG_COMMAND": HANDOVER.command,
    }
    _, variables = rewritten(vllm_venv, ["vllm", "serve", S3], {"PYTHONPATH": "/a:/b"})
    assert variables["PYTHONPATH"] == f"{PLUGIN_FOLDER}:/a:/b"


@pytest.mark.parametrize(
    ("allowed", "then"), [(None, None), ("", "glowplug"), ("lora_resolver", "lora_resolver,glowplug"), ("a,glowplug", None)]
)
def test_an_allow_list_of_plug_ins_gets_ours_too(vllm_venv, allowed, then):
    _, variables = rewritten(vllm_venv, ["vllm", "serve", S3], {} if allowed is None else {"VLLM_PLUGINS": allowed})
    assert variables.get("VLLM_PLUGINS") == then


def test_a_run_ai_spec_keeps_its_concurrency(vllm_venv):
    found = request(vllm_venv, ["vllm", "serve", S3, "--model-loader-extra-config", '{"concurrency": 32}'])
    assert found.concurrency == 32
    argv, _ = found.rewrite(HANDOVER)
    assert understood(vllm_venv, argv).values["model-loader-extra-config"] == {"concurrency": 32}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("vllm serve S3", ""),
        ("python -I -m vllm.entrypoints.openai.api_server --model S3", "does not read PYTHONPATH"),
        ("env -i PATH=PATHS vllm serve S3", "the command itself decides about PYTHONPATH"),
        ("env -u GLOWPLUG_WEIGHTS_SOCKET vllm serve S3", "the command itself decides about GLOWPLUG_WEIGHTS_SOCKET"),
        ("env PYTHONPATH=/mine vllm serve S3", "the command itself decides about PYTHONPATH"),
    ],
)
def test_an_engine_that_would_not_find_the_plug_in_is_left_alone(vllm_venv, command, says):
    words = command.replace("S3", S3).replace("PATHS", vllm_venv.env["PATH"]).replace("python", str(vllm_venv.python)).split()
    obstacle = request(vllm_venv, words).obstacle()
    assert says in obstacle
    assert bool(obstacle) == bool(says)


def test_a_vllm_that_is_too_old_is_left_alone(venv):
    venv.install("vllm", "0.20.2", "vllm")
    venv.script("vllm", f"#!{venv.python}\n")
    assert "0.20.2 is older than 0.21" in request(venv, ["vllm", "serve", S3]).obstacle()


def test_a_python_that_does_not_answer_is_an_obstacle(vllm_venv):
    vllm_venv.script("vllm", "#!/bin/sh\nexec something\n")
    assert "was not found or did not answer" in request(vllm_venv, ["vllm", "serve", S3]).obstacle()


def test_a_processor_needs_memory_for_its_own_copy_and_its_cache(vllm_venv, monkeypatch):
    from glowplug.engines.accelerators import Accelerators
    from glowplug.engines.vllm import weights

    words, gib = ["vllm", "serve", S3], 1 << 30
    monkeypatch.setattr(weights, "accelerators", lambda _env: Accelerators("nvidia", ("H200",)))
    device = request(vllm_venv, words).engine_bytes(100 * gib)
    monkeypatch.setattr(weights, "accelerators", lambda _env: Accelerators("none"))
    assert request(vllm_venv, words, {"VLLM_CPU_KVCACHE_SPACE": "7"}).engine_bytes(100 * gib) == device + 107 * gib
    assert request(vllm_venv, [*words, "-tp", "2"]).engine_bytes(gib) > request(vllm_venv, words).engine_bytes(gib)


def test_the_plug_in_folder_is_a_distribution_whose_entry_point_is_the_module_in_it():
    code = (
        "from importlib.metadata import entry_points\n"
        "points = entry_points(group='vllm.general_plugins', name='glowplug')\n"
        "[point] = [point for point in points if point.dist.name == 'glowplug-vllm']\n"
        "function = point.load()\n"
        "import sys\n"
        "print(function.__module__, sys.modules[function.__module__].__file__, 'glowplug' in sys.modules)\n"
    )
    env = {"PYTHONPATH": PLUGIN_FOLDER, "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-B", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["glowplug_vllm", os.path.join(PLUGIN_FOLDER, "glowplug_vllm.py"), "False"]
