"""The kinds of differences between two starts: how likely nobody meant them, how far apart they put the two, and what to do.

The likelihoods are an order, not a measurement: what is different in each pod comes first, then what follows from where a thing
lies or which image it is in, then drift of software and machines, and last what somebody has written down on purpose. The distance
says how far two deployments are from being the same one: a pod's address puts nothing between them, another model a lot.
"""

from __future__ import annotations

from dataclasses import dataclass

LIKELY_ACCIDENT = 0.8
"""From here on a difference is called likely an accident."""
LIKELY_MEANT = 0.4
"""Below this it is called likely meant."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of difference.

    Attributes:
        name: for programs, such as ``address``.
        likelihood: that nobody meant it, from 0 to 1.
        distance: how much further apart it puts two deployments.
        what: what it is, as a clause.
        fix: what to do, as an instruction.
    """

    name: str
    likelihood: float
    distance: float
    what: str
    fix: str


_SAME_OR_NONE = "unset it, or give it the same value in every pod"

ADDRESS = Kind("address", 0.98, 0.1, "an address, of a pod or a node", _SAME_OR_NONE)
PORT = Kind("port", 0.96, 0.1, "a port", "give every pod the same port; each has a network of its own")
IDENTITY = Kind("identity", 0.95, 0.1, "an identifier made anew for each pod", _SAME_OR_NONE)
POD = Kind("pod name", 0.95, 0.1, "the name of a pod", _SAME_OR_NONE)
HOST = Kind("host name", 0.94, 0.1, "the name of a host", _SAME_OR_NONE)
ORDINAL = Kind("ordinal", 0.93, 0.2, "a number of this process or pod among others", "leave it to the engine, or unset it")
BUILD = Kind(
    "build", 0.92, 0.2, "a name of the image or of its build", "unset it in the image or in the pod; no compiled code depends on it"
)
HOME = Kind("home folder", 0.91, 0.2, "a folder below the home or cache folder", "set HOME and XDG_CACHE_HOME alike in every pod")
CACHE_FOLDER = Kind(
    "cache folder", 0.9, 0.2, "where the live cache lies, which compiled files hold as an absolute path",
    "give every pod the same --cache-dir (GLOWPLUG_CACHE_DIR)",
)  # fmt: skip
INSTALL_FOLDER = Kind(
    "install folder", 0.89, 0.3, "where the engine is installed; the paths of its files are part of its own key",
    "install it in the same folder everywhere, as one image does",
)  # fmt: skip
BUCKET = Kind(
    "bucket", 0.88, 0.3, "another URL for what has the same name",
    "use one URL everywhere, or let glowplug run stream it: then its content counts",
)  # fmt: skip
PATH = Kind("path", 0.85, 0.3, "a path on the node", "mount it at the same path in every pod")
MODEL_FOLDER = Kind("model folder", 0.85, 0.3, "the same model in another folder", "mount the model at the same path in every pod")
UNKNOWN_COMMIT = Kind(
    "unknown commit", 0.84, 0.3, "a commit that is known only where the model is in the local Hugging Face cache",
    "pin it with --revision COMMIT",
)  # fmt: skip
EDITED = Kind(
    "edited code", 0.75, 0.4, "times and sizes of a package's files, because it was not installed from a wheel",
    "install it from a wheel, not in editable mode",
)  # fmt: skip
THREADS = Kind(
    "threads", 0.65, 0.4, "a number of threads, which code for the processor is compiled for",
    "give every pod the same CPU limit, or set the number",
)  # fmt: skip
URL = Kind("URL", 0.6, 0.6, "a URL", "use the same one everywhere, or leave it out")
REBUILT = Kind("rebuilt package", 0.6, 0.5, "another build of the same version", "install the same wheel, or use the same image")
COMMIT = Kind(
    "commit", 0.58, 0.6, "another commit of the same model: it was updated",
    "pin it with --revision COMMIT, or let one start publish for the new one",
)  # fmt: skip
PATCH = Kind("patch version", 0.56, 0.6, "a patch version", "use the same image; or let one start publish for the new one")
SETTING_PRESENCE = Kind("setting", 0.5, 0.5, "a variable that only one of the two has", "set it in both or in neither")
DRIVER = Kind(
    "driver", 0.48, 0.5, "the version of the accelerator's driver", "use one node image; or let one start publish for this one"
)
SETTING = Kind(
    "setting", 0.45, 0.6, "a variable that can change compiled code", "give it one value; or let one start publish for each"
)
PROCESSOR = Kind(
    "processor", 0.42, 1.0, "the processor's instruction sets, which some code is compiled for",
    "use one instance type; or let one start publish for each",
)  # fmt: skip
VERSION = Kind("version", 0.36, 1.2, "a version", "use the same image; or let one start publish for the new one")
PYTHON = Kind("Python", 0.35, 1.2, "the engine's Python or libc", "use the same image; or let one start publish for the new one")
ACCELERATOR = Kind(
    "accelerator", 0.32, 1.5, "the accelerators: code for one does not run on another, or not on as many",
    "each kind of node has a cache of its own: let one start publish for this one",
)  # fmt: skip
REVISION = Kind("revision", 0.3, 0.6, "the revision that was asked for", "ask for the same one; or let one start publish for each")
ARGUMENT = Kind("option", 0.25, 0.8, "an option of the engine", "give every pod the same; or let one start publish for each")
PARALLELISM = Kind(
    "parallelism",
    0.2,
    1.5,
    "how the model is spread over devices",
    "each size has a cache of its own: let one start publish for it",
)
CONTENT = Kind(
    "model content", 0.18, 2.0, "the model's own files: they were updated, or it is another one",
    "each model has a cache of its own: let one start publish for it",
)  # fmt: skip
PROGRAM = Kind(
    "program", 0.15, 2.0, "the program itself, or its words", "each program has a cache of its own: let one start publish for it"
)
MODEL = Kind("model", 0.1, 8.0, "another model", "each model has a cache of its own: let one start publish for it")
ENGINE = Kind("engine", 0.05, 16.0, "another engine", "each engine has a cache of its own: let one start publish for it")
OTHER = Kind("component", 0.4, 1.0, "a part of the envelope", "make it the same; or let one start publish for each")


def likelihood_in_words(likelihood: float) -> str:
    """``likely an accident``, ``perhaps not meant`` or ``likely meant``."""
    if likelihood >= LIKELY_ACCIDENT:
        return "likely an accident"
    return "perhaps not meant" if likelihood >= LIKELY_MEANT else "likely meant"
