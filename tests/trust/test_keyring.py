"""Where keys come from, in a cluster and on a workstation."""

import os
import stat
import subprocess
import sys

import pytest

from glowplug.cache import keyring
from glowplug.cache.keyring import (
    config_home,
    describe,
    describe_environment,
    load_publishing,
    load_signer,
    load_trust,
    user_signer,
)
from glowplug.cache.keys import PrivateKey, create_pair
from glowplug.errors import UnknownKey, UsageError

A, B, C = (PrivateKey(letter * 32) for letter in (b"a", b"b", b"c"))


def ids(trust):
    return [key.keyid for key in trust.keys]


def key_file(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "config" / "glowplug"


def test_nothing_is_named_nothing_signs():
    assert load_signer({}) is None
    assert load_signer({"GLOWPLUG_SIGNING_KEY": " "}) is None


def test_a_signing_key_comes_from_a_file_or_in_place_and_the_option_wins(tmp_path):
    path = key_file(tmp_path, "a.key", A.pem)
    assert load_signer({"GLOWPLUG_SIGNING_KEY": path}).keyid == A.public().keyid
    assert load_signer({"GLOWPLUG_SIGNING_KEY": B.pem}).keyid == B.public().keyid
    assert load_signer({"GLOWPLUG_SIGNING_KEY": B.pem}, key=path).keyid == A.public().keyid


def test_trusted_keys_come_in_every_form_at_once(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    key_file(folder, "b.pub", B.public().pem)
    key_file(folder, "b-again.pem", B.public().pem)
    key_file(folder, "notes.txt", "not a key")
    key_file(folder, ".hidden.pub", "not a key")
    path = key_file(tmp_path, "a.pub", A.public().pem)
    value = f"{path}, {folder}\n{C.public().pem}"
    assert ids(load_trust({"GLOWPLUG_TRUSTED_KEYS": value})) == [key.public().keyid for key in (C, A, B)]


def test_the_option_replaces_the_variable(tmp_path):
    path = key_file(tmp_path, "a.pub", A.public().pem)
    trust = load_trust({"GLOWPLUG_TRUSTED_KEYS": B.public().pem}, keys=[path])
    assert ids(trust) == [A.public().keyid]


def test_a_folder_mounted_from_a_kubernetes_secret_is_read(tmp_path):
    # The kubelet's layout: files are links through ..data into a dated folder.
    dated = tmp_path / "..2026_01_01_00_00_00.1"
    dated.mkdir()
    (dated / "fleet.pub").write_text(A.public().pem)
    (tmp_path / "..data").symlink_to(dated.name)
    (tmp_path / "fleet.pub").symlink_to("..data/fleet.pub")
    assert ids(load_trust({"GLOWPLUG_TRUSTED_KEYS": str(tmp_path)})) == [A.public().keyid]


def test_a_writer_trusts_itself_unless_others_are_named():
    env = {"GLOWPLUG_SIGNING_KEY": A.pem}
    assert ids(load_trust(env)) == [A.public().keyid]
    assert ids(load_trust(env | {"GLOWPLUG_TRUSTED_KEYS": B.public().pem})) == [B.public().keyid]


@pytest.mark.parametrize("variable", ["GLOWPLUG_SIGNING_KEY", "GLOWPLUG_TRUSTED_KEYS"])
def test_a_missing_file_is_named_with_its_variable(variable):
    with pytest.raises(UsageError, match=f"/no/such.key: No such file or directory .named in {variable}") as caught:
        load_trust({variable: "/no/such.key"})
    assert "glowplug keys create" in caught.value.hint


@pytest.mark.parametrize("secret", [A.seed.hex(), "MC4CAQAwBQYDK2VwBCIEIGFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"])
def test_a_bare_secret_where_a_path_belongs_is_not_repeated(secret):
    with pytest.raises(UsageError) as caught:
        load_signer({"GLOWPLUG_SIGNING_KEY": secret})
    assert secret[:16] not in caught.value.line()
    assert "GLOWPLUG_SIGNING_KEY" in caught.value.line()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.mkdir(), "holds no"),
        (os.mkfifo, "is no file"),
        (lambda path: path.write_bytes(b"x" * 70_000), "too large"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "no PEM block"),
        (lambda path: path.write_text(A.pem), "is a private key"),
    ],
)
def test_what_holds_no_trusted_key_is_refused(tmp_path, make, says):
    make(tmp_path / "keys")
    with pytest.raises(UsageError, match=says):
        load_trust({"GLOWPLUG_TRUSTED_KEYS": str(tmp_path / "keys")})


def test_a_list_without_an_item_is_refused():
    with pytest.raises(UsageError, match="names no key"):
        load_trust({"GLOWPLUG_TRUSTED_KEYS": " , "})


def test_the_first_publish_makes_a_key_and_trusts_it(home):
    assert ids(load_trust({}, home=home)) == []
    signer, created, reason = load_publishing({}, home=home)
    assert created
    assert not reason
    assert load_trust({}, home=home).verify(signer.sign(b"payload")) == b"payload"
    private = next((home / "keys").glob("*.key"))
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "keys").stat().st_mode) == 0o700
    again = load_publishing({}, home=home)
    assert again.signer.keyid == signer.keyid
    assert not again.created


def test_a_reader_makes_no_key(home):
    signer, created, reason = load_publishing({"GLOWPLUG_TRUSTED_KEYS": A.public().pem}, home=home)
    assert (signer, created) == (None, False)
    assert "only reads" in reason
    assert not home.exists()


def test_in_a_cluster_the_users_folder_is_not_looked_at(home):
    own = user_signer(home).signer
    trust = load_trust({"GLOWPLUG_TRUSTED_KEYS": A.public().pem}, home=home)
    with pytest.raises(UnknownKey):
        trust.verify(own.sign(b"payload"))


def test_many_processes_at_once_end_with_one_key(home):
    code = (
        "import sys, pathlib; from glowplug.cache.keyring import user_signer; print(*user_signer(pathlib.Path(sys.argv[1]))[1:2])"
    )
    command = [sys.executable, "-c", code, str(home)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    created = [process.communicate()[0].strip() for process in running]
    assert sorted(created) == ["False"] * 7 + ["True"]
    assert len(list((home / "keys").iterdir())) == 2  # one key, and trusted/
    signer = user_signer(home).signer
    assert ids(load_trust({}, home=home)) == [signer.keyid]


def test_a_user_without_a_home_signs_nothing_and_crashes_nothing():
    signer, _, reason = user_signer(None)
    assert signer is None
    assert "no home" in reason
    assert load_trust({}, home=None).notices


@pytest.mark.parametrize("home", ["/proc/nobody/.config/glowplug", "/dev/null/glowplug"])
def test_a_home_that_cannot_be_made_signs_nothing_and_says_where(home):
    signer, created, reason = user_signer(keyring.Path(home))
    assert (signer, created) == (None, False)
    assert home.split("/")[1] in reason
    assert "GLOWPLUG_SIGNING_KEY" in reason


def test_a_damaged_user_key_signs_nothing_and_is_not_replaced(home):
    user_signer(home)
    private = next((home / "keys").glob("*.key"))
    private.write_text("oops")
    assert "no PEM block" in user_signer(home).reason
    assert private.read_text() == "oops"


def test_a_trust_folder_that_others_can_write_is_not_used(home):
    user_signer(home)
    (home / "keys" / "trusted").chmod(0o777)
    trust = load_trust({}, home=home)
    assert ids(trust) == []
    assert "others can write" in trust.notices[0]


def test_the_configuration_folder_follows_the_xdg_rules(monkeypatch):
    assert config_home({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == keyring.Path("/x/glowplug")
    assert config_home({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}) == keyring.Path("/h/.config/glowplug")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert config_home({}) is None


def test_a_private_key_that_others_can_read_is_mentioned_outside_a_pod(tmp_path):
    path = key_file(tmp_path, "a.key", A.pem)
    env = {"GLOWPLUG_SIGNING_KEY": path}
    assert load_publishing(env).reason == ""
    os.chmod(path, 0o644)
    assert "chmod 600" in load_publishing(env).reason
    assert load_publishing(env | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).reason == ""


def test_describe_tells_the_halves_of_a_pair_apart(tmp_path):
    files = create_pair(tmp_path / "fleet")
    assert [(info.role, info.key) for info in describe(str(files.private))] == [("private", files.key)]
    assert [(info.role, info.key) for info in describe(str(files.public))] == [("public", files.key)]
    assert [info.role for info in describe(str(tmp_path))] == ["public"]


def test_describing_an_environment_makes_no_key(home):
    situation = describe_environment({}, home=home)
    assert situation.signs is None
    assert situation.trusted == []
    assert "first publish" in situation.notices[0]
    assert not home.exists()
    signer = user_signer(home).signer
    situation = describe_environment({}, home=home)
    assert situation.signs.key.keyid == signer.keyid
    assert [info.key.keyid for info in situation.trusted] == [signer.keyid]


def test_another_user_s_home_trusts_nobody_and_says_what_to_set(home, monkeypatch):
    user_signer(home)

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("glowplug.cache.keyring.os.listdir", denied)
    trust = load_trust({}, home=home)
    assert ids(trust) == []
    assert "GLOWPLUG_TRUSTED_KEYS" in trust.notices[0]
