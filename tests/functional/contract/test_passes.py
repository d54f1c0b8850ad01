"""Passes through each face that loads: what they change, what they leave, and that loading ``before`` undoes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

from shardkit import CalculatedSuffix, RandomSuffix, Strategy, Unsharded, open_source
from tests.functional.contract.faces import Face, needs
from tests.support.tables import make_table

ITEMS = [
    {"pk": f"p{number % 3}", "sk": f"s{number:02}", "n": number, "b": b"\xff", "l": [{"s": {"x", "y"}}, None]}
    for number in range(24)
]
READ: dict[str, Any] = {"read_units": None, "segments": 2}
FAST: dict[str, Any] = {"write_units": None, **READ}


@pytest.mark.parametrize("strategy", [Unsharded(), CalculatedSuffix("sk", 4), RandomSuffix(4)], ids=str)
def test_counted_updated_undone_and_deleted(face: Face, strategy: Strategy, tmp_path: Path) -> None:
    needs(face, "loads")
    raw = make_table(face.resource, ("pk", "S"), ("sk", "S"))
    orders = face.sharded(raw, strategy)
    orders.bulk_load(ITEMS)

    def stored() -> list[Any]:
        return sorted(raw.scan(ConsistentRead=True)["Items"], key=lambda item: str(item["sk"]))

    before = stored()
    assert orders.passed("count", where=Attr("n").gte(20), **READ).found == 4
    assert orders.passed("count", where=lambda item: item["pk"] == "p0", **READ).found == 8
    add = {"ExpressionAttributeValues": {":one": 100, ":most": 10}, "where": "n < :most", **FAST}
    report = orders.passed("update", "SET n = n + :one", before=tmp_path / "add", **add)
    assert (report.read, report.found, report.changed, report.complete) == (24, 10, 10, True)
    assert [int(item["n"]) for item in stored()] == [n + 100 if n < 10 else n for n in range(24)]
    report = orders.passed("update", lambda item: {**item, "copied": item["pk"]}, where=Attr("n").lt(20), **FAST)
    assert {item["sk"] for item in stored() if "copied" in item} == {f"s{number}" for number in range(10, 20)}
    assert {item["copied"] for item in stored() if "copied" in item} == {"p0", "p1", "p2"}
    orders.passed("update", "REMOVE copied", where=Attr("copied").exists(), **FAST)
    report = orders.passed("delete", where=lambda item: item["n"] % 2, before=tmp_path / "gone", **FAST)
    assert (report.changed, len(stored())) == (12, 12)
    for file in ("gone", "add"):
        source: Any = open_source(tmp_path / file, format="dynamodb")
        assert orders.bulk_load(source).failed == 0
    assert stored() == before


@pytest.mark.parametrize("strategy", [Unsharded(), CalculatedSuffix("sk", 4), RandomSuffix(4, locate=True)], ids=str)
def test_copied_and_compared(face: Face, strategy: Strategy, tmp_path: Path) -> None:
    needs(face, "loads")
    first, second = (make_table(face.resource, ("pk", "S"), ("sk", "S")) for _ in range(2))
    source, target = face.sharded(first, CalculatedSuffix("sk", 3)), face.sharded(second, strategy)
    source.bulk_load(ITEMS)
    target.put_item(Item={**ITEMS[0], "n": 99})
    target.put_item(Item=ITEMS[1])
    target.put_item(Item={**ITEMS[0], "sk": "more"})
    report = source.passed("copy", target, **FAST)
    assert (report.changed, report.unchanged, report.failed, report.complete) == (22, 2, 0, True)
    found = source.passed("compare", target, dead_letters=tmp_path / "differences", **READ)
    assert (found.missing, found.different, found.additional, found.equal) == (0, 1, 1, False)
    assert sorted(what for _, what in found.failures) == ["additional", "different: n"]
    target.delete_item(Key={"pk": "p1", "sk": "s04"})
    assert source.passed("compare", target, **READ).missing == 1
    assert source.passed("copy", target, overwrite=True, where=Attr("n").lt(5), **FAST).changed == 5
    target.delete_item(Key={"pk": "p0", "sk": "more"})
    assert source.passed("compare", target, **READ).equal
    assert len(second.scan()["Items"]) == 24
