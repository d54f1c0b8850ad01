"""What is refused because no request checks it, against engines that check requests: what is staged can be imported."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shardkit import ShardedTable, ShardkitError, Unsharded
from shardkit.bulk.writes import Writes, drawn_by_key
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

    from tests.support.engines import EngineName

Item = dict[str, Any]


def nested(levels: int, inside: Any) -> Any:
    for level in range(levels):
        inside = [inside] if level % 2 else {"k": inside}
    return inside


def values() -> list[Item]:
    """Attributes at the limits, on both sides."""
    texts = [{name: "x" * size} for name in "pxz" for size in (0, 1024, 1025, 2048, 2049)]
    raw = [{name: b"x" * size} for name in "sy" for size in (0, 1024, 1025)]
    kinds = [{name: value} for name in "psxyzn" for value in ("a", b"a", 1, None, True, ["a"], {"a"})]
    numbers = ["1E125", "1E126", "9.99E126", "1E-130", "1E-131", "-1E-131", "-0", "1" * 38, "1" * 39, "NaN", "Infinity"]
    depths = [nested(levels, inside) for levels in (31, 32, 33) for inside in ("x", {1, 2}, [1])]
    sets = [set(), {""}, {"", "a"}, {b""}, {Decimal(1), Decimal("1.0")}, {"a", 1}, [set()]]
    sizes = ["v" * (409_600 - rest) for rest in (3, 4, 5)]
    others = ["", b"", [], {}, None, 1.5, (1, 2), object(), {"": 1}, {"k" * 65_536: 1}]
    names = [{name: "v"} for name in ("", "k" * 65_535, "k" * 65_536)]
    several = [*map(Decimal, numbers), *depths, *sets, *sizes, *others]
    return [*texts, *raw, *kinds, *names, *({"v": value} for value in several), *({"n": Decimal(n)} for n in numbers)]


def test_what_is_refused(engine_resource: DynamoDBServiceResource, engine_name: EngineName) -> None:
    table = make_table(
        engine_resource,
        ("p", "S"),
        ("s", "B"),
        local_indexes=[LocalIndex("by-z", ("z", "S"))],
        global_indexes=[GlobalIndex("by-x", ("x", "S"), ("y", "B")), GlobalIndex("by-n", ("n", "N"))],
    )
    sharded = ShardedTable(table, Unsharded())
    writes = Writes(sharded.runner.run(sharded.runner.programs.known()), drawn_by_key("load"))
    others: list[Item] = []
    for item in ({"p": "a", "s": b"b", **one} for one in values()):
        if engine_name == "dynamodb_local" and len(next(reversed(item))) == 65_535:
            continue  # from 50,001 characters on, an attribute's name is an InternalFailure (AWS: up to 64 KB)
        ours = theirs = True
        try:
            writes.line(item)
        except ShardkitError:
            ours = False
        try:
            table.put_item(Item=item)
        except (ClientError, TypeError, ValueError, ArithmeticError):
            theirs = False
        if ours != theirs:
            assert not ours  # nothing is staged that cannot be imported
            others.append(item)
    # dynoxide does not know the limits of names, and of the keys of indexes.
    told = {next(name for name in reversed(item)) for item in others}
    assert {name[:2] for name in told} == ({"", "kk", "x", "y", "z", "v"} if engine_name == "dynoxide" else set())
