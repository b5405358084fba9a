"""What the program really asks of S3 against the policy files: each request is allowed, and nothing is allowed in vain."""

from __future__ import annotations

import json
import os

import pytest

from glowplug.cache.keyring import load_signer, load_trust
from tests.security import policies
from tests.security.conftest import ROLES, STORE
from tests.security.policies import READER
from tests.trust.test_kms import kms
from tests.weights.weights_samples import write_checkpoint

__all__ = ["kms"]  # a fixture

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def used():
    """By role: the calls of all tests of this module."""
    return {role: [] for role in ROLES}


@pytest.fixture
def judge(recorder, guarded, used):
    """Takes the calls since the last time, and holds them to the policies of those who made them."""
    roles = {identity.access_key: name for name, identity in guarded.identities.items() if name in ROLES}
    bucket_policy = policies.parse(policies.text("bucket-conditional-writes"))

    def take(role):
        calls = recorder.take()
        assert calls
        assert {roles[call.who] for call in calls} == {role}
        used[role] += calls
        policy = policies.parse(ROLES[role])
        beyond = [str(call) for call in calls if not policy.allows(call.action, call.resource, call.context)]
        assert not beyond, "\n".join(beyond)
        refused = [str(call) for call in calls if bucket_policy.refuses(call.action, call.resource, call.context)]
        assert not refused, "\n".join(refused)
        assert not [str(call) for call in calls if call.status == 403]  # the real server is of the same mind
        return calls

    recorder.take()
    return take


def run(program, *command, **rest):
    ended = program.run(*command, options=["--store", STORE], **rest)
    assert ended.code == 0, ended.err
    return ended


LARGE = {"BYTES": str(24_000_000)}  # four of these, of random bytes: a pack that goes up in parts


def test_a_writer_that_misses_publishes_and_hits_needs_no_more_than_its_policy(judge, machine, keys, compiler):
    writer = machine("writer", **keys["signs"])
    assert run(writer, *compiler).report["publish"]["state"] == "published"
    judge("writer")
    writer.forget()
    assert run(writer, *compiler).report["outcome"] == "hit"
    calls = judge("writer")
    assert not [call for call in calls if call.action == "s3:DeleteObject"]


def test_a_large_pack_goes_up_in_parts_and_a_part_that_is_refused_ends_the_upload(judge, machine, keys, compiler, recorder):
    writer = machine("writer", **keys["signs"])
    recorder.before = lambda _, path: "partNumber=3" in path
    try:
        ended = run(writer, *compiler, "refused", env=LARGE)
    finally:
        recorder.before = None
    assert ended.report["publish"]["state"] == "failed"
    calls = judge("writer")
    assert [call for call in calls if call.action == "s3:AbortMultipartUpload"]


def test_a_reader_asks_for_nothing_but_what_it_reads(judge, machine, keys, compiler):
    run(machine("writer", **keys["signs"]), *compiler, "read")
    judge("writer")
    reader = machine("reader", **keys["trusts"])
    assert run(reader, *compiler, "read").report["outcome"] == "hit"
    assert run(reader, *compiler, "never-published").report["outcome"] == "miss"
    assert {call.action for call in judge("reader")} == {"s3:GetObject", "s3:ListBucket"}


def test_evidence_and_verdicts_need_no_more_than_the_policies(judge, machine, keys, poisoned):
    run(machine("writer", **keys["signs"]), *poisoned)
    judge("writer")
    run(machine("reader", GLOWPLUG_REPORTS_AS=READER, GLOWPLUG_NODE_NAME="node-1", **keys["trusts"]), *poisoned)
    assert [call for call in judge("reader") if call.action == "s3:PutObject" and "/v1/reports/" in call.resource]
    run(machine("writer", GLOWPLUG_REPORTS_AS=READER, GLOWPLUG_NODE_NAME="node-2", **keys["signs"]), *poisoned)
    assert [call for call in judge("writer") if call.action == "s3:PutObject" and "/quarantine/" in call.resource]


@pytest.mark.parametrize("role", ["reader", "writer", "janitor"])
def test_whoever_looks_into_the_store_needs_no_more_than_to_read_and_list(judge, machine, keys, compiler, role):
    run(machine("writer", **keys["signs"]), *compiler, "look")
    judge("writer")
    program = machine(role, **keys["trusts"])
    envelope = json.loads(program("cache", "ls", "--json").out)[0]["envelope"]
    assert program("cache", "show", envelope).code == 0
    assert program("cache", "verify").code == 0
    assert program("cache", "explain", "--", *compiler).code in {0, 1}
    assert {call.action for call in judge(role)} == {"s3:GetObject", "s3:ListBucket"}


def test_a_janitor_removes_what_is_old_condemns_what_two_nodes_reported_and_empties_the_store(
    judge, machine, keys, poisoned, shelf
):
    writer = machine("writer", **keys["signs"])
    run(writer, *poisoned)
    [pointer] = [info.key for info in shelf.list("v1/") if info.key.endswith("/latest")]
    shelf.delete(pointer)
    writer.forget()
    assert run(writer, *poisoned).report["publish"]["state"] == "published"
    judge("writer")
    collect = ("cache", "gc", "--min-age", "0s", "--delete", "--json")
    ended = machine("janitor", **keys["trusts"])(*collect, "--keep", "1")
    removed = [each["kind"] for each in json.loads(ended.out)["objects"]]
    assert (ended.code, sorted(removed)) == (0, ["generation", "pack"]), ended.err
    judge("janitor")
    for node in ("node-1", "node-2"):
        run(machine("reader", GLOWPLUG_REPORTS_AS=READER, GLOWPLUG_NODE_NAME=node, **keys["trusts"]), *poisoned)
        judge("reader")
    janitor = machine("janitor", **keys["trusts"])
    assert len(json.loads(janitor(*collect).out)["condemned"]) == 1
    for words in ([], ["--lift"]):
        assert janitor("cache", "quarantine", pointer.split("/")[1], *words).code == 0
    for _ in range(2):  # a pointer that names nothing goes the second time
        ended = janitor(*collect, "--max-age", "0s")
        assert (ended.code, ended.err) == (0, "")
    judge("janitor")
    assert {info.key for info in shelf.list("")} <= {"v1/clock"}


@pytest.fixture
def model(tmp_path):
    """A checkpoint of one file that goes up in five parts."""
    folder = tmp_path / "model"
    write_checkpoint(folder, files=1, tensors=1, elements=(18_000_000, 18_000_000))
    return folder


MODEL = f"s3://{policies.BUCKET}/{policies.MODELS_PREFIX}/m"


def test_weights_are_pushed_sealed_and_pushed_again_with_the_pushers_policy(judge, machine, keys, model, recorder):
    pusher = machine("pusher", **keys["signs"])
    recorder.before = lambda _, path: "partNumber=3" in path
    assert pusher("weights", "push", str(model), MODEL).code not in {0, 2}
    recorder.before = None
    ended = pusher("weights", "push", str(model), MODEL, "--seal")
    assert ended.code == 0, ended.err
    ended = pusher("weights", "seal", MODEL)
    assert ended.code == 0, ended.err
    actions = {call.action for call in judge("pusher")}
    assert {"s3:ListBucketMultipartUploads", "s3:ListMultipartUploadParts", "s3:DeleteObject"} <= actions
    weights = next(iter(model.glob("*.safetensors")))
    other = bytearray(weights.read_bytes())
    other[-1] ^= 1
    weights.write_bytes(other)
    recorder.before = lambda _, path: "partNumber=" in path and os.truncate(weights, 1_000_000)
    assert pusher("weights", "push", str(model), MODEL, "--force").code not in {0, 2}
    recorder.before = None
    weights.write_bytes(other)
    assert pusher("weights", "push", str(model), MODEL, "--force").code == 0
    assert "s3:AbortMultipartUpload" in {call.action for call in judge("pusher")}


def test_whoever_loads_weights_needs_no_more_than_to_read_and_list(judge, machine, keys, model, guarded, tmp_path):
    admin = machine("admin", **keys["signs"] | {"AWS_ENDPOINT_URL": guarded.endpoint_url})
    place = f"{MODEL}-to-load"
    assert admin("weights", "push", str(model), place, "--seal").code == 0
    streamer = machine("streamer", **keys["trusts"])
    for words in (["inspect", place], ["stream", place], ["pull", place, str(tmp_path / "pulled")], ["seal", place, "--check"]):
        ended = streamer("weights", *words)
        assert ended.code == 0, ended.err
    assert {call.action for call in judge("streamer")} == {"s3:GetObject", "s3:ListBucket"}


@pytest.mark.parametrize("role", [role for role in ROLES if role != "mute"])
def test_no_policy_allows_what_no_command_has_used(used, role):
    """Runs after the others, and means something only if they all ran."""
    if not all(used[each] for each in ROLES if each != "mute"):
        pytest.skip("not all commands were recorded")
    for statement in policies.parse(ROLES[role]).statements:
        for action in statement.actions:
            for resource in statement.resources:
                calls = [call for call in used[role] if statement.covers(call.action, call.resource, call.context)]
                only = [call for call in calls if call.action == action and policies.matches(call.resource, resource)]
                assert only, f"{role}: {statement.name}: nobody used {action} on {resource}"


def test_a_namespace_reports_under_its_own_name_only():
    document = policies.text("cache-reader-eks").replace("${aws:PrincipalTag/kubernetes-namespace}", "team-a")
    policy = policies.parse(document)
    reports = f"arn:aws:s3:::{policies.BUCKET}/{policies.PREFIX}/v1/reports"
    assert policy.allows("s3:PutObject", f"{reports}/team-a/e/g/n.json")
    assert not policy.allows("s3:PutObject", f"{reports}/team-b/e/g/n.json")
    plain = policies.parse(policies.text("cache-reader"))
    assert [each for each in policy.statements if each.actions != ("s3:PutObject",)] == [
        each for each in plain.statements if each.actions != ("s3:PutObject",)
    ]


def test_a_publisher_whose_key_is_in_kms_signs_and_reads_the_public_half(kms):
    signer = load_signer({"GLOWPLUG_SIGNING_KEY": policies.KEY_ARN})
    document = signer.sign(b"payload")
    signs, trusts = policies.parse(policies.text("signing-key")), policies.parse(policies.text("trusted-key"))
    asked = {target.replace("TrentService.", "kms:") for target, _, _ in kms.requests}
    assert asked == {action for statement in signs.statements for action in statement.actions}
    assert signs.allows("kms:Sign", policies.KEY_ARN, {"kms:SigningAlgorithm": "ECDSA_SHA_256", "kms:MessageType": "DIGEST"})
    assert not signs.allows("kms:Sign", policies.KEY_ARN, {"kms:SigningAlgorithm": "ECDSA_SHA_256", "kms:MessageType": "RAW"})
    kms.requests.clear()
    assert load_trust({"GLOWPLUG_TRUSTED_KEYS": policies.KEY_ARN}).verify(document) == b"payload"
    asked = {target.replace("TrentService.", "kms:") for target, _, _ in kms.requests}
    assert asked == {action for statement in trusts.statements for action in statement.actions}


def test_the_bucket_policy_takes_no_write_to_pointer_or_generation_without_a_condition():
    policy = policies.parse(policies.text("bucket-conditional-writes"))
    root = f"arn:aws:s3:::{policies.BUCKET}/{policies.PREFIX}/v1/{'a' * 64}"
    for name, context in ((f"{root}/latest", {"s3:if-match": "x"}), (f"{root}/generations/g.json", {"s3:if-none-match": "*"})):
        assert policy.refuses("s3:PutObject", name)
        assert not policy.refuses("s3:PutObject", name, context)
    assert policy.refuses("s3:PutObject", f"{root}/generations/g.json", {"s3:if-match": "x"})
    assert not policy.refuses("s3:PutObject", f"{root}/packs/p.tar.zst")
