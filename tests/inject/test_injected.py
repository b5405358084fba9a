"""The folder at work: in another place, with an empty environment, beside an engine of another Python."""

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import time

import pytest

import glowplug
from glowplug.inject.interpreter import belongs_to_glibc
from glowplug.inject.launcher import found
from tests.inject.conftest import start

RUN = ("run", "--no-cache", "--quiet", "--")


def test_it_runs_where_it_was_moved_to_with_an_empty_environment(injected):
    done = start(injected, "keys", "show", "--json", env={"HOME": "/nonexistent"}, cwd="/")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["signs"] is None


def test_it_carries_its_own_python_and_loads_nothing_else_from_this_system(injected, written):
    assert written.facts.python == platform.python_version(), written.facts.reason
    payload = injected / written.payload
    python = [written.facts.loader, "--library-path", f"{payload}/lib", f"{payload}/python/bin/{written.facts.python_name}"]
    script = f"{payload}/site/glowplug/inject/completeness.py"
    whole = [*python, "-I", "-S", "-B", script, str(payload)]
    foreign = json.loads(subprocess.run(whole, env={}, capture_output=True, text=True, check=True).stdout)
    assert [path for path in foreign if not belongs_to_glibc(path)] == []
    assert foreign, "glibc itself is this system's"


def test_the_engines_environment_is_the_one_that_was_given(injected):
    given = {
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
        "PYTHONPATH": "/bad",
        "PYTHONHOME": "/bad",
        "LC_CTYPE": "C",
        "home": "mine",
        "run": "mine",
        "python": "mine",
        "PWD": "/",
    }
    done = start(injected, *RUN, "/usr/bin/env", env=given, cwd="/")
    assert done.returncode == 0, done.stderr
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {name: value for name, value in seen.items() if name not in {"_", "SHLVL", "OLDPWD"}} == {
        "PATH": "/usr/bin:/bin",
        **given,
    }


def test_nothing_about_python_or_the_loader_is_added(injected):
    done = start(injected, *RUN, "/usr/bin/env")
    assert not [line for line in done.stdout.splitlines() if line.startswith(("PYTHON", "LD_", "LC_", "GLOWPLUG"))]


def _other_python():
    names = [f"python3.{minor}" for minor in range(8, 20) if minor != sys.version_info.minor]
    for path in filter(None, map(shutil.which, names)):
        try:
            code = "import os, sys; print(os.path.realpath(sys.executable))"
            return subprocess.run([path, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        except subprocess.SubprocessError:  # a version manager's stand-in for a version that isn't installed
            continue
    return None


@pytest.mark.skipif(_other_python() is None, reason="needs a second Python version in PATH")
def test_an_engine_on_another_python_sees_none_of_it(injected):
    code = """
import json, os, sys
try:
    import glowplug
    found = glowplug.__file__
except ImportError:
    found = None
print(json.dumps([sys.version_info[:2] != %r, found, [name for name in os.environ if name.startswith(("PYTHON", "LD_"))]]))
"""
    engine = [_other_python(), "-c", code % (sys.version_info[:2],)]
    done = start(injected, *RUN, *engine)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, None, []]


def test_it_starts_through_a_link(injected, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "glowplug").symlink_to(os.path.relpath(injected / "bin" / "glowplug", tmp_path / "bin"))
    (tmp_path / "again").symlink_to(tmp_path / "bin" / "glowplug")
    done = subprocess.run([tmp_path / "again", "keys", "show"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_engines_exit_code_and_bytes_pass_through(injected):
    done = start(injected, *RUN, "/bin/sh", "-c", "printf 'a\\r\\nb'; exit 7")
    assert (done.returncode, done.stdout) == (7, "a\nb")


def test_it_is_used_without_being_written_to(injected):
    before = sorted(str(path) for path in injected.rglob("*"))
    start(injected, "cache", "--help")
    assert sorted(str(path) for path in injected.rglob("*")) == before


def test_another_user_may_read_it_whatever_the_umask(injected, written):
    for path in [injected, *injected.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o044 == 0o044, path
        assert mode & 0o022 == 0, path
        if path.is_dir():
            assert mode & 0o011 == 0o011, path
    assert os.access(injected / "bin" / "glowplug", os.X_OK)
    assert not written.unchanged


def test_it_holds_what_glowplug_needs_and_no_more(injected, written):
    site = injected / written.payload / "site"
    present = {path.name for path in site.iterdir()}
    assert {"glowplug", "botocore", "cryptography", "zstandard", "yaml", "typer"} <= present
    assert not present & {"pytest", "hypothesis", "mypy", "pip"}
    assert (site / "glowplug" / "py.typed").exists()
    assert {path.name for path in (site / "botocore" / "data").iterdir() if path.is_dir()} == {
        *("kms", "s3", "signin", "sso", "sso-oidc", "sts"),
    }
    assert not list(site.rglob("direct_url.json")), "would tell the path of the machine that made it"
    assert list(site.glob("cryptography-*.dist-info/licenses/*"))
    assert written.facts.distributions["glowplug"] == glowplug.__version__


def test_every_module_has_bytecode_that_is_never_checked(injected, written):
    stdlib = next((injected / written.payload / "python").glob("lib*/python3*"))
    for source in [stdlib / "json" / "decoder.py", injected / written.payload / "site" / "glowplug" / "errors.py"]:
        bytecode = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        assert bytecode.read_bytes()[4:8] == b"\x01\0\0\0"


def test_it_stays_small(written):
    assert written.facts.bytes < 120e6


def test_the_launcher_decides_in_a_few_milliseconds(injected, tmp_path):
    text = (injected / "bin" / "glowplug").read_text()
    probe = tmp_path / "bin" / "glowplug"
    probe.parent.mkdir()
    probe.write_text(text.replace('exec "$_gp_loader"', 'exec /bin/true "$_gp_loader"'))
    probe.chmod(0o755)
    payload = next(injected.glob("payload-*"))
    (tmp_path / payload.name).symlink_to(payload)
    seconds = []
    for _ in range(15):
        begin = time.perf_counter()
        subprocess.run([probe], check=True)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.03  # 5 ms on an idle machine; the rest is for a busy one


def _with_future_glibc(payload):
    facts = json.loads((payload / "glowplug.json").read_text())
    file = payload / facts["demanding"]
    version = facts["glibc"].encode()
    file.write_bytes(file.read_bytes().replace(b"GLIBC_" + version + b"\0", b"GLIBC_2.99\0"))


def _without_payload(payload):
    shutil.rmtree(payload)


def _without_the_loader(payload):
    launcher = payload.parent / "bin" / "glowplug"
    launcher.write_text(launcher.read_text().replace("_gp_loader=/", "_gp_loader=/nonexistent/"))


def _without_a_module(payload):
    (payload / "site" / "glowplug" / "cli" / "main.py").write_text("import no_such_module_at_all")
    shutil.rmtree(payload / "site" / "glowplug" / "cli" / "__pycache__")


def _without_its_python(payload):
    shutil.rmtree(payload / "python" / "bin")


def _without_the_package(payload):
    shutil.rmtree(payload / "site" / "glowplug")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_without_its_python, "not whole"),
        (_without_the_package, "not whole"),
        (_with_future_glibc, "it needs glibc"),
        (_without_payload, "is missing"),
        (_without_the_loader, "so it is not one with glibc"),
        (_without_a_module, "no_such_module_at_all"),
    ],
)
def test_where_it_cannot_start_the_engine_starts_without_it(damaged, damage, says):
    folder, payload = damaged
    damage(payload)
    done = start(folder, "run", "--store", "s3://b/p", "--", "/bin/sh", "-c", 'echo "engine $1"; exit 5', "sh", "a  b")
    assert (done.returncode, done.stdout) == (5, "engine a  b\n")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "starts without it" in done.stderr
    other = start(folder, "cache", "ls", "run")
    assert other.returncode == 1
    assert says in other.stderr


def test_without_it_a_missing_command_is_still_127(damaged):
    folder, payload = damaged
    _without_payload(payload)
    assert start(folder, "run", "--", "no-such-command").returncode == 127


def test_a_borrowed_library_that_is_missing_would_be_noticed(damaged, written):
    _, payload = damaged
    libraries = sorted((payload / "lib").glob("lib[bfl]*.so*"))  # bz2, ffi, lzma: this system has them too
    if not libraries:
        pytest.skip("this Python has its libraries built in")
    libraries[0].unlink()
    python = [written.facts.loader, "--library-path", f"{payload}/lib", f"{payload}/python/bin/{written.facts.python_name}"]
    script = f"{payload}/site/glowplug/inject/completeness.py"
    done = subprocess.run([*python, "-I", "-S", "-B", script, str(payload)], env={}, capture_output=True, text=True, check=False)
    assert done.returncode != 0 or any(libraries[0].name in path for path in json.loads(done.stdout))


def test_a_folder_without_a_python_finds_one_in_path(injected, written, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / written.payload).symlink_to(injected / written.payload)
    launcher = tmp_path / "bin" / "glowplug"
    launcher.write_text(found(payload=written.payload, python=written.facts.python_name))
    launcher.chmod(0o755)
    base = os.path.dirname(os.path.realpath(sys.executable))
    assert start(tmp_path, "keys", "show", path=f"{base}:/bin").returncode == 0
    done = start(tmp_path, "run", "--", "/bin/echo", "engine", path="/nonexistent")
    assert done.stdout == "engine\n"
    assert f"needs {written.facts.python_name}" in done.stderr
