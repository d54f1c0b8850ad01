"""The least policy that a run needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.aws.journal import PREFIX

TABLES = (
    "BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "CreateTable", "DeleteItem", "DeleteTable",
    "DescribeStream", "DescribeTable", "GetItem", "GetRecords", "GetShardIterator", "PutItem", "Query", "Scan",
    "TagResource", "UpdateItem", "UpdateTable",
)  # fmt: skip

ALSO = {
    "ttl": ("UpdateTimeToLive",),
    "long": (),
    "splits": (),
    "export": ("DescribeExport", "ExportTableToPointInTime", "UpdateContinuousBackups"),
    "import": ("DescribeBulkOperation", "DescribeImport", "ImportTable", "ListImports", "StartBulkPutItems"),
    "insights": ("DescribeContributorInsights", "UpdateContributorInsights"),
}
"""Actions on the same tables, of each group that --also chooses."""


def policy(also: Collection[str] = (), *, bucket: str = "", role: str = "") -> dict[str, Any]:
    """Return the policy of a run with these options; it reaches nothing but what the run makes."""
    actions = [*TABLES, *(action for group in also for action in ALSO[group])]
    statements = [
        _allow(
            "Tables", [f"dynamodb:{action}" for action in sorted(actions)], f"arn:aws:dynamodb:*:*:table/{PREFIX}-*"
        ),
        _allow("Names", ["dynamodb:ListTables"], "*"),
    ]
    if {"export", "import"} & set(also):
        place = f"arn:aws:s3:::{bucket or 'BUCKET'}"
        objects = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject", "s3:PutObjectAcl"]
        statements.append(_allow("Objects", objects, f"{place}/{PREFIX}-*"))
        statements.append(_allow("Bucket", ["s3:ListBucket"], place))
    if "import" in also:
        logs = ("CreateLogGroup", "CreateLogStream", "DescribeLogGroups", "DescribeLogStreams", "PutLogEvents")
        statements.append(_allow("BulkOperations", ["dynamodb:ListBulkOperations"], "*"))
        arn = "arn:aws:logs:*:*:log-group:/aws-dynamodb/*"
        statements.append(_allow("Logs", [f"logs:{action}" for action in (*logs, "PutRetentionPolicy")], arn))
    if "insights" in also:
        rules = f"arn:aws:cloudwatch:*:*:insight-rule/DynamoDBContributorInsights-*-{PREFIX}-*"
        statements.append(_allow("Reports", ["cloudwatch:GetInsightRuleReport"], rules))
        service = "contributorinsights.dynamodb.amazonaws.com"
        arn = f"arn:aws:iam::*:role/aws-service-role/{service}/*"
        statements.append(_allow("RoleOfInsights", ["iam:CreateServiceLinkedRole"], arn))
    if role:
        statements.append(_allow("Roles", ["sts:AssumeRole"], role))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(name: str, actions: list[str], resource: str) -> dict[str, Any]:
    return {"Sid": name, "Effect": "Allow", "Action": actions, "Resource": resource}
