"""Where vLLM answers when it is ready, and how many ranks it runs on this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowplug.engines.base import ExitReadiness, HttpReadiness
from glowplug.engines.vllm.options import PARALLELISM

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.engines.vllm.arguments import Arguments

_DEFAULT_PORT = 8000
_DEFAULT_SUPERVISOR_PORT = 9256
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  recognised, not bound


def readiness(arguments: Arguments) -> HttpReadiness | ExitReadiness:
    """The health URL; the exit where vLLM runs without an HTTP server (``--headless``, ``--grpc``)."""
    if arguments.values.get("headless") or arguments.values.get("grpc"):
        return ExitReadiness()
    if socket := arguments.text("uds"):
        from urllib.parse import quote  # noqa: PLC0415  3 ms, for a rare option

        return HttpReadiness(f"http+unix://{quote(socket, safe='')}/health")
    port = arguments.number("port") or _DEFAULT_PORT
    if arguments.values.get("data-parallel-multi-port-external-lb"):  # the supervisor's, which waits for every rank's server
        port = arguments.number("data-parallel-supervisor-port") or _DEFAULT_SUPERVISOR_PORT
    host = (arguments.text("host") or "").strip("[]")
    host = _ANY_ADDRESS.get(host, host)
    scheme = "https" if arguments.text("ssl-certfile") and arguments.text("ssl-keyfile") else "http"
    return HttpReadiness(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/health")


def parallelism(arguments: Arguments) -> dict[str, Json]:
    """The envelope's ``parallelism`` group: sizes, and which ranks this node holds, since each has a cache folder of its own."""
    component: dict[str, Json] = {name: arguments.number(option) or 1 for name, option in PARALLELISM.items()}
    component["expert"] = bool(arguments.values.get("enable-expert-parallel"))
    component["ranks"] = local_ranks(arguments)
    for name, option in (
        ("node", "node-rank"),
        ("data_rank", "data-parallel-rank"),
        ("data_start", "data-parallel-start-rank"),
    ):
        if rank := arguments.number(option):
            component[name] = rank
    return component


def local_ranks(arguments: Arguments) -> int:
    """Ranks of the model on this node: tensor x pipeline x prefill context, over the nodes, for each local data-parallel rank."""
    world = 1
    for name in ("tensor", "pipeline", "prefill_context"):
        world *= arguments.number(PARALLELISM[name]) or 1
    on_node = max(1, world // (arguments.number("nnodes") or 1))
    if arguments.number("data-parallel-rank") is not None or arguments.values.get("data-parallel-external-lb"):
        return on_node  # one data-parallel rank to a server
    return on_node * (arguments.number("data-parallel-size-local") or arguments.number("data-parallel-size") or 1)
