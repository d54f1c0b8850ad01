"""A refusal for lack of throughput, in the service's own shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import ClientError

__all__ = ["Kind", "Limit", "Throttle", "arn_of"]

Kind = Literal["read", "write"]
Limit = Literal["KeyRangeThroughput", "ProvisionedThroughput", "MaxOnDemandThroughput"]

_ACCOUNT = "arn:aws:dynamodb:us-east-1:123456789012:"
_PROVISIONED = (
    "The level of configured provisioned throughput for the {} was exceeded. Consider increasing your provisioning "
    "level with the UpdateTable API."
)
_ON_DEMAND = (
    "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or "
    "index so please try again shortly. If exceptions persist, check if you have a hot key: "
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"
)


def arn_of(resource: str) -> str:
    """Give the ARN of ``table/orders`` or ``table/orders/index/by-city``, in an account and a Region made up for it."""
    return resource if resource.startswith("arn:") else _ACCOUNT + resource


@dataclass(frozen=True, slots=True)
class Throttle:
    """Why the service refuses a read or a write now.

    Example:
        >>> throttle = Throttle("write", "KeyRangeThroughput", "table/Orders")
        >>> throttle.code, throttle.reason
        ('ProvisionedThroughputExceededException', 'TableWriteKeyRangeThroughputExceeded')

    Args:
        kind: what was refused.
        limit: what it was too much for: a partition (``KeyRange…``), or the whole table or index.
        resource: the table's or the index's ARN, or what stands in one: ``table/orders/index/by-city``.
        on_demand: whether it is an on-demand one, whose throttles have another code.

    Source:
        DynamoDB API reference, ``ProvisionedThroughputExceededException``, ``ThrottlingException``,
        ``ThrottlingReason``.
    """

    kind: Kind
    limit: Limit
    resource: str
    on_demand: bool = False

    @property
    def code(self) -> str:
        """The error's code."""
        return "ThrottlingException" if self.on_demand else "ProvisionedThroughputExceededException"

    @property
    def message(self) -> str:
        """What the service says."""
        return _ON_DEMAND if self.on_demand else _PROVISIONED.format("index" if self._index else "table")

    @property
    def reason(self) -> str:
        """The reason: resource, operation and limit (``TableWriteKeyRangeThroughputExceeded``)."""
        return f"{'Index' if self._index else 'Table'}{self.kind.capitalize()}{self.limit}Exceeded"

    @property
    def reasons(self) -> dict[str, list[dict[str, str]]]:
        """The member of the error that holds the reason, which each of the two exceptions spells in its own way."""
        name = "throttlingReasons" if self.on_demand else "ThrottlingReasons"
        return {name: [{"reason": self.reason, "resource": arn_of(self.resource)}]}

    @property
    def response(self) -> dict[str, Any]:
        """The error response as botocore parses it."""
        return {
            "Error": {"Code": self.code, "Message": self.message},
            "message": self.message,
            **self.reasons,
            "ResponseMetadata": {"HTTPStatusCode": 400},
        }

    def error(self, operation: str) -> ClientError:
        """Give what boto3 raises for it from an operation (``"PutItem"``)."""
        response: Any = self.response
        return ClientError(response, operation)

    @property
    def _index(self) -> bool:
        return "/index/" in self.resource
