"""What kind of instance it is: a metadata service that really speaks, one that doesn't, and the firmware."""

from __future__ import annotations

import pytest

from glowplug.doctor.node.cloud import find_cloud
from glowplug.doctor.node.facts import Cloud
from tests.doctor.node.metadata import Metadata

FIRMWARE = Cloud("g6.12xlarge", source="firmware")


def test_the_metadata_service_tells_type_and_place(machine):
    with Metadata() as service:
        found = find_cloud(service.env, str(machine))
    assert found == Cloud("g6.12xlarge", "eu-west-1", "eu-west-1b", "metadata service")
    assert service.seen == ["PUT /latest/api/token", "GET /latest/dynamic/instance-identity/document"]


def test_the_firmware_tells_the_type_where_the_service_does_not_answer(machine, monkeypatch):
    monkeypatch.setattr("glowplug.doctor.node.cloud._TIMEOUT_S", 0.1)
    machine.amazon("g6.12xlarge")
    with Metadata(silent=True) as service:  # a hop too far away: nothing comes back
        assert find_cloud(service.env, str(machine)) == FIRMWARE
    assert service.seen == ["PUT /latest/api/token"]


@pytest.mark.parametrize("how", [{"token": None}, {"document": b"<html>"}, {"document": b"[]"}, {"document": b"\xff\xfe"}], ids=str)
def test_answers_that_are_none_are_not_believed(machine, how):
    machine.amazon("g6.12xlarge")
    with Metadata(**how) as service:
        assert find_cloud(service.env, str(machine)) == FIRMWARE


def test_it_is_not_asked_where_it_is_switched_off(machine):
    machine.amazon("g6.12xlarge")
    with Metadata() as service:
        assert find_cloud(service.env | {"AWS_EC2_METADATA_DISABLED": "true"}, str(machine)) == FIRMWARE
    assert service.seen == []


def test_a_machine_of_another_maker_is_not_asked(machine, monkeypatch):
    machine.write("sys/devices/virtual/dmi/id/sys_vendor", "LENOVO\n")
    machine.write("sys/devices/virtual/dmi/id/product_name", "21CB\n")
    monkeypatch.setattr("glowplug.doctor.node.cloud._document", lambda _: pytest.fail("asked"))
    assert find_cloud({}, str(machine)) == Cloud()


def test_an_endpoint_that_is_no_url_is_passed_over(machine):
    assert find_cloud({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://["}, str(machine)) == Cloud()
