"""Move one item: freeze it, copy it, remove it. The mover does so, and every writer that meets a frozen item.

1. *Freeze*: an update sets the mark to a token, if there is a live item. Its answer is an atomic snapshot: every write
   at the old home has the condition that there is no mark. Comparing attributes instead would miss an added one.
2. *Copy*: a transaction puts the snapshot at the new home if nothing is there, under the check that the item is still
   frozen with that token. A plain conditional put could arrive late, and bring back an item deleted since.
3. *Remove*: after the transaction's answer, the frozen item is deleted, if it still has the token. In one transaction
   with the copy, a reader of both places could miss the item: reads are not isolated from transactions.

An item that is too large for its new home, or for the mark beside it, is *thawed* when its copy is refused: it stays at
its old home, where writers reach it. A transaction takes the mark away, under the check that nothing is at the new
home. A late copy finds another mark, or none; after a late freeze it finds its own, and is refused as the first was.

Each step can be repeated, by anybody and late. With a stream on the table, the token says so, and the copy carries it
until the old item is gone: a reader of the stream tells the copy from a new item by it.
"""

from __future__ import annotations

from typing import Any

from shardkit.core.machine import Program
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.service_errors import cancellation_reasons, code_of, refused_parts
from shardkit.dynamodb.values import WireItem, WireValue, comparable_item
from shardkit.errors import AmbiguousItemError, brief
from shardkit.migrate.marks import COPY_MARKED, MARK, STUB, Homes, Moving, unmarked
from shardkit.migrate.sending import Sending, failed_condition, item_there

_NAME = {"#m": MARK}
_FAILED = "ConditionalCheckFailed"


def freeze(send: Sending, homes: Homes, token: str, *, streamed: bool = False) -> Program[WireItem | None]:
    """Freeze an item if it is live; return what is at its old home then: frozen, a stub, or None for nothing.

    ``token`` is a new UUID in hex; ``streamed``: the table has a stream.
    """
    mark = {"S": token + COPY_MARKED * streamed}
    request = {
        "Key": homes.old,
        "UpdateExpression": "SET #m = :t",
        "ConditionExpression": "attribute_exists(#k) AND attribute_not_exists(#m)",
        "ExpressionAttributeNames": {**_NAME, "#k": next(iter(homes.old))},
        "ExpressionAttributeValues": {":t": mark},
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    try:
        response = yield from send("UpdateItem", request)
    except Exception as error:
        if not failed_condition(error):
            raise
        return item_there(error)
    frozen: WireItem = response["Attributes"]
    return frozen


def finish(moving: Moving, send: Sending, homes: Homes, frozen: WireItem) -> Program[None]:
    """Copy a frozen item to its new home and remove it from the old one, if nobody has done so.

    If the copy is too large (:func:`is_too_large`), the item is thawed, and the error is raised.
    """
    mark = frozen[MARK]
    marked = mark["S"].endswith(COPY_MARKED)
    copy = {**(frozen if marked else unmarked(frozen)), **homes.new}
    try:
        copied = yield from _copied(moving, send, homes, mark, copy)
    except Exception as error:
        if is_too_large(error):
            yield from _thaw(moving, send, homes, mark)
        raise
    if copied:
        yield from _remove_if(send, homes.old, mark)
        if marked:
            yield from unmark(send, homes, mark)


def is_too_large(error: Exception) -> bool:
    """Return whether the service refused a copy for what it is: it would refuse the same copy again."""
    return code_of(error) == "ValidationException" or "ValidationError" in refused_parts(error)


def _thaw(moving: Moving, send: Sending, homes: Homes, mark: WireValue) -> Program[None]:
    update = {
        "TableName": send.table,
        "Key": homes.old,
        "UpdateExpression": "REMOVE #m",
        "ConditionExpression": "#m = :t",
        "ExpressionAttributeNames": _NAME,
        "ExpressionAttributeValues": {":t": mark},
    }
    check = {
        "TableName": send.table,
        "Key": homes.new,
        "ConditionExpression": "attribute_not_exists(#k)",
        "ExpressionAttributeNames": {"#k": moving.partition_key},
    }
    try:
        yield from send("TransactWriteItems", {"TransactItems": [{"Update": update}, {"ConditionCheck": check}]})
    except Exception as error:
        if _FAILED not in refused_parts(error):
            raise  # else somebody has thawed it, or has copied it nevertheless


def unmark(send: Sending, homes: Homes, mark: WireValue) -> Program[None]:
    """Take the mark from a copy whose old item is gone."""
    request = {
        "Key": homes.new,
        "UpdateExpression": "REMOVE #m",
        "ConditionExpression": "#m = :t",
        "ExpressionAttributeNames": _NAME,
        "ExpressionAttributeValues": {":t": mark},
    }
    try:
        yield from send("UpdateItem", request)
    except Exception as error:
        if not failed_condition(error):
            raise


def drop_stub(send: Sending, homes: Homes) -> Program[None]:
    """Delete a stub, in stage move: there an absent item means the same."""
    yield from _remove_if(send, homes.old, STUB)


def _copied(moving: Moving, send: Sending, homes: Homes, mark: WireValue, copy: WireItem) -> Program[bool]:
    """Copy; return whether the frozen item may be removed: it is copied, by this transaction or an earlier one."""
    put = {
        "TableName": send.table,
        "Item": copy,
        "ConditionExpression": "attribute_not_exists(#k)",
        "ExpressionAttributeNames": {"#k": moving.partition_key},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    check = {
        "TableName": send.table,
        "Key": homes.old,
        "ConditionExpression": "#m = :t",
        "ExpressionAttributeNames": _NAME,
        "ExpressionAttributeValues": {":t": mark},
    }
    try:
        yield from send("TransactWriteItems", {"TransactItems": [{"Put": put}, {"ConditionCheck": check}]})
    except Exception as error:
        failed = [reason.get("Code") == _FAILED for reason in cancellation_reasons(error)]
        if not any(failed):
            raise
        if failed[1]:
            return False  # somebody has finished
        there: dict[str, Any] = cancellation_reasons(error)[0].get("Item") or {}
        if comparable_item(unmarked(there)) != comparable_item(unmarked(copy)):
            # Only a writer that does not follow the stages can have put it there.
            raise AmbiguousItemError(
                f"Key: the old and the new place of {brief(from_wire_item(moving.logical_item(homes.old)), 200)} in "
                f"table {send.table!r} hold different items, so neither was removed; find the writer that is at "
                "another stage or without shardkit, and delete one of the two"
            ) from error
    return True


def _remove_if(send: Sending, key: WireItem, mark: WireValue) -> Program[None]:
    request = {
        "Key": key,
        "ConditionExpression": "#m = :t",
        "ExpressionAttributeNames": _NAME,
        "ExpressionAttributeValues": {":t": mark},
    }
    try:
        yield from send("DeleteItem", request)
    except Exception as error:
        if not failed_condition(error):
            raise  # else somebody has removed it
