"""The S3 store keeps the contract, on a real SeaweedFS with authentication: plain, over TLS, and in both addressing styles."""

from __future__ import annotations

import socket

import pytest

from glowplug.store import open_store, s3_multipart
from glowplug.units import MIB
from testbed.seaweedfs import DOMAIN
from tests.contract.suite import StoreContract

pytestmark = pytest.mark.s3


class S3Contract(StoreContract):
    rounds = 2  # SeaweedFS guards a conditional write by a lock with a TTL of 5 s, and a race sometimes waits for it
    large_bytes = 12 * MIB + 12345

    @pytest.fixture(autouse=True)
    def _parts(self, monkeypatch):
        """The smallest that S3 allows, so that a large file need not be very large."""
        monkeypatch.setattr(s3_multipart, "SINGLE_LIMIT_BYTES", 5 * MIB)
        monkeypatch.setattr(s3_multipart, "PART_BYTES", 5 * MIB)


class TestS3StorePathStyle(S3Contract):
    @pytest.fixture(autouse=True)
    def _server(self, seaweedfs):
        self.bucket, self.env = seaweedfs.bucket, seaweedfs.env

    def make_store(self, prefix):
        return open_store(f"s3://{self.bucket}/{prefix}", env=self.env)


class TestS3StoreOverTls(S3Contract):
    listed = 20  # pages are the same in every style
    rounds = 1

    @pytest.fixture(autouse=True)
    def _server(self, seaweedfs_tls):
        self.bucket, self.env = seaweedfs_tls.bucket, seaweedfs_tls.env

    def make_store(self, prefix):
        store = open_store(f"s3://{self.bucket}/{prefix}", env=self.env)
        assert store._client.endpoint.https
        return store


class TestS3StoreVirtualHostStyle(S3Contract):
    listed = 20
    rounds = 1

    @pytest.fixture(autouse=True)
    def _server(self, seaweedfs, monkeypatch):
        host = f"{seaweedfs.bucket}.{DOMAIN}"
        resolve = socket.getaddrinfo
        # What a wildcard DNS record does.
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda name, *rest, **more: resolve("127.0.0.1" if name == host else name, *rest, **more)
        )
        self.host, self.bucket = host, seaweedfs.bucket
        self.env = seaweedfs.env | {
            "AWS_ENDPOINT_URL": f"http://{DOMAIN}:{seaweedfs.port}",
            "GLOWPLUG_S3_ADDRESSING": "virtual",
        }

    def make_store(self, prefix):
        store = open_store(f"s3://{self.bucket}/{prefix}", env=self.env)
        assert store._client.endpoint.host == self.host
        return store
