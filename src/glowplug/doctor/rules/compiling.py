"""Compiled code and where it is kept: what makes an engine compile again at each start."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from glowplug.doctor.base import Rule
from glowplug.doctor.objects import items, text
from glowplug.doctor.serving import DEFAULT_CACHES
from glowplug.engines.vllm.poisoners import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import Problem
    from glowplug.doctor.manifests import Manifests
    from glowplug.doctor.serving import Engine

_STREAMED_SINCE = (0, 11)  # vllm#24922 of September 2025
_AOT_REDIRECTS_SINCE = (0, 32)
_NIXL_HOST_SINCE = (0, 22)
_PER_POD_FIELDS = ("status.podIP", "status.podIPs", "metadata.name", "metadata.uid", "spec.nodeName", "status.hostIP")
_LIKELY = 0.9


def keeps_cache(engine: Engine) -> bool:
    """Whether somebody meant its compiled code to outlive the pod."""
    if engine.glowplug is not None:
        return "--store" in " ".join(engine.glowplug) or "GLOWPLUG_STORE" in engine.container.env
    on_volume = any(engine.container.mount_of(path) for path in engine.caches.values())
    return on_volume or any(engine.container.mount_of(path) for path in DEFAULT_CACHES)


def _eager_beside_cache(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.name == "vllm" and engine.eager and (keeps_cache(engine) or engine.caches):
            yield engine.problem(
                "nothing is compiled (--enforce-eager, or optimization level 0), and a compile cache is set up", "enforce-eager"
            )


def _eager(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        cached = keeps_cache(engine) or engine.caches
        if engine.name == "vllm" and engine.arguments.values.get("enforce-eager") is True and not cached:
            yield engine.problem("--enforce-eager: no torch.compile and no CUDA graphs", "enforce-eager")


def _cache_in_layer(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.glowplug is not None:  # it sets these variables itself
            continue
        for name, path in engine.caches.items():
            if engine.container.mount_of(path) is None:
                field = engine.container.env_path(name)[len(engine.container.path) :]
                yield engine.container.problem(field, f"{name}={path} lies on no volume, and is lost with the container")


def _no_cache(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        lasting = engine.container in manifests.serving and engine.complete and not engine.container.has_foreign_env
        if engine.name == "vllm" and lasting and not engine.eager and not keeps_cache(engine) and not engine.caches:
            yield engine.problem("every start compiles anew: no volume and no store keeps the compile cache")


def _weights_in_cache(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        env = engine.container.env
        moved = "XDG_CACHE_HOME" in engine.caches and not {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} & set(env)
        if (
            moved
            and engine.model
            and not engine.remote_model
            and not engine.model.startswith("/")
            and not engine.given("download-dir")
        ):
            field = engine.container.env_path("XDG_CACHE_HOME")[len(engine.container.path) :]
            yield engine.container.problem(
                field, "XDG_CACHE_HOME moves Hugging Face's downloads as well: weights beside the compile cache"
            )


def _inductor_overwritten(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.version >= _AOT_REDIRECTS_SINCE and "TORCHINDUCTOR_CACHE_DIR" in engine.caches and engine.glowplug is None:
            field = engine.container.env_path("TORCHINDUCTOR_CACHE_DIR")[len(engine.container.path) :]
            yield engine.container.problem(field, "TORCHINDUCTOR_CACHE_DIR has no effect: this vLLM sets it itself")


def _random_path(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        old = bool(engine.version) and engine.version[:2] < _STREAMED_SINCE
        if old and engine.streams and engine.remote_model and keeps_cache(engine) and not engine.eager:
            version = ".".join(map(str, engine.version))
            yield engine.problem(f"vLLM {version} puts a streamed model at a random path, which is in the cache's key")


def _per_pod_key(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.name != "vllm" or engine.eager:
            continue
        container = engine.container
        for index, entry in enumerate(items(container.body, "env")):
            name, source = text(entry, "name"), text(entry, "valueFrom", "fieldRef", "fieldPath")
            fact = KNOWN.get(f"environment.{name}")
            differs = source in _PER_POD_FIELDS or _refers_to_pod(engine, text(entry, "value"))
            if fact is None or fact.likelihood < _LIKELY or not differs or name in ("VLLM_HOST_IP", "VLLM_CACHE_ROOT"):
                continue
            if name == "VLLM_NIXL_SIDE_CHANNEL_HOST" and not (engine.version and engine.version[:2] < _NIXL_HOST_SINCE):
                continue
            yield container.problem(("env", index), f"{name} differs from pod to pod and is in vLLM's cache key")


def _refers_to_pod(engine: Engine, value: str) -> bool:
    fields = {
        text(entry, "name"): text(entry, "valueFrom", "fieldRef", "fieldPath") for entry in items(engine.container.body, "env")
    }
    return any(f"$({name})" in value for name, field in fields.items() if field in _PER_POD_FIELDS)


def _pinned(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if pinned := engine.arguments.tree("compilation-config").get("cache_dir"):
            yield engine.problem(
                f"compilation_config.cache_dir is pinned to {str(pinned)[:60]}: vLLM loads what lies there, unchecked"
            )


def _forced_load(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        if engine.container.env.get("VLLM_FORCE_AOT_LOAD") in ("1", "true") and engine.container in manifests.serving:
            field = engine.container.env_path("VLLM_FORCE_AOT_LOAD")[len(engine.container.path) :]
            yield engine.container.problem(field, "VLLM_FORCE_AOT_LOAD=1: a cache that can't be loaded ends the engine")


def _sglang_uncompiled(manifests: Manifests) -> Iterator[Problem]:
    for engine in manifests.engines:
        compiles = any(name in engine.arguments.values for name in ("enable-torch-compile", "enable-piecewise-cuda-graph"))
        if engine.name == "sglang" and "TORCHINDUCTOR_CACHE_DIR" in engine.caches and not compiles:
            yield engine.problem("an Inductor cache is set up, and SGLang compiles nothing without --enable-torch-compile")


def _hashed_folder(manifests: Manifests) -> Iterator[Problem]:
    """Two containers of one model with caches on different paths."""
    roots: dict[tuple[str, str], dict[str, Engine]] = {}
    for engine in manifests.engines:
        root = engine.caches.get("VLLM_CACHE_ROOT") or engine.caches.get("XDG_CACHE_HOME")
        if root and engine.model and engine.glowplug is None:
            roots.setdefault((engine.model, engine.container.image), {}).setdefault(posixpath.normpath(root), engine)
    for (model, _), paths in roots.items():
        for path, engine in list(paths.items())[1:]:
            yield engine.problem(f"the cache of {model[:60]} is at {path} here and at {next(iter(paths))} elsewhere")


RULES: tuple[Rule[Manifests], ...] = (
    Rule(
        "GP014",
        "Compile cache beside --enforce-eager",
        "warning",
        "With --enforce-eager (or optimization level 0) vLLM compiles nothing. It creates the cache's folder and writes nothing"
        " into it, so the volume and the variables look right and save nothing. Quick-start guides ship the flag, and copies of"
        " them keep it.",
        "Remove --enforce-eager, or the cache.",
        ("A24", "A25"),
        _eager_beside_cache,
    ),
    Rule(
        "GP015",
        "--enforce-eager",
        "info",
        "Starts faster and takes less memory, and then serves 5 to 30 % slower for as long as it runs. A shared compile cache"
        " gives most of the faster start without the loss.",
        "Keep it for debugging; for serving, remove it and keep the compile cache on a volume or in a store.",
        ("A22", "A23", "A25"),
        _eager,
    ),
    Rule(
        "GP016",
        "Cache variable that points into the container's layer",
        "warning",
        "A path that no volume covers is in the container's own layer: the cache is written, and lost when the container restarts.",
        "Mount a volume at that path, or correct the variable.",
        ("A27", "A28", "A29", "A30"),
        _cache_in_layer,
    ),
    Rule(
        "GP017",
        "Nothing keeps the compile cache",
        "info",
        "vLLM compiles for 15 to 80 seconds (outliers take minutes) and keeps the result below ~/.cache/vllm, in the container's"
        " layer.",
        "Start the engine by glowplug run with a store, or put VLLM_CACHE_ROOT on a volume.",
        ("A01", "A21", "P09"),
        _no_cache,
    ),
    Rule(
        "GP018",
        "XDG_CACHE_HOME takes the weights along",
        "info",
        "Hugging Face's hub keeps its downloads below XDG_CACHE_HOME unless HF_HOME says otherwise (this default was not verified"
        " for every version): gigabytes of weights then lie beside some megabytes of compiled code, and whoever copies the folder"
        " copies both.",
        "Set VLLM_CACHE_ROOT in place of XDG_CACHE_HOME, or HF_HOME besides.",
        ("A27", "A31"),
        _weights_in_cache,
    ),
    Rule(
        "GP019",
        "TORCHINDUCTOR_CACHE_DIR that vLLM overwrites",
        "info",
        "vLLM 0.32 puts Inductor's cache below VLLM_CACHE_ROOT/torch_compile_cache/torch_aot_compile whatever the variable says.",
        "Put VLLM_CACHE_ROOT on the volume; the variable can go.",
        ("A28", "https://docs.vllm.ai/en/latest/design/torch_compile/"),
        _inductor_overwritten,
    ),
    Rule(
        "GP020",
        "Streamed model and compile cache in an old vLLM",
        "warning",
        "Before September 2025 vLLM pulled the small files of an s3:// model into a random folder and hashed its path, so that no"
        " start found another's cache.",
        "Use vLLM 0.11 or later, or glowplug run, which gives the engine a path that follows from the content.",
        ("A12", "A27", "X06"),
        _random_path,
    ),
    Rule(
        "GP021",
        "Variable of this pod in the engine's cache key",
        "warning",
        "vLLM hashes nearly every variable that it knows. An address or a name that each pod has for itself makes a key of its"
        " own for each pod: the cache is there and never hits.",
        "Leave the variable out, or give every pod the same value; for VLLM_NIXL_SIDE_CHANNEL_HOST use vLLM 0.22 or later.",
        ("X07", "X08", "A55", "P06"),
        _per_pod_key,
    ),
    Rule(
        "GP022",
        "Pinned compilation_config.cache_dir",
        "warning",
        "With a pinned folder vLLM leaves the hash out and finds artefacts by their range alone: after another model, version or"
        " GPU it loads code that does not fit, and fails or computes nonsense.",
        "Leave cache_dir out; set VLLM_CACHE_ROOT instead.",
        ("X08", "https://docs.vllm.ai/en/latest/design/torch_compile/"),
        _pinned,
    ),
    Rule(
        "GP023",
        "VLLM_FORCE_AOT_LOAD in a serving pod",
        "warning",
        "The variable turns a cache that can't be loaded into the engine's end: right for proving a hit in CI, a crash loop in"
        " production.",
        "Remove it from serving pods.",
        ("X11",),
        _forced_load,
    ),
    Rule(
        "GP024",
        "SGLang with a compile cache and nothing compiled",
        "info",
        "vLLM compiles by default, SGLang only when it is told to.",
        "Add --enable-torch-compile, or leave the cache's variable out.",
        ("A20",),
        _sglang_uncompiled,
    ),
    Rule(
        "GP025",
        "One model, caches on different paths",
        "info",
        "The folder of the cache is in the key of vLLM before 0.30, and the paths of a streamed model's small files still are:"
        " the same path must be used where a cache is saved and where it is restored.",
        "Use one path in all pods of a model.",
        ("A30", "X06", "X08"),
        _hashed_folder,
    ),
)
