"""Operations on one item that is at its old or at its new home.

The rules, by stage; an item whose two homes are the same has none. *O* and *N* are the homes.

- Write in ``guard``: on O, on the condition that there is no mark. If a stub is there: on N.
- Write in ``switch``: read O, consistently. Live: on O, on the condition that it is still there without a mark. Stub:
  on N. Nothing: put a stub, then on N. Frozen: finish its move, and read O again.
- Write in ``move``: the same, but nothing at O means on N, without a stub: nothing returns to O.
- Read in ``guard``: O, and N if a stub is there. In ``switch``: O, then N. In ``move``: N, O, and N again, because the
  item may have moved between the first two. The last read of N is consistent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Program, Response
from shardkit.dynamodb.expressions.rewrite import and_condition, project, refuse_attributes
from shardkit.errors import StageError, UnsupportedExpressionError
from shardkit.migrate.freeze import finish, is_too_large
from shardkit.migrate.marks import MARK, STUB, Homes, Moving, State, is_frozen, state_at_old_home
from shardkit.migrate.sending import Sending, failed_condition, item_there
from shardkit.sharding import items
from shardkit.sharding.parameters import PROJECTIONS, FanOutOptions, Params, refuse_stored_keys

_LEGACY = ("AttributeUpdates", "ConditionalOperator", "Expected")
_WRITTEN = ("AttributeUpdates", "ConditionExpression", "Expected", "UpdateExpression")
OWN = "shardkit keeps this attribute while the items move; leave it out"
_UNMARKED = "attribute_not_exists(#shardkit_m)"
_LIVE = f"attribute_exists(#shardkit_k) AND {_UNMARKED}"
SHOW = "ReturnValuesOnConditionCheckFailure"


def get_item(moving: Moving, params: Params, shard: int | None, fan_out: FanOutOptions) -> Program[Response]:
    refuse_shard(moving, shard)
    wire, _ = items.item_request(moving, "GetItem", params)
    refuse_attributes(wire, {MARK}, *PROJECTIONS, why=OWN)
    homes = homes_of(moving, wire["Key"])
    if homes.same:
        return (yield from _at_home(moving, "GetItem", params, fan_out))
    wire, hidden = project(wire, (MARK,))
    send = Sending(moving.table, fan_out, wire.pop("ReturnConsumedCapacity", None))

    def read(home: Mapping[str, Any], **more: Any) -> Program[Response]:
        return send("GetItem", {**wire, "Key": {**wire["Key"], **home}, **more})

    response: Response = {}
    if moving.stage == "move":
        response = yield from read(homes.new)
    if "Item" not in response:
        response = yield from read(homes.old)
        state = state_at_old_home(response.get("Item"))
        if state == "stub" or (state == "absent" and moving.stage != "guard"):
            response = yield from read(homes.new, ConsistentRead=True)
    if "Item" in response:
        item = response["Item"]
        response = {**response, "Item": {name: value for name, value in item.items() if name not in hidden}}
    return _shown(moving, send, response)


def _at_home(moving: Moving, operation: str, params: Params, fan_out: FanOutOptions) -> Program[Response]:
    """Run an operation on an item that does not move."""
    response = yield from items.OPERATIONS[operation](moving.new, params, None, fan_out)
    del response["Shard"]
    return response


def _write(operation: str) -> Callable[..., Program[Response]]:
    def write(moving: Moving, params: Params, shard: int | None, fan_out: FanOutOptions) -> Program[Response]:
        refuse_shard(moving, shard)
        wire = written(moving, operation, params, fan_out)
        homes = homes_of(moving, wire[items.source_of(operation)])
        if homes.same:
            return (yield from _at_home(moving, operation, params, fan_out))
        send = Sending(moving.table, fan_out, wire.pop("ReturnConsumedCapacity", None))
        on_old, on_new = requests_on(moving, operation, wire, homes)
        try:
            if moving.stage == "guard":
                response = yield from _guarded(moving, send, operation, on_old, on_new)
            else:
                response = yield from _switched(moving, send, operation, homes, on_old, on_new)
        except Exception as error:
            items.show_logical(moving, error)
            raise
        return _shown(moving, send, response)

    return write


OPERATIONS: Mapping[str, Callable[..., Program[Response]]] = {
    "GetItem": get_item,
    **{operation: _write(operation) for operation in ("DeleteItem", "PutItem", "UpdateItem")},
}


def refuse_shard(moving: Moving, shard: object) -> None:
    if shard is not None:
        moving.refuse("Shard=", "omit it: shardkit looks for the item at both of its places")


def homes_of(moving: Moving, key: Mapping[str, Any]) -> Homes:
    """Return the homes of an item by it or its key."""
    return moving.homes({name: key[name] for name in moving.key_names})


def written(moving: Moving, operation: str, params: Params, fan_out: FanOutOptions) -> dict[str, Any]:
    """Return a write's wire parameters, with the logical key, checked for both homes."""
    wire, _ = items.write_request(moving, operation, params, fan_out.draw)
    refuse_attributes(wire, {MARK}, *_WRITTEN, why=OWN)
    refuse_mark(wire.get("Item", {}))
    refuse_stored_keys(moving, wire, "UpdateExpression", "AttributeUpdates")
    return wire


def refuse_mark(item: Mapping[str, Any]) -> None:
    if MARK in item:
        raise UnsupportedExpressionError(f"Item: must not have {MARK!r}; {OWN}")


def requests_on(
    moving: Moving, operation: str, wire: Mapping[str, Any], homes: Homes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a write on the old home, under the stage's condition, and the plain write on the new one."""
    if legacy := [name for name in _LEGACY if wire.get(name) is not None]:
        moving.refuse(", ".join(legacy), "use ConditionExpression and UpdateExpression")
    name = moving.partition_key
    on_old, on_new = (items.stored_request(moving, operation, wire, home[name]) for home in (homes.old, homes.new))
    guard, names = (_UNMARKED, {}) if moving.stage == "guard" else (_LIVE, {"#shardkit_k": name})
    return {**and_condition(on_old, guard, {"#shardkit_m": MARK, **names}), SHOW: "ALL_OLD"}, on_new


def _guarded(
    moving: Moving, send: Sending, operation: str, on_old: Mapping[str, Any], on_new: Mapping[str, Any]
) -> Program[Response]:
    try:
        return (yield from send(operation, on_old))
    except Exception as error:
        there = state_at_old_home(item_there(error))
        if not failed_condition(error) or there in {"absent", "live"}:
            show_if_asked(error, on_new)
            raise
        if there == "frozen":
            raise met_frozen(moving, operation) from error
    return (yield from send(operation, on_new))


def _switched(
    moving: Moving,
    send: Sending,
    operation: str,
    homes: Homes,
    on_old: Mapping[str, Any],
    on_new: Mapping[str, Any],
) -> Program[Response]:
    for _ in range(ATTEMPTS):
        state = yield from old_home(send, homes)
        if state == "frozen":
            yield from finish_frozen(moving, send, homes)
            continue
        if state == "absent" and moving.stage == "switch" and not (yield from put_stub(send, homes)):
            continue
        if state != "live":
            return (yield from send(operation, on_new))
        try:
            return (yield from send(operation, on_old))
        except Exception as error:
            # The service checks the whole condition. On an item that is there without a mark, the caller's part failed.
            there = item_there(error)
            if not failed_condition(error) or state_at_old_home(there) == "live":
                show_if_asked(error, on_new)
                raise
    raise unsettled(moving, operation)


def met_frozen(moving: Moving, operation: str) -> StageError:
    return StageError(
        f"{operation}: in stage 'guard', met an item of table {moving.table!r} that another process moves in stage "
        "'move'; these stages must not run side by side: deploy stage 'switch' here first",
        moving.stage,
    )


def unsettled(moving: Moving, operation: str) -> StageError:
    return StageError(
        f"{operation}: an item of table {moving.table!r} changed its place {ATTEMPTS} times while it was to be "
        "written; try again, and check that all processes are at this stage or a neighbour of it",
        moving.stage,
    )


def old_home(send: Sending, homes: Homes) -> Program[State]:
    """Read what is at an item's old home."""
    names = {"#m": MARK, "#k": next(iter(homes.old))}
    asked = {"ProjectionExpression": "#k, #m", "ExpressionAttributeNames": names, "ConsistentRead": True}
    item = (yield from send("GetItem", {"Key": homes.old, **asked})).get("Item")
    return state_at_old_home(item)


def finish_frozen(moving: Moving, send: Sending, homes: Homes) -> Program[None]:
    """Finish the move of the item that is frozen at its old home, if it still is; or thaw it, if it cannot move."""
    response = yield from send("GetItem", {"Key": homes.old, "ConsistentRead": True})
    if is_frozen(response.get("Item", {})):
        try:
            yield from finish(moving, send, homes, response["Item"])
        except Exception as error:
            if not is_too_large(error):
                raise


def put_stub(send: Sending, homes: Homes) -> Program[bool]:
    """Put a stub at an item's old home, if nothing is there; return whether it was put."""
    condition = {
        "ConditionExpression": "attribute_not_exists(#k)",
        "ExpressionAttributeNames": {"#k": next(iter(homes.old))},
    }
    try:
        yield from send("PutItem", {"Item": {**homes.old, MARK: STUB}, **condition})
    except Exception as error:
        if not failed_condition(error):
            raise
        return False
    return True


def show_if_asked(error: Any, wire: Mapping[str, Any]) -> None:
    """Leave the item in the error of the caller's own condition only if the caller asked for it."""
    if item_there(error) is not None and wire.get(SHOW) != "ALL_OLD":
        error.response = {name: value for name, value in error.response.items() if name != "Item"}


def _shown(moving: Moving, send: Sending, response: Response) -> Response:
    if send.consumed is not None:
        response = {**response, "ConsumedCapacity": send.consumed}
    return items.shown_response(moving, response)
