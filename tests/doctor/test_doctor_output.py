"""What is printed: 80 columns for a person, JSON and SARIF for a program, nothing that could repaint a terminal."""

from __future__ import annotations

import json
import re

import pytest

from glowplug.doctor.document import to_json
from glowplug.doctor.registry import all_rules, manifest_rules
from glowplug.doctor.render import explain, render
from glowplug.doctor.sarif import to_sarif
from tests.doctor.cases_engine import STREAM
from tests.doctor.kube import as_yaml, check, llm, other, service

BAD = llm(*STREAM, "--enforce-eager", image="vllm/vllm-openai", pod={"serviceAccountName": None}, spec={"strategy": None})


@pytest.fixture
def checked():
    ignored = llm(
        "m/x", "-tp=2", gpus=2, name="b", spec={"strategy": None}, metadata={"annotations": {"glowplug.dev/ignore": "GP107: spare"}}
    )
    return check(as_yaml(BAD, ignored, other("example.com/v1", "Thing")) + "---\na: [\n")


def test_text_fits_80_columns_and_names_each_place(checked):
    text = render(checked)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("Deployment/default/llm  (<stdin>)\n") == 1
    assert re.search(r"^  warning GP014  <stdin>:\d+: container vllm: ", text, re.MULTILINE)
    assert "spec.template.spec.containers[0].args" in text
    last = text[text.index("2 objects checked") :].replace("\n", " ")
    assert "warnings" in last
    assert "1 ignored by annotation" in last
    assert "1 passed over (--verbose lists them)" in last


def test_verbose_lists_what_is_not_shown(checked):
    assert "example.com/v1 Thing" not in render(checked)
    text = render(checked, verbose=True)
    assert "passed over example.com/v1 Thing (<stdin>:" in text
    assert "ignored GP107 of Deployment/default/b (<stdin>:" in text
    assert ": spare" in text


def test_nothing_found_is_said_in_one_line():
    assert render(check([llm()])) == "1 object checked: nothing found\n"
    assert render(check([llm(), service()])) == "2 objects checked: nothing found\n"


def test_hostile_text_is_shown_as_escapes():
    evil = "a\x07\u202eb"
    hostile = llm(name=evil, image="x/\u202ey:latest", command=["vllm", "serve", "s3://\u2028evil"])
    for text in (render(check([hostile]), verbose=True), render(check([other("e\u202e.com/v1", "K\u2028")]), verbose=True)):
        assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "\\u202e" in render(check([hostile]))


def test_json_has_all_of_it(checked):
    document = json.loads(json.dumps(to_json(checked)))
    assert document["schema"] == "glowplug.dev/doctor/v1"
    assert document["objects"] == 2
    assert document["counts"]["warning"] == sum(each["severity"] == "warning" for each in document["findings"])
    first = document["findings"][0]
    assert set(first) == {"rule", "severity", "object", "field", "message", "file", "line"}
    assert [each["rule"] for each in document["ignored"]] == ["GP107"]
    assert document["ignored"][0]["reason"] == "spare"
    assert document["passed_over"][0]["kind"] == "example.com/v1 Thing"
    assert document["unreadable"][0]["file"] == "<stdin>"


def test_sarif_is_what_its_schema_asks_for(checked):
    log = json.loads(json.dumps(to_sarif(checked, manifest_rules())))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "glowplug doctor"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", driver["semanticVersion"])
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids)) == len(manifest_rules())
    for rule in driver["rules"]:
        assert set(rule) == {"id", "shortDescription", "fullDescription", "help", "defaultConfiguration"}
        assert all(rule[part]["text"] for part in ("shortDescription", "fullDescription", "help"))
        assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
    assert len(run["results"]) == len(checked.findings) + 1
    for result in run["results"]:
        assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints", "suppressions"}
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"note", "warning", "error"}
        assert result["message"]["text"].startswith("Deployment/default/")
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert re.fullmatch(r"[\w./%~-]+", physical["artifactLocation"]["uri"])
        assert physical["region"]["startLine"] >= 1
        assert location["logicalLocations"][0]["fullyQualifiedName"].startswith("Deployment/default/")
        assert re.fullmatch(r"[0-9a-f]{64}", result["partialFingerprints"]["glowplug/v1"])
    (suppressed,) = [result for result in run["results"] if "suppressions" in result]
    assert suppressed["suppressions"] == [{"kind": "inSource", "justification": "spare"}]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["level"] == "error"


def test_fingerprints_stay_when_lines_move():
    def fingerprints(text):
        results = to_sarif(check(text), manifest_rules())["runs"][0]["results"]
        return [result["partialFingerprints"] for result in results], [
            result["locations"][0]["physicalLocation"]["region"] for result in results
        ]

    text = as_yaml(BAD)
    before, moved = fingerprints(text), fingerprints("# a line more\n" + text)
    assert before[0] == moved[0]
    assert before[1] != moved[1]


@pytest.mark.parametrize("rule", list(all_rules().values()), ids=lambda rule: rule.id)
def test_every_rule_is_explained_in_80_columns(rule):
    text = explain(rule)
    assert text.startswith(f"{rule.id}  ")
    assert all(len(line) <= 80 or "https://" in line for line in text.splitlines())
    assert "Fix: " in text
    for source in rule.sources:
        assert source in text


def test_ignores_work_on_the_object_and_on_its_pod_template():
    for place in ("metadata", "template"):
        given = llm(
            spec={"strategy": None},
            **{place: {"annotations": {"glowplug.dev/ignore": "GP107: one GPU is spare; a second thought"}}},
        )
        checked = check([given])
        assert checked.findings == []
        assert [each.reason for each in checked.suppressed] == ["one GPU is spare; a second thought"]
    other_object = llm(name="b", spec={"strategy": None})
    assert [each.object for each in check([given, other_object]).findings] == ["Deployment/default/b"]
