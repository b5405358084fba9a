"""What can't be deployed ends in one line that names the option and says what to do, before a store is asked."""

import dataclasses

import jsonschema
import pytest

from glowplug.deploy.checks import check
from glowplug.deploy.design import name_of
from glowplug.deploy.reading import read_wish
from glowplug.deploy.wish import Wish, json_schema, options
from glowplug.deploy.write import write
from glowplug.errors import LocalError, UsageError

IRSA = {"identity": "irsa", "account": "111122223333"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "tpu"}, "--target: 'tpu' is not known"),
        ({"target": "neuron", "instance": "p4d.24xlarge"}, "--target neuron: p4d.24xlarge has a100-40gb"),
        ({"target": "gpu", "instance": "trn1.2xlarge"}, "--target gpu: trn1.2xlarge has trainium"),
        ({"instance": "p4d.48xlarge"}, "'p4d.48xlarge' is not in the catalogue"),
        ({"instance": ""}, "--instance is missing"),
        ({"model": ""}, "--model is missing"),
        ({"store": ""}, "--store is missing"),
        ({"model": "Qwen/Qwen3-32B"}, "is no checkpoint in S3"),
        ({"model": "s3://models"}, "names a whole bucket"),
        ({"model": "s3://mo_dels/x"}, "is no place in S3"),
        ({"model": "s3://models/a b"}, "has characters that can't be"),
        ({"store": "file:///srv/caches"}, "is a folder of one machine"),
        ({"store": "/srv/caches"}, "is a folder of one machine"),
        ({"store": "gs://caches/glowplug"}, "is no place in S3"),
        ({"store": "s3://Caches"}, "is no place in S3"),
        ({"weights": "65"}, "--weights: 65 has no unit"),
        ({"weights": "65 parsecs"}, "is not a size"),
        ({"weights": "0GB"}, "is nothing"),
        ({"weights": "9000GB"}, "do not fit"),
        ({"weights": "30GB", "instance": "g5.xlarge"}, "do not fit"),
        ({"tp": 3}, "--tp"),
        ({"tp": -1}, "--tp: -1 can't be"),
        ({"name": "Qwen3"}, "--name: 'Qwen3' is no name that Kubernetes takes"),
        ({"name": "3qwen"}, "is no name that Kubernetes takes"),
        ({"name": "a" * 41}, "is no name that Kubernetes takes"),
        ({"namespace": "my_space"}, "is no name that Kubernetes takes"),
        ({"namespace": ""}, "--namespace is empty"),
        ({"trusted_secret": ""}, "--trusted-secret is empty"),
        ({"image": "vllm/vllm-openai"}, "may be another image tomorrow"),
        ({"image": "vllm/vllm-openai:latest"}, "may be another image tomorrow"),
        ({"image": "https://x"}, "is no image"),
        ({"glowplug_image": "registry:5000/glowplug"}, "may be another image tomorrow"),
        ({"port": 0}, "--port: 0 can't be"),
        ({"port": 80}, "--port 80 needs root"),
        ({"replicas": 0}, "--replicas: 0 can't be"),
        ({"max_replicas": 4}, "nothing scales"),
        ({"autoscale": "keda", "replicas": 4, "max_replicas": 2}, "2 are fewer than --replicas 4"),
        ({"identity": "irsa"}, "needs the account"),
        ({"account": "111122223333"}, "is for --identity irsa"),
        ({**IRSA, "account": "12"}, "is no AWS account"),
        ({"nodes": "karpenter"}, "needs the cluster's name"),
        ({"nodes": "auto"}, "needs the cluster's name"),
        ({"node_role": "nodes"}, "no nodes are written"),
        ({"ingress_tls": "cert"}, "there is no Ingress"),
        ({"ingress_host": "https://llm.example.com"}, "is no host name"),
        ({"neuron_resource": "cores"}, "is for --target neuron"),
        ({"target": "neuron", "instance": "trn2.48xlarge", "weights": "140GB", "neuron_resource": "cores"}, "not on Trn2"),
        ({"config": "config.json", "weights": ""}, "a checkpoint that is read has its own"),
        ({"kms_key": "alias/fleet"}, "is no key's ARN"),
        ({"region": "Frankfurt"}, "is no region"),
        ({"prometheus": "prometheus:9090"}, "is no URL"),
        ({"prometheus": "http://a:9090/'x"}, "is no URL"),
        ({"load_test": "../x y"}, "is no tokenizer's name"),
        ({"image": "vllm/vllm-openai:v0.20.2"}, "is older than vLLM 0.21"),
        ({"engine_args": ("--kv-cache-dtype fp8",)}, "is not one word"),
        ({"engine_args": ("",)}, "is not one word"),
        ({"engine_args": ("--api-key=sk-1",)}, "--api-key looks like a secret"),
        ({"env": ("NCCL_DEBUG=INFO", "NCCL_DEBUG=WARN")}, "NCCL_DEBUG is given twice"),
        ({"env": ("NCCL_DEBUG",)}, "is no NAME=VALUE"),
        ({"env": ("HF_TOKEN=hf_abc",)}, "HF_TOKEN looks like a secret"),
        ({"env": ("VLLM_CACHE_ROOT=/x",)}, "is set by Glowplug itself"),
        ({"env": ("GLOWPLUG_ROLE=writer",)}, "is set by Glowplug itself"),
        ({"engine_args": ("--enforce-eager",)}, "compiles nothing"),
        ({"engine_args": ("--load-format=runai_streamer",)}, "fetches the weights by itself"),
        ({"engine_args": ("--tensor_parallel_size=2",)}, "is written by deploy itself"),
        ({"engine_args": ("-tp", "2")}, "is written by deploy itself"),
    ],
)
def test_one_error_names_the_option_and_the_remedy(design, given, said):
    with pytest.raises(UsageError) as refused:
        design(**given)
    assert said in refused.value.message
    assert refused.value.hint
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("s3://m/models/Qwen3-32B/", "qwen3-32b"),
        ("s3://m/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1-1b-chat-v1-0"),
        ("s3://m/405B_fp8", "b-fp8"),
        ("s3://m/" + "very-" * 20 + "long", "very-very-very-very-very-very-very-very"),
    ],
)
def test_a_name_is_made_of_the_models(uri, name):
    assert name_of(uri) == name


def test_a_model_whose_name_gives_none_needs_one():
    with pytest.raises(UsageError, match="gives no name"):
        name_of("s3://m/123")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("target: gpu\n  store: x\n", ":2: no YAML"),
        ("- a\n", "is no mapping of options"),
        ("tagret: gpu\n", "did you mean target?"),
        ("weights: 65\n", "weights: 65 is not a text"),
        ("replicas: '2'\n", "replicas: '2' is not a whole number"),
        ("replicas: yes\n", "replicas: True is not a whole number"),
        ("pod-monitor: 1\n", "pod-monitor: 1 is not true or false"),
        ("engine-args: --foo\n", "is not a list of texts"),
        ("engine-args: [1]\n", "is not a list of texts"),
        ("env: {A: 1}\n", "is not a mapping of names to texts"),
        ("store: 2020-99-99\n", "no YAML"),
        ("1: gpu\n", "1 is no option"),
        ("a: \x01\n", "no YAML"),
    ],
)
def test_a_file_that_says_nothing_is_named_with_its_line(tmp_path, text, said):
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_wish(path, {})
    assert said in refused.value.line()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tp: 1\ninstance: a\ntp: 2\n", "deploy.yaml:3: 'tp' stands in line 1 already"),
        ("env:\n  A: b\n  A: c\n", "deploy.yaml:3: 'A' stands in line 2 already"),
    ],
)
def test_a_key_that_stands_twice_is_named_with_both_lines(tmp_path, text, said):
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_wish(path, {})
    assert said in refused.value.line()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_wish(tmp_path / "none.yaml", {})


def test_options_win_over_the_file_and_variables_of_both_are_joined(tmp_path):
    path = tmp_path / "deploy.yaml"
    path.write_text("replicas: 2\nname: from-file\nenv: {A: '1', B: '2'}\nengine-args: [--x]\npod-monitor: true\n")
    wish = read_wish(path, {"name": "from-option", "env": ("B=0", "C=3")})
    assert (wish.replicas, wish.name, wish.pod_monitor, wish.engine_args) == (2, "from-option", True, ("--x",))
    assert wish.env == ("A=1", "B=0", "C=3")


def test_an_empty_file_says_nothing(tmp_path):
    path = tmp_path / "deploy.yaml"
    path.write_text("# nothing yet\n")
    assert read_wish(path, {}) == Wish()


def test_the_schema_takes_what_the_program_takes_and_refuses_what_it_refuses():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {"target": "neuron", "replicas": 2, "pod-monitor": True, "engine-args": ["--x"], "env": {"A": "b"}}
    jsonschema.validate(good, schema)
    for bad in ({"target": "tpu"}, {"replicas": "2"}, {"tagret": "gpu"}, {"env": ["A=b"]}, {"pod-monitor": "yes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
    assert set(schema["properties"]) == {option.name for option in options()}


def test_every_default_passes_its_own_checks():
    needed = {"model": "s3://models/x", "instance": "p4d.24xlarge", "store": "s3://caches"}
    check(dataclasses.replace(Wish(), **needed))


@pytest.fixture
def some(design):
    from glowplug.deploy.make import files

    return files(design())


def test_files_that_are_there_are_not_replaced_unasked(tmp_path, some):
    (tmp_path / "service.yaml").write_text("mine")
    with pytest.raises(UsageError, match=r"service\.yaml would be replaced"):
        write(tmp_path, some, force=False)
    assert sorted(os_names(tmp_path)) == ["service.yaml"]
    write(tmp_path, some, force=True)
    assert "kind: Service" in (tmp_path / "service.yaml").read_text()
    assert sorted(os_names(tmp_path)) == sorted(file.path for file in some)


def test_a_file_in_place_of_the_folder_is_named(tmp_path, some):
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="is not a folder"):
        write(tmp_path / "out", some, force=True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path, some):
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match="Not a directory"):
        write(tmp_path / "file" / "out", some, force=False)


def test_a_name_that_is_taken_by_a_folder_leaves_no_halves(tmp_path, some):
    (tmp_path / "service.yaml").mkdir()
    with pytest.raises(LocalError):
        write(tmp_path, some, force=True)
    assert not [name for name in os_names(tmp_path) if name.endswith(".tmp")]


def os_names(folder):
    return [path.name for path in folder.iterdir()]
