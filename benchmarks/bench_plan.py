"""What somebody waits for before there is a pod: a plan from a large checkpoint's headers, a thousand manifests checked.

Boundary: wall time from the spawn of the command by this benchmark until it has exited, imports of Python included, and processor
seconds of that process. "plan" is `glowplug plan s3://... --instance p5.48xlarge` on a checkpoint of 200 safetensors files of 1 MB
with 60 tensors each, its index and its config.json (a mixture of 80 experts), on a real S3 server (SeaweedFS) and on the server of
the other benchmarks, which costs less than any S3 server; both run on this machine and share its cores, and there is no network in
between. Of each file the first 256 KiB are read, as of any larger one. "doctor" is `glowplug doctor FOLDER`, its findings as text,
on 1,000 files of one object each: what `glowplug deploy` writes, and manifests of guides and charts of others, each copy of an
application in a namespace of its own. The page cache is warm and the byte code is compiled.

    python -m benchmarks.bench_plan
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import record, rounds
from testbed.checkpoints import Tensor, write_checkpoint
from testbed.range_server import RangeServerProcess
from testbed.seaweedfs import SeaweedFS
from testbed.vllm_env import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILES, LAYERS, EXPERTS, MANIFESTS = 200, 50, 80, 1000
_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_CONFIG = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": LAYERS, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": EXPERTS,
    "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip
_SOURCES = ("tests/deploy/golden/gpu*.yaml", "tests/deploy/golden/neuron.yaml", "tests/doctor/manifests/*.yaml")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="glowplug-bench-") as folder, contextlib.ExitStack() as servers:
        work = Path(folder)
        _write_model(work / "served" / "bench" / "model")
        _write_manifests(work / "manifests")
        s3 = servers.enter_context(SeaweedFS(work / "s3", bucket="bench"))
        ranges = servers.enter_context(RangeServerProcess(work / "served"))
        _glowplug(["weights", "push", str(work / "served/bench/model"), "s3://bench/model"], s3.env)
        plan = ["plan", "s3://bench/model", "--instance", "p5.48xlarge"]
        doctor = ["doctor", str(work / "manifests")]
        facts = {
            "plan": _planned(_glowplug([*plan, "--json"], s3.env), _glowplug([*plan, "--json"], ranges.env)),
            "doctor": _checked(_glowplug([*doctor, "--json"], {}, code=1)),
        }
        contenders = {
            "plan, S3 server": functools.partial(_measure, plan, s3.env),
            "plan, range server": functools.partial(_measure, plan, ranges.env),
            "doctor": functools.partial(_measure, doctor, {}, code=1),
        }
        samples = rounds.run(contenders, options.n)
    document: dict[str, Any] = {"boundary": (__doc__ or "").split("\n\n")[1].replace("\n", " "), "of": facts}
    for name, each in samples.items():
        document[name] = {key: record.summary(rounds.column(each, key)) for key in ("wall_s", "cpu_s")}
        print(f"{name}: {document[name]['wall_s']['median']} s, processor {document[name]['cpu_s']['median']} s")
    document["target"] = {"plan, S3 server": "median wall_s <= 2.0", "doctor": "median wall_s <= 5.0"}
    print(record.write("plan", document))


def _write_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    names = (
        f"model.layers.{layer}.mlp.experts.{expert}.{projection}.weight"
        for layer in range(LAYERS)
        for expert in range(EXPERTS)
        for projection in _PROJECTIONS
    )
    write_checkpoint(folder, [Tensor(name, (64, 128)) for name in names], files=FILES)
    (folder / "config.json").write_text(json.dumps(_CONFIG))


def _write_manifests(folder: Path) -> None:
    folder.mkdir()
    sources = [path.read_text() for pattern in _SOURCES for path in sorted(ROOT.glob(pattern))]
    for number, text in enumerate(itertools.islice(_copies(sources), MANIFESTS)):
        (folder / f"{number:04}.yaml").write_text(text)


def _copies(sources: Sequence[str]) -> Iterator[str]:
    """Every object of every source, each time round in another namespace."""
    objects = [text for source in sources for text in re.split(r"^---.*\n", source, flags=re.MULTILINE) if "kind: " in text]
    for turn in itertools.count(1):
        yield from (_placed(text, f"team-{turn}") for text in objects)


def _placed(text: str, namespace: str) -> str:
    """The object in this namespace, whether its metadata is written in block or in flow style."""
    bare = re.sub(r", namespace: [\w-]+|^  namespace: .*\n", "", text, flags=re.MULTILINE)
    block = re.sub(r"^metadata:\n", f"metadata:\n  namespace: {namespace}\n", bare, flags=re.MULTILINE)
    return re.sub(r"^metadata: \{", f"metadata: {{namespace: {namespace}, ", block, flags=re.MULTILINE)


def _planned(*documents: bytes) -> dict[str, Any]:
    """What was planned for; the same on both servers."""
    models = [json.loads(document)["model"] for document in documents]
    found = [{key: model[key] for key in ("files", "tensors")} for model in models]
    assert all(each == {"files": FILES, "tensors": LAYERS * EXPERTS * len(_PROJECTIONS)} for each in found), found
    return found[0]


def _checked(document: bytes) -> dict[str, Any]:
    found = json.loads(document)
    assert not found["unreadable"], found["unreadable"][:3]
    seen = found["objects"] + len(found["passed_over"])
    assert seen == MANIFESTS, f"{seen} objects were seen"
    return {"files": MANIFESTS, "objects": found["objects"], "findings": len(found["findings"])}


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    # Byte code is written at the first, uncounted call, as an installation has it.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | dict(env)


def _glowplug(words: Sequence[str], env: Mapping[str, str], *, code: int = 0) -> bytes:
    ended = subprocess.run([sys.executable, "-m", "glowplug", *words], env=_environment(env), stdout=subprocess.PIPE, check=False)
    assert ended.returncode == code, f"glowplug {' '.join(words)} ended with {ended.returncode}"
    return ended.stdout


def _measure(words: Sequence[str], env: Mapping[str, str], *, code: int = 0) -> dict[str, Any]:
    command, environment = [sys.executable, "-m", "glowplug", *words], _environment(env)
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == code, f"glowplug {' '.join(words)} ended with {process.returncode}"
    return {"wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime}


if __name__ == "__main__":
    main()
