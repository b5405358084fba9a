# ruff: noqa: E501  a case a line
"""For each rule about probes, roll-out, volumes and Neuron: manifests in which it finds something, and twins in which it must not."""

from __future__ import annotations

from tests.doctor.kube import as_yaml, claim, container, hpa, llm, node_class, node_pool, other, probe, volume

TWO = "--tensor-parallel-size=2"
CORE, CHIP = "aws.amazon.com/neuroncore", "aws.amazon.com/neuron"
NONE = dict.fromkeys(("startupProbe", "readinessProbe", "livenessProbe"))
KUBELET_S3 = other("v1", "PersistentVolume", {"storageClassName": "", "csi": {"driver": "s3.csi.aws.com"}}, "bucket")
AUTO = {"nodeSelector": {"eks.amazonaws.com/compute-type": "auto"}}
IN_POOL = {"nodeSelector": {"karpenter.sh/nodepool": "gpu"}}
NVME = "/mnt/k8s-disks/0/cache"


def nvme(path, kind="Directory", pod=None, **values):
    """The workload with its cache on a path of the node."""
    return llm(pod={"volumes": volume("cache", hostPath={"path": path, "type": kind}), **(pod or {})}, **values)


def on_claim(name="cache", **values):
    return llm(pod={"volumes": volume("cache", persistentVolumeClaim={"claimName": name})}, **values)


def on_type(*types):
    """A pod's choice of instance types."""
    if len(types) == 1:
        return {"nodeSelector": {"node.kubernetes.io/instance-type": types[0]}}
    chosen = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)}
    terms = [{"matchExpressions": [chosen]}]
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}


def shm(medium="Memory", size="8Gi"):
    made = {name: value for name, value in (("medium", medium), ("sizeLimit", size)) if value}
    cache = {"name": "cache", "hostPath": {"path": "/var/cache/glowplug", "type": "Directory"}}
    return {"volumes": [cache, {"name": "shm", "emptyDir": made}]}


def chips(amount, instance, pod=None, resource=CHIP, **values):
    return llm(gpus=amount, resource=resource, pod={**on_type(instance), **(pod or {})}, **values)


def budget(**values):
    return other("policy/v1", "PodDisruptionBudget", {"selector": {"matchLabels": {"app": "llm"}}, **values}, "llm")


def daemon(image, **pod):
    spec = {"template": {"spec": {"containers": [{"name": "p", "image": image}], **pod}}}
    return other("apps/v1", "DaemonSet", spec, "plugin")


def with_env(env):
    return llm(pod={"containers": [{**container(), "env": env}]})


PLUGIN = "public.ecr.aws/neuron/neuron-device-plugin:2.23.30.0"
TRN1 = node_pool(("node.kubernetes.io/instance-type", ["trn1.32xlarge"]), taints=["aws.amazon.com/neuron"])
AUTO_POOL = node_pool(("eks.amazonaws.com/instance-family", ["g6e"]), group="eks.amazonaws.com")
KARPENTER_POOL = node_pool(("karpenter.k8s.aws/instance-family", ["g6e"]))
EXTENDER = (
    "kind: KubeSchedulerConfiguration\nextenders:\n- urlPrefix: http://k8s-neuron-scheduler.kube-system:12345\n  ignorable: {}\n"
)

TWICE = as_yaml(llm()) + "spec: {template: {spec: {}}}\n"
LAST = as_yaml(other("v1", "Pod", {"containers": [{"name": "x", "image": "y:1", "env": []}]})).replace(
    "env:", "args: []\n    args:"
)
MERGED = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\nx: &x {a: 1}\ndata: {<<: *x, a: '2'}\n"
CASES = {
    "GP059": ([TWICE, LAST, (TWICE.replace("spec: {", "metadata: {"), llm(name="b"))], [llm(), MERGED, as_yaml(llm(), llm())]),
    "GP060": (
        [llm(args="vllm serve x"), llm("m/x", 8000), llm("m/x", *[True]), with_env([{"name": "A", "value": 1}]),
         with_env({"A": "1"}), llm(volumeMounts={"name": "x"}), llm(resources=[]), llm(pod={"containers": {"name": "x"}}),
         llm(pod={"nodeSelector": {"gpu": True}}), llm(labels={"app": 1}), llm(metadata={"annotations": {"since": 2026}}),
         llm(spec={"template": "x"}), other("v1", "Pod", "x"), other("v1", "Pod", {"containers": ["x"]}), llm(template={"annotations": {"a": 1.5}})],
        [llm(), llm("m/x", None), llm(pod={"volumes": None}), llm(env={"A": "1"}), other("v1", "Pod"), llm(kind="Job"),
         llm(metadata={"annotations": {"since": "2026"}})],
    ),
    "GP101": (
        [llm(**{**NONE, "livenessProbe": probe(initialDelaySeconds=120)}), llm(**{**NONE, "livenessProbe": probe()})],
        [llm(), llm(**{**NONE, "livenessProbe": probe(initialDelaySeconds=900)}), llm(kind="Job", startupProbe=None)],
    ),
    "GP112": (
        [llm(**{**NONE, "livenessProbe": probe(initialDelaySeconds=300, periodSeconds=30)})],
        [llm(), llm(**{**NONE, "livenessProbe": probe(initialDelaySeconds=600)}), llm(**{**NONE, "livenessProbe": probe()})],
    ),
    "GP102": (
        [llm(startupProbe=probe()), llm(startupProbe=probe(periodSeconds=5, failureThreshold=30))],
        [llm(), llm(startupProbe=probe(initialDelaySeconds=270)), llm(gpus=0, args=["x"], command=["x"], startupProbe=probe())],
    ),
    "GP103": (
        [llm(**NONE), llm(command=None, args=["--model=m/x"], **NONE)],
        [llm(), llm(**{**NONE, "readinessProbe": probe()}), llm(**{**NONE, "startupProbe": probe()}), llm(kind="Job", **NONE)],
    ),
    "GP104": ([llm(readinessProbe=None)], [llm(), llm(**NONE)]),
    "GP105": (
        [llm("m/x", "--port=8080"), llm(startupProbe={"httpGet": {"path": "/health", "port": "htpp"}}), llm(livenessProbe={"tcpSocket": {"port": 80}})],
        [llm(), llm("m/x", "--port=8080", **{name: {"httpGet": {"path": "/health", "port": 8080}} for name in NONE}),
         llm(startupProbe={"httpGet": {"path": "/health", "port": "http"}}), llm("m/x", "--config=/x"),
         llm("m/x", "--port=8080", pod={"containers": [container("m/x", "--port=8080"), {"name": "proxy", "ports": [{"containerPort": 8000}]}]})],
    ),
    "GP106": (
        [llm(readinessProbe={"httpGet": {"path": "/", "port": 8000}}), llm(livenessProbe={"httpGet": {"path": "/healthz", "port": 8000}})],
        [llm(readinessProbe={"httpGet": {"path": "/v1/models", "port": 8000}}), llm("m/x", "--root-path=/x", readinessProbe={"httpGet": {"path": "/", "port": 8000}})],
    ),
    "GP107": (
        [llm(spec={"strategy": None}), llm(spec={"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, "replicas": 4}),
         llm(spec={"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}, "replicas": 3})],
        [llm(), llm(spec={"strategy": {"type": "Recreate"}}), llm(spec={"strategy": None, "replicas": 4}), llm(gpus=0, spec={"strategy": None}),
         llm(kind="StatefulSet", spec={"strategy": None})],
    ),
    "GP108": ([llm(spec={"progressDeadlineSeconds": 300}), llm(startupProbe=probe(failureThreshold=90), spec={"progressDeadlineSeconds": None})], [llm()]),
    "GP109": ([llm(kind="StatefulSet", spec={"replicas": 3})], [llm(kind="StatefulSet", spec={"replicas": 3, "podManagementPolicy": "Parallel"}), llm(kind="StatefulSet")]),
    "GP110": (
        [(llm(), budget(maxUnavailable=0)), (llm(), budget(minAvailable=1)), (llm(spec={"replicas": 2}), budget(minAvailable="100%"))],
        [(llm(), budget(maxUnavailable=1)), (llm(spec={"replicas": 2}), budget(minAvailable=1)), (llm(gpus=0), budget(maxUnavailable=0))],
    ),
    "GP111": ([llm(spec={"strategy": {"type": "Recreate"}, "replicas": 2})], [llm(spec={"strategy": {"type": "Recreate"}, "replicas": 1})]),
    "GP201": (
        [llm("m/x", TWO, gpus=2, volumeMounts=[{"name": "cache", "mountPath": "/cache"}])],
        [llm("m/x", TWO, gpus=2), llm(volumeMounts=[{"name": "cache", "mountPath": "/cache"}]),
         llm("m/x", TWO, gpus=2, volumeMounts=[{"name": "cache", "mountPath": "/cache"}], pod={"hostIPC": True})],
    ),
    "GP202": ([llm(pod=shm(medium=""))], [llm()]),
    "GP203": ([llm(memory="8Gi")], [llm(memory="16Gi")]),
    "GP204": ([llm(pod=shm(size=""), memory=None)], [llm(pod=shm(size="")), llm(memory=None)]),
    "GP205": (
        [nvme(NVME, "DirectoryOrCreate"), nvme("/opt/dlami/nvme/x", "DirectoryOrCreate"), nvme("/mnt/.ephemeral/x", "")],
        [nvme(NVME), nvme("/dev/x", "DirectoryOrCreate"), nvme(NVME, "DirectoryOrCreate", gpus=0),
         nvme(NVME, "DirectoryOrCreate", {"initContainers": [{"name": "check", "command": ["sh", "-c", "mountpoint -q /nvme"]}]})],
    ),
    "GP206": (
        [nvme(NVME, pod=AUTO), (nvme(NVME, pod=IN_POOL), AUTO_POOL), (nvme("/mnt/.ephemeral/x"), KARPENTER_POOL, node_class(amiFamily="AL2023"))],
        [nvme("/mnt/.ephemeral/x", pod=AUTO), (nvme(NVME), KARPENTER_POOL), nvme(NVME), (nvme(NVME), AUTO_POOL, KARPENTER_POOL),
         (nvme("/mnt/.ephemeral/x"), KARPENTER_POOL, node_class(amiSelectorTerms=[{"alias": "bottlerocket@v1.30.0"}]))],
    ),
    "GP207": (
        [(nvme(NVME), KARPENTER_POOL, node_class())],
        [(nvme(NVME), KARPENTER_POOL, node_class(instanceStorePolicy="RAID0")), (nvme(NVME), KARPENTER_POOL), (llm(), KARPENTER_POOL, node_class()),
         (nvme(NVME), KARPENTER_POOL, node_class(userData="setup-local-disks raid0"))],
    ),
    "GP208": (
        [(nvme("/mnt/.ephemeral/x"), AUTO_POOL, other("eks.amazonaws.com/v1", "NodeClass", {"ephemeralStorage": {"size": "200Gi"}}, "gpu"))],
        [(nvme("/mnt/.ephemeral/x"), AUTO_POOL, other("eks.amazonaws.com/v1", "NodeClass", {}, "gpu")), (llm(), AUTO_POOL)],
    ),
    "GP217": (
        [nvme(NVME, pod=on_type("trn1.2xlarge", "inf2.8xlarge")), (nvme(NVME, pod=IN_POOL), node_pool(("node.kubernetes.io/instance-type", ["inf2.xlarge"])))],
        [nvme(NVME, pod=on_type("p5.48xlarge")), nvme(NVME, pod=on_type("x9.nonesuch")), llm(pod=on_type("inf2.8xlarge"))],
    ),
    "GP209": (
        [llm(pod={"volumes": volume("cache", emptyDir={})})],
        [llm(), llm(pod={"volumes": volume("cache", emptyDir={})}, command=["glowplug", "run", "--store=s3://b/c", "--", "vllm", "serve"]),
         llm("m/x", "--enforce-eager", pod={"volumes": volume("cache", emptyDir={})})],
    ),
    "GP210": (
        [(on_claim(spec={"replicas": 2}), claim(modes=["ReadWriteMany"])), (on_claim(), claim(modes=["ReadWriteMany"]), hpa()),
         llm(pod={"volumes": volume("cache", nfs={"server": "x", "path": "/"})}, spec={"replicas": 2})],
        [(on_claim(), claim(modes=["ReadWriteMany"])), (on_claim(spec={"replicas": 2}), claim()),
         (on_claim(spec={"replicas": 2}, volumeMounts=[{"name": "cache", "mountPath": "/cache", "subPathExpr": "$(POD)"}]), claim(modes=["ReadWriteMany"]))],
    ),
    "GP211": (
        [(on_claim(), claim(volumeName="bucket", storageClassName=""), KUBELET_S3), llm(pod={"volumes": volume("cache", csi={"driver": "s3.csi.aws.com"})})],
        [(on_claim(), claim()), (on_claim(env={"VLLM_CACHE_ROOT": None}), claim(volumeName="bucket", storageClassName=""), KUBELET_S3)],
    ),
    "GP212": (
        [(on_claim(env={"VLLM_CACHE_ROOT": None, "HF_HOME": "/cache/hf"}), claim(volumeName="bucket", storageClassName=""), KUBELET_S3)],
        [(on_claim(env={"HF_HOME": "/cache/hf"}), claim()), (on_claim(env={"HF_HOME": "/hf"}), claim(volumeName="bucket", storageClassName=""), KUBELET_S3)],
    ),
    "GP213": ([llm(volumeMounts=[{"name": "cache", "mountPath": "/cache", "readOnly": True}])], [llm()]),
    "GP218": (
        [llm(securityContext={"runAsUser": 1000}), llm(pod={"securityContext": {"runAsUser": 1000}})],
        [llm(securityContext={"runAsUser": 0}), llm(), llm(securityContext={"runAsUser": 1000}, pod={"initContainers": [{"name": "own", "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}]})],
    ),
    "GP214": ([other("storage.k8s.io/v1", "StorageClass", provisioner="s3.csi.aws.com")], [other("storage.k8s.io/v1", "StorageClass", provisioner="ebs.csi.aws.com")]),
    "GP215": (
        [(claim(volumeName="bucket"), KUBELET_S3), (claim(volumeName="bucket", storageClassName="gp3"), KUBELET_S3)],
        [(claim(volumeName="bucket", storageClassName=""), KUBELET_S3), claim(volumeName="other"), claim(storageClassName="gp3")],
    ),
    "GP216": (
        [(on_claim(spec={"replicas": 2}), claim()), (on_claim(), claim(), hpa())],
        [(on_claim(), claim()), (on_claim(spec={"replicas": 2}), claim(modes=["ReadWriteMany"])), on_claim(spec={"replicas": 2})],
    ),
    "GP219": (
        [llm("/cache/model", pod={"volumes": volume("cache", nfs={"server": "x", "path": "/"})}),
         (on_claim(args=["/cache/model"]), claim(storageClassName="efs"), other("storage.k8s.io/v1", "StorageClass", name="efs", provisioner="efs.csi.aws.com"))],
        [llm("Qwen/Qwen3-8B", pod={"volumes": volume("cache", nfs={"server": "x", "path": "/"})}), llm("/cache/model"), llm("/else/model", pod={"volumes": volume("cache", nfs={"server": "x", "path": "/"})})],
    ),
    "GP220": (
        [llm(resources={"limits": {"nvidia.com/gpu": 1, "memory": "9Gi", "ephemeral-storage": "2Gi"}})],
        [llm(), llm(resources={"limits": {"nvidia.com/gpu": 1, "memory": "9Gi", "ephemeral-storage": "100Gi"}})],
    ),
    "GP221": ([claim(resources={}), claim(resources={"requests": {"storage": "100 GB"}})], [claim(), claim(resources={"requests": {"storage": "1.5Ti"}})]),
    "GP301": ([llm(gpus=0, resources={"limits": {CHIP: 1, CORE: 2}})], [llm(gpus=1, resource=CHIP), llm(gpus=2, resource=CORE)]),
    "GP302": ([(llm(gpus=1, resource=CHIP), llm(gpus=2, resource=CORE, name="b"))], [(llm(gpus=1, resource=CORE), llm(gpus=2, resource=CORE, name="b"))]),
    "GP303": (
        [llm(gpus=1, resource=CHIP, pod={"schedulerName": "my-scheduler"}), chips(16, "trn1.32xlarge", {"schedulerName": "my-scheduler"})],
        [llm(gpus=1, resource=CHIP), chips(4, "trn1.32xlarge", {"schedulerName": "my-scheduler"}), llm(pod={"schedulerName": "my-scheduler"})],
    ),
    "GP304": (
        [chips(2, "inf2.24xlarge"), chips(4, "inf2.24xlarge", resource=CORE)],
        [chips(6, "inf2.24xlarge"), chips(2, "inf2.24xlarge", {"schedulerName": "my-scheduler"}), chips(1, "inf2.24xlarge"), llm(gpus=2, resource=CHIP)],
    ),
    "GP305": ([chips(2, "trn1.32xlarge"), chips(12, "trn1.32xlarge")], [chips(4, "trn1.32xlarge"), chips(16, "trn1.32xlarge"), chips(6, "inf2.24xlarge")]),
    "GP306": (
        [llm("m/x", "-tp=4", gpus=2, resource=CORE), chips(1, "trn1.2xlarge", args=["m/x", "-tp=4"])],
        [llm("m/x", "-tp=2", gpus=2, resource=CORE), chips(1, "trn1.2xlarge", args=["m/x", "-tp=2"]), llm("m/x", "-tp=8", gpus=1, resource=CHIP)],
    ),
    "GP307": ([llm(env={"VLLM_NEURON_REMOTE_CACHE": "s3://b/c"})], [llm(env={"NEURON_COMPILE_CACHE_URL": "s3://b/c"})]),
    "GP308": (
        [llm(pod={"initContainers": [{"name": "compile", "command": ["sh", "-c", 'if [ -z "$(ls -A /compiled)" ]; then python compile.py; fi']}]})],
        [llm(pod={"initContainers": [{"name": "compile", "command": ["sh", "-c", "if [ ! -f /compiled/done ]; then python compile.py; fi"]}]})],
    ),
    "GP312": (
        [(daemon(PLUGIN), AUTO_POOL), (daemon("nvcr.io/nvidia/k8s-device-plugin:v0.17.0"), AUTO_POOL)],
        [(daemon(PLUGIN), KARPENTER_POOL), (daemon("fluent-bit:3"), AUTO_POOL), (daemon(PLUGIN), AUTO_POOL, KARPENTER_POOL)],
    ),
    "GP313": (
        [llm(kind="Deployment", gpus=0, image="registry.k8s.io/kube-scheduler:v1.28.5", command=["kube-scheduler"], pod={"nodeSelector": {"node-role.kubernetes.io/master": ""}})],
        [llm(gpus=0, image="registry.k8s.io/kube-scheduler:v1.28.5", command=["kube-scheduler"]), llm(image="x/y:1", pod={"nodeSelector": {"node-role.kubernetes.io/master": ""}})],
    ),
    "GP314": (
        [other("v1", "ConfigMap", data={"my-scheduler.yaml": EXTENDER.format("false")})],
        [other("v1", "ConfigMap", data={"my-scheduler.yaml": EXTENDER.format("true")}), other("v1", "ConfigMap", data={"a": "ignorable: false"})],
    ),
    "GP316": (
        [(daemon(PLUGIN), TRN1)],
        [(daemon(PLUGIN, tolerations=[{"operator": "Exists"}]), TRN1), (daemon(PLUGIN, tolerations=[{"key": "aws.amazon.com/neuron", "operator": "Exists"}]), TRN1), (daemon("fluent-bit:3"), TRN1)],
    ),
}  # fmt: skip
