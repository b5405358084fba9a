"""What AWS needs beside the cluster: the S3 gateway endpoint, and one role for each identity. For Terraform or CloudFormation.

The roles' documents are those of ``policies/``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from glowplug.deploy.commented import note
from glowplug.deploy.design import PUBLISHER, SERVER
from glowplug.deploy.rights import statements

if TYPE_CHECKING:
    from glowplug.deploy.commented import Object
    from glowplug.deploy.design import Design

_PODS = "pods.eks.amazonaws.com"
_ENDPOINT = "Without it S3 goes through the NAT gateway: paid by the GB, and shared by all nodes that start at once."


def _identities(design: Design) -> list[tuple[str, str, bool]]:
    """Component, ServiceAccount, and whether it publishes."""
    made = [(SERVER, design.name, design.is_served_by_publishers)]
    if design.wish.publish == "job":
        made.append((PUBLISHER, design.publisher_account, True))
    return made


def terraform(design: Design) -> str:
    """A ``.tf.json`` file."""
    is_irsa = design.wish.identity == "irsa"
    variables: dict[str, Any] = {
        "vpc_id": {"type": "string", "description": "The cluster's VPC"},
        "route_table_ids": {"type": "list(string)", "description": "Of the subnets that nodes are in"},
    }
    if is_irsa:
        variables["oidc_provider_arn"] = {"type": "string", "description": "The cluster's IAM OIDC provider"}
    elif design.wish.cluster:
        variables["cluster_name"] = {"type": "string", "default": design.wish.cluster}
    else:
        variables["cluster_name"] = {"type": "string"}
    roles: dict[str, Any] = {}
    policies: dict[str, Any] = {}
    associations: dict[str, Any] = {}
    for component, account, publishes in _identities(design):
        key = f"{design.name}-{component}"
        roles[key] = {"name": design.role_name(component), "assume_role_policy": _trust(design, account)}
        policies[key] = {
            "name": "glowplug",
            "role": f"${{aws_iam_role.{key}.id}}",
            "policy": json.dumps(_document(statements(design, publisher=publishes))).replace("${", "$${"),
        }
        if not is_irsa:
            associations[key] = {
                "cluster_name": "${var.cluster_name}",
                "namespace": design.wish.namespace,
                "service_account": account,
                "role_arn": f"${{aws_iam_role.{key}.arn}}",
            }
    resources: dict[str, Any] = {
        "aws_vpc_endpoint": {
            "s3": {
                "//": _ENDPOINT,
                "vpc_id": "${var.vpc_id}",
                "service_name": f"com.amazonaws.{design.wish.region or '${data.aws_region.current.region}'}.s3",
                "vpc_endpoint_type": "Gateway",
                "route_table_ids": "${var.route_table_ids}",
            }
        },
        "aws_iam_role": roles,
        "aws_iam_role_policy": policies,
    }
    if associations:
        resources["aws_eks_pod_identity_association"] = associations
    document: dict[str, Any] = {"variable": variables}
    if not design.wish.region:
        document["data"] = {"aws_region": {"current": {}}}
    return json.dumps({**document, "resource": resources}, indent=2) + "\n"


def cloudformation(design: Design) -> Object:
    """A template."""
    is_irsa = design.wish.identity == "irsa"
    parameters: Object = {
        "VpcId": {"Type": "AWS::EC2::VPC::Id", "Description": "The cluster's VPC"},
        "RouteTableIds": {"Type": "CommaDelimitedList", "Description": "Of the subnets that nodes are in"},
    }
    if is_irsa:
        parameters["OidcProvider"] = {"Type": "String", "Description": "The cluster's OIDC issuer, without https://"}
    else:
        cluster: Object = {"Type": "String", "Description": "The EKS cluster's name"}
        if design.wish.cluster:
            cluster["Default"] = design.wish.cluster
        parameters["ClusterName"] = cluster
    resources: Object = {
        "S3Endpoint": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": {
                note("VpcEndpointType", _ENDPOINT): "Gateway",
                "ServiceName": {"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"},
                "VpcId": {"Ref": "VpcId"},
                "RouteTableIds": {"Ref": "RouteTableIds"},
            },
        }
    }
    for component, account, publishes in _identities(design):
        title = component.title()
        trust: Any = _trust_document(design, account)
        if is_irsa:
            trust = {"Fn::Sub": json.dumps(_irsa(design, account, provider="${OidcProvider}", arn=_PROVIDER_ARN))}
        resources[f"{title}Role"] = {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": design.role_name(component),
                "AssumeRolePolicyDocument": trust,
                "Policies": [{"PolicyName": "glowplug", "PolicyDocument": _document(statements(design, publisher=publishes))}],
            },
        }
        if not is_irsa:
            resources[f"{title}Association"] = {
                "Type": "AWS::EKS::PodIdentityAssociation",
                "Properties": {
                    "ClusterName": {"Ref": "ClusterName"},
                    "Namespace": design.wish.namespace,
                    "ServiceAccount": account,
                    "RoleArn": {"Fn::GetAtt": [f"{title}Role", "Arn"]},
                },
            }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Roles of {design.wish.namespace}/{design.name}, and the S3 gateway endpoint",
        "Parameters": parameters,
        "Resources": resources,
    }


_PROVIDER_ARN = "arn:${AWS::Partition}:iam::${AWS::AccountId}:oidc-provider/${OidcProvider}"


def _document(rights: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": rights}


def _trust(design: Design, account: str) -> str:
    """Who may take a role, as Terraform's string."""
    if design.wish.identity == "pod-identity":
        return json.dumps(_trust_document(design, account))
    provider = '${replace(var.oidc_provider_arn, "/^.*oidc-provider//", "")}'
    text = json.dumps(_irsa(design, account, provider="@PROVIDER@", arn="${var.oidc_provider_arn}"))
    return text.replace("@PROVIDER@", provider)


def _trust_document(design: Design, account: str) -> dict[str, Any]:
    """Of EKS Pod Identity; the association says which ServiceAccount."""
    del design, account
    return _document([{
        "Effect": "Allow", "Principal": {"Service": _PODS}, "Action": ["sts:AssumeRole", "sts:TagSession"],
    }])  # fmt: skip


def _irsa(design: Design, account: str, *, provider: str, arn: str) -> dict[str, Any]:
    return _document([
        {
            "Effect": "Allow",
            "Principal": {"Federated": arn},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {
                "StringEquals": {
                    f"{provider}:sub": f"system:serviceaccount:{design.wish.namespace}:{account}",
                    f"{provider}:aud": "sts.amazonaws.com",
                }
            },
        }
    ])  # fmt: skip
