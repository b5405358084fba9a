"""Twelve misses, each made as it happens: two starts of one deployment, understood by the real adapter, and a store with others.

In each a start looks for its cache beside the one that it ought to share and five others, and differs from it in the cause and in
what else differs between two pods or two nodes. The cause has to be named first, and with what to do about it.
"""

import json
import shutil
from dataclasses import dataclass, field, replace

import pytest

from glowplug.cache import layout
from glowplug.cache.deadline import Deadline
from glowplug.cache.envelope import canonical_json
from glowplug.cache.explain.neighbours import neighbours
from glowplug.engines.accelerators import accelerators
from glowplug.engines.knowledge import known_causes
from glowplug.engines.registry import recognise
from glowplug.engines.vllm import adapter
from glowplug.run.options import RunOptions
from glowplug.run.restoring import describe
from glowplug.store.memory import MemoryStore

H100, H100_NVL, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA A100-SXM4-80GB"
LAUNCHED = {
    "VLLM_HOST_IP": "10.0.3.17",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.3.17",
    "VLLM_API_KEY": "one",
    "HOSTNAME": "llm-7d9f-x2x5z",
}
ELSEWHERE = {
    "VLLM_HOST_IP": "10.0.9.4",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.9.4",
    "VLLM_API_KEY": "two",
    "HOSTNAME": "llm-7d9f-q8w6h",
}
"""What differs in any two pods, and is in no envelope."""


@dataclass(frozen=True)
class Pod:
    """A start: its virtual environment, its node, its command."""

    venv: object
    gpus: tuple[str, ...] = (H100, H100)
    driver: str = "570.86.15"
    isa: tuple[str, ...] = ("avx2", "avx512f")
    model: str = ""
    words: tuple[str, ...] = ("--max-model-len", "8192", "-tp", "2")
    env: dict[str, str] = field(default_factory=dict)
    cache_dir: str = "/var/cache/glowplug"

    def but(self, *words, env=None, **fields):
        return replace(self, words=self.words + words, env=self.env | (env or {}), **fields)


@pytest.fixture
def envelope_of(tmp_path, monkeypatch):
    """The envelope of a pod, as ``glowplug run`` computes it on its node."""
    numbers = iter(range(1000))

    def envelope(pod):
        root = tmp_path / f"node-{next(numbers)}"
        for minor, gpu in enumerate(pod.gpus):
            folder = root / f"proc/driver/nvidia/gpus/0000:{minor:02x}:00.0"
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"Model: \t\t {gpu}\nGPU UUID: \t GPU-{minor}aaa\nDevice Minor: \t {minor}\n")
            (root / "dev").mkdir(exist_ok=True)
            (root / f"dev/nvidia{minor}").touch()
        (root / "proc/driver/nvidia/version").write_text(f"NVRM version: NVIDIA UNIX Open Kernel Module  {pod.driver}  Release\n")
        monkeypatch.setattr(adapter, "accelerators", lambda env: accelerators(env, str(root)))
        monkeypatch.setattr(adapter, "cpu_component", lambda: {"machine": "x86_64", "isa": list(pod.isa)})
        env = pod.venv.env | pod.env
        launch = recognise(["vllm", "serve", pod.model, *pod.words], env, "/")
        assert launch.engine.name == "vllm"
        return describe(launch, RunOptions(cache_dir=pod.cache_dir), env)[0]

    return envelope


@pytest.fixture
def model(tmp_path):
    def make(name, content="{}"):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(content)
        return str(folder)

    return make


@pytest.fixture
def pod(vllm_venv, model):
    return Pod(vllm_venv, model=model("llama"), env=LAUNCHED)


@pytest.fixture
def first_cause(envelope_of, model):
    """What is named first for a start that misses, of a store with the cache it ought to share and five others."""
    store = MemoryStore()

    def publish(pod):
        envelope = envelope_of(pod)
        store.put(layout.envelope_key(envelope.digest), envelope.document)
        store.put(layout.latest_key(envelope.digest), canonical_json({"generation": "0" * 64}))
        return envelope.digest

    def first(published, missed, between=lambda: None):
        for other in (
            missed.but(model=model("qwen", '{"other": 1}')),
            missed.but("-tp", "4", gpus=(A100,) * 4, isa=("avx2",), driver="535.1.1"),
            published.but("--dtype", "float16", "--quantization", "fp8", "--max-num-seqs", "8", "--block-size", "64"),
            published.but("--enforce-eager", "--kv-cache-dtype", "fp8", model=model("mistral", '{"third": 1}')),
        ):
            publish(other)
        digest = publish(published)
        between()
        ours = envelope_of(missed.but(env=ELSEWHERE))
        assert ours.digest != digest
        nearest, *_ = neighbours(store, ours, deadline=Deadline(30, step="explain"), known=known_causes("vllm"))
        assert nearest.digest == digest
        assert nearest.is_near
        return nearest.causes[0]

    return first


def test_pod_ip(pod, first_cause):
    published = pod.but(env={"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.3.17"})
    missed = pod.but("--max-num-seqs", "64", env={"VLLM_P2P_SIDE_CHANNEL_HOST": "10.0.9.4"}, driver="570.99.1")
    cause = first_cause(published, missed)
    assert cause.path == "environment.VLLM_P2P_SIDE_CHANNEL_HOST"
    assert (cause.ours, cause.theirs) == ('"10.0.9.4"', '"10.0.3.17"')
    assert (cause.kind, cause.in_words) == ("address", "likely an accident")
    assert "leave it unset" in cause.fix


def test_pod_ip_in_a_variable_that_nobody_knows(pod, first_cause):
    published = pod.but(env={"VLLM_NEW_PEER": "tcp://[fd00::3]:5600", "VLLM_ATTENTION": "A"})
    missed = pod.but("--max-num-seqs", "64", env={"VLLM_NEW_PEER": "tcp://[fd00::9]:5600", "VLLM_ATTENTION": "B"})
    cause = first_cause(published, missed)
    assert (cause.path, cause.kind) == ("environment.VLLM_NEW_PEER", "address")


def test_port(pod, first_cause):
    published = pod.but("--port", "8000", env={"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600", "VLLM_USE_X": "1"})
    missed = pod.but("--port", "8001", "--max-num-seqs", "64", env={"VLLM_NIXL_SIDE_CHANNEL_PORT": "5601", "VLLM_USE_X": "0"})
    cause = first_cause(published, missed)
    assert (cause.path, cause.kind) == ("environment.VLLM_NIXL_SIDE_CHANNEL_PORT", "port")
    assert "the same port" in cause.fix


def test_home(pod, first_cause):
    published = pod.but(model="s3://models/llama", env={"HOME": "/root"})
    missed = pod.but("--max-num-seqs", "64", model="s3://models/llama", env={"HOME": "/home/vllm"}, driver="570.99.1")
    cause = first_cause(published, missed)
    assert (cause.path, cause.kind) == ("model.path", "home folder")
    assert (cause.ours, cause.theirs) == ('"/home/vllm/.cache/vllm/assets"', '"/root/.cache/vllm/assets"')
    assert "HOME" in cause.fix


def test_cache_root(pod, first_cause):
    missed = pod.but("--max-num-seqs", "64", env={"VLLM_CACHE_ROOT": "/scratch/vllm"}, cache_dir="/scratch", driver="570.99.1")
    cause = first_cause(pod, missed)
    assert (cause.path, cause.ours, cause.theirs) == ("paths.cache", '"/scratch"', '"/var/cache/glowplug"')
    assert "--cache-dir" in cause.fix


def test_image_tag(pod, first_cause):
    published = pod.but(env={"VLLM_IMAGE_TAG": "v0.32.0", "VLLM_BUILD_COMMIT": "abc", "VLLM_USE_X": "1"})
    missed = pod.but("--max-num-seqs", "64", env={"VLLM_IMAGE_TAG": "v0.32.0-r2", "VLLM_BUILD_COMMIT": "abd", "VLLM_USE_X": "0"})
    cause = first_cause(published, missed)
    assert (cause.path, cause.ours, cause.theirs) == ("environment.VLLM_IMAGE_TAG", '"v0.32.0-r2"', '"v0.32.0"')
    assert "set it to nothing" in cause.fix


@pytest.fixture
def moved(vllm_venv, tmp_path):
    """The same virtual environment in another folder."""
    other = type(vllm_venv)(tmp_path / "opt" / "venv")
    shutil.copytree(vllm_venv.root, other.root, symlinks=True)
    other.script("vllm", f"#!{other.python}\n")
    return other


def test_venv_path(pod, moved, first_cause):
    cause = first_cause(pod, pod.but("--max-num-seqs", "64", venv=moved, env={"HOME": str(pod.venv.root)}, driver="570.99.1"))
    assert (cause.path, cause.kind) == ("paths.engine", "install folder")
    assert json.loads(cause.ours) == str(moved.site / "vllm")
    assert [follower.path for follower in cause.followers] == ["paths.torch"]
    assert "same folder" in cause.fix


def test_bucket_url(pod, first_cause):
    published = pod.but(model="s3://models-us-east-1/llama-8b")
    missed = pod.but("--max-num-seqs", "64", model="s3://models-eu-west-1/llama-8b", driver="570.99.1")
    cause = first_cause(published, missed)
    assert (cause.path, cause.kind) == ("model.reference", "bucket")
    assert "one URL" in cause.fix


def test_max_model_len(pod, first_cause):
    cause = first_cause(pod.but("--port", "8000"), pod.but("--port", "8001", "--max-model-len", "16384"))
    assert (cause.path, cause.ours, cause.theirs) == ("arguments.max-model-len", "16384", "8192")
    assert (cause.kind, cause.in_words) == ("option", "likely meant")


def test_max_num_batched_tokens(pod, first_cause):
    published, missed = (pod.but("--max-num-batched-tokens", size) for size in ("8k", "1k"))
    cause = first_cause(published, missed.but("--gpu-memory-utilization", "0.8"))
    assert (cause.path, cause.ours, cause.theirs) == ("arguments.max-num-batched-tokens", "1000", "8000")


def test_capture_sizes(pod, first_cause):
    published, missed = (pod.but("-cc", json.dumps({"cudagraph_capture_sizes": sizes, "mode": 3})) for sizes in ([1, 2], [1, 2, 4]))
    cause = first_cause(published, missed.but("--served-model-name", "other", "--seed", "7"))
    assert (cause.path, cause.ours) == ("arguments.compilation-config.cudagraph_capture_sizes", "[1,2,4]")


def test_torch_patch_version(pod, first_cause):
    for name in ("triton", "nvidia-cublas"):
        pod.venv.install(name, "3.9.0")

    def upgrade():
        """A new image: another torch and what it pulls in, at the same path."""
        for name, version in (("torch", "2.13.0"), ("triton", "3.9.0"), ("nvidia_cublas", "3.9.0")):
            shutil.rmtree(pod.venv.site / f"{name}-{version}.dist-info")
        shutil.rmtree(pod.venv.site / "torch")
        pod.venv.install("torch", "2.13.1", "torch", {"version.py": "cuda: Optional[str] = '13.0'\ngit_version = 'abd'\n"})
        for name in ("triton", "nvidia-cublas"):
            pod.venv.install(name, "3.9.1")

    cause = first_cause(pod, pod.but("--max-num-seqs", "64", isa=("avx2",), driver="570.99.1"), upgrade)
    assert (cause.path, cause.ours, cause.theirs) == ("packages.torch", '"2.13.1"', '"2.13.0"')
    assert cause.kind == "patch version"
    assert {"packages.triton", "packages.nvidia-cublas", "packages.builds.torch.git_version"} < {
        item.path for item in cause.followers
    }
    assert "same image" in cause.fix


def test_gpu_sku(pod, first_cause):
    missed = pod.but("--max-num-seqs", "64", gpus=(H100_NVL,) * 2, isa=("avx2", "avx512f", "avx512_fp16"), driver="575.51.2")
    cause = first_cause(pod, missed)
    assert (cause.path, cause.kind) == ("accelerator.models", "accelerator")
    assert (cause.ours, cause.theirs) == (f'"2 x {H100_NVL}"', f'"2 x {H100}"')
    assert {follower.path for follower in cause.followers} == {"accelerator.driver", "cpu.isa"}
