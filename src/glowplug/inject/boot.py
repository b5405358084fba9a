"""Starts Glowplug from the payload that this file lies in, whatever the environment says.

Run as a script by the launcher, with ``-I -S``: no user's or system's packages, no ``PYTHON*`` variable. Imports
nothing of Glowplug before the path is set. If Glowplug can't be imported, ``run -- COMMAND`` becomes COMMAND, as in
the launcher.
"""

from __future__ import annotations

import os
import sys

SITE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def restore_locale() -> None:
    """Undo what this Python's start-up did to ``LC_CTYPE`` (PEP 538): the engine's environment is not ours to change."""
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read()
    except OSError:
        return
    before = [entry for entry in given.split(b"\0") if entry.startswith(b"LC_CTYPE=")]
    if before:
        os.environb[b"LC_CTYPE"] = before[0].removeprefix(b"LC_CTYPE=")
    else:
        os.environ.pop("LC_CTYPE", None)


def command_to_run(words: list[str]) -> list[str]:
    """The command in ``run [OPTIONS] -- COMMAND``; empty for any other words."""
    if "--" not in words:
        return []
    end = words.index("--")
    return words[end + 1 :] if "run" in words[:end] else []


def main() -> None:
    """Start the command line."""
    sys.path.append(SITE)
    sys.argv[0] = os.path.join(os.path.dirname(os.path.dirname(SITE)), "bin", "glowplug")
    restore_locale()
    try:
        from glowplug.entry import load  # noqa: PLC0415  the path is set only now

        command_line = load()
    except Exception as error:  # a fail-open boundary: the engine starts even if a file of this payload is missing or unreadable
        command = command_to_run(sys.argv[1:])
        if not command:
            raise
        print(f"glowplug: not used, the command starts without it: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os.execvp(command[0], command)  # noqa: S606  no shell is wanted
    command_line()


if __name__ == "__main__":
    main()
