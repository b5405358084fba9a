"""The control plane itself: one that can't start says why, and is gone."""

import socket

import pytest

from testbed.kubernetes.built import built
from testbed.kubernetes.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


def test_one_that_cannot_start_says_why_and_leaves_nothing_but_its_logs(tmp_path):
    if built() is None:
        pytest.skip("the Kubernetes control plane is not built: make testbed")
    programs = tmp_path / "built" / "bin"
    programs.mkdir(parents=True)
    (programs / "etcd").symlink_to(built() / "bin" / "etcd")
    (programs / "kube-apiserver").write_text("#!/bin/sh\necho the cause; exit 3\n")
    (programs / "kube-apiserver").chmod(0o755)
    plane = ControlPlane(tmp_path / "run", built=programs.parent)
    with pytest.raises(RuntimeError, match=r"kube-apiserver.* ended while starting(.|\n)*the cause"):
        plane.start()
    assert sorted(left.name for left in (tmp_path / "run").iterdir()) == ["etcd.log", "kube-apiserver.log"]
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", plane._client_port)) != 0
