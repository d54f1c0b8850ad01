"""Whose change a stream's record shows, of a table whose items move: the application's, or the move's."""

from __future__ import annotations

from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import InvalidKeyError
from shardkit.migrate.marks import MARK, Moving, is_stub, unmarked
from shardkit.sharding.seam import Origin


def origin_of(
    moving: Moving, stored: WireItem, event: str | None, old: WireItem | None, new: WireItem | None, *, net: bool
) -> Origin:
    """Return whose change it was, from the stored key and the images that the record has.

    ``net``: it is a line of an incremental export, which may be the sum of several changes.

    At the old home, a move freezes the item (its image gets the mark), puts a stub, and deletes both; what has no mark
    is the application's. At the new home, it puts a marked copy, and takes the mark away; it deletes nothing there.
    """
    try:
        homes = moving.homes({**stored, moving.partition_key: moving.logical(stored[moving.partition_key])[0]})
    except InvalidKeyError:
        return "unknown"  # a key that two strategies read differently; a move refuses it
    if homes.same:
        return "application"
    if comparable_item(homes.old) == comparable_item(stored):
        return _at_old_home(event, old, new, net=net)
    return _at_new_home(event, old, new, net=net)


def exported_origin(_: Moving, item: WireItem) -> Origin:
    """Return whose an item of a full export is; a frozen one, or a marked copy, may be there twice."""
    return "application" if MARK not in item else "move" if is_stub(item) else "unknown"


def _at_old_home(event: str | None, old: WireItem | None, new: WireItem | None, *, net: bool) -> Origin:
    if old is not None and MARK in old:
        return "move"
    if new is not None:
        # The sum of a change and a freeze is both.
        changed = net and not is_stub(new) and not _equal(unmarked(new), old)
        return "application" if MARK not in new else "unknown" if changed else "move"
    # Without the new image, an insert may be a stub's, and a change may be a freeze.
    return "application" if event == "REMOVE" and old is not None and not net else "unknown"


def _at_new_home(event: str | None, old: WireItem | None, new: WireItem | None, *, net: bool) -> Origin:
    if event == "REMOVE":
        return "application"
    if event == "INSERT":
        return "unknown" if new is None else "move" if MARK in new else "application"
    if old is None or new is None:
        # A copy that was made and released within the time of an export looks like a new item.
        known = not net and ((new is not None and MARK in new) or (old is not None and MARK not in old))
        return "application" if known else "unknown"
    return "move" if MARK in old and _equal(unmarked(old), new) else "application"


def _equal(one: WireItem, other: WireItem | None) -> bool:
    return other is not None and comparable_item(one) == comparable_item(other)
