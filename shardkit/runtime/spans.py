"""One OpenTelemetry span per call past the client, where tools that patch botocore see nothing.

Names and attributes are those of the semantic conventions, and those of opentelemetry-instrumentation-botocore where it
still has older ones: its dashboards find these spans too. No key and no attribute value of an item is in a span.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from shardkit.errors import ConfigurationError
from shardkit.runtime.connections import PORTS
from shardkit.runtime.own_call import tables_in

if TYPE_CHECKING:
    from opentelemetry.trace import Span
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
            if isinstance(error, ClientError):
                _show(span, error.response)
            kind = _kind(error)
            span.set_attribute("error.type", kind)
            span.set_status(self._error, kind)
            raise
        else:
            _show(span, answer)
            return answer
        finally:
            span.end()


def _requested(call: Call, url: str, region: str) -> dict[str, AttributeValue]:
    place, tables = urlsplit(url), sorted(tables_in(call.params))
    host = place.hostname or ""
    attributes: dict[str, AttributeValue] = {
        **_SYSTEM,
        "db.operation.name": call.operation,
        "db.operation": call.operation,
        "rpc.method": call.operation,
        "cloud.region": region,
        "server.address": host,
        "server.port": place.port or PORTS[place.scheme],
        "net.peer.name": place.netloc,
        "aws.dynamodb.table_names": tables,
    }
    if len(tables) == 1:
        attributes["db.collection.name"] = tables[0]
    attributes.update((name, call.params[member]) for member, name in _REQUEST.items() if member in call.params)
    return attributes


def _show(span: Span, answer: Mapping[str, Any]) -> None:
    if not span.is_recording():
        return
    metadata = answer.get("ResponseMetadata", {})
    for member, names in _METADATA.items():
        if member in metadata:
            span.set_attributes(dict.fromkeys(names, metadata[member]))
    if "Error" in answer:
        span.set_attribute("db.response.status_code", answer["Error"].get("Code", ""))
    span.set_attributes({name: answer[member] for member, name in _RESPONSE.items() if member in answer})
    consumed = answer.get("ConsumedCapacity")
    if consumed:
        listed = consumed if isinstance(consumed, list) else [consumed]
        span.set_attribute("aws.dynamodb.consumed_capacity", [json.dumps(one) for one in listed])


def _kind(error: BaseException) -> str:
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return "cancelled" if isinstance(error, GeneratorExit) else type(error).__qualname__
