"""Typer as this command line wants it: plain text, ``-h``, no completion, and usage lines that show what is to be typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Callable

    _Function = TypeVar("_Function", bound=Callable[..., Any])

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}


class Command(TyperCommand):
    """One command. Its usage line shows each argument's metavar as it was written; Typer puts braces around it."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002  Typer's signature
        """What stands behind the command's name: ``[OPTIONS] URI FOLDER``."""
        return ["[OPTIONS]", *(str(each.metavar) for each in self.params if each.param_type_name == "argument")]


class App(typer.Typer):
    """A group of commands, or a module's only command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings=_HELP_NAMES,
            **settings,
        )

    def command(
        self, name: str | None = None, *, before_command: bool = False, **settings: Any
    ) -> Callable[[_Function], _Function]:
        """Declare a command.

        Args:
            name: as it is called; None: as the function is.
            before_command: its options end where its first argument begins: what follows belongs to another command.
            settings: Typer's own.
        """
        context = _HELP_NAMES | ({"allow_interspersed_args": False} if before_command else {})
        return super().command(name, cls=Command, context_settings=context, **settings)
