import os
import platform
import sys
import time

import pytest

from glowplug.engines.command import Command
from glowplug.engines.interpreter import Question, python_command, unknown_component


def ask(argv, env, cwd="/"):
    command = Command(tuple(map(str, argv)), env, str(cwd))
    python = python_command(command)
    assert python is not None
    return Question(python, command).answer()


def test_an_interpreter_says_what_it_is(venv):
    found = ask(("python", "-c", "pass"), venv.env)
    assert found.version == platform.python_version()
    assert found.prefix == str(venv.root)
    assert found.extension_suffix.endswith(".so")
    assert str(venv.site) in found.sys_path
    assert found.component()["libc"].startswith("glibc ")


@pytest.mark.parametrize(
    "shebang", ["#!{python}", "#!{python} -u", "#!/usr/bin/env python", "#!/usr/bin/env -S python -u", "#! {python}"]
)
def test_a_script_runs_under_its_shebang(venv, shebang):
    script = venv.script("tool", shebang.format(python=venv.python) + "\nimport sys\n")
    python = python_command(Command(("tool", "serve", "m"), venv.env, "/"))
    assert python.executable == str(venv.python)
    assert (python.form, python.target, python.args) == ("script", str(script), ("serve", "m"))
    assert ask(("tool",), venv.env).prefix == str(venv.root)


@pytest.mark.parametrize(
    "head",
    [
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n",
    ],
    ids=["pip", "pip-with-blanks", "uv-relocatable"],
)
def test_the_shell_heads_that_installers_write_lead_to_python(venv, head):
    venv.script("tool", head.format(python=venv.python) + "import sys\n")
    assert ask(("tool",), venv.env).prefix == str(venv.root)


@pytest.mark.parametrize(
    ("words", "form", "target", "args"),
    [
        ("-m pkg.mod a -b", "module", "pkg.mod", ("a", "-b")),
        ("-mpkg a", "module", "pkg", ("a",)),
        ("-um pkg a", "module", "pkg", ("a",)),
        ("-u -X dev -W ignore -m pkg", "module", "pkg", ()),
        ("-Xdev -Wignore script.py a", "script", "script.py", ("a",)),
        ("-B script.py -m x", "script", "script.py", ("-m", "x")),
        ("-c code a", "code", "code", ("a",)),
        ("-", "stdin", "", ()),
        ("", "stdin", "", ()),
        ("--check-hash-based-pycs always script.py", "script", "script.py", ()),
    ],
)
def test_python_arguments_are_told_apart(venv, words, form, target, args):
    python = python_command(Command(("python3", *words.split()), {"PATH": str(venv.script("python3", "").parent)}, "/"))
    assert (python.form, python.target, python.args) == (form, target, args)


def test_isolation_flags_are_asked_with(venv, tmp_path):
    env = {**venv.env, "PYTHONPATH": str(tmp_path)}
    assert str(tmp_path) in ask(("python", "-m", "x"), env).sys_path
    assert str(tmp_path) not in ask(("python", "-I", "-m", "x"), env).sys_path
    assert str(tmp_path) not in ask(("python", "-uE", "-m", "x"), env).sys_path


def test_sys_path_starts_where_the_commands_own_does(venv, tmp_path):
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    assert ask(("python", "scripts/train.py"), venv.env, tmp_path).sys_path[0] == str(script.parent)
    assert ask(("python", "-m", "x"), venv.env, tmp_path).sys_path[0] == str(tmp_path)
    assert ask(("python", "-I", "-m", "x"), venv.env, tmp_path).sys_path[0] != str(tmp_path)


def test_pth_files_count(venv, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (venv.site / "link.pth").write_text(f"{tmp_path / 'elsewhere'}\n")
    assert str(tmp_path / "elsewhere") in ask(("python",), venv.env).sys_path


def test_what_a_site_customisation_prints_does_not_confuse(venv):
    (venv.site / "sitecustomize.py").write_text("import atexit; print('hello'); atexit.register(print, 'bye')\n")
    assert ask(("python",), venv.env).prefix == str(venv.root)


@pytest.mark.parametrize("argv", [("missing",), ("true",), ("/bin/sh", "x.sh")])
def test_a_command_that_is_no_python_has_none(argv):
    assert python_command(Command(argv, {"PATH": "/usr/bin:/bin"}, "/")) is None


def test_an_interpreter_that_fails_has_no_answer(venv):
    (venv.site / "sitecustomize.py").write_text("import os; os._exit(3)\n")
    assert ask(("python",), venv.env) is None


def test_an_interpreter_that_hangs_is_given_up(venv):
    venv.script("python3", "#!/bin/sh\nexec sleep 60\n")
    command = Command(("python3", "x.py"), venv.env, "/")
    started = time.monotonic()
    assert Question(python_command(command), command).answer(timeout_s=0.2) is None
    assert time.monotonic() - started < 5


def test_an_interpreter_that_cannot_be_started_has_no_answer(venv, tmp_path):
    command = Command((str(venv.python),), venv.env, str(tmp_path / "no such folder"))
    assert Question(python_command(command), command).answer() is None


def test_two_unknown_interpreters_are_not_taken_for_equal(tmp_path):
    components = []
    for name in ("a", "b"):
        program = tmp_path / name
        program.write_text(name * len(components))
        program.chmod(0o755)
        components.append(unknown_component(Command((str(program),), {}, "/")))
    assert components[0] != components[1]
    assert all("unknown" in component for component in components)
    assert unknown_component(Command(("missing",), {"PATH": ""}, "/")) == {"unknown": "missing"}


def test_asking_costs_little(venv):
    ask(("python",), venv.env)
    started = time.monotonic()
    ask(("python",), venv.env)
    # 20 ms on an idle machine; the bound only catches an import that does not belong there, such as a second's worth.
    assert time.monotonic() - started < 2.0
    assert os.path.samefile(venv.python, sys.executable)
