"""The commands of the manifests, run as they are: the publisher compiles and publishes, its Job ends, servers restore.

Folders stand in for the pod's volumes. The engine is a small program with vLLM's command line and a Neuron engine's manners: it
loads what ``NEURON_COMPILED_ARTIFACTS`` names, or compiles it.
"""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glowplug.cache.keys import create_pair
from glowplug.deploy.make import objects
from tests.deploy.conftest import design_of

ENGINE = f"""\
#!{sys.executable}
import http.server, os, pathlib, signal, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
if artifacts := os.environ.get("NEURON_COMPILED_ARTIFACTS"):
    model = pathlib.Path(artifacts, "model.pt")
    if model.exists():
        print("loaded", model.read_text(), flush=True)
    else:
        model.parent.mkdir(parents=True)
        model.write_text("neff")
        print("compiled", flush=True)
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.HTTPServer(("127.0.0.1", port), Healthy).serve_forever()
"""
FIELDS = {"spec.nodeName": "node-1", "metadata.namespace": "default"}


class Node:
    """A folder in which a pod's paths lie."""

    def __init__(self, root, port):
        self.root, self.port, self.output = root, port, ""
        (root / "bin").mkdir()
        engine = root / "bin" / "vllm"
        engine.write_text(ENGINE)
        engine.chmod(0o755)
        for folder in (
            "glowplug/bin",
            "store",
            "var/cache/glowplug",
            "var/run/glowplug",
            "etc/glowplug/trusted",
            "etc/glowplug/signing",
        ):
            (root / folder).mkdir(parents=True)
        (root / "var/lib/weights/tiny").mkdir(parents=True)
        (root / "var/lib/weights/tiny/config.json").write_text("{}")
        os.symlink(Path(sys.executable).parent / "glowplug", root / "glowplug/bin/glowplug")
        # As the kubelet leaves an emptyDir of a pod with an fsGroup.
        (root / "var/cache/glowplug").chmod(0o777 | stat.S_ISGID)
        create_pair(root / "glowplug-pair")
        (root / "glowplug-pair.key").rename(root / "etc/glowplug/signing/glowplug.key").chmod(0o440)
        (root / "glowplug-pair.pub").rename(root / "etc/glowplug/trusted/glowplug.pub")

    def here(self, text):
        for path in ("/glowplug/bin", "/var/lib/weights", "/var/cache/glowplug", "/var/run/glowplug", "/etc/glowplug"):
            text = text.replace(path, f"{self.root}{path}") if str(self.root) not in text else text
        return text

    def environment(self, container):
        env = {"PATH": f"{self.root}/bin:/usr/bin:/bin", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "GLOWPLUG_SETTLE": "200ms"}
        for variable in container.get("env", []):
            value = variable.get("value") or FIELDS[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            env[variable["name"]] = self.here(value)
        return {**env, "GLOWPLUG_STORE": f"file://{self.root}/store", "GLOWPLUG_REPORT": f"{self.root}/report.json"}

    @contextlib.contextmanager
    def running(self, container):
        words = [self.here(word) for word in container["command"]]
        process = subprocess.Popen(
            words, env=self.environment(container), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            self.output = process.communicate(timeout=60)[0]
            print(self.output)


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def containers(objects_, kind, component):
    found = next(
        each for each in objects_ if each["kind"] == kind and component in each["spec"]["template"]["metadata"]["labels"].values()
    )
    pod = found["spec"]["template"]["spec"]
    return {container["name"]: container for container in [*pod["initContainers"], *pod["containers"]]}


def ready(path, *, within_s=60):
    until = time.monotonic() + within_s
    while not path.exists():
        assert time.monotonic() < until, f"no {path} after {within_s} s"
        time.sleep(0.05)
    return json.loads(path.read_text())


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path, free_port())


def test_what_the_publishers_job_has_compiled_is_loaded_by_a_server_on_another_node(node):
    made = objects(design_of(target="neuron", model="s3://models/tiny", port=node.port))
    publisher = containers(made, "Job", "publisher")
    with node.running(publisher["vllm"]):
        waiting = subprocess.run(
            [node.here(word) for word in publisher["published"]["command"]],
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert (waiting.returncode, waiting.stdout) == (0, 'glowplug_publish_state{state="published"} 1\n')
    (node.root / "report.json").unlink()
    subprocess.run(["rm", "-rf", node.root / "var/cache/glowplug/live"], check=True)
    with node.running(containers(made, "Deployment", "server")["vllm"]):
        report = ready(node.root / "report.json")
    assert "loaded neff\n" in node.output
    assert (report["outcome"], report["cache"]["files_new"]) == ("hit", 0), report


def test_a_job_whose_publication_failed_fails(node):
    publisher = containers(objects(design_of(target="neuron", model="s3://models/tiny", port=node.port)), "Job", "publisher")
    (node.root / "var/run/glowplug/start.prom").write_text('glowplug_publish_state{state="failed"} 1\n')
    waiting = subprocess.run(
        [node.here(word) for word in publisher["published"]["command"]], capture_output=True, timeout=60, check=False
    )
    assert waiting.returncode == 1


def test_a_server_publishes_nothing(node):
    made = objects(design_of(target="neuron", model="s3://models/tiny", port=node.port))
    with node.running(containers(made, "Deployment", "server")["vllm"]):
        assert ready(node.root / "report.json")["outcome"] == "miss"
    assert not list((node.root / "store").rglob("latest"))
