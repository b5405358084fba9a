"""The file of options: what it says, with the command line on top of it, and what it can't say, with its line."""

import io

import pytest

from glowplug.deploy.reading import read_options
from glowplug.errors import UsageError


@pytest.fixture
def read(tmp_path):
    """Fields that a file with this text sets, and the command line beside it."""

    def read(text, **given):
        path = tmp_path / "deploy.yaml"
        path.write_text(text)
        return read_options(str(path), given, io.BytesIO())

    return read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("target: gpu\n  store: x\n", "deploy.yaml:2: no YAML"),
        ("- a\n", "is no mapping of options"),
        ("# first\ntagret: gpu\n", "deploy.yaml:2: 'tagret' is no option (did you mean target?)"),
        ("tp: 2\nweights: 65\n", "deploy.yaml:2: weights: 65 is not a text with its unit"),
        ("replicas: '2'\n", "deploy.yaml:1: replicas: '2' is not a whole number"),
        ("replicas: yes\n", "replicas: yes is not a whole number"),
        ("replicas: 1.5\n", "replicas: 1.5 is not a whole number"),
        ("run-as-user: 0777\n", "deploy.yaml:1: run-as-user: 0777 is not a whole number"),
        ("port: 0x1f40\n", "port: 0x1f40 is not a whole number"),
        ("port: 1:30\n", "port: 1:30 is not a whole number"),
        ("account: 011122223333\n", "account: 011122223333 is not a text"),
        ("name:\n", "deploy.yaml:1: name: nothing is not a text"),
        ("store: 2020-99-99\n", "store: 2020-99-99 is not a text"),
        ("store: [a]\n", "store: a list is not a text"),
        ("pod-monitor: 1\n", "pod-monitor: 1 is not true or false"),
        ("engine-args: --foo\n", "engine-args: '--foo' is not a list of texts"),
        ("engine-args:\n- --foo\n- 1\n", "deploy.yaml:3: engine-args: 1 is not a text"),
        ("env: A=b\n", "env: 'A=b' is not a mapping of names to texts"),
        ("env:\n  B: b\n  A: 1\n", "deploy.yaml:3: env: A: 1 is not a text"),
        ("1: gpu\n", "'1' is no option"),
        ("[a]: gpu\n", "deploy.yaml:1: a key is no text"),
        ("a: \x01\n", "no YAML"),
        ("a: " + "[" * 10_000, "nested too deep"),
        ("tp: 1\ninstance: a\ntp: 2\n", "deploy.yaml:3: 'tp' stands in line 1 already"),
        ("env:\n  A: b\n  A: c\n", "deploy.yaml:3: 'A' stands in line 2 already"),
        ("tp: 1\n---\ntp: 2\n", "deploy.yaml:3: a second document"),
        ("apiVersion: v1\nkind: Service\n---\napiVersion: apps/v1\nkind: Deployment\n", "deploy.yaml is a Kubernetes manifest"),
    ],
)
def test_what_a_file_cannot_say_is_named_with_its_line(read, text, said):
    with pytest.raises(UsageError) as refused:
        read(text)
    assert said in refused.value.line()
    assert "\n" not in refused.value.message


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_options(str(tmp_path / "none.yaml"), {}, io.BytesIO())


def test_a_file_without_a_name_is_none():
    with pytest.raises(UsageError, match="--file is empty"):
        read_options("", {}, io.BytesIO())


def test_options_win_over_the_file_and_variables_of_both_are_joined(read):
    text = "replicas: 2\nname: from-file\nenv: {A: '1', B: '2'}\nengine-args: [--x]\npod-monitor: yes\n"
    assert read(text, name="from-option", env=("B=0", "C=3")) == {
        "replicas": 2,
        "name": "from-option",
        "pod_monitor": True,
        "engine_args": ("--x",),
        "env": ("A=1", "B=0", "C=3"),
    }


def test_digits_that_yaml_itself_takes_for_text_are_the_ones_that_were_written(read):
    assert read("account: 098765432109\nregion: '0123'\n") == {"account": "098765432109", "region": "0123"}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_file_says_nothing(read, text):
    assert read(text) == {}


def test_a_configuration_is_looked_for_beside_the_file_that_names_it(read, tmp_path):
    assert read("config: ../config.json\n")["config"] == f"{tmp_path}/../config.json"
    assert read("config: /srv/config.json\n")["config"] == "/srv/config.json"
    assert read("config: config.json\n", config="mine.json")["config"] == "mine.json"


def test_standard_input_is_a_file_in_the_folder_that_one_is_in():
    assert read_options("-", {}, io.BytesIO(b"tp: 2\nconfig: config.json\n")) == {"tp": 2, "config": "config.json"}
    with pytest.raises(UsageError, match=r"<stdin>:2: 'x' is no option"):
        read_options("-", {}, io.BytesIO(b"tp: 2\nx: 1\n"))
