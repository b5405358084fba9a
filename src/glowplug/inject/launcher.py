"""The launcher, ``DIR/bin/glowplug``: starts Glowplug on the carried Python, or the engine without Glowplug.

Why a shell script: it is the one program that every engine's image has. It decides in some 4 ms whether the carried
Python can start here, and if it can't, ``run -- COMMAND`` becomes COMMAND: an engine must start without Glowplug
rather than not at all. Why the loader by name: ``ld.so --library-path`` gives one process its libraries and leaves
the environment, which the engine inherits, untouched; no ``LD_*`` and no ``PYTHON*`` variable is ever set.
"""

from __future__ import annotations

_BOOT = "$_gp_home/site/glowplug/inject/boot.py"

_HEAD = """\
#!/bin/sh
# Glowplug beside an engine in any image. Written by: glowplug inject. Needs /bin/sh and {needs}.
# Where Glowplug can't start, "run -- COMMAND" starts COMMAND without it.
_gp_me=$0
while [ -h "$_gp_me" ]; do
  _gp_to=$(readlink "$_gp_me")
  case $_gp_to in /*) _gp_me=$_gp_to ;; *) _gp_me=${{_gp_me%/*}}/$_gp_to ;; esac
done
case $_gp_me in /*) ;; *) _gp_me=$PWD/$_gp_me ;; esac
_gp_home=${{_gp_me%/*}}/../{payload}
"""

_CARRIED = """\
_gp_loader={loader}
if [ ! -x "$_gp_loader" ]; then
  _gp_why="this image has no $_gp_loader, so it is not one with glibc on {machine}"
elif [ ! -r "$_gp_home/glowplug.json" ] || [ ! -x "$_gp_home/python/bin/{python}" ] || [ ! -r "{boot}" ]; then
  _gp_why="$_gp_home is missing, or not whole, or can't be read"
else
  # The image's own loader knows whether its glibc is new enough for the most demanding of the files.
  _gp_why=$(LD_PRELOAD= "$_gp_loader" --library-path "$_gp_home/lib" --list "$_gp_home/{demanding}" 2>&1 >/dev/null) ||
    _gp_why=${{_gp_why:-unknown}}
  [ "$_gp_why" ] ||
    exec "$_gp_loader" --library-path "$_gp_home/lib" "$_gp_home/python/bin/{python}" -I -S -B "{boot}" "$@"
  _gp_why=${{_gp_why%%
*}}
  _gp_why=${{_gp_why##*: }}
  _gp_why="${{_gp_why%% (*}} (it needs glibc {glibc} or newer)"
fi
"""

_FOUND = """\
if [ ! -r "{boot}" ]; then
  _gp_why="$_gp_home is missing, or not whole, or can't be read"
elif _gp_python=$(command -v {python}); then
  exec "$_gp_python" -I -S -B "{boot}" "$@"
else
  _gp_why="it needs {python}, and there is none in PATH"
fi
"""

_TAIL = """\
while [ $# -gt 0 ]; do
  case $1 in
    run) _gp_run=yes ;;
    --) shift; break ;;
  esac
  shift
done
if [ "${_gp_run-}" ] && [ $# -gt 0 ]; then
  echo "glowplug: not used, the command starts without it: $_gp_why" >&2
  exec "$@"
fi
echo "glowplug: can't start: $_gp_why" >&2
exit 1
"""


def carried(*, payload: str, python: str, loader: str, machine: str, demanding: str, glibc: str) -> str:
    """The launcher of a folder that carries a Python.

    Args:
        payload: the folder's name beside ``bin/``.
        python: the program's name, ``python3.13``.
        loader: the dynamic loader's absolute path.
        machine: what the files were built for, ``x86_64``.
        demanding: the file that needs the newest glibc, relative to the payload.
        glibc: that version, ``2.34``.
    """
    head = _HEAD.format(payload=payload, needs=f"glibc {glibc} or newer on {machine}")
    return (
        head + _CARRIED.format(loader=loader, machine=machine, demanding=demanding, python=python, glibc=glibc, boot=_BOOT) + _TAIL
    )


def found(*, payload: str, python: str) -> str:
    """The launcher of a folder that looks for its Python in ``PATH``."""
    return _HEAD.format(payload=payload, needs=f"{python} in PATH") + _FOUND.format(python=python, boot=_BOOT) + _TAIL
