"""The checkpoint of a vLLM command, and the command that takes it from Glowplug's buffer instead.

A model with a URL is replaced by a folder on this node that holds all but the weights; ``--load-format glowplug`` and the variables
here lead vLLM to the loader, and ``--served-model-name`` keeps the name that clients use. The rewritten command is read again as
vLLM would read it: if anything else than these three has changed, the command stays as it was. No store is known here and nothing
is downloaded.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from glowplug.engines.accelerators import accelerators
from glowplug.engines.base import Handover, WeightsRequest
from glowplug.engines.command import unwrap
from glowplug.engines.interpreter import Question, python_command
from glowplug.engines.model import hub_snapshot
from glowplug.engines.software import Software
from glowplug.engines.vllm.arguments import parse
from glowplug.engines.vllm.host_memory import beside_weights
from glowplug.engines.vllm.installed import installed_vllm, version_tuple
from glowplug.engines.vllm.loader import LOAD_FORMAT
from glowplug.engines.vllm.loader.settings import COMMAND, FOLDER, RANKS, SOCKET, URI
from glowplug.engines.vllm.readiness import local_ranks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glowplug.engines.command import Command
    from glowplug.engines.vllm.arguments import Arguments

PLUGIN_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugin")
"""What is put on the engine's ``PYTHONPATH``."""

_STREAMED = re.compile(r"(s3|https?)://", re.IGNORECASE)
OLDEST = (0, 21)
"""The first version of vLLM that weights are streamed to."""
_FROM_BUCKETS = ("runai_streamer", "runai_streamer_sharded", "modelexpress")
"""What vLLM itself takes for a model in a bucket (``VllmConfig.try_verify_and_update_config``); it ends with any other format."""
_PLUGIN = "glowplug"


def weights_request(
    command: Command, words: Sequence[str], env: Mapping[str, str], cwd: str, *, serve: bool
) -> WeightsRequest | None:
    """What a server's command will load.

    Args:
        command: the server's own, without launchers.
        words: vLLM's arguments, the last words of the command.
        env: the environment that the launchers before it get.
        cwd: the folder that they start in.
        serve: whether it is ``vllm serve``.

    Raises:
        UsageError: ``--config`` names no file that can be read.
    """
    arguments = parse(words, serve=serve, cwd=command.cwd)
    model = arguments.model
    if model is None:
        return None
    request = WeightsRequest(
        uri=model,
        is_remote=True,
        ranks=local_ranks(arguments),
        engine_bytes=lambda size_bytes: _engine_bytes(size_bytes, arguments, command.env),
        concurrency=_concurrency(arguments),
        others=_others(arguments),
    )
    if not _STREAMED.match(model):
        folder = os.path.join(command.cwd, model)
        if not os.path.isdir(folder):
            folder = hub_snapshot(model, command.env, arguments.text("revision"), arguments.text("download-dir")) or ""
        return replace(request, uri=os.path.abspath(folder), is_remote=False) if folder and "://" not in model else None
    chosen = arguments.text("load-format") or "auto"
    if chosen.lower() not in ("auto", LOAD_FORMAT):
        alone = f"vLLM loads nothing from {model} with it; leave it out"
        if chosen.lower() in _FROM_BUCKETS:
            alone = f"vLLM fetches {model} by itself"
        return replace(request, notice=f"--load-format {chosen} is left as it is: {alone}")
    new_words = _rewritten(words, arguments, _PLACEHOLDER, serve=serve)
    if not _says_the_same(new_words, arguments, serve=serve, cwd=command.cwd):
        return replace(request, notice=f"the model's name can't be replaced in this command: vLLM fetches {model} by itself")

    def rewrite(handover: Handover) -> tuple[tuple[str, ...], dict[str, str]]:
        before = command.argv[: len(command.argv) - len(words)]
        argv = command.around((*before, *_rewritten(words, arguments, handover.folder, serve=serve)))
        return argv, {**_environment(env, handover), RANKS: str(request.ranks)}

    return replace(request, rewrite=rewrite, obstacle=lambda: _obstacle(*rewrite(_NOWHERE), env=env, cwd=cwd))


_PLACEHOLDER = "/glowplug/weights"
_NOWHERE = Handover(_PLACEHOLDER, "", "", "")


def _rewritten(words: Sequence[str], arguments: Arguments, folder: str, *, serve: bool) -> list[str]:
    """The words for vLLM with the folder as model. The last of equal options wins, a positional model wins over all."""
    model = arguments.model or ""
    added = ["--load-format", LOAD_FORMAT]
    if arguments.values.get("served-model-name") is None:
        added += ["--served-model-name", model]
    if arguments.text("tokenizer") == model:
        added += ["--tokenizer", folder]
    if not serve:
        return [*words, *added, "--model", folder]
    kept = list(words)
    for index, word in enumerate(kept):
        if word == "--model":
            kept[index + 1 : index + 2] = [folder]
            break
        if word.startswith("--model="):
            kept[index] = f"--model={folder}"
            break
        if word == model and (index == 0 or _stands_alone(kept, index)):
            kept[index] = folder
            break
    else:
        if model in kept:
            return kept  # somewhere; whoever compares finds that nothing has changed
        kept.insert(0, folder)  # it comes from a config file, and a positional one is stronger
    return [*kept, *added]


def _stands_alone(words: Sequence[str], index: int) -> bool:
    """Whether a word is the positional model and not the value of the option before it: without it, no model is left."""
    without = parse([*words[:index], *words[index + 1 :]], serve=True, cwd="/") if "--config" not in words else None
    return without is not None and without.model is None


def _says_the_same(words: Sequence[str], arguments: Arguments, *, serve: bool, cwd: str) -> bool:
    """Whether the new arguments mean what the old ones did, but for model, load format, served name and tokenizer."""
    if "--" in words:
        return False
    now = parse(words, serve=serve, cwd=cwd)
    expected = {**arguments.values, "load-format": LOAD_FORMAT}
    if expected.get("served-model-name") is None:
        expected["served-model-name"] = [arguments.model]
    if expected.get("tokenizer") == arguments.model:
        expected["tokenizer"] = _PLACEHOLDER
    return now.model == _PLACEHOLDER and now.values == expected and now.ignored_config == arguments.ignored_config


def _environment(env: Mapping[str, str], handover: Handover) -> dict[str, str]:
    """The variables to set for the engine. An allow-list of plug-ins gets ours too."""
    path = env.get("PYTHONPATH")
    variables = {
        "PYTHONPATH": f"{PLUGIN_FOLDER}{os.pathsep}{path}" if path else PLUGIN_FOLDER,
        SOCKET: handover.socket,
        URI: handover.uri,
        FOLDER: handover.folder,
        COMMAND: handover.command,
    }
    allowed = env.get("VLLM_PLUGINS")
    if allowed is not None and _PLUGIN not in allowed.split(","):
        variables["VLLM_PLUGINS"] = f"{allowed},{_PLUGIN}" if allowed else _PLUGIN
    return variables


def _obstacle(argv: Sequence[str], variables: Mapping[str, str], *, env: Mapping[str, str], cwd: str) -> str:
    """Why vLLM would not find our loader; empty if it would."""
    command = unwrap(argv, {**env, **variables}, cwd)
    for name, value in variables.items():
        if command.env.get(name) != value:
            return f"the command itself decides about {name}; set variables before glowplug run instead"
    python = python_command(command)
    interpreter = Question(python, command).answer() if python else None
    if interpreter is None:
        return f"the Python that runs {command.argv[0]} was not found or did not answer"
    if PLUGIN_FOLDER not in interpreter.sys_path:
        return f"{interpreter.executable} does not read PYTHONPATH"
    version = installed_vllm(Software(interpreter)).version
    if version is not None and version_tuple(version) < OLDEST:
        return f"vLLM {version} is older than {'.'.join(map(str, OLDEST))}"
    return ""


def _others(arguments: Arguments) -> tuple[str, ...]:
    """URLs that vLLM fetches besides the model."""
    adapters = arguments.values.get("lora-modules")
    named = [
        arguments.text("tokenizer"),
        arguments.text("hf-config-path"),
        arguments.tree("speculative-config").get("model") or arguments.text("spec-model"),
        *(str(word).partition("=")[2] for word in (adapters if isinstance(adapters, list) else [adapters])),
    ]
    return tuple(name for name in named if isinstance(name, str) and "://" in name and name != arguments.model)


def _concurrency(arguments: Arguments) -> int:
    value = arguments.tree("model-loader-extra-config").get("concurrency")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _engine_bytes(size_bytes: int, arguments: Arguments, env: Mapping[str, str]) -> int:
    """Host memory that vLLM will need: on a processor also for its own copy of the weights."""
    on_cpu = accelerators(env).kind == "none"
    return beside_weights(local_ranks(arguments), on_cpu=on_cpu, env=env) + (size_bytes if on_cpu else 0)
