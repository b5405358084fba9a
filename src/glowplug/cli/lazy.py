"""A group of commands whose modules are loaded only when one is called: a start must not pay for what another command needs."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from glowplug.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def lazy_group(words: str, commands: Mapping[str, tuple[str, str]]) -> type[TyperGroup]:
    """The class of a group.

    Args:
        words: what is typed before the command, such as ``glowplug weights``.
        commands: name to the module that holds it as ``app``, and to the line that the group's help shows.
    """

    class LazyGroup(TyperGroup):
        """Commands by name; a module is imported when its command is called, or when help is asked for."""

        def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002  typer's signature
            return list(commands)

        def resolve_command(self, ctx: typer.Context, args: list[str]):  # type: ignore[no-untyped-def,override]  # noqa: ANN202
            if args and args[0] not in commands and not args[0].startswith("-"):
                near = difflib.get_close_matches(args[0], commands, n=1)
                hint = f"did you mean {words} {near[0]}?" if near else f"choose one of {', '.join(commands)}"
                raise UsageError(f"there is no command {args[0]}", object=args[0], hint=hint)
            return super().resolve_command(ctx, args)

        def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore[no-untyped-def,override]  # noqa: ANN202, ARG002
            if cmd_name not in commands:
                return None
            module = importlib.import_module(commands[cmd_name][0])
            command = typer.main.get_command(module.app)
            command.name = cmd_name
            command.short_help = command.short_help or commands[cmd_name][1]
            return command

    return LazyGroup
