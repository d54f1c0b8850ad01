"""Errors of the service: their kinds, and throttles in the service's own shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import (
    ChecksumError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ParamValidationError,
    ProxyConnectionError,
    SSLError,
)

from shardkit.errors import AmbiguousItemError

Scope = Literal["key", "index", "table", "account"]
"""What a throttle applies to: one partition key of the request, one partition key of a global index that the write also
goes to, the whole table or index, or the account."""

_THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "Throttling",
        "ThrottledException",
    }
)
# botocore's errors of lost connections have no common base class; a refused certificate is not one of them.
_LOST = (ConnectTimeoutError, EndpointConnectionError, HTTPClientError, IncompleteReadError, ProxyConnectionError)
# What the service says of keys that a table's key schema does not have.
_MISFITS = ("key schema element", "does not match the schema", "Missing the key")
# Errors about one request's content: another request may succeed. After all other client errors (no such table, access
# denied, expired credentials, ...), the next request would fail too.
_ABOUT_THE_REQUEST = frozenset(
    {
        "ValidationException",
        "ItemCollectionSizeLimitExceededException",
        "ConditionalCheckFailedException",
        "SerializationException",
    }
)
# The service, or something between, failed on the way; a write may have been carried out.
_INTERNAL = frozenset(
    {"InternalFailure", "InternalServerError", "RequestTimeout", "RequestTimeoutException", "ServiceUnavailable"}
)
CONFLICTS = frozenset(
    {"ReplicatedWriteConflictException", "TransactionConflictException", "TransactionInProgressException"}
)
"""Codes of errors that end within milliseconds, and that botocore does not retry."""
_TRANSIENT = _INTERNAL | CONFLICTS
# By name, because no client needs all these libraries: of urllib3, socket, ssl, aiohttp and httpx.
_NOT_CONNECTED = frozenset(
    {"NewConnectionError", "gaierror", "SSLCertVerificationError", "ClientConnectorError", "ConnectError"}
)
PASSING_REASONS = frozenset(
    {"ProvisionedThroughputExceeded", "RequestLimitExceeded", "ThrottlingError", "TransactionConflict"}
)
"""Reasons of a cancelled transaction for which it may be sent again, unchanged."""
_ANSWER_LOST = (ChecksumError, HTTPClientError, IncompleteReadError)
_TOO_LARGE = 413
_SERVER_ERROR = 500


def check_fits(error: BaseException, table: str) -> None:
    """Raise an error that says that keys do not fit a table as one that names the table."""
    if not isinstance(error, ClientError) or code_of(error) != "ValidationException":
        return
    message = error.response["Error"].get("Message", "")
    if not any(words in message for words in _MISFITS):
        return
    message = (
        f"{message} (table {table!r}; if it is not one of the time series, but only has the name of one, rename it)"
    )
    given: Any = {**error.response, "Error": {**error.response["Error"], "Message": message}}
    raise ClientError(given, error.operation_name) from error


def code_of(error: BaseException) -> str:
    """Return the service's error code, or the exception's type name if the service did not answer."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def cancellation_reasons(error: BaseException) -> list[dict[str, Any]]:
    """Return the reasons of a cancelled transaction, one for each of its parts; empty: it is another error."""
    response: Any = error.response if isinstance(error, ClientError) else {}
    return list(response.get("CancellationReasons") or ())


def refused_parts(error: BaseException) -> frozenset[str]:
    """Return why a transaction was cancelled: the codes of the parts that the service refused."""
    return frozenset(str(reason.get("Code")) for reason in cancellation_reasons(error)) - {"None"}


def is_throttle(error: BaseException) -> bool:
    """Return whether the service refused a request for lack of throughput."""
    return isinstance(error, ClientError) and is_throttle_code(code_of(error))


def is_throttle_code(code: str | None) -> bool:
    return code in _THROTTLES


def throttled_scope(error: BaseException) -> Scope:
    """Return what a throttle applies to; without ``ThrottlingReasons``, the key of the request."""
    return scope_of_reasons(throttle_reasons(error))


def scope_of_reasons(limits: frozenset[str]) -> Scope:
    """Return what a throttle with these reasons applies to.

    Source: the API's ThrottlingReason, resource + operation + limit (``TableReadKeyRangeThroughputExceeded``).
    """
    if any("AccountLimit" in limit for limit in limits):
        return "account"
    if any("ProvisionedThroughput" in limit or "MaxOnDemandThroughput" in limit for limit in limits):
        return "table"
    return "index" if limits and all(limit.startswith("IndexWriteKeyRange") for limit in limits) else "key"


def throttle_reasons(error: object) -> frozenset[str]:
    """Return the reasons in an error or an error response (``TableWriteKeyRangeThroughputExceeded``), if it has any."""
    return _reasons(error, "reason")


def throttled_indexes(error: object) -> frozenset[str]:
    """Return the names of the indexes that a throttle's reasons name."""
    return frozenset(arn.rpartition("/index/")[2] for arn in _reasons(error, "resource") if "/index/" in arn)


def _reasons(error: object, member: str) -> frozenset[str]:
    response = getattr(error, "response", error)
    if not isinstance(response, Mapping):
        return frozenset()
    reasons = response.get("ThrottlingReasons") or response.get("throttlingReasons") or ()
    return frozenset(str(reason.get(member, "")) for reason in reasons if isinstance(reason, Mapping))


def retry_after(answer: object) -> float:
    """Return the seconds that an error or a partial answer asks to wait before the next try; 0 if it does not ask.

    The header is ``x-amz-retry-after``, in milliseconds; botocore's own retries read it the same way.
    """
    response = getattr(answer, "response", answer)
    metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    try:
        seconds = int((metadata or {}).get("HTTPHeaders", {}).get("x-amz-retry-after", 0)) / 1000
    except (OverflowError, ValueError):
        return 0.0
    return max(0.0, seconds)


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later: throttles, server errors, lost connections.

    After a lost connection, it is unknown whether the request was carried out; puts and deletes can be repeated.
    """
    if isinstance(error, _LOST):
        return True
    return is_throttle(error) or (
        isinstance(error, ClientError) and (code_of(error) in _TRANSIENT or _status(error) >= _SERVER_ERROR)
    )


def may_be_done(error: object) -> bool:
    """Return whether the service may have carried out the request that ended with this error."""
    if isinstance(error, ClientError):
        # A conflict or a throttle is a refusal, whatever its status.
        return not is_throttle(error) and (_status(error) >= _SERVER_ERROR or code_of(error) in _INTERNAL)
    if getattr(error, "unsent", False):
        return False
    if isinstance(error, EndpointConnectionError | SSLError):
        # Both are also raised for connections that break later (the first by aiobotocore): the cause tells, or what
        # urllib3 wraps in it.
        cause = error.kwargs.get("error")
        kinds = [kind.__name__ for one in (cause, *getattr(cause, "args", ())) for kind in type(one).__mro__]
        return _NOT_CONNECTED.isdisjoint(kinds)
    return isinstance(error, _ANSWER_LOST)


def is_fatal(error: BaseException) -> bool:
    """Return whether every further request would fail with the same error (no such table, no credentials, ...)."""
    if isinstance(error, ClientError):
        of_this_request = code_of(error) in _ABOUT_THE_REQUEST or _status(error) == _TOO_LARGE
    else:
        of_this_request = isinstance(error, AmbiguousItemError | ParamValidationError)
    return not of_this_request and not is_transient(error)


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


@dataclass(frozen=True, slots=True)
class Throttle:
    """A refusal for lack of throughput, in the service's own shape.

    Example:
        >>> throttle = Throttle("write", "KeyRangeThroughput", "table/Orders")
        >>> throttle.code, throttle.reason
        ('ProvisionedThroughputExceededException', 'TableWriteKeyRangeThroughputExceeded')

    Args:
        kind: whether a read or a write was refused.
        limit: the exceeded limit: a partition's (``KeyRange…``), or the whole table's or index's.
        resource: the table's or the index's ARN, or the last part of it: ``table/orders/index/by-city``.
        on_demand: whether the table is on-demand, whose throttles have another code.

    Source: DynamoDB API reference, ``ProvisionedThroughputExceededException``, ``ThrottlingException``.
    """

    kind: Kind
    limit: Limit
    resource: str
    on_demand: bool = False

    @property
    def code(self) -> str:
        return "ThrottlingException" if self.on_demand else "ProvisionedThroughputExceededException"

    @property
    def message(self) -> str:
        return _ON_DEMAND if self.on_demand else _PROVISIONED.format("index" if self._index else "table")

    @property
    def reason(self) -> str:
        """Resource, operation and limit: ``TableWriteKeyRangeThroughputExceeded``."""
        return f"{'Index' if self._index else 'Table'}{self.kind.capitalize()}{self.limit}Exceeded"

    @property
    def reasons(self) -> dict[str, list[dict[str, str]]]:
        """The reasons under their member's name, which the two exceptions spell differently."""
        name = "throttlingReasons" if self.on_demand else "ThrottlingReasons"
        arn = self.resource if self.resource.startswith("arn:") else _ACCOUNT + self.resource
        return {name: [{"reason": self.reason, "resource": arn}]}

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
        """Return the exception that boto3 raises for it from an operation (``"PutItem"``)."""
        response: Any = self.response
        return ClientError(response, operation)

    @property
    def _index(self) -> bool:
        return "/index/" in self.resource
