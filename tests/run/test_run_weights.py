"""A remote checkpoint under ``glowplug run``: every byte reaches the engine once, or the user's own command is what starts."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from testbed.range_faults import DRIP, Fault
from tests.run import stand_ins
from tests.run.program import Program, eventually
from tests.weights.weights_samples import write_checkpoint

URI = "s3://bucket/models/tiny"


@pytest.fixture
def bucket(tmp_path):
    """The folder of a bucket with one checkpoint."""
    write_checkpoint(tmp_path / "buckets" / "bucket" / "models" / "tiny", files=2, tensors=6, elements=(1000, 40_000))
    return tmp_path / "buckets"


@pytest.fixture
def digests(bucket):
    tensors = write_checkpoint(bucket.parent / "again", files=2, tensors=6, elements=(1000, 40_000))
    return {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in tensors.items()}


@pytest.fixture
def engine(tmp_path):
    """``vllm serve`` of the remote checkpoint."""
    words = list(stand_ins.vllm(tmp_path).words)
    words[2] = URI
    return words


@pytest.fixture
def served(range_server, bucket):
    return range_server(bucket)


def weight_bytes(bucket):
    """Of all weight files, without their headers."""
    files = list(bucket.glob("bucket/models/tiny/*.safetensors"))
    return sum(path.stat().st_size - 8 - int.from_bytes(path.read_bytes()[:8], "little") for path in files)


def concluded(glowplug, engine, *, options=(), env=None):
    """Start it, let it become ready, stop it."""
    with glowplug.begin(*engine, options=["--no-publish", *options], env=env) as start:
        start.wait_for("nothing was published")
        start.signal(signal.SIGTERM)
        return start.end()


def taken(ended, rank=0):
    """Tensor to digest, as the engine has seen them."""
    lines = [line.split() for line in ended.out.decode().splitlines() if line.startswith(f"tensor {rank} ")]
    return {name: digest for _, _, name, digest in lines}


def words_of(ended):
    [line] = [line for line in ended.out.decode().splitlines() if line.startswith("argv ")]
    words, _, path = line.removeprefix("argv ").partition(" PYTHONPATH ")
    return json.loads(words), path


def left_alone(ended, engine):
    """The engine got the user's own command and environment."""
    words, path = words_of(ended)
    assert words == engine[1:]
    assert "plugin" not in path
    assert ended.report["weights"] is None
    assert "Traceback" not in ended.err


# --- it works


def test_every_byte_arrives_once_and_the_report_tells_what_it_cost(glowplug, engine, served, bucket, digests):
    ended = concluded(glowplug, engine, env=served.env)
    assert ended.code == 0
    assert taken(ended) == digests
    words, path = words_of(ended)
    folder = words[1]
    assert words[1:] == [folder, *engine[3:], "--load-format", "glowplug", "--served-model-name", URI]
    assert json.loads(Path(folder, "config.json").read_bytes())["model_type"] == "llama"
    assert path.split(os.pathsep)[0].endswith("/engines/vllm/plugin")
    report = ended.report["weights"]
    assert (report["uri"], report["mode"], report["ranks"]) == (URI, "full", 1)
    assert report["bytes"] == weight_bytes(bucket)
    assert report["hidden_s"] + report["visible_s"] == pytest.approx(report["seconds"], abs=0.05)
    assert (report["retries"], report["error"], report["verified"]) == (0, "", False)
    [line] = ended.said("weights:")
    assert "buffered in full" in line
    assert "weights   " in ended.err


def test_the_key_of_a_command_by_hand_is_that_of_its_start(glowplug, engine, served):
    ended = concluded(glowplug, engine, env=served.env)
    told = glowplug("cache", "key", "--cache-dir", glowplug.live, "--json", "--", *engine, env=served.env)
    assert told.code == 0, told.err
    assert json.loads(told.out)["envelope"] == ended.report["cache"]["envelope"]


def test_the_key_of_a_command_whose_checkpoint_is_not_there_names_it(glowplug, engine, served, bucket):
    shutil.rmtree(bucket / "bucket" / "models" / "tiny")
    told = glowplug("cache", "key", "--", *engine, env=served.env)
    assert told.code == 1
    assert URI in told.err
    assert "Traceback" not in told.err


def test_four_ranks_cost_the_bytes_of_one(glowplug, engine, range_server, bucket, digests):
    asked: list[int] = []

    def note(call):
        if call.key.endswith(".safetensors") and call.start:  # a header is read from the file's begin
            asked.append(call.end - call.start)

    ended = concluded(glowplug, [*engine, "-tp", "2", "-pp", "2"], env=range_server(bucket, faults=note).env)
    assert [taken(ended, rank) for rank in range(4)] == [digests] * 4
    assert ended.report["weights"]["ranks"] == 4
    assert sum(asked) == weight_bytes(bucket)


def test_a_window_that_is_smaller_than_the_checkpoint_brings_the_same(glowplug, engine, served, bucket, digests):
    ended = concluded(glowplug, engine, options=["--host-memory", "200KB"], env=served.env)
    assert taken(ended) == digests
    assert ended.report["weights"]["mode"] == "windowed"
    assert weight_bytes(bucket) > 400_000
    [line] = ended.said("weights:")
    assert "windowed" in line


def test_a_restore_hits_for_the_same_checkpoint_in_another_bucket(glowplug, engine, served, bucket, digests):
    with glowplug.begin(*engine, env=served.env) as start:
        start.wait_for("published generation")
        start.signal(signal.SIGTERM)
        start.end()
    shutil.copytree(bucket / "bucket", bucket / "replica")
    glowplug.forget()
    engine[2] = URI.replace("bucket", "replica")
    ended = concluded(glowplug, engine, env=served.env)
    assert ended.report["outcome"] == "hit"
    assert taken(ended) == digests


def test_a_name_that_the_user_gave_and_an_allow_list_of_plug_ins_are_kept(glowplug, engine, served):
    ended = concluded(glowplug, [*engine, "--served-model-name", "mine"], env=served.env | {"VLLM_PLUGINS": "lora"})
    assert words_of(ended)[0][-4:] == ["--served-model-name", "mine", "--load-format", "glowplug"]


# --- it is not wanted


def test_a_load_format_of_the_users_own_is_left_alone_and_said(glowplug, engine, served):
    engine += ["--load-format", "runai_streamer"]
    ended = concluded(glowplug, engine, env=served.env)
    left_alone(ended, engine)
    assert ended.said("--load-format runai_streamer is left as it is")
    assert served.stats().body_bytes == 0


def test_no_weights_asks_nobody(glowplug, engine, served):
    ended = concluded(glowplug, engine, options=["--no-weights"], env=served.env)
    left_alone(ended, engine)
    assert not ended.said("weights")
    assert served.stats().requests == 0


# --- it fails, and the engine starts all the same


def without_safetensors(bucket, _):
    for path in bucket.glob("bucket/models/tiny/*.safetensors*"):
        path.unlink()
    (bucket / "bucket/models/tiny/pytorch_model.bin").write_bytes(b"x" * 1000)


def with_a_torn_header(bucket, _):
    path = next(bucket.glob("bucket/models/tiny/*.safetensors"))
    path.write_bytes(path.read_bytes()[:30])


def without_the_checkpoint(bucket, _):
    shutil.rmtree(bucket / "bucket/models")


def forbidden(_, server):
    server.behaviour.access_key = "SOMEBODYELSE"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (without_safetensors, "no safetensors"),
        (with_a_torn_header, ".safetensors"),
        (without_the_checkpoint, "models/tiny"),
        (forbidden, "refuses access"),
    ],
)
def test_a_checkpoint_that_cannot_be_opened_is_left_to_the_engine_in_one_line(glowplug, engine, served, bucket, spoil, says):
    spoil(bucket, served)
    ended = concluded(glowplug, engine, env=served.env)
    left_alone(ended, engine)
    [line] = ended.said("weights are left to the engine:")
    assert says in line
    assert "internal error" not in line


def test_a_store_that_is_slow_to_answer_is_not_waited_for(glowplug, engine, served):
    served.behaviour.latency_s = 2.0
    ended = concluded(glowplug, engine, options=["--weights-deadline", "300ms"], env=served.env)
    left_alone(ended, engine)
    [line] = ended.said("weights are left to the engine:")
    assert "--weights-deadline" in line


def test_an_engine_that_would_not_find_the_loader_is_left_alone(glowplug, engine, served):
    words = ["env", f"PYTHONPATH={Program(glowplug.folder).env['PYTHONPATH']}", *engine]
    ended = concluded(glowplug, words, env=served.env)
    left_alone(ended, engine)
    [line] = ended.said("weights are left to the engine:")
    assert "PYTHONPATH" in line


def test_a_setting_that_cannot_be_used_is_a_usage_error_before_anything_starts(glowplug, engine, served):
    ended = glowplug.run(*engine, env=served.env | {"RUNAI_STREAMER_CONCURRENCY": "many"})
    assert ended.code == 2
    assert "RUNAI_STREAMER_CONCURRENCY" in ended.err
    for options in (["--host-memory", "lots"], ["--max-bandwidth", "fast"], ["--weights-deadline", "0"]):
        ended = glowplug.run("true", options=options)
        assert (ended.code, ended.out) == (2, b"")
        assert options[0] in ended.err


# --- ends


def test_a_fetch_that_cannot_go_on_ends_the_engine_with_its_reason_and_is_reported(glowplug, engine, range_server, bucket):
    def gone(call):
        return Fault("status", status=404, code="NoSuchKey") if "00002-of" in call.key and call.start else None

    server = range_server(bucket, faults=gone)
    ended = glowplug.run(*engine, env=server.env)
    assert ended.code == 1
    assert "LoadFailed" in ended.err
    assert "model-00002-of-00002.safetensors" in ended.report["weights"]["error"]


def test_a_signal_in_the_middle_of_the_fetch_ends_everything_promptly(glowplug, engine, range_server, bucket):
    server = range_server(bucket, faults=lambda call: DRIP if call.start else None)
    with glowplug.begin(*engine, env=server.env) as start:
        start.wait_for("Starting to load model")
        start.signal(signal.SIGTERM)
        ended = start.end(15)
    assert ended.code == 128 + signal.SIGTERM
    assert ended.report["weights"]["bytes"] < weight_bytes(bucket)


def test_a_signal_before_the_headers_are_there_starts_no_engine(glowplug, engine, served):
    served.behaviour.latency_s = 3.0
    with glowplug.begin(*engine, env=served.env) as start:
        eventually(lambda: served.stats().requests)
        start.signal(signal.SIGTERM)
        ended = start.end(15)
    assert (ended.code, ended.out) == (128 + signal.SIGTERM, b"")


def test_the_buffer_is_freed_once_the_engine_is_ready(glowplug, engine, served, tmp_path):
    with glowplug.begin(*engine, options=["--no-publish"], env=served.env | {"TMPDIR": str(tmp_path)}) as start:
        start.wait_for("nothing was published")
        maps = Path(f"/proc/{start.pid}/maps").read_text()
        start.signal(signal.SIGTERM)
        start.end()
    assert "glowplug-weights" not in maps
    assert not list(tmp_path.glob("glowplug-*"))


# --- seals


@pytest.fixture
def sealed(glowplug, bucket):
    """The checkpoint is sealed with the user's own key."""
    ended = glowplug("weights", "seal", str(bucket / "bucket/models/tiny"))
    assert ended.code == 0, ended.err
    return bucket


@pytest.mark.usefixtures("sealed")
def test_a_sealed_checkpoint_is_verified_while_it_streams(glowplug, engine, served, digests):
    ended = concluded(glowplug, engine, options=["--require-seal"], env=served.env)
    assert taken(ended) == digests
    assert ended.report["weights"]["verified"]
    assert ", verified" in ended.err


def test_a_wrong_byte_never_reaches_the_engine(glowplug, engine, range_server, sealed):
    def corrupt(call):
        return Fault("corrupt") if "00001-of" in call.key and call.start else None

    server = range_server(sealed, faults=corrupt)
    ended = glowplug.run(*engine, env=server.env)
    assert ended.code == 1
    assert "model-00001-of-00002.safetensors" in ended.report["weights"]["error"]
    assert "model-00001-of-00002.safetensors" in ended.said("the weights could not be loaded:")[0]
    assert not taken(ended)


def test_a_small_file_that_was_changed_after_the_seal_starts_no_engine(glowplug, engine, served, sealed):
    path = sealed / "bucket/models/tiny/config.json"
    path.write_text(path.read_text().replace("llama", "gemma"))  # as long as before
    ended = glowplug.run(*engine, env=served.env)
    assert (ended.code, ended.out) == (1, b"")
    assert "config.json" in ended.err


@pytest.mark.usefixtures("sealed")
def test_a_seal_of_nobody_who_is_trusted_is_said_and_refused_only_on_request(engine, served, tmp_path):
    other = Program(tmp_path / "elsewhere", {})
    ended = concluded(other, engine, env=served.env)
    assert len(ended.said("the weights are not verified:")) == 1
    assert not ended.report["weights"]["verified"]
    refused = other.run(*engine, options=["--require-seal"], env=served.env)
    assert (refused.code, refused.out) == (2, b"")
    assert "--require-seal" in refused.err


def test_a_seal_that_was_altered_under_a_trusted_name_starts_no_engine(glowplug, engine, served, sealed):
    path = sealed / "bucket/models/tiny/glowplug.seal.json"
    document = json.loads(path.read_text())
    payload = base64.b64decode(document["payload"]).replace(b"sha256", b"sha265", 1)
    path.write_text(json.dumps({**document, "payload": base64.b64encode(payload).decode()}))
    ended = glowplug.run(*engine, env=served.env)
    assert (ended.code, ended.out) == (1, b"")
    assert "glowplug.seal.json" in ended.err


def test_require_seal_refuses_a_checkpoint_without_one_and_one_that_is_not_streamed(glowplug, engine, served, tmp_path):
    for words in (engine, [*engine, "--load-format", "runai_streamer"], [*engine[:2], str(tmp_path / "model"), *engine[3:]]):
        ended = glowplug.run(*words, options=["--require-seal"], env=served.env)
        assert (ended.code, ended.out) == (2, b""), words
        assert "--require-seal" in ended.err


def test_require_seal_is_not_turned_off_by_turning_the_weights_off(glowplug, engine, served):
    for options, env in ((["--require-seal", "--no-weights"], {}), (["--require-seal"], {"GLOWPLUG_WEIGHTS": "0"})):
        ended = glowplug.run(*engine, options=options, env={**served.env, **env})
        assert (ended.code, ended.out) == (2, b"")
        assert "--no-weights" in ended.err


@pytest.mark.usefixtures("sealed")
@pytest.mark.parametrize(
    "words",
    [
        ["--speculative-config", '{"model": "s3://bucket/models/draft", "num_speculative_tokens": 2}'],
        ["--tokenizer", "s3://bucket/models/other"],
        ["--lora-modules", "a=s3://bucket/lora"],
    ],
)
def test_require_seal_refuses_what_the_engine_would_fetch_by_itself(glowplug, engine, served, words):
    ended = glowplug.run(*engine, *words, options=["--require-seal"], env=served.env)
    assert (ended.code, ended.out) == (2, b"")
    assert "s3://bucket/" in ended.err
