"""How a checkpoint is fetched: what the user may set, and what an existing pod spec of the Run:ai streamer says already.

The environment is read here and nowhere else in ``weights`` (credentials and endpoints are the store's business, except for the
streamer's own names of them). Where both families of variables say something, ``GLOWPLUG_*`` wins. A value that can't be used is an
error that names its variable, so that no pod runs for months with a setting that nobody heeded.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from glowplug.errors import UsageError
from glowplug.store.s3_endpoint import ADDRESSING_VARIABLE, UNSIGNED_VARIABLE
from glowplug.units import KIB, MIB, parse_bandwidth, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEAST_CHUNK_BYTES = 64 * KIB
LEAST_BANDWIDTH = 125_000
"""Bytes a second, 1 Mbit/s: with less, a range of the usual size takes longer than a request may."""
MOST_CONCURRENCY = 1024
_RUNAI = "RUNAI_STREAMER_"
_OWN = "GLOWPLUG_WEIGHTS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """What a fetch may do. Every field has a value that suits most stores; ``weights bench`` finds better ones.

    Attributes:
        concurrency: requests at once, fixed; None: found by climbing between the two bounds. Of a local source always fixed.
        min_concurrency: lower bound, unless the server asks for fewer.
        max_concurrency: upper bound.
        chunk_bytes: largest range; None: 8 MiB from a network, 16 MiB from a disk.
        range_timeout_s: longest attempt at one range. The next one goes on where it stopped.
        low_speed_bytes_per_s: a connection that brings less than this during ``low_speed_window_s`` is given up. 0: never.
        low_speed_window_s: how long it may be slow, the wait for the first byte included.
        attempts: failed attempts in a row at one range that end the load. One that brought a good part of it isn't counted.
        max_bandwidth: bytes a second, of all requests together, ``LEAST_BANDWIDTH`` at least; None for no cap.
        hedge: send a second request for a range that takes much longer than the others.
        memory_bytes: size of the buffer, as the environment has it: -1 for the whole checkpoint, 0 for the largest tensor. None:
            it says nothing.
    """

    concurrency: int | None = None
    min_concurrency: int = 4
    max_concurrency: int = 32
    chunk_bytes: int | None = None
    range_timeout_s: float = 120.0
    low_speed_bytes_per_s: int = 32 * KIB
    low_speed_window_s: float = 10.0
    attempts: int = 6
    max_bandwidth: int | None = None
    hedge: bool = True
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        bounds: list[tuple[str, float | None, float]] = [
            ("concurrency", self.concurrency, 1),
            ("min_concurrency", self.min_concurrency, 1),
            ("max_concurrency", self.max_concurrency, self.min_concurrency),
            ("chunk_bytes", self.chunk_bytes, LEAST_CHUNK_BYTES),
            ("range_timeout_s", self.range_timeout_s, 0.001),
            ("low_speed_bytes_per_s", self.low_speed_bytes_per_s, 0),
            ("low_speed_window_s", self.low_speed_window_s, 0.001),
            ("attempts", self.attempts, 1),
            ("max_bandwidth", self.max_bandwidth, LEAST_BANDWIDTH),
            ("memory_bytes", self.memory_bytes, -1),
        ]
        for name, value, least in bounds:
            if value is not None and value < least:
                raise UsageError(f"{name}: {value} is too small", object=name, hint=f"give at least {least}")
        for name in ("concurrency", "min_concurrency", "max_concurrency"):
            value = getattr(self, name)
            if value is not None and value > MOST_CONCURRENCY:
                raise UsageError(f"{name}: {value} is too large", object=name, hint=f"give at most {MOST_CONCURRENCY}")

    @property
    def memory(self) -> str:
        """``memory_bytes`` as ``memory.choose_memory`` takes it: ``auto``, ``full`` or a number of bytes."""
        if self.memory_bytes is None:
            return "auto"
        return "full" if self.memory_bytes < 0 else str(self.memory_bytes)

    def chunk_for(self, *, local: bool) -> int:
        """``chunk_bytes``, or what suits the source."""
        return self.chunk_bytes or (16 * MIB if local else 8 * MIB)

    def over(self, **overrides: Any) -> FetchSettings:
        """These settings with others in their place; an override of None changes nothing.

        Raises:
            UsageError: a value that can't be.
        """
        return replace(self, **{name: value for name, value in overrides.items() if value is not None})

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> FetchSettings:
        """What the environment says, over the defaults.

        Raises:
            UsageError: a value that can't be used; it names the variable.
        """
        found: dict[str, Any] = {}
        variables: dict[str, str] = {}
        for name, variable, parse in _VARIABLES:
            value = parse(env[variable], name=variable) if env.get(variable, "").strip() and name not in found else None
            if value is not None:
                found[name], variables[name] = value, variable
        usual = cls()
        if "min_concurrency" in found:
            found.setdefault("max_concurrency", max(found["min_concurrency"], usual.max_concurrency))
        if "max_concurrency" in found:
            found.setdefault("min_concurrency", max(1, min(found["max_concurrency"], usual.min_concurrency)))
        try:
            return usual.over(**found)
        except UsageError as error:
            variable = variables.get(error.object, error.object)
            raise UsageError(error.message.replace(error.object, variable, 1), object=variable, hint=error.hint) from error


def _number(text: str, *, name: str) -> int:
    try:
        return int(text.strip())
    except ValueError as error:
        raise UsageError(f"{name}: {text!r} is not a whole number", object=name, hint="write a number such as 16") from error


def _unless_zero(parse: Callable[..., float]) -> Callable[..., float | None]:
    """Zero says nothing: it means "find it" or "the library's own" where the streamer documents it."""
    return lambda text, *, name: parse(text, name=name) or None


def _milliseconds(text: str, *, name: str) -> float:
    return _number(text, name=name) / 1000


def _attempts(text: str, *, name: str) -> int:
    return _number(text, name=name) + 1


def _memory(text: str, *, name: str) -> int:
    return -1 if text.strip() == "-1" else parse_bytes(text, name=name)


def _switch(text: str, *, name: str) -> bool:
    value = text.strip().lower()
    if value not in {"1", "true", "yes", "on", "0", "false", "no", "off"}:
        raise UsageError(f"{name}: {text!r} is neither on nor off", object=name, hint="write 1 or 0")
    return value in {"1", "true", "yes", "on"}


_VARIABLES: tuple[tuple[str, str, Callable[..., float | None]], ...] = (
    ("concurrency", f"{_OWN}CONCURRENCY", _unless_zero(_number)),
    ("concurrency", f"{_RUNAI}OBJ_CONCURRENCY", _unless_zero(_number)),
    ("concurrency", f"{_RUNAI}CONCURRENCY", _unless_zero(_number)),
    ("min_concurrency", f"{_OWN}MIN_CONCURRENCY", _number),
    ("max_concurrency", f"{_OWN}MAX_CONCURRENCY", _number),
    ("chunk_bytes", f"{_OWN}CHUNK_SIZE", parse_bytes),
    ("chunk_bytes", f"{_RUNAI}CHUNK_BYTESIZE", _unless_zero(parse_bytes)),
    ("range_timeout_s", f"{_OWN}RANGE_TIMEOUT", parse_seconds),
    ("range_timeout_s", f"{_RUNAI}S3_TIMEOUT", _unless_zero(parse_seconds)),
    ("low_speed_bytes_per_s", f"{_OWN}LOW_SPEED_LIMIT", parse_bytes),
    ("low_speed_bytes_per_s", f"{_RUNAI}S3_LOW_SPEED_LIMIT", parse_bytes),
    ("low_speed_window_s", f"{_OWN}LOW_SPEED_WINDOW", parse_seconds),
    ("low_speed_window_s", f"{_RUNAI}S3_REQUEST_TIMEOUT_MS", _unless_zero(_milliseconds)),
    ("attempts", f"{_OWN}ATTEMPTS", _number),
    ("attempts", f"{_RUNAI}S3_MAX_RETRIES", _attempts),
    ("max_bandwidth", "GLOWPLUG_MAX_BANDWIDTH", parse_bandwidth),
    ("hedge", f"{_OWN}HEDGE", _switch),
    ("memory_bytes", f"{_RUNAI}MEMORY_LIMIT", _memory),
)
"""Field, variable, how to read it. Of several variables for a field the first that says something counts."""


def s3_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for the S3 client: the streamer's names for endpoint, addressing and anonymous reading become ours.

    Variables that the client knows by itself (``AWS_ENDPOINT_URL``, ``AWS_ENDPOINT_URL_S3``, ``GLOWPLUG_S3_ADDRESSING``) win.
    ``RUNAI_STREAMER_NO_BOTO3_SESSION`` has no meaning here: credentials always come from botocore's chain.

    Raises:
        UsageError: a switch that is none.
    """
    made = dict(env)
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    if not endpoint:
        endpoint = env.get("S3_ENDPOINT") or env.get(f"{_RUNAI}S3_ENDPOINT")
        if endpoint:
            made["AWS_ENDPOINT_URL_S3"] = endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
    unsigned, addressing = f"{_RUNAI}S3_UNSIGNED", f"{_RUNAI}S3_USE_VIRTUAL_ADDRESSING"
    if env.get(unsigned) and not env.get(UNSIGNED_VARIABLE):
        made[UNSIGNED_VARIABLE] = "true" if _switch(env[unsigned], name=unsigned) else "false"
    if env.get(addressing) and not env.get(ADDRESSING_VARIABLE):
        virtual = _switch(env[addressing], name=addressing)
        # A server without a name has no virtual hosts; the streamer's client knows that as well.
        made[ADDRESSING_VARIABLE] = "auto" if virtual and _is_ip(endpoint) else "virtual" if virtual else "path"
    return made


def _is_ip(endpoint: str | None) -> bool:
    try:
        ipaddress.ip_address(urlsplit(endpoint or "").hostname or "")
    except ValueError:
        return False
    return True
