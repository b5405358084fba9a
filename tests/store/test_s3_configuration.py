"""Where an S3 store goes and who it is there: environment, profiles, endpoints, proxies."""

from __future__ import annotations

import base64
import json
import socket
from datetime import UTC, datetime, timedelta

import pytest

from glowplug.errors import Forbidden, RemoteError, Unreachable, UsageError
from glowplug.store import open_store
from glowplug.store.proxy import proxy_for
from glowplug.store.s3_endpoint import resolve
from glowplug.store.s3_session import Session
from tests.store.stub import CREDENTIALS, Stub, error, reply

OK = reply(200, b"hello", ETag='"1"')


@pytest.mark.parametrize(
    ("bucket", "options", "place"),
    [
        ("bucket", {}, "https://bucket.s3.eu-west-1.amazonaws.com/k"),
        ("my.bucket", {}, "https://s3.eu-west-1.amazonaws.com/my.bucket/k"),
        ("Old_Bucket", {}, "https://s3.eu-west-1.amazonaws.com/Old_Bucket/k"),
        ("bucket", {"addressing": "path"}, "https://s3.eu-west-1.amazonaws.com/bucket/k"),
        ("bucket", {"region": "cn-north-1"}, "https://bucket.s3.cn-north-1.amazonaws.com.cn/k"),
        ("bucket", {"dualstack": True}, "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/k"),
        ("bucket", {"fips": True, "region": "us-gov-west-1"}, "https://bucket.s3-fips.us-gov-west-1.amazonaws.com/k"),
        ("bucket", {"endpoint_url": "http://minio:9000"}, "http://minio:9000/bucket/k"),
        ("bucket", {"endpoint_url": "http://minio:80/"}, "http://minio/bucket/k"),
        ("bucket", {"endpoint_url": "https://10.0.0.1/base/"}, "https://10.0.0.1/base/bucket/k"),
        ("bucket", {"endpoint_url": "http://[::1]:9000"}, "http://[::1]:9000/bucket/k"),
        ("bucket", {"endpoint_url": "https://minio", "addressing": "virtual"}, "https://bucket.minio/k"),
    ],
)
def test_where_a_bucket_is(bucket, options, place):
    endpoint = resolve(bucket, **({"region": "eu-west-1", "endpoint_url": None} | options))
    assert endpoint.origin + endpoint.target("k") == place


@pytest.mark.parametrize("url", ["minio:9000", "ftp://minio", "http://", "http://minio:port", "http://minio/?x=1"])
def test_an_endpoint_that_is_no_server_is_refused(url):
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL"):
        resolve("bucket", endpoint_url=url, region="eu-west-1")


def test_an_endpoint_with_credentials_is_refused_and_never_repeated():
    with pytest.raises(UsageError) as caught:
        resolve("bucket", endpoint_url="http://user:hush@minio", region="eu-west-1")
    assert "hush" not in caught.value.line()


def test_virtual_host_style_at_an_ip_address_is_refused():
    with pytest.raises(UsageError, match="IP address") as caught:
        resolve("bucket", endpoint_url="http://10.0.0.1:9000", region="eu-west-1", addressing="virtual")
    assert "GLOWPLUG_S3_ADDRESSING=path" in caught.value.hint


@pytest.fixture
def profiles(tmp_path):
    config, credentials = tmp_path / "config", tmp_path / "credentials"
    config.write_text(
        "[default]\nregion = eu-north-1\n"
        "[profile other]\nregion = eu-south-1\nendpoint_url = http://config:1\nuse_dualstack_endpoint = true\nca_bundle = /ca.pem\n"
        "s3 =\n  addressing_style = virtual\nservices = local\n"
        "[services local]\ns3 =\n  endpoint_url = http://config-s3:2\n"
        "[profile process]\ncredential_process = echo "
        '{"Version":1,"AccessKeyId":"AKIDPROCESS","SecretAccessKey":"s"}\n'.replace('"', '\\"').replace("echo {", 'echo "{')[:-1]
        + '"\n'
    )
    credentials.write_text("[other]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = s\n")
    return {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(credentials)}


def test_settings_come_from_the_profile(profiles):
    session = Session(profiles | {"AWS_PROFILE": "other"})
    assert session.region == "eu-south-1"
    assert session.endpoint_url == "http://config-s3:2"
    assert session.addressing == "virtual"
    assert session.ca_bundle == "/ca.pem"
    assert session.dualstack
    assert not session.fips


def test_the_environment_goes_before_the_profile(profiles):
    env = {
        "AWS_PROFILE": "other",
        "AWS_REGION": "us-west-2",
        "AWS_ENDPOINT_URL": "http://env:1",
        "GLOWPLUG_S3_ADDRESSING": "path",
        "AWS_CA_BUNDLE": "/env.pem",
        "AWS_USE_DUALSTACK_ENDPOINT": "false",
        "AWS_USE_FIPS_ENDPOINT": "true",
    }
    session = Session(profiles | env)
    assert (session.region, session.endpoint_url, session.addressing) == ("us-west-2", "http://env:1", "path")
    assert (session.ca_bundle, session.dualstack, session.fips) == ("/env.pem", False, True)
    assert Session(profiles | env | {"AWS_ENDPOINT_URL_S3": "http://s3:1"}).endpoint_url == "http://s3:1"
    assert Session(profiles | env | {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}).endpoint_url is None


def test_the_default_profile_and_the_default_region(profiles):
    assert Session(profiles).region == "eu-north-1"
    assert Session(profiles | {"AWS_DEFAULT_REGION": "eu-west-3"}).region == "eu-west-3"
    assert Session(CREDENTIALS).region == "us-east-1"


def test_an_unknown_profile_is_named(profiles):
    with pytest.raises(UsageError, match="nobody"):
        Session(profiles | {"AWS_PROFILE": "nobody"})


def test_an_unknown_addressing_style_is_named():
    with pytest.raises(UsageError, match="GLOWPLUG_S3_ADDRESSING: 'dns'"):
        _ = Session(CREDENTIALS | {"GLOWPLUG_S3_ADDRESSING": "dns"}).addressing


def who(session):
    signed = session.sign("GET", "http://h/b/k", {"Host": "h"}, region="eu-west-1", payload_sha256="0" * 64)
    return signed["Authorization"].partition("Credential=")[2].partition("/")[0]


def test_the_keys_of_the_environment_go_before_those_of_the_profile(profiles):
    assert who(Session(profiles | {"AWS_PROFILE": "other"})) == "AKIDPROFILE"
    assert (
        who(Session(profiles | CREDENTIALS | {"AWS_CONFIG_FILE": profiles["AWS_CONFIG_FILE"], "AWS_PROFILE": "other"}))
        == "AKIDEXAMPLE"
    )


def test_keys_come_from_a_process(profiles):
    assert who(Session(profiles | {"AWS_PROFILE": "process"})) == "AKIDPROCESS"


def test_a_token_that_can_t_be_read_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(Forbidden, match=f"can't be fetched: {tmp_path}/token: No such file or directory"):
        who(Session({"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}))


def test_who_gave_the_keys_is_told(profiles):
    for env, provider in ((CREDENTIALS, "env"), (profiles | {"AWS_PROFILE": "process"}, "custom-process")):
        assert Session(env).credentials()[1] == provider


def test_pod_identity_is_asked_again_before_its_keys_expire(tmp_path):
    """The agent's protocol: a token file, a URL, keys with an end."""
    token = tmp_path / "token"
    token.write_text("pod-token")

    def keys(number, minutes):
        end = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        document = {"AccessKeyId": f"AKID{number}", "SecretAccessKey": "s", "Token": f"session-{number}", "Expiration": end}
        return reply(200, json.dumps(document).encode())

    # Two minutes before the end botocore insists on new keys.
    with Stub(keys(1, 1), keys(2, 60)) as agent, Stub(OK) as server:
        env = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{agent.port}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
            "AWS_ACCESS_KEY_ID": "",
            "AWS_SECRET_ACCESS_KEY": "",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }
        store = server.store(**env)
        for _ in range(3):
            store.get("k")
    assert [seen.headers["x-amz-security-token"] for seen in server.seen] == ["session-2"] * 3
    assert [seen.headers["authorization"] for seen in agent.seen] == ["pod-token"] * 2


def test_keys_that_cannot_be_fetched_are_forbidden(profiles, tmp_path):
    config = tmp_path / "broken"
    config.write_text("[default]\ncredential_process = false\n")
    with pytest.raises(Forbidden, match="can't be fetched"):
        who(Session(profiles | {"AWS_CONFIG_FILE": str(config)}))


def test_a_request_is_signed_for_its_region_with_its_digest():
    with Stub(OK) as stub:
        stub.store().put("k", b"data")
    headers = stub.seen[0].headers
    assert "/eu-west-1/s3/aws4_request" in headers["authorization"]
    assert headers["x-amz-content-sha256"] == "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"
    assert headers["host"] == f"127.0.0.1:{stub.port}"
    assert headers["user-agent"].startswith("glowplug/")


@pytest.mark.parametrize(("value", "unsigned"), [("1", True), ("On", True), ("0", False), ("", False)])
def test_anonymous_reading_is_on_or_off(value, unsigned):
    with Stub(OK) as stub:
        stub.store(GLOWPLUG_S3_UNSIGNED=value).get("k")
    assert ("authorization" not in stub.seen[0].headers) is unsigned


def test_a_switch_that_is_neither_on_nor_off_is_named():
    with Stub(OK) as stub, pytest.raises(UsageError, match="GLOWPLUG_S3_UNSIGNED: 'banana'") as caught:
        stub.store(GLOWPLUG_S3_UNSIGNED="banana").get("k")
    assert "1 or 0" in caught.value.hint


# --- proxies


def test_an_http_proxy_is_used_with_its_password():
    with Stub(OK) as proxy:
        store = proxy.store(AWS_ENDPOINT_URL="http://s3.invalid:9000", HTTP_PROXY=f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        assert store.get("k").data == b"hello"
    assert proxy.asked == ["GET http://s3.invalid:9000/bucket/pre/k"]
    assert proxy.seen[0].headers["host"] == "s3.invalid:9000"
    assert proxy.seen[0].headers["proxy-authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()


def test_https_goes_through_a_tunnel():
    with Stub(error(403, "Forbidden")) as proxy:
        store = proxy.store(AWS_ENDPOINT_URL="https://s3.invalid", https_proxy=f"127.0.0.1:{proxy.port}")
        with pytest.raises(Unreachable, match=r"s3\.invalid:443.*403"):
            store.get("k")
    assert proxy.asked[0] == "CONNECT s3.invalid:443"


@pytest.mark.parametrize(
    ("no_proxy", "bypassed"),
    [
        ("*", True),
        ("minio", True),
        ("a, .svc.cluster.local ,b", False),
        ("minio:9000", True),
        ("minio:9001", False),
        ("min", False),
        ("", False),
    ],
)
def test_no_proxy_names_the_exceptions(no_proxy, bypassed):
    endpoint = resolve("bucket", endpoint_url="http://minio:9000", region="eu-west-1")
    proxy = proxy_for(endpoint, {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy})
    assert (proxy is None) is bypassed
    assert bypassed or (proxy.host, proxy.port, proxy.variable) == ("proxy", 3128, "HTTP_PROXY")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there_is_named_with_its_variable_and_without_its_password(scheme):
    variable = f"{scheme.upper()}_PROXY"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Stub(OK) as stub:
        store = stub.store(AWS_ENDPOINT_URL=f"{scheme}://s3.invalid", **{variable: f"http://me:hunter2@127.0.0.1:{port}"})
        with pytest.raises(Unreachable, match=rf"through the proxy 127\.0\.0\.1:{port} that {variable} names") as caught:
            store.get("k")
    assert "NO_PROXY" in caught.value.hint
    assert "hunter2" not in caught.value.line()


@pytest.mark.parametrize("status", [403, 407, 502])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_is_named(status, scheme):
    with Stub(reply(status, b"<html>no</html>")) as proxy:
        store = proxy.store(AWS_ENDPOINT_URL=f"{scheme}://s3.invalid", **{f"{scheme}_proxy": f"127.0.0.1:{proxy.port}"})
        with pytest.raises(
            RemoteError, match=rf"{status}.*through the proxy 127\.0\.0\.1:{proxy.port} that {scheme}_proxy names"
        ) as caught:
            store.get("k")
    assert "NO_PROXY" in caught.value.hint


def test_what_is_no_proxy_is_an_error_that_keeps_its_password():
    with Stub(OK) as stub, pytest.raises(UsageError, match="HTTP_PROXY names no proxy") as caught:
        stub.store(HTTP_PROXY="http://me:hunter2@host:port").get("k")
    assert "hunter2" not in caught.value.line()


def test_no_proxy_names_whole_domains():
    endpoint = resolve("bucket", endpoint_url="http://minio.svc.cluster.local:9000", region="eu-west-1")
    for no_proxy in (".svc.cluster.local", "svc.cluster.local", "*.cluster.local"):
        assert proxy_for(endpoint, {"http_proxy": "http://proxy:3128", "no_proxy": no_proxy}) is None


def test_two_stores_of_one_process_keep_their_own_identities(seaweedfs):
    url = f"s3://{seaweedfs.bucket}/identities"
    writer, reader = (open_store(url, env=seaweedfs.env_of(name)) for name in ("writer", "reader"))
    writer.put("k", b"x")
    with pytest.raises(Forbidden):
        reader.put("k", b"y")
    assert reader.get("k").data == b"x"
