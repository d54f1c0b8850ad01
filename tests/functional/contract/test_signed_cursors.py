"""cursor_secret=: every face signs its cursors, and reads no others."""

from __future__ import annotations

import random
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CursorError, RandomSuffix, RangeSuffix, Resharding, Strategy, Unsharded
from tests.functional.contract.faces import Face, FaceTable, combined
from tests.support.moving import every_stage
from tests.support.tables import LocalIndex, make_table

SECRET, OTHER = b"0123456789abcdef", b"fedcba9876543210"
ITEMS: list[dict[str, Any]] = [
    {"Date": "2014-07-09", "OrderId": f"A{number:02}", "Placing": 7 * number % 13} for number in range(13)
]
STRATEGIES: dict[str, Strategy] = {
    "calculated": CalculatedSuffix("OrderId", 4),
    "ranges": RangeSuffix("OrderId", ["A04", "A09"]),
    "random": RandomSuffix(4),
    "unsharded": Unsharded(),
}
DAY: dict[str, Any] = {"KeyConditionExpression": Key("Date").eq("2014-07-09"), "Limit": 5}
READS: dict[str, tuple[str, dict[str, Any]]] = {
    "a key": ("query", DAY),
    "an index, backwards": ("query", {**DAY, "IndexName": "ByPlacing", "ScanIndexForward": False}),
    "a scan": ("scan", {"Limit": 5}),
}


def stored(face: Face) -> Any:
    return make_table(
        face.resource, ("Date", "S"), ("OrderId", "S"), local_indexes=[LocalIndex("ByPlacing", ("Placing", "N"))]
    )


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [item["OrderId"] for page in found for item in page["Items"]]


def pages(table: FaceTable, method: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
    found = [getattr(table, method)(**asked)]
    while "LastEvaluatedKey" in found[-1]:
        found.append(getattr(table, method)(**{**asked, "ExclusiveStartKey": found[-1]["LastEvaluatedKey"]}))
    return found


@combined({**STRATEGIES, **every_stage(Unsharded(), CalculatedSuffix("OrderId", 4))}, "read", READS)
def test_reads_go_on_behind_signed_cursors_only(
    face: Face, strategy: Strategy, read: tuple[str, dict[str, Any]]
) -> None:
    method, asked = read
    if method == "scan" and isinstance(strategy, Resharding):
        pytest.skip("scan() has no pages while items move")
    table = stored(face)
    bare = face.sharded(table, strategy, rng=random.Random(3))
    bare.write(puts=ITEMS)
    expected = pages(bare, method, asked)
    signing = face.sharded(table, strategy, cursor_secret=[SECRET, OTHER])
    found = pages(signing, method, asked)
    assert ids(found) == ids(expected)
    assert sorted(ids(found)) == [item["OrderId"] for item in ITEMS]
    cursors = [page["LastEvaluatedKey"] for page in found[:-1]]
    assert len(cursors) > 1
    assert all(cursor.keys() == {"shardkit"} for cursor in cursors)
    token = cursors[0]["shardkit"]
    unsigned = expected[0]["LastEvaluatedKey"]
    key = {name: found[0]["Items"][-1][name] for name in ("Date", "OrderId")}
    for wrong in (
        unsigned,
        key,
        {"shardkit": token.rpartition(".")[0]},
        {"shardkit": token[:-1] + ("E" if token[-1] == "A" else "A")},
    ):
        with pytest.raises(CursorError, match=r"ExclusiveStartKey: .*signed"):
            getattr(signing, method)(**asked, ExclusiveStartKey=wrong)
    # Secrets are changed: first all know both, then the former is left out.
    rest = {**asked, "ExclusiveStartKey": cursors[0]}
    for secret in ([OTHER, SECRET], SECRET):
        assert ids(pages(face.sharded(table, strategy, cursor_secret=secret), method, rest)) == ids(found[1:])
    with pytest.raises(CursorError, match="not signed with a secret"):
        getattr(face.sharded(table, strategy, cursor_secret=OTHER), method)(**rest)
    with pytest.raises(CursorError, match=r"damaged|not a cursor|neither"):
        getattr(face.sharded(table, strategy), method)(**rest)


def test_iterators_and_paginators_sign(face: Face) -> None:
    table = face.sharded(stored(face), STRATEGIES["calculated"], cursor_secret=SECRET)
    table.write(puts=ITEMS)
    assert [item["OrderId"] for item in table.query_items(**DAY)] == [item["OrderId"] for item in ITEMS]
    start = table.query(**DAY)["LastEvaluatedKey"]
    assert [item["OrderId"] for item in table.query_items(**DAY, ExclusiveStartKey=start)] == [
        item["OrderId"] for item in ITEMS[5:]
    ]
    with pytest.raises(CursorError, match="signed"):
        table.query_items(**DAY, ExclusiveStartKey={"Date": "2014-07-09", "OrderId": "A04"})
