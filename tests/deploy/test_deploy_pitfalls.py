"""One pitfall of the field a test, by what would go wrong without it."""

import json

import pytest

from glowplug.deploy.cloud import cloudformation, terraform
from glowplug.deploy.commented import plain
from glowplug.deploy.emit import to_yaml
from glowplug.deploy.make import files, stream
from glowplug.deploy.neuron import helm_values

KEY = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def pod(made):
    return made["Deployment"][0]["spec"]["template"]["spec"]


def variables(container):
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_a_rollout_on_the_only_accelerator_ends_the_old_pod_first(made):
    assert made()["Deployment"][0]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_rollout_with_spare_accelerators_leaves_no_gap(made):
    assert made(rollout="surge")["Deployment"][0]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_what_goes_against_the_doctors_advice_says_that_it_was_asked_for(made):
    annotation = "glowplug.dev/ignore"
    assert made(rollout="surge")["Deployment"][0]["metadata"]["annotations"][annotation].startswith("GP107: ")
    assert made(autoscale="cpu")["HorizontalPodAutoscaler"][0]["metadata"]["annotations"][annotation].startswith("GP401: ")
    assert "annotations" not in made(autoscale="hpa")["HorizontalPodAutoscaler"][0]["metadata"]


def test_an_autoscaled_deployment_says_no_replicas_that_an_apply_would_set_back(made):
    assert "replicas" not in made(autoscale="keda")["Deployment"][0]["spec"]
    assert made(replicas=3)["Deployment"][0]["spec"]["replicas"] == 3


def test_a_drain_is_never_blocked_by_a_single_replica(made):
    budget = made()["PodDisruptionBudget"][0]["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert "minAvailable" not in budget


def test_several_ranks_get_shared_memory_and_it_counts_as_the_pods(made, design):
    shm = {each["name"]: each for each in pod(made())["volumes"]}["shm"]["emptyDir"]
    assert shm == {"medium": "Memory", "sizeLimit": "5120Mi"}
    limit = int(pod(made())["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi"))
    host = design().host
    assert limit * 2**20 >= host.buffer_bytes + host.engine_bytes + host.shm_bytes
    one = pod(made(weights="16GB", instance="g6e.2xlarge"))
    assert "shm" not in {each["name"] for each in one["volumes"]}


def test_memory_is_requested_as_it_is_limited_and_the_processor_is_not_throttled(made):
    resources = pod(made())["containers"][0]["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert "cpu" in resources["requests"]
    assert "cpu" not in resources["limits"]


def test_the_environment_does_not_depend_on_other_services(made):
    assert pod(made())["enableServiceLinks"] is False


def test_the_live_cache_is_on_a_volume_that_is_the_pods_own(made):
    spec = pod(made())
    root = variables(spec["containers"][0])["GLOWPLUG_CACHE_DIR"]
    mount = next(each for each in spec["containers"][0]["volumeMounts"] if root.startswith(each["mountPath"] + "/"))
    volume = next(each for each in spec["volumes"] if each["name"] == mount["name"])
    assert "emptyDir" in volume
    assert "medium" not in volume["emptyDir"]


def test_serving_pods_are_readers_without_the_private_key_and_the_publisher_is_not(made):
    objects = made()
    server = pod(objects)
    assert variables(server["containers"][0])["GLOWPLUG_ROLE"] == "reader"
    assert "signing" not in {each["name"] for each in server["volumes"]}
    job = objects["Job"][0]["spec"]["template"]["spec"]
    engine = next(each for each in job["initContainers"] if each["name"] == "vllm")
    assert (variables(engine)["GLOWPLUG_ROLE"], engine["restartPolicy"]) == ("writer", "Always")
    assert variables(engine)["GLOWPLUG_SIGNING_KEY"].startswith(
        next(each for each in engine["volumeMounts"] if each["name"] == "signing")["mountPath"]
    )
    assert server["serviceAccountName"] != job["serviceAccountName"]


def test_the_publisher_runs_the_servers_command_so_that_their_envelopes_are_equal(made):
    objects = made()
    server = pod(objects)["containers"][0]
    engine = next(each for each in objects["Job"][0]["spec"]["template"]["spec"]["initContainers"] if each["name"] == "vllm")
    assert engine["command"] == server["command"]
    assert engine["image"] == server["image"]
    ours = {name: value for name, value in variables(engine).items() if not name.startswith("GLOWPLUG_")}
    assert ours == {name: value for name, value in variables(server).items() if not name.startswith("GLOWPLUG_")}
    assert variables(engine)["GLOWPLUG_CACHE_DIR"] == variables(server)["GLOWPLUG_CACHE_DIR"]


def test_another_spec_is_another_job_since_jobs_cannot_be_changed(made):
    def name(**given):
        return made(**given)["Job"][0]["metadata"]["name"]

    assert name() == name()
    assert name() != name(image="vllm/vllm-openai:v0.31.0")


def test_who_publishes_and_how_keys_come(made):
    assert "Job" not in made(publish="none")
    replicas = made(publish="replicas")
    assert "Job" not in replicas
    assert len(replicas["ServiceAccount"]) == 1
    assert variables(pod(replicas)["containers"][0])["GLOWPLUG_ROLE"] == "writer"
    kms = pod(made(kms_key=KEY, publish="replicas"))
    assert variables(kms["containers"][0])["GLOWPLUG_SIGNING_KEY"] == f"awskms:{KEY}"
    assert not any("secret" in each for each in kms["volumes"])


def test_keda_gets_one_series_of_current_metrics_and_no_answer_is_no_load_of_zero(made):
    spec = made(autoscale="keda", replicas=2, max_replicas=5)["ScaledObject"][0]["spec"]
    trigger = spec["triggers"][0]
    assert trigger["metricType"] == "AverageValue"
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    query = trigger["metadata"]["query"]
    assert query.startswith("sum(vllm:num_requests_running{")
    assert " + sum(vllm:num_requests_waiting{" in query
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 5)


def test_the_processor_scales_only_when_asked(made):
    metric = made(autoscale="hpa")["HorizontalPodAutoscaler"][0]["spec"]["metrics"][0]
    assert metric["type"] == "Pods"
    assert made(autoscale="cpu")["HorizontalPodAutoscaler"][0]["spec"]["metrics"][0]["resource"]["name"] == "cpu"


def test_removed_metrics_are_used_nowhere(design):
    text = stream(design(autoscale="keda", dashboard=True, pod_monitor=True))
    for name in ("gpu_cache_usage_perc", "time_per_output_token_seconds_bucket", "num_requests_swapped", "prefix_cache_hit_rate"):
        assert name not in text


def test_the_host_shows_the_api_and_nothing_else(made):
    path = made(ingress_host="llm.example.com")["Ingress"][0]["spec"]["rules"][0]["http"]["paths"][0]
    assert (path["path"], path["pathType"]) == ("/v1", "Prefix")


def test_instance_stores_are_used_where_there_are_some(made):
    given = {"nodes": "karpenter", "cluster": "demo"}
    assert made(**given)["EC2NodeClass"][0]["spec"]["instanceStorePolicy"] == "RAID0"
    assert "instanceStorePolicy" not in made(**given, instance="g5g.4xlarge", weights="6GB")["EC2NodeClass"][0]["spec"]


def test_nodes_are_large_enough_for_the_image_and_declare_no_taint_that_nobody_removes(made, design):
    objects = made(nodes="karpenter", cluster="demo")
    disk = objects["EC2NodeClass"][0]["spec"]["blockDeviceMappings"][0]["ebs"]["volumeSize"]
    assert int(disk.removesuffix("Gi")) * 2**30 >= design().host.image_disk_bytes
    assert "startupTaints" not in objects["NodePool"][0]["spec"]["template"]["spec"]
    assert objects["NodePool"][0]["spec"]["disruption"]["consolidationPolicy"] == "WhenEmpty"


def test_auto_mode_asks_for_less_than_the_instance_store_holds(made, design):
    storage = made(nodes="auto", cluster="demo")["NodeClass"][0]["spec"]["ephemeralStorage"]["size"]
    assert int(storage.removesuffix("Gi")) * 2**30 < design().instance.nvme_bytes


def test_the_pools_limit_leaves_room_for_the_publisher_and_for_a_surge(made):
    def nodes(**given):
        pool = made(nodes="karpenter", cluster="demo", weights="200GB", **given)["NodePool"][0]
        return int(pool["spec"]["limits"]["cpu"]) // 96

    assert nodes(publish="none") == 1
    assert nodes() == 2
    assert nodes(rollout="surge") == 3


@pytest.mark.parametrize(
    ("given", "resource", "count", "tp", "scheduler"),
    [
        ({}, "aws.amazon.com/neuron", 1, 2, None),
        ({"neuron_resource": "cores", "tp": 2}, "aws.amazon.com/neuroncore", 2, 2, None),
        ({"neuron_resource": "cores", "tp": 1}, "aws.amazon.com/neuroncore", 1, 1, None),
        ({"weights": "65GB", "instance": "trn1.32xlarge"}, "aws.amazon.com/neuron", 4, 8, "my-scheduler"),
        ({"weights": "65GB", "instance": "trn1.32xlarge", "tp": 32}, "aws.amazon.com/neuron", 16, 32, None),
    ],
)
def test_neuron_pods_ask_for_one_kind_and_for_the_scheduler_only_where_neighbours_matter(
    made, given, resource, count, tp, scheduler
):
    spec = pod(made(target="neuron", **given))
    limits = spec["containers"][0]["resources"]["limits"]
    assert {key: value for key, value in limits.items() if key != "memory"} == {resource: count}
    assert f"--tensor-parallel-size {tp} " in spec["containers"][0]["command"][-1]
    assert spec.get("schedulerName") == scheduler


def test_neuron_weights_are_pulled_whole_before_the_engine_starts(made):
    spec = pod(made(target="neuron"))
    pull = spec["initContainers"][1]
    assert pull["command"][1:3] == ["weights", "pull"]
    assert pull["command"][4] in spec["containers"][0]["command"][-1]


def test_the_device_is_named_to_old_engines_only(made):
    def line(image):
        return pod(made(target="neuron", image=image))["containers"][0]["command"][-1]

    assert " --device neuron" in line("registry/neuron:0.9.1-sdk2.25")
    assert "--device" not in line("registry/neuron:0.13.0-sdk2.28")


def test_words_of_the_users_are_quoted_for_the_shell(made):
    line = pod(made(target="neuron", engine_args=('--override-neuron-config={"a": "it\'s $HOME"}',)))["containers"][0]["command"][
        -1
    ]
    assert line.endswith("""'--override-neuron-config={"a": "it'\\''s $HOME"}'""")


def test_the_charts_values_enable_what_is_needed_and_auto_mode_gets_none(design):
    assert helm_values(design()) is None
    assert helm_values(design(target="neuron", nodes="auto", cluster="demo")) is None
    assert plain(helm_values(design(target="neuron")))["scheduler"] == {"enabled": False}
    neighbours = plain(helm_values(design(target="neuron", weights="65GB", instance="trn1.32xlarge")))["scheduler"]
    assert neighbours["enabled"] is True
    assert neighbours["nodeSelector"] == {"node-role.kubernetes.io/master": None}
    assert neighbours["customScheduler"]["fullnameOverride"] == "my-scheduler"


def test_the_service_account_names_its_role_with_irsa_only(made):
    account, publisher = made(identity="irsa", account="111122223333", namespace="llm")["ServiceAccount"]
    arns = [each["metadata"]["annotations"]["eks.amazonaws.com/role-arn"] for each in (account, publisher)]
    assert arns == [f"arn:aws:iam::111122223333:role/glowplug-llm-qwen3-32b-{who}" for who in ("server", "publisher")]
    assert "annotations" not in made()["ServiceAccount"][0]["metadata"]


def test_roles_are_the_repositorys_policies_and_only_the_publisher_may_write(design):
    document = json.loads(terraform(design()))
    rights = {
        key: json.loads(policy["policy"].replace("$${", "${"))["Statement"]
        for key, policy in document["resource"]["aws_iam_role_policy"].items()
    }
    written = {key: {resource for each in found if each["Action"] == "s3:PutObject" for resource in _list(each["Resource"])}
               for key, found in rights.items()}  # fmt: skip
    assert written["qwen3-32b-server"] == {"arn:aws:s3:::caches/glowplug/v1/reports/${aws:PrincipalTag/kubernetes-namespace}/*"}
    assert "arn:aws:s3:::caches/glowplug/v1/*/packs/*" in written["qwen3-32b-publisher"]
    assert not any("Delete" in str(each["Action"]) for found in rights.values() for each in found)


def test_terraform_leaves_iams_own_variables_alone(design):
    assert "$${aws:PrincipalTag/kubernetes-namespace}" in terraform(design())


def test_terraform_associates_each_account_with_its_own_role(design):
    found = json.loads(terraform(design(cluster="demo", namespace="llm")))["resource"]["aws_eks_pod_identity_association"]
    assert {each["service_account"]: each["role_arn"] for each in found.values()} == {
        "qwen3-32b": "${aws_iam_role.qwen3-32b-server.arn}",
        "qwen3-32b-publisher": "${aws_iam_role.qwen3-32b-publisher.arn}",
    }
    assert {each["namespace"] for each in found.values()} == {"llm"}


def test_irsa_trusts_one_service_account(design):
    given = {"identity": "irsa", "account": "111122223333", "namespace": "llm"}
    trust = json.loads(terraform(design(**given)))["resource"]["aws_iam_role"]["qwen3-32b-server"]["assume_role_policy"]
    assert '${replace(var.oidc_provider_arn, "/^.*oidc-provider//", "")}:sub": "system:serviceaccount:llm:qwen3-32b"' in trust
    template = plain(cloudformation(design(**given)))["Resources"]["ServerRole"]["Properties"]["AssumeRolePolicyDocument"]
    condition = json.loads(template["Fn::Sub"])["Statement"][0]["Condition"]["StringEquals"]
    assert condition["${OidcProvider}:sub"] == "system:serviceaccount:llm:qwen3-32b"


def test_cloudformation_has_the_same_rights_as_terraform(design):
    resources = plain(cloudformation(design()))["Resources"]
    document = json.loads(terraform(design()))["resource"]["aws_iam_role_policy"]
    for title, key in (("ServerRole", "qwen3-32b-server"), ("PublisherRole", "qwen3-32b-publisher")):
        mine = resources[title]["Properties"]["Policies"][0]["PolicyDocument"]
        assert mine == json.loads(document[key]["policy"].replace("$${", "${"))
    assert resources["S3Endpoint"]["Properties"]["VpcEndpointType"] == "Gateway"
    assert "Fn::Sub" in to_yaml(cloudformation(design()))


def test_only_what_was_asked_for_lies_beside_the_manifests(design):
    def beside(**given):
        return {file.path for file in files(design(**given)) if not file.objects} - {"kustomization.yaml"}

    assert beside() == {"glowplug.tf.json"}
    assert beside(iac="cloudformation") == {"cloudformation.yaml"}
    assert beside(target="neuron", iac="none") == {"neuron-helm-values.yaml"}


def test_the_load_test_waits_until_somebody_lets_it_run(made):
    jobs = made(load_test="Qwen/Qwen3-32B", publish="none")["Job"]
    assert [job["spec"]["suspend"] for job in jobs] == [True]


def _list(value):
    return value if isinstance(value, list) else [value]
