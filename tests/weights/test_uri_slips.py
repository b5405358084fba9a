"""URIs as people mistype them, and folders one level too high: the hint says what to write."""

from __future__ import annotations

import pytest
from weights_samples import write_checkpoint

from glowplug import weights
from glowplug.errors import IncompatibleError, ObjectNotFound, UsageError
from glowplug.weights.sources.open import open_source


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("s3:/bucket/x", "s3://bucket/x"),
        ("s3:bucket/x", "s3://bucket/x"),
        ("S3//bucket/x", "s3://bucket/x"),
        ("https:/host/x", "https://host/x"),
    ],
)
def test_a_slip_in_the_scheme_is_hinted_at(typed, meant):
    with pytest.raises(UsageError) as caught:
        open_source(typed, env={})
    assert caught.value.hint == f"did you mean {meant}"


def test_a_slip_shows_no_password():
    with pytest.raises(UsageError) as caught:
        open_source("https:/me:hunter2@host/x", env={})
    assert "hunter2" not in caught.value.line()


def test_a_folder_with_such_a_name_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "s3:" / "model")
    assert weights.open("s3:/model").files


def test_a_path_that_is_not_there_is_called_a_path(tmp_path):
    with pytest.raises(ObjectNotFound, match="there is no file or folder") as caught:
        weights.open(str(tmp_path / "none"))
    assert caught.value.hint == "check the path"


def test_a_folder_of_models_is_told_to_name_one(tmp_path):
    write_checkpoint(tmp_path / "b-model")
    write_checkpoint(tmp_path / "a-model")
    with pytest.raises(IncompatibleError) as caught:
        weights.open(f"{tmp_path}/")
    assert caught.value.hint == f"name the folder of one model, such as {tmp_path}/a-model"


@pytest.mark.parametrize("uri", ["s3://bucket/m", "https://host/m", "/m"])
def test_a_way_of_reading_that_is_unknown_is_an_error_for_every_source(uri):
    with pytest.raises(UsageError, match="GLOWPLUG_WEIGHTS_DIRECT: 'banana'") as caught:
        open_source(uri, env={"GLOWPLUG_WEIGHTS_DIRECT": "banana"})
    assert "auto, always or never" in caught.value.hint
