"""What the benchmarks stand on: the stub answers as DynamoDB does, and figures are judged rightly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError, SSLError
from moto import mock_aws

pytest.importorskip("rich")
pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks import bulk, direct, memory, report, ways, writes
from benchmarks.__main__ import MEASURES, PAGE, Bench, main
from benchmarks.measure import Figure, Timing, forget_peak, over, peak
from benchmarks.orders import DAY, ORDER_BYTES, TABLE, order, orders, strategy_of, wire_order
from benchmarks.stub import stub
from benchmarks.units import Case, Day, block_units, figures
from benchmarks.window import item_bytes, load, message
from benchmarks.wire import Wire
from shardkit.capacity import item_size
from tests.support.tables import make_table

SHARDS, ITEMS = 4, 40
ON_ONE = Key("Date").eq(f"{DAY}.1")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with stub(shards=SHARDS, items=ITEMS) as url:
        yield url


@pytest.fixture(scope="module")
def stubbed(endpoint: str) -> Iterator[Any]:
    with ways.resource(endpoint) as resource:
        yield resource.Table(TABLE)


@pytest.fixture(scope="module")
def real() -> Iterator[Any]:
    """The same items on moto."""
    with mock_aws():
        table = make_table(boto3.resource("dynamodb"), ("Date", "S"), ("OrderId", "S"))
        for key, name in orders(SHARDS, ITEMS):
            table.put_item(Item={**order(name), "Date": key})
        yield table


def names_on(key: str) -> list[str]:
    return [name for held, name in orders(SHARDS, ITEMS) if held == key]


NAMES = names_on(f"{DAY}.1")


def test_every_shard_holds_as_many_and_each_order_is_where_its_hash_says() -> None:
    placed = list(orders(SHARDS, ITEMS))
    assert [name for _, name in placed] == sorted({name for _, name in placed})
    assert len(NAMES) == ITEMS // SHARDS
    strategy = strategy_of(SHARDS)
    assert all(key == strategy.physical_key(DAY, strategy.shard_of(DAY, {"OrderId": name})) for key, name in placed)


def test_orders_have_ten_attributes_and_their_size() -> None:
    item = wire_order(DAY, "A000012345")
    assert (len(item), item_size(item)) == (10, ORDER_BYTES)


@pytest.mark.parametrize(
    "condition",
    [
        ON_ONE,
        ON_ONE & Key("OrderId").eq(NAMES[3]),
        ON_ONE & Key("OrderId").lt(NAMES[7]),
        ON_ONE & Key("OrderId").lte(NAMES[7]),
        ON_ONE & Key("OrderId").gt(NAMES[7]),
        ON_ONE & Key("OrderId").gte(NAMES[7]),
        ON_ONE & Key("OrderId").between(NAMES[2], NAMES[8]),
        ON_ONE & Key("OrderId").begins_with(NAMES[9][:-1]),
        Key("Date").eq("no such key"),
    ],
)
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("limit", [None, 3, 5])
def test_pages_are_those_of_the_service(
    condition: Any, forward: bool, limit: int | None, stubbed: Any, real: Any
) -> None:
    asked: dict[str, Any] = {"KeyConditionExpression": condition, "ScanIndexForward": forward}
    if limit is not None:
        asked["Limit"] = limit
    assert pages(stubbed, asked) == pages(real, asked)


def pages(table: Any, asked: dict[str, Any]) -> list[tuple[list[dict[str, Any]], int]]:
    found: list[tuple[list[dict[str, Any]], int]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = table.query(**asked, **cursor)
        if page["Items"] or not found:
            found.append((page["Items"], page["ScannedCount"]))
        if "LastEvaluatedKey" not in page:
            return found
        cursor = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def test_the_stub_keeps_what_is_put() -> None:
    with stub(shards=1, items=2) as url, ways.resource(url) as resource:
        table = resource.Table(TABLE)
        one, two = ({"Date": "put", "OrderId": name, "Total": total} for name, total in (("b", 2), ("a", 1)))
        table.put_item(Item=one)
        with table.batch_writer() as batch:
            batch.put_item(Item=two)
        assert table.get_item(Key={"Date": "put", "OrderId": "b"})["Item"] == one
        assert "Item" not in table.get_item(Key={"Date": "put", "OrderId": "c"})
        assert table.query(KeyConditionExpression=Key("Date").eq("put"))["Items"] == [two, one]


def test_the_stub_forgets_what_is_put_and_says_its_units() -> None:
    with stub(forgets=True) as url, ways.resource(url) as resource:
        puts = [{"PutRequest": {"Item": {"Date": "put", "OrderId": name}}} for name in ("a", "b")]
        asked: Any = {"RequestItems": {TABLE: puts}, "ReturnConsumedCapacity": "TOTAL"}
        answer = resource.batch_write_item(**asked)
        assert answer["UnprocessedItems"] == {}
        assert [told["CapacityUnits"] for told in answer["ConsumedCapacity"]] == [2.0]
        assert resource.Table(TABLE).query(KeyConditionExpression=Key("Date").eq("put"))["Items"] == []


EVERY_WAY: writes.Ways = {**writes.WAYS, **writes.CORES}


@pytest.mark.parametrize("way", EVERY_WAY)
def test_every_way_writes_the_same(way: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "SHARDS", SHARDS)
    written = writes.Orders(60)
    try:  # before a stub of its own is started
        with EVERY_WAY[way](endpoint, written):
            pass
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    with stub() as url:
        assert not writes.written(url, written)
        with EVERY_WAY[way](url, written) as write:
            write()
        assert writes.written(url, written)
        assert not writes.written(url, writes.Orders(59))


def a_bulk(monkeypatch: pytest.MonkeyPatch, beside: writes.Ways, *, short: bool = True) -> dict[str, Figure]:
    monkeypatch.setattr(bulk, "WAYS", beside)
    monkeypatch.setattr(writes, "SHARDS", SHARDS)
    monkeypatch.setattr(bulk, "Orders", lambda _: writes.Orders(50))
    for apart in ("memory", "_programs"):  # in processes of their own
        monkeypatch.setattr(bulk, apart, lambda *_, **__: iter(()))
    with stub() as url:  # one for all ways, which write the same
        monkeypatch.setattr(bulk, "stub", lambda **_: nullcontext(url))
        return {figure.name: figure for figure in bulk.bulk(short=short)}


def some(ways: writes.Ways, *names: str) -> writes.Ways:
    return {name: ways[name] for name in names}


def test_a_way_is_compared_with_those_after_it_and_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(endpoint: str, orders: writes.Orders) -> AbstractContextManager[writes.Write]:
        raise ModuleNotFoundError("no such library")

    installed = some(writes.WAYS, writes.DIRECT, writes.OURS, writes.BOTO3)
    measured = a_bulk(monkeypatch, {**installed, writes.PYDYNOX: absent})
    ratios = {name.replace(" CPU of 50 items,", ""): figure for name, figure in measured.items() if figure.unit == "×"}
    assert {name: figure.target for name, figure in ratios.items()} == {
        "direct bulk_load: of bulk_load": None,
        "direct bulk_load: of boto3's batch_writer": 0.11,
        "direct bulk_load: of pydynox's sync_batch_write": 1.0,
        "bulk_load: of boto3's batch_writer": 0.45,
        "bulk_load: of pydynox's sync_batch_write": None,
    }
    missing = {name for name, figure in ratios.items() if figure.value is None and figure.note == ways.MISSING}
    assert missing == {name for name in ratios if "pydynox" in name}


def test_a_long_run_measures_wall_time_and_many_orders_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    in_process = writes.CORES[writes.OURS]  # processes take a second to start, for each run
    monkeypatch.setattr(bulk, "CORES", {writes.BY_PROCESSES: in_process, writes.OURS: in_process})
    monkeypatch.setattr(bulk, "MORE_CONNECTIONS", some(writes.MORE_CONNECTIONS, writes.DIRECT_MORE))
    measured = a_bulk(monkeypatch, some(writes.WAYS, writes.DIRECT, writes.BOTO3), short=False)
    assert measured["direct bulk_load: wall time of 50 items at 5 ms, of boto3's batch_writer"].target == 1 / 10
    assert measured["direct bulk_load over 32 connections, wall time of 50 items at 5 ms"].value is not None
    assert measured["bulk_load by 2 processes: wall time of 50 items at 5 ms, of bulk_load"].value is not None


def test_a_way_that_writes_other_items_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def idle(endpoint: str, orders: writes.Orders) -> Iterator[writes.Write]:
        yield lambda: None

    with pytest.raises(RuntimeError, match="idle wrote other items"):
        a_bulk(monkeypatch, {"idle": idle})


def test_memory_is_that_of_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ITEMS", (2_000,))
    through_client, past_it = memory.memory(short=False)
    for figure in (through_client, past_it):
        assert figure.value is not None
        assert 2_000 * ORDER_BYTES / 1e6 < figure.value < memory.MEGABYTES
    assert past_it.target == through_client.value


def test_a_peak_is_forgotten() -> None:
    held = b"x" * 64_000_000  # zeros would take no memory until they are read
    high = peak()
    assert high > len(held)
    del held
    forget_peak()
    assert peak() < high - 32_000_000


def test_messages_have_their_size() -> None:
    assert item_size(message(7, 123456)) == 1024
    assert 1024 < item_bytes(1000) < 2000


def test_a_larger_window_uses_more_of_the_table() -> None:
    small, large = (load(window, 60_000) for window in (500, 10_000))
    assert small.share < large.share - 0.1
    assert large.share < 1.001
    assert 0 < small.again < 1


@pytest.mark.parametrize(
    "asked",
    [
        {"KeyConditionExpression": ON_ONE, "FilterExpression": Key("Total").gt(1)},
        {"KeyConditionExpression": ON_ONE, "Select": "COUNT"},
        {"KeyConditionExpression": Key("Date").gt("2014")},
    ],
)
def test_what_the_stub_does_not_do_it_refuses(asked: dict[str, Any], stubbed: Any) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        stubbed.query(**asked)


def test_sharded_and_plain_reads_bring_the_same(endpoint: str) -> None:
    expected = [order(name) for _, name in orders(SHARDS, ITEMS)]
    with ways.sharded(endpoint, SHARDS) as table, ways.plain(endpoint, SHARDS, workers=2) as plain:
        assert table.query(KeyConditionExpression=ways.CONDITION)["Items"] == expected
        assert ways.comparable(plain()) == ways.comparable(expected)


@pytest.mark.parametrize(
    ("limit", "requests", "rounds", "refills"),
    [(None, 1, 1, 0), (4, 3, 3, 2), (5, 3, 3, 2)],
)
def test_requests_that_need_an_answer_are_a_round_of_their_own(
    limit: int | None, requests: int, rounds: int, refills: int, stubbed: Any
) -> None:
    wire = Wire(quiet=0.02)
    asked: dict[str, Any] = {"KeyConditionExpression": ON_ONE, "ReturnConsumedCapacity": "TOTAL"}
    with closing(wire), wire.carrying(stubbed.meta.client):
        pages(stubbed, asked if limit is None else {**asked, "Limit": limit})
    assert (len(wire.sent), wire.rounds, wire.refills, wire.units) == (requests, rounds, refills, requests / 2)


def test_requests_side_by_side_are_one_round(endpoint: str) -> None:
    wire = Wire(connections=SHARDS, quiet=0.2)
    with ways.sharded(endpoint, SHARDS) as table, closing(wire), wire.carrying(table.meta.client):
        table.query(KeyConditionExpression=ways.CONDITION, ReturnConsumedCapacity="TOTAL")
    assert (len(wire.sent), wire.rounds, wire.refills) == (SHARDS, 1, 0)


def test_an_answer_takes_its_latency() -> None:
    with stub(shards=1, items=1, latency_ms=50) as url, ways.resource(url) as resource:
        began = time.perf_counter()
        resource.meta.client.describe_table(TableName=TABLE)
        assert time.perf_counter() - began >= 0.05


def test_only_clients_made_inside_trust_the_certificate() -> None:
    def ask() -> Any:
        with ways.resource(url) as resource:
            return resource.meta.client.describe_table(TableName=TABLE)["Table"]["TableStatus"]

    with ExitStack() as stack:
        with direct.certified() as certificate:
            url = stack.enter_context(stub(certificate=certificate))
            assert url.startswith("https:")
            assert ask() == "ACTIVE"
        with pytest.raises(SSLError, match="certificate verify failed"):
            ask()


def test_a_request_past_the_client_is_measured_beside_those_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench itself ends with an error where one writes or gets something else."""
    monkeypatch.setattr(direct, "CALLS", 2)
    for module in (direct, writes):
        monkeypatch.setattr(module, "SHARDS", SHARDS)
    figures = list(direct.direct(short=True))
    assert all(figure.value is not None and figure.value > 0 for figure in figures)
    assert {figure.name: figure.target for figure in figures if figure.target is not None} == {
        f"{request}, {wire}: direct, of client": 1 / 7
        for request in ("BatchWriteItem", "get_item")
        for wire in ("plain HTTP", "TLS")
    }


def test_a_ratio_is_that_of_the_rounds() -> None:
    assert over(Timing((1.0, 4.0, 9.0)), Timing((2.0, 4.0, 3.0))) == (1.0, (0.5, 3.0))


@pytest.mark.parametrize(("value", "target", "met"), [(1.0, 1.0, True), (1.01, 1.0, False), (9.0, None, True)])
def test_figures_are_judged(value: float, target: float | None, met: bool) -> None:
    assert Figure(bench="reads", name="x", value=value, target=target).met is met


def test_the_floor_is_each_shards_part_and_one_item_more() -> None:
    day = Day("", "", 3, "skewed", [1] * 40 + [2] * 13)
    # 300 bytes each: 13 items fit in a block of 4 KB, 14 do not; a shard that ends pays for what it holds.
    assert [block_units(items) for items in (0, 13, 14)] == [0.5, 0.5, 1.0]
    assert day.floor(0, 12) == 0.5 + 0.5 + 0.5
    assert day.floor(0, 13) == 1.0 + 0.5 + 0.5
    assert day.floor(40, 13) == 0.5 + 0.5 + 0.5
    assert day.obvious(0, 40) == 1.5 + 0.5 + 0.5


def test_cases_are_judged() -> None:
    case = Case(
        read="Limit=10", state="fresh", spread="even", shards=10, obvious=10, floor=5, units=10.5, rounds=4, refills=0,
        excess=0.5,
    )  # fmt: skip
    assert [(figure.value, figure.target, figure.met) for figure in figures([case])] == [
        (2.1, 1.2, False),
        (4, 3, False),
        (1.05, 1.0, False),
    ]


def test_cases_of_ranges_are_judged_and_shown() -> None:
    """Their worst page has no target."""
    case = Case(
        read="pages", state="fresh", spread="ranges", shards=50, obvious=500, floor=160, units=165, rounds=2, refills=0,
        worst_page=1.25, requests=2,
    )  # fmt: skip
    judged = list(figures([case]))
    assert [(figure.value, figure.target) for figure in judged] == [(165 / 160, 1.1), (1.25, None), (2, 2)]
    (row,) = report.section_of_units("", [case], judged).rows
    assert row[-3:] == ("", "≤ 1.10", "met")


def test_a_short_run_ends_with_1_where_a_figure_is_twice_its_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    value = 1.9

    def measure(*, short: bool) -> Iterator[Figure]:
        yield Figure(bench="single", name="made up", value=value, target=1.0)

    monkeypatch.setitem(MEASURES, Bench.single, measure)
    arguments = ["single", "--short", "--json", str(tmp_path / "figures.json")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    told = json.loads((tmp_path / "figures.json").read_bytes())
    assert [(figure["value"], figure["met"]) for figure in told["figures"]] == [(1.9, False)]
    value = 2.1
    assert CliRunner().invoke(main, arguments).exit_code == 1
    assert CliRunner().invoke(main, arguments[:1]).exit_code == 0


def test_tables_are_written_between_their_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# P\n\n<!-- a -->\nold\n<!-- /a -->\n\nrest\n", encoding="utf-8")
    report.write_docs(page, {"a": "new"})
    report.write_docs(page, {"a": "newer"})
    assert page.read_text(encoding="utf-8") == "# P\n\n<!-- a -->\n\nnewer\n\n<!-- /a -->\n\nrest\n"
    with pytest.raises(RuntimeError, match="no place for 'b'"):
        report.write_docs(page, {"b": "x"})


def test_the_page_has_a_place_for_the_simulated_loads() -> None:
    assert "<!-- simulate -->\n" in PAGE.read_text(encoding="utf-8")
