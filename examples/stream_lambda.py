"""A Lambda function on the stream of a sharded table: its records have logical keys, and a failed record is reported.

    aws lambda create-event-source-mapping --function-name orders --event-source-arn arn:aws:dynamodb:…/stream/… \
        --starting-position LATEST --function-response-types ReportBatchItemFailures --bisect-batch-on-function-error

It needs no permission on the table: shardkit sends no request. The stream may be of DynamoDB Streams or of Kinesis Data
Streams for DynamoDB. Lambda starts again at the first record that is reported, so the function stops there: the changes
of one item stay in order, and none is skipped. Records may come more than once, so what is done for one must be safe to
repeat.
"""

from __future__ import annotations

import logging
from collections import Counter
from decimal import Decimal
from typing import Any

from shardkit import CalculatedSuffix
from shardkit.streams import LogicalRecord, RecordReader

READER = RecordReader(
    "Orders",
    CalculatedSuffix("OrderId", shards=10),
    key_schema={
        "KeySchema": [
            {"AttributeName": "Date", "KeyType": "HASH"},
            {"AttributeName": "OrderId", "KeyType": "RANGE"},
        ]
    },
)

seen: Counter[tuple[str, str]] = Counter()
"""Of each day: records by kind. Stands for what a real function would write, under the logical key."""


def handler(event: dict[str, Any], context: object = None) -> dict[str, Any]:  # noqa: ARG001 - Lambda gives it
    """Work through a batch, up to the first record that fails."""
    for raw in event["Records"]:
        try:
            act(READER.read(raw))
        except Exception:
            logging.getLogger(__name__).exception("Stopped at this record; Lambda gives it again")
            number = raw["kinesis"]["sequenceNumber"] if "kinesis" in raw else raw["dynamodb"]["SequenceNumber"]
            return {"batchItemFailures": [{"itemIdentifier": number}]}
    return {"batchItemFailures": []}


def act(record: LogicalRecord) -> None:
    """Do what the function is for."""
    if record.new_image is not None and record.new_image.get("Total", Decimal(0)) < 0:
        raise ValueError(f"negative total of {record.key}")
    seen[record.key["Date"], record.event or ""] += 1
