"""A tuner on a table with a shard map: what it says, what it does, and what it leaves alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    RangeSuffix,
    ShardedTable,
    ShardMapAdmin,
    StageError,
    Strategy,
    Unsharded,
)
from shardkit.analysis.tuning import SECONDS, KeyReport, Report
from shardkit.shard_map import Tuner
from tests.support.fakes import client_error
from tests.support.mapped import Moment
from tests.support.strategies import vectors
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

OLD = CalculatedSuffix("sk", shards=2)


class Fleet:
    """Two processes that report each minute, and a tuner that is run each minute."""

    def __init__(self, resource: DynamoDBServiceResource, strategy: Strategy = OLD, **options: Any) -> None:
        self.moment = Moment()
        self.table = make_table(resource, ("pk", "S"), ("sk", "S"))
        self.control = make_table(resource, ("name", "S"), ("what", "S"))
        self.admin = self.moment.admin(self.table)
        self.admin.create(strategy)
        self.orders = ShardedTable(self.table, self.moment.map())
        self.tuner = self.another(**{"apply": True, **options})
        self.minute = 0

    def another(self, **options: Any) -> Tuner:
        return Tuner(self.orders, self.control, clock=lambda: self.moment.now, **options)

    def report(self, units: float, *, key: str = "S:hot", queries: int = 0) -> None:
        self.minute += 1
        for name in ("a", "b"):
            each = KeyReport(key, None, 0.0, queries, 0, 0.0, (units / 2,) * SECONDS)
            stored = {"name": f"shardkit:heat:{self.table.name}", "what": name}
            self.control.put_item(Item={**stored, **Report(self.minute, (each,)).to_attributes()})

    def minutes(self, count: int, units: float = 3000, *, every: float = 60, **of: Any) -> list[dict[str, Any]]:
        decisions = []
        for _ in range(count):
            self.report(units, **of)
            decisions.append(self.tuner.step())
            self.moment.wait(every)
        return decisions

    def own(self) -> dict[str, Any]:
        key = {"name": f"shardkit:heat:{self.table.name}", "what": "shardkit:tuner"}
        return dict(self.control.get_item(Key=key)["Item"])


@pytest.fixture
def fleet(resource: DynamoDBServiceResource) -> Fleet:
    return Fleet(resource)


def test_a_key_that_stays_hot_grows_step_by_step(fleet: Fleet) -> None:
    fleet.orders.put_item(Item={"pk": "hot", "sk": "1"})
    decisions = fleet.minutes(35)
    told = [(decision["action"], decision["reason"][:24]) for decision in decisions]
    story = [each for each, last in zip(told, [None, *told], strict=False) if each != last]
    assert story == [
        ("none", "hot for fewer than 10 of"),
        ("grow", "hot in 10 of 15 minutes,"),
        ("none", "every process has to fol"),
        ("advance", "a growth is under way"),
        ("none", "every process has to fol"),
        ("advance", "a growth is under way"),
        ("none", "every process has to fol"),
    ]
    (grow,) = (decision for decision in decisions if decision["action"] == "grow")
    state = fleet.admin.read()
    assert state.stage == "move"
    assert state.new == CalculatedSuffix("sk", shards={None: 2, "hot": grow["shards"]["S:hot"]})
    assert grow["shards"]["S:hot"] % 2 == 0
    assert grow["peak"] == grow["upper_bound"] == 3000
    assert grow["read_units"] == 3000 + 100
    assert (grow["reports"], grow["processes"], grow["key"], grow["applied"]) == (2, 2, "S:hot", True)
    assert fleet.orders.query(KeyConditionExpression=Key("pk").eq("hot"))["Count"] == 1
    log = fleet.tuner.log()  # each thing once
    assert [(decision["action"], decision["reason"][:24]) for decision in log] == story
    assert (log[0]["at"], log[0]["until"]) == (decisions[0]["at"], decisions[8]["until"])
    assert fleet.own()["shardkit:generation"] == 35


def test_the_log_has_50_decisions_and_20_kb(resource: DynamoDBServiceResource) -> None:
    fleet = Fleet(resource, max_shards=2)
    long, short = "S:" + "k" * 2000, "S:k"
    for number in range(104):
        units = 3000 if number % 2 else 300
        fleet.minutes(1, units, key=long if number > 52 else short, every=60 + 1000 * (number % 2))
        if number == 52:
            assert len(fleet.tuner.log()) == 50
    assert 40 < len(fleet.tuner.log()) <= 50
    assert len(fleet.own()["shardkit:log"]) <= 20_000


def test_what_stubs_take_is_not_wanted(fleet: Fleet) -> None:
    """While some processes are in "switch", a new item is written twice."""
    seen = set()
    for _ in range(45):
        state = fleet.admin.read()
        followed = state.stage == "move" and fleet.admin.wait() == 0
        seen.add((state.stage, followed))
        fleet.minutes(1, 6000 if state.stage in {"switch", "move"} and not followed else 3000)
    assert {("switch", False), ("move", False), ("move", True)} <= seen
    assert max(json.loads(fleet.own()["shardkit:tuner"])["keys"]["S:hot"]["peaks"]) == 3000


def test_without_apply_it_says_what_it_would_do(resource: DynamoDBServiceResource) -> None:
    fleet = Fleet(resource, apply=False)
    *_, decision = fleet.minutes(12)
    assert (decision["action"], decision["applied"]) == ("grow", False)
    assert fleet.admin.read().generation == 1
    assert json.loads(fleet.own()["shardkit:tuner"])["growths"] == []


def test_the_items_move_and_then_another_key_grows(resource: DynamoDBServiceResource) -> None:
    fleet = Fleet(resource, finish=True)
    for number in range(8):
        fleet.orders.put_item(Item={"pk": "hot", "sk": str(number)})
    fleet.minutes(10)
    actions = [each["action"] for each in fleet.minutes(10, every=320)]
    assert [each for each in actions if each != "none"] == ["advance", "advance", "finish"]
    assert fleet.admin.read().stage == "new"
    *_, decision = fleet.minutes(10, key="S:next")
    assert set(decision["shards"]) == {"S:next"}
    assert fleet.orders.query(KeyConditionExpression=Key("pk").eq("hot"))["Count"] == 8


def test_without_the_mover_the_next_growth_waits(fleet: Fleet) -> None:
    fleet.minutes(10)
    *_, decision = fleet.minutes(8, every=320)
    assert decision["reason"].endswith("needs its items to be moved: --finish")
    assert fleet.admin.read().stage == "move"


def test_random_shards_need_no_mover(resource: DynamoDBServiceResource) -> None:
    fleet = Fleet(resource, RandomSuffix(2))
    decisions = [*fleet.minutes(10), *fleet.minutes(10, every=320)]
    assert "finish" in [decision["action"] for decision in decisions]
    assert fleet.admin.read().stage == "new"
    (grow,) = (decision for decision in decisions if decision["action"] == "grow")
    assert grow["read_units"] == 0


def test_items_that_cannot_move_are_said(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.minutes(10)
    fleet.minutes(8, every=320)
    monkeypatch.setattr("shardkit.migrate.tuner.move", lambda *_, **__: type("Report", (), {"complete": False}))
    with pytest.raises(StageError, match="items are left that could not be moved"):
        fleet.another(apply=True, finish=True).step()
    assert fleet.admin.read().stage == "move"


def test_anothers_move_is_left_alone(fleet: Fleet) -> None:
    fleet.admin.start(CalculatedSuffix("sk", shards=8))
    fleet.moment.wait(700)
    *_, decision = fleet.minutes(12)
    assert decision["reason"].startswith("another's move is under way")
    assert fleet.admin.read().stage == "guard"


def test_a_growth_of_somebody_else_is_left_alone_also_after_one_of_its_own(fleet: Fleet) -> None:
    fleet.minutes(11)  # recorded and begun
    fleet.admin.back()
    fleet.admin.grow("hot", shards=1000)
    fleet.moment.wait(700)
    assert fleet.minutes(1)[-1]["reason"].startswith("another's move is under way")
    assert fleet.admin.read().stage == "guard"


def test_a_change_whose_time_was_not_recorded_is_waited_for(fleet: Fleet) -> None:
    """The process that made the last change died before it could record when."""
    fleet.minutes(11)
    stored = fleet.table.get_item(Key={"pk": "shardkit:map", "sk": "shardkit:map"})["Item"]
    state = {**json.loads(str(stored["shardkit:map"])), "since": None}
    fleet.table.put_item(Item={**stored, "shardkit:map": json.dumps(state)})
    fleet.moment.wait(3600)
    fleet.minutes(1)
    assert fleet.admin.read().stage == "guard"
    assert fleet.admin.read().since is not None
    fleet.minutes(12)
    assert fleet.admin.read().stage == "switch"


@pytest.mark.parametrize("strategy", [Unsharded(), RangeSuffix("sk", ["F"])])
def test_refuses_a_strategy_whose_keys_do_not_grow(resource: DynamoDBServiceResource, strategy: Strategy) -> None:
    fleet = Fleet(resource, strategy)
    with pytest.raises(ConfigurationError, match=r"^strategy: must be a CalculatedSuffix or a RandomSuffix"):
        fleet.tuner.step()


def test_refuses_a_table_without_a_map_or_a_control_table(resource: DynamoDBServiceResource, fleet: Fleet) -> None:
    plain = make_table(resource, ("pk", "S"), ("sk", "S"))
    with pytest.raises(ConfigurationError, match="has no shard map"):
        Tuner(ShardedTable(plain, OLD), fleet.control).step()
    with pytest.raises(ConfigurationError, match="must have two keys, both strings"):
        Tuner(fleet.orders, make_table(resource, ("pk", "S")))
    with pytest.raises(resource.meta.client.exceptions.ResourceNotFoundException):
        Tuner(fleet.orders, resource.Table("Missing"))
    for name, given in (("max_shards", 0), ("partitions", 0), ("max_read_units", -1.0), ("max_read_units", "2000")):
        with pytest.raises(ConfigurationError, match=rf"^{name}: must be"):
            fleet.another(**{name: given})
    assert fleet.admin.read().generation == 1


def test_of_two_tuners_at_once_one_does_nothing(fleet: Fleet) -> None:
    fleet.minutes(9)
    fleet.report(3000)
    client = fleet.control.meta.client

    def first(**_: Any) -> None:
        client.meta.events.unregister("before-call.dynamodb.PutItem", first)
        assert fleet.another(apply=True).step()["action"] == "grow"

    client.meta.events.register("before-call.dynamodb.PutItem", first)
    with pytest.raises(StageError, match=r"^control: another tuner of the table ran meanwhile"):
        fleet.tuner.step()
    assert fleet.admin.read().generation == 2


def test_who_changes_the_map_meanwhile_is_not_overtaken(fleet: Fleet) -> None:
    fleet.minutes(9)
    fleet.report(3000)
    changed: list[int] = []

    def change(params: Any, **_: Any) -> None:
        if b"shardkit:tuner" in params["body"] and not changed:
            changed.append(1)
            fleet.admin.start(CalculatedSuffix("sk", shards=4))
            fleet.admin.back()

    fleet.control.meta.client.meta.events.register("before-call.dynamodb.PutItem", change)
    with pytest.raises(StageError, match=r"^generation: the shard map of table"):
        fleet.tuner.step()
    assert fleet.admin.read().stage == "old"


def test_processes_that_have_ended_are_forgotten_though_time_to_live_is_late(fleet: Fleet) -> None:
    """Days of restarts would make the tuner's item larger than DynamoDB takes."""
    fleet.minutes(1)
    stored: dict[str, Any] = {"name": f"shardkit:heat:{fleet.table.name}", **Report(7).to_attributes()}
    for expires in (-1, 3600):
        expiring: dict[str, Any] = {"what": f"p{expires}", "shardkit:expires": int(fleet.moment.now) + expires}
        fleet.control.put_item(Item={**stored, **expiring})
    assert fleet.minutes(1)[0]["processes"] == 3
    assert set(json.loads(fleet.own()["shardkit:tuner"])["seen"]) == {"a", "b", "p3600"}


def test_other_errors_of_the_control_table_are_raised(fleet: Fleet) -> None:
    def fail(**_: Any) -> None:
        raise client_error("AccessDeniedException", operation="PutItem")

    fleet.control.meta.client.meta.events.register("before-call.dynamodb.PutItem", fail)
    with pytest.raises(Exception, match="AccessDenied"):
        fleet.tuner.step()


def test_reports_of_many_pages_are_read(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Paged:
        def __getattr__(self, name: str) -> Any:
            return getattr(fleet.control, name)

        def query(self, **params: Any) -> Any:
            return fleet.control.query(Limit=1, **params)

    fleet.minutes(1)
    tuner = Tuner(fleet.orders, Paged(), clock=lambda: fleet.moment.now)
    assert tuner.step()["reports"] == 2


def test_the_stored_form_never_changes(fleet: Fleet) -> None:
    (vector,) = vectors("tuner.json")
    key = {"name": f"shardkit:heat:{fleet.table.name}", "what": "shardkit:tuner"}
    fleet.control.put_item(Item={**key, **vector["item"]})
    fleet.moment.now = vector["now"]
    fleet.report(100)
    assert fleet.tuner.log() == vector["log"]
    fleet.tuner.step()
    stored = json.loads(fleet.own()["shardkit:tuner"])
    assert stored["growths"] == vector["growths"]
    assert {name: each for name, each in stored["keys"].items() if name != "S:hot"} == vector["keys"]
    assert set(json.loads(vector["item"]["shardkit:tuner"])) == set(stored)


def test_refuses_what_a_newer_shardkit_wrote(fleet: Fleet) -> None:
    fleet.minutes(1)
    fleet.control.put_item(Item={**fleet.own(), "shardkit:tuner": '{"form": 2}'})
    with pytest.raises(ConfigurationError, match="is of a newer shardkit"):
        fleet.tuner.step()


class TestGrow:
    def test_several_keys_at_once(self, fleet: Fleet) -> None:
        state = fleet.admin.grow({"a": 4, "b": 6})
        assert state.new == CalculatedSuffix("sk", shards={None: 2, "a": 4, "b": 6})
        with pytest.raises(StageError, match="a move is under way"):
            fleet.admin.grow({"a": 4})
        fleet.moment.wait(631)
        assert fleet.admin.grow({"b": 6, "a": 4}).stage == "switch"

    @pytest.mark.parametrize(
        ("given", "refusal"),
        [({"a": 4, "b": 2}, "must be more than the 2 that 'b' has"), ({}, "must name one key or more")],
    )
    def test_all_of_them_or_none(self, fleet: Fleet, given: dict[str | bytes, int], refusal: str) -> None:
        with pytest.raises(ConfigurationError, match=refusal):
            fleet.admin.grow(given)
        assert fleet.admin.read().generation == 1

    def test_only_if_the_map_is_as_it_was_read(self, fleet: Fleet) -> None:
        with pytest.raises(StageError, match=r"^generation: the shard map of table .* has 1, got 7; read it again"):
            fleet.admin.grow("a", shards=4, generation=7)
        assert fleet.admin.grow("a", shards=4, generation=1).stage == "guard"
        assert isinstance(fleet.admin, ShardMapAdmin)
