"""``glowplug keys``: make keys, and show what signs and what is trusted."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug.cache.keyring import SIGNING_KEY, TRUSTED_KEYS, config_home, describe, describe_environment
from glowplug.cache.keys import create_pair
from glowplug.cli.app import App
from glowplug.cli.options import AsJson
from glowplug.cli.output import print_json
from glowplug.errors import UsageError

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.cache.keyring import KeyInfo

app = App(no_args_is_help=True, help="Make keys, and show what signs and what is trusted.")

# RFC 1123, and short enough for "-trusted" to follow: what a Kubernetes secret may be called.
_SECRET_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")


@app.command(epilog="Example: glowplug keys create --out ~/fleet")
def create(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX", help="Write PREFIX.key and PREFIX.pub; a folder: NAME.key and NAME.pub in it. Default: NAME."
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the files, and of the Kubernetes secrets in the printed example.")
    ] = "glowplug",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key pair. The private half signs what is published, the public half says whose signature counts."""
    if not _SECRET_NAME.fullmatch(name):
        hint = "use lower-case letters, digits and -, as for a Kubernetes secret; where the files go is --out"
        raise UsageError(f"--name: {name!r} can't be a secret's name", object="--name", hint=hint)
    prefix = out or Path(name)
    files = create_pair(prefix / name if prefix.is_dir() else prefix, force=force)
    private, public = files.private.absolute(), files.public.absolute()
    if as_json:
        print_json({"keyid": files.key.keyid, "kind": files.key.kind, "private": str(private), "public": str(public)})
        return
    print(f"key {files.key.short}: {files.private} (keep it secret), {files.public}")
    print("\nWho publishes sets both, who only restores sets the second:")
    print(f"  export {SIGNING_KEY}={private}")
    print(f"  export {TRUSTED_KEYS}={public}")
    print("\nIn Kubernetes, two secrets, so that readers never see the private half:")
    for role, path, suffix in (("signing", files.private, "key"), ("trusted", files.public, "pub")):
        print(f"  kubectl create secret generic {name}-{role} \\\n    --from-file={name}.{suffix}={path}")


@app.command(epilog="Example: glowplug keys show fleet.pub awskms:arn:aws:kms:eu-central-1:111122223333:key/ID")
def show(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH|awskms:ARN]...",
            help="Key files, folders of them, or keys in AWS KMS.",
        ),
    ] = None,
    pem: Annotated[bool, typer.Option("--pem", help="Print only the public halves, as PEM: what a reader trusts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the keys named, or what signs and what is trusted here."""
    if sources:
        keys = [info for source in sources for info in describe(source)]
        document: Json = {"keys": [_document(info) for info in keys]}
        notices: list[str] = []
        lines = [_line(info.role, info) for info in keys]
    else:
        situation = describe_environment(os.environ, home=config_home(os.environ))
        keys, notices = situation.trusted, situation.notices
        document = {
            "signs": _document(situation.signs) if situation.signs else None,
            "trusted": [_document(info) for info in situation.trusted],
            "origin": situation.origin,
            "notices": list(notices),
        }
        lines = [_line("signs", situation.signs)] if situation.signs else ["signs    nobody"]
        lines += [_line("trusted", info) for info in situation.trusted] or ["trusted  nobody"]
    if as_json:
        print_json(document)
    elif pem:
        print("".join(info.key.pem for info in keys), end="")
    else:
        print("\n".join([*lines, *(f"note: {notice}" for notice in notices)]))


def _document(info: KeyInfo) -> Json:
    return {"role": info.role, "keyid": info.key.keyid, "kind": info.key.kind, "source": info.source, "public": info.key.pem}


def _line(word: str, info: KeyInfo) -> str:
    return f"{word:<8} {info.key.short}  {info.key.kind}  {info.source}"
