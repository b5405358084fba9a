"""The store and the model, on a real S3 server, behind a proxy that fails on purpose, on a web server and in folders."""

from __future__ import annotations

import itertools
import os
import time
from email.utils import formatdate

import pytest

from glowplug.doctor.node import places
from glowplug.doctor.node.disks import Disks
from glowplug.doctor.node.mounts import read_mounts
from glowplug.doctor.node.places import Visit, look_at_places
from glowplug.errors import UsageError
from glowplug.store import open_store
from glowplug.units import MIB
from testbed.range_faults import FORBIDDEN, SILENT
from testbed.store_proxy import StoreProxy, on
from tests.store.stub import Stub, error, reply

_NUMBERS = itertools.count(1)
ENVELOPE = "v1/" + "0" * 64
LARGE = 33 * MIB + 5  # five pieces, and no more than four are taken at once
NO_KEYS = {"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true"}
EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


def look(env, **urls):
    """The store, the model, or both."""
    mounts = read_mounts()
    visits = [Visit(role, str(url), env=env) for role, url in urls.items()]
    return look_at_places(visits, root="/", mounts=mounts, disks=Disks("/", mounts), free_bytes=None)


def one(env, **urls):
    (found,) = look(env, **urls)
    return found


@pytest.fixture
def url(seaweedfs):
    """An empty prefix of the real S3 server."""
    return f"s3://{seaweedfs.bucket}/doctor-{next(_NUMBERS)}"


@pytest.fixture(scope="module")
def filled(seaweedfs):
    """A prefix with a store of one pack, and a model; nobody writes there."""
    url = f"s3://{seaweedfs.bucket}/doctor-filled"
    store = open_store(url, env=seaweedfs.env)
    store.put(f"{ENVELOPE}/packs/{'1' * 64}.tar.zst", bytes(3 * MIB))
    store.put(f"{ENVELOPE}/latest", b"x" * 70)
    store.put("model/model-00001-of-00002.safetensors", bytes(MIB))
    store.put("model/model-00002-of-00002.safetensors", bytes(LARGE))
    store.put("model/config.json", b"{}")
    return url


@pytest.mark.s3
def test_a_store_and_a_model_are_reached_named_and_read(seaweedfs, filled):
    store, model = look(seaweedfs.env_of("reader"), store=filled, model=f"{filled}/model")
    for place in (store, model):
        assert (place.failure, place.server, place.region) == (None, seaweedfs.endpoint_url, "us-east-1")
        assert (place.who.provider, place.who.ending, place.who.arn) == ("env", "ADER", "")
        assert place.addresses == ("127.0.0.1",)
        assert 0 < place.latency_s < 60
        assert abs(place.clock_ahead_s) < 60
        assert place.speed.bytes_per_s > 0
    assert (store.objects, store.size_bytes, store.speed.size_bytes) == (2, 0, 3 * MIB)
    assert store.speed.name == f"{filled}/{ENVELOPE}/packs/{'1' * 64}.tar.zst"
    assert (model.objects, model.size_bytes, model.speed.size_bytes) == (3, MIB + LARGE, LARGE)
    assert "GLOWPLUGREADER" not in repr(store)


@pytest.mark.s3
def test_one_file_is_a_model_too(seaweedfs, filled):
    found = one(seaweedfs.env, model=f"{filled}/model/model-00001-of-00002.safetensors")
    assert (found.failure, found.objects, found.size_bytes, found.speed.size_bytes) == (None, 1, MIB, MIB)


@pytest.mark.s3
def test_what_is_not_there_yet_is_no_failure_of_a_store_and_one_of_a_model(seaweedfs, url):
    store, model = look(seaweedfs.env, store=url, model=url)
    assert (store.failure, store.objects, store.speed) == (None, 0, None)
    assert model.failure.kind == "nothing there"
    assert url in model.failure.message


@pytest.mark.s3
@pytest.mark.parametrize(
    ("change", "bucket", "kind", "says"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "", "refused", "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "AKIANOBODY"}, "", "refused", "InvalidAccessKeyId"),
        ({}, "nowhere", "refused", "AccessDenied"),
    ],
    ids=["wrong secret", "unknown key", "another bucket"],
)
def test_a_refusal_names_who_was_refused(seaweedfs, url, change, bucket, kind, says):
    env = seaweedfs.env | change
    found = one(env, store=url.replace(seaweedfs.bucket, bucket) if bucket else url)
    assert (found.failure.kind, found.speed) == (kind, None)
    assert says in found.failure.message
    assert found.who.ending == env["AWS_ACCESS_KEY_ID"][-4:]


@pytest.mark.s3
def test_a_bucket_that_is_not_there(seaweedfs):
    assert one(seaweedfs.env_of("admin"), store="s3://nowhere/x").failure.kind == "no bucket"


@pytest.mark.s3
def test_a_reader_that_may_list_and_not_read_is_found_out(seaweedfs, filled):
    with StoreProxy(seaweedfs.port, rule=on(FORBIDDEN, "GET", ".safetensors", numbers=())) as proxy:
        found = one(seaweedfs.env | proxy.env, model=f"{filled}/model")
    assert (found.objects, found.failure.kind) == (3, "refused")
    assert "model-00002-of-00002.safetensors" in found.failure.message


@pytest.mark.s3
def test_a_silent_store_is_given_up_with_what_was_known(seaweedfs, url, monkeypatch):
    monkeypatch.setattr(places, "_LONGEST_S", 1.5)
    with StoreProxy(seaweedfs.port, rule=on(SILENT, numbers=())) as proxy:
        found = one(seaweedfs.env | proxy.env, store=url)
    assert (found.failure.kind, found.failure.message) == ("unreachable", f"http://127.0.0.1:{proxy.port} was silent for 1.5 s")
    assert found.who.provider == "env"


@pytest.mark.s3
def test_a_store_that_falls_silent_in_the_middle_of_a_reading(seaweedfs, filled, monkeypatch):
    monkeypatch.setattr("glowplug.doctor.node.speed._PATIENCE_S", 0.2)
    monkeypatch.setattr("glowplug.doctor.node.speed.MOST_SECONDS", 0.3)
    with StoreProxy(seaweedfs.port, rule=on(SILENT, "GET", ".safetensors", numbers=())) as proxy:
        found = one(seaweedfs.env | proxy.env, model=f"{filled}/model")
    assert (found.failure.kind, found.speed.size_bytes) == ("unreachable", 0)
    assert "nothing more came" in found.failure.message


@pytest.mark.s3
def test_a_reading_ends_when_its_time_is_over(seaweedfs, filled, monkeypatch):
    monkeypatch.setattr("glowplug.doctor.node.speed.MOST_SECONDS", 0.0)
    found = one(seaweedfs.env, model=f"{filled}/model")
    assert found.failure is None
    assert 8 * MIB <= found.speed.size_bytes < LARGE


@pytest.mark.s3
def test_a_setting_that_can_t_be_used_is_said(seaweedfs, filled):
    found = one(seaweedfs.env | {"GLOWPLUG_WEIGHTS_CONCURRENCY": "many"}, model=f"{filled}/model")
    assert "GLOWPLUG_WEIGHTS_CONCURRENCY" in found.failure.message


def test_no_credentials(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = one(NO_KEYS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, store="s3://bucket/x")
    assert (found.failure.kind, found.who, found.latency_s) == ("no credentials", None, None)


def test_a_token_that_this_user_can_t_read(monkeypatch, tmp_path):
    token = tmp_path / "token"
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    found = one(NO_KEYS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, store="s3://bucket/x")
    assert found.failure.kind == "no credentials"
    assert str(token) in found.failure.message


def test_nobody_listens():
    with Stub(reply(200)) as stub:
        env = stub.env
    found = one(env, store="s3://bucket/x")
    assert found.failure.kind == "unreachable"
    assert "Connection refused" in found.failure.message


def test_a_server_that_knows_no_s3():
    with Stub(reply(404, b"not found")) as stub:
        found = one(stub.env, store="s3://bucket/x")
    assert found.failure.kind == "unreachable"
    assert "does not answer as an S3 server does" in found.failure.message


def test_an_endpoint_that_is_no_url_is_a_failure_and_no_end_of_the_doctor():
    found = one(NO_KEYS | {"AWS_ENDPOINT_URL": "nonsense"}, store="s3://bucket/x")
    assert (found.failure.kind, found.server) == ("unreachable", "")
    assert "AWS_ENDPOINT_URL" in found.failure.message


def test_region_and_clock_are_read_off_the_answers():
    headers = {"x_amz_bucket_region": "eu-north-1", "Date": formatdate(time.time() - 1000, usegmt=True)}
    with Stub(reply(200, EMPTY, **headers)) as stub:
        found = one(stub.env, store="s3://bucket/x")
    assert (found.failure, found.region, found.bucket_region) == (None, "eu-west-1", "eu-north-1")
    assert 990 < found.clock_ahead_s < 1060
    assert {each.partition("?")[0] for each in stub.asked} == {"GET /bucket"}
    assert all("prefix=x%2Fv1%2F" in each for each in stub.asked)  # what policies/cache-reader.json lets a reader list


def test_a_refusal_tells_the_region_and_the_clock_too():
    with Stub(error(400, "AuthorizationHeaderMalformed", "<Region>us-east-2</Region>", x_amz_bucket_region="us-east-2")) as stub:
        found = one(stub.env, store="s3://bucket/x")
    assert (found.failure.kind, found.bucket_region) == ("wrong region", "us-east-2")
    assert "us-east-2" in found.failure.message
    skewed = error(403, "RequestTimeTooSkewed", Date=formatdate(time.time() + 2000, usegmt=True))
    with Stub(skewed) as stub:
        found = one(stub.env, store="s3://bucket/x")
    assert found.failure.kind == "refused"
    assert -2060 < found.clock_ahead_s < -1900


def test_sts_names_the_identity_and_is_asked_with_its_own_signature():
    name = "arn:aws:sts::123456789012:assumed-role/reader/pod"
    body = f"""<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Arn>{name}</Arn><UserId>A</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"""
    with Stub(reply(403, b"")) as store, Stub(reply(200, body.encode(), Content_Type="text/xml")) as sts:
        found = one(store.env | {"AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{sts.port}"}, store="s3://bucket/x")
    assert (found.failure.kind, found.who.arn) == ("refused", name)
    assert "/sts/aws4_request" in sts.seen[0].headers["authorization"]
    assert b"Action=GetCallerIdentity" in sts.seen[0].body


def test_sts_that_does_not_answer_takes_nothing_away():
    with Stub(reply(200, EMPTY)) as store, Stub(reply(500, b"")) as sts:
        found = one(store.env | {"AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{sts.port}"}, store="s3://bucket/x")
    assert (found.failure, found.who.arn) == (None, "")
    assert len(sts.seen) == 1


def test_a_bucket_for_everybody_needs_no_identity():
    with Stub(reply(200, EMPTY)) as stub:
        found = one(stub.env | {"GLOWPLUG_S3_UNSIGNED": "1"}, store="s3://bucket/x")
    assert (found.failure, found.who.provider, found.who.ending) == (None, "unsigned", "")


def test_a_proxy_is_told_and_no_address_is_looked_up():
    with Stub(reply(200, EMPTY)) as stub:
        proxy = {"HTTP_PROXY": f"http://user:hush@127.0.0.1:{stub.port}", "AWS_ENDPOINT_URL": "http://store.invalid"}
        found = one(stub.env | proxy, store="s3://bucket/x")
    assert (found.failure, found.addresses) == (None, ())
    assert found.proxy == f"through the proxy 127.0.0.1:{stub.port} that HTTP_PROXY names"


def test_a_model_on_a_web_server(range_server, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/model.safetensors").write_bytes(bytes(2 * MIB))
    found = one({}, model=range_server(tmp_path).url("models/model.safetensors"))
    assert (found.failure, found.size_bytes, found.speed.size_bytes) == (None, 2 * MIB, 2 * MIB)


def test_a_model_in_a_folder_is_read_and_not_written(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(2 * MIB))
    found = one({}, model=tmp_path)
    assert (found.failure, found.objects, found.speed.size_bytes) == (None, 1, 2 * MIB)
    assert found.folder.path == str(tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_model_that_is_not_there(tmp_path):
    assert one({}, model=tmp_path / "none").failure.kind == "nothing there"
    (tmp_path / "README.md").write_text("x")
    assert one({}, model=tmp_path).failure.kind == "nothing there"


def test_a_store_in_a_folder_is_tried(tmp_path, tmpfs):
    for url in (tmp_path, f"file://{tmp_path}/new"):
        found = one({}, store=url)
        assert (found.failure, found.folder.refused, found.folder.tried) == (None, (), str(tmp_path))
    assert one({}, store=tmpfs("ro")).folder.refusal("write") == "read-only file system"


@pytest.mark.parametrize(
    ("role", "url"), [("store", "gs://bucket/x"), ("store", "folder"), ("model", "ftp://host/x"), ("store", "s3://")]
)
def test_what_can_be_no_place_is_a_usage_error(role, url):
    with pytest.raises(UsageError):
        look({}, **{role: url})
