"""What is printed of a machine: a table of 80 columns with the worst finding first, JSON and SARIF, and no secret."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from glowplug.doctor.checking import check_node
from glowplug.doctor.node.document import to_json
from glowplug.doctor.node.facts import Cloud, Devices, Failure, Place, Speed, User, Who
from glowplug.doctor.node.registry import node_rules
from glowplug.doctor.node.render import render
from glowplug.doctor.sarif import to_sarif
from tests.doctor.node.cases import CACHE, CASES, GOOD, LAPTOP, MODEL, NONE, THE_STORE, WHO, but

ALL = [facts for pair in CASES.values() for each in pair for facts in each]


def text_of(facts):
    return render(facts, check_node(facts))


def joined(text):
    return re.sub(r"\s+", " ", text)


def test_a_good_pod():
    text = text_of(GOOD)
    for said in (
        "machine g6.12xlarge in eu-west-1b (by its metadata service), Kubernetes",
        "user vllm (uid 1000, gid 1000), home /home/vllm",
        "cache folder /cache: xfs on md127 = 2 x Amazon EC2 NVMe Instance Storage (nvme1n1, nvme2n1), 5.5 TiB",
        "of 6.3 TiB free, writable",
        "/dev/shm 8.0 GiB of 8.0 GiB free",
        "memory limit 80.0 GiB, 78.0 GiB free; the machine has 192.0 GiB",
        "processors 12 of 48",
        "accelerators 4 x NVIDIA L4, driver 570.86.15",
        "store s3://bucket/glowplug: answers in 14 ms, in eu-west-1, 12 objects",
        f"identity from assume-role-with-web-identity, key ...MPLE, {WHO.arn}",
        "way 52.218.1.1; whether a gateway endpoint or a NAT gateway carries it can't be seen from here",
        "speed 640 MB/s (244.1 MiB in 0.40 s); all of it in 25.0 s at that speed",
        "14.9 GiB of weights",
    ):
        assert said in joined(text), said
    assert text.endswith("\nthis machine: nothing found\n")
    beside = joined(text_of(CASES["GP902"][0][0]))
    assert "instance store 2 x Amazon EC2 NVMe Instance Storage (nvme1n1, nvme2n1), 6.9 TiB" in beside
    assert "instance store" not in text


def test_a_laptop_that_tells_little():
    text = text_of(replace(LAPTOP, devices=Devices(NONE), shm=None))
    assert "no EC2 instance, as far as it tells" in text
    assert "/var/tmp/glowplug-1000, to be made in /var/tmp: ext4" in joined(text)
    assert "none that can be used here" in text
    assert "no limit, 3.0 GiB free" in text
    assert re.search(r"^/dev/shm +none$", text, re.MULTILINE)


@pytest.mark.parametrize("facts", ALL, ids=[str(number) for number in range(len(ALL))])
def test_every_case_fits_80_columns_and_into_json(facts):
    checked = check_node(facts)
    # A path or a URL without a blank in it may be longer than a line.
    assert all(len(line) <= 80 for line in render(facts, checked).splitlines())
    document = json.loads(json.dumps(to_json(facts, checked)))
    assert document["schema"] == "glowplug.dev/doctor/v1"
    assert sum(document["counts"].values()) == len(document["findings"])


def test_the_worst_comes_first():
    facts = replace(CASES["GP911"][0][0], open_files=10, places=(replace(THE_STORE, failure=Failure("refused", "no")), MODEL))
    rules = re.findall(r"^  (?:error|warning|info) +(GP\d+)", text_of(facts), re.MULTILINE)
    assert rules == ["GP941", "GP911", "GP923"]
    assert "this machine: 1 error, 2 infos; glowplug doctor --explain ID says more" in text_of(facts)


def test_places_in_words():
    folder = replace(CACHE, path="/models/llm", tried="/models/llm")
    places = (
        Place("store", "s3://b/x", server="http://minio:9000", who=Who("unsigned"), objects=1000, latency_s=0.0004),
        Place("model", "/models/llm", objects=3, size_bytes=10**9, folder=folder, speed=Speed("x", 10**9, 0.5)),
    )
    text = joined(text_of(but(places=places, cloud=Cloud("p5.48xlarge", source="firmware"), instance_given=True)))
    assert "s3://b/x: answers in 0.4 ms, at least 1000 objects" in text
    assert "none: requests are not signed" in text
    assert "/models/llm: 3 objects, 953.7 MiB of weights, xfs on md127" in text
    assert "2.0 GB/s (953.7 MiB in 0.50 s)" in text
    assert "at that speed" not in text.partition("/models/llm: 3")[2]
    assert "p5.48xlarge (by its firmware), judged as g6.12xlarge, Kubernetes" in text
    failed = replace(THE_STORE, failure=Failure("unreachable", "it was silent"), speed=None, latency_s=None, objects=None)
    assert "s3://bucket/glowplug: in eu-west-1, can't be used" in joined(text_of(but(places=(failed,))))


def test_no_key_is_printed_whole():
    facts = but(places=(replace(THE_STORE, who=Who("env", "AKIASECRETSECRET")),))
    checked = check_node(facts)
    for text in (render(facts, checked), json.dumps(to_json(facts, checked)), json.dumps(to_sarif(checked, node_rules()))):
        assert "AKIASECRET" not in text
        assert "CRET" in text


def test_hostile_names_are_shown_as_escapes():
    evil = "a\x1b[2J\u202eb"
    facts = but(user=User(1, 1, evil, evil, home_refused=evil), cache=replace(CACHE, path=f"/{evil}", tried=f"/{evil}"))
    assert all(letter.isprintable() or letter == "\n" for letter in text_of(facts))


def test_json_has_the_facts():
    document = to_json(GOOD, check_node(GOOD))
    facts = document["facts"]
    assert facts["machine"] == {
        "instance_type": "g6.12xlarge", "region": "eu-west-1", "zone": "eu-west-1b", "source": "metadata service",
        "judged_as": "g6.12xlarge",
    }  # fmt: skip
    assert facts["cache_dir"]["disks"][0]["model"] == "Amazon EC2 NVMe Instance Storage"
    assert facts["accelerators"]["models"] == ["NVIDIA L4"] * 4
    assert facts["store"]["identity"] == {"provider": WHO.provider, "access_key_ending": "MPLE", "arn": WHO.arn}
    assert facts["model"]["speed"]["bytes_per_s"] == 640_000_000
    refused = CASES["GP900"][0][0]
    assert to_json(refused, check_node(refused))["facts"]["cache_dir"]["refused"] == {"write": "permission denied"}


def test_sarif_points_at_the_machine_s_paths():
    facts = CASES["GP903"][0][0]
    (run,) = to_sarif(check_node(facts), node_rules())["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [rule.id for rule in node_rules()]
    places = {result["ruleId"]: result["locations"][0] for result in run["results"]}
    assert places["GP903"]["physicalLocation"] == {"artifactLocation": {"uri": "file:///cache"}}
    assert places["GP903"]["logicalLocations"][0]["fullyQualifiedName"] == "cache folder/mount"
    (remote,) = to_sarif(check_node(CASES["GP941"][0][0]), node_rules())["runs"][0]["results"]
    assert "physicalLocation" not in remote["locations"][0]
