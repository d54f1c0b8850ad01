"""Calls with arguments that a method does not take: each is explained with an error of shardkit."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, iscoroutinefunction, isfunction, signature
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from shardkit import (
    CapacityBudget,
    CapacityMeter,
    ShardMapAdmin,
    aio,
    backfill_index,
    bulk_load,
    cache,
    migrate,
    open_source,
    streaming_bulk,
)
from shardkit.bulk.batch_writer import AsyncBatchWriter, BatchWriter
from shardkit.core.calls import explains_calls
from shardkit.counter import ShardedCounter
from shardkit.errors import ConfigurationError, UnsupportedParameterError
from shardkit.sharding.shard_map import ShardMap
from shardkit.strategies import CalculatedSuffix, RandomSuffix, RangeSuffix, Resharding, Strategy, Unsharded
from shardkit.table import ShardedTable
from shardkit.timeseries import TimeSeries

CLASSES: tuple[type, ...] = (
    *(ShardedTable, TimeSeries, ShardedCounter, cache.CachedTable, BatchWriter),
    *(aio.ShardedTable, aio.TimeSeries, aio.ShardedCounter, aio.CachedTable, AsyncBatchWriter),
)
METHODS = [
    (made, name)
    for made in CLASSES
    for name in dir(made)
    if not name.startswith("_") and isfunction(getattr(made, name))
]
METHOD = pytest.mark.parametrize(("made", "name"), METHODS, ids=[f"{one.__module__}.{name}" for one, name in METHODS])


def call(made: type, name: str, *args: Any, **given: Any) -> Any:
    """Call a method without an object: its arguments are refused before it begins."""
    answer = getattr(made, name)(None, *args, **given)
    return answer.send(None) if iscoroutinefunction(getattr(made, name)) else answer


def parameters(made: type, name: str) -> list[Parameter]:
    return [*signature(getattr(made, name)).parameters.values()][1:]


@METHOD
def test_a_required_argument_that_is_misspelt_or_missing(made: type, name: str) -> None:
    more = any(one.kind is Parameter.VAR_KEYWORD for one in parameters(made, name))
    for one in parameters(made, name):
        if one.default is Parameter.empty and one.kind in {one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD}:
            misspelt = f"{one.name}s"
            with pytest.raises(ParamValidationError) as refused:
                call(made, name, **{misspelt: {}})
            assert isinstance(refused.value, UnsupportedParameterError)
            said = f"{misspelt} (did you mean {one.name}?): not a parameter of {name}"
            # With options, those that are listed would not be all that it takes.
            assert str(refused.value) == said if more else str(refused.value).startswith(f"{said}; give ")
            with pytest.raises(UnsupportedParameterError, match=rf"{one.name}: missing in {name}; give {one.name}=…$"):
                call(made, name)


@METHOD
def test_a_value_without_its_keyword(made: type, name: str) -> None:
    kinds = [one.kind for one in parameters(made, name)]
    by_place: list[Any] = [{}] * kinds.count(Parameter.POSITIONAL_OR_KEYWORD)
    refused = ConfigurationError if name == "with_options" else UnsupportedParameterError
    with pytest.raises(refused, match=rf"^{name}: got 'x' without a keyword; give .*{name}\(.*\)$"):
        call(made, name, *by_place, "x")


@pytest.mark.parametrize(
    ("made", "args", "given", "said"),
    [
        (
            CalculatedSuffix,
            ("Id",),
            {"shard": 5},
            "shard (did you mean shards?): not a parameter of CalculatedSuffix; ",
        ),
        (
            RandomSuffix,
            (5, "."),
            {},
            "RandomSuffix: got '.' without a keyword; give keywords only: RandomSuffix(separat",
        ),
        (
            RandomSuffix,
            (5,),
            {"shards": 5},
            "shards: given twice to RandomSuffix, with its keyword and without; omit o",
        ),
        (
            RangeSuffix,
            ("Id",),
            {"boundry": []},
            "boundry (did you mean boundaries?): not a parameter of RangeSuffix; g",
        ),
        (Resharding, (Unsharded(), RandomSuffix(5)), {}, "stage: missing in Resharding; give stage=…"),
        (Unsharded, (), {"shards": 5}, "shards: not a parameter of Unsharded; give none"),
        (ShardMap, (), {"clok": None}, "clok (did you mean clock?): not a parameter of ShardMap; give one of clock"),
        (ShardedTable, (None,), {}, "strategy: missing in ShardedTable; give strategy=…"),
        (
            ShardedTable,
            (None, None),
            {"index": {}},
            "index (did you mean indexes?): not a parameter of ShardedTable; g",
        ),
        (
            ShardedCounter,
            (None, {}, "n"),
            {"shard": 5},
            "shard (did you mean shards?): not a parameter of ShardedCount",
        ),
        (
            TimeSeries,
            (None, "clicks"),
            {"att": "Time"},
            "att (did you mean at?): not a parameter of TimeSeries; give o",
        ),
        (
            cache.CachedTable,
            (None, 30),
            {},
            "CachedTable: got 30 without a keyword; give keywords only: CachedTable(store=…, max_bytes=…, ttl=…, ",
        ),
        (cache.CachedTable, (None,), {"tll": 5}, "tll (did you mean ttl?): not a parameter of CachedTable; give one o"),
        (CapacityMeter, (), {"warnat": 1}, "warnat (did you mean warn_at?): not a parameter of CapacityMeter; "),
        (CapacityBudget, (), {"write_unit": 1}, "write_unit (did you mean write_units?): not a parameter of Capacity"),
        (ShardedTable.with_options, (None,), {"timout": 5}, "timout (did you mean timeout?): not a parameter of with_"),
    ],
)
def test_a_constructor_or_an_option(made: Callable[..., Any], args: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}"):
        made(*args, **given)


@pytest.mark.parametrize(
    ("function", "args", "given", "said"),
    [
        (CapacityBudget.attach, (None, None), {"keys": 1}, "keys (did you mean key?): not a parameter of attach; "),
        (CapacityMeter.attach, (None, None), {"key_schemas": {}}, "key_schemas (did you mean key_schema?): not a "),
        (ShardMapAdmin.grow, (None, "z", 8), {}, "grow: got 8 without a keyword; give keywords only: grow(shards=…, "),
        (open_source, ("a.csv",), {"typs": {}}, "typs (did you mean types?): not a parameter of open_source; "),
    ],
)
def test_other_functions(function: Callable[..., Any], args: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedParameterError, match=f"^{re.escape(said)}"):
        function(*args, **given)


def test_a_method_with_a_parameter_that_has_no_keyword_is_left_alone() -> None:
    """It would be told to give keywords only."""
    with pytest.raises(TypeError, match="positional"):
        CapacityMeter().scope("a", "b")  # type: ignore[call-arg]


@METHOD
def test_self_is_not_a_parameter(made: type, name: str) -> None:
    refused = ConfigurationError if name == "with_options" else UnsupportedParameterError
    with pytest.raises(refused, match=rf"^self: not a parameter of {name}"):
        call(made, name, **{"self": 1, **{one.name: {} for one in parameters(made, name) if one.name != "options"}})


def test_a_constructor_that_a_class_inherits_is_left_alone() -> None:
    @explains_calls
    class Made:
        pass

    class Mixin:
        def __init__(self) -> None:
            self.begun = True

    class Both(Made, Mixin):
        pass

    assert Both().begun


def test_a_misspelt_field_of_a_strategys_text_form() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^shard \(did you mean shards\?\): not a parameter of RandomSuffix; "
    ):
        Strategy.from_dict({"type": "RandomSuffix", "shard": 5})


def test_a_type_error_of_the_method_itself_is_not_explained() -> None:
    @explains_calls
    class Made:
        def length(self, given: Any) -> int:
            return len(given)

    with pytest.raises(TypeError, match="has no len"):
        Made().length(5)


def test_mocks_and_signatures_see_the_methods_unchanged() -> None:
    assert iscoroutinefunction(aio.ShardedTable.put_item)
    assert not iscoroutinefunction(ShardedTable.put_item)
    assert [*signature(ShardedTable.put_item).parameters] == ["self", "Item", "Shard", "ReturnShards", "options"]


@pytest.mark.parametrize(
    "function",
    [
        *(bulk_load, streaming_bulk, backfill_index, migrate.plan, migrate.move, migrate.verify),
        *(aio.bulk_load, aio.streaming_bulk, aio.backfill_index),
    ],
)
def test_help_shows_the_options(function: Callable[..., Any]) -> None:
    """Those that it takes, with their types: what its docstring lists, or that of the sync form."""
    parameters = signature(function).parameters
    assert "options" not in parameters
    shown = [f"{one.name}: {one.annotation}" for one in parameters.values() if one.kind is Parameter.KEYWORD_ONLY]
    sync = {aio.bulk_load: streaming_bulk, aio.streaming_bulk: streaming_bulk, bulk_load: streaming_bulk}
    documented = sync.get(function, backfill_index if function is aio.backfill_index else function).__doc__ or ""
    listed = re.findall(r"\* ``(\w+): ", documented)
    if function.__module__.startswith("shardkit.aio"):
        listed = [name for name in listed if name not in {"processes", "connect"}]
    assert [one.partition(":")[0] for one in shown] == listed
    assert "write_units: " in " ".join(shown) or function is migrate.verify
