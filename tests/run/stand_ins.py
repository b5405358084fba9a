"""Engines that behave like real ones towards their cache, in a tenth of a second: the programs that the tests of ``run`` start.

Two kinds. ``COMPILER`` is any command that compiles through Inductor; ``VLLM`` stands in a folder that looks like a virtual
environment with vLLM in it, says what vLLM says, writes where vLLM writes, and serves ``/health``. What they do is steered by
variables that are no part of the envelope: ``DOES`` (words, see below), ``GRAPHS`` (how many), ``BYTES`` (of each); in ``VLLM``
also ``COMPILE_S`` (seconds for each), ``COMPILES_UNTIL`` (a file appears), ``KEY`` (the hash that it makes of its settings).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

# DOES: ignore  compiles under names of its own and reads nothing
#       leak    writes VLLM_API_KEY into its cache
#       wait    reads its standard input to the end before it exits
#       fail    exits 3
#       crash   dies of SIGSEGV if it has loaded anything
COMPILER = """
import os, pathlib, sys
does = os.environ.get("DOES", "").split()
folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
if folder is None:
    print("compiled 1 loaded 0 without a cache folder")
    sys.exit()
compiled = loaded = 0
for number in range(int(os.environ.get("GRAPHS", "4"))):
    name = f"c{number}-ignoring" if "ignore" in does else f"c{number}"
    path = pathlib.Path(folder, f"{number:02}", name + ".so")
    if path.exists():
        path.read_bytes()
        loaded += 1
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(int(os.environ.get("BYTES", "1000"))))
        compiled += 1
if "leak" in does:
    pathlib.Path(folder, "settings.json").write_text('{"key": "%s"}' % os.environ["VLLM_API_KEY"])
print(f"compiled {compiled} loaded {loaded} in {folder}", flush=True)
if "wait" in does:
    sys.stdin.read()
if "crash" in does and loaded:
    os.kill(os.getpid(), 11)
sys.exit(3 if "fail" in does else 0)
"""

# DOES: ignore    as above
#       leak      as above
#       die       exits 9 before it is ready
#       deaf      needs a second SIGTERM to end
#       hide      listens where nobody looks
#       poison    exits 1 before it is ready if it has loaded anything from its cache
#       orphan    and leaves a child that holds its output
#       doomed    exits 1 in the same place, whatever it has loaded
#       broken    says that it can't load what is in its cache, and compiles
#       late      exits 1 on SIGUSR1, when it is ready, if it has loaded anything
#       slow      compiles until it gets SIGTERM, and says so
#       eager     looks into its cache while that is still being restored
#       unready   is never ready, and waits for a signal after its weights
VLLM = """
import http.server, json, os, pathlib, signal, socketserver, sys, time
does = os.environ.get("DOES", "").split()
words = sys.argv[1:]
option = lambda name: words[words.index(name) + 1] if name in words else None
begun = time.monotonic()

def say(text):
    print(f"(EngineCore pid={os.getpid()}) INFO 11-29 16:10:30 [core.py:1] {text}", file=sys.stderr, flush=True)

# As its imports would: it does not look into its cache while that is still being restored.
time.sleep(0.2)
staging = pathlib.Path(os.environ.get("VLLM_CACHE_ROOT", "/nonexistent")).parent / ".glowplug"
while "eager" not in does and list(staging.glob("staging-*")):
    time.sleep(0.01)
say("Starting to load model ...")
if option("--load-format") == "glowplug":  # as the loader does it, without torch
    import hashlib
    from glowplug.weights.buffer.client import attach
    ranks = int(os.environ["GLOWPLUG_WEIGHTS_RANKS"])
    for rank in range(ranks):
        attachment = attach(os.environ["GLOWPLUG_WEIGHTS_SOCKET"], rank=rank, ranks=ranks, timeout_s=10)
        for item in attachment.tensors:
            view = attachment.wait(item)
            print("tensor", rank, item.name, hashlib.sha256(view).hexdigest(), flush=True)
            del view
            attachment.release(item)
        attachment.finish()
print("argv", json.dumps(words), "PYTHONPATH", os.environ.get("PYTHONPATH"), flush=True)
say("Loading weights took 0.01 seconds")
if "unready" in does:
    time.sleep(600)
if "die" in does:
    say("No available memory for the cache blocks")
    sys.exit(9)
root = pathlib.Path(os.environ.get("VLLM_CACHE_ROOT", os.path.expanduser("~/.cache/vllm")))
key = root / "torch_compile_cache" / os.environ.get("KEY", "4c3e1a")
rank = key / "rank_0_0" / "backbone"
say("Dynamo bytecode transform time: 0.01 s")
loaded = 0
for number in range(int(os.environ.get("GRAPHS", "2"))):
    graph = rank / f"artifact_compile_range_{number}"
    if graph.exists() and "broken" in does:
        graph.read_bytes()
        say("Compiling model again due to a load failure from " + str(graph) + ", reason: bad magic number")
        graph.unlink()
    if graph.exists() and "ignore" not in does:
        graph.read_bytes()
        loaded += 1
        say(f"Directly load the compiled graph(s) for compile range ({number}, 8192) from the cache, took 0.01 s")
    else:
        rank.mkdir(parents=True, exist_ok=True)
        graph.write_bytes(os.urandom(int(os.environ.get("BYTES", "1000"))))
        time.sleep(float(os.environ.get("COMPILE_S", "0.01")))
        while "COMPILES_UNTIL" in os.environ and not os.path.exists(os.environ["COMPILES_UNTIL"]):
            time.sleep(0.01)
        say(f"Compiling a graph for compile range ({number}, 8192) takes 0.01 s")
if "doomed" in does or ("poison" in does and loaded):
    say("AssertionError in the loaded graph, with HF_TOKEN=" + os.environ.get("HF_TOKEN", ""))
    if "orphan" in does and not os.fork():
        time.sleep(60)
    os._exit(1)
if "slow" in does and not loaded:
    say("compiles slowly")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
    time.sleep(600)
factors = {"env": {"VLLM_API_KEY": os.environ["VLLM_API_KEY"]}} if "leak" in does else {"env": {"VLLM_KEY": key.name}}
if "KEY" in os.environ:
    factors |= {"config_hash": "1", "code_hash": "2", "compiler_hash": "3"}
(key / "cache_key_factors.json").write_text(json.dumps(factors))
say(f"init engine (profile, create kv cache, warmup model) took {time.monotonic() - begun:.2f} s")

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

    def address_string(self):
        return "unix"

left = 2 if "deaf" in does else 1

def stop(number, frame):
    global left
    left -= 1
    say(f"got signal {number}")
    if not left:
        sys.exit(0)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR1, (lambda number, frame: os._exit(1)) if "late" in does and loaded else signal.SIG_IGN)
if option("--uds"):
    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True
    path = option("--uds") + ("-hidden" if "hide" in does else "")
    pathlib.Path(path).unlink(missing_ok=True)
    server = Server(path, Health)
else:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Health)
say("Application startup complete.")
server.serve_forever(poll_interval=0.05)
"""


class Engine(NamedTuple):
    """A command, and how it is told what to do."""

    words: tuple[str, ...]
    folder: Path


def compiler(folder: Path) -> Engine:
    """A script that compiles through Inductor."""
    script = folder / "compile.py"
    script.write_text(COMPILER)
    return Engine((sys.executable, str(script)), folder)


def vllm(folder: Path) -> Engine:
    """``vllm serve MODEL`` in a virtual environment of its own; it listens on a socket in the folder."""
    root = folder / "venv"
    python = root / "bin" / "python"
    site = root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (root / "pyvenv.cfg").write_text(f"home = {Path(os.path.realpath(sys.executable)).parent}\n")
    for name, version in (("vllm", "0.32.0"), ("torch", "2.13.0")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "RECORD").write_text(f"{name}/__init__.py,sha256=x,0\n")
        (site / name).mkdir()
        (site / name / "__init__.py").touch()
    script = python.with_name("vllm")
    script.write_text(f"#!{python}\n{VLLM}")
    script.chmod(0o755)
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    return Engine((str(script), "serve", str(model), "--uds", str(folder / "s")), folder)
