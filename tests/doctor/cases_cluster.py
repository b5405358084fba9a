# ruff: noqa: E501  a case a line
"""For each rule about scaling, nodes, network and secrets: manifests in which it finds something, and twins in which it must not."""

from __future__ import annotations

from tests.doctor.kube import GPU_TOLERATION, cluster, hpa, llm, node_class, node_pool, other, scaled, service

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
IN_POOL = {"nodeSelector": {"karpenter.sh/nodepool": "gpu"}, "tolerations": [GPU_TOLERATION]}
G6E = ("karpenter.k8s.aws/instance-family", ["g6e"])
TYPE = "node.kubernetes.io/instance-type"
TOKEN = "hf_" + "aB3" * 12
TRN = {"name": "trn", "instanceType": "trn1.2xlarge", "volumeSize": 200, "privateNetworking": True, "maxSize": 2}


def pods_metric(name):
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "5"}}}


def monitor(kind, port, **selector):
    field = "podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"
    spec = {"selector": {"matchLabels": selector or {"app": "llm"}}, field: [{"port": port}]}
    return other("monitoring.coreos.com/v1", kind, spec, "llm")


def labelled(made, **labels):
    made["metadata"]["labels"] = labels
    return made


def ingress(port, name="llm", annotations=None):
    backend = {"service": {"name": name, "port": port}}
    spec = {"ingressClassName": "nginx", "rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}
    return other("networking.k8s.io/v1", "Ingress", spec, "llm", metadata={"annotations": annotations or {}})


def group(**values):
    """A well-made node group; None takes a field away."""
    return cluster({name: value for name, value in {**TRN, **values}.items() if value is not None})


def requiring(label):
    return {"nodeSelector": {label: "true"}}


def class_reference(group_, kind):
    reference = {"group": group_, "kind": kind, "name": "x"} if group_ else {"kind": kind, "name": "x"}
    return other("karpenter.sh/v1", "NodePool", {"template": {"spec": {"nodeClassRef": reference}}})


CASES = {
    "GP401": (
        [(llm(), hpa(CPU)), (llm(), scaled(triggers=[{"type": "cpu"}])),
         (llm(), other("autoscaling/v1", "HorizontalPodAutoscaler", {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "targetCPUUtilizationPercentage": 60}))],
        [(llm(), hpa(pods_metric("vllm_num_requests_waiting"))), (llm(), hpa(CPU, pods_metric("vllm_num_requests_waiting"))), (llm(), hpa(CPU, target="web")), hpa(CPU),
         (llm(gpus=0, command=["nginx"]), hpa(CPU))],
    ),
    "GP402": (
        [scaled("vllm:num_requests_waiting"), scaled('vllm:num_requests_running{namespace="x"} > 3'), scaled("sum(vllm:num_requests_waiting) by (pod)"),
         scaled("rate(vllm:request_success_total[1m])")],
        [scaled("sum(vllm:num_requests_waiting)"), scaled("sum by () (vllm:num_requests_waiting)"), scaled("max(vllm:kv_cache_usage_perc)"), scaled("nginx_requests_total"),
         scaled("sum(vllm:num_requests_waiting) / count(vllm:num_requests_waiting)")],
    ),
    "GP403": (
        [scaled("sum(vllm:gpu_cache_usage_perc)"), hpa(pods_metric("vllm_gpu_cache_usage_perc")), scaled("sum(rate(vllm:time_per_output_token_seconds_sum[1m]))")],
        [scaled("sum(vllm:kv_cache_usage_perc)"), scaled("sum(rate(vllm:request_time_per_output_token_seconds_sum[1m]))"), hpa(pods_metric("vllm_num_requests_waiting"))],
    ),
    "GP404": (
        [other("v1", "ConfigMap", data={"d.json": '{"expr": "vllm:num_requests_swapped"}'}),
         other("monitoring.coreos.com/v1", "PrometheusRule", {"groups": [{"name": "g", "rules": [{"alert": "a", "expr": "vllm:gpu_cache_usage_perc > 0.9"}]}]})],
        [other("v1", "ConfigMap", data={"d.json": '{"expr": "vllm:num_requests_waiting"}'}),
         other("monitoring.coreos.com/v1", "PrometheusRule", {"groups": [{"name": "g", "rules": [{"alert": "a", "expr": "vllm:kv_cache_usage_perc > 0.9"}]}]})],
    ),
    "GP405": ([hpa(pods_metric("vllm:num_requests_waiting"))], [hpa(pods_metric("vllm_num_requests_waiting")), hpa(CPU)]),
    "GP406": ([(llm(), hpa(CPU, target="llm-server")), (llm(), scaled(target="vllm"))], [(llm(), hpa(CPU)), hpa(CPU, target="elsewhere"), (llm(kind="StatefulSet"), hpa(CPU, target="x"))]),
    "GP407": (
        [(llm(pod=IN_POOL), hpa(maxReplicas=4), node_pool(G6E, limits={"nvidia.com/gpu": 2}))],
        [(llm(pod=IN_POOL), hpa(maxReplicas=2), node_pool(G6E, limits={"nvidia.com/gpu": 2})), (llm(), hpa(maxReplicas=4), node_pool(G6E, limits={"nvidia.com/gpu": 2})),
         (llm(pod=IN_POOL), hpa(maxReplicas=4), node_pool(G6E, limits={"cpu": 1000}))],
    ),
    "GP408": ([hpa(minReplicas=0)], [hpa(minReplicas=1), hpa()]),
    "GP409": (
        [scaled("sum(vllm:num_requests_waiting)", minReplicaCount=0)],
        [scaled("sum(vllm:num_requests_waiting)"), scaled("sum(gateway_queue)", minReplicaCount=0), scaled("sum(vllm:num_requests_waiting)", "sum(gateway_queue)", minReplicaCount=0)],
    ),
    "GP412": ([(hpa(), scaled())], [(hpa(), scaled(target="other")), hpa()]),
    "GP413": ([(llm(spec={"replicas": 2}), hpa())], [(llm(), hpa()), llm(spec={"replicas": 2})]),
    "GP414": (
        [(llm(), monitor("PodMonitor", "metrics")), (llm(), labelled(service(), app="llm"), monitor("ServiceMonitor", "http"))],
        [(llm(), monitor("PodMonitor", "http")), monitor("PodMonitor", "metrics"), (llm(), labelled(service(ports=[{"name": "http", "port": 80, "targetPort": 8000}]), app="llm"), monitor("ServiceMonitor", "http")),
         (llm(), monitor("PodMonitor", "metrics", app="router"))],
    ),
    "GP416": (
        [(llm("m/x", "--disable-log-stats"), hpa(pods_metric("vllm_num_requests_waiting"))), (llm("m/x", "--disable-log-stats"), monitor("PodMonitor", "http"))],
        [(llm(), hpa(pods_metric("vllm_num_requests_waiting"))), llm("m/x", "--disable-log-stats"), (llm("m/x", "--disable-log-requests"), monitor("PodMonitor", "http"))],
    ),
    "GP501": (
        [node_pool(G6E, taints=["glowplug.dev/warming"])],
        [node_pool(G6E, taints=["nvidia.com/gpu"]), node_pool(G6E) | {"startupTaints": [{"key": "glowplug.dev/warming"}]}],
    ),
    "GP502": (
        [node_pool(G6E), node_pool(G6E, disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized"})],
        [node_pool(G6E, disruption={"consolidationPolicy": "WhenEmpty"}), node_pool(("karpenter.k8s.aws/instance-family", ["m7i"]))],
    ),
    "GP503": ([node_pool(G6E)], [node_pool(G6E, taints=["nvidia.com/gpu"]), node_pool(("karpenter.k8s.aws/instance-category", ["m"]))]),
    "GP505": (
        [(llm(pod={"nodeSelector": {"karpenter.sh/nodepool": "gpu"}}), node_pool(G6E, taints=["nvidia.com/gpu"]))],
        [(llm(pod=IN_POOL), node_pool(G6E, taints=["nvidia.com/gpu"])), (llm(), node_pool(G6E, taints=["nvidia.com/gpu"])),
         (llm(pod={"nodeSelector": {"karpenter.sh/nodepool": "gpu"}, "tolerations": [{"operator": "Exists"}]}), node_pool(G6E, taints=["a.b/c"]))],
    ),
    "GP507": (
        [llm(pod=requiring("glowplug.dev/warm")), (llm(pod=requiring("glowplug.dev/warm")), node_pool(G6E))],
        [llm(pod=requiring("example.com/warm")), (llm(pod=requiring("glowplug.dev/pool")), node_pool(G6E, metadata={"labels": {"glowplug.dev/pool": "true"}}))],
    ),
    "GP508": (
        [llm("m/x", "-tp=8", gpus=8, pod={"nodeSelector": {TYPE: "g6e.12xlarge"}}), (llm(pod=IN_POOL), node_pool((TYPE, ["trn1.32xlarge"]))), llm(pod={"nodeSelector": {TYPE: "trn1.2xlarge"}})],
        [llm("m/x", "-tp=4", gpus=4, pod={"nodeSelector": {TYPE: "g6e.12xlarge"}}), llm(pod={"nodeSelector": {TYPE: "z9.large"}}), (llm(gpus=8), node_pool((TYPE, ["g6e.12xlarge", "p5.48xlarge"]))), (llm(), node_pool((TYPE, ["trn1.32xlarge"])))],
    ),
    "GP509": (
        [llm(memory="400Gi", pod={"nodeSelector": {TYPE: "g6e.12xlarge"}}), llm(resources={"requests": {"cpu": 48}, "limits": {"nvidia.com/gpu": 1, "memory": "9Gi"}}, pod={"nodeSelector": {TYPE: "g6e.12xlarge"}})],
        [llm(memory="300Gi", pod={"nodeSelector": {TYPE: "g6e.12xlarge"}}), llm(memory="4000Gi")],
    ),
    "GP510": (
        [class_reference("karpenter.k8s.aws", "NodeClass"), class_reference("eks.amazonaws.com", "EC2NodeClass"), class_reference("", "EC2NodeClass")],
        [class_reference("karpenter.k8s.aws", "EC2NodeClass"), class_reference("eks.amazonaws.com", "NodeClass")],
    ),
    "GP511": (
        [(llm(pod=IN_POOL, spec={"replicas": 3}), node_pool(G6E, limits={"nvidia.com/gpu": 2}))],
        [(llm(pod=IN_POOL, spec={"replicas": 2}), node_pool(G6E, limits={"nvidia.com/gpu": 2})), (llm(spec={"replicas": 3}), node_pool(G6E, limits={"nvidia.com/gpu": 2}))],
    ),
    "GP512": (
        [(node_pool(G6E), node_class()), (node_pool(G6E), node_class(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}}]))],
        [(node_pool(G6E), node_class(instanceStorePolicy="RAID0")), (node_pool(G6E), node_class(blockDeviceMappings=[{"ebs": {"volumeSize": "200Gi"}}])), node_class(),
         (node_pool(("karpenter.k8s.aws/instance-family", ["m7i"])), node_class())],
    ),
    "GP513": ([node_class(amiSelectorTerms=[{"id": "ami-0123456789abcdef0"}])], [node_class(amiSelectorTerms=[{"alias": "al2023@v20260801"}])]),
    "GP514": ([node_class(amiSelectorTerms=[{"alias": "al2@latest"}]), node_class(amiFamily="AL2")], [node_class(amiSelectorTerms=[{"alias": "al2023@latest"}]), node_class(amiFamily="AL2023")]),
    "GP517": ([llm(template={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})], [llm(), llm(kind="Job", template={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})]),
    "GP521": ([group(ssh={"allow": True})], [group(ssh={"allow": True, "sourceSecurityGroupIds": ["sg-1"]}), group(ssh={"allow": False}), group()]),
    "GP522": ([group(ami="ami-0123456789abcdef0"), cluster({**TRN, "ami": "ami-0123456789abcdef0"}, managed=False)], [group(), group(ami="auto")]),
    "GP523": ([group(volumeSize=50)], [group(volumeSize=200), group(volumeSize=None), group(instanceType="m5.large", volumeSize=20)]),
    "GP524": ([group(volumeType="gp2")], [group(volumeType="gp3"), group(instanceType="m5.large", volumeType="gp2")]),
    "GP525": (
        [cluster({"name": "a", "instanceType": "inf2.xlarge", "amiFamily": "AmazonLinux2"}, version="1.29"), group(instanceType="m5.large", amiFamily="AmazonLinux2")],
        [group(amiFamily="AmazonLinux2023"), cluster({"name": "a", "instanceType": "g5.xlarge", "amiFamily": "AmazonLinux2"}, version="1.29")],
    ),
    "GP526": ([group(availabilityZones=["us-west-2b"])], [group(availabilityZones=["us-west-2b", "us-west-2d"]), group(availabilityZones=["us-west-2b"], maxSize=1)]),
    "GP527": ([group(privateNetworking=None)], [group(), group(privateNetworking=None, subnets=["subnet-1"])]),
    "GP528": (
        [group(iam={"attachPolicyARNs": ["arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy", "arn:aws:iam::aws:policy/AmazonS3FullAccess"]})],
        [group(iam={"attachPolicyARNs": ["arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"]}), group()],
    ),
    "GP601": (
        [llm(env={"HF_TOKEN": TOKEN}), llm(env={"HUGGING_FACE_HUB_TOKEN": "abcdef123456"}), llm(env={"OTHER": f"--token {TOKEN}"})],
        [llm(env={"HF_TOKEN": {"secretKeyRef": {"name": "hf", "key": "token"}}}), llm(env={"HF_TOKEN": "<your token>"}), llm(env={"HF_TOKEN": ""}), llm(env={"HF_TOKEN": "$(OTHER)"})],
    ),
    "GP602": ([other("v1", "ConfigMap", data={".env": f"HF_TOKEN={TOKEN}"})], [other("v1", "ConfigMap", data={".env": "HF_TOKEN=hf_xxx"})]),
    "GP603": (
        [llm("s3://b/m", "--load-format=runai_streamer", pod={"serviceAccountName": None})],
        [llm("s3://b/m", "--load-format=runai_streamer"), llm(pod={"serviceAccountName": None}), llm("s3://b/m", pod={"serviceAccountName": None}, env={"AWS_ENDPOINT_URL": "http://minio:9000"})],
    ),
    "GP604": (
        [(llm("s3://b/m"), other("v1", "ServiceAccount", name="llm", metadata={"annotations": {"eks.amazonaws.com/role-arn": "llm-role"}}))],
        [(llm("s3://b/m"), other("v1", "ServiceAccount", name="llm", metadata={"annotations": {"eks.amazonaws.com/role-arn": arn}})) for arn in ("arn:aws:iam::123456789012:role/llm", "arn:aws:iam::<ACCOUNT_ID>:role/llm")],
    ),
    "GP605": ([llm("m/x", f"--hf-token={TOKEN}"), llm("m/x", "--api-key=sk-5d41402a"), llm("m/x", "--api-key", "sk-5d41402a")], [llm("m/x", "--api-key=$(KEY)", env={"KEY": {"secretKeyRef": {"name": "k", "key": "api-key"}}}), llm("m/x", "--api-key=YOUR_KEY"), llm("m/x", "--hf-token=$(HF_TOKEN)", env={"HF_TOKEN": {"secretKeyRef": {"name": "hf", "key": "token"}}})]),
    "GP610": (
        [(llm(), service(ports=[{"port": 80, "targetPort": 8080}])), (llm(), service(ports=[{"port": 80, "targetPort": "web"}])), (llm("m/x", "--port=8080"), service(ports=[{"port": 80, "targetPort": "http"}]))],
        [(llm(), service()), (llm(), service(ports=[{"port": 8000}])), (llm(), service(ports=[{"port": 80, "targetPort": "http"}])), (llm(gpus=0, command=["nginx"]), service(ports=[{"port": 80, "targetPort": 8080}]))],
    ),
    "GP611": ([(llm(), service(selector={"app": "lmm"}))], [(llm(), service()), (llm(), service(selector={"name": "prometheus"})), (llm(), service(selector={"app": "web"}, ports=[{"port": 80, "targetPort": 3000}]))]),
    "GP612": ([(llm(), service(), ingress({"number": 8000})), (llm(), service(), ingress({"name": "http"}))], [(llm(), service(), ingress({"number": 80})), ingress({"number": 8000})]),
    "GP613": (
        [(llm(), service(type="LoadBalancer"))],
        [(llm(), service()), (llm("m/x", "--api-key=$(KEY)", env={"KEY": {"secretKeyRef": {"name": "k", "key": "k"}}}), service(type="LoadBalancer")), (llm(), service(type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0/8"])),
         (llm(), service(type="LoadBalancer") | {"metadata": {"name": "llm", "annotations": {"service.beta.kubernetes.io/aws-load-balancer-scheme": "internal"}}})],
    ),
    "GP614": (
        [(llm(), service(), ingress({"number": 80}))],
        [(llm(), service(), ingress({"number": 80}, annotations={"nginx.ingress.kubernetes.io/proxy-read-timeout": "600"})), ingress({"number": 80}), (llm(gpus=0, command=["nginx"]), service(), ingress({"number": 80}))],
    ),
    "GP701": (
        [llm(metadata={"annotations": {"glowplug.dev/ignore": "GP107"}}), llm(template={"annotations": {"glowplug.dev/ignore": "GP014: kept; GP107:"}})],
        [llm(metadata={"annotations": {"glowplug.dev/ignore": "GP107: one is spare"}}), llm()],
    ),
    "GP702": ([llm(metadata={"annotations": {"glowplug.dev/ignore": "GP999: no such"}}), llm(metadata={"annotations": {"glowplug.dev/ignore": "all of it"}})], [llm(metadata={"annotations": {"glowplug.dev/ignore": "GP107: one; GP701: two"}})]),
}  # fmt: skip
