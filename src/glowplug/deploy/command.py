"""What the containers run and with which variables: the one changed line, and how Glowplug comes beside an image that has none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import glowplug
from glowplug.deploy.commented import note

if TYPE_CHECKING:
    from glowplug.deploy.commented import Node
    from glowplug.deploy.design import Design

PYTHON_IMAGE = "python:3.11-slim-bullseye"
"""With an old glibc (2.31): what is injected runs on that or a newer one, and vLLM's and Neuron's images have 2.35."""
_VENV = "/tmp/glowplug"  # noqa: S108  in the pod, on a volume of its own
_RUN = ("/glowplug/bin/glowplug", "run", "--")
_TAG = re.compile(r":v?(\d+)\.(\d+)")
_DEVICE_OPTION_UNTIL = (0, 9)
"""The last minor version of vLLM that has to be told the device."""
# In a shell, since the folder is known only once Glowplug has taken it. One simple command, so that the engine in it is recognised.
_ARTIFACTS = 'NEURON_COMPILED_ARTIFACTS="$VLLM_CACHE_ROOT/neuron/artifacts" exec'


def inject_command(design: Design) -> tuple[str, list[Node], str]:
    """Image, command and a comment of the init container that brings Glowplug along."""
    if design.wish.glowplug_image:
        why = "Any image in which glowplug is installed, with a glibc that is not newer than the engine's."
        return design.wish.glowplug_image, ["glowplug", "inject", "/glowplug"], why
    version = glowplug.__version__
    script = (
        "set -e\n"
        f"python3 -m venv {_VENV}\n"
        f"{_VENV}/bin/pip install --no-cache-dir --disable-pip-version-check glowplug=={version}\n"
        f"{_VENV}/bin/glowplug inject /glowplug\n"
    )
    why = (
        "Fetches glowplug from a package index at every start of a pod, on an old glibc, so that it runs in the engine's image. "
        "Better is an image of your own (--glowplug-image): "
        f"FROM {PYTHON_IMAGE}, RUN pip install glowplug=={version}."
    )
    return PYTHON_IMAGE, ["/bin/sh", "-c", script], why


def command(design: Design) -> list[Node]:
    """The engine's command, behind ``glowplug run --``."""
    wish = design.wish
    words = ["vllm", "serve", f"/var/lib/weights/{design.name}" if design.is_neuron else wish.model]
    words += ["--served-model-name", design.name, "--port", str(wish.port), "--tensor-parallel-size", str(design.tp)]
    if design.max_model_len:
        words += ["--max-model-len", str(design.max_model_len)]
    if design.is_neuron:
        words += ["--max-num-seqs", str(wish.batch), *_device(design.image)]
    words += wish.engine_args
    if not design.is_neuron:
        return [note(_RUN[0], "The one changed line: what follows -- is the engine's command."), *_RUN[1:], *words]
    line = " ".join([_ARTIFACTS, *(_quoted(word) for word in words)])
    return [
        note(
            _RUN[0],
            "What follows -- is the engine's command. What it compiles lies in Glowplug's cache folder, so it is shared as a "
            'signed generation, which is there whole or not at all: no "is the folder empty?".',
        ),
        *_RUN[1:],
        "/bin/sh",
        "-c",
        line,
    ]


def _quoted(word: str) -> str:
    """A word of a shell's line."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def _device(image: str) -> list[str]:
    found = _TAG.search(image)
    if found and (int(found[1]), int(found[2])) > _DEVICE_OPTION_UNTIL:
        return []
    return ["--device", "neuron"]


def environment(design: Design, *, publisher: bool) -> list[Node]:
    """The engine's variables, and Glowplug's."""
    wish = design.wish
    trusted = f"awskms:{wish.kms_key}" if wish.kms_key else "/etc/glowplug/trusted"
    made: list[Node] = [
        {"name": "GLOWPLUG_STORE", "value": wish.store},
        {"name": "GLOWPLUG_CACHE_DIR", "value": "/var/cache/glowplug/live"},
        {note("name", "Only caches that one of these keys has signed are used."): "GLOWPLUG_TRUSTED_KEYS", "value": trusted},
    ]
    if publisher:
        made += [
            {"name": "GLOWPLUG_ROLE", "value": "writer"},
            {"name": "GLOWPLUG_SIGNING_KEY", "value": trusted if wish.kms_key else "/etc/glowplug/signing/glowplug.key"},
        ]
    else:
        made.append(
            {note("name", "It restores, and writes nothing but reports of caches that failed."): "GLOWPLUG_ROLE", "value": "reader"}
        )
    made += [
        {"name": "GLOWPLUG_WAIT", "value": f"{design.wait_s}s"},
        {
            note("name", "The namespace is what the role lets this pod report under."): "GLOWPLUG_REPORTS_AS",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        },
        {"name": "GLOWPLUG_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    made += [{"name": name, "value": value} for name, value in design.fetch.environment.items() if not design.is_neuron]
    if design.is_neuron:
        made.append({"name": "VLLM_NEURON_FRAMEWORK", "value": "neuronx-distributed-inference"})
    if wish.run_as_user:
        made += [
            {note("name", "The image's own home is root's."): "HOME", "value": "/tmp"},  # noqa: S108
            {note("name", "torch asks for the user's name, and the image has none for this one."): "USER", "value": "vllm"},
        ]
    if wish.api_key_secret:
        made.append({
            "name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": wish.api_key_secret, "key": "api-key"}},
        })  # fmt: skip
    return made + [dict(zip(("name", "value"), entry.split("=", 1), strict=True)) for entry in wish.env]
