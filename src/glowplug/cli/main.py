"""``glowplug``: the commands, each loaded only when it is called, and the one place where errors become exit codes.

Exit codes: 0 done; 1 a finding, a failed check, or an error of the store or the machine; 2 usage; 130 interrupted; and for
``run`` the command's own. 141 where whoever read the output has gone (``glowplug weights inspect ... | head -1``): what a program
that SIGPIPE ends has, and what scripts with ``pipefail`` expect of one.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import Annotated

import typer

from glowplug import __version__
from glowplug.cli.app import App
from glowplug.cli.lazy import lazy_group
from glowplug.errors import GlowplugError, LocalError, UsageError
from glowplug.printable import printable

# Command to its module, and to the line that "glowplug --help" shows. Loading one costs nothing for the others: "run" must not pay
# for what "inject" needs.
_COMMANDS = {
    "run": ("glowplug.cli.run", "Run an engine with a shared compile cache."),
    "cache": ("glowplug.cli.cache", "Look at, check and clean a store of compile caches."),
    "weights": ("glowplug.cli.weights", "Inspect, measure, pull, push and seal checkpoints."),
    "keys": ("glowplug.cli.keys", "Make and show signing keys."),
    "inject": ("glowplug.cli.inject", "Write a folder that runs Glowplug beside an engine in an unmodified image."),
    "plan": ("glowplug.cli.plan", "Size a deployment and predict how long it takes to start."),
    "doctor": ("glowplug.cli.doctor", "Check manifests, or this machine: what makes a start slow, or breaks it."),
    "deploy": ("glowplug.cli.deploy", "Write Kubernetes manifests for a model that starts fast."),
}


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"glowplug {__version__}")
        raise typer.Exit


_EPILOG = """
Exit codes: 0 done; 1 a finding, a failed check, or an error of the store or of this machine; 2 wrong usage; 130 interrupted.
Those of run are COMMAND's own.
"""

app = App(cls=lazy_group("glowplug", _COMMANDS), no_args_is_help=True, epilog=_EPILOG)


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Start an LLM inference server on a new node as fast as on a warm one."""


def main() -> None:
    """Run the command line and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # None where it was closed before we began
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks is no reason to end
    output = sys.stdout
    try:
        try:
            app()
        except SystemExit:
            if sys.stdout is not output:  # typer has seen the pipe break, put a silent output in its place, and exits with 1
                raise BrokenPipeError from None
            raise
        finally:
            if sys.stdout is not None:  # None where it was closed before we began
                sys.stdout.flush()  # here, where a failure can still be said
    except UsageError as error:
        _say(error)
        sys.exit(2)
    except GlowplugError as error:
        _say(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stdout = output
        _drop_output()  # whoever read it has gone; there is nobody to tell
        sys.exit(128 + signal.SIGPIPE)
    except (OSError, MemoryError) as error:
        _drop_output()
        _say(_of_system(error))
        sys.exit(1)


def _of_system(error: OSError | MemoryError) -> LocalError:
    """What the system has refused, in our words."""
    if isinstance(error, MemoryError) or error.errno == errno.ENOMEM:
        hint = "raise ulimit -v or the container's memory limit, or use a smaller buffer"
        return LocalError("no memory is left", object="memory", hint=hint)
    problem = error.strerror or str(error)
    return LocalError(f"{error.filename}: {problem}" if error.filename else problem)


def _drop_output() -> None:
    """What could not be written is not tried again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _say(error: GlowplugError) -> None:
    print(f"glowplug: {printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {printable(error.hint)}", file=sys.stderr)


if __name__ == "__main__":
    main()
