"""Which container serves a model, with which engine and which arguments, as the engine itself would read them.

Reuses what ``glowplug run`` knows of commands and of vLLM's command line. Where a shell script hides the command, its words are
looked for; where a file or a variable from elsewhere may add options, ``complete`` is false, and rules that go by an option's
absence stay silent. Reads no file: a manifest may name one of the machine that it is checked on.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from glowplug.doctor.objects import items
from glowplug.engines.command import unwrap
from glowplug.engines.vllm.arguments import Arguments, parse
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from glowplug.doctor.base import Problem
    from glowplug.doctor.pods import Container

_API_SERVER = re.compile(r"vllm\.entrypoints\.(?:openai\.)?api_server")
_PYTHON = re.compile(r"python[0-9.]*")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")
_LONGEST_SCRIPT = 64 * 1024
_KSERVE_VLLM = ("huggingfaceserver",)
CACHE_VARIABLES = (
    "VLLM_CACHE_ROOT", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "SGLANG_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE", "NEURON_COMPILE_CACHE_URL", "NEURON_COMPILED_ARTIFACTS",
)  # fmt: skip
"""Variables that say where compiled code goes."""
DEFAULT_CACHES = ("/root/.cache/vllm", "/root/.triton/cache", "/home/vllm/.cache/vllm", "/var/tmp/neuron-compile-cache")  # noqa: S108  Neuron's default


@dataclass(frozen=True, eq=False)
class Engine:
    """An inference engine in a container.

    Attributes:
        container: where it runs.
        name: which it is.
        arguments: of vLLM; empty for others.
        words: of its own command.
        entry: ``serve`` for ``vllm serve``, ``module`` for the API server's module, ``image`` for the image's own entry point.
        complete: whether all its options are seen.
        glowplug: the words of ``glowplug run`` before ``--``, where it is started by it.
        direct: whether no shell reads its words.
    """

    container: Container
    name: Literal["vllm", "sglang"]
    arguments: Arguments
    words: tuple[str, ...]
    entry: Literal["serve", "module", "image"]
    complete: bool
    glowplug: tuple[str, ...] | None
    direct: bool

    @property
    def model(self) -> str:
        """As given; empty if unknown."""
        return self.arguments.model or ""

    @property
    def remote_model(self) -> bool:
        """Whether it is an object store's URL."""
        return bool(_REMOTE.match(self.model))

    @property
    def tp(self) -> int:
        """Tensor parallelism."""
        return self.arguments.number("tensor-parallel-size") or 1

    @property
    def devices(self) -> int:
        """That it takes in all: TP x PP x DP."""
        pipeline = self.arguments.number("pipeline-parallel-size") or 1
        data = self.arguments.number("data-parallel-size") or 1
        return self.tp * pipeline * data

    @property
    def port(self) -> int:
        """That it listens on; 0 if unknown."""
        if "port" in self.arguments.values or not self.complete:
            return self.arguments.number("port") or 0
        return 30000 if self.name == "sglang" else 8000

    @property
    def eager(self) -> bool:
        """Whether nothing is compiled."""
        level = self.arguments.values.get("optimization-level")
        mode = self.arguments.tree("compilation-config").get("mode", self.arguments.tree("compilation-config").get("level"))
        return self.arguments.values.get("enforce-eager") is True or level == 0 or mode in (0, "NONE")

    @property
    def streams(self) -> bool:
        """Whether the Run:ai streamer loads the weights."""
        return (self.arguments.text("load-format") or "").startswith("runai_streamer")

    @property
    def streamer(self) -> Mapping[str, object]:
        """The streamer's settings in JSON."""
        return self.arguments.tree("model-loader-extra-config")

    @property
    def version(self) -> tuple[int, ...]:
        """By the image's tag; empty if unknown."""
        repository = self.container.image.partition("@")[0].rpartition(":")[0].lower()
        if self.name != "vllm" or "lmcache" in repository or not (repository.endswith("vllm-openai") or "neuron" in repository):
            return ()
        found = _VERSION.match(self.container.tag)
        return tuple(int(part) for part in found.groups() if part) if found else ()

    @property
    def caches(self) -> Mapping[str, str]:
        """Variables that move its cache, and where to; known absolute paths only."""
        env = self.container.env
        return {name: value for name in CACHE_VARIABLES if (value := env.get(name) or "").startswith("/")}

    def given(self, name: str) -> bool:
        """Whether an option is given."""
        return name in self.arguments.values

    def problem(self, message: str, option: str = "") -> Problem:
        """Something wrong with its options; with one of them, where it can be found."""
        body = self.container.body
        given = [name for name in ("args", "command") if name in body]
        for name in given if option else ():
            for index, word in enumerate(items(body, name)):
                if f"--{option}" in str(word).replace("_", "-"):
                    return self.container.problem((name, index), message)
        return self.container.problem((given[0] if given else "image",), message)


def engine_of(container: Container) -> Engine | None:
    """The engine that a container starts; None if it starts none that is known."""
    words = container.words
    entry: Literal["image"] | None = None
    if "command" not in container.body and _is_vllm_image(container.image):
        words, entry = ("vllm", "serve", *words), "image"
    if not words:
        return None
    env = {name: value for name, value in container.env.items() if value is not None}
    direct = posixpath.basename(words[0]) not in ("sh", "bash", "dash", "ash")
    try:
        for candidate in _candidates(words, env):
            found = _recognised(container, candidate, direct=direct, entry=entry)
            if found is not None:
                return found
    except (UsageError, RecursionError, ValueError, OverflowError):  # vLLM could not read it either; it says so better
        return None
    return None


def _is_vllm_image(image: str) -> bool:
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0].lower()
    return name == "vllm-openai" or name.startswith("vllm-openai-")


def _candidates(words: tuple[str, ...], env: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The command behind launchers and shells, and each command of a script."""
    inner = unwrap(words, env, "/").argv
    yield inner
    line = next((word for word in words if "vllm" in word or "sglang" in word), "")
    if inner == words and len(line) <= _LONGEST_SCRIPT and any(character in line for character in " \n"):
        yield from _commands(line, env)


def _commands(script: str, env: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The simple commands of a shell script, roughly: no quoting is lost, no substitution is done."""
    known = _VARIABLE.sub(lambda match: env.get(match[1] or match[2], match[0]), script.replace("\\\n", " "))
    lexer = shlex.shlex(known, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    command: list[str] = []
    try:
        for part in (*lexer, "\n"):
            if part and not set(part) - set(";&|()\n"):
                if command:
                    yield unwrap(command, env, "/").argv
                command = []
            elif part != "exec" or command:
                command.append(part)
    except ValueError:  # a quote without its end
        return


def _recognised(container: Container, words: tuple[str, ...], *, direct: bool, entry: Literal["image"] | None) -> Engine | None:
    glowplug = None
    name = posixpath.basename(words[0])
    if (name == "glowplug" and words[1:2] == ("run",)) or (_PYTHON.fullmatch(name) and words[1:4] == ("-m", "glowplug", "run")):
        if "--" not in words:
            return None
        end = words.index("--")
        glowplug, words = words[:end], unwrap(words[end + 1 :] or ("",), {}, "/").argv
        name = posixpath.basename(words[0])
    module = words[words.index("-m") + 1] if _PYTHON.fullmatch(name) and "-m" in words[:-1] else ""
    if name == "vllm" and words[1:2] == ("serve",):
        return _vllm(container, words[2:], entry or "serve", glowplug, direct=direct)
    if _API_SERVER.fullmatch(module):
        return _vllm(container, words[words.index("-m") + 2 :], "module", glowplug, direct=direct)
    if module == "sglang.launch_server":
        rest = words[words.index("-m") + 2 :]
        return Engine(container, "sglang", _sglang(rest), words, "module", complete=True, glowplug=glowplug, direct=direct)
    return None


def _vllm(
    container: Container,
    words: tuple[str, ...],
    entry: Literal["serve", "module", "image"],
    glowplug: tuple[str, ...] | None,
    *,
    direct: bool,
) -> Engine:
    kept, complete, skip = [], True, False
    for word in words:
        if skip or word == "--config" or word.startswith("--config="):
            skip, complete = word == "--config" and not skip, False
            continue
        # An unknown variable, or "$@", may stand for any number of options.
        complete = complete and not (word.startswith("$") and not word.startswith("$("))
        kept.append(word)
    arguments = parse(kept, serve=entry != "module", cwd="/")
    return Engine(container, "vllm", arguments, words, entry, complete, glowplug, direct)


def _sglang(words: tuple[str, ...]) -> Arguments:
    """SGLang's few options that a rule asks for, under vLLM's names."""
    names = {"--tp": "tensor-parallel-size", "--tp-size": "tensor-parallel-size", "--tensor-parallel-size": "tensor-parallel-size",
             "--port": "port", "--host": "host", "--dp-size": "data-parallel-size", "--dp": "data-parallel-size",
             "--pp-size": "pipeline-parallel-size", "--nnodes": "nnodes"}  # fmt: skip
    values: dict[str, object] = {}
    model = None
    pairs = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else (word,))]
    for name, value in zip(pairs, (*pairs[1:], ""), strict=True):
        if name in ("--model-path", "--model"):
            model = value
        elif name in names:
            values[names[name]] = int(value) if value.isdecimal() and len(value) < 6 else value
        elif name.startswith("--"):
            values[name[2:]] = True
    return Arguments(values, model)  # type: ignore[arg-type]  # scalars only
