"""Listings, indexes and headers from servers that send a byte now and then: one error, soon, that names object and server."""

from __future__ import annotations

import pytest

from glowplug.errors import RemoteError, Unreachable
from glowplug.store import s3_client, s3_http
from glowplug.weights.base import Entry
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources import patience
from glowplug.weights.sources.http import HttpSource
from glowplug.weights.sources.s3 import S3Source
from tests.store.stub import Script, Stub, reply

DRIPPING = b'HTTP/1.1 206 Partial\r\nContent-Length: 4000\r\nContent-Range: bytes 0-3999/4000\r\nETag: "1"\r\n\r\n'
ENTRY = Entry("model.safetensors", 4000, '"1"')


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(s3_http, "READ_TIMEOUT_S", 0.1)
    monkeypatch.setattr(patience, "WINDOW_S", 0.1)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.01)
    monkeypatch.setattr(s3_client, "_BACKOFF_S", 0.01)


@pytest.mark.parametrize("uri", ["s3://bucket/m", "s3://bucket/m/model.safetensors"])
def test_a_listing_that_drips_is_an_error(uri):
    listing = b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n"
    with Stub(Script(listing, then="drip")) as stub:
        with pytest.raises(Unreachable, match="the answer came at less than") as caught:
            open_checkpoint(S3Source(uri, env=stub.env))
        assert uri in caught.value.message
        assert str(stub.port) in caught.value.message
        assert len(stub.asked) == 4


def test_a_header_in_a_bucket_that_drips_is_an_error():
    with Stub(Script(DRIPPING, then="drip")) as stub:
        with pytest.raises(Unreachable, match="the answer came at less than") as caught:
            S3Source("s3://bucket/m", env=stub.env).read_small(ENTRY, 0, 4000)
        assert "s3://bucket/m/model.safetensors, bytes 0-3999" in caught.value.message
        assert str(stub.port) in caught.value.message


def test_a_header_on_a_web_server_that_drips_is_an_error():
    with Stub(Script(DRIPPING, then="drip")) as stub:
        with pytest.raises(Unreachable, match="after 4 attempts: the answer came at less than") as caught:
            HttpSource(f"http://127.0.0.1:{stub.port}/m", env={}).read_small(ENTRY, 0, 4000)
        assert f"127.0.0.1:{stub.port}/m/model.safetensors" in caught.value.message
        assert len(stub.asked) == 4


def test_a_listing_that_never_comes_is_an_error():
    with Stub(Script(b"", then="stall")) as stub, pytest.raises(Unreachable, match=r"s3://bucket/m.*no answer in time"):
        open_checkpoint(S3Source("s3://bucket/m", env=stub.env))


@pytest.mark.parametrize("status", [403, 503])
def test_a_proxy_before_a_web_server_is_named(status):
    with Stub(reply(status)) as proxy:
        source = HttpSource("http://models.invalid/m", env={"http_proxy": f"http://127.0.0.1:{proxy.port}"})
        with pytest.raises(RemoteError, match="through the proxy") as caught:
            source.read_small(ENTRY, 0, 4000)
    assert "NO_PROXY" in caught.value.hint
