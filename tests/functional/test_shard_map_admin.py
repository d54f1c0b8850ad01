"""Changes of a shard map: if it is as it was read, and no sooner than all processes have left the stage before."""

from __future__ import annotations

import json
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    InvalidKeyError,
    RandomSuffix,
    RangeSuffix,
    Resharding,
    ShardedTable,
    ShardMap,
    ShardMapAdmin,
    StageError,
    Strategy,
    Unsharded,
)
from shardkit.sharding.leases import MapChangedError
from shardkit.sharding.shard_map import WAIT_SECONDS, ShardMapState
from shardkit.streams import RecordReader
from tests.support.fakes import client_error
from tests.support.mapped import Moment
from tests.support.strategies import vectors
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

OLD, NEW = Unsharded(), CalculatedSuffix("sk", shards=8)


@pytest.fixture
def moment() -> Moment:
    return Moment()


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Any:
    return make_table(resource, ("pk", "S"), ("sk", "S"))


@pytest.fixture
def admin(table: Any, moment: Moment) -> ShardMapAdmin:
    made = moment.admin(table)
    made.create(OLD)
    return made


def test_each_stage_waits_until_the_one_before_the_last_is_gone(admin: ShardMapAdmin, moment: Moment) -> None:
    assert admin.wait() == 0
    assert admin.start(NEW).strategy == Resharding(OLD, NEW, stage="guard")
    for stage in ("switch", "move", "new"):
        step = admin.finish if stage == "new" else admin.advance
        # 630 seconds from the change, and a second because the service tells whole seconds.
        assert admin.wait() == WAIT_SECONDS + 1
        moment.wait(WAIT_SECONDS + 0.5)
        with pytest.raises(StageError, match="try again in"):
            step()
        moment.wait(0.5)
        assert step().stage == stage
    assert admin.wait() == WAIT_SECONDS + 1, "another move"
    assert admin.read().strategy == Resharding(OLD, NEW, stage="new")
    with pytest.raises(StageError, match="try again in 631 seconds"):
        admin.start(CalculatedSuffix("sk", shards=16))
    moment.wait(WAIT_SECONDS + 1)
    state = admin.start(CalculatedSuffix("sk", shards=16))
    assert (state.old, state.stage, state.reached, state.generation) == (NEW, "guard", "guard", 6)


def test_the_last_change_can_be_taken_back_at_once(admin: ShardMapAdmin, moment: Moment) -> None:
    admin.start(NEW)
    assert admin.back().stage == "old"
    with pytest.raises(StageError, match=r"no move is under way, the map is at 'old'; call start\(new\)"):
        admin.advance()  # a move that was given up does not begin again by chance
    assert (admin.wait(), admin.start(NEW).stage) == (0, "guard")
    moment.wait(WAIT_SECONDS + 1)
    admin.advance()
    assert admin.back().stage == "guard"
    with pytest.raises(StageError, match="cannot go back from 'guard' to 'old', because the move has been in 'switch'"):
        admin.back()
    assert admin.advance().stage == "switch"
    moment.advanced(admin, "move")
    assert admin.back().stage == "switch"
    with pytest.raises(StageError, match="'switch' to 'guard', because the move has been in 'move'"):
        admin.back()
    admin.advance()
    moment.wait(WAIT_SECONDS + 1)
    admin.finish()
    assert admin.back().stage == "move"
    with pytest.raises(StageError, match="try again in"):
        admin.back()


def test_refuses_what_is_out_of_order(admin: ShardMapAdmin, moment: Moment, table: Any) -> None:
    with pytest.raises(StageError, match="exists already"):
        admin.create(OLD)
    with pytest.raises(StageError, match="no move is under way"):
        admin.advance()
    with pytest.raises(StageError, match="the first stage"):
        admin.back()
    with pytest.raises(StageError, match="must be 'move'"):
        admin.finish()
    with pytest.raises(ConfigurationError, match="old, new: are the same"):
        admin.start(OLD)
    with pytest.raises(ConfigurationError, match="cannot move"):
        admin.start(RandomSuffix(5))
    with pytest.raises(ConfigurationError, match="is not in the primary key"):
        admin.start(CalculatedSuffix("Customer", shards=4))
    assert admin.read().generation == 1
    admin.start(NEW)
    with pytest.raises(StageError, match="is under way"):
        admin.start(NEW)
    moment.advanced(admin, "move")
    with pytest.raises(StageError, match="then call finish"):
        admin.advance()


@pytest.mark.parametrize("strategy", [ShardMap(), Resharding(OLD, NEW, stage="old"), "RandomSuffix", None])
def test_refuses_a_map_of_no_strategy(table: Any, strategy: Any) -> None:
    with pytest.raises(ConfigurationError, match="strategy: must be the strategy of the table's items now"):
        ShardMapAdmin(table).create(strategy)


def test_refuses_what_is_no_table(table: Any) -> None:
    for given in (table.meta.client, None):
        with pytest.raises(ConfigurationError, match="must be a"):
            ShardMapAdmin(given)
    assert repr(ShardMapAdmin(table)) == f"ShardMapAdmin({table.name!r})"
    assert ShardMapAdmin(ShardedTable(table, OLD)).create(OLD).generation == 1


def test_two_admins_cannot_make_one_change_twice(admin: ShardMapAdmin, moment: Moment, table: Any) -> None:
    other = moment.admin(table)

    def first(params: Any, **_: Any) -> None:
        table.meta.client.meta.events.unregister("before-call.dynamodb.PutItem", first)
        other.start(NEW)

    table.meta.client.meta.events.register("before-call.dynamodb.PutItem", first)
    with pytest.raises(StageError, match="was changed by another process"):
        admin.start(NEW)
    assert admin.read().generation == 2


def test_a_change_whose_answer_was_lost_is_ones_own(moment: Moment, table: Any) -> None:
    """The client sends it again, and the condition of the second request fails."""

    def repeated(attempts: int, **_: Any) -> float | None:
        return 0.0 if attempts == 1 else None

    table.meta.client.meta.events.register("needs-retry.dynamodb.PutItem", repeated)
    admin = moment.admin(table)
    assert admin.create(OLD) == admin.read()
    with pytest.raises(StageError, match="exists already"):
        admin.create(OLD)
    assert admin.start(NEW) == admin.read()
    for step in (admin.back, partial(admin.start, NEW), admin.advance, admin.advance, admin.finish):
        moment.wait(WAIT_SECONDS + 1)
        state = step()
        assert state == admin.read()
        assert state.since == moment.now + 1
    assert (admin.read().stage, admin.read().generation) == ("new", 7)


def test_a_map_is_deleted_before_its_first_move(admin: ShardMapAdmin, moment: Moment, table: Any) -> None:
    orders = ShardedTable(table, moment.map())
    orders.put_item(Item={"pk": "d", "sk": "0"})
    table.meta.client.meta.events.register(  # its answer is lost
        "needs-retry.dynamodb.DeleteItem", lambda attempts, **_: 0.0 if attempts == 1 else None
    )
    admin.delete()
    assert not admin.exists()
    moment.wait(31)
    with pytest.raises(ConfigurationError, match="has no shard map; create it"):
        orders.get_item(Key={"pk": "d", "sk": "0"})
    admin.create(OLD)
    for step in (partial(admin.start, NEW), admin.back):
        step()
        with pytest.raises(StageError, match="has had a move, to CalculatedSuffix"):
            admin.delete()
    assert admin.read().stage == "old"


@pytest.mark.parametrize(("late", "strategy"), [("start", NEW), ("delete", OLD), ("delete", NEW)])
def test_a_late_change_of_a_map_that_was_deleted(
    admin: ShardMapAdmin, moment: Moment, table: Any, late: str, strategy: Strategy
) -> None:
    """Its generation is also that of the map that was made since, which keeps its strategy."""
    other, operation = moment.admin(table), "PutItem" if late == "start" else "DeleteItem"

    def replaced(**_: Any) -> None:
        table.meta.client.meta.events.unregister(f"before-call.dynamodb.{operation}", replaced)
        other.delete()
        moment.wait(5)
        other.create(strategy)

    table.meta.client.meta.events.register(f"before-call.dynamodb.{operation}", replaced)
    with pytest.raises(StageError, match="was changed by another process"):
        admin.start(NEW) if late == "start" else admin.delete()
    assert (admin.read().strategy, admin.read().generation) == (strategy, 1)


def test_two_admins_may_record_one_change(admin: ShardMapAdmin, moment: Moment, table: Any) -> None:
    """One made it, and another one saw it before its time was recorded."""
    puts: list[int] = []

    def seen(**_: Any) -> None:
        puts.append(1)
        if len(puts) == 2:
            moment.wait(3)
            with pytest.raises(StageError, match="try again in"):
                moment.admin(table).advance()

    table.meta.client.meta.events.register("before-call.dynamodb.PutItem", seen)
    assert admin.start(NEW) == admin.read()
    assert len(puts) == 3


def test_a_map_is_not_deleted_when_a_move_has_begun(admin: ShardMapAdmin, moment: Moment, table: Any) -> None:
    def begun(**_: Any) -> None:
        moment.admin(table).start(NEW)

    table.meta.client.meta.events.register("before-call.dynamodb.DeleteItem", begun)
    with pytest.raises(StageError, match="was changed by another process"):
        admin.delete()
    assert admin.read().stage == "guard"


def test_a_change_that_was_not_recorded_is_waited_for_from_when_it_was_seen(
    admin: ShardMapAdmin, moment: Moment, table: Any
) -> None:
    """The admin dies between the change and the record of its time."""
    puts: list[int] = []

    def dies(**_: Any) -> None:
        puts.append(1)
        if len(puts) == 2:
            raise client_error(operation="PutItem")

    table.meta.client.meta.events.register("before-call.dynamodb.PutItem", dies)
    with pytest.raises(Exception, match="as scheduled"):
        admin.start(NEW)
    state = admin.read()
    assert (state.stage, state.since) == ("guard", None)
    moment.wait(WAIT_SECONDS * 2)
    assert admin.wait() == WAIT_SECONDS
    with pytest.raises(StageError, match="try again in 631 seconds"):
        admin.advance()
    moment.wait(WAIT_SECONDS + 1)
    assert admin.advance().stage == "switch"


def test_the_time_is_that_of_the_service(table: Any) -> None:
    def tell(parsed: Any, **_: Any) -> None:
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = "Wed, 09 Jul 2014 10:00:00 GMT"

    table.meta.client.meta.events.register("after-call.dynamodb", tell)
    assert ShardMapAdmin(table).create(OLD).since == 1404900001.0


def test_one_hot_key_grows_without_a_mover(table: Any, moment: Moment) -> None:
    admin, strategy = moment.admin(table), CalculatedSuffix("sk", shards=4)
    admin.create(strategy)
    orders = ShardedTable(table, moment.map())
    for number in range(6):
        orders.put_item(Item={"pk": "hot", "sk": f"{number:02}"})
    stages = []
    while admin.read().stage != "move":
        stages.append(admin.grow("hot", shards=8).stage)
        moment.wait(admin.wait())
    assert stages == ["guard", "switch", "move"]
    assert admin.grow("hot", shards=8).generation == 4
    for number in range(6, 30):
        orders.put_item(Item={"pk": "hot", "sk": f"{number:02}"})
        orders.put_item(Item={"pk": "cold", "sk": f"{number:02}"})
    stored = {
        key: {item["pk"] for item in table.scan()["Items"] if item["pk"].startswith(key)} for key in ("hot", "cold")
    }
    assert len(stored["hot"]) > 4
    assert stored["cold"] == {f"cold.{shard}" for shard in range(1, 5)}
    assert all(orders.get_item(Key={"pk": "hot", "sk": f"{number:02}"})["Item"] for number in range(0, 30, 3))
    with pytest.raises(StageError, match="is under way"):
        admin.grow("cold", shards=8)


@pytest.mark.parametrize(
    ("strategy", "shards", "refusal"),
    [
        (Unsharded(), 8, "must be a CalculatedSuffix or a RandomSuffix"),
        (RangeSuffix("sk", ["F"]), 8, "must be a CalculatedSuffix or a RandomSuffix"),
        (NEW, 8, "must be more than the 8 that 'hot' has"),
        (NEW, 0, "must be an integer >= 1"),
    ],
)
def test_refuses_a_growth_that_is_none(
    table: Any, moment: Moment, strategy: Strategy, shards: int, refusal: str
) -> None:
    moment.admin(table).create(strategy)
    with pytest.raises(ConfigurationError, match=refusal):
        moment.admin(table).grow("hot", shards=shards)


def test_refuses_a_key_of_another_type(resource: DynamoDBServiceResource, moment: Moment) -> None:
    """No item has it: nothing would grow."""
    admin = moment.admin(make_table(resource, ("pk", "B"), ("sk", "S")))
    admin.create(NEW)
    with pytest.raises(InvalidKeyError, match="must be a binary"):
        admin.grow("hot", shards=16)
    assert admin.grow(b"hot", shards=16).stage == "guard"


def test_a_random_suffix_grows_for_one_key(table: Any, moment: Moment) -> None:
    admin = moment.admin(table)
    admin.create(RandomSuffix({"warm": 5}))
    assert admin.grow("hot", shards=4).new == RandomSuffix({"warm": 5, "hot": 4})


@pytest.mark.parametrize(
    ("key", "refusal"),
    [({"pk": 0}, "is a number, which cannot have a suffix"), ({"pk": "shardkit:map"}, "exists already")],
)
def test_a_map_never_replaces_an_item(resource: DynamoDBServiceResource, key: Any, refusal: str) -> None:
    table = make_table(resource, ("pk", "N" if key["pk"] == 0 else "S"))
    table.put_item(Item={**key, "kept": True})
    with pytest.raises((ConfigurationError, StageError), match=refusal):
        ShardMapAdmin(table).create(OLD)
    assert table.get_item(Key=key)["Item"] == {**key, "kept": True}


@pytest.mark.parametrize(
    "damaged",
    [{"stage": "gaurd"}, {"before": ["old"]}, {"generation": "1"}, {"since": "now"}, {"stage": "move", "new": None}],
)
def test_refuses_a_map_that_none_can_be(damaged: dict[str, Any]) -> None:
    map_, *_ = vectors("shard_map.json")
    text = json.dumps({**json.loads(map_["item"]["shardkit:map"]["S"]), **damaged})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ShardMapState.of({"shardkit:map": {"S": text}}, "T")


def test_the_stored_form_never_changes() -> None:
    for vector in vectors("shard_map.json"):
        state = ShardMapState.of(vector["item"], "T")
        assert {name: getattr(state, name) for name in vector["state"]} == vector["state"]
        assert state.old == Strategy.from_dict(vector["old"])
        assert state.new == (None if vector["new"] is None else Strategy.from_dict(vector["new"]))
        assert state.to_attributes() == vector["item"]


def test_errors_can_be_pickled() -> None:
    error = MapChangedError("T")
    assert (type(copy(error)), str(copy(error))) == (MapChangedError, str(error))  # copies as pickle does


def test_records_of_the_map_are_left_out(table: Any, admin: ShardMapAdmin) -> None:
    reader = RecordReader(table.name, OLD, key_schema={"KeySchema": table.key_schema})
    line = {"Item": {"pk": {"S": "shardkit:map"}, "sk": {"S": "shardkit:map"}, "shardkit:map": {"S": "{}"}}}
    item = {"Item": {"pk": {"S": "d"}, "sk": {"S": "1"}}}
    assert [record.key["pk"] for record in reader.records([line, item])] == ["d"]
