"""What an exception means for the next try."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest
from botocore.exceptions import (
    ChecksumError,
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
from urllib3.exceptions import SSLError as UrllibSSLError

from shardkit.dynamodb.service_errors import (
    Scope,
    code_of,
    is_fatal,
    is_throttle,
    is_transient,
    may_be_done,
    scope_of_reasons,
    throttled_indexes,
    throttled_scope,
)


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


@pytest.mark.parametrize(
    ("reasons", "scope"),
    [
        ((), "key"),
        (("TableWriteKeyRangeThroughputExceeded",), "key"),
        (("IndexReadKeyRangeThroughputExceeded",), "key"),  # its key is the one that was asked for
        (("IndexWriteKeyRangeThroughputExceeded",), "index"),
        (("IndexWriteKeyRangeThroughputExceeded", "TableWriteKeyRangeThroughputExceeded"), "key"),
        (("IndexWriteProvisionedThroughputExceeded", "TableWriteKeyRangeThroughputExceeded"), "table"),
        (("TableWriteMaxOnDemandThroughputExceeded",), "table"),
        (("TableWriteAccountLimitExceeded", "TableWriteProvisionedThroughputExceeded"), "account"),
    ],
)
def test_what_a_throttle_is_about(reasons: tuple[str, ...], scope: Scope) -> None:
    assert scope_of_reasons(frozenset(reasons)) == scope


def test_the_indexes_of_a_throttle() -> None:
    table = "arn:aws:dynamodb:us-east-1:1:table/Orders"
    said: Any = [
        {"reason": "IndexWriteKeyRangeThroughputExceeded", "resource": f"{table}/index/by-status"},
        {"reason": "IndexWriteKeyRangeThroughputExceeded", "resource": f"{table}/index/by-city"},
        {"reason": "TableWriteKeyRangeThroughputExceeded", "resource": table},
    ]
    error = of_service("ThrottlingException")
    assert throttled_indexes(error) == frozenset()
    error.response["ThrottlingReasons"] = said  # type: ignore[typeddict-unknown-key]
    assert throttled_indexes(error) == {"by-status", "by-city"}
    error.response["ThrottlingReasons"] = said[:2]  # type: ignore[typeddict-unknown-key]
    assert throttled_scope(error) == "index"
    assert throttled_indexes(ReadTimeoutError(endpoint_url="x")) == frozenset()


def test_code() -> None:
    """The service's code, or the exception's type."""
    assert code_of(of_service("ValidationException")) == "ValidationException"
    assert code_of(ClientError({}, "GetItem")) == "Unknown"
    assert code_of(ReadTimeoutError(endpoint_url="x")) == "ReadTimeoutError"
    assert not is_transient(ClientError({}, "GetItem"))


class ClientConnectorError(OSError):
    """As aiohttp's, which is not installed here."""


URL = "http://localhost"
UNSENT: Any = ReadTimeoutError(endpoint_url=URL)
UNSENT.unsent = True


@pytest.mark.parametrize(
    ("error", "may_be"),
    [
        (of_service("InternalServerError", 500), True),
        (of_service("ServiceUnavailable", 503), True),
        (of_service("Unknown", 504), True),
        (of_service("RequestTimeout"), True),
        (of_service("ProvisionedThroughputExceededException"), False),
        (of_service("ThrottlingException", 503), False),
        (of_service("TransactionConflictException"), False),
        (of_service("ConditionalCheckFailedException"), False),
        (ReadTimeoutError(endpoint_url=URL), True),
        (ConnectionClosedError(endpoint_url=URL), True),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), True),
        (ChecksumError(checksum_type="crc32", expected_checksum="1", actual_checksum="2"), True),
        (HTTPClientError(error="x"), True),
        (EndpointConnectionError(endpoint_url=URL, error=ConnectionResetError()), True),  # aiobotocore's
        (EndpointConnectionError(endpoint_url=URL), True),
        (EndpointConnectionError(endpoint_url=URL, error=ClientConnectorError()), False),
        (EndpointConnectionError(endpoint_url=URL, error=socket.gaierror()), False),
        (SSLError(endpoint_url=URL, error=UrllibSSLError(ssl.SSLError(1, "bad record mac"))), True),
        (SSLError(endpoint_url=URL, error=UrllibSSLError(ssl.SSLCertVerificationError())), False),
        (SSLError(endpoint_url=URL, error=ClientConnectorError()), False),
        (ConnectTimeoutError(endpoint_url=URL), False),
        (ProxyConnectionError(proxy_url=URL), False),
        (UNSENT, False),
        (NoCredentialsError(), False),
        (ValueError(), False),
    ],
    ids=repr,
)
def test_whether_a_request_may_be_carried_out(error: Exception, may_be: bool) -> None:
    assert may_be_done(error) == may_be
