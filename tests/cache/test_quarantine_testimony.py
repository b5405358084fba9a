"""Testimony: bounded, scrubbed, readable again; and nothing of what anybody may have put in its place is believed or printed."""

from __future__ import annotations

import json

import pytest
from cache_samples import DIGEST

from glowplug.cache import layout
from glowplug.cache.quarantine import testimony as evidence
from glowplug.cache.quarantine.scrub import MAX_LINE_CHARACTERS, MAX_LINES, plain, scrub
from glowplug.cache.quarantine.testimony import MAX_BYTES, SCHEMA
from glowplug.cache.secrets import SecretScan
from glowplug.errors import IntegrityError

GENERATION, NODE = "1" * 64, "a" * 16
KEY = layout.report_key("pods", DIGEST, GENERATION, NODE)
GOOD = {"schema": SCHEMA, "envelope": DIGEST, "generation": GENERATION, "kind": "died", "node": NODE, "reader": "pods", "at": "now"}


def written(**more):
    return evidence.Testimony(
        envelope=DIGEST, generation=GENERATION, kind="died", node=NODE, reader="pods", at="2026-01-01T00:00:00Z", **more
    )


def test_it_is_read_as_it_was_written():
    said = written(
        reason="it died", engine="vllm", engine_version="0.32.0", exit_code=139, signal=11, seconds=3.25, lines=("one", "two")
    )
    assert said.key == KEY
    assert evidence.Testimony.parse(said.document, name=KEY) == said


def test_a_long_one_loses_its_oldest_lines_and_is_never_too_long():
    said = written(lines=tuple(f"{number} " + "ü" * 1000 for number in range(100)))
    assert len(said.document) <= MAX_BYTES
    kept = evidence.Testimony.parse(said.document, name=KEY).lines
    assert kept[-1].startswith("99 ")
    assert len(kept) <= MAX_LINES


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 100_000,
        b"\xff\xfe",
        b'"text"',
        b"9" * 10_000,
        b" " * (MAX_BYTES + 1) + b"{}",
        *(
            json.dumps(GOOD | change).encode()
            for change in (
                {"schema": "glowplug.dev/evidence/v2"},
                {"kind": "murdered"},
                {"kind": ["died"]},
                {"envelope": "../../x"},
                {"generation": "2" * 64},  # it says that it lies elsewhere
                {"node": 7},
                {"node": "a" * 15},
                {"reader": "another"},
                {"reader": "../x"},
            )
        ),
    ],
    ids=range(17),
)
def test_what_is_no_testimony_is_refused(document):
    with pytest.raises(IntegrityError, match=r"evidence|elsewhere") as caught:
        evidence.Testimony.parse(document, name=KEY)
    assert caught.value.line().isprintable()


def test_members_of_other_types_are_dropped_and_text_is_made_harmless():
    strange = GOOD | {
        "at": "\x1b]0;owned\x07",
        "reason": "a\r\nb\x1b[2J\u202ec" + "x" * 10_000,
        "engine": ["vllm"],
        "exit_code": 10**30,
        "signal": True,
        "seconds": -1,
        "lines": ["fine", 7, {"a": 1}, "\x00\x1b[31mred"],
        "more": "than we know",
    }
    found = evidence.Testimony.parse(json.dumps(strange).encode(), name=KEY)
    assert (found.engine, found.exit_code, found.signal, found.seconds) == ("", None, None, None)
    assert all(text.isprintable() for text in (found.at, found.reason, *found.lines))
    assert found.lines == ("fine", "", "", "red")
    assert len(found.reason) <= 400
    not_finite = json.dumps(GOOD).replace('"now"', '"now", "seconds": NaN').encode()
    assert evidence.Testimony.parse(not_finite, name=KEY).seconds is None


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("using hunter2hunter2 now", "hunter2hunter2"),
        ("token hf_" + "a" * 34, "hf_aaaa"),
        ("key AKIAABCDEFGHIJKLMNOP", "AKIAABCD"),
        ("non-default args: {'api_key': ['sk-12345'], 'port': 8000}", "sk-12345"),
        ("vllm serve m --api-key sk-12345 --port 8000", "sk-12345"),
        ("GET https://user:pass@host/x", "user:pass"),
        ("Authorization: Bearer abcdefgh.ijkl", "abcdefgh"),
        ("https://b.s3.amazonaws.com/k?X-Amz-Credential=AK/2026&X-Amz-Signature=0123abcd", "0123abcd"),
        ('{"password": "correct horse"}', "correct"),
    ],
)
def test_secrets_of_any_kind_do_not_leave_the_pod(line, secret):
    scan = SecretScan({"MY_PASSWORD": "hunter2hunter2"})
    scrubbed = scrub([line], scan)
    assert secret not in " ".join(scrubbed)
    assert scrubbed != ("",)


def test_a_key_over_several_lines_and_a_value_that_is_broken_are_withheld():
    scan = SecretScan({"MY_PASSWORD": "hunter2hunter2"})
    body = "MC4CAQAwBQYDK2VwBCIEIJ"
    key = ["before", "-----BEGIN PRIVATE KEY-----", body, "-----END PRIVATE KEY-----", "after"]
    scrubbed = scrub(key, scan)
    assert body not in " ".join(scrubbed)
    assert (scrubbed[0], scrubbed[-1]) == ("before", "after")
    assert "hunter2" not in " ".join(scrub(["hunter2", "hunter2"], scan))


def test_what_helps_stays():
    lines = ["RuntimeError: CUDA error: an illegal memory access", "max_num_batched_tokens=8192", "took 12.5 s, exit code 139"]
    assert scrub(lines, SecretScan({})) == tuple(lines)
    assert len(scrub([str(number) for number in range(500)], SecretScan({}))) == MAX_LINES
    assert len(plain("x" * 10_000)) == MAX_LINE_CHARACTERS
