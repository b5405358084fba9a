"""Where a bucket is to be found: which host, which port, which path.

Two styles exist. Amazon wants ``bucket.host/key`` (virtual-host style); almost every other server wants ``host/bucket/key`` (path
style), because it has no wildcard DNS name or certificate. This module decides by the endpoint unless the user has decided, and
turns a bucket and a key into what goes on the wire. It reads no environment and opens no connection.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from glowplug.errors import UsageError
from glowplug.store.keys import is_key

Addressing: TypeAlias = Literal["auto", "path", "virtual"]

ADDRESSING_VARIABLE = "GLOWPLUG_S3_ADDRESSING"
UNSIGNED_VARIABLE = "GLOWPLUG_S3_UNSIGNED"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
# A name that can be a single DNS label, hence is covered by a wildcard certificate.
_DNS_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
# https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/partitions.html
_AWS_SUFFIXES = {
    "cn-": "amazonaws.com.cn",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
    "eusc-": "amazonaws.eu",
}


@dataclass(frozen=True, slots=True)
class Location:
    """What an ``s3://`` URL names."""

    bucket: str
    prefix: str
    """Empty, or parts that end with a slash."""

    @classmethod
    def parse(cls, url: str) -> Location:
        """Read ``s3://bucket/prefix``; a slash at the end makes no difference.

        Raises:
            UsageError: no bucket, a bucket name that can't be one, or a prefix outside the rule for keys.
        """
        parts = urlsplit(url)
        if parts.query or parts.fragment:
            raise UsageError(
                f"{url!r}: options after ? or # are not part of a store's URL",
                object=url,
                hint="set AWS_REGION and AWS_ENDPOINT_URL in the environment",
            )
        if not parts.netloc:
            raise UsageError(f"{url!r} names no bucket", object=url, hint="write s3://bucket/prefix")
        if not _BUCKET.fullmatch(parts.netloc):
            raise UsageError(f"{url!r}: {parts.netloc!r} can't be a bucket's name", object=url, hint="write s3://bucket/prefix")
        prefix = parts.path.strip("/")
        if prefix and not is_key(prefix):
            hint = "use letters, digits and . _ = - in parts separated by /"
            raise UsageError(f"{url!r}: the prefix {prefix!r} can't be used", object=url, hint=hint)
        return cls(parts.netloc, f"{prefix}/" if prefix else "")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One bucket's place on the network."""

    https: bool
    host: str
    """To connect to; in virtual-host style it begins with the bucket."""
    port: int
    base_path: str
    """What stands before every key: ``/bucket`` in path style, empty in virtual-host style; quoted."""
    region: str
    is_aws: bool
    """Amazon's own, so that its documented behaviour need not be probed."""

    def __post_init__(self) -> None:
        if self.base_path.endswith("/"):
            raise ValueError(self.base_path)

    @property
    def authority(self) -> str:
        """The ``Host`` header: the port is left out where it is the scheme's own, as the signature needs it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.https else 80) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme and authority, for messages and proxies."""
        return f"{'https' if self.https else 'http'}://{self.authority}"

    def target(self, key: str, query: dict[str, str] | None = None) -> str:
        """Path and query of a request for a key, or for the bucket if the key is empty."""
        path = f"{self.base_path}/{quote(key, safe='/-_.~')}" if key else self.base_path or "/"
        # Sorted and quoted as SigV4's canonical query is, so that what is signed is what is sent.
        return f"{path}?{urlencode(sorted(query.items()), quote_via=quote, safe='-_.~')}" if query else path


def resolve(
    bucket: str,
    *,
    endpoint_url: str | None,
    region: str,
    addressing: Addressing = "auto",
    dualstack: bool = False,
    fips: bool = False,
) -> Endpoint:
    """The endpoint of a bucket.

    Args:
        bucket: its name.
        endpoint_url: the server, for everything that isn't Amazon; None is Amazon S3 in ``region``.
        region: such as ``eu-west-1``; it is part of every signature.
        addressing: ``auto`` is path style for an ``endpoint_url``, and for a bucket whose name no wildcard certificate covers.
        dualstack: Amazon's IPv4 and IPv6 host.
        fips: Amazon's FIPS 140 host.

    Raises:
        UsageError: ``endpoint_url`` is not an http(s) URL, or virtual-host style can't work there.
    """
    if endpoint_url is None:
        https, base_host, port, path, aws = True, _aws_host(region, dualstack=dualstack, fips=fips), 443, "", True
    else:
        https, base_host, port, path = _parse_endpoint(endpoint_url)
        aws = base_host.endswith(tuple(f".{suffix}" for suffix in ("amazonaws.com", *_AWS_SUFFIXES.values())))
    label = bool(_DNS_LABEL.fullmatch(bucket))
    virtual = addressing == "virtual" or (addressing == "auto" and endpoint_url is None and label)
    if not virtual:
        return Endpoint(https, base_host, port, f"{path}/{quote(bucket)}", region, aws)
    if _is_ip(base_host):
        raise UsageError(
            f"virtual-host addressing needs a host name, and the endpoint {endpoint_url} is an IP address",
            object=ADDRESSING_VARIABLE,
            hint=f"set {ADDRESSING_VARIABLE}=path",
        )
    return Endpoint(https, f"{bucket}.{base_host}", port, path, region, aws)


def _parse_endpoint(url: str) -> tuple[bool, str, int, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if "@" in parts.netloc:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
        raise UsageError("AWS_ENDPOINT_URL must not hold credentials", object="AWS_ENDPOINT_URL", hint=hint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        hint = "write http://host:port or https://host:port"
        raise UsageError(f"AWS_ENDPOINT_URL: {url!r} is not the URL of a server", object="AWS_ENDPOINT_URL", hint=hint)
    https = parts.scheme == "https"
    return https, parts.hostname, port or (443 if https else 80), parts.path.rstrip("/")


def _aws_host(region: str, *, dualstack: bool, fips: bool) -> str:
    suffix = next((suffix for start, suffix in _AWS_SUFFIXES.items() if region.startswith(start)), "amazonaws.com")
    service = "s3-fips" if fips else "s3"
    return f"{service}.dualstack.{region}.{suffix}" if dualstack else f"{service}.{region}.{suffix}"


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
