"""What is wrong with the command line or the environment is said, names its object, exits 2, and starts nothing."""

from __future__ import annotations

import pytest

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--nope"], ["--nope"]),
        (["--restore-deadline", "soon"], ["--restore-deadline: 'soon' is not a duration", "write 30s"]),
        (["--restore-deadline", "0s"], ["--restore-deadline must be longer than 0 s"]),
        (["--wait", "soon"], ["--wait: 'soon' is not a duration", "write 30s"]),
        (["--settle", "3 weeks"], ["--settle: '3 weeks' is not a duration"]),
        (["--engine", "nope"], ["--engine nope: no such engine", "choose one of vllm, generic"]),
        (["--engine", "vllm"], ["--engine vllm: `touch` does not start it"]),
        (["--store", "ftp://host/x"], ["ftp"]),
        (["--store", "gs://bucket/x"], ["gs:// is not supported yet"]),
        (["--store", "file://relative"], ["file://relative"]),
        (["--store", "store"], ["'store' is not the URL of a store"]),
        (["--store", f"s3://me:{SECRET}@bucket/x"], ["a store's URL must not hold credentials", "AWS_ACCESS_KEY_ID"]),
        (["--role", "writer", "--signing-key", "/no/such.key"], ["--role writer", "/no/such.key", "--signing-key"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else None,
)
def test_a_wrong_option_is_named_and_nothing_starts(glowplug, tmp_path, options, says):
    ended = glowplug.run("touch", f"{tmp_path}/started", options=options)
    refused(ended, says, tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GLOWPLUG_RESTORE_DEADLINE", "soon"),
        ("GLOWPLUG_PUBLISH", "perhaps"),
        ("GLOWPLUG_CACHE", "perhaps"),
        ("GLOWPLUG_ENGINE", "nope"),
    ],
)
def test_a_wrong_variable_is_named_and_nothing_starts(glowplug, tmp_path, name, value):
    ended = glowplug.run("touch", f"{tmp_path}/started", env={name: value})
    refused(ended, [name if value == "perhaps" else value], tmp_path)


def test_a_wrong_store_in_the_environment_is_refused(glowplug, tmp_path):
    ended = glowplug("run", "--", "touch", f"{tmp_path}/started", env={"GLOWPLUG_STORE": "nonsense://x"})
    refused(ended, ["nonsense"], tmp_path)


def test_an_empty_variable_is_as_good_as_none(glowplug):
    empty = dict.fromkeys(
        ("STORE", "CACHE_DIR", "REPORT", "ENGINE", "RESTORE_DEADLINE", "SIGNING_KEY", "TRUSTED_KEYS", "QUIET"), ""
    )
    assert glowplug("run", "--", "true", env={f"GLOWPLUG_{name}": value for name, value in empty.items()}).code == 0


def test_vllms_configuration_file_that_does_not_exist_is_named(glowplug, vllm):
    ended = glowplug.run(*vllm, "--config", "/no/such.yaml")
    assert ended.code == 2
    assert "/no/such.yaml" in ended.err
    assert "Starting to load" not in ended.err


@pytest.mark.parametrize("words", [["run"], ["run", "--"], ["run", "--quiet", "--"]])
def test_without_a_command_an_example_is_given(glowplug, words):
    ended = glowplug(*words)
    assert ended.code == 2
    assert "no command to run" in ended.err
    assert "glowplug run -- vllm serve MODEL" in ended.err


def refused(ended, says, folder):
    assert ended.code == 2, ended
    for text in says:
        assert text in ended.err
    assert "Traceback" not in ended.err
    assert SECRET not in ended.err
    assert not (folder / "started").exists()
    assert ended.report is None
    assert not (folder / "store").exists()
