"""Settings of a fetch: our variables, the Run:ai streamer's, and what is wrong with them; sizes and speeds as people type them."""

from __future__ import annotations

import pytest

from glowplug.errors import UsageError
from glowplug.store.s3_endpoint import ADDRESSING_VARIABLE, UNSIGNED_VARIABLE
from glowplug.units import parse_bandwidth, parse_bytes
from glowplug.weights.fetch.settings import FetchSettings, s3_environment

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * MIB),
        ("2GB", 2_000_000_000),
        ("1.5GiB", 1536 * MIB),
        ("10", 10),
        (" 4 kb ", 4000),
        ("1t", 10**12),
        ("7 bytes", 7),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text, name="--size") == size


@pytest.mark.parametrize("text", ["", "x", "-1", "5 parsecs", "1.2.3", "GB", "1e9"])
def test_what_is_no_size_names_the_option(text):
    with pytest.raises(UsageError, match=r"--size: .* is not a size") as caught:
        parse_bytes(text, name="--size")
    assert caught.value.object == "--size"


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("1GB/s", 10**9),
        ("500MiB/s", 500 * MIB),
        ("10Gbit/s", 1_250_000_000),
        ("10Gbps", 1_250_000_000),
        ("25Gb/s", 3_125_000_000),
        ("100 MBps", 10**8),
        ("100MB", 10**8),
        ("1000", 1000),
        ("1.5 GiB/s", 1536 * MIB),
    ],
)
def test_speeds(text, bytes_per_s):
    assert parse_bandwidth(text, name="--max-bandwidth") == bytes_per_s


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "1GB/h", "7bit/s", "/s"])
def test_what_is_no_speed_names_the_option(text):
    with pytest.raises(UsageError, match=r"--max-bandwidth: .* is not a speed"):
        parse_bandwidth(text, name="--max-bandwidth")


def test_an_empty_environment_gives_the_defaults():
    assert FetchSettings.from_env({}) == FetchSettings()
    assert FetchSettings.from_env({"RUNAI_STREAMER_CONCURRENCY": "", "GLOWPLUG_WEIGHTS_CHUNK_SIZE": " "}) == FetchSettings()


@pytest.mark.parametrize(
    ("env", "field", "value"),
    [
        ({"GLOWPLUG_WEIGHTS_CONCURRENCY": "12"}, "concurrency", 12),
        ({"GLOWPLUG_WEIGHTS_CONCURRENCY": "0"}, "concurrency", None),
        ({"RUNAI_STREAMER_CONCURRENCY": "20"}, "concurrency", 20),
        ({"RUNAI_STREAMER_CONCURRENCY": "20", "RUNAI_STREAMER_OBJ_CONCURRENCY": "6"}, "concurrency", 6),
        ({"RUNAI_STREAMER_CONCURRENCY": "20", "GLOWPLUG_WEIGHTS_CONCURRENCY": "3"}, "concurrency", 3),
        ({"GLOWPLUG_WEIGHTS_MIN_CONCURRENCY": "40"}, "max_concurrency", 40),
        ({"GLOWPLUG_WEIGHTS_MAX_CONCURRENCY": "2"}, "min_concurrency", 2),
        ({"GLOWPLUG_WEIGHTS_CHUNK_SIZE": "16MiB"}, "chunk_bytes", 16 * MIB),
        ({"RUNAI_STREAMER_CHUNK_BYTESIZE": "2097152"}, "chunk_bytes", 2 * MIB),
        ({"RUNAI_STREAMER_S3_REQUEST_TIMEOUT_MS": "2500"}, "low_speed_window_s", 2.5),
        ({"GLOWPLUG_WEIGHTS_LOW_SPEED_WINDOW": "20s"}, "low_speed_window_s", 20.0),
        ({"RUNAI_STREAMER_S3_LOW_SPEED_LIMIT": "1000"}, "low_speed_bytes_per_s", 1000),
        ({"GLOWPLUG_WEIGHTS_LOW_SPEED_LIMIT": "0"}, "low_speed_bytes_per_s", 0),
        ({"RUNAI_STREAMER_S3_MAX_RETRIES": "0"}, "attempts", 1),
        ({"RUNAI_STREAMER_S3_MAX_RETRIES": "9"}, "attempts", 10),
        ({"GLOWPLUG_WEIGHTS_ATTEMPTS": "3"}, "attempts", 3),
        ({"RUNAI_STREAMER_S3_TIMEOUT": "30"}, "range_timeout_s", 30.0),
        ({"RUNAI_STREAMER_S3_TIMEOUT": "0"}, "range_timeout_s", FetchSettings().range_timeout_s),
        ({"GLOWPLUG_MAX_BANDWIDTH": "10Gbit/s"}, "max_bandwidth", 1_250_000_000),
        ({"GLOWPLUG_WEIGHTS_HEDGE": "0"}, "hedge", False),
        ({"RUNAI_STREAMER_MEMORY_LIMIT": "-1"}, "memory", "full"),
        ({"RUNAI_STREAMER_MEMORY_LIMIT": "0"}, "memory", "0"),
        ({"RUNAI_STREAMER_MEMORY_LIMIT": "40000000000"}, "memory", "40000000000"),
        ({}, "memory", "auto"),
        ({"RUNAI_STREAMER_NO_BOTO3_SESSION": "1"}, "concurrency", None),
    ],
)
def test_a_variable_sets_its_field(env, field, value):
    assert getattr(FetchSettings.from_env(env), field) == value


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GLOWPLUG_WEIGHTS_CONCURRENCY", "many"),
        ("GLOWPLUG_WEIGHTS_CONCURRENCY", "-3"),
        ("GLOWPLUG_WEIGHTS_CONCURRENCY", "100000"),
        ("GLOWPLUG_WEIGHTS_MAX_CONCURRENCY", "0"),
        ("GLOWPLUG_WEIGHTS_MIN_CONCURRENCY", "9999"),
        ("GLOWPLUG_MAX_BANDWIDTH", "1"),
        ("RUNAI_STREAMER_CONCURRENCY", "8.5"),
        ("RUNAI_STREAMER_CHUNK_BYTESIZE", "100"),
        ("GLOWPLUG_WEIGHTS_CHUNK_SIZE", "big"),
        ("RUNAI_STREAMER_S3_REQUEST_TIMEOUT_MS", "1s"),
        ("GLOWPLUG_WEIGHTS_RANGE_TIMEOUT", "soon"),
        ("RUNAI_STREAMER_S3_MAX_RETRIES", "-5"),
        ("GLOWPLUG_MAX_BANDWIDTH", "fast"),
        ("GLOWPLUG_WEIGHTS_HEDGE", "maybe"),
        ("RUNAI_STREAMER_MEMORY_LIMIT", "-2"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_variable(variable, value):
    with pytest.raises(UsageError, match=variable) as caught:
        FetchSettings.from_env({variable: value})
    assert caught.value.object == variable
    assert caught.value.hint


def test_overrides_of_none_change_nothing():
    settings = FetchSettings(concurrency=4)
    assert settings.over(concurrency=None, hedge=None) == settings
    assert settings.over(hedge=False).hedge is False
    with pytest.raises(UsageError, match="attempts"):
        settings.over(attempts=0)


@pytest.mark.parametrize(
    ("env", "variable", "value"),
    [
        ({"RUNAI_STREAMER_S3_ENDPOINT": "http://minio:9000"}, "AWS_ENDPOINT_URL_S3", "http://minio:9000"),
        ({"RUNAI_STREAMER_S3_ENDPOINT": "minio:9000"}, "AWS_ENDPOINT_URL_S3", "https://minio:9000"),
        ({"RUNAI_STREAMER_S3_ENDPOINT": "http://a", "AWS_ENDPOINT_URL": "http://b"}, "AWS_ENDPOINT_URL_S3", None),
        ({"RUNAI_STREAMER_S3_ENDPOINT": "http://a", "S3_ENDPOINT": "http://b"}, "AWS_ENDPOINT_URL_S3", "http://b"),
        ({"RUNAI_STREAMER_S3_UNSIGNED": "1"}, UNSIGNED_VARIABLE, "true"),
        ({"RUNAI_STREAMER_S3_UNSIGNED": "0"}, UNSIGNED_VARIABLE, "false"),
        ({"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}, ADDRESSING_VARIABLE, "path"),
        ({"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "1"}, ADDRESSING_VARIABLE, "virtual"),
        ({"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "1", "AWS_ENDPOINT_URL": "http://10.0.0.1:80"}, ADDRESSING_VARIABLE, "auto"),
        ({"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "1", ADDRESSING_VARIABLE: "path"}, ADDRESSING_VARIABLE, "path"),
    ],
)
def test_the_streamers_words_for_the_server_are_understood(env, variable, value):
    assert s3_environment(env).get(variable) == value


def test_a_switch_that_is_none_names_its_variable():
    with pytest.raises(UsageError, match="RUNAI_STREAMER_S3_UNSIGNED"):
        s3_environment({"RUNAI_STREAMER_S3_UNSIGNED": "perhaps"})
