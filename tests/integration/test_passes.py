"""Passes on real engines, killed at random moments, with a writer beside them, against a model."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr

from shardkit import ShardedTable, bulk_load, open_source
from shardkit.passes import delete, update
from tests.support.engines import EngineName
from tests.support.passing import FAST, TEN, Job, Writer, key, table_at
from tests.support.platforms import require_fork
from tests.support.profiles import LONG
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

ITEMS, KILLS = (300_000, 30) if LONG else (1000, 2)
WINDOW = ITEMS / 25_000 if LONG else 0.3
"""Seconds within which a pass is killed: all kills together take about as long as the pass."""
Endpoint = Callable[[EngineName], str]

require_fork()
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.passing"])


def killed(job: Job, kills: int, seconds: float) -> None:
    """Run a pass that is killed so often, each time within so many seconds; then to its end, if that has not come."""
    rng = Random(kills)
    codes: list[int | None] = []
    while codes[-1:] != [0]:
        process = processes.Process(target=job.run)
        process.start()
        process.join(rng.random() * seconds if len(codes) < kills else None)
        process.kill()
        process.join()
        codes.append(process.exitcode)
        assert codes[-1] in {0, -9}
    assert -9 in codes
    print(f"{job.kind}: {len(codes) - 1} kills")  # noqa: T201 - how many a long run had


def stored(table: Any) -> dict[str, Any]:
    """Return the items by order, less what only the writer changes."""
    return {item["OrderId"]: item for item in ShardedTable(table, TEN).scan_items(segments=4)}


def test_updated_deleted_copied_compared_and_undone(
    engine_name: EngineName, engine_endpoint: Endpoint, engine_resource: DynamoDBServiceResource, tmp_path: Path
) -> None:
    if (engine_name == "dynoxide") != LONG:
        pytest.skip("300,000 items on the faster engine; few on the one that is right about deleted start keys")
    endpoint = engine_endpoint(engine_name)
    orders, copies = (make_table(engine_resource, ("Date", "S"), ("OrderId", "S")) for _ in range(2))
    items = [{**key(number), "n": number, "half": number % 2} for number in range(ITEMS)]
    bulk_load(orders, items)
    add = Job("add", endpoint, orders.name, tmp_path)
    with Writer(table_at(endpoint, orders.name), ITEMS) as writer:
        killed(add, KILLS, WINDOW)
    found = stored(orders)
    left = []
    for number in range(ITEMS):
        item = found[f"A{number:06}"]
        assert item.get("m", 0) == writer.written[number], "a write of another writer was lost"
        # Where the writer came between, the pass that was killed may have left the item to it; none is changed twice.
        assert item["n"] in ({number, number + 1} if writer.written[number] else {number + 1})
        left += [number] * int(item["n"] == number)
    assert len(left) <= len(writer.written)
    # All that the writer and the pass did is undone, as a model says: the items as they were, and what is not changed.
    update(orders, "REMOVE m", where="attribute_exists(m)", **FAST)
    assert bulk_load(orders, open_source(add.before)).failed == 0
    update(orders, "REMOVE m", where="attribute_exists(m)", **FAST)
    wanted = {str(item["OrderId"]): item for item in items}
    assert stored(orders) == wanted

    copy = Job("copy", endpoint, orders.name, tmp_path, copies.name)
    killed(copy, KILLS, WINDOW)
    assert stored(copies) == wanted
    assert len(copies.scan(Limit=200)["Items"]) == 200
    gone = replace(copy, kind="delete")
    killed(gone, KILLS, WINDOW)
    undo = [gone.before]
    # dynoxide's Scan loses items behind a start key that was deleted; DynamoDB's and DynamoDB Local's do not.
    while engine_name == "dynoxide":
        undo.append(tmp_path / f"rest{len(undo)}")
        if not delete(orders, where=Attr("half").eq(0), before=undo[-1], **FAST).found:
            undo.pop()
            break
    assert stored(orders) == {order: item for order, item in wanted.items() if item["half"]}
    compared = replace(copy, kind="compare")
    killed(compared, KILLS, WINDOW / 3)
    report = (tmp_path / "compare.report").read_text(encoding="utf-8")
    assert f"missing=0, different=0, additional={ITEMS // 2}" in report
    for before in undo:
        assert bulk_load(orders, open_source(before, format="dynamodb")).failed == 0
    assert stored(orders) == wanted
    compared.run()
    assert "missing=0, different=0, additional=0" in (tmp_path / "compare.report").read_text(encoding="utf-8")
