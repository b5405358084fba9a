"""Weights that stream into a real vLLM: what it says is token for token what vLLM's own loader makes it say.

What these tests don't prove: anything about a GPU, or how long a load takes (benchmarks/ measures that).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.demo import ENGINE_ENV
from demo.server import Server
from glowplug.store import open_store
from testbed.range_faults import DRIP
from testbed.vllm_env import ROOT
from tests.run.program import eventually

pytestmark = [pytest.mark.vllm, pytest.mark.s3, pytest.mark.timeout(1200)]

PLUG_IN = ROOT / "src" / "glowplug" / "engines" / "vllm" / "plugin"
PROMPTS = ["a glow plug", "lets a cold", "engine start", "glow glow glow"]
URI = "s3://glowplug/weights/tiny"
# In float32: what is computed in bfloat16 depends on the processor, and on virtual machines that name AMX without having it, dies.
PLAIN = ["--enforce-eager", "--dtype", "float32"]
GENERATE = """
import json, sys
if __name__ == "__main__":
    from vllm import LLM, SamplingParams
    model, load_format, extra, more = sys.argv[1:5]
    llm = LLM(model, load_format=load_format, model_loader_extra_config=json.loads(extra), max_model_len=128, max_num_seqs=4,
              enforce_eager=True, dtype="float32", **json.loads(more))
    outputs = llm.generate(json.loads(sys.argv[5]), SamplingParams(temperature=0, max_tokens=16, logprobs=1))
    said = [[output.token_ids, [round(step[token].logprob, 4) for token, step in zip(output.token_ids, output.logprobs)]]
            for request in outputs for output in request.outputs]
    print("SAID", json.dumps(said, default=list))
"""


@pytest.fixture(scope="module")
def env(seaweedfs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    base = {name: value for name, value in os.environ.items() if not name.startswith(("GLOWPLUG_", "VLLM_", "XDG_", "AWS_"))}
    return {**base, **seaweedfs.env, **ENGINE_ENV, "XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder / "xdg")}


@pytest.fixture(scope="module")
def stored(env, tiny_model):
    """The tiny model in the S3 server."""
    store = open_store(URI, env=env)
    for path in tiny_model.iterdir():
        store.put(path.name, path.read_bytes())
    return URI


@pytest.fixture(scope="module")
def generate(env, vllm_python, tmp_path_factory):
    """Answers by vLLM as a library, without a wrapper: tokens and their log probabilities; and what it printed."""
    script = tmp_path_factory.mktemp("generate") / "generate.py"
    script.write_text(GENERATE)

    def run(model, load_format, *, extra=None, more=None, plugged=True, bind=None):
        words = [vllm_python, script, model, load_format, json.dumps(extra or {}), json.dumps(more or {}), json.dumps(PROMPTS)]
        variables = {"PYTHONPATH": str(PLUG_IN), "GLOWPLUG_COMMAND": f"{sys.executable} -m glowplug"} if plugged else {}
        variables |= {"VLLM_CPU_OMP_THREADS_BIND": bind} if bind else {}
        done = subprocess.run(words, env=env | variables, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        [said] = [line.removeprefix("SAID ") for line in done.stdout.splitlines() if line.startswith("SAID ")]
        return json.loads(said), done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def expected(generate, tiny_model):
    """What vLLM's default loader makes it say."""
    return generate(str(tiny_model), "auto", plugged=False)[0]


@pytest.fixture(scope="module")
def serve(env, vllm_python, tmp_path_factory):
    """Starts ``glowplug run -- vllm serve`` of a URI."""
    folder = tmp_path_factory.mktemp("served")

    def start(name, model, *, options=(), words=(), extra=None, glowplug=None):
        return _Served(
            vllm=vllm_python.parent / "vllm",
            model=model,
            store=f"file://{folder}/store",
            folder=folder / name,
            env={**env, **(extra or {})},
            say=lambda line: print(f"{name}: {line}"),
            glowplug=glowplug,
            options=tuple(options),
            words=tuple(words),
        )

    return start


class _Served(Server):
    """A server whose model is a URI, and whose name is that URI."""

    def __init__(self, *, options, words, **fields) -> None:
        super().__init__(**fields)
        self._options, self._words = options, words

    @property
    def command(self) -> list[str]:
        words = [word for word in super().command if word not in ("--served-model-name", "tiny")]
        at = words.index("--")
        return [*words[:at], *self._options, "--no-publish", *words[at:], *PLAIN, *self._words]

    def said(self, prompt):
        """Tokens and log probabilities, as ``generate`` gives them."""
        document = {"model": str(self.model), "prompt": prompt, "max_tokens": 16, "temperature": 0, "logprobs": 1}
        status, body = self._request("POST", "/v1/completions", {**document, "return_token_ids": True})
        assert status == 200, body
        [choice] = json.loads(body)["choices"]
        return [choice["token_ids"], [round(value, 4) for value in choice["logprobs"]["token_logprobs"]]]


def close_to(said, expected):
    """The same tokens, with the same probabilities."""
    for (tokens, values), (tokens_before, values_before) in zip(said, expected, strict=True):
        assert tokens == tokens_before
        assert values == pytest.approx(values_before, abs=1e-3)


def children(pid):
    """The processes that a process has started and not yet waited for, from any of its threads."""
    try:
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid):
    return [each for child in children(pid) for each in (child, *descendants(child))]


def maps_the_buffer(pid):
    try:
        return "/memfd:glowplug" in Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("memory", ["full", "300KB"])
def test_a_streamed_model_says_what_vllms_own_loader_makes_it_say(serve, stored, expected, memory):
    with serve(f"memory-{memory}", stored, options=["--host-memory", memory]) as server:
        server.wait_until_ready()
        report = server.wait_for_report()
        close_to([server.said(prompt) for prompt in PROMPTS], expected)
    assert report.weights.mode == ("full" if memory == "full" else "windowed")
    assert report.weights.bytes > 5_000_000
    assert report.weights.ranks == 1
    assert report.weights.error == ""
    assert "weights" in {phase.name for phase in report.phases}
    log = server.log.read_text()
    assert "Loading weights took" in log  # vLLM's own words, which the timeline is made of
    assert "Glowplug: 5.5 MiB from s3://glowplug/weights/tiny" in log


def test_without_a_wrapper_the_loader_streams_by_itself(generate, stored, tiny_model, expected):
    """From the S3 server by ``uri``, with a folder of configuration as model; vLLM knows nothing of S3."""
    said, log = generate(str(tiny_model), "glowplug", extra={"uri": stored, "concurrency": 4})
    close_to(said, expected)
    assert "from s3://glowplug/weights/tiny, full buffer" in log


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two processors")
def test_two_ranks_share_one_feeder_and_say_what_two_ranks_say(generate, tiny_model):
    """Two ranks add in another order than one, so both sides have two."""
    two = {"more": {"tensor_parallel_size": 2}, "bind": "0|1"}
    plain, _ = generate(str(tiny_model), "auto", plugged=False, **two)
    said, log = generate(str(tiny_model), "glowplug", **two)
    close_to(said, plain)
    assert [f"full buffer, rank {rank} of 2" in log for rank in range(2)] == [True, True]


def test_a_wrapper_that_is_killed_mid_load_ends_the_engine_with_its_reason(serve, range_server, tiny_model, tmp_path):
    bucket = tmp_path / "buckets" / "bucket"
    bucket.mkdir(parents=True)
    (bucket / "tiny").symlink_to(tiny_model)
    slow = range_server(
        tmp_path / "buckets", faults=lambda call: DRIP if call.start and call.key.endswith(".safetensors") else None
    )
    # The wrapper passes the engine's output on; once it is gone, the engine must have another place for its last words.
    log, logging = tmp_path / "engine.log", tmp_path / "logging.json"
    log.touch()
    handlers = {"file": {"class": "logging.FileHandler", "filename": str(log)}}
    logging.write_text(
        json.dumps({"version": 1, "handlers": handlers, "loggers": {"vllm": {"handlers": ["file"], "level": "INFO"}}})
    )
    # However slowly the engine imports, the load goes on until then.
    extra = {**slow.env, "VLLM_LOGGING_CONFIG_PATH": str(logging), "GLOWPLUG_WEIGHTS_LOW_SPEED_LIMIT": "0"}
    with serve("killed", "s3://bucket/tiny", extra=extra) as server:
        # Killed before a rank holds the buffer, the loader would stream by itself, and rightly so.
        server._wait(lambda: any(maps_the_buffer(rank) for rank in descendants(server.process.pid)), "attached", 300)
        [engine] = children(server.process.pid)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        eventually(lambda: not Path(f"/proc/{engine}").exists(), 120)
    said = log.read_text()
    assert f"RuntimeError: glowplug: the process that streams the weights (pid {server.process.pid}) has gone" in said
