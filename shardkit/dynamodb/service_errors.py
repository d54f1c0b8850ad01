"""Errors and throttles of the service: which kind an error is, and throttles in the service's own shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ParamValidationError,
    ProxyConnectionError,
)

Scope = Literal["key", "index", "table", "account"]
"""What a throttle is about: one partition key of what was asked, one of a global index that a write goes into as well,
the table or an index as a whole, or the account."""

_THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "Throttling",
        "ThrottledException",
    }
)
_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "ReplicatedWriteConflictException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
# botocore's family of lost connections has no root of its own; a certificate that is refused is not of it.
_LOST = (ConnectTimeoutError, EndpointConnectionError, HTTPClientError, IncompleteReadError, ProxyConnectionError)
# Errors that say something about one request's content: another request may well succeed. All other client errors
# (no such table, access denied, expired credentials, ...) would meet the next request too.
_ABOUT_THE_REQUEST = frozenset(
    {
        "ValidationException",
        "ItemCollectionSizeLimitExceededException",
        "ConditionalCheckFailedException",
        "SerializationException",
    }
)
_TOO_LARGE = 413
_SERVER_ERROR = 500


def code_of(error: BaseException) -> str:
    """Give the service's error code, or the exception's type name where the service did not answer."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def is_throttle(error: BaseException) -> bool:
    """Say whether the service refused for lack of throughput."""
    return isinstance(error, ClientError) and is_throttle_code(code_of(error))


def is_throttle_code(code: str | None) -> bool:
    """Say whether an error code is a refusal for lack of throughput."""
    return code in _THROTTLES


def throttled_scope(error: BaseException) -> Scope:
    """Say what a throttle is about.

    A throttle without ``ThrottlingReasons`` is taken to be about the key that was asked for.
    Source: the API's ThrottlingReason, resource + operation + limit (``TableReadKeyRangeThroughputExceeded``).
    """
    return scope_of_reasons(throttle_reasons(error))


def scope_of_reasons(limits: frozenset[str]) -> Scope:
    """Say what a throttle of these reasons is about; of none, the key."""
    if any("AccountLimit" in limit for limit in limits):
        return "account"
    if any("ProvisionedThroughput" in limit or "MaxOnDemandThroughput" in limit for limit in limits):
        return "table"
    return "index" if limits and all(limit.startswith("IndexWriteKeyRange") for limit in limits) else "key"


def throttle_reasons(error: BaseException) -> frozenset[str]:
    """Give the reasons that the service says for a throttle (``TableWriteKeyRangeThroughputExceeded``), if it does."""
    return throttle_reasons_in(getattr(error, "response", None) or {})


def throttle_reasons_in(response: Mapping[str, Any]) -> frozenset[str]:
    """Give the reasons that an error response says for a throttle, if it does."""
    return frozenset(str(reason.get("reason", "")) for reason in _reasons_of(response))


def _reasons_of(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    reasons = response.get("ThrottlingReasons") or response.get("throttlingReasons") or ()
    return [reason for reason in reasons if isinstance(reason, Mapping)]


def throttled_indexes(error: BaseException) -> frozenset[str]:
    """Give the names of the indexes that a throttle says were short of throughput."""
    response = getattr(error, "response", None) or {}
    arns = [str(reason.get("resource", "")) for reason in _reasons_of(response)]
    return frozenset(arn.rpartition("/index/")[2] for arn in arns if "/index/" in arn)


def retry_after(answer: object) -> float:
    """Give the seconds that the service asks to wait for before the next try: 0 where it asks for nothing.

    It does so by the header ``x-amz-retry-after``, in milliseconds, of an error or of an answer that leaves some of the
    request undone; read as botocore's own retries read it.
    """
    response = getattr(answer, "response", answer)
    metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    try:
        seconds = int((metadata or {}).get("HTTPHeaders", {}).get("x-amz-retry-after", 0)) / 1000
    except (OverflowError, ValueError):
        return 0.0
    return max(0.0, seconds)


def is_transient(error: BaseException) -> bool:
    """Say whether the same request may succeed later: throttles, server errors, lost connections.

    A lost connection leaves open whether the request was carried out; puts and deletes of whole items may be repeated.
    """
    if isinstance(error, _LOST):
        return True
    return is_throttle(error) or (
        isinstance(error, ClientError) and (code_of(error) in _TRANSIENT or _status(error) >= _SERVER_ERROR)
    )


def is_fatal(error: BaseException) -> bool:
    """Say whether every further request would meet the same error (no such table, no credentials, ...)."""
    if isinstance(error, ClientError):
        about_it = code_of(error) in _ABOUT_THE_REQUEST or _status(error) == _TOO_LARGE
    else:
        about_it = isinstance(error, ParamValidationError)
    return not about_it and not is_transient(error)


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


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
