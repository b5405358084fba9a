import pytest

from glowplug.engines.vllm.arguments import parse
from glowplug.errors import UsageError


def read(line, *, serve=True, cwd="/"):
    return parse(line.split(), serve=serve, cwd=str(cwd))


@pytest.mark.parametrize(
    "line",
    [
        "m --max-model-len 256 --tensor-parallel-size 2",
        "m --max-model-len=256 --tensor-parallel-size=2",
        "m --max_model_len 256 --tensor_parallel_size=2",
        "m -tp 2 --max-model-len 256",
        "m -tp=2 --max-model-len 256",
        "-tp 2 --model m --max-model-len 256",
        "--model=m -tp 2 --max-model-len 256",
        "--max-model-len 256 m -tp 2",
        "m --max-model-len 1 -tp 4 --max-model-len 256 -tp 2",
        "m --max-model 256 --tensor-par 2",
    ],
)
def test_every_spelling_means_the_same(line):
    arguments = read(line)
    assert arguments.values == {"max-model-len": 256, "tensor-parallel-size": 2}
    assert arguments.model == "m"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--enforce-eager"], {"enforce-eager": True}),
        (["--no-enable-prefix-caching"], {"enable-prefix-caching": False}),
        (["--no_enable_prefix_caching"], {"enable-prefix-caching": False}),
        (["-O3"], {"optimization-level": 3}),
        (["-O", "1"], {"optimization-level": 1}),
        (["-O=0"], {"optimization-level": 0}),
        (["-qfp8"], {"quantization": "fp8"}),
        (["--max-model-len", "8k"], {"max-model-len": 8000}),
        (["--max-model-len", "8K"], {"max-model-len": 8192}),
        (["--max-model-len", "-1"], {"max-model-len": -1}),
        (["--gpu-memory-utilization", "0.90"], {"gpu-memory-utilization": 0.9}),
        (["--served-model-name", "a", "b", "--seed", "1"], {"served-model-name": ["a", "b"], "seed": 1}),
        (["--hf-token", "--seed", "1"], {"hf-token": True, "seed": 1}),
        (["--compilation-config.mode", "3"], {"compilation-config": {"mode": 3}}),
        (["-cc.mode=3", "-cc.a.b", "x"], {"compilation-config": {"mode": 3, "a": {"b": "x"}}}),
        (["--compilation-config", '{"mode": 1}', "--compilation-config.x", "2"], {"compilation-config": {"x": 2}}),
        (["--additional-config.a+", "x,y", "--additional-config.a+=z"], {"additional-config": {"a": ["x", "y", "z"]}}),
        (["--hf-overrides.some_name", "1"], {"hf-overrides": {"some_name": 1}}),
        (["--revision", "12345678"], {"revision": "12345678"}),
    ],
)
def test_forms_that_vllm_accepts(words, expected):
    assert parse(["m", *words], serve=True, cwd="/").values == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("m --new-option 5 --seed 1", {"new-option": 5, "seed": 1}),
        ("m --new-option=5", {"new-option": 5}),
        ("m --new-option --seed 1", {"new-option": True, "seed": 1}),
        ("--enable-new-thing m", {"enable-new-thing": True}),
        ("--no-new-thing m", {"new-thing": False}),
        ("--omni m", {"omni": True}),
        ("--disable-log-requests m --swap-space 4", {"disable-log-requests": True, "swap-space": 4}),
    ],
)
def test_options_of_other_versions_are_kept(line, expected):
    arguments = read(line)
    assert arguments.values == expected
    assert arguments.model == "m"


def test_the_module_takes_its_model_from_the_option_alone():
    assert read("--model m --seed 1", serve=False).model == "m"
    assert read("ignored --seed 1", serve=False).model is None


def test_no_model_is_vllms_default():
    assert read("--port 8001").model is None


def test_what_vllm_would_refuse_does_not_fail_here():
    for line in ("m --max-model-len", "m --compilation-config {broken", "m --compilation-config.x", "m -- a b", "m --e"):
        assert read(line).model == "m"


@pytest.fixture
def config(tmp_path):
    def write(text, name="vllm.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path

    return write


def test_a_config_file_brings_options_and_the_model(config):
    folder = config(
        "model: org/file\nmax_model_len: 4096\nenforce-eager: true\n"
        "compilation-config: {mode: 3}\ncudagraph-capture-sizes: [1, 2]\n"
    )
    arguments = read("--config vllm.yaml", cwd=folder)
    assert arguments.model == "org/file"
    assert arguments.values == {
        "max-model-len": 4096,
        "enforce-eager": True,
        "compilation-config": {"mode": 3},
        "cudagraph-capture-sizes": [1, 2],
    }


@pytest.mark.parametrize("line", ["org/cli --config vllm.yaml --port 1", "org/cli --port 1 --config vllm.yaml"])
def test_the_command_line_wins_over_the_file_wherever_it_stands(config, line):
    arguments = read(line, cwd=config("model: org/file\nport: 2\nseed: 3\n"))
    assert arguments.model == "org/cli"
    assert arguments.values == {"port": 1, "seed": 3}


def test_the_modules_config_works_the_same(config):
    arguments = read("--model org/cli --config vllm.yaml", serve=False, cwd=config("model: org/file\nport: 2\n"))
    assert (arguments.model, arguments.values) == ("org/cli", {"port": 2})


def test_false_in_a_file_counts(config):
    assert read("m --config vllm.yaml", cwd=config("enable_prefix_caching: false\n")).values == {"enable-prefix-caching": False}


def test_the_form_with_an_equals_sign_is_not_read_as_vllm_does_not_read_it(config):
    arguments = read("m --config=vllm.yaml", cwd=config("port: 2\n"))
    assert arguments.values == {}
    assert arguments.ignored_config == "vllm.yaml"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.yaml", None, "No such file"),
        ("vllm.json", "{}", "not named .yaml"),
        ("vllm.yaml", "a: [", "is not YAML"),
        ("vllm.yml", "- a\n- b\n", "holds no options"),
        ("vllm.yaml", "", "holds no options"),
    ],
)
def test_a_config_file_that_cannot_be_read_is_a_usage_error_that_names_it(config, tmp_path, name, text, message):
    if text is not None:
        config(text, name)
    with pytest.raises(UsageError, match=message) as caught:
        read(f"m --config {name}", cwd=tmp_path)
    assert caught.value.object.endswith(name)
    assert caught.value.hint


def test_a_config_without_a_name_is_a_usage_error():
    with pytest.raises(UsageError, match="names no file"):
        read("m --config")
