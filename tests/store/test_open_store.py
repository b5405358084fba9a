"""Which URLs name a store, and what loading one costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from glowplug.errors import UsageError
from glowplug.store import open_store
from tests.store.stub import CREDENTIALS


@pytest.mark.parametrize(
    ("form", "folder"),
    [
        ("file://{}/s", "s"),
        ("file://localhost{}/s", "s"),
        ("{}/s", "s"),
        ("file://{}/s/", "s"),
        ("file://{}/with%20space", "with space"),
        ("{}/with%20space", "with%20space"),
        ("{}/x/../s", "s"),
    ],
)
def test_a_folder_is_a_store(tmp_path, form, folder):
    url = form.format(tmp_path)
    store = open_store(url, env={})
    store.put("k", b"x")
    assert (tmp_path / folder / "k").read_bytes() == b"x"
    assert store.url == url


@pytest.mark.parametrize(
    ("url", "says", "hint"),
    [
        ("", "not the URL", "s3://bucket/prefix"),
        ("cache/store", "not the URL", "/cache/store"),
        ("s3:bucket", "not the URL", "s3://bucket/prefix"),
        ("file://relative/folder", "absolute folder", "file:///"),
        ("file://", "absolute folder", "file:///"),
        ("file:///", "root of the file system", "below it"),
        ("/", "root of the file system", "below it"),
        ("file://~/store", "absolute folder", "file:///"),
        ("s3://", "names no bucket", "s3://bucket/prefix"),
        ("s3:///prefix", "names no bucket", "s3://bucket/prefix"),
        ("s3://b", "can't be a bucket's name", "s3://bucket/prefix"),
        ("s3://bu cket/x", "can't be a bucket's name", "s3://bucket/prefix"),
        ("s3://bucket:9000/x", "can't be a bucket's name", "s3://bucket/prefix"),
        ("s3://bucket/a//b", "prefix", "parts"),
        ("s3://bucket/../b", "prefix", "parts"),
        ("s3://bucket/ü", "prefix", "letters"),
        ("s3://bucket/x?region=eu-west-1", "not part of a store's URL", "AWS_REGION"),
        ("gs://bucket/x", "not supported yet", "s3://bucket/prefix"),
        ("az://container/x", "not supported yet", "s3://bucket/prefix"),
        ("http://host/x", "no scheme http://", "s3://bucket/prefix"),
        ("S3://bucket/x", "no scheme S3://", "s3://bucket/prefix"),
    ],
)
def test_what_names_no_store_is_refused_with_advice(url, says, hint):
    with pytest.raises(UsageError, match=says) as caught:
        open_store(url, env=CREDENTIALS)
    assert hint in caught.value.hint


@pytest.mark.parametrize("url", ["s3://AKIDEXAMPLE:hush@bucket/x", "http://user:hush@host/x", "s3://hush@bucket/x"])
def test_credentials_in_a_url_are_refused_and_never_repeated(url):
    with pytest.raises(UsageError, match="must not hold credentials") as caught:
        open_store(url, env={})
    assert "hush" not in caught.value.line() + caught.value.object


def test_a_slash_at_the_end_makes_no_difference():
    assert open_store("s3://bucket/a/b/", env={})._location == open_store("s3://bucket/a/b", env={})._location
    assert open_store("s3://bucket", env={})._location.prefix == ""


@pytest.mark.parametrize("url", ["file:///nowhere/s", "s3://bucket/x"])
def test_opening_a_store_loads_no_botocore(url):
    code = f"import sys; from glowplug.store import open_store; open_store({url!r}, env={{}}); sys.exit('botocore' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_local_store_loads_nothing_of_s3():
    code = (
        "import sys; from glowplug.store import open_store; open_store('/nowhere/s', env={});"
        "sys.exit(any(name.startswith(('glowplug.store.s3', 'ssl', 'http')) for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
