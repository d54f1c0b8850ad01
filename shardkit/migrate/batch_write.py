"""Batch writes to a table whose items move: which of them a BatchWriteItem may do.

A batch has no conditions. In stage move, an item that is not at its old home is at its new one for ever, so a batch may
write it there. All other writes of items that move are requests of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from shardkit.core.machine import Program, Response
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.migrate.items import OPERATIONS, homes_of, written
from shardkit.migrate.marks import MARK, Moving, State, state_at_old_home
from shardkit.sharding import items
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.parameters import FanOutOptions, Params


def batched(
    moving: Moving, writes: Sequence[tuple[str, Params]], fan_out: FanOutOptions
) -> Program[tuple[list[tuple[Program[Response], bool]], BatchGet | None]]:
    """Return the program of each write, and whether a batch may do its request; and the read that was necessary.

    ``writes`` are the operations on one item that have the parameters of the batch's writes, with these parameters.
    """
    keys, stay = [], []
    for operation, params in writes:
        wire = written(moving, operation, params, fan_out)[items.source_of(operation)]
        keys.append({name: wire[name] for name in moving.key_names})
        stay.append(homes_of(moving, wire).same)
    read = None
    if moving.stage == "move" and not all(stay):
        moved = [key for key, stays in zip(keys, stay, strict=True) if not stays]
        states, read = yield from old_states(moving, moved, writes[0][1].get("ReturnConsumedCapacity"), fan_out)
        gone = {"absent", "stub"}
        stay = [stays or states[comparable_item(key)] in gone for key, stays in zip(keys, stay, strict=True)]
    programs = [
        (
            items.OPERATIONS[operation](moving.new, params, None, fan_out)
            if stays
            else OPERATIONS[operation](moving, params, None, fan_out),
            stays,
        )
        for (operation, params), stays in zip(writes, stay, strict=True)
    ]
    return programs, read


def old_states(
    moving: Moving, keys: Sequence[WireItem], asked: str | None, fan_out: FanOutOptions
) -> Program[tuple[dict[Hashable, State], BatchGet]]:
    """Read what is at the old homes of items, consistently: a state by logical primary key; and return the read."""
    names = {f"#k{number}": name for number, name in enumerate((*moving.key_names, MARK))}
    options = {
        "ConsistentRead": True,
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": names,
        **({} if asked is None else {"ReturnConsumedCapacity": asked}),
    }
    places = [(key, moving.old.known_shard(key, WIRE_VALUES.python(key))[0]) for key in keys]
    read = BatchGet(moving.old, places, options, fan_out)
    yield fan_out.hedged(read)
    read.raise_unprocessed()
    states: dict[Hashable, State] = dict.fromkeys(map(comparable_item, keys), "absent")
    states.update((comparable_item(key), state_at_old_home(item)) for (key, _), item in read.found)
    return states, read
