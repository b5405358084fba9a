"""``python3 -m scripts COMMAND``: what the Makefile's targets run.

This file alone must also parse on old Pythons, so that they get a clear line instead of a syntax error: no annotations, no new
syntax.
"""
# mypy: disallow-untyped-defs=false, disallow-untyped-calls=false
# ruff: noqa: ANN202

import glob
import os
import shutil
import sys


def _newer_pythons():
    for minor in ("11", "13", "12", "14"):
        name = "python3." + minor
        yield shutil.which(name)
        yield from sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3." + minor + ".*/bin/" + name)))


def _continue_on_a_newer_python():
    if not os.environ.get("GLOWPLUG_SETUP_RESTARTED"):  # at most once: a version manager's python3.11 may still be an older one
        for path in _newer_pythons():
            if path and os.access(path, os.X_OK):
                os.environ["GLOWPLUG_SETUP_RESTARTED"] = "1"
                os.execv(path, [path, "-m", "scripts", *sys.argv[1:]])
    sys.exit(
        "error: the set-up needs Python 3.11 or newer, and {} is {}. Install one, or name it:"
        " make setup PYTHON=/path/to/python3.11".format(sys.executable, ".".join(map(str, sys.version_info[:3])))
    )


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036  the point of this file
        _continue_on_a_newer_python()
    from scripts.commands import main

    sys.exit(main(sys.argv[1:]))
