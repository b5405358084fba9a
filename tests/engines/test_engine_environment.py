import pytest

from glowplug.engines.environment import environment_component, is_secret, without_secrets
from glowplug.engines.vllm.environment import vllm_environment


@pytest.mark.parametrize(
    "name", ["TORCHINDUCTOR_MAX_AUTOTUNE", "TRITON_PTXAS_PATH", "PYTORCH_ALLOC_CONF", "OMP_NUM_THREADS", "CXX", "CUDA_HOME"]
)
def test_variables_that_can_change_code_count(name):
    assert environment_component({name: "1"}) == {name: "1"}


@pytest.mark.parametrize(
    "name", ["HOME", "HOSTNAME", "POD_IP", "NCCL_DEBUG", "TORCH_LOGS", "TORCH_NCCL_BLOCKING_WAIT", "CUDA_VISIBLE_DEVICES", "VLLM_X"]
)
def test_others_do_not(name):
    assert environment_component({name: "1"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_API_KEY",
        "VLLM_AUTH_TOKEN",
        "TORCH_SECRET",
        "VLLM_DB_PASSWORD",
        "FLASHINFER_TOKEN",
        "VLLM_S3_ACCESS_KEY_ID",
        "XLA_CREDENTIALS",
    ],
)
def test_secrets_never_count(name):
    assert vllm_environment({name: "hunter2"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE",
        "VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD",
        "TORCH_COMPILE_CACHE_KEY_TAG",
        "VLLM_USE_FASTOKENS",
    ],
)
def test_names_that_only_look_like_secrets_count(name):
    assert vllm_environment({name: "256"}) == {name: "256"}
    assert not is_secret("max-num-batched-tokens")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_SERVICE_HOST", "10.1.2.3"),
        ("VLLM_QWEN_SERVICE_PORT_HTTP", "80"),
        ("VLLM_PORT_8000_TCP_ADDR", "10.1.2.3"),
        ("VLLM_QWEN_PORT_80_TCP", "tcp://10.1.2.3:80"),
        ("VLLM_QWEN_PORT", "tcp://10.1.2.3:80"),
        ("TRITON_PORT", "tcp://10.1.2.3:80"),
    ],
)
def test_what_kubernetes_adds_for_a_service_called_like_the_engine_does_not_count(name, value):
    assert vllm_environment({name: value}) == {}


def test_a_port_that_is_a_number_is_the_engines():
    assert vllm_environment({"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}) == {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}


def test_a_url_loses_its_password():
    assert environment_component({"TORCH_CACHE_URL": "redis://me:secret@host/0"}) == {"TORCH_CACHE_URL": "redis://host/0"}


def test_secrets_in_a_tree_are_left_out_with_the_rest_kept():
    tree = {"a": {"api_key": "s", "auth_token": ["s"], "n": 1}, "b": [{"password": "s"}, "http://u:p@h"], "mask_token": 5}
    assert without_secrets(tree) == {"a": {"n": 1}, "b": [{}, "http://h"], "mask_token": 5}


def test_vllms_variables_count_unless_vllm_ignores_them():
    env = {
        "VLLM_USE_AOT_COMPILE": "0",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "VLLM_HOST_IP": "10.0.0.7",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CACHE_ROOT": "/x",
        "TORCHINDUCTOR_CACHE_DIR": "/y",
        "TRITON_CACHE_DIR": "/z",
    }
    assert sorted(vllm_environment(env)) == [
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
        "VLLM_NIXL_SIDE_CHANNEL_PORT",
        "VLLM_USE_AOT_COMPILE",
    ]


def test_variables_that_choose_the_model_count_although_vllm_ignores_them():
    assert set(vllm_environment({"VLLM_USE_MODELSCOPE": "1", "VLLM_MODEL_REDIRECT_PATH": "/x"})) == {
        "VLLM_USE_MODELSCOPE",
        "VLLM_MODEL_REDIRECT_PATH",
    }
