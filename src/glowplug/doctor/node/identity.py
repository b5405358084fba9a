"""Who requests to S3 come from: what gave the credentials, the key's id, and for Amazon the identity's name.

Never a secret. Amazon is asked for the name (``sts:GetCallerIdentity``, which everybody may call) only where the store is Amazon's,
so that another server's credentials are sent to nobody else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glowplug.doctor.node.facts import Who

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glowplug.store.s3_session import Session

STS = "AWS_ENDPOINT_URL_STS"
"""Environment variable that names another STS than Amazon's."""
UNSIGNED = "unsigned"
_TIMEOUT_S = 2


def find_who(session: Session) -> Who:
    """Whose credentials a session uses. May fetch them.

    Raises:
        Forbidden: there are no credentials, or they can't be fetched.
    """
    if session.unsigned:
        return Who(UNSIGNED)
    credentials, provider = session.credentials()
    return Who(provider, str(credentials.access_key))


def named(who: Who, session: Session, env: Mapping[str, str]) -> Who:
    """The same with its ARN, where STS answers within seconds.

    Args:
        who: from ``find_who``.
        session: the same.
        env: may name another STS.

    Raises:
        Forbidden: the credentials have expired, and can't be fetched again.
    """
    if who.provider == UNSIGNED:
        return who
    return replace(who, arn=_arn(session.credentials()[0], session.region, env.get(STS)))


def _arn(credentials: Any, region: str, endpoint_url: str | None) -> str:
    """The identity's ARN; empty where STS does not answer at once."""
    import botocore.config  # noqa: PLC0415  with the session, 0.4 s
    import botocore.exceptions  # noqa: PLC0415  the same
    import botocore.session  # noqa: PLC0415  the same

    config = botocore.config.Config(connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"total_max_attempts": 1})
    try:
        client = botocore.session.Session().create_client(
            "sts",
            region_name=region,
            endpoint_url=endpoint_url,
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            aws_session_token=credentials.token,
            config=config,
        )
        return str(client.get_caller_identity().get("Arn") or "")
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
        return ""
