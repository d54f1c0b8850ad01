"""The fan-out of a Query as machines, on a table in memory: what is asked, what is handed out, what a failure means."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from shardkit.core.machine import Done, Send, Wait
from shardkit.dynamodb.sizes import item_size
from shardkit.errors import ConfigurationError, ShardQueryError, UnsupportedExpressionError
from shardkit.sharding.layout import Sharding
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import QueryRows
from shardkit.strategies import RandomSuffix
from tests.support.fakes import client_error
from tests.support.machines import Shuffled, page_machine, stream_machine
from tests.support.model import ModelTable
from tests.support.tables import described, many

K = Key("pk").eq("k")


def filled(sharding: Sharding | None = None, *, items: int = 12, page: int = 1000, eager: bool = True) -> ModelTable:
    """Items with sort keys from 0, dealt over the shards in turn; `a` is the same for every four of them."""
    table = ModelTable(sharding or many(), page=page, eager=eager)
    shards = table.sharding.shards({"S": "k"})
    for number in range(items):
        item = {"pk": "k", "sk": number, "a": number // 4, "b": "x", "city": "r", "keep": number % 3 == 0}
        table.put(item, shards[number % len(shards)])
    return table


def plan(table: ModelTable, start: Any = None, **params: Any) -> QueryPlan:
    given = {"KeyConditionExpression": K, **params}
    if start is not None:
        given["ExclusiveStartKey"] = start
    return QueryPlan.of(table.sharding, given)


def page_of(
    table: ModelTable, start: Any = None, *, failing: Mapping[int, Exception] | None = None, **params: Any
) -> Any:
    return Shuffled(table, failing=failing or {}).run(page_machine(plan(table, start, **params)))


def sort_keys(page: PageOfShards) -> list[int]:
    return [int(item["sk"]) for item in page.rows.items]


class TestPages:
    def test_all_shards_are_asked_before_any_has_answered(self) -> None:
        """Every shard is asked at once, each for its own physical key."""
        machine = page_machine(plan(filled()))
        sends = [machine.next(0.0) for _ in range(3)]
        assert machine.next(0.0) == Wait()
        stored = [[*send.params["ExpressionAttributeValues"].values()] for send in sends if isinstance(send, Send)]
        assert stored == [[{"S": "k.1"}], [{"S": "k.2"}], [{"S": "k.3"}]]

    def test_a_share_of_the_limit(self) -> None:
        """A page with Limit over 100 shards asks for far less than 100 × Limit items, and need not ask twice."""
        table = filled(many(100), items=400)
        assert sort_keys(page_of(table, Limit=50)) == list(range(50))
        assert len(table.asked) == 100
        assert all(params["Limit"] * item_size(table.items[0]) <= 4096 for params in table.asked)

    def test_a_shard_that_ran_dry_is_asked_again(self) -> None:
        """Where one shard holds everything, only that one is asked again, for what is missing."""
        table = ModelTable(many(5))
        for number in range(40):
            table.put({"pk": "k", "sk": number}, 2)
        assert sort_keys(page_of(table, Limit=30)) == list(range(30))
        assert len(table.asked) == 6
        assert table.evaluated <= 2 * 30

    @pytest.mark.parametrize("forward", [True, False])
    @pytest.mark.parametrize("shown", [{"Select": "COUNT"}, {"ProjectionExpression": "b"}])
    def test_hidden_numbers_of_more_than_38_digits(self, shown: dict[str, Any], forward: bool) -> None:
        """1E100 is printed with 101 digits, which boto3 refuses: one that is not shown stays as it came."""
        digits = ["-1" + "0" * 125, "-1" + "0" * 100, "0", "0." + "0" * 129 + "1", "1" + "0" * 100, "999" + "0" * 123]
        table = filled(items=0)
        for number, text in enumerate(digits):
            table.put({"pk": "k", "sk": 0, "b": str(number)}, number % 3 + 1)
            table.items[-1]["sk"] = {"N": text}
        seen: list[Any] = []
        start = None
        while len(seen) < len(digits):
            page = page_of(table, start, Limit=2, ScanIndexForward=forward, **shown)
            seen += page.rows.items
            start = page.last_evaluated_key
        asked = plan(table, **shown)
        assert [Decimal(item["sk"]["N"]) for item in seen] == sorted(map(Decimal, digits), reverse=not forward)
        if "ProjectionExpression" in shown:
            assert [asked.shown(item)["b"] for item in seen] == list("012345")[:: 1 if forward else -1]

    @pytest.mark.parametrize("eager", [True, False])
    def test_the_last_page_is_full(self, eager: bool) -> None:
        """Pages that divide evenly end at the last item: no further page, no lost item."""
        table = filled(items=12, eager=eager)
        first = page_of(table, Limit=6)
        second = page_of(table, first.last_evaluated_key, Limit=6)
        assert sort_keys(first) + sort_keys(second) == list(range(12))
        rest = second.last_evaluated_key
        assert rest is None or not page_of(table, rest, Limit=6).items

    def test_without_limit_a_page_is_one_round(self) -> None:
        """A shard's page ends at 1 MB: the merged one ends at the earliest such place and goes on there."""
        table = filled(items=20, page=3)
        first = page_of(table)
        assert (sort_keys(first), len(table.asked)) == (list(range(7)), 3)
        second = page_of(table, first.last_evaluated_key)
        assert sort_keys(second) == list(range(7, 14))

    def test_descending(self) -> None:
        """The same backwards."""
        table = filled(items=20, page=3)
        first = page_of(table, ScanIndexForward=False)
        assert sort_keys(first) == list(range(19, 12, -1))
        assert sort_keys(page_of(table, first.last_evaluated_key, ScanIndexForward=False)) == list(range(12, 5, -1))

    def test_a_filter_may_leave_an_empty_page_with_a_cursor(self) -> None:
        """With a filter a page is one round, ends at the lowest place evaluated, and never exceeds Limit."""
        table = ModelTable(many(2))
        for number in range(40):
            table.put({"pk": "k", "sk": number, "keep": number == 39}, 1 + number % 2)
        params: dict[str, Any] = {
            "FilterExpression": "keep = :yes",
            "ExpressionAttributeValues": {":yes": True},
            "Limit": 4,
        }
        page = page_of(table, **params)
        assert not page.rows
        assert page.last_evaluated_key
        assert len(table.asked) == 2
        assert page.scanned == table.evaluated

    def test_a_filtered_page_advances_by_blocks(self) -> None:
        """A Limit of as many items as there are shards does not make pages of one item each."""
        table = ModelTable(many(4))
        for number in range(400):
            table.put({"pk": "k", "sk": number, "keep": number == 399}, 1 + number % 4)
        params: dict[str, Any] = {
            "FilterExpression": "keep = :yes",
            "ExpressionAttributeValues": {":yes": True},
            "Limit": 4,
        }
        page_sizes = ItemSizes()
        start, pages = None, 0
        while True:
            page = Shuffled(table).run(page_machine(plan(table, start, **params), sizes=page_sizes))
            assert len(page.rows) <= 4
            pages += 1
            start = page.last_evaluated_key
            if start is None:
                break
        assert pages <= 20

    def test_a_filter_among_equal_index_keys_ends_its_page(self) -> None:
        """A page that starts among many equal sort keys need not read all of them: its own key goes on."""
        table = ModelTable(many(1))
        for number in range(60):
            table.put({"pk": "k", "sk": number, "a": 1, "keep": False}, 1)
        params: dict[str, Any] = {
            "FilterExpression": "keep = :yes",
            "ExpressionAttributeValues": {":yes": True},
            "Limit": 2,
        }
        page = page_of(table, IndexName="with-a", **params)
        table.asked.clear()
        assert page_of(table, page.last_evaluated_key, IndexName="with-a", **params).last_evaluated_key
        assert len(table.asked) == 1

    @pytest.mark.parametrize(
        "more", [{}, {"FilterExpression": "keep = :yes", "ExpressionAttributeValues": {":yes": 1}}]
    )
    @pytest.mark.parametrize(("op", "descending"), [("lt", False), ("gt", True)])
    @pytest.mark.parametrize("limit", range(1, 16))
    def test_the_excluded_end_of_a_range(self, op: str, descending: bool, more: dict[str, Any], limit: int) -> None:
        """What a resumed range lets in at its excluded end is dropped, and neither asked behind nor made a cursor."""
        table = ModelTable(many(3))
        for number in range(9):
            table.put({"pk": "k", "sk": number, "a": 4, "keep": 1}, 1 + number % 3)
        edge, inside = (5, 4) if op == "lt" else (3, 4)
        for number in range(9, 30):
            table.put({"pk": "k", "sk": number, "a": edge, "keep": 1}, 1 + number % 3)
        condition = K & getattr(Key("a"), op)(edge)
        params: dict[str, Any] = {"IndexName": "with-a", "KeyConditionExpression": condition, "Limit": limit, **more}
        params["ScanIndexForward"] = not descending
        found: list[int] = []
        start = None
        for _ in range(30):
            page = page_of(table, start, **params)
            assert {int(item["a"]) for item in page.rows.items} <= {inside}
            found += sort_keys(page)
            start = page.last_evaluated_key
            if start is None:
                break
        assert sorted(found) == list(range(9))
        assert start is None

    def test_a_whole_primary_key_is_read_once(self) -> None:
        """Where the key condition gives the whole primary key, a shard is done when it has brought its one item."""
        table = filled()
        page = page_of(table, KeyConditionExpression=K & Key("sk").eq(4), Limit=1)
        assert (sort_keys(page), page.last_evaluated_key, len(table.asked)) == ([4], None, 3)
        bare = ModelTable(described(RandomSuffix(2), {"pk": "S"}, ["pk"]))
        for shard in (1, 2):
            bare.put({"pk": "k", "n": shard}, shard)
        first = Shuffled(bare).run(page_machine(plan(bare, Limit=1)))
        second = Shuffled(bare).run(page_machine(plan(bare, first.last_evaluated_key, Limit=1)))
        assert [number + 1 for number in (*first.rows.numbers, *second.rows.numbers)] == [1, 2]
        assert len(bare.asked) == 3

    @pytest.mark.parametrize("sort_key", [True, False])
    def test_count(self, sort_key: bool) -> None:
        """A count asks for the keys, or for the partition key where that is all that there is."""
        sharding = many() if sort_key else described(RandomSuffix(3), {"pk": "S"}, ["pk"])
        table = filled(sharding, items=3)
        page = page_of(table, Select="COUNT")
        assert len(page.rows) == 3
        assert {frozenset(params["ExpressionAttributeNames"].values()) for params in table.asked} == {
            frozenset({"pk", "sk"} if sort_key else {"pk"})
        }

    @pytest.mark.parametrize("more", [{"ProjectionExpression": "keep"}, {"AttributesToGet": ["keep"]}])
    def test_a_count_with_a_projection_is_left_to_the_service(self, more: dict[str, Any]) -> None:
        """Which refuses it: it is neither counted nor answered with items here."""
        table = filled()
        asked = plan(table, Select="COUNT", **more)
        assert not asked.counting
        send = page_machine(asked).next(0.0)
        assert isinstance(send, Send)
        assert send.params["Select"] == "COUNT"
        assert {"ProjectionExpression", "AttributesToGet"} & send.params.keys() == more.keys()

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("limit", [1, 2, 5])
    @pytest.mark.parametrize(
        ("condition", "wants"),
        [
            (K, lambda a, b: True),
            (K & Key("a").eq(1), lambda a, b: a == 1),
            (K & Key("a").between(0, 1), lambda a, b: a <= 1),
            (K & Key("a").eq(1) & Key("b").gt("x"), lambda a, b: a == 1 and b > "x"),
        ],
        ids=["all", "=", "BETWEEN", "= and >"],
    )
    def test_a_cursor_on_an_index_with_several_sort_keys(
        self, limit: int, condition: Any, wants: Callable[[int, str], bool], *, descending: bool
    ) -> None:
        """Its pages are the whole answer in the order of all of them, also where the first ones are equal."""
        table = ModelTable(many(3))
        for number in range(27):
            row = {"pk": "k", "sk": number, "a": number // 9, "b": "zyx"[number % 9 // 3]}
            table.put(row, 1 + number % 3)
        params: dict[str, Any] = {"IndexName": "a-then-b", "ScanIndexForward": not descending, "Limit": limit}
        wanted = [(a, b) for a in range(3) for b in "xyz" if wants(a, b) for _ in range(3)]
        found: list[tuple[int, str]] = []
        seen: list[int] = []
        start, pages = None, 0
        while pages == 0 or start is not None:
            page = page_of(table, start, KeyConditionExpression=condition, **params)
            found += [(int(item["a"]), item["b"]) for item in page.rows.items]
            seen += sort_keys(page)
            start = page.last_evaluated_key
            pages += 1
            assert pages <= 30
        assert found == (wanted[::-1] if descending else wanted)
        assert len(set(seen)) == len(seen)
        assert pages >= len(wanted) / limit

    def test_hidden_attributes(self) -> None:
        """What the merge needs and the caller did not ask for is read and left out again."""
        table = filled()
        asked = plan(table, ProjectionExpression="keep", Limit=2)
        page = Shuffled(table).run(page_machine(asked))
        assert [asked.shown(item) for item in page.rows.items] == [{"keep": True}, {"keep": False}]
        rest = page_of(table, page.last_evaluated_key, ProjectionExpression="keep", Limit=1)
        assert [item["sk"] for item in rest.rows.items] == [{"N": "2"}]

    def test_hidden_attributes_of_an_index_that_is_not_fanned_out(self) -> None:
        """The partition key, which is read with them, is shown without its suffix, or not at all."""
        table = filled()
        for projection, shown in (("keep", {"keep": True}), ("pk, keep", {"pk": "k", "keep": True})):
            params: dict[str, Any] = {"IndexName": "city", "KeyConditionExpression": Key("city").eq("r")}
            asked = plan(table, ProjectionExpression=projection, Limit=1, **params)
            page = Shuffled(table).run(page_machine(asked))
            assert [asked.shown(item) for item in page.rows.items] == [shown]

    def test_consumed_capacity_is_summed(self) -> None:
        """The capacity of every request counts; metadata is the first answer's."""
        page = page_of(filled(), ReturnConsumedCapacity="TOTAL")
        assert page.consumed == {"TableName": "orders", "CapacityUnits": 1.5}
        assert page.metadata["RequestId"]

    @pytest.mark.parametrize("limit", [0, -1, True, 1.5, "5"])
    def test_a_limit_that_is_none(self, limit: Any) -> None:
        """Limit is a whole number of at least 1."""
        with pytest.raises(ConfigurationError, match="Limit"):
            plan(filled(), Limit=limit)


class TestFailures:
    def test_some_shards_failed(self) -> None:
        """The error says which and why, carries the others' items, and nothing more is asked after it."""
        table = filled()
        with pytest.raises(ShardQueryError, match=r"1 of 3 shards failed \(shard 2: Internal") as caught:
            page_of(table, failing={1: client_error("InternalServerError")})
        assert [item["sk"] for item in caught.value.partial_items] == [0, 2, 3, 5, 6, 8, 9, 11]
        assert {item["pk"] for item in caught.value.partial_items} == {"k"}
        assert caught.value.errors.keys() == {2}
        machine = page_machine(plan(table))
        send = machine.next(0.0)
        assert isinstance(send, Send)
        machine.next(0.0)
        machine.receive(send, client_error(), 0.0)
        assert machine.next(0.0) == Wait()

    def test_all_failed_alike(self) -> None:
        """Where shardkit has nothing to add, the service's own error is raised."""
        errors = [client_error("AccessDeniedException") for _ in range(3)]
        with pytest.raises(ClientError) as caught:
            page_of(filled(), failing=dict(enumerate(errors)))
        assert caught.value in errors

    def test_all_failed_differently(self) -> None:
        """Different reasons are all told."""
        errors = {0: client_error("AccessDeniedException"), 1: client_error("InternalServerError"), 2: ValueError("no")}
        with pytest.raises(ShardQueryError, match="ValueError") as caught:
            page_of(filled(), failing=errors)
        assert caught.value.errors == {number + 1: error for number, error in errors.items()}
        assert caught.value.partial_items == []

    def test_a_later_round_failed(self) -> None:
        """A failure behind answers that were good is partial, even if only one shard is left."""
        table = ModelTable(many(1))
        for number in range(40):
            table.put({"pk": "k", "sk": number, "keep": False}, 1)
        stream = stream_machine(plan(table, Limit=5))
        runner = Shuffled(table, failing={2: client_error()})
        assert len(runner.run(stream)) == len(runner.run(stream)) == 5
        with pytest.raises(ShardQueryError) as caught:
            runner.run(stream)
        assert caught.value.partial_items == []

    def test_a_stream_keeps_what_it_held(self) -> None:
        """What was not handed out yet when a shard failed is in partial_items."""
        runner = Shuffled(filled(), failing={0: client_error("InternalServerError")})
        with pytest.raises(ShardQueryError) as caught:
            runner.run(stream_machine(plan(runner.table)))
        assert [item["sk"] for item in caught.value.partial_items] == [1, 2, 4, 5, 7, 8, 10, 11]


class TestStreams:
    def test_nothing_is_read_twice(self) -> None:
        """A whole stream evaluates every item once, in order, and then says that it has ended."""
        table = filled(many(4), items=1100, page=300)
        stream = stream_machine(plan(table))
        runner = Shuffled(table, random.Random(1))
        found: list[int] = []
        while rows := runner.run(stream):
            found += [int(item["sk"]) for item in rows.items]
        assert found == list(range(1100))
        assert table.evaluated == 1100
        assert not runner.run(stream)
        # 64 items a shard while their size is not known, then whole blocks of more and more of them.
        assert [params["Limit"] for params in table.asked[:4]] == [64, 64, 64, 64]
        assert table.asked[4]["Limit"] * item_size(table.items[0]) > 220 * 1024

    def test_memory_is_shards_times_page(self) -> None:
        """However far one shard could run ahead, it is not asked before its items have been handed out."""
        table = ModelTable(many(4))
        for number in range(800):  # shard 1 has the last ones: all of it would have to be held until the end
            table.put({"pk": "k", "sk": number}, 1 + (number < 600) * (1 + number % 3))
        stream = stream_machine(plan(table, Limit=40))
        runner = Shuffled(table, random.Random(1))
        held, found = [], 0
        while rows := runner.run(stream):
            found += len(rows)
            held.append(len(stream.merge.held))
        assert found == 800
        assert 40 / 2 <= max(held) <= 4 * 40

    def test_a_count_is_no_stream(self) -> None:
        """query_items() yields items, so that a count is refused."""
        with pytest.raises(UnsupportedExpressionError, match="COUNT"):
            stream_machine(plan(filled(), Select="COUNT"))

    @pytest.mark.parametrize("wrong", [-1, True, 1.0, "5"])
    def test_max_items_that_is_none(self, wrong: Any) -> None:
        """max_items is a whole number of at least 0."""
        with pytest.raises(ConfigurationError, match="max_items"):
            QueryRows(return_shards=False, max_items=wrong)

    def test_rows(self) -> None:
        """Items come out one by one; the cursor stands behind the last one that did."""
        table = filled()
        rows = QueryRows(return_shards=True, max_items=3)
        assert (rows.wanting, rows.last_evaluated_key) == (True, None)
        stream = stream_machine(plan(table))
        rows.begin(stream)
        rows.add(Shuffled(table).run(stream))
        assert [rows.take() for _ in range(3)][2][1] == 3
        assert not rows.wanting
        with pytest.raises(StopIteration):
            rows.take()
        assert sort_keys(page_of(table, rows.last_evaluated_key))[0] == 3

    def test_rows_that_have_all_been_given_out_have_no_cursor(self) -> None:
        """As long as it is not known that nothing follows, there is one."""
        table = filled(items=3)
        rows = QueryRows(return_shards=False, max_items=None)
        stream, carrier = stream_machine(plan(table)), Shuffled(table)
        rows.begin(stream)
        rows.add(carrier.run(stream))
        assert [rows.take()["sk"] for _ in range(3)] == [0, 1, 2]
        assert (rows.wanting, rows.last_evaluated_key is None) == (True, False)
        rows.add(carrier.run(stream))
        assert (rows.wanting, rows.last_evaluated_key) == (False, None)
        with pytest.raises(StopIteration):
            rows.take()


def test_done_is_given_again() -> None:
    """A page that is done stays done."""
    machine = page_machine(plan(filled()))
    assert Shuffled(filled()).run(machine) is machine
    assert machine.next(0.0) == Done(machine)
