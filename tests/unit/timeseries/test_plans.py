"""A period has one strategy, whoever meets it first, in whatever order requests come, and whoever dies."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ConfigurationError, PeriodError, RandomSuffix, RangeSuffix, Strategy
from shardkit.analysis.shards import shards_for
from shardkit.core.machine import Program, Send, Wait
from shardkit.timeseries import Tuning, plans
from shardkit.timeseries.load import SeriesLoad
from shardkit.timeseries.plans import PeriodPlan, Plans
from shardkit.timeseries.programs import SeriesPrograms
from tests.support.planned import CONTROL, NOW, TODAY, Account, a_process, click, fan_out, interleaved
from tests.support.profiles import LONG
from tests.support.strategies import vectors

HEAT = {TODAY: ("c1", 2500.0)}
TIMES = ["2016-04-15T10:00:00Z", "2016-04-16T00:00:01Z", "2016-04-13T10:00:00Z"]


def put(process: SeriesPrograms, time: str) -> Program[Any]:
    return process.item("PutItem", {"Item": click(time)}, shard=None, return_shards=False, fan_out=fan_out())


def get(process: SeriesPrograms, time: str) -> Program[Any]:
    return process.item("GetItem", {"Key": click(time)}, shard=None, return_shards=False, fan_out=fan_out())


def delete(process: SeriesPrograms, time: str) -> Program[Any]:
    return process.item("DeleteItem", {"Key": click(time)}, shard=None, return_shards=False, fan_out=fan_out())


def maintain(process: SeriesPrograms, **options: Any) -> Program[Any]:
    return process.maintained(NOW, lambda _: None, Tuning(heat=HEAT, **options) if options else None)


def one_run(seed: int) -> tuple[Account, dict[str, set[str]]]:
    """Processes of two deployments and tuners at work; return the strategies by which each table was used."""
    rng, account = Random(seed), Account()
    if rng.random() < 0.3:
        account.tables[TODAY] = {}  # of before plans
    processes = [a_process(CalculatedSuffix("Time", shards=rng.choice([4, 5]))) for _ in range(4)]
    tuners = [a_process(CalculatedSuffix("Time", shards=6)) for _ in range(rng.randrange(3))]
    programs = [maintain(tuner, deployed=True, max_shards=rng.choice([8, 16])) for tuner in tuners]
    for process in processes:
        for _ in range(2):
            time = rng.choice(TIMES)
            programs.append(rng.choice([put(process, time), get(process, time), process.tables.existing()]))
    interleaved([account.steps(program) for program in programs], rng, dies=0.02)
    used: dict[str, set[str]] = {}
    for process in processes:
        for period, of_period in process._programs.items():  # noqa: SLF001 - what it has acted on
            used.setdefault(process.series.table(period), set()).add(repr(of_period.strategy))
    return account, used


@pytest.fixture(autouse=True)
def _planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "shards_for", _shards_for)


_shards_for = lru_cache(None)(shards_for)


@pytest.mark.long_search
def test_one_strategy_for_a_period() -> None:
    shards = set()
    for seed in range(10_000 if LONG else 300):
        account, used = one_run(seed)
        assert account.late == [], seed
        for table, strategies in used.items():
            plan = PeriodPlan.of(account.plans[table.removeprefix("clicks-")], table)
            assert strategies == {repr(plan.strategy)}, seed
            shards.add(plan.strategy.shards)
            for (stored, time), _ in account.tables.get(table, {}).items():
                assert plan.strategy.split(stored) == ("c1", plan.strategy.shard_of("c1", {"Time": time})), seed
        for table, params in account.creations.items():
            units = PeriodPlan.of(account.plans[table.removeprefix("clicks-")], table).throughput
            assert params.get("WarmThroughput", {}).get("WriteUnitsPerSecond") == units.get("warm_write_units"), seed
    assert shards >= {4, 5, 8, 16}  # of processes and of tuners: all of them were first in some run


def test_reading_with_a_default_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a process that finds no plan goes by its own strategy, and writes nothing down."""
    settled = Plans.settle

    def settle(self: Plans, periods: Any, plan: PeriodPlan | None = None) -> Program[None]:
        periods = [*periods]
        if plan is None:
            yield from self.read(periods)
            for period in periods:
                self._known.setdefault(period, self.default)
        yield from settled(self, periods, plan)

    monkeypatch.setattr(Plans, "settle", settle)
    two = [seed for seed in range(100) if any(len(strategies) > 1 for strategies in one_run(seed)[1].values())]
    assert len(two) > 20


def operations(account: Account) -> list[str]:
    """What was sent since the last time, with the table."""
    sent = [f"{name} {params.get('TableName', '')}".strip() for name, params in account.requests]
    account.requests.clear()
    return sent


def test_what_plans_cost() -> None:
    account, one, other = Account(), a_process(), a_process(CalculatedSuffix("Time", shards=9))
    account.run(put(one, TIMES[0]))
    assert operations(account) == [
        *("DescribeTable Control", "Query Control"),  # no plan
        "ListTables",  # no table
        *("Query Control", "PutItem Control", "Query Control"),
        f"PutItem {TODAY}",
        *(f"CreateTable {TODAY}", f"DescribeTable {TODAY}", f"PutItem {TODAY}"),
    ]
    account.run(put(one, TIMES[0]))
    assert operations(account) == [f"PutItem {TODAY}"]
    account.run(get(other, TIMES[0]))
    assert operations(account) == ["DescribeTable Control", "Query Control", f"GetItem {TODAY}"]
    account.tables["clicks-2016-04-11"] = account.tables["clicks-2016-04-12"] = {}  # of before plans
    third = a_process()
    for process in (other, third):
        account.run(process.tables.existing())
    assert operations(account) == [
        *("ListTables", "Query Control", "PutItem Control", "PutItem Control", "Query Control"),
        *("ListTables", "DescribeTable Control", "Query Control"),
    ]
    third.tables.list_again()
    account.run(third.tables.existing())
    assert operations(account) == ["ListTables"]
    assert {third.of(period).strategy.shards for period in account.run(third.tables.existing())} == {4, 9}


@pytest.mark.parametrize(("name", "program"), [("GetItem", get), ("DeleteItem", delete)])
def test_what_finds_nothing_writes_no_plan(name: str, program: Any) -> None:
    account = Account()
    for _ in range(2):
        account.run(program(a_process(), "2031-01-01T00:00:00Z"))
    assert account.plans == {}
    assert f"{name} clicks-2031-01-01" not in operations(account)


def test_what_is_refused_writes_no_plan() -> None:
    account = Account()
    for process, time in ((a_process(), "2031-01-01T00:00:00Z"), (a_process(missing="error"), TIMES[0])):
        with pytest.raises(PeriodError):
            account.run(put(process, time))
    with pytest.raises(PeriodError, match="its strategy is not known"):
        account.run(a_process().physical(click(TIMES[0]), "Item"))
    assert account.plans == {}


@pytest.mark.parametrize("operation", ["DescribeTable", "Query", "PutItem"])
def test_a_control_table_that_fails(operation: str) -> None:
    """The caller gets the error, nothing is written, and known periods go on; afterwards all is as ever."""
    account, process = Account(), a_process()
    account.refused = {operation: "ProvisionedThroughputExceededException"}
    for program in (put(process, TIMES[0]), maintain(process)):
        with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
            account.run(program)
    assert (account.tables, account.plans) == ({}, {})
    account.refused = {}
    account.run(put(process, TIMES[0]))
    account.refused = {operation: "ProvisionedThroughputExceededException"}
    account.run(put(process, TIMES[0]))
    assert "Item" in account.run(get(process, TIMES[0]))


def test_a_control_table_that_is_no_control_table(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(refused={"DescribeTable": "ResourceNotFoundException"})
    # Not taken for a period's table that is missing: that one is not made.
    with pytest.raises(ConfigurationError, match=r"^plans: table 'Control' does not exist"):
        account.run(put(a_process(), TIMES[0]))
    with pytest.raises(ConfigurationError, match=r"^plans: table 'Control' does not exist"):
        account.run(maintain(a_process()))
    assert account.tables == {}
    monkeypatch.setitem(
        CONTROL,
        "AttributeDefinitions",
        [*CONTROL["AttributeDefinitions"][:1], {"AttributeName": "sk", "AttributeType": "N"}],
    )
    with pytest.raises(ConfigurationError, match=r"^plans: table 'Control' must have two keys, both strings"):
        Account().run(put(a_process(), TIMES[0]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"form":2}', "its form is 2, and this shardkit reads 1"),
        ("{", "register its functions"),
        (
            '{"form":1,"strategy":{"type":"RangeSuffix","by":"Time","boundaries":["2"]},"throughput":{},"why":""}',
            "RangeSuffix",
        ),
        ('{"form":1,"strategy":{"type":"ShardMap"},"throughput":{},"why":""}', "ShardMap"),
    ],
)
def test_a_plan_that_cannot_be_read(content: str, message: str) -> None:
    account = Account(plans={TODAY[7:]: {"sk": {"S": TODAY[7:]}, "shardkit:plan": {"S": content}}})
    with pytest.raises(ConfigurationError, match=f"^plans: the plan of period {TODAY[7:]} of 'clicks' .*{message}"):
        account.run(put(a_process(), TIMES[0]))


@pytest.mark.parametrize(
    "strategy", [RangeSuffix("Time", ["2016-04-15T12"]), RandomSuffix(lambda _: 3), CalculatedSuffix(len, shards=3)]
)
def test_strategies_that_no_plan_can_have(strategy: Any) -> None:
    with pytest.raises(ConfigurationError):
        a_process(strategy)


def test_plans_are_written_and_read_as_ever() -> None:
    for row in vectors("plans.json"):
        plan = PeriodPlan.of(row["item"], "it")
        assert plan == PeriodPlan(Strategy.from_dict(row["strategy"]), row["throughput"], row["why"])
        assert plan.to_attributes() == row["item"]


def loaded(process: SeriesPrograms, account: Account, writes: list[tuple[str, str]], seed: int) -> SeriesLoad:
    """Run a load of puts and deletes, whose requests are answered in random order."""
    load = SeriesLoad(process, process.shardings["clicks"], workers=3, draw=lambda: 0.5, batch_writer=True, window=10)
    rng, waiting, under_way = Random(seed), [*writes], []
    while not load.ended:
        while load.wants:
            if not waiting:
                load.close()
                break
            kind, time = waiting.pop(0)
            (load.put if kind == "put" else load.delete)(click(time))
        step = load.next(0.0)
        if isinstance(step, Send):
            under_way.append(step)
        elif isinstance(step, Wait):
            send = under_way.pop(rng.randrange(len(under_way)))
            load.receive(send, account.answer(send), 0.0)
    return load


def test_a_load_goes_by_each_periods_plan() -> None:
    """Writes of periods without a plan wait for it, in order; deletes alone neither write one nor make a table."""
    for seed in range(20):
        account = Account()
        account.run(put(a_process(CalculatedSuffix("Time", shards=9)), "2016-04-11T00:00:00Z"))
        account.tables["clicks-2016-04-12"] = {}  # of before plans
        days = ["2016-04-11", "2016-04-12", "2016-04-14"]
        writes = [("put", f"{day}T{hour:02}:00:00Z") for hour in range(20) for day in days]
        writes += [
            ("delete", f"{days[2]}T00:00:00Z"),
            ("delete", "2016-04-13T00:00:00Z"),
            ("put", "2031-01-01T00:00:00Z"),
        ]
        load = loaded(a_process(), account, writes, seed)
        assert (load.report.items, load.report.written, load.report.failed) == (63, 62, 1)
        assert isinstance(load.report.failures[0].error, PeriodError)
        assert {*account.plans} == {*days}
        for day, shards in zip(days, (9, 4, 4), strict=True):
            strategy = CalculatedSuffix("Time", shards=shards)
            times = [f"{day}T{hour:02}:00:00Z" for hour in range(1 if day == days[2] else 0, 20)]
            expected = {(strategy.physical_key("c1", strategy.shard_of("c1", click(time))), time) for time in times}
            assert account.tables[f"clicks-{day}"].keys() == expected


def test_a_load_that_cannot_read_the_plans_stops() -> None:
    """With the reason, and a result for each item."""
    account = Account(refused={"Query": "AccessDeniedException"})
    load = loaded(a_process(), account, [("put", f"2016-04-1{day}T00:00:00Z") for day in range(6)], 0)
    assert (load.report.items, load.report.failed, load.report.written) == (6, 6, 0)
    assert "AccessDenied" in str(load.fatal)
