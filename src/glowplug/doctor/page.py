"""``docs/rules.md``, made of the rules themselves: ``python -m glowplug.doctor.page > docs/rules.md``."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from glowplug.doctor.registry import all_rules
from glowplug.doctor.sources import told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glowplug.doctor.base import AnyRule

_WIDTH = 132
_THEMES = {
    "0": "Engine and container",
    "1": "Probes and roll-out",
    "2": "Volumes, caches and disks",
    "3": "AWS Neuron",
    "4": "Autoscaling and monitoring",
    "5": "Nodes, Karpenter and eksctl",
    "6": "Security and network",
    "7": "The doctor's own annotations",
    "9": "The machine (`glowplug doctor --node`)",
}
_HEAD = """\
# What `glowplug doctor` looks for

This page is made of the rules themselves (`python -m glowplug.doctor.page > docs/rules.md`); a test fails if it is old.

    glowplug doctor k8s/                        # files, folders, or - for standard input
    helm template llm ./chart | glowplug doctor -
    glowplug doctor --node                      # the machine that it runs on: a pod, or a node
    glowplug doctor --explain GP014             # one rule, with its sources

*error*: it does not start, breaks, or starts cold. *warning*: it costs time, or fails some day. *info*: worth knowing. The exit
code is 1 on errors (with `--strict` on warnings too), 2 if a file could not be read, nothing given is a Kubernetes object, or the
command is wrong, else 0. `--json` and `--sarif` are for programs.

A finding that you have looked at is accepted by an annotation on the object or on its pod template, with a reason:

    metadata:
      annotations:
        glowplug.dev/ignore: "GP014: kept for debugging until June; GP107: one spare GPU is reserved"

Rules judge what the given files show, and stay silent where they can't tell: options that a file or a variable from elsewhere may
add, objects that were not given, instance types that are not in the catalogue. Give all files of an application at once: some rules
look from a Service to its pods, from an autoscaler to its workload, from a pod to its node pool. Kinds that no rule knows are
passed over; `--verbose` lists them. The rows in the sources (A24, B10, X14, P11) are those of [inventory.md](inventory.md).

`--node` looks at the machine instead, with the rights and the environment of whoever calls it, so run it where the engine will run:
as the container's user, in the pod or in an init container. It says what it found in a short table, and then what is wrong with it.

    glowplug doctor --node --store s3://bucket/glowplug --model s3://bucket/models/qwen3-8b --instance g6e.12xlarge

The cache folder is where `glowplug run` would put it (`--cache-dir`, `GLOWPLUG_CACHE_DIR`). A file is written, renamed, locked and
mapped as code in it and removed at once; that is all that is ever written. Of the store (`GLOWPLUG_STORE`) and the model a listing
is asked for, and the largest object is read for three seconds or 256 MB; who may write there is not tried. `--instance` names what
the machine should be; without it its own word counts (the metadata service, asked for a second at most, else the firmware). Without
a network all of it takes seconds.
"""


def page() -> str:
    """The whole page in Markdown."""
    parts = [_HEAD]
    theme = ""
    for rule in all_rules().values():
        if rule.id[2] != theme:
            theme = rule.id[2]
            parts.append(f"## {_THEMES[theme]}\n")
        parts.append("\n".join(_section(rule)) + "\n")
    return "\n".join(parts)


def _section(rule: AnyRule) -> Iterator[str]:
    yield f"### {rule.id} {_escaped(rule.title)}"
    yield ""
    yield from textwrap.wrap(f"*{rule.severity}.* {_escaped(rule.why)}", _WIDTH, break_on_hyphens=False, break_long_words=False)
    yield ""
    yield from textwrap.wrap(f"**Fix.** {_escaped(rule.fix)}", _WIDTH, break_on_hyphens=False, break_long_words=False)
    if rule.sources:
        yield ""
        for source in rule.sources:
            yield f"- {_escaped(told(source))}"


def _escaped(text: str) -> str:
    return re.sub(r"(https://\S+)|([*_<>`\[\]])", lambda found: found[1] or f"\\{found[2]}", text)


if __name__ == "__main__":
    print(page(), end="")
