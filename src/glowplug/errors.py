"""Every error Glowplug raises, grouped by who must act.

::

    GlowplugError
    ├── UsageError                      the person at the keyboard: wrong option, unknown scheme, missing key file
    ├── RemoteError                     whoever runs the store
    │   ├── ObjectNotFound              no object under this key
    │   ├── BucketNotFound              no such bucket
    │   ├── Forbidden                   no credentials, wrong credentials, or no right to do this
    │   ├── WrongRegion                 the bucket lives in another region
    │   ├── Unreachable                 no connection, a time-out, a broken connection, or the server's own fault after retries
    │   ├── PreconditionFailed          a conditional write lost: the object exists, or has changed
    │   ├── ObjectChanged               a read pinned to an ETag found another one
    │   └── ConditionalWritesUnsupported   the backend cannot write conditionally
    ├── IntegrityError                  whoever wrote the object: it is not what it should be
    │   ├── TooLarge                    larger than anything that is written there, and not read
    │   ├── BadManifest                 a manifest that may not be used
    │   ├── BadPack                     a pack that is not what its manifest says
    │   ├── BadCheckpoint               a checkpoint that can't be what its writer meant
    │   └── TrustError                  signatures
    │       ├── Unsigned                no signature at all
    │       ├── UnknownKey              signed, but by nobody whom the reader trusts
    │       └── BadSignature            signed by a trusted key, and the signature is wrong
    ├── IncompatibleError               whoever chose the versions: this can't work together
    ├── SecretFound                     whoever captured: the cache tree holds a secret
    ├── LocalError                      whoever runs the node: disk full, read-only folder, no such file
    └── DeadlineExceeded                nobody at once: a step took longer than it may

Each error names its object (a key, a path, an option) and carries a hint: what to do about it.
"""

from __future__ import annotations


class GlowplugError(Exception):
    """Base of all errors that Glowplug raises on purpose.

    Attributes:
        object: what the error is about: a key, a path, an option, a URL. Never a secret.
        hint: what to do about it, as an instruction; may be empty.
    """

    def __init__(self, message: str, *, object: str = "", hint: str = "") -> None:  # noqa: A002  the field's name in every report
        super().__init__(message)
        self.object = object
        self.hint = hint

    @property
    def message(self) -> str:
        """The error's text without the hint."""
        return str(self.args[0])

    def line(self) -> str:
        """Message and hint in one line, for a log."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(GlowplugError):
    """The command line, the environment or a configuration file is wrong; nothing was started."""


class RemoteError(GlowplugError):
    """The object store did not do what was asked."""


class ObjectNotFound(RemoteError):
    """No object under this key."""


class BucketNotFound(RemoteError):
    """The bucket does not exist."""


class Forbidden(RemoteError):
    """The store refused: no credentials, wrong credentials, or no right to do this."""


class WrongRegion(RemoteError):
    """The bucket lives in another region than the one that was asked."""


class Unreachable(RemoteError):
    """No connection, a time-out, a broken connection, or a server fault that outlasted the retries."""


class PreconditionFailed(RemoteError):
    """A conditional write lost: the object exists already, or is no longer the one that was read."""


class ObjectChanged(RemoteError):
    """A read pinned to an ETag found that the object has another one now."""


class ConditionalWritesUnsupported(RemoteError):
    """The store cannot write conditionally, so two writers could overwrite each other."""


class IntegrityError(GlowplugError):
    """An object is not what it should be, and is not used."""


class TooLarge(IntegrityError):
    """An object that is larger than anything that is written under its key; it is not read."""


class BadManifest(IntegrityError):
    """A manifest that can't be read, or that describes files which must not be unpacked."""


class BadPack(IntegrityError):
    """A pack that is not what its manifest says: truncated, altered, or with other members."""


class BadCheckpoint(IntegrityError):
    """A checkpoint that can't be what its writer meant: a damaged header, an index that does not fit its files."""


class TrustError(IntegrityError):
    """A bundle that nobody trusted has signed."""


class Unsigned(TrustError):
    """The bundle carries no signature."""


class UnknownKey(TrustError):
    """The bundle is signed, but by no key that the reader trusts."""


class BadSignature(TrustError):
    """The signature does not match what was signed."""


class IncompatibleError(GlowplugError):
    """Two versions or parts that can't work together."""


class SecretFound(GlowplugError):
    """A file of the cache tree holds a secret, so the tree is not published."""


class LocalError(GlowplugError):
    """This machine: disk full, a folder that can't be written, a file that can't be read."""


class DeadlineExceeded(GlowplugError):
    """A step took longer than its deadline."""
