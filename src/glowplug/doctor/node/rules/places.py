"""The store and the model: reachable, allowed, near, and fast enough."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from glowplug.doctor.base import Problem, Rule
from glowplug.plan.fetch import LINE_SHARE, card_mbps
from glowplug.plan.figures import speed as rate
from glowplug.units import MIB, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glowplug.doctor.node.facts import Failed, NodeFacts, Place

_SKEWED_S = 300.0  # a third of what S3 forgives
_JUDGED_BYTES = 64 * MIB
_SLOW_SHARE = 0.1
_SLOW_BYTES_PER_S = 200_000_000
_LONG_LIVED = "AKIA"
_NODE_ROLE = "iam-role"


def _failed(*kinds: Failed) -> Callable[[NodeFacts], Iterator[Problem]]:
    def check(facts: NodeFacts) -> Iterator[Problem]:
        for place in facts.places:
            if place.failure is not None and place.failure.kind in kinds:
                hint = f" ({place.failure.hint})" if place.failure.hint else ""
                yield _problem(place, "", place.failure.message + hint)

    return check


def _problem(place: Place, field: str, message: str) -> Problem:
    return Problem(place.label, field, message, place.folder.path if place.folder is not None else "")


def _other_region(facts: NodeFacts) -> Iterator[Problem]:
    for place in facts.places:
        if facts.cloud.region and place.bucket_region and place.bucket_region != facts.cloud.region:
            yield _problem(place, "region", f"the bucket is in {place.bucket_region}, this machine in {facts.cloud.region}")


def _skewed(facts: NodeFacts) -> Iterator[Problem]:
    for place in facts.places:
        ahead = place.clock_ahead_s
        if ahead is not None and abs(ahead) >= _SKEWED_S:
            which = "ahead of" if ahead > 0 else "behind"
            yield Problem("clock", "", f"is {format_seconds(abs(ahead))} {which} that of {place.server or place.url}")
            return


def _node_role(facts: NodeFacts) -> Iterator[Problem]:
    for place in facts.places:
        if facts.kubernetes and place.who is not None and place.who.provider == _NODE_ROLE:
            yield _problem(place, "identity", f"requests are signed as the node's role{_arn(place)}")


def _long_lived(facts: NodeFacts) -> Iterator[Problem]:
    for place in facts.places:
        who = place.who
        if facts.kubernetes and who is not None and who.access_key.startswith(_LONG_LIVED):
            yield _problem(place, "identity", f"a long-lived access key that ends in {who.ending} (from: {who.provider})")


def _arn(place: Place) -> str:
    return f", {place.who.arn}" if place.who is not None and place.who.arn else ""


def _slow(facts: NodeFacts) -> Iterator[Problem]:
    instance = facts.instance
    for place in facts.places:
        speed = place.speed
        if speed is None or instance is None or place.folder is not None or speed.size_bytes < _JUDGED_BYTES:
            continue
        planned = card_mbps(instance.network_mbps, instance.cards) * 125_000 * LINE_SHARE
        if speed.bytes_per_s < min(_SLOW_SHARE * planned, _SLOW_BYTES_PER_S):
            message = f"{rate(speed.bytes_per_s)}, and {instance.name} should reach {rate(planned)}"
            yield _problem(place, "speed", message)


def _interface_endpoint(facts: NodeFacts) -> Iterator[Problem]:
    for place in facts.places:
        if place.is_aws and place.addresses and all(ipaddress.ip_address(each).is_private for each in place.addresses):
            yield _problem(place, "addresses", f"is reached at {place.addresses[0]}, a private address: an interface endpoint")


def _through_proxy(facts: NodeFacts) -> Iterator[Problem]:
    for place in facts.places:
        if place.proxy:
            yield _problem(place, "proxy", f"is reached {place.proxy}")


def _empty_store(facts: NodeFacts) -> Iterator[Problem]:
    store = facts.place("store")
    if store is not None and store.objects == 0 and store.failure is None:
        yield _problem(store, "content", "nothing has been published there yet")


def _closed_folder(facts: NodeFacts) -> Iterator[Problem]:
    store = facts.place("store")
    if store is not None and store.folder is not None and (reason := store.folder.refusal("write", "rename")):
        yield _problem(store, "write", f"uid {facts.user.uid} can't write there: {reason}")


def _slow_folder(facts: NodeFacts) -> Iterator[Problem]:
    model = facts.place("model")
    mount = model.folder.mount if model is not None and model.folder is not None else None
    if model is not None and mount is not None and mount.fs in {"nfs", "nfs4", "cifs", "smb3"}:
        yield _problem(model, "mount", f"is read over {mount.fs} from {mount.source}")


RULES: tuple[Rule[NodeFacts], ...] = (
    Rule(
        "GP940",
        "Place that can't be reached",
        "error",
        "There is no way to it, it is silent, or it does not answer as an S3 server does. From such a store nothing is restored and"
        " the start is cold; such a model can't be loaded.",
        "Check AWS_ENDPOINT_URL and AWS_REGION, the network policy, security groups and routes. In a private subnet S3 needs a"
        " gateway endpoint or a NAT gateway.",
        ("A02", "https://docs.aws.amazon.com/vpc/latest/privatelink/vpc-endpoints-s3.html"),
        _failed("unreachable"),
    ),
    Rule(
        "GP941",
        "Identity that was refused",
        "error",
        "The server knows the request and says no: the identity lacks s3:ListBucket or s3:GetObject on the prefix, the bucket's or"
        " endpoint's policy forbids it, or the secret or the clock is wrong. The message has its own word for it.",
        "Give the identity the rights in policies/cache-reader.json and policies/weights-reader.json. The facts above name it.",
        ("A18", "https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html"),
        _failed("refused"),
    ),
    Rule(
        "GP942",
        "No credentials",
        "error",
        "Neither variables, nor a profile, a web identity, EKS Pod Identity or an instance role gave any, or what should give them"
        " can't be read. A pod does not reach the node's role where the hop limit is 1, as it should be.",
        "Give the service account an IAM role (EKS Pod Identity or IRSA); with runAsUser and IRSA set fsGroup, so that the token"
        " can be read.",
        ("A18", "https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html"),
        _failed("no credentials"),
    ),
    Rule(
        "GP943",
        "Bucket that does not exist",
        "error",
        "The server has no bucket of this name: a slip in the URL, or another account's endpoint.",
        "Check the URL, AWS_ENDPOINT_URL and the account.",
        ("https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html",),
        _failed("no bucket"),
    ),
    Rule(
        "GP944",
        "Bucket asked for in another region",
        "error",
        "Requests are signed for one region and the bucket lives in another, which refuses them.",
        "Set AWS_REGION to the bucket's region.",
        ("https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html",),
        _failed("wrong region"),
    ),
    Rule(
        "GP945",
        "Nothing under the model's URL",
        "error",
        "No safetensors file is there, so nothing can be loaded.",
        "Check the URL; of a model on the Hugging Face hub push a copy first (glowplug weights push).",
        ("A12",),
        _failed("nothing there"),
    ),
    Rule(
        "GP946",
        "Bucket in another region than the machine",
        "warning",
        "Each start fetches the weights between regions: slower, and paid for by the GB. A gateway endpoint serves its own region"
        " alone.",
        "Copy the bucket to this region, and name the copy: caches are keyed by content, so they hit.",
        ("https://docs.aws.amazon.com/vpc/latest/privatelink/vpc-endpoints-s3.html",),
        _other_region,
    ),
    Rule(
        "GP947",
        "Clock that is wrong",
        "warning",
        "S3 refuses requests whose time differs from its own by 15 minutes (RequestTimeTooSkewed), and temporary credentials look"
        " expired, or not yet valid.",
        "Let chrony or systemd-timesyncd set the clock; on EC2 from 169.254.169.123.",
        (
            "https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html",
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/set-time.html",
        ),
        _skewed,
    ),
    Rule(
        "GP948",
        "Rights of the node in place of the pod's own",
        "warning",
        "Every pod on the node has the same rights, and loses them when the hop limit is set to 1.",
        "Give the pod's service account a role of its own (EKS Pod Identity or IRSA).",
        ("B19",),
        _node_role,
    ),
    Rule(
        "GP949",
        "Long-lived access key in a cluster",
        "warning",
        "It does not expire, is seen by whoever can read the pod or the secret, and ends starts on the day it is replaced.",
        "Give the pod's service account an IAM role (EKS Pod Identity or IRSA).",
        ("B24", "https://docs.aws.amazon.com/IAM/latest/UserGuide/best-practices.html"),
        _long_lived,
    ),
    Rule(
        "GP950",
        "Slow fetch for this instance type",
        "warning",
        "Less than a tenth of what glowplug plan expects of the type's network card, and less than 200 MB/s. A shared NAT gateway,"
        " an interface endpoint, another region or a processor limit does that. Which of them it is can't be seen from here.",
        "Look for an S3 gateway endpoint in the route table (aws ec2 describe-vpc-endpoints), then try glowplug weights bench.",
        ("A02", "A03", "P13", "P14"),
        _slow,
    ),
    Rule(
        "GP951",
        "S3 through an interface endpoint",
        "info",
        "The bucket's name resolves to a private address. An interface endpoint costs by the hour and the GB and has a limit of"
        " bandwidth for each zone; a gateway endpoint has neither.",
        "Add an S3 gateway endpoint, and private DNS for inbound resolvers only.",
        ("A02", "https://aws.amazon.com/blogs/storage/introducing-private-dns-support-for-amazon-s3-with-aws-privatelink/"),
        _interface_endpoint,
    ),
    Rule(
        "GP952",
        "Store or model behind a proxy",
        "warning",
        "All weights pass through it. Such a proxy was set up for the internet, and seldom carries GB/s.",
        "Add the server's host to NO_PROXY; for Amazon S3 .amazonaws.com.",
        ("https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-proxy.html",),
        _through_proxy,
    ),
    Rule(
        "GP953",
        "Store without a cache",
        "info",
        "The next start is cold whatever it asks for. It publishes what it compiles, if it holds a signing key.",
        "Start one engine with a signing key, or run the compile Job that glowplug deploy writes.",
        ("A51",),
        _empty_store,
    ),
    Rule(
        "GP954",
        "Store folder that can't be written",
        "warning",
        "A start there can restore, and can't publish what it compiles.",
        "Let this user write the folder, or start with --role reader.",
        ("A51",),
        _closed_folder,
    ),
    Rule(
        "GP955",
        "Model on a network file system",
        "warning",
        "Elastic EFS gave 894 GiB in 43 minutes. Every start reads all of it.",
        "Stream the weights from S3, or copy them to the node's NVMe.",
        ("P16",),
        _slow_folder,
    ),
)
