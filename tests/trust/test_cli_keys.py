"""The commands: what a person reads, and what a program reads."""

import json

import pytest
from typer.testing import CliRunner

from glowplug.cache.keyring import load_signer, load_trust
from glowplug.cli.keys import app
from glowplug.errors import UsageError


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("GLOWPLUG_SIGNING_KEY", "GLOWPLUG_TRUSTED_KEYS"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*words):
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return invoke


def test_the_two_lines_that_create_prints_make_a_publisher(run, tmp_path):
    shown = run("create", "--out", "fleet")
    exports = dict(line.split()[1].split("=", 1) for line in shown.splitlines() if line.strip().startswith("export"))
    assert load_trust(exports).verify(load_signer(exports).sign(b"payload")) == b"payload"
    assert "kubectl create secret generic" in shown
    assert (tmp_path / "fleet.key").exists()


def test_names_and_folders_say_where_the_pair_goes(run, tmp_path):
    run("create")
    run("create", "--name", "team")
    (tmp_path / "folder").mkdir()
    run("create", "--out", "folder", "--name", "team")
    assert sorted(path.name for path in tmp_path.rglob("*.key")) == ["glowplug.key", "team.key", "team.key"]


def test_the_text_fits_80_columns(run):
    shown = run("create") + run("show", "glowplug.key", "glowplug.pub") + run("show")
    assert max(map(len, (line for line in shown.splitlines() if "export" not in line))) <= 80


def test_a_key_is_not_replaced_without_force(run, tmp_path):
    run("create")
    before = (tmp_path / "glowplug.key").read_text()
    with pytest.raises(UsageError, match="exists"):
        run("create")
    assert (tmp_path / "glowplug.key").read_text() == before
    run("create", "--force")


def test_json_names_the_files_and_the_whole_key_id(run, tmp_path):
    created = json.loads(run("create", "--json"))
    assert created["private"] == str(tmp_path / "glowplug.key")
    assert len(created["keyid"]) == 64
    shown = json.loads(run("show", "glowplug.pub", "--json"))["keys"]
    assert [(key["role"], key["keyid"]) for key in shown] == [("public", created["keyid"])]


def test_show_without_an_argument_tells_what_signs_and_what_is_trusted(run, monkeypatch):
    assert "nobody" in run("show")
    created = json.loads(run("create", "--json"))
    monkeypatch.setenv("GLOWPLUG_SIGNING_KEY", created["private"])
    shown = json.loads(run("show", "--json"))
    assert shown["signs"]["keyid"] == created["keyid"]
    assert [key["keyid"] for key in shown["trusted"]] == [created["keyid"]]


def test_pem_is_what_a_reader_trusts(run, tmp_path):
    run("create")
    assert run("show", "--pem", "glowplug.key") == (tmp_path / "glowplug.pub").read_text()


def test_no_output_holds_a_private_key(run, tmp_path):
    shown = run("create") + run("show", "glowplug.key") + run("show", "glowplug.key", "--json")
    secret = (tmp_path / "glowplug.key").read_text().splitlines()[1]
    assert secret not in shown
    assert "PRIVATE" not in shown


@pytest.mark.parametrize("name", ["../up", "a/b", "Upper", "", "-x", "ein name"])
def test_a_name_that_no_secret_can_have_is_refused_before_anything_is_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="--name"):
        CliRunner().invoke(app, ["create", f"--name={name}"], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []
