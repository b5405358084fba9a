"""Our reading of vLLM's command lines against vLLM's own parser.

Importing vLLM takes about 20 s, once for all lines.
"""

import json
import shlex
import subprocess

import pytest

from glowplug.engines.vllm.arguments import parse

pytestmark = pytest.mark.vllm

# Run by vLLM's Python: parses each line and prints what it understood. Options with a structure stay JSON.
ORACLE = """
import contextlib, io, json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

ABSENT = object()

def parser(serve):
    top = FlexibleArgumentParser()
    inner = top.add_subparsers(dest="subparser").add_parser("serve") if serve else top
    make_arg_parser(inner)
    for action in inner._actions:
        name = getattr(action.type, "__name__", "")
        if action.dest.endswith("_config") or "parse_dataclass" in name or action.dest == "hf_overrides":
            action.type = json.loads
        if action.default != "==SUPPRESS==":
            action.default = None if action.dest == "middleware" else ABSENT  # not a text, which argparse would convert
    return top

answers = []
for case in json.load(sys.stdin):
    words = (["serve"] if case["serve"] else []) + case["words"]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            namespace = vars(parser(case["serve"]).parse_args(words))
    except (SystemExit, Exception) as error:
        answers.append({"error": repr(error)})
        continue
    given = {key: value for key, value in namespace.items() if value is not ABSENT}
    given.pop("subparser", None)
    if given["middleware"] is None:
        given.pop("middleware")
    tag = given.pop("model_tag", None)
    model = given.pop("model", None)
    answers.append({"model": tag if case["serve"] and tag else model, "values": given})
print("ANSWERS" + json.dumps(answers, default=str))
"""

CONFIG = """
model: org/from-file
port: 12323
tensor-parallel-size: 4
enable-prefix-caching: false
enable_chunked_prefill: false
enforce-eager: true
trust-remote-code: false
served-model-name: [a, b]
compilation-config:
  pass_config:
    fuse_allreduce_rms: true
max_model_len: 4096
"""

LINES = [
    "serve org/name",
    "serve --model org/name",
    "serve -tp 2 --model org/name --port 8001",
    "serve --model=org/name -tp=2",
    "serve org/name --tensor-parallel-size 2 --pipeline_parallel_size=3 -dp 4",
    "serve org/name --tensor_parallel_size 2 -pp 1",
    "serve org/name -O3",
    "serve org/name -O 3",
    "serve org/name -O=1",
    "serve org/name --optimization-level 0",
    "serve org/name --enforce-eager --max-model-len 8k",
    "serve org/name --max-model-len 8K --max-num-batched-tokens 2k",
    "serve org/name --max-model-len=-1",
    "serve org/name --no-enable-prefix-caching --enable_chunked_prefill",
    "serve org/name --compilation-config.mode 3",
    "serve org/name --compilation-config.mode 3 --compilation_config.pass_config.fuse_norm_quant=true",
    """serve org/name --compilation-config '{"mode": 3, "cudagraph_capture_sizes": [1, 2]}'""",
    """serve org/name --compilation-config '{"mode": 3}' --compilation-config.cache_dir /x""",
    "serve org/name -cc.mode=2 -cc.backend eager",
    "serve org/name --hf-overrides.rope_parameters.factor 2.5 --hf-overrides.max_position_embeddings 131k",
    """serve org/name --hf-overrides '{"architectures": ["X"]}'""",
    "serve org/name --served-model-name a b c --port 9000",
    "serve --served-model-name a b --port 9000 --model org/name",
    "serve org/name --cudagraph-capture-sizes 1 2 4 8 --max-num-seqs 4",
    "serve org/name --api-key k1 k2 --host 0.0.0.0",
    "serve org/name --hf-token --port 1234",
    "serve org/name --hf-token abc --port 1234",
    "serve org/name --middleware a.b --middleware c.d",
    "serve org/name -q awq --dtype bfloat16 --kv-cache-dtype fp8",
    "serve org/name -qawq",
    "serve org/name --max-model 512",
    "serve org/name --gpu-mem 0.5 --device-memory-utilization 0.7",
    "serve org/name --port 1 --port 2 --seed 7",
    "serve org/name --headless -dpl 2 -dpr 2 -dpa 10.0.0.1 -dpp 1234",
    "serve org/name -ep --enable-dbo -dcp 2 -pcp 2",
    "serve org/name --data-parallel-multi-port-external-lb",
    """serve org/name --speculative-config '{"model": "org/draft", "num_speculative_tokens": 3, "method": "eagle3"}'""",
    "serve org/name --speculative-config.model org/draft --speculative-config.num_speculative_tokens 3",
    """serve org/name --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'""",
    "serve org/name --limit-mm-per-prompt.image 2 --limit-mm-per-prompt.video=0",
    "serve org/name --revision 12345678 --code-revision None",
    "serve --config CONFIG",
    "serve org/cli --config CONFIG --port 1",
    "serve org/cli --config CONFIG -tp 8 --max-model-len 100",
    "serve --config CONFIG --enforce-eager --tensor-parallel-size=2",
    "serve org/name --config=CONFIG",
    "serve org/name --additional-config.a+ x,y --additional-config.b.c 1",
    "serve org/name --allowed-origins '[\"*\"]' --uvicorn-log-level warning --disable-log-stats",
    "serve org/name --kv-cache-memory-bytes 80g --watermark 0.05",
    "module --model org/name --tensor-parallel-size 2",
    "module --model=org/name --no-enable-log-requests",
    "module org/ignored",
    "module --config CONFIG --model org/cli",
    "module --config CONFIG -pp 2",
    "module --model org/name --ssl-keyfile k --ssl-certfile c --root-path /x --uds /tmp/s",
]


def comparable(value: object) -> object:
    """Numbers and their spelling are one: argparse's types are what we infer."""
    if isinstance(value, dict):
        return {key: comparable(branch) for key, branch in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    config = tmp_path_factory.mktemp("config") / "vllm.yaml"
    config.write_text(CONFIG)
    cases = []
    for line in LINES:
        form, *words = shlex.split(line.replace("CONFIG", str(config)))
        cases.append({"line": line, "serve": form == "serve", "words": words})
    return cases


@pytest.fixture(scope="module")
def answers(cases, vllm_python):
    done = subprocess.run(
        [vllm_python, "-c", ORACLE], input=json.dumps(cases), capture_output=True, text=True, timeout=250, check=False
    )
    assert "ANSWERS" in done.stdout, done.stderr[-2000:]
    return json.loads(done.stdout.split("ANSWERS", 1)[1])


@pytest.mark.parametrize("number", range(len(LINES)), ids=LINES)
def test_a_line_means_what_vllm_makes_of_it(number, cases, answers):
    case, answer = cases[number], answers[number]
    assert "error" not in answer, answer["error"]
    ours = parse(case["words"], serve=case["serve"], cwd="/")
    values = {name.replace("-", "_"): comparable(value) for name, value in ours.values.items()}
    if ours.ignored_config:
        values["config"] = ours.ignored_config
    theirs = {name: comparable(value) for name, value in answer["values"].items()}
    if "--config" in case["words"]:  # a `false` in a file counts for us even where vLLM drops it
        values = {name: value for name, value in values.items() if value is not False or name in theirs}
    assert values == theirs
    assert ours.model == answer["model"]
