"""The table of a write or a read in parts: the driver describes it once, and each task has a client of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from boto3.session import Session

from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.processes import Connect, made_client
from shardkit.runtime.runner import Runner, draw_from
from shardkit.strategies import Strategy
from shardkit.tables import programs_of, refuse_map

_DESCRIBED = ("TableName", "TableArn", "TableId", "KeySchema", "AttributeDefinitions", "Replicas")
_INDEXES = ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
_INDEX = ("IndexName", "KeySchema", "Projection")


def check_table(table: object, strategy: object, connect: object, *, instead: str) -> None:
    """Refuse what tasks cannot use; ``instead``: what to do in place of a ShardMap."""
    if not isinstance(table, str) or not table:
        raise ConfigurationError(
            f"table: must be the table's name, got {brief(table)}; tasks create their own clients (connect=)"
        )
    refuse_map(strategy, instead)
    if connect is not None and not callable(connect):
        raise ConfigurationError(
            f"connect: must be a function without arguments that creates a client, got {brief(connect)}"
        )


@contextmanager
def connected(connect: Connect | None, alike: Connect | None) -> Iterator[Any]:
    """Give the client that ``connect`` creates, or one of ours: like the driver's, or (None) the driver's itself."""
    if connect is not None:
        yield made_client(connect())
        return
    with closing(Session().client("dynamodb") if alike is None else alike()) as client:
        yield client


def describe(client: Any, table: str, strategy: Strategy) -> Mapping[str, Any]:
    """Return the response of DescribeTable."""
    programs = programs_of(table, strategy, None, draw_from(None))
    runner = Runner(client, programs, 1)
    description = runner.run(programs.description())
    runner.run(programs.checked(description, waits=True))
    return description


def for_tasks(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tasks need of a description."""
    indexes = {
        kind: [{name: index.get(name) for name in _INDEX} for index in description[kind]]
        for kind in _INDEXES
        if description.get(kind)
    }
    return {name: description[name] for name in _DESCRIBED if name in description} | indexes
