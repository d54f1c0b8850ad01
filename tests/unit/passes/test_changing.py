"""Passes of updates and deletions on a virtual clock: whatever is throttled, lost, killed, or changed by others."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, ConfigurationError, RandomSuffix, ShardkitError, Strategy, Unsharded
from shardkit.analysis.prices import Prices
from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.expressions.rewrite import updated_attributes
from shardkit.dynamodb.values import WireItem
from shardkit.passes.before import Before
from shardkit.passes.changing import ChangeReport, Changing
from shardkit.passes.choosing import Wanted
from shardkit.sharding.form import PYTHON_VALUES
from shardkit.sharding.seam import Operations
from tests.support.expressions import holds
from tests.support.fakes import client_error, lost_connection, throttled
from tests.support.machines import Timed
from tests.support.stepwise import carried_out

SEGMENTS, PAGE = 3, 4
ADD = "SET n = n + :one"
ONE: Any = {":one": 1}
SCHEMA: Any = {
    "TableName": "T",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
}
Fault = Callable[[Send], Exception | str | None]


class Table:
    """A table in memory. ``fault`` is called before each request: it may change items, and says how the request fails.

    ``done`` counts the writes that were carried out, by sort key; ``others``: those of another writer.
    """

    def __init__(self, items: Iterable[WireItem], fault: Fault = lambda _: None) -> None:
        self.items = {item["sk"]["S"]: dict(item) for item in items}
        self.fault = fault
        self.done: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.timed = Timed(self._answer)

    def run(self, machine: Any, most: int = 100_000) -> Any:
        return self.timed.run_on(machine, most)

    def sent(self, operation: str) -> list[Any]:
        return [send.params for _, send in self.timed.sent if send.operation == operation]

    def _answer(self, send: Send) -> tuple[float, Answer]:
        fault = self.fault(send)
        if isinstance(fault, Exception):
            return 0.01, fault
        answer = self._scan(send.params) if send.operation == "Scan" else self._write(send)
        return 0.01, lost_connection() if fault == "lost after" else answer

    def _scan(self, params: Any) -> Answer:
        own = sorted(key for key in self.items if sum(map(ord, key)) % params["TotalSegments"] == params["Segment"])
        start = params.get("ExclusiveStartKey", {"sk": {"S": ""}})["sk"]["S"]
        page = [self.items[key] for key in own if key > start][: min(PAGE, params.get("Limit", PAGE))]
        last = {"LastEvaluatedKey": {name: page[-1][name] for name in ("pk", "sk")}} if page else {}
        found = [dict(item) for item in page if holds(params, item, "FilterExpression")]
        return {"Items": found, "Count": len(found), "ScannedCount": len(page), **last}

    def _write(self, send: Send) -> Answer:
        assert send.once, "the client would repeat it without the pass knowing"
        key = send.params["Key"]["sk"]["S"]
        before = self.items.get(key, {})
        after, answer = carried_out(send.operation, send.params, before)
        if not isinstance(answer, Exception):
            self.done[key] += 1
            self.items[key] = after
            if not after:
                del self.items[key]
        return answer


def an_item(number: int, **more: Any) -> WireItem:
    return {"pk": {"S": f"p{number}"}, "sk": {"S": f"s{number:03}"}, "n": {"N": "0"}, **more}


def sharding(strategy: Strategy | None = None) -> Operations:
    return Operations.described("T", strategy or Unsharded(), SCHEMA, PYTHON_VALUES)


def a_pass(change: Any = ADD, where: Any = None, **given: Any) -> Changing:
    table = sharding(given.pop("strategy", None))
    taken = {"ExpressionAttributeValues": given.pop("values", ONE), "where": where}
    wanted = Wanted.of(table, "UpdateItem" if change else "DeleteItem", taken, change)
    attributes = {name: given.pop(name) for name in ("before", "if_unchanged", "prices", "failed") if name in given}
    options = {"workers": 3, "segments": SEGMENTS, "draw": random.Random(0).random, **given}
    machine = Changing(table, wanted, **options)
    for name, one in attributes.items():
        setattr(machine, name, one)
    return machine


def n_of(table: Table) -> dict[str, int]:
    return {key: int(item["n"]["N"]) for key, item in table.items.items()}


FAULTS = st.sampled_from(
    [None, None, None, "throttle", "hot", "500", "lost", "lost after", "conflict", "write", "delete"]
)


def failing(faults: Iterator[Any], table: list[Table]) -> Fault:
    """Of each write, fail as drawn; "write", "delete": another writer comes before it."""

    def fault(send: Send) -> Exception | str | None:
        if send.operation == "Scan":
            return None
        drawn, items, key = next(faults, None), table[0].items, send.params["Key"]["sk"]["S"]
        if drawn == "write" and key in items:
            items[key] = {**items[key], "m": {"N": str(int(items[key].get("m", {"N": "0"})["N"]) + 1)}}
            table[0].others[key] += 1
        elif drawn == "delete":
            items.pop(key, None)
        errors = {
            "throttle": throttled("ProvisionedThroughput"),
            "hot": throttled("KeyRangeThroughput"),
            "500": client_error("InternalServerError"),
            "lost": lost_connection(),
            "conflict": client_error("TransactionConflictException"),
        }
        return errors.get(str(drawn), drawn if drawn == "lost after" else None)

    return fault


@given(
    st.lists(FAULTS, max_size=60),
    st.lists(st.integers(1, 12), max_size=4),
    st.sampled_from(["add", "function", "delete"]),
)
def test_whatever_fails_each_item_is_changed_once_and_no_other_write_is_lost(
    faults: list[Any], kills: list[int], kind: str
) -> None:
    """The pass is killed, and goes on from what its journal held some requests ago."""
    here: list[Table] = []
    table = Table(map(an_item, range(20)), failing(iter(faults), here))
    here.append(table)
    there = {key: dict(item) for key, item in table.items.items()}
    change: Any = {"add": ADD, "function": lambda item: {**item, "n": item["n"] + 1}, "delete": None}[kind]
    reports: list[ChangeReport] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda _: None)
        path = Path(folder, "before")
        kept: dict[str, Any] = {"positions": {}, "state": {"pass": "P"}}
        for most in [*kills, 100_000]:
            before = Before(path, "P", ("pk", "sk"), kept["state"].get("before", 0))
            machine = a_pass(change, before=before, **kept)
            table.run(machine, most // 2)
            held = {"positions": dict(machine.positions), "state": dict(machine.state)}
            table.run(machine, most - most // 2)
            reports.append(machine.report)
            before.close()
            kept = held  # a second old, as after kill -9
            if most < 100_000:
                with path.open("ab") as file:
                    file.write(b'{"Item":{"pk":{"S"')  # and a line that was not written whole
            table.timed._simulator._arrivals.clear()  # noqa: SLF001 - answers to a process that is no more
        letters = [orjson.loads(line)["Item"] for line in path.read_bytes().splitlines()]
    assert max(table.done.values(), default=0) <= 1
    for key, item in table.items.items():
        assert int(item.get("m", {"N": "0"})["N"]) == table.others[key]
    last = reports[-1]
    if kind != "delete":
        assert all(n == table.done[key] for key, n in n_of(table).items())
    # Whatever was changed is in the file as it was, so that loading it undoes the change.
    undone = {letter["sk"]["S"]: letter for letter in letters}
    for key in table.done:
        assert undone[key]["n"] == {"N": "0"}
        assert {**there[key], **undone[key]} == undone[key]
    if not kills:
        assert last.changed + last.overtaken + last.failed == 20
        assert abs(last.changed - table.done.total()) <= last.failed + faults.count("delete")
        assert last.failed == 0 or kind == "add" or (kind == "function" and "write" in faults)
    elif "delete" not in faults and "write" not in faults and kind != "delete":
        assert n_of(table) == dict.fromkeys(there, 1)


def test_an_update_of_a_killed_process_that_arrives_late_is_not_made_twice(tmp_path: Path) -> None:
    late: list[Any] = []

    def arrive(send: Send) -> None:
        if send.operation == "UpdateItem" and late:
            table._write(late.pop())  # noqa: SLF001 - past the machine

    for change, changed in ((ADD, 0), (lambda item: {**item, "n": item["n"] + 1}, 1)):
        killed, table, path = Table([an_item(1)]), Table([an_item(1)], arrive), tmp_path / str(changed)
        before = Before(path, "P", ("pk", "sk"), None)
        killed.run(a_pass(change, before=before))
        before.close()
        late += [Send("UpdateItem", killed.sent("UpdateItem")[0], once=True)]
        before = Before(path, "P", ("pk", "sk"), 0)
        report = table.run(a_pass(change, before=before, state={"pass": "P"}))
        before.close()
        assert (n_of(table), report.changed, report.failed) == ({"s001": 1}, changed, 1 - changed)


def test_an_update_whose_answer_is_lost_is_not_taken_for_another_writers() -> None:
    def once(send: Send) -> str | None:
        return "lost after" if send.operation != "Scan" and not table.done else None

    def more(item: Any) -> Any:
        return {**item, "n": item["n"] + 1}

    table = Table([an_item(1)], once)
    report = table.run(a_pass())
    assert (report.changed, report.overtaken, report.failed) == (0, 0, 1)
    assert "answer to its update was lost" in report.failures[0][1]
    assert n_of(table) == {"s001": 1}
    for change in (more, None):
        table = Table([an_item(1)], once)
        report = table.run(a_pass(change))
        assert (report.changed, report.overtaken, report.failed) == (1, 0, 0)
        assert table.done == {"s001": 1}


@pytest.mark.parametrize(("n", "changed"), [("5", 0), ("-5", 1)])
@pytest.mark.parametrize("where", ["n < :one", lambda item: item["n"] < 1], ids=["condition", "function"])
def test_an_item_that_was_changed_meanwhile_is_changed_if_it_still_meets_the_condition(
    where: Any, n: str, changed: int
) -> None:
    def overtake(send: Send) -> None:
        if send.operation == "UpdateItem" and not table.done:
            table.items["s001"]["n"] = {"N": n}

    table = Table([an_item(1)], overtake)
    report = table.run(a_pass("SET n = n + :one", where))
    assert (report.found, report.changed, report.overtaken) == (1, changed, 1 - changed)
    assert n_of(table)["s001"] == int(n) + changed or not changed


def plus_one_of_zero(item: Any) -> Any:
    return {**item, "n": 1 // (item["n"] == 0)}


@pytest.mark.parametrize(("change", "overtaken"), [(ADD, 1), (plus_one_of_zero, 0)], ids=["where", "error"])
def test_an_item_that_is_left_to_another_writer_is_kept_as_that_left_it(
    tmp_path: Path, change: Any, overtaken: int
) -> None:
    """So undoing the pass does not undo that writer, also if the function fails of what it left."""

    def overtake(send: Send) -> None:
        if send.operation == "UpdateItem":
            table.items["s001"]["n"] = {"N": "5"}

    table, before = Table([an_item(1)], overtake), Before(tmp_path / "before", "P", ("pk", "sk"), None)
    report = table.run(a_pass(change, "n < :one" if overtaken else None, before=before))
    before.close()
    assert (report.overtaken, report.failed) == (overtaken, 1 - overtaken)
    letters = [orjson.loads(line)["Item"]["n"]["N"] for line in (tmp_path / "before").read_bytes().splitlines()]
    assert (letters[0], set(letters[1:])) == ("0", {"5"})


@pytest.mark.parametrize(("where", "limit"), [(None, 100), ("n > :one", 10_000)])
def test_pages_are_small_however_little_is_left_to_change(where: Any, limit: int) -> None:
    """Larger ones would let a resumed pass hold ever more, and write it to disk; only a condition makes them so."""
    table = Table([an_item(number) for number in range(400)])
    table.run(a_pass(lambda _: None, where))
    assert table.sent("Scan")[-1]["Limit"] == limit


def test_a_function_writes_only_what_it_changes() -> None:
    def change(item: Any) -> Any:
        item["n"] += 1
        del item["old"]
        item["new"] = {"a"}
        return item

    table = Table([an_item(1, old={"S": "x"}, kept={"BOOL": True})])
    table.run(a_pass(change))
    (sent,) = table.sent("UpdateItem")
    assert updated_attributes(sent) == {"n", "new", "old"}
    assert table.items["s001"] == an_item(1, n={"N": "1"}, new={"SS": ["a"]}, kept={"BOOL": True})


def test_what_a_function_leaves_is_not_written() -> None:
    table = Table(map(an_item, range(3)))
    report = table.run(a_pass(lambda item: None if item["sk"] == "s000" else item))
    assert (report.found, report.unchanged, report.changed) == (3, 3, 0)
    assert not table.done


def test_an_error_of_the_function_is_the_items() -> None:
    table, told = Table(map(an_item, range(2))), []
    change: Any = lambda item: {**item, "n": 1 // int(item["sk"][1:])}  # noqa: E731
    report = table.run(a_pass(change, failed=lambda *one: told.append(one)))
    assert (report.changed, report.failed, len(told)) == (1, 1, 1)
    assert "ivision" in report.failures[0][1]


def test_items_without_suffix_and_with_are_updated_where_they_are() -> None:
    items = [{**an_item(1), "pk": {"S": "p.7"}}, {**an_item(2), "pk": {"S": "q"}}]
    for strategy in (RandomSuffix(10), CalculatedSuffix("sk", 10)):
        table = Table(items)
        seen: list[Any] = []
        report = table.run(
            a_pass(lambda item, seen=seen: seen.append(item["pk"]) or {**item, "n": 5}, strategy=strategy)
        )
        assert (report.changed, sorted(seen)) == (2, ["p", "q"])
        assert sorted(sent["Key"]["pk"]["S"] for sent in table.sent("UpdateItem")) == ["p.7", "q"]


def test_an_attribute_of_the_shard_cannot_be_changed() -> None:
    table = Table([an_item(1)])
    report = table.run(a_pass(lambda item: {**item, "n": 1}, strategy=CalculatedSuffix(("sk", "n"), 10)))
    assert (report.failed, table.done.total()) == (1, 0)
    assert "from which the item's shard" in report.failures[0][1]


def test_an_item_with_too_many_attributes_is_changed_only_without_the_condition() -> None:
    many = {f"a{number}": {"N": "1"} for number in range(150)}
    table = Table([an_item(1, **many)])
    report = table.run(a_pass())
    assert (report.failed, table.done.total()) == (1, 0)
    assert "give if_unchanged=False" in report.failures[0][1]
    table.run(a_pass(if_unchanged=False))
    table.run(a_pass(if_unchanged=False, where="n = :one"))
    assert table.done.total() == 2
    first, second = table.sent("UpdateItem")
    assert first["ConditionExpression"] == "attribute_exists(#c)"
    assert second["ConditionExpression"] == "attribute_exists(#c) AND n = :one"


def test_an_attribute_that_the_update_creates_must_not_have_come_meanwhile() -> None:
    def overtake(send: Send) -> None:
        if send.operation == "UpdateItem" and "by" not in table.items["s001"]:
            table.items["s001"]["by"] = {"S": "another"}

    table = Table([an_item(1)], overtake)
    report = table.run(a_pass("SET by = :one", "attribute_not_exists(by)"))
    assert (report.changed, report.overtaken) == (0, 1)
    assert table.items["s001"]["by"] == {"S": "another"}


def test_the_shard_map_is_neither_counted_nor_changed() -> None:
    items = [an_item(1), {**an_item(2), "pk": {"S": "shardkit:map"}}]
    assert Table(items).run(a_pass(None)).changed == 1
    table = sharding()
    for where in (None, lambda _: True):
        wanted = Wanted.of(table, "", {"where": where})
        counts = Changing(table, wanted, workers=1, segments=1, draw=random.random)
        assert Table(items).run(counts).found == 1


def test_a_dry_run_writes_nothing_and_says_what_it_would_take() -> None:
    table = Table(map(an_item, range(12)))
    told = {"description": SCHEMA, "prices": Prices(million_writes=1e7)}
    machine = a_pass(lambda item: {**item, "n": 7}, "sk <> :one", values={":one": "s003"}, write_units=2, **told)
    table.run(machine)
    report = machine.concluded()
    assert (report.dry_run, report.found, report.units.table, report.expected_seconds) == (True, 11, 11.0, 5.5)
    assert (report.dollars, len(report.sample), table.done.total()) == (110.0, 10, 0)
    before, after = report.sample[0]
    assert (before["n"], after["n"]) == (0, 7)


def test_a_pass_of_which_nothing_succeeds_stops() -> None:
    table = Table(map(an_item, range(300)), lambda send: client_error() if send.operation == "UpdateItem" else None)
    with pytest.raises(ShardkitError, match=r"none of the first 1\d\d items could be changed: .*as scheduled"):
        table.run(a_pass())


def test_a_scan_that_is_refused_ends_the_pass() -> None:
    table = Table([an_item(1)], lambda send: client_error() if send.operation == "Scan" else None)
    with pytest.raises(ClientError):
        table.run(a_pass())


def test_a_file_of_another_pass_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "before"
    path.write_bytes(b"anything")
    with pytest.raises(ConfigurationError, match="exists, and is left unchanged"):
        Before(path, "P", ("pk",), None)
    assert path.read_bytes() == b"anything"
    path.unlink()
    first = Before(path, "P", ("pk",), None)
    first.keep([({"pk": {"S": "a"}}, 3)])
    with pytest.raises(ConfigurationError, match="in use by another process"):
        Before(path, "P", ("pk",), 0)
    first.close()
    whole = path.read_bytes()
    with pytest.raises(ConfigurationError, match="of another pass"):
        Before(path, "Q", ("pk",), 0)
    with pytest.raises(ConfigurationError, match="lacks what the journal"):
        Before(path, "P", ("pk",), 2)
    assert path.read_bytes() == whole
