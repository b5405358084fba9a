import pytest

from glowplug.engines.command import find_executable, unwrap

VLLM = ("vllm", "serve", "m")


@pytest.mark.parametrize(
    "launcher",
    [
        "",
        "nice",
        "nice -n 10",
        "nice -10",
        "nice --adjustment=5",
        "ionice -c 2 -n 0",
        "numactl -N 0 -m 0",
        "numactl --cpunodebind=0 --membind 0",
        "numactl --localalloc",
        "taskset -c 0-7",
        "taskset 0xff",
        "stdbuf -oL -e L",
        "timeout -k 5 600",
        "timeout --signal=TERM 600s",
        "nohup",
        "setsid -w",
        "tini --",
        "tini -g -p SIGTERM --",
        "/usr/bin/tini -s --",
        "dumb-init --",
        "dumb-init -r 15:2",
        "gosu user:group",
        "env",
        "env -u X",
        "env --unset=X",
        "env A=1 B=2",
        "env -i PATH=/bin",
        "env -- A=1",
        "tini -- env A=1 nice -n 1 numactl -N 0",
    ],
)
def test_launchers_are_taken_off_the_front(launcher):
    command = unwrap((*launcher.split(), *VLLM), {"PATH": "/bin"}, "/")
    assert command.argv == VLLM
    assert command.notices == ()


def test_env_changes_the_environment_and_the_folder():
    command = unwrap(("env", "-u", "GONE", "-C", "sub", "A=1", "B=x=y", *VLLM), {"GONE": "1", "KEPT": "2"}, "/top")
    assert command.env == {"KEPT": "2", "A": "1", "B": "x=y"}
    assert command.cwd == "/top/sub"


def test_env_i_starts_from_nothing():
    assert unwrap(("env", "-i", "A=1", *VLLM), {"KEPT": "2"}, "/").env == {"A": "1"}


@pytest.mark.parametrize(
    "argv",
    [
        ("sh", "-c", "exec vllm serve m"),
        ("/bin/sh", "-c", "vllm serve m"),
        ("bash", "-ec", "vllm serve $M"),
        ("bash", "-euo", "pipefail", "-c", "exec vllm serve ${M}"),
        ("bash", "-e", "-o", "pipefail", "-c", "vllm serve m", "name", "argument"),
        ("bash", "--norc", "-c", "vllm serve m"),
        ("env", "A=1", "sh", "-c", "nice vllm serve m"),
    ],
)
def test_a_shell_line_of_one_command_is_followed(argv):
    assert unwrap(argv, {"M": "m"}, "/").argv == VLLM


def test_a_shell_line_sets_variables_for_its_command():
    assert unwrap(("sh", "-c", "VLLM_A=1 vllm serve m"), {"B": "2"}, "/").env == {"B": "2", "VLLM_A": "1"}


def test_a_line_of_several_commands_is_left_alone_and_said_so():
    argv = ("sh", "-c", "cd /x && vllm serve m")
    command = unwrap(argv, {}, "/")
    assert command.argv == argv
    assert "more than one simple command" in command.notices[0]


def test_a_login_shell_is_followed_only_where_its_profile_cannot_matter():
    assert unwrap(("bash", "-lc", "/opt/venv/bin/vllm serve m"), {}, "/").name == "vllm"
    command = unwrap(("bash", "-lc", "vllm serve m"), {}, "/")
    assert command.name == "bash"
    assert "login shell" in command.notices[0]


@pytest.mark.parametrize(
    "argv", [("sh", "script.sh"), ("bash",), ("sh", "-c"), ("nice",), ("env",), ("env", "A=1"), ("tini", "--")]
)
def test_a_launcher_without_a_command_is_the_command(argv):
    assert unwrap(argv, {}, "/").argv == argv


def test_programs_are_found_as_execvp_finds_them(tmp_path):
    for name, mode in (("a", 0o644), ("b", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prog").write_text("")
        (tmp_path / name / "prog").chmod(mode)
    path = {"PATH": "a:b"}
    assert find_executable("prog", path, str(tmp_path)) == str(tmp_path / "b/prog"), "not executable in a"
    assert find_executable("./b/prog", {}, str(tmp_path)) == f"{tmp_path}/./b/prog"
    assert find_executable("b", path, str(tmp_path)) is None, "a folder is no program"
    assert find_executable("nothing", path, str(tmp_path)) is None
