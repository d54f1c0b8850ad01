"""A backfill on a virtual clock: whatever is throttled, lost, killed or changed, every item has its attribute."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from botocore import xform_name
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, ShardkitError, Strategy
from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError
from shardkit.migrate.backfill_machine import Backfill
from shardkit.migrate.repair import index_of
from shardkit.passes.table_pass import STALLED_SECONDS
from tests.support.fakes import client_error, lost_connection, throttled
from tests.support.machines import Timed
from tests.unit.migrate.test_repair import made

SEGMENTS = 3
PAGE = 4
BY_SK: Strategy = CalculatedSuffix("sk", 3, source="status")


class Table:
    """A table in memory: Scan of segments, and UpdateItem under conditions, as the machine writes them.

    ``before`` is called before each request, and may change items; it returns what the request fails with, if it does.
    """

    def __init__(
        self, items: Iterable[WireItem], before: Callable[[Send], Exception | str | None] = lambda _: None
    ) -> None:
        self.items = {item["sk"]["S"]: item for item in items}
        self.before = before
        self.timed = Timed(self._answer)

    def run(self, machine: Backfill, most: int = 100_000) -> None:
        """Run it to its end, or until it has had so many answers."""
        while not machine.ended and most:
            self.timed.run(machine)
            most -= 1

    def sent(self, operation: str) -> list[dict[str, Any]]:
        return [dict(send.params) for _, send in self.timed.sent if send.operation == operation]

    def _answer(self, send: Send) -> tuple[float, Answer]:
        fault = self.before(send)
        if isinstance(fault, Exception):
            return 0.01, fault
        answer = getattr(self, xform_name(send.operation))(send.params)
        return 0.01, lost_connection() if fault == "lost after" else answer

    def describe_table(self, params: Any) -> Answer:
        return {"Table": {"TableName": "T", "ProvisionedThroughput": {"WriteCapacityUnits": 50}}}

    def scan(self, params: Any) -> Answer:
        own = sorted(key for key in self.items if sum(map(ord, key)) % params["TotalSegments"] == params["Segment"])
        start = params.get("ExclusiveStartKey", {"sk": {"S": ""}})["sk"]["S"]
        left = [key for key in own if key > start]
        page = [dict(self.items[key]) for key in left[:PAGE]]
        last = {"LastEvaluatedKey": {"pk": {"S": "p"}, "sk": {"S": left[PAGE - 1]}}} if len(left) > PAGE else {}
        return {"Items": page, "ConsumedCapacity": {"CapacityUnits": 2.0}, **last}

    def update_item(self, params: Any) -> Answer:
        names, values = params["ExpressionAttributeNames"], params["ExpressionAttributeValues"]
        item = self.items.get(params["Key"]["sk"]["S"], {})
        for term in params["ConditionExpression"].split(" AND "):
            if term.startswith("attribute_not_exists("):
                held = names[term.removeprefix("attribute_not_exists(").rstrip(")")] not in item
            else:
                name, value = term.split(" = ")
                held = item.get(names[name]) == values[value]
            if not held:
                failed = client_error("ConditionalCheckFailedException", operation="UpdateItem")
                if item:
                    failed.response["Item"] = dict(item)  # type: ignore[typeddict-unknown-key]
                return failed
        assert item, "an update of an item that is not there creates one"
        if params["UpdateExpression"].startswith("REMOVE"):
            del item[names["#i"]]
        else:
            item[names["#i"]] = values[":i"]
        return {
            "ConsumedCapacity": {"CapacityUnits": 2.0, "GlobalSecondaryIndexes": {"by-status": {"CapacityUnits": 1.0}}}
        }


def an_item(number: int, **more: str) -> WireItem:
    return {"pk": {"S": "p"}, "sk": {"S": f"s{number:03}"}, **{name: {"S": value} for name, value in more.items()}}


def a_backfill(strategy: Strategy = BY_SK, **options: Any) -> Backfill:
    sharding = made(strategy)
    given = {"workers": 3, "segments": SEGMENTS, "draw": random.Random(0).random, **options}
    return Backfill(sharding, index_of(sharding, "by-status"), **given)


def left(table: Table, strategy: Strategy = BY_SK) -> int:
    """What a verification finds, which writes nothing, and reads consistently."""
    verification = a_backfill(strategy, verify=True)
    before = len(table.sent("UpdateItem"))
    table.run(verification)
    assert len(table.sent("UpdateItem")) == before
    assert verification.report.verified == len(table.items)
    assert table.sent("Scan")[-1]["ConsistentRead"] is True
    return verification.report.left


@given(
    st.lists(
        st.sampled_from([{}, {"status": "open"}, {"status": "done", "ix": "done.7"}, {"ix": "gone.1"}]), max_size=30
    ),
    st.randoms(use_true_random=False),
    st.sampled_from([BY_SK, RandomSuffix(3, source="status")]),
)
def test_every_item_has_it_in_the_end(contents: list[dict[str, str]], rng: random.Random, strategy: Strategy) -> None:
    """Throttled, its answers lost, killed and resumed, and with writers that are faster, old and new."""
    contents = [*contents, {"status": "kept"}]  # without any status, nothing would be removed
    table = Table(an_item(number, **more) for number, more in enumerate(contents))
    kept = [*table.items][-1]
    written: dict[str, dict[str, Any] | None] = {}

    def before(send: Send) -> Exception | str | None:
        key = send.params.get("Key", {}).get("sk", {}).get("S")
        if key not in {None, kept} and rng.random() < 0.3:
            written[key] = rng.choice([None, {}, {"status": "new"}, {"status": "open", "ix": "open.1"}])
            if written[key] is None:
                table.items.pop(key, None)
            else:
                table.items[key] = an_item(int(key[1:]), **(written[key] or {}))
        return rng.choice(
            [None, None, None, None, "lost after", throttled("KeyRangeThroughput"), client_error("InternalServerError")]
        )

    table.before = before
    machine = a_backfill(strategy)
    for most in (rng.randrange(20), rng.randrange(20), 100_000):
        table.run(machine, most)
        if not machine.ended:
            machine = a_backfill(strategy, positions=machine.positions)
    assert machine.ended
    assert machine.report.failed == 0
    table.before = lambda _: None
    last = a_backfill(strategy)  # what others wrote behind it is found by the next one
    table.run(last)
    assert left(table, strategy) == 0
    for key, item in table.items.items():
        assert ("ix" in item) == ("status" in item)
        given = written.get(key, contents[int(key[1:])]) or {}
        assert item.get("status", {}).get("S") == given.get("status")
    assert {key for key, value in written.items() if value is None}.isdisjoint(table.items)


def test_nothing_is_removed_if_no_item_has_the_source() -> None:
    """Its name is probably misspelt."""
    items = [an_item(number, ix="open.1", status="open") for number in range(5)]
    misspelt = CalculatedSuffix("sk", 3, source="state")
    table = Table(items)
    with pytest.raises(ConfigurationError, match="source: must be an attribute of items in index 'by-status'"):
        table.run(a_backfill(misspelt))
    assert all("ix" in item for item in table.items.values())
    # As soon as one has it, the others are stale.
    table = Table([*items, an_item(5, state="new")])
    table.run(a_backfill(misspelt))
    assert [("ix" in item) for item in table.items.values()] == [False] * 5 + [True]


def test_nothing_is_left_if_writers_keep_it_true() -> None:
    """New writers alone: one pass is enough; who was faster is counted, and is not overwritten."""
    table = Table(an_item(number, status="open") for number in range(20))
    index = index_of(made(BY_SK), "by-status")

    def before(send: Send) -> None:
        if send.operation != "UpdateItem":
            return
        key = send.params["Key"]["sk"]["S"]
        if int(key[1:]) % 2:
            shard = index.shard_of({"S": "new"}, {"sk": key})
            table.items[key] |= {"status": {"S": "new"}, "ix": index.physical({"S": "new"}, shard)}

    table.before = before
    machine = a_backfill()
    table.run(machine)
    assert (machine.report.read, machine.report.written, machine.report.overtaken) == (20, 10, 10)
    assert left(table) == 0
    assert sum(item["status"] == {"S": "new"} for item in table.items.values()) == 10


def test_a_changed_item_is_looked_at_again() -> None:
    """By an old writer, which does not set the attribute: no second request is needed to see it."""
    table = Table([an_item(1, status="open")])
    changes = iter(["paid", "sent", None])

    def before(send: Send) -> None:
        if send.operation == "UpdateItem" and (status := next(changes)):
            table.items["s001"] = an_item(1, status=status)

    table.before = before
    machine = a_backfill()
    table.run(machine)
    assert (machine.report.written, machine.report.overtaken, machine.report.requests) == (1, 2, SEGMENTS + 3)
    assert table.items["s001"]["ix"]["S"].startswith("sent.")


def test_an_item_that_changes_all_the_time_is_left_to_the_verification() -> None:
    table = Table([an_item(1, status="open")])

    def before(send: Send) -> None:
        if send.operation == "UpdateItem":
            table.items["s001"] = an_item(1, status=f"v{len(table.timed.sent)}")

    table.before = before
    machine = a_backfill()
    table.run(machine)
    assert machine.report.written == 0
    assert machine.report.overtaken == len(table.sent("UpdateItem")) == ATTEMPTS
    table.before = lambda _: None
    assert left(table) == 1


def test_a_position_is_kept_once_its_page_is_done() -> None:
    """So a crash loses no item; and a resumed one does not read what was done."""
    table = Table(an_item(number, status="open") for number in range(30))
    machine = a_backfill()
    for number in range(20):
        table.run(machine, 5 if number < 19 else 100_000)
        machine = a_backfill(positions=machine.positions)
        for segment, last in machine.positions.items():
            done = [key for key in table.items if sum(map(ord, key)) % SEGMENTS == segment]
            assert all("ix" in table.items[key] for key in done if last is None or key <= last["sk"]["S"])
    assert machine.ended
    assert left(table) == 0


def test_what_cannot_be_written_is_reported() -> None:
    """An item that is too large, one without its value of ``by``; the others are written."""
    refused = client_error("ValidationException", "Item size to update has exceeded the maximum allowed size")
    table = Table(
        [an_item(1, status="open", note="x"), an_item(2, status="open"), an_item(3, status="open", note="y")],
        lambda send: refused if send.params.get("Key", {}).get("sk") == {"S": "s003"} else None,
    )
    for item in table.items.values():
        item["at"] = {"N": "1"}
    strategy = CalculatedSuffix("note", 3, source="status")
    machine = a_backfill(strategy)
    table.run(machine)
    report = machine.report
    assert (report.read, report.written, report.failed) == (3, 1, 2)
    failures = dict(report.failures)
    assert [*sorted(failures)] == ["{'pk': 'p', 'sk': 's002'}", "{'pk': 'p', 'sk': 's003'}"]
    assert "by: 'note' found no 'note'" in failures["{'pk': 'p', 'sk': 's002'}"]
    assert "exceeded the maximum" in failures["{'pk': 'p', 'sk': 's003'}"]
    assert left(table, strategy) == 2


@pytest.mark.parametrize("operation", ["Scan", "UpdateItem"])
def test_it_stops_where_every_request_is_refused(operation: str) -> None:
    """For a minute: the reason is in the message, and what was done stays."""
    table = Table(
        (an_item(number, status="open") for number in range(9)),
        lambda send: throttled("ProvisionedThroughput") if send.operation == operation else None,
    )
    machine = a_backfill()
    with pytest.raises(
        ShardkitError, match=r"refused every request for 60 s \(TableWriteProvisionedThroughputExceeded\)"
    ):
        table.run(machine)
    assert STALLED_SECONDS <= table.timed.now < STALLED_SECONDS + 30
    assert machine.report.throttles == len(table.sent(operation)) < 60


def test_it_stops_at_an_error_that_others_would_get_too() -> None:
    denied = client_error("AccessDeniedException")
    table = Table(
        (an_item(number, status="open") for number in range(9)),
        lambda send: denied if send.operation == "UpdateItem" else None,
    )
    machine = a_backfill()
    with pytest.raises(type(denied), match="AccessDenied"):
        table.run(machine)
    assert len(table.sent("UpdateItem")) <= 3
    assert machine.done < SEGMENTS


def test_it_keeps_its_rates() -> None:
    """Units a second: 10 of the table, of which an update takes one; 4 of reads, of which a page takes two."""
    table = Table(an_item(number, status="open") for number in range(60))
    machine = a_backfill(write_units=10.0, read_units=4.0, workers=30, segments=SEGMENTS)
    table.run(machine)
    for operation, rate, each in (("UpdateItem", 10.0, 1.0), ("Scan", 4.0, 2.0)):
        times = [at for at, send in table.timed.sent if send.operation == operation]
        for first, begun in enumerate(times):
            for number, at in enumerate(times[first:]):
                assert number * each <= rate * (at - begun) + rate + each + 1e-6
    assert 5 <= table.timed.now < 15
    assert machine.report.write_units == 120.0
    assert machine.report.read_units == 2.0 * len(table.sent("Scan"))
    assert machine.report.seconds == pytest.approx(table.timed.now, abs=0.05)


def test_an_update_that_is_not_made_costs_too() -> None:
    """The service charges a failed condition, and does not say so."""
    table = Table(an_item(number, status="open") for number in range(40))

    def before(send: Send) -> None:
        if send.operation == "UpdateItem":
            table.items[send.params["Key"]["sk"]["S"]].pop("status", None)

    table.before = before
    machine = a_backfill(write_units=10.0)
    table.run(machine)
    assert (machine.report.written, machine.report.overtaken) == (0, 40)
    assert 2.5 <= table.timed.now < 6


def test_a_share_of_the_throughput() -> None:
    """Of 50 units, a fifth: 10 a second, looked up before the first update."""
    table = Table(an_item(number, status="open") for number in range(40))
    machine = a_backfill(write_units="20%")
    table.run(machine)
    assert table.timed.sent[0][1].operation == "DescribeTable"
    assert 2.5 <= table.timed.now < 6
    with pytest.raises(ConfigurationError, match="write_units: must be a number"):
        a_backfill(write_units="much")
    with pytest.raises(ConfigurationError, match="read_units: must be a number > 0"):
        a_backfill(read_units=0)


def test_it_reads_no_more_than_it_needs() -> None:
    """The keys of the table and of the index, and what the shard is calculated from; all of it for a function."""
    table = Table([])
    table.run(a_backfill(CalculatedSuffix("note", 3, source="status")))
    sent = table.sent("Scan")[0]
    names = [sent["ExpressionAttributeNames"][name] for name in sent["ProjectionExpression"].split(", ")]
    assert names == ["pk", "sk", "status", "at", "ix", "note"]
    assert "ConsistentRead" not in sent
    table.run(a_backfill(CalculatedSuffix(lambda item: item["sk"], 3, source="status")))
    assert "ProjectionExpression" not in table.sent("Scan")[-1]
