"""What can't be deployed ends in one line that names the option and says what to do, before a store is asked."""

import dataclasses
import errno
from pathlib import Path

import jsonschema
import pytest

from glowplug.deploy.checks import check
from glowplug.deploy.design import name_of
from glowplug.deploy.wish import Wish, json_schema, options
from glowplug.deploy.write import write
from glowplug.errors import LocalError, UsageError

KMS = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
IRSA = {"identity": "irsa", "account": "111122223333"}


def is_optional_text(option):
    return option.kind == "text" and not option.choices and option.name not in {"model", "instance", "store"}


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
        ({"model": "s3://models/a/../b"}, "--model: s3://models/a/../b has a part that is empty, . or .."),
        ({"model": "s3://models/./b"}, "has a part that is empty, . or .."),
        ({"model": "s3://models/a//b"}, "has a part that is empty, . or .."),
        ({"store": "s3://caches/a/.."}, "--store: s3://caches/a/.. has a part that is empty, . or .."),
        ({"store": "s3://caches/a+b"}, "--store: a store can't have the prefix 'a+b'"),
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
        ({"ingress_tls": "cert"}, "--ingress-tls: there is no Ingress"),
        ({"ingress_class": "alb"}, "--ingress-class: there is no Ingress"),
        ({"prometheus": "http://prometheus:9090"}, "--prometheus: only KEDA is told of it"),
        ({"prometheus": "http://prometheus:9090", "autoscale": "hpa"}, "--prometheus: only KEDA is told of it"),
        ({"capacity_type": "spot"}, "--capacity-type: no nodes are written"),
        ({"signing_secret": "mine", "publish": "none"}, "--signing-secret: with --publish none nobody signs"),
        ({"signing_secret": "mine", "kms_key": KMS}, "--signing-secret: it is the key of --kms-key that signs"),
        ({"trusted_secret": "mine", "kms_key": KMS}, "--trusted-secret: it is the key of --kms-key that is trusted"),
        ({"cluster": "demo", "iac": "none"}, "--cluster: nothing that is written names it"),
        ({"cluster": "demo", **IRSA}, "--cluster: nothing that is written names it"),
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
        ({"target": "neuron", "image": "vllm/vllm-openai:v0.32.0"}, "has no Neuron SDK"),
        ({"target": "neuron", "image": "registry:5000/mirror/vllm-openai@sha256:" + "0" * 64}, "has no Neuron SDK"),
        ({"image": "registry/pytorch-inference-vllm-neuronx:0.13.0"}, "is for Neuron, not for GPUs"),
        ({"engine_args": ("enforce-eager",)}, "'enforce-eager' is no option, and no option's value"),
        ({"engine_args": ("--block-size=32", "64")}, "'64' is no option, and no option's value"),
        ({"engine_args": ("--block-size", "32", "--")}, "'--' is no option, and no option's value"),
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


def test_words_that_are_values_of_the_option_before_them_are_taken(design):
    words = ("--kv-cache-dtype", "fp8", "--cudagraph-capture-sizes", "1", "2")
    assert design(engine_args=words).wish.engine_args == words


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tp": 0}, "--tp: 0 can't be"),
        ({"max_model_len": 0}, "--max-model-len: 0 can't be"),
        ({"autoscale": "keda", "max_replicas": 0}, "--max-replicas: 0 can't be"),
        *(({option.field: ""}, f"--{option.name} is empty") for option in options() if is_optional_text(option)),
        ({"prometheus": Wish().prometheus}, "--prometheus: only KEDA is told of it"),
        ({"capacity_type": "on-demand"}, "--capacity-type: no nodes are written"),
        ({"neuron_resource": "chips"}, "--neuron-resource: is for --target neuron"),
    ],
)
def test_what_is_written_down_counts_though_it_is_what_holds_anyway(given, said):
    needed = {"model": "s3://models/x", "instance": "p4d.24xlarge", "store": "s3://caches"}
    wish = Wish(**needed, **given)
    with pytest.raises(UsageError) as refused:
        check(wish, {*needed, *given})
    assert said in refused.value.message
    assert refused.value.hint


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


def test_the_schema_takes_what_the_program_takes_and_refuses_what_it_refuses():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {"target": "neuron", "replicas": 2, "pod-monitor": True, "engine-args": ["--x"], "env": {"A": "b"}}
    jsonschema.validate(good, schema)
    for bad in (
        {"target": "tpu"},
        {"replicas": "2"},
        {"tagret": "gpu"},
        {"env": ["A=b"]},
        {"pod-monitor": "yes"},
        {"tp": 0},
        {"name": ""},
    ):
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
    assert write(tmp_path, some, force=True) == []
    assert "kind: Service" in (tmp_path / "service.yaml").read_text()
    assert sorted(os_names(tmp_path)) == sorted(file.path for file in some)


def test_manifests_that_this_run_has_not_written_are_left_alone_and_named(tmp_path, design):
    from glowplug.deploy.make import files

    write(tmp_path, files(design()), force=False)
    for name in ("mine.yml", "notes.md"):
        (tmp_path / name).write_text("mine")
    others = write(tmp_path, files(design(publish="none", iac="none")), force=True)
    assert others == ["glowplug.tf.json", "mine.yml", "warmup.yaml"]
    assert (tmp_path / "mine.yml").read_text() == "mine"
    assert "kind: Job" in (tmp_path / "warmup.yaml").read_text()


def test_a_full_disk_is_called_one_and_leaves_no_halves(tmp_path, some, monkeypatch):
    def fill(path, text, encoding):
        path.write_bytes(text.encode(encoding)[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill)
    with pytest.raises(LocalError, match="No space left on device") as full:
        write(tmp_path, some, force=False)
    assert "the disk is full" in full.value.hint
    assert os_names(tmp_path) == []


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
