"""The snippets of docs/beyond-one-machine.md that need a Spark session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardkit import CalculatedSuffix, ShardedTable
from tests.support.tables import make_table

if TYPE_CHECKING:
    import pytest
    from types_boto3_dynamodb import DynamoDBServiceResource

PAGE = Path(__file__).resolve().parents[2] / "docs" / "beyond-one-machine.md"


def test_the_page_writes_and_reads_orders(
    spark: Any,
    resource: DynamoDBServiceResource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strategy = CalculatedSuffix("OrderId", shards=10)
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", resource.meta.client.meta.endpoint_url)
    (snippet,) = [
        text
        for text in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if "def write_orders" in text
    ]
    page: dict[str, Any] = {"strategy": strategy}
    exec(compile(snippet, PAGE.name, "exec"), page)  # noqa: S102 - what the page tells its readers to run
    rows = [(f"2014-07-0{number % 3 + 1}", f"A{number % 40:02}", number, number) for number in range(60)]
    frame = spark.createDataFrame(rows, "Date string, OrderId string, Amount bigint, UpdatedAt bigint")
    frame.write.parquet(str(tmp_path / "orders"))
    try:
        report = page["write_orders"](spark, str(tmp_path / "orders"))
        assert (report.items, report.failed, len(report.parts)) == (60, 0, 2)
        last = {(date, order): amount for date, order, amount, _ in rows}
        stored = {
            (item["Date"], item["OrderId"]): item["Amount"] for item in ShardedTable(table, strategy).scan_items()
        }
        assert stored == last
        read = page["read_orders"](spark).collect()
        assert {(row.Date, row.OrderId): row.Amount for row in read} == last
    finally:
        table.delete()
