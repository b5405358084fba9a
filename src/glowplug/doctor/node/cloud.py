"""What kind of instance this is: by its metadata service, else by its firmware.

The metadata service (version 2 only) is asked once, for a second at most, and not at all where the firmware names another maker
than Amazon or ``AWS_EC2_METADATA_DISABLED`` says so. A pod with a hop limit of 1 before it gets no answer, which is as it should
be; then the firmware's own name for the machine, the instance type on Nitro, is all that is known.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from glowplug.doctor.node.facts import Cloud
from glowplug.doctor.node.files import on, text

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 1
_DOCUMENT = "latest/dynamic/instance-identity/document"
_ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_MAKER = "Amazon EC2"


def find_cloud(env: Mapping[str, str], root: str = "/") -> Cloud:
    """The instance's type and place, as far as it tells."""
    maker, product = (text(on(root, "sys/devices/virtual/dmi/id", name)) for name in ("sys_vendor", "product_name"))
    if maker in {"", _MAKER} or env.get(_ENDPOINT):
        document = _document(env)
        if document:
            kind, region, zone = (_field(document, name) for name in ("instanceType", "region", "availabilityZone"))
            return Cloud(kind, region, zone, "metadata service")
    return Cloud(product, source="firmware") if maker == _MAKER else Cloud()


def _field(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _document(env: Mapping[str, str]) -> Mapping[str, Any]:
    """The instance's identity document; empty if there is none."""
    import botocore.exceptions  # noqa: PLC0415  0.4 s, where it is needed
    import botocore.utils  # noqa: PLC0415  the same

    class Fetcher(botocore.utils.IMDSFetcher):  # type: ignore[misc]  # botocore has no types
        def fetch(self) -> str:
            token = self._fetch_metadata_token()
            return self._get_request(_DOCUMENT, None, token).text if token else "{}"

    config = {
        "ec2_metadata_service_endpoint": env.get(_ENDPOINT),
        "ec2_metadata_service_endpoint_mode": env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower(),
    }
    try:
        fetcher = Fetcher(timeout=_TIMEOUT_S, num_attempts=1, env=dict(env), config=config)
        found = json.loads(fetcher.fetch())
    except (botocore.exceptions.BotoCoreError, Fetcher._RETRIES_EXCEEDED_ERROR_CLS, ValueError):  # noqa: SLF001  not exported
        return {}
    return found if isinstance(found, dict) else {}
