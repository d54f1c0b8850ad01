"""What an exception means for the next try."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ProxyConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
)

from shardkit.faults import code_of, is_fatal, is_throttle, is_transient


def of_service(code: str, status: int = 400) -> ClientError:
    metadata: Any = {"HTTPStatusCode": status}
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": metadata}, "BatchWriteItem")


@pytest.mark.parametrize(
    "code",
    [
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "ThrottledException",
        "Throttling",
        "RequestLimitExceeded",
    ],
)
def test_throttles(code: str) -> None:
    """A throttle is tried again, and known as one."""
    error = of_service(code)
    assert (is_throttle(error), is_transient(error), is_fatal(error)) == (True, True, False)


@pytest.mark.parametrize(
    "error",
    [
        of_service("InternalServerError", 500),
        of_service("Unheard", 503),
        of_service("TransactionConflictException"),
        of_service("ReplicatedWriteConflictException"),
        HTTPClientError(error="gone"),
        ConnectionClosedError(endpoint_url="x"),
        ReadTimeoutError(endpoint_url="x"),
        ResponseStreamingError(error="gone"),
        ConnectTimeoutError(endpoint_url="x"),
        EndpointConnectionError(endpoint_url="x"),
        ProxyConnectionError(proxy_url="x"),
        IncompleteReadError(actual_bytes=1, expected_bytes=2),
    ],
    ids=repr,
)
def test_what_may_pass(error: Exception) -> None:
    """Server errors, conflicts and every kind of lost connection are tried again; they are no throttles."""
    assert (is_throttle(error), is_transient(error), is_fatal(error)) == (False, True, False)


@pytest.mark.parametrize(
    "error",
    [
        of_service("ValidationException"),
        of_service("ItemCollectionSizeLimitExceededException"),
        of_service("SerializationException"),
        of_service("RequestEntityTooLarge", 413),
        ParamValidationError(report="an attribute is wrong"),
    ],
    ids=repr,
)
def test_about_one_request(error: Exception) -> None:
    """Another request may succeed; the same one will not."""
    assert (is_throttle(error), is_transient(error), is_fatal(error)) == (False, False, False)


@pytest.mark.parametrize(
    "error",
    [
        of_service("ResourceNotFoundException"),
        of_service("AccessDeniedException"),
        of_service("ExpiredTokenException"),
        of_service("UnrecognizedClientException"),
        NoCredentialsError(),
        SSLError(endpoint_url="x", error=OSError("certificate")),
        RuntimeError("in one of the user's event handlers"),
    ],
    ids=repr,
)
def test_about_every_request(error: Exception) -> None:
    """Each further request would meet it too."""
    assert (is_throttle(error), is_transient(error), is_fatal(error)) == (False, False, True)


def test_code() -> None:
    """The service's code, or the exception's type."""
    assert code_of(of_service("ValidationException")) == "ValidationException"
    assert code_of(ClientError({}, "GetItem")) == "Unknown"
    assert code_of(ReadTimeoutError(endpoint_url="x")) == "ReadTimeoutError"
    assert not is_transient(ClientError({}, "GetItem"))
