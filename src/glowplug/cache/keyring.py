"""Where keys come from: options, the environment, or a folder of the user's own.

Two worlds. In a cluster keys are named: ``GLOWPLUG_SIGNING_KEY`` and ``GLOWPLUG_TRUSTED_KEYS`` (or the options of the
same names), each a PEM file, a folder of ``*.pub`` and ``*.pem``, PEM text, or a key in AWS KMS. On a workstation
nothing is named: the first publish makes a key for the user, trusts it, and says so. As soon as anything is named,
the user's folder is not looked at, so that nobody's home decides whose code runs on a node. Nothing here signs or
verifies, and no message ever holds a key's bytes.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from glowplug.cache.keys import PrivateKey, pem_blocks, read_private, read_public, sweep, write_new
from glowplug.cache.trust import KeySigner, RemoteKey, Signer, Trust
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glowplug.cache.keys import PublicKey
    from glowplug.cache.kms import KmsKey

    NamedSigner: TypeAlias = KeySigner | KmsKey

SIGNING_KEY = "GLOWPLUG_SIGNING_KEY"
TRUSTED_KEYS = "GLOWPLUG_TRUSTED_KEYS"

_MAX_KEY_FILE_BYTES = 64 * 1024
# 40 characters of nothing but base64 or hex are more likely a key than a path, and are not repeated in a message.
_LIKE_A_SECRET = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_SUFFIXES = (".pub", ".pem")


class Publishing(NamedTuple):
    """Who signs what this process publishes."""

    signer: Signer | None
    created: bool = False
    """The user's key was made just now, and is trusted from now on."""
    reason: str = ""
    """Why nobody signs, where ``signer`` is None; else a line for the user, or empty."""


def config_home(env: Mapping[str, str]) -> Path | None:
    """``$XDG_CONFIG_HOME/glowplug`` or ``~/.config/glowplug``; None for a user without a home. Creates nothing."""
    base = env.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # the specification: relative ones are ignored
        return Path(base, "glowplug")
    home = env.get("HOME", "")
    if not home:
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return Path(home, ".config", "glowplug") if os.path.isabs(home) else None


def load_signer(env: Mapping[str, str], *, key: str | None = None) -> NamedSigner | None:
    """The signer that the option or ``GLOWPLUG_SIGNING_KEY`` names; None if neither is set. Asks nobody over the network.

    Raises:
        UsageError: it names nothing that can sign. Says where it was named, never what a key holds.
    """
    origin, value = ("--signing-key", key) if key else (SIGNING_KEY, env.get(SIGNING_KEY, ""))
    value = value.strip()
    if not value:
        return None
    remote = _kms(value)
    if remote is not None:
        return remote
    if pem_blocks(value)[0]:
        return KeySigner(read_private(value, origin))
    path = _existing(value, origin)
    if path.is_dir():
        raise UsageError(f"{path}: is a folder ({origin})", object=str(path), hint="name the private key's file in it")
    return KeySigner(read_private(_read(path, origin), str(path)))


def load_trust(
    env: Mapping[str, str],
    *,
    keys: Sequence[str] = (),
    signing_key: str | None = None,
    signer: NamedSigner | None = None,
    home: Path | None = None,
) -> Trust:
    """Whose signatures count here.

    The first of these that is given decides alone: ``keys``, ``GLOWPLUG_TRUSTED_KEYS``, the public half of the signing key
    (``signing_key`` or ``GLOWPLUG_SIGNING_KEY``), the user's own folder under ``home``. Asks nobody over the network.

    Args:
        env: the environment.
        keys: the option's values, each as ``GLOWPLUG_TRUSTED_KEYS``: items separated by commas or ends of line, PEM text in place.
        signing_key: the other option's value.
        signer: what ``load_signer`` gave for it, where it has been read already.
        home: ``config_home(env)``; None looks at no folder.

    Raises:
        UsageError: an item names no public key. Says where it was named.
    """
    if keys:
        return _named_trust("\n".join(keys), "--trusted-keys")
    if env.get(TRUSTED_KEYS, "").strip():
        return _named_trust(env[TRUSTED_KEYS], TRUSTED_KEYS)
    signer = signer or load_signer(env, key=signing_key)
    if isinstance(signer, KeySigner):
        return Trust((signer.public,), origin=SIGNING_KEY)
    if signer is not None:
        return Trust(remote=(signer,), origin=SIGNING_KEY)
    if home is None:
        return Trust(notices=("no key is trusted: this user has no home, and GLOWPLUG_TRUSTED_KEYS is not set",))
    return _user_trust(home)


def load_publishing(
    env: Mapping[str, str], *, key: str | None = None, keys: Sequence[str] = (), home: Path | None = None
) -> Publishing:
    """Who signs a publish: the named key; on a workstation the user's own, which is made at the first call.

    A process that names trusted keys and no signing key is a reader: nobody signs. Call it when there is something to publish.

    Raises:
        UsageError: as ``load_signer``.
    """
    signer = load_signer(env, key=key)
    if signer is not None:
        return Publishing(signer, reason=_exposed(signer, env))
    if keys or env.get(TRUSTED_KEYS, "").strip():
        return Publishing(None, reason=f"no signing key: {SIGNING_KEY} is not set, so this process only reads")
    return user_signer(home)


def user_signer(home: Path | None) -> Publishing:
    """The user's own key, ``HOME/keys/USER.key``, made if there is none, its public half in ``HOME/keys/trusted/``.

    Two processes at once end with one key. Never raises for a home that is missing or read-only: then nobody signs, and ``reason``
    says why.
    """
    if home is None:
        return Publishing(None, reason=f"no signing key: this user has no home, and {SIGNING_KEY} is not set")
    private = home / "keys" / f"{_user()}.key"
    trusted = home / "keys" / "trusted"
    created = False
    try:
        trusted.mkdir(parents=True, exist_ok=True, mode=0o700)
        private.parent.chmod(0o700)
        if not private.exists():
            try:
                write_new(private, PrivateKey.generate().pem, 0o600)
                created = True
            except FileExistsError:
                pass  # another process was first; its key is ours
        key = read_private(_read(private, str(private)), str(private))
        public = trusted / f"{_user()}.pub"
        if not public.exists():
            write_new(public, key.public().pem, 0o644, replace=True)
        for folder in (private.parent, trusted):
            sweep(folder)
    except OSError as error:
        return Publishing(None, reason=f"no signing key: {error.filename or home}: {error.strerror}; set {SIGNING_KEY}")
    except UsageError as error:
        return Publishing(None, reason=f"no signing key: {error.line()}")
    return Publishing(KeySigner(key), created)


Role: TypeAlias = Literal["private", "public", "kms"]


class KeyInfo(NamedTuple):
    """One key, for a person."""

    role: Role
    key: PublicKey
    source: str


def describe(source: str) -> list[KeyInfo]:
    """The keys that a path, PEM text or ``awskms:ARN`` holds. Asks KMS for a key in KMS.

    Raises:
        UsageError: it holds none.
        RemoteError: KMS did not answer.
    """
    remote = _kms(source)
    if remote is not None:
        return [KeyInfo("kms", remote.public_key(), remote.name)]
    blocks, _ = pem_blocks(source)
    if not blocks:
        path = _existing(source, "")
        if path.is_dir():
            return [KeyInfo("public", key, key.source) for key in _folder(path, "")]
        text, source = _read(path, ""), str(path)
    else:
        text, source = source, "PEM text"
    if "PRIVATE KEY-----" in text:
        return [KeyInfo("private", read_private(text, source).public(), source)]
    return [KeyInfo("public", key, source) for key in read_public(text, source)]


class Situation(NamedTuple):
    """What an environment signs with and trusts."""

    signs: KeyInfo | None
    trusted: list[KeyInfo]
    origin: str
    """Where the trusted keys were named."""
    notices: list[str]


def describe_environment(env: Mapping[str, str], *, home: Path | None) -> Situation:
    """What ``glowplug run`` would sign with and trust here. Creates no key; asks KMS for keys in KMS.

    Raises:
        UsageError: a variable names no key.
        RemoteError: KMS did not answer.
    """
    notices = []
    signer = load_signer(env)
    if signer is None and not env.get(TRUSTED_KEYS, "").strip() and home is not None:
        path = home / "keys" / f"{_user()}.key"
        if path.exists():
            signer = KeySigner(read_private(_read(path, str(path)), str(path)))
        else:
            notices.append("the first publish makes a key of this user's own")
    signs = None
    if signer is not None:
        notices += filter(None, [_exposed(signer, env)])
        signs = KeyInfo("private" if isinstance(signer, KeySigner) else "kms", signer.public, signer.public.source)
    trust = load_trust(env, home=home)
    trusted = [KeyInfo("public", key, key.source) for key in trust.keys]
    trusted += [KeyInfo("kms", key.public_key(), key.name) for key in trust.remote]
    return Situation(signs, trusted, trust.origin, [*notices, *trust.notices])


def _kms(source: str) -> KmsKey | None:
    if not source.startswith(("awskms:", "arn:")):
        return None
    from glowplug.cache.kms import KmsKey  # noqa: PLC0415  few use KMS

    return KmsKey(source)


def _named_trust(value: str, origin: str) -> Trust:
    blocks, rest = pem_blocks(value)
    keys = [key for block in blocks for key in read_public(block, origin)]
    remote: list[RemoteKey] = []
    for item in filter(None, (part.strip() for part in re.split(r"[,\n]", rest))):
        kms = _kms(item)
        if kms is not None:
            remote.append(kms)
            continue
        path = _existing(item, origin)
        if path.is_dir():
            keys += _folder(path, origin)
        else:
            keys += read_public(_read(path, origin), str(path))
    if not keys and not remote:
        raise UsageError(f"{origin}: names no key", object=origin, hint="write paths of .pub files, separated by commas")
    unique = {key.keyid: key for key in reversed(keys)}  # reversed: the first mention wins
    return Trust(tuple(reversed(unique.values())), tuple(remote), origin)


def _user_trust(home: Path) -> Trust:
    folder = home / "keys" / "trusted"
    try:
        os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return Trust(origin=str(folder))
    except OSError as error:  # another user's home, as for a random uid under HOME=/root
        line = f"no key is trusted: {error.strerror or error}: {folder} (set {TRUSTED_KEYS}, or HOME to this user's own)"
        return Trust(origin=str(folder), notices=(line,))
    for part in (folder.parent, folder):
        status = part.stat()
        if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            # Under HOME=/tmp, for one, anybody could have planted a key here, and with it code.
            line = f"{part}: not used, since others can write there; run: chmod 700 {part}"
            return Trust(origin=str(folder), notices=(line,))
    try:
        return Trust(tuple(_folder(folder, "")), origin=str(folder))
    except UsageError as error:
        return Trust(origin=str(folder), notices=(f"no key is trusted: {error.line()}",))


def _folder(folder: Path, origin: str) -> list[PublicKey]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIXES) and not name.startswith("."))
    except OSError as error:
        raise _unreadable(folder, origin, error) from None
    keys = [key for name in names for key in read_public(_read(folder / name, origin), str(folder / name))]
    if not keys:
        raise UsageError(f"{folder}: holds no *.pub or *.pem{_named_in(origin)}", object=str(folder), hint="put public keys there")
    return keys


def _existing(value: str, origin: str) -> Path:
    path = Path(value).expanduser() if value.startswith("~") else Path(value)
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        if _LIKE_A_SECRET.fullmatch(value) or "\n" in value or len(value) > 300:
            message = f"{origin or 'the argument'}: is neither a file nor a PEM block (its text is not shown, it may be a secret)"
            hint = "a key in place begins with -----BEGIN; otherwise write a path"
            raise UsageError(message, object=origin, hint=hint) from None
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        message = f"{value}: {reason}{_named_in(origin)}"
        hint = "mount the secret there, or write awskms:ARN; make a pair with: glowplug keys create"
        raise UsageError(message, object=value, hint=hint) from None
    return path


def _read(path: Path, origin: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path}: is no file{_named_in(origin)}", object=str(path), hint="name a PEM file")
        with path.open("rb") as file:
            data = file.read(_MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, origin, error) from None
    if len(data) > _MAX_KEY_FILE_BYTES:
        raise UsageError(f"{path}: is too large for a key{_named_in(origin)}", object=str(path), hint="name a PEM file")
    return data.decode("utf-8", "replace")  # PEM is ASCII; what is not is no PEM block, which the reader says


def _unreadable(path: Path, origin: str, error: OSError) -> UsageError:
    hint = (
        f"let user {os.geteuid()} read it; in Kubernetes with securityContext.fsGroup" if isinstance(error, PermissionError) else ""
    )
    return UsageError(f"{path}: {error.strerror}{_named_in(origin)}", object=str(path), hint=hint)


def _named_in(origin: str) -> str:
    return f" (named in {origin})" if origin else ""


def _exposed(signer: Signer, env: Mapping[str, str]) -> str:
    """A line for the user if others can read the private key's file; empty otherwise."""
    source = signer.key.source if isinstance(signer, KeySigner) else ""
    # In a pod the modes are the kubelet's: 0644, or 0440 with fsGroup, and nobody else is in the container.
    if not os.path.isabs(source) or "KUBERNETES_SERVICE_HOST" in env:
        return ""
    try:
        status = os.stat(source)
    except OSError:
        return ""
    exposed = status.st_mode & (stat.S_IRGRP | stat.S_IROTH) and status.st_uid == os.geteuid()
    return f"{source}: others can read this private key; run: chmod 600 {source}" if exposed else ""


def _user() -> str:
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = f"uid-{os.geteuid()}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
