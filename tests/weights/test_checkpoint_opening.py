"""What opening a checkpoint costs: few requests, at once, and nothing that is not needed is loaded."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from weights_samples import write_checkpoint, write_safetensors

import glowplug.weights
from glowplug.errors import BadCheckpoint, Unreachable
from glowplug.weights.checkpoint.opening import open_checkpoint
from glowplug.weights.sources.local import LocalSource


class Watched(LocalSource):
    """Local files, with a look at each request, as a distant store would get it."""

    def __init__(self, path, before=lambda _: None):
        super().__init__(path)
        self.requests = []
        self._before = before

    @property
    def is_local(self):
        return False

    def read_small(self, entry, start, size_bytes):
        self.requests.append((entry.name, start, size_bytes))
        self._before(entry.name)
        return super().read_small(entry, start, size_bytes)


def test_each_file_costs_one_request_and_the_index_one(tmp_path):
    write_checkpoint(tmp_path, files=5)
    source = Watched(tmp_path)
    open_checkpoint(source)
    assert sorted(name for name, _, _ in source.requests) == sorted(
        ["model.safetensors.index.json", *(f"model-0000{number}-of-00005.safetensors" for number in range(1, 6))]
    )


def test_a_long_header_costs_a_second_request_for_the_rest(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", {f"{'x' * 300}{number}": ("U8", (1,), b"1") for number in range(2000)})
    source = Watched(tmp_path)
    checkpoint = open_checkpoint(source)
    (_, first, first_bytes), (_, second, second_bytes) = source.requests
    assert (first, second) == (0, first_bytes)
    assert first_bytes + second_bytes == checkpoint.files[0].data_start


def test_a_header_that_can_not_be_costs_no_second_request(tmp_path):
    (tmp_path / "m.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + bytes(1 << 20))
    source = Watched(tmp_path)
    with pytest.raises(BadCheckpoint):
        open_checkpoint(source)
    assert len(source.requests) == 1


def test_an_empty_file_costs_no_request_at_all(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"")
    source = Watched(tmp_path)
    with pytest.raises(BadCheckpoint, match="it has 0 bytes"):
        open_checkpoint(source)
    assert source.requests == []


def test_headers_are_read_at_once(tmp_path):
    write_checkpoint(tmp_path, files=6, index=False)
    all_at_once = threading.Barrier(6, timeout=60)
    checkpoint = open_checkpoint(Watched(tmp_path, lambda _: all_at_once.wait()))
    assert len(checkpoint.files) == 6


def test_a_store_that_fails_ends_it_with_the_stores_error(tmp_path):
    write_checkpoint(tmp_path, files=6, index=False)

    def fail(name):
        if "00004" in name:
            raise Unreachable("the store is away", object=name, hint="try again")

    with pytest.raises(Unreachable, match="the store is away"):
        open_checkpoint(Watched(tmp_path, fail))


def test_the_package_loads_none_of_its_parts():
    code = (
        "import sys, glowplug.weights; before = set(sys.modules);"
        "assert not [name for name in before if name.startswith('glowplug.weights.')], before;"
        "assert callable(glowplug.weights.open)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_local_checkpoint_needs_no_network_library_and_no_torch(tmp_path):
    write_checkpoint(tmp_path)
    code = (
        "import sys, glowplug.weights; glowplug.weights.open(sys.argv[1]);"
        "assert not {'botocore', 'http.client', 'ssl', 'torch', 'typer'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)


def test_a_word_that_the_package_does_not_have_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        glowplug.weights.close  # noqa: B018
