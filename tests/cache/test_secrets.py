"""Secrets are found where they are, and nowhere else."""

import os

import pytest

from glowplug.cache.secrets import SecretScan
from glowplug.errors import SecretFound
from glowplug.units import MIB

KEY = "sk-live/0123456789abcdef"


def found(data, env=None, *, path="vllm/x"):
    try:
        SecretScan(env or {}).check(path, data)
    except SecretFound as error:
        return f"{error.message} ({error.hint})" if error.object == path else "another file"
    return ""


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_API_KEY",
        "OPENAI_API_KEY",
        "openai_api_key",
        "NGC_APIKEY",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "DB_PASSWORD",
        "PGPASSWORD",
        "SECRET",
        "GLOWPLUG_SIGNING_KEY",
    ],
)
@pytest.mark.parametrize("around", [(b"key = '", b"'\n"), (b"\x80\x05\x95\0\0", b"\0\x94.")], ids=["text", "binary"])
def test_the_values_of_secret_variables_are_found_in_any_file(name, around):
    message = found(around[0] + KEY.encode() + around[1], {name: KEY})
    assert message.startswith(f"vllm/x holds the value of {name} (")
    assert KEY not in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", "EMPTY"),
        ("HF_TOKEN", ""),
        ("HF_TOKEN_PATH", KEY),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", KEY),
        ("SECRET_ARN", KEY),
        ("TOKENIZERS_PARALLELISM", KEY),
        ("VLLM_MAX_TOKENS", KEY),
        ("PATH", KEY),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/passwd"),
    ],
)
def test_other_variables_and_short_values_are_not_looked_for(name, value):
    assert found(b"text " + value.encode() + b" text", {name: value}) == ""


def test_a_value_is_found_as_json_writes_it():
    password = 'quote"back\\slash-ü'
    import json

    for escaped in (json.dumps({"p": password}), json.dumps({"p": password}, ensure_ascii=False), password):
        assert "DB_PASSWORD" in found(escaped.encode(), {"DB_PASSWORD": password})


def test_a_value_that_is_not_utf8_is_found():
    value = b"caf\xe9-password"
    assert "DB_PASSWORD" in found(b"x" + value, {"DB_PASSWORD": os.fsdecode(value)})


@pytest.mark.parametrize("cut", [1, 5, len(KEY) - 1])
@pytest.mark.parametrize("padding", [b"x" * MIB, b"\0" * MIB], ids=["text", "binary"])
def test_a_value_that_straddles_two_pieces_is_found(cut, padding):
    scan = SecretScan({"VLLM_API_KEY": KEY})
    scan.check("vllm/big", padding + KEY.encode()[:cut])
    with pytest.raises(SecretFound):
        scan.check("vllm/big", KEY.encode()[cut:] + padding)


def test_the_end_of_one_file_and_the_beginning_of_the_next_are_no_secret():
    scan = SecretScan({"VLLM_API_KEY": KEY})
    scan.check("vllm/a", KEY.encode()[:9])
    scan.check("vllm/b", KEY.encode()[9:])


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"aws_access_key_id = AKIAIOSFODNN7EXAMPLE", "an AWS access key"),
        (b'"ASIAIOSFODNN7EXAMPLE"', "an AWS access key"),
        (b"token: hf_" + b"aB3" * 12, "a Hugging Face token"),
        (b"ghp_" + b"a1B2" * 10, "a GitHub token"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "a private key"),
        (b"-----BEGIN PRIVATE KEY-----\nb3Bl", "a private key"),
        (b'{"VLLM_API_KEY": "0123456789"}', "a value for VLLM_API_KEY"),
        (b"{'VLLM_API_KEY': '0123456789'}", "a value for VLLM_API_KEY"),
        (b"VLLM_API_KEY=0123456789abc", "a value for VLLM_API_KEY"),
        (b"export API_KEY=abcdefgh", "a value for API_KEY"),
        (b"HF_TOKEN: abcdefgh", "a value for HF_TOKEN"),
        (b"AWS_SECRET_ACCESS_KEY = wJalrXUtnFEMI/K7MDENG", "a value for AWS_SECRET_ACCESS_KEY"),
        (b"MY_PASSWORD_2=correcthorse", "a value for MY_PASSWORD_2"),
    ],
)
def test_known_tokens_and_assignments_in_text(content, kind):
    assert kind in found(b"first line\n" + content + b"\nlast line")


@pytest.mark.parametrize(
    "content",
    [
        b'{"VLLM_API_KEY": null, "HF_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "***"}',
        b'ignored = ["HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"]',
        b'HF_TOKEN = os.environ.get("HF_TOKEN")',
        b'{"VLLM_API_KEY": lambda: os.environ.get("VLLM_API_KEY", None)}',
        b"API_KEY = settings['api']",
        b"API_KEY=${VLLM_API_KEY}",
        b'EOS_TOKEN = "<|endoftext|>"',
        b"IMAGE_TOKEN_INDEX = 4294967295",
        b"cache_key = 'fq7k3lprd4cvzo2n5m6h'",
        b"cache_key: sha256:0123456789abcdef",
        b"tokens_per_block: 1048576000",
        b"TOKENIZER = 'AutoTokenizerFast'",
    ],
)
def test_text_that_only_looks_like_it_is_let_through(content):
    assert found(content) == ""


def test_token_formats_are_not_looked_for_in_binaries():
    assert found(b"\x7fELF\0" + b"AKIAIOSFODNN7EXAMPLE") == ""


def test_generated_code_is_let_through():
    """What Inductor, Triton and vLLM write: hashes, base32 names, constants, keys of dictionaries."""
    code = b"""
# AOT ID: ['0_inference']
from torch._inductor.codecache import AsyncCompile
aten = torch.ops.aten
async_compile = AsyncCompile()
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], \'\'\'
#include "/cache/inductor/pi/cpicxudqmdsjh5cm4klbtbrvy2cxwr7whxl3md2zzdjdf3orvfdf.h"
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { constexpr int64_t MAX_TOKEN_COUNT = 1234567890; }
\'\'\')
# kernel path: /cache/inductor/ab/cabcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrs.py
# Topologically Sorted Source Nodes: [hidden_states, layer_norm], Original ATen: [aten.mul]
triton_meta={'signature': {'in_ptr0': '*bf16', 'ks0': 'i64'}, 'device': 0, 'constants': {}},
inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_red_fused_0', 'backend_hash': '%s', 'no_x_dim': False}
""" % (b"9F2C" * 16)
    factors = b"""{"env": {"VLLM_API_KEY": null, "VLLM_USE_V1": true, "CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN_SOURCE": "file"},
 "config_hash": "0d1f8a1f6c", "code_hash": "a3b1c2d3e4f5", "compiler_hash": "9c8b7a6d5e"}"""
    env = {"HF_TOKEN": "hf_" + "x" * 34, "VLLM_API_KEY": KEY}
    for content in (code, factors, code * 2000):
        assert found(content, env) == ""


def test_a_long_line_of_capitals_takes_no_time():
    import time

    begun = time.process_time()
    assert found(b"A" * MIB) == ""
    assert found(b"KEY" * (MIB // 3)) == ""
    assert found(b"API_KEY " * (MIB // 8)) == ""
    assert found(b"A_TOKEN = " * (MIB // 10)) == ""
    assert time.process_time() - begun < 3
