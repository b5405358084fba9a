import subprocess

import pytest

from glowplug.engines.shell import simple_command

ENV = {"MODEL": "org/name", "ARGS": " --port 8000  --seed 1 ", "EMPTY": "", "GLOB": "a*", "QUOTED": "'x y'", "TAIL": "end"}

SIMPLE = [
    "vllm serve m --port 8000",
    "exec vllm serve m",
    "vllm serve '$MODEL' --x 'a b'",
    'vllm serve "$MODEL" --x "a  b"',
    "vllm serve $MODEL --port 1",
    "vllm serve ${MODEL}",
    "vllm serve $MODEL $ARGS",
    "vllm serve pre$ARGS",
    "vllm serve pre${ARGS}post",
    "vllm serve $EMPTY m",
    'vllm serve "$EMPTY" m',
    "vllm serve $UNSET m",
    "vllm serve a$EMPTY m",
    "vllm serve $QUOTED",
    'vllm serve m --compilation-config \'{"mode": 3, "x": [1]}\'',
    'vllm serve m --hf-overrides "{\\"a\\": 1}"',
    "vllm serve a\\ b",
    "vllm serve 'it'\"'\"'s'",
    "vllm serve \\\n  m \\\n  --port 1",
    "vllm serve m ;",
    "vllm\tserve  m",
    "vllm serve --x=$MODEL/$TAIL",
]
NOT_SIMPLE = [
    "cd /x && vllm serve m",
    "vllm serve m | tee log",
    "vllm serve m > log",
    "vllm serve m &",
    "vllm serve $(cat model)",
    "vllm serve `cat model`",
    'vllm serve "$(cat model)"',
    "vllm serve ${MODEL:-x}",
    "vllm serve $1",
    "vllm serve $@",
    "vllm serve *.yaml",
    "vllm serve ~/model",
    "vllm serve $GLOB",
    "ulimit -n 1; vllm serve m",
    "exec -a name vllm serve m",
    "vllm serve 'unfinished",
    'vllm serve "unfinished',
    "A=1",
    "",
    "if true; then vllm serve m; fi",
    "vllm serve m\nother",
]


@pytest.mark.parametrize("line", SIMPLE)
def test_a_simple_command_has_the_words_that_a_shell_gives_it(line):
    # The real shell is the judge: `vllm` and `exec` become a function that prints its words.
    script = f'exec() {{ "$@"; }}; vllm() {{ printf "%s\\n" vllm "$@"; printf "\\036"; }}; {line}'
    bash = subprocess.run(["bash", "-c", script], env={**ENV, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    expected = bash.stdout.removesuffix("\036").removesuffix("\n").split("\n")
    command = simple_command(line, ENV)
    assert command is not None
    assert list(command.words) == expected


@pytest.mark.parametrize("line", NOT_SIMPLE)
def test_what_takes_a_shell_to_know_is_not_guessed(line):
    assert simple_command(line, ENV) is None


def test_variables_before_the_command_are_its_own():
    command = simple_command("VLLM_A=1 B='x y' exec vllm serve m", {})
    assert command.words == ("vllm", "serve", "m")
    assert command.assignments == {"VLLM_A": "1", "B": "x y"}
