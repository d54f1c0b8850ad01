"""The session of these tests: it runs Python and Arrow in tasks, which reach the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.support.tables import make_table

if TYPE_CHECKING:
    import pyarrow as pa
    from types_boto3_dynamodb import DynamoDBServiceResource


def test_tasks_reach_the_engine(
    spark: Any, connect: Callable[[], DynamoDBServiceResource], resource: DynamoDBServiceResource
) -> None:
    table = make_table(resource, ("Id", "N"), name="Reached")

    def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reached = connect().Table("Reached")
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reached.put_item(Item={"Id": number})
            yield batch

    written = spark.range(0, 10, 1, 2).mapInArrow(put, "id bigint").collect()
    assert sorted(row.id for row in written) == list(range(10))
    items: list[Any] = table.scan()["Items"]
    assert sorted(item["Id"] for item in items) == list(range(10))
