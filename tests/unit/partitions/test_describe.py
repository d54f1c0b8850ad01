"""Partitions of a live table, by its description: provisioned, on-demand, warm throughput, size, indexes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardkit.errors import ConfigurationError
from shardkit.partitions import ThroughputEstimate, estimate_table

GB = 1000**3
ON_DEMAND = {"BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"}}


def provisioned(read_units: int, write_units: int) -> dict[str, Any]:
    return {"ProvisionedThroughput": {"ReadCapacityUnits": read_units, "WriteCapacityUnits": write_units}}


def warm(read_units: int, write_units: int) -> dict[str, Any]:
    return {
        "WarmThroughput": {"ReadUnitsPerSecond": read_units, "WriteUnitsPerSecond": write_units, "Status": "ACTIVE"}
    }


def table(**described: Any) -> ThroughputEstimate:
    return estimate_table({"TableName": "Orders", "ItemCount": 7, **described}).table


@pytest.mark.parametrize("name", ["ReadUnitsPerSecond", "WriteUnitsPerSecond"])
def test_warm_throughput_of_one_side_is_not_enough_to_say(name: str) -> None:
    found = table(BillingModeSummary={"BillingMode": "PAY_PER_REQUEST"}, WarmThroughput={name: 12_000})
    assert "the description has no warm throughput" in str(found)


def test_provisioned() -> None:
    found = table(**provisioned(5000, 2000))
    assert (found.billing_mode, found.partitions, found.items) == ("PROVISIONED", 4, 7)
    assert (found.partition_read_units, found.partition_write_units) == (1250, 500)


def test_its_size_asks_for_more() -> None:
    found = table(TableSizeBytes=500 * GB, **provisioned(100_000, 1000))
    assert (found.partitions, found.partition_read_units) == (50, 2000)


def test_warm_throughput_asks_for_more_of_reads_and_writes_each_by_itself() -> None:
    found = table(**provisioned(1000, 500), **warm(12_000, 4000))
    assert (found.partitions, found.partition_write_units) == (4, 125)
    assert [one.kind for one in found.reasoning] == ["rule", "rule", "model", "rule", "rule"]


def test_on_demand() -> None:
    found = table(**ON_DEMAND, **provisioned(0, 0), **warm(12_000, 4000))
    assert (found.billing_mode, found.partitions) == ("PAY_PER_REQUEST", 4)
    assert not any(one.text.startswith("partitions for the throughput") for one in found.reasoning)
    assert (found.partition_read_units, found.partition_write_units) == (3000, 1000)
    assert (found.max_read_units, found.max_write_units) == (None, None)


def test_on_demand_with_a_maximum() -> None:
    most = {"OnDemandThroughput": {"MaxReadRequestUnits": -1, "MaxWriteRequestUnits": 500}}
    found = table(**ON_DEMAND, **warm(12_000, 4000), **most)
    assert (found.max_read_units, found.max_write_units) == (None, 500)
    assert "  at most 500 write units a second" in str(found).splitlines()


def test_on_demand_that_says_nothing() -> None:
    found = table(**ON_DEMAND, **provisioned(0, 0), TableSizeBytes=25 * GB)
    assert (found.partitions, found.read_units, found.partition_read_units, found.partition_write_units) == (
        3,
        None,
        None,
        None,
    )
    assert "on-demand; the description has no warm throughput" in str(found)


def test_a_local_index_is_in_the_tables_partitions_and_a_global_one_has_its_own() -> None:
    found = estimate_table(
        {
            "TableName": "Orders",
            "TableSizeBytes": 9 * GB,
            "LocalSecondaryIndexes": [{"IndexName": "ByTotal", "IndexSizeBytes": 2 * GB}],
            "GlobalSecondaryIndexes": [
                {"IndexName": "ByDay", "IndexSizeBytes": 31 * GB, "ItemCount": 5, **provisioned(10, 100)}
            ],
            **provisioned(10, 10),
        }
    )
    assert (found.table.size, found.table.partitions) == (11 * GB, 2)
    (index,) = found.indexes
    assert (index.index, index.partitions, index.partition_write_units, index.items) == ("ByDay", 4, 25, 5)
    plain = json.loads(json.dumps(found.to_dict()))
    assert (plain["table_name"], plain["indexes"][0]["partition_write_units"]) == ("Orders", 25)


def test_text() -> None:
    found = estimate_table(
        {"TableName": "Orders", "TableSizeBytes": 25 * GB, "ItemCount": 7, **provisioned(5000, 2000)}
    )
    assert str(found).partition("\n\nWhy\n")[0].splitlines() == [
        "Orders",
        "",
        "table: at least 4 partitions",
        "  7 items, 25 GB",
        (
            "  provisioned 5,000 read units and 2,000 write units a second: 1,250 and 500 a partition, less if there "
            "are more"
        ),
    ]


@pytest.mark.parametrize("description", [None, {}, {"Table": {"TableName": "Orders"}}])
def test_what_is_no_description_is_refused(description: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'^description: must be the "Table" of a DescribeTable response, got'):
        estimate_table(description)
