"""One OpenTelemetry span per call past the client, where tools that patch botocore see nothing.

Names and attributes are those of the semantic conventions, and those of opentelemetry-instrumentation-botocore where it
still has older ones: its dashboards find these spans too. No key and no attribute value of an item is in a span.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from shardkit.errors import ConfigurationError
from shardkit.runtime.connections import PORTS
from shardkit.runtime.own_call import tables_in

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from shardkit.runtime.observers import Call

S = TypeVar("S")

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
_SYSTEM: Mapping[str, AttributeValue] = {
    "db.system.name": "aws.dynamodb",
    "db.system": "dynamodb",
    "rpc.system.name": "aws-api",
    "rpc.system": "aws-api",
    "rpc.service": "DynamoDB",
}
_REQUEST = {
    "AttributesToGet": "aws.dynamodb.attributes_to_get",
    "ConsistentRead": "aws.dynamodb.consistent_read",
    "IndexName": "aws.dynamodb.index_name",
    "Limit": "aws.dynamodb.limit",
    "ProjectionExpression": "aws.dynamodb.projection",
    "ScanIndexForward": "aws.dynamodb.scan_forward",
    "Segment": "aws.dynamodb.segment",
    "Select": "aws.dynamodb.select",
    "TotalSegments": "aws.dynamodb.total_segments",
}
_RESPONSE = {"Count": "aws.dynamodb.count", "ScannedCount": "aws.dynamodb.scanned_count"}
_METADATA = {
    "RequestId": ("aws.request_id",),
    "HTTPStatusCode": ("http.response.status_code", "http.status_code"),
    "RetryAttempts": ("http.request.resend_count", "retry_attempts"),
}


class CallSpans:
    """Makes the spans, by the application's tracer provider.

    Raises:
        ConfigurationError: ``opentelemetry-api`` is not installed.
    """

    def __init__(self) -> None:
        try:
            from opentelemetry import trace  # noqa: PLC0415 - of the opentelemetry extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                'opentelemetry-api: the package is not installed; run pip install "shardkit[opentelemetry]"'
            ) from error
        self._client, self._error = trace.SpanKind.CLIENT, trace.StatusCode.ERROR
        self._tracer = trace.get_tracer("shardkit", schema_url=_SCHEMA)

    def around(
        self, call: Call, url: str, region: str, steps: Generator[S, Any, dict[str, Any]]
    ) -> Generator[S, Any, dict[str, Any]]:
        """Run the steps of a call within a span; its parent is the span that is current where they start.

        It is never the current span itself: between two steps, its thread takes the steps of other calls.
        """
        span = self._tracer.start_span(
            f"DynamoDB.{call.operation}", kind=self._client, attributes=_requested(call, url, region)
        )
        try:
            answer = yield from steps
        except BaseException as error:
            attributes = _failed(error)
            span.set_attributes(attributes)
            span.set_status(self._error, str(attributes["error.type"]))
            raise
        else:
            if span.is_recording():
                span.set_attributes(_answered(answer))
            return answer
        finally:
            span.end()


@lru_cache(maxsize=64)
def _common(operation: str, url: str, region: str) -> Mapping[str, AttributeValue]:
    place = urlsplit(url)
    return {
        **_SYSTEM,
        "db.operation.name": operation,
        "db.operation": operation,
        "rpc.method": operation,
        "cloud.region": region,
        "server.address": place.hostname or "",
        "server.port": place.port or PORTS[place.scheme],
        "net.peer.name": place.netloc,
    }


def _requested(call: Call, url: str, region: str) -> dict[str, AttributeValue]:
    tables, params = sorted(tables_in(call.params)), call.params
    attributes = {**_common(call.operation, url, region), "aws.dynamodb.table_names": tables}
    if len(tables) == 1:
        attributes["db.collection.name"] = tables[0]
    attributes.update((name, params[member]) for member, name in _REQUEST.items() if member in params)
    return attributes


def _answered(answer: Mapping[str, Any]) -> dict[str, AttributeValue]:
    metadata = answer.get("ResponseMetadata", {})
    attributes = {
        name: metadata[member]
        for member, names in _METADATA.items()
        if metadata.get(member) not in {None, ""}
        for name in names
    }
    attributes.update((name, answer[member]) for member, name in _RESPONSE.items() if member in answer)
    consumed = answer.get("ConsumedCapacity")
    if consumed:
        listed = consumed if isinstance(consumed, list) else [consumed]
        attributes["aws.dynamodb.consumed_capacity"] = [json.dumps(one) for one in listed]
    return attributes


def _failed(error: BaseException) -> dict[str, AttributeValue]:
    if isinstance(error, ClientError):
        code = str(error.response.get("Error", {}).get("Code", "Unknown"))
        return {**_answered(error.response), "db.response.status_code": code, "error.type": code}
    return {"error.type": "cancelled" if isinstance(error, GeneratorExit) else type(error).__qualname__}
