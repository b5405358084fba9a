"""Writing the folder: over an older one, beside other things, twice at once, and where it can't be done."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from glowplug.errors import LocalError, UsageError
from glowplug.inject.folder import inject
from tests.inject.conftest import start


def launch(folder, *words):
    return [str(folder / "bin" / "glowplug"), *words]


def test_an_injected_folder_copies_itself_and_a_second_time_changes_nothing(injected, tmp_path):
    first = start(injected, "inject", str(tmp_path / "copy"), "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["payload"] == next(injected.glob("payload-*")).name
    again = start(tmp_path / "copy", "inject", str(tmp_path / "copy"), "--json")
    assert json.loads(again.stdout)["unchanged"]
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [
        "bin",
        "glowplug.json",
        next(injected.glob("payload-*")).name,
    ]
    assert start(tmp_path / "copy", "keys", "show").returncode == 0


def test_two_at_once_end_with_one_that_works(injected, tmp_path):
    command = launch(injected, "inject", str(tmp_path / "both"))
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    errors = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], errors
    assert len(list((tmp_path / "both").glob("payload-*"))) == 1
    assert start(tmp_path / "both", "keys", "show").returncode == 0


def test_the_previous_payload_stays_until_the_next(injected, tmp_path):
    folder = tmp_path / "volume"
    for name in ("payload-oldest", "payload-previous"):
        (folder / name).mkdir(parents=True)
    (folder / "glowplug.json").write_text(json.dumps({"schema": "glowplug.dev/inject/v1", "payload": "payload-previous"}))
    (folder / ".glowplug-half.tmp").mkdir()
    assert start(injected, "inject", str(folder)).returncode == 0
    names = {path.name for path in folder.iterdir()}
    assert "payload-previous" in names, "somebody may be running from it"
    assert "payload-oldest" not in names
    assert ".glowplug-half.tmp" in names, "it may be another inject at work"


def test_a_folder_with_something_else_in_it_is_refused(injected, tmp_path):
    (tmp_path / "precious.txt").touch()
    with pytest.raises(UsageError, match=r"precious\.txt") as caught:
        inject(tmp_path)
    assert "--force" in caught.value.hint
    assert start(injected, "inject", str(tmp_path), "--force").returncode == 0
    assert (tmp_path / "precious.txt").exists()
    assert start(tmp_path, "keys", "show").returncode == 0


def test_an_environments_own_command_is_never_replaced(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "glowplug").write_text("#!/usr/bin/env python")
    with pytest.raises(UsageError, match="bin/glowplug that inject did not write"):
        inject(tmp_path, force=True)


def test_a_fresh_volume_with_lost_and_found_is_empty(injected, tmp_path):
    (tmp_path / "lost+found").mkdir()
    assert start(injected, "inject", str(tmp_path)).returncode == 0


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        inject(tmp_path / "file")


def test_a_folder_that_cannot_be_written_is_named():
    with pytest.raises(LocalError, match="/proc/glowplug") as caught:
        inject(Path("/proc/glowplug"))
    assert caught.value.object == "/proc/glowplug"


def test_when_writing_fails_half_way_nothing_is_left(tmp_path):
    # A limit on a file's size stands for a full disk: the first write beyond it fails.
    code = """
import resource, sys
from pathlib import Path
from glowplug.errors import LocalError
from glowplug.inject.folder import inject
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    inject(Path(sys.argv[1]))
except LocalError as error:
    print(error.message)
"""
    command = [sys.executable, "-B", "-c", code, str(tmp_path)]  # it would cut off bytecode as well
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_python_that_does_not_fit_or_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="does not run as a Python"):
        inject(tmp_path / "a", python=tmp_path / "no-python")
    fake = tmp_path / "python3"
    fake.write_text(
        "#!/bin/sh\n"
        'echo \'{"implementation":"cpython","version":[3,9,0],"soabi":"cpython-39-x","magic":"00","cache_tag":"cpython-39",'
        '"platlibdir":"lib","stdlib":"/usr/lib/python3.9","executable":"/bin/sh"}\'\n'
    )
    fake.chmod(0o755)
    with pytest.raises(UsageError, match="is cpython-39-x, and the packages here are built for") as caught:
        inject(tmp_path / "b", python=fake)
    assert caught.value.object == str(fake)


def test_an_injected_folder_does_not_take_another_python(injected, tmp_path):
    done = start(injected, "inject", str(tmp_path / "x"), "--python", "none")
    assert done.returncode == 2
    assert "copies itself" in done.stderr
