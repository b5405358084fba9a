import pytest

from glowplug.engines.base import ExitReadiness, HttpReadiness
from glowplug.engines.vllm.arguments import parse
from glowplug.engines.vllm.readiness import local_ranks, parallelism, readiness


def read(line):
    return parse(["m", *line.split()], serve=True, cwd="/")


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("", "http://127.0.0.1:8000/health"),
        ("--port 9000", "http://127.0.0.1:9000/health"),
        ("--host 0.0.0.0", "http://127.0.0.1:8000/health"),
        ("--host ::", "http://[::1]:8000/health"),
        ("--host [::]", "http://[::1]:8000/health"),
        ("--host fe80::1", "http://[fe80::1]:8000/health"),
        ("--host 10.1.2.3 --port 80", "http://10.1.2.3:80/health"),
        ("--host localhost", "http://localhost:8000/health"),
        ("--ssl-certfile c --ssl-keyfile k", "https://127.0.0.1:8000/health"),
        ("--ssl-certfile c", "http://127.0.0.1:8000/health"),
        ("--root-path /proxy", "http://127.0.0.1:8000/health"),
        ("--uds /tmp/v.sock --port 9", "http+unix://%2Ftmp%2Fv.sock/health"),
        ("-dp 2 --data-parallel-multi-port-external-lb", "http://127.0.0.1:9256/health"),
        ("-dpm --data-parallel-supervisor-port 99", "http://127.0.0.1:99/health"),
    ],
)
def test_the_health_url_is_where_vllm_answers(line, url):
    assert readiness(read(line)) == HttpReadiness(url)


@pytest.mark.parametrize("line", ["--headless", "--grpc"])
def test_a_server_without_http_is_ready_when_it_exits(line):
    assert readiness(read(line)) == ExitReadiness()


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("", 1),
        ("-tp 4", 4),
        ("-tp 4 -pp 2 -pcp 2", 16),
        ("-tp 2 -dp 3", 6),
        ("-tp 2 -dp 8 -dpl 2", 4),
        ("-tp 8 -pp 2 --nnodes 2", 8),
        ("-tp 2 -dp 8 -dpn 3", 2),
        ("-tp 2 -dp 8 --data-parallel-external-lb", 2),
        ("-tp 2 -dcp 2 -ep", 2),
    ],
)
def test_ranks_on_this_node(line, ranks):
    assert local_ranks(read(line)) == ranks


def test_nodes_with_different_ranks_do_not_share_a_cache():
    assert parallelism(read("-tp 8 -pp 2 -n 2 -r 0")) != parallelism(read("-tp 8 -pp 2 -n 2 -r 1"))
    assert parallelism(read("-dp 4 -dpl 2 -dpr 2")) != parallelism(read("-dp 4 -dpl 2"))


def test_a_size_of_one_is_the_default():
    assert parallelism(read("-tp 1 -pp 1 --data-parallel-size 1 --no-enable-expert-parallel")) == parallelism(read(""))
    assert parallelism(read("-tp 2"))["tensor"] == 2
    assert parallelism(read("-ep"))["expert"] is True
