# ruff: noqa: E501  a case a line
"""For each rule about engines and containers: manifests in which it finds something, and twins in which it must not."""

from __future__ import annotations

from tests.doctor.kube import cluster, container, llm, other, service, volume

S3 = "s3://models/qwen3-32b"
STREAM = (S3, "--load-format=runai_streamer")
TUNED = '--model-loader-extra-config={"concurrency":17}'
CHUNK = {"RUNAI_STREAMER_CHUNK_BYTESIZE": "4294967296"}
RETRY = {"RUNAI_STREAMER_S3_REQUEST_TIMEOUT_MS": "3000", "RUNAI_STREAMER_S3_LOW_SPEED_LIMIT": "1048576"}
POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}
GLOWPLUG = ["/glowplug/bin/glowplug", "run", "--store", "s3://caches/glowplug", "--", "vllm", "serve"]
TWO = "--tensor-parallel-size=2"


def script(line):
    """A container that runs a line by a shell."""
    return {"command": ["/bin/sh", "-c"], "args": [line]}


CASES = {
    "GP001": (
        [llm(*STREAM), llm(**script(f"set -x\nexec vllm serve {S3} --load-format runai_streamer"))],
        [llm(*STREAM, TUNED), llm(*STREAM, env={"RUNAI_STREAMER_CONCURRENCY": "17"}), llm("/models/x", "--load-format=runai_streamer"),
         llm(*STREAM, "--config=/etc/vllm.yaml"), llm(*STREAM, command=GLOWPLUG), llm(*STREAM, envFrom=[{"configMapRef": {"name": "c"}}])],
    ),
    "GP002": ([llm(*STREAM, TUNED)], [llm(*STREAM, TUNED, env=CHUNK)]),
    "GP003": (
        [llm(*STREAM, env={"RUNAI_STREAMER_CHUNK_BYTESIZE": value}) for value in ("4GiB", "4e9", "", "1048576", "-5")]
        + [llm(env={"RUNAI_STREAMER_CONCURRENCY": "many"}), llm(env={"RUNAI_STREAMER_MEMORY_LIMIT": "-2"})],
        [llm(*STREAM, env=CHUNK), llm(env={"RUNAI_STREAMER_MEMORY_LIMIT": "-1"}), llm(env={"RUNAI_STREAMER_CONCURRENCY": "$(N)"})],
    ),
    "GP004": ([llm(*STREAM, env=CHUNK)], [llm(*STREAM, env={**CHUNK, **RETRY}), llm(*STREAM)]),
    "GP006": (
        [llm(*STREAM, memory="40Gi", env={"RUNAI_STREAMER_MEMORY_LIMIT": "45000000000"})],
        [llm(*STREAM, memory="80Gi", env={"RUNAI_STREAMER_MEMORY_LIMIT": "40000000000"})],
    ),
    "GP007": (
        [llm("Qwen/Qwen3-8B", env=CHUNK)],
        [llm(*STREAM, env=CHUNK), llm(S3, env=CHUNK, command=GLOWPLUG), llm("m", "--config", "/x.yaml", env=CHUNK)],
    ),
    "GP008": (
        [llm(S3), llm(S3, command=GLOWPLUG, image="vllm/vllm-openai:v0.20.1"), llm("--model", S3, command=["python3", "-m", "vllm.entrypoints.openai.api_server"])],
        [llm(*STREAM), llm(S3, command=GLOWPLUG), llm(S3, command=GLOWPLUG, image="vllm/vllm-openai:nightly"), llm(*STREAM, command=GLOWPLUG, image="vllm/vllm-openai:v0.20.1"), llm("Qwen/Qwen3-8B"), llm(S3, "--load-format=tensorizer")],
    ),
    "GP009": (
        [llm(*STREAM, "--model-loader-extra-config={concurrency: 17}"), llm(*STREAM, "--model-loader-extra-config", '{"a":1')],
        [llm(*STREAM, TUNED), llm(*STREAM, "--model-loader-extra-config=$(EXTRA)")],
    ),
    "GP010": (
        [llm(*STREAM, '--model-loader-extra-config={"concurrency":4,"distributed":true}')],
        [llm(*STREAM, TWO, '--model-loader-extra-config={"distributed":true}', gpus=2), llm(*STREAM, TUNED)],
    ),
    "GP011": (
        [llm(*STREAM, TWO, '--model-loader-extra-config={"distributed":true}', "--enforce-eager", gpus=2)],
        [llm(*STREAM, TWO, '--model-loader-extra-config={"distributed":true}', gpus=2), llm(*STREAM, TUNED, "--enforce-eager")],
    ),
    "GP014": (
        [llm("m/x", "--enforce-eager"), llm("m/x", "-O0"), llm("m/x", "--enforce-eager", command=GLOWPLUG),
         llm("m/x", "--enforce_eager", env={"VLLM_CACHE_ROOT": None, "XDG_CACHE_HOME": "/compile-cache"})],
        [llm("m/x"), llm("m/x", "--enforce-eager", env={"VLLM_CACHE_ROOT": None}), llm("m/x", "--no-enforce-eager")],
    ),
    "GP015": ([llm("m/x", "--enforce-eager", env={"VLLM_CACHE_ROOT": None})], [llm("m/x")]),
    "GP016": (
        [llm(env={"VLLM_CACHE_ROOT": "/compile-cache"}), llm(env={"TRITON_CACHE_DIR": "/cache-2/triton"})],
        [llm(env={"TRITON_CACHE_DIR": "/cache/triton"}), llm(env={"VLLM_CACHE_ROOT": "/x"}, command=GLOWPLUG)],
    ),
    "GP017": (
        [llm(env={"VLLM_CACHE_ROOT": None})],
        [llm(), llm(env={"VLLM_CACHE_ROOT": None}, command=GLOWPLUG), llm("m/x", "--enforce-eager", env={"VLLM_CACHE_ROOT": None}),
         llm(env={"VLLM_CACHE_ROOT": None}, volumeMounts=[{"name": "cache", "mountPath": "/root/.cache"}])],
    ),
    "GP018": (
        [llm("Qwen/Qwen3-8B", env={"XDG_CACHE_HOME": "/cache"})],
        [llm("Qwen/Qwen3-8B", env={"XDG_CACHE_HOME": "/cache", "HF_HOME": "/hf"}), llm("/models/x", env={"XDG_CACHE_HOME": "/cache"}),
         llm(*STREAM, env={"XDG_CACHE_HOME": "/cache"})],
    ),
    "GP019": (
        [llm(image="vllm/vllm-openai:v0.32.0", env={"TORCHINDUCTOR_CACHE_DIR": "/cache/inductor"})],
        [llm(image="vllm/vllm-openai:v0.21.0", env={"TORCHINDUCTOR_CACHE_DIR": "/cache/inductor"})],
    ),
    "GP020": (
        [llm(*STREAM, image="vllm/vllm-openai:v0.10.1")],
        [llm(*STREAM), llm("Qwen/Qwen3-8B", image="vllm/vllm-openai:v0.10.1"), llm(*STREAM, image="lmcache/vllm-openai:v0.3.1")],
    ),
    "GP021": (
        [llm(env={"VLLM_P2P_SIDE_CHANNEL_HOST": POD_IP}), llm(env={"POD_IP": POD_IP, "VLLM_LOOPBACK_IP": "$(POD_IP)"}),
         llm(env={"VLLM_NIXL_SIDE_CHANNEL_HOST": POD_IP}, image="vllm/vllm-openai:v0.20.1")],
        [llm(env={"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}), llm(env={"VLLM_NIXL_SIDE_CHANNEL_HOST": POD_IP}, image="a/b:v1"),
         llm(env={"VLLM_HOST_IP": POD_IP, "POD_IP": POD_IP}), llm(env={"VLLM_NIXL_SIDE_CHANNEL_HOST": POD_IP}, image="vllm/vllm-openai:v0.22.0")],
    ),
    "GP022": ([llm("m/x", '--compilation-config={"cache_dir":"/cache/pinned"}')], [llm("m/x", '--compilation-config={"mode":3}')]),
    "GP023": (
        [llm(env={"VLLM_FORCE_AOT_LOAD": "1"})],
        [llm(env={"VLLM_FORCE_AOT_LOAD": "0"}), llm(kind="Job", env={"VLLM_FORCE_AOT_LOAD": "1"})],
    ),
    "GP024": (
        [llm(command=["python3", "-m", "sglang.launch_server"], args=["--model-path=m"], env={"TORCHINDUCTOR_CACHE_DIR": "/cache/i"})],
        [llm(command=["python3", "-m", "sglang.launch_server"], args=["--model-path=m", "--enable-torch-compile"],
             env={"TORCHINDUCTOR_CACHE_DIR": "/cache/i"})],
    ),
    "GP025": (
        [(llm(name="a"), llm(name="b", env={"VLLM_CACHE_ROOT": "/cache/other"}))],
        [(llm(name="a"), llm(name="b")), (llm("m/a", name="a"), llm("m/b", name="b", env={"VLLM_CACHE_ROOT": "/cache/other"}))],
    ),
    "GP030": (
        [llm("m/x", TWO), llm("m/x", "-tp", "4", gpus=2), llm("m/x", TWO, "--pipeline-parallel-size=2", gpus=2),
         llm(**script("vllm serve m/x -tp 2")), llm(command=None, args=["--model=m/x", TWO])],
        [llm("m/x", TWO, gpus=2), llm("m/x", TWO, "--distributed-executor-backend=ray"), llm("m/x", TWO, "--nnodes=2"), llm("m/x", TWO, gpus=0)],
    ),
    "GP031": ([llm("m/x", gpus=4), llm("m/x", TWO, gpus=4)], [llm("m/x", TWO, gpus=2), llm("m/x", "-dp=4", gpus=4), llm("m/x", "--config=/c", gpus=4)]),
    "GP032": (
        [llm(image=f"vllm/vllm-openai{tag}") for tag in ("", ":latest", ":nightly")] + [llm(image="localhost:5000/vllm-openai")],
        [llm(image="localhost:5000/vllm-openai:v0.21.0"), llm(image="vllm/vllm-openai@sha256:" + "0" * 64), llm(kind="Job", image="x:latest")],
    ),
    "GP033": (
        [llm("--model=m/x", command=["python3", "-m", "vllm.entrypoints.openai.api_server"])],
        [llm(), llm("--model=m/x", command=["python3", "-m", "vllm.entrypoints.openai.api_server"], image="vllm/vllm-openai:v0.8.0")],
    ),
    "GP034": (
        [llm("m/x", "--host=127.0.0.1"), llm("m/x", "--host", "localhost")],
        [llm("m/x", "--host=0.0.0.0"), llm("m/x", "--host=127.0.0.1", pod={"containers": [container("m/x", "--host=127.0.0.1"), {"name": "proxy"}]})],
    ),
    "GP035": (
        [llm(env={"VLLM_USE_V1": "0"}, image="vllm/vllm-openai:v0.12.0")],
        [llm(env={"VLLM_USE_V1": "1"}), llm(env={"VLLM_USE_V1": "0"}, image="vllm/vllm-openai:v0.8.5")],
    ),
    "GP036": (
        [llm("m/x", "--gpu-memory-utilization=0.99")],
        [llm("m/x", "--gpu-memory-utilization=0.95"), llm("m/x", "--gpu-memory-utilization=0.99", "--enforce-eager")],
    ),
    "GP037": (
        [llm(**script('set -e\nhuggingface-cli login --token "$HF_TOKEN"\nvllm serve m/x')), llm(**script("hf auth login --token x && vllm serve m/x"))],
        [llm(**script('huggingface-cli login --token "$HF_TOKEN" || true\nvllm serve m/x')), llm()],
    ),
    "GP038": (
        [llm("$(MODEL)"), llm("m/x", "--port=$(PORT)", env={"PROT": "8000"})],
        [llm("$(MODEL)", env={"MODEL": "m/x"}), llm("$$(MODEL)"), llm("$(M)", envFrom=[{"secretRef": {"name": "s"}}]), llm(**script("vllm serve $(cat /m)"))],
    ),
    "GP039": (
        [(llm(), service("vllm"))],
        [(llm(), service("llm")), (llm(pod={"enableServiceLinks": False}), service("vllm")), (llm(), service("vllm", clusterIP="None")),
         (llm(), other("v1", "Service", {}, "vllm", metadata={"namespace": "b"}))],
    ),
    "GP040": (
        [llm("m/x", "--trust-remote-code")],
        [llm("m/x", "--trust-remote-code", "--revision=abc"), llm("/models/x", "--trust-remote-code")],
    ),
    "GP050": (
        [llm(resources={"limits": {"nvidia.com/gpu": "0.5"}}), llm(resources={"requests": {"nvidia.com/gpu": 1}}),
         llm(resources={"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}})],
        [llm(), llm(resources={"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": 1}})],
    ),
    "GP051": ([llm(memory=None)], [llm(), llm(memory=None, gpus=0)]),
    "GP052": ([llm(pod={"containers": [container() | {"env": [{"name": "A"}, {"name": "B"}, {"name": "A"}]}]})], [llm(env={"A": "1", "B": "2"})]),
    "GP053": (
        [llm(pod={"volumes": volume("cahce", emptyDir={})})],
        [llm(), llm(kind="StatefulSet", pod={"volumes": volume("data", emptyDir={})}, spec={"volumeClaimTemplates": [{"metadata": {"name": "cache"}}]})],
    ),
    "GP054": ([llm(securityContext={"privileged": True})], [llm(securityContext={"privileged": False})]),
    "GP055": (
        [llm(securityContext={"readOnlyRootFilesystem": True})],
        [llm(securityContext={"readOnlyRootFilesystem": True}, volumeMounts=[{"name": "cache", "mountPath": "/tmp"}]), llm()],
    ),
    "GP056": ([llm(pod={"hostIPC": True})], [llm(), other("v1", "Pod", {"hostIPC": True, "containers": [{"name": "nginx"}]})]),
    "GP057": (
        [other("autoscaling/v2beta2", "HorizontalPodAutoscaler"), other("karpenter.sh/v1beta1", "NodePool"), other("policy/v1beta1", "PodDisruptionBudget")],
        [other("autoscaling/v2", "HorizontalPodAutoscaler"), other("karpenter.sh/v1", "NodePool"), cluster()],
    ),
    "GP058": ([llm(env={"NVIDIA_VISIBLE_DEVICES": "all"})], [llm(env={"NVIDIA_DRIVER_CAPABILITIES": "all"}), llm(env={"NVIDIA_VISIBLE_DEVICES": "all"}, gpus=0)]),
}  # fmt: skip
