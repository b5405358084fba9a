"""What botocore knows: profile, region, endpoint, credentials, signature.

Botocore is the one place that follows every way in which a pod gets credentials (IRSA, EKS Pod Identity, instance role, SSO, a
process, static keys), refreshes them in time, and signs as Amazon expects. Only that part of it is used: no client is made and no
service model is loaded. This module is loaded by the first request to S3 and never before, since importing botocore takes 0.4 s.

Botocore reads a few variables from the process's environment whatever it is given (IRSA's ``AWS_ROLE_ARN`` and
``AWS_WEB_IDENTITY_TOKEN_FILE``, the instance metadata switches); everything else comes from the mapping passed in.
"""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import botocore.auth
import botocore.awsrequest
import botocore.configprovider
import botocore.credentials
import botocore.exceptions
import botocore.session

from glowplug.errors import Forbidden, UsageError
from glowplug.store.s3_endpoint import ADDRESSING_VARIABLE, UNSIGNED_VARIABLE, Addressing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FALLBACK_CA_BUNDLE = str(Path(botocore.__file__).with_name("cacert.pem"))
"""Mozilla's certificates, as botocore ships them."""
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_CHAIN = (
    "looked for AWS_ACCESS_KEY_ID, AWS_PROFILE, a web identity (IRSA), SSO, a credential process, EKS Pod Identity and an instance "
    "role; in a pod, give its service account an IAM role"
)


class Session:
    """Botocore's session for one environment. Safe to use from several threads.

    Args:
        env: read when the session is made; later changes don't count.

    Raises:
        UsageError: the AWS configuration names a profile or a value that isn't there, or can't be parsed.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._renewals = 0
        self._signed: dict[str, tuple[int, int, dict[str, str]]] = {}
        self._session = botocore.session.Session()
        # Set below the session's own variables: an explicit profile would make botocore ignore the access keys of the environment.
        store = self._session.get_component("config_store")
        store.set_config_variable("profile", env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE"))
        store.set_config_variable("config_file", env.get("AWS_CONFIG_FILE", "~/.aws/config"))
        store.set_config_variable("credentials_file", env.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
        self._unsigned = _switch(self._env, UNSIGNED_VARIABLE)
        try:
            self._profile: dict[str, Any] = self._session.get_scoped_config()
        except botocore.exceptions.BotoCoreError as error:
            hint = "check AWS_PROFILE and the files in ~/.aws"
            raise UsageError(f"the AWS configuration can't be used: {error}", object="AWS_PROFILE", hint=hint) from error

    @property
    def region(self) -> str:
        """``AWS_REGION``, ``AWS_DEFAULT_REGION``, the profile's region, or ``us-east-1``."""
        return self._first("AWS_REGION", "AWS_DEFAULT_REGION") or str(self._profile.get("region") or "us-east-1")

    @property
    def endpoint_url(self) -> str | None:
        """The server that the environment or the profile names for S3; None is Amazon's."""
        if self._flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls"):
            return None
        full = self._session.full_config
        found = botocore.configprovider.ConfiguredEndpointProvider(full, self._profile, "s3", environ=self._env).provide()
        return cast("str | None", found)

    @property
    def ca_bundle(self) -> str | None:
        """A file of CA certificates to trust instead of the system's."""
        return self._first("AWS_CA_BUNDLE") or self._profile.get("ca_bundle")

    @property
    def dualstack(self) -> bool:
        """Whether Amazon's IPv6 hosts are asked for."""
        return self._flag("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint")

    @property
    def fips(self) -> bool:
        """Whether Amazon's FIPS hosts are asked for."""
        return self._flag("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint")

    @property
    def addressing(self) -> Addressing:
        """``GLOWPLUG_S3_ADDRESSING``, or the profile's ``s3.addressing_style``; ``auto`` where neither is set.

        Raises:
            UsageError: another value.
        """
        section = self._profile.get("s3")
        configured = section.get("addressing_style") if isinstance(section, dict) else None
        value = self._env.get(ADDRESSING_VARIABLE) or configured or "auto"
        if value not in {"auto", "path", "virtual"}:
            hint = "write path, virtual or auto"
            raise UsageError(f"{ADDRESSING_VARIABLE}: {value!r} is no addressing style", object=ADDRESSING_VARIABLE, hint=hint)
        return cast("Addressing", value)

    @property
    def unsigned(self) -> bool:
        """Whether requests are sent without a signature: ``GLOWPLUG_S3_UNSIGNED``."""
        return self._unsigned

    def sign(self, method: str, url: str, headers: dict[str, str], *, region: str, payload_sha256: str) -> dict[str, str]:
        """The headers to send: those given, with date, token and signature. About 0.2 ms; now and then it fetches credentials.

        With ``GLOWPLUG_S3_UNSIGNED`` those given, and nothing else: for buckets that everybody may read.

        Args:
            method: of the request.
            url: of the request, with its quoted query.
            headers: all that are signed.
            region: of the bucket.
            payload_sha256: hex digest of the body, or ``UNSIGNED-PAYLOAD``.

        Raises:
            Forbidden: no credentials, or they can't be fetched.
        """
        if self._unsigned:
            return dict(headers)
        request = botocore.awsrequest.AWSRequest(method=method, url=url, headers=headers)
        request.context["payload_sha256"] = payload_sha256
        _Signer(self.credentials()[0], "s3", region).add_auth(request)
        return dict(request.headers.items())

    def sign_read(self, url: str, host: str, *, region: str) -> dict[str, str]:
        """The headers of a GET that has further headers which are not signed. About 2 µs, but for the first one in a second.

        Signing only what every request for an object has in common (S3 asks for no more) lets the ranges of one second share a
        signature: at 8 MiB a range, signing each costs a tenth of receiving it.

        Args:
            url: of the request.
            host: for the ``Host`` header.
            region: of the bucket.

        Raises:
            Forbidden: no credentials, or they can't be fetched.
        """
        second, renewals = int(time.monotonic()), self._renewals
        known = self._signed.get(url)
        if known is None or known[:2] != (second, renewals):
            headers = self.sign("GET", url, {"Host": host}, region=region, payload_sha256=EMPTY_SHA256)
            known = (second, renewals, headers)
            # A new dictionary each time: other threads read the old one meanwhile.
            self._signed = {one: kept for one, kept in self._signed.items() if kept[0] == second} | {url: known}
        return known[2]

    @property
    def renewals(self) -> int:
        """How often credentials were thrown away; for ``renew``."""
        return self._renewals

    def renew(self, renewals: int) -> bool:
        """Look for credentials anew, since the server calls these expired. Whether there are others now.

        Args:
            renewals: the count when they were used: of several threads that are told so at once, one acts.

        Raises:
            Forbidden: they can't be fetched.
        """
        with self._lock, _named():
            if renewals == self._renewals and self._credentials is not None:
                found = self._resolver().load_credentials()
                if found is None or found.get_frozen_credentials() == self._credentials.get_frozen_credentials():
                    return False
                self._credentials = found
                self._renewals += 1
            return True

    def credentials(self) -> tuple[Any, str]:
        """Those that sign now (botocore's, frozen), and botocore's name for what gave them, such as ``env`` or ``container-role``.

        Raises:
            Forbidden: there are none, or they can't be fetched.
        """
        with self._lock, _named():
            if self._credentials is None:
                self._credentials = self._resolver().load_credentials()
            if self._credentials is not None:
                return self._credentials.get_frozen_credentials(), str(self._credentials.method)
        raise Forbidden("no credentials for S3", object="AWS credentials", hint=_CHAIN)

    def _resolver(self) -> Any:
        resolver = self._session.get_component("credential_provider")
        ours = {
            botocore.credentials.EnvProvider.METHOD: botocore.credentials.EnvProvider(environ=self._env),
            botocore.credentials.ContainerProvider.METHOD: botocore.credentials.ContainerProvider(environ=self._env),
        }
        resolver.providers = [ours.get(provider.METHOD, provider) for provider in resolver.providers]
        return resolver

    def _first(self, *names: str) -> str | None:
        return next((self._env[name] for name in names if self._env.get(name)), None)

    def _flag(self, variable: str, option: str) -> bool:
        return str(self._env.get(variable) or self._profile.get(option) or "").lower() == "true"


def _switch(env: Mapping[str, str], variable: str) -> bool:
    value = env.get(variable, "").strip().lower()
    if value not in {"", "1", "true", "yes", "on", "0", "false", "no", "off"}:
        raise UsageError(f"{variable}: {value!r} is neither on nor off", object=variable, hint="write 1 or 0")
    return value in {"1", "true", "yes", "on"}


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except (botocore.exceptions.BotoCoreError, OSError) as error:  # OSError: a token or a program that can't be read
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        raise Forbidden(f"the credentials for S3 can't be fetched: {why}", object="AWS credentials", hint=_CHAIN) from error


class _Signer(botocore.auth.S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    """Botocore's signature with a digest that we know already: it would read a body again to make one, or refuse an iterator."""

    def payload(self, request: Any) -> str:
        return str(request.context["payload_sha256"])
