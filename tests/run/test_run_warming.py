"""A local checkpoint is read into the page cache while the engine starts, and never in its way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from glowplug.run.warming import lies_in_memory
from glowplug.weights.sources.page_cache import resident_bytes
from tests.weights.weights_samples import write_checkpoint


@pytest.fixture
def engine(vllm):
    """``vllm serve`` of a local checkpoint of some megabytes."""
    words = list(vllm)
    write_checkpoint(Path(words[2]), files=2, tensors=4, elements=(400_000, 500_000))
    return words


def in_cache(folder):
    files = sorted(Path(folder).glob("*.safetensors"))
    return sum(_resident(path) for path in files), sum(path.stat().st_size for path in files)


def _resident(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return resident_bytes(descriptor, 0, os.fstat(descriptor).st_size) or 0
    finally:
        os.close(descriptor)


def push_out(folder):
    for path in Path(folder).glob("*.safetensors"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    if in_cache(folder)[0]:
        pytest.skip("this file system keeps its files in memory")


def concluded(glowplug, engine, *options):
    with glowplug.begin(*engine, options=["--no-publish", *options], env={"COMPILE_S": "0.5"}) as start:
        start.wait_for("nothing was published")
        start.signal(signal.SIGTERM)
        return start.end()


def test_the_files_lie_in_the_page_cache_when_the_engine_is_ready(glowplug, engine):
    push_out(engine[2])
    ended = concluded(glowplug, engine)
    there, size = in_cache(engine[2])
    assert there > 0.9 * size
    report = ended.report["weights"]
    assert (report["uri"], report["mode"]) == (engine[2], "page cache")
    assert 0 < report["bytes"] <= size
    assert "read ahead of the engine" in ended.err


def test_the_command_of_a_local_model_stays_as_it_is(glowplug, engine):
    ended = concluded(glowplug, engine)
    assert b'"--load-format"' not in ended.out
    assert b"plugin" not in ended.out


def test_no_weights_reads_nothing(glowplug, engine):
    push_out(engine[2])
    ended = concluded(glowplug, engine, "--no-weights")
    there, size = in_cache(engine[2])
    assert there < 0.1 * size  # headers, which the envelope is made of
    assert ended.report["weights"] is None


def test_a_folder_without_safetensors_is_the_engines_business(glowplug, engine):
    for path in Path(engine[2]).glob("*.safetensors"):
        path.rename(path.with_suffix(".bin"))
    ended = concluded(glowplug, engine)
    assert ended.report["weights"] is None
    assert not ended.said("weights")


def test_a_file_system_in_memory_is_recognised(tmp_path):
    mounts = tmp_path / "mountinfo"
    device = os.stat(tmp_path).st_dev
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /tmp rw,nosuid shared:1 - KIND /dev/x rw\n"
    mounts.write_text(line.replace("KIND", "tmpfs"))
    assert lies_in_memory(str(tmp_path), mounts=str(mounts))
    mounts.write_text(line.replace("KIND", "ext4"))
    assert not lies_in_memory(str(tmp_path), mounts=str(mounts))
    assert not lies_in_memory("/no/such/file", mounts=str(mounts))
    assert not lies_in_memory(str(tmp_path), mounts="/no/such/file")
