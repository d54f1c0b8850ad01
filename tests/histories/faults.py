"""Faults that are planted in shardkit's code, in the processes of a history, to show that the check finds them."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import NamedTuple

from shardkit.strategies import Stage
from tests.support.mutated import Mutant, mutated


class Fault(NamedTuple):
    """A text that a module's source has once, and what it becomes; and the stages in which that shows."""

    stages: tuple[Stage, ...]
    module: str
    was: str
    now: str


FAULTS: dict[str, Fault] = {
    "no lease check": Fault(
        ("guard", "switch", "move"),
        "sharding.leases",
        "if age >= MAP_LEASE_SECONDS or (",
        "if False and (",
    ),
    "stubs are shown": Fault(
        ("guard", "switch"),
        "migrate.query",
        "if item.get(MARK) not in (STUB, self._stub)]",
        "]",
    ),
    "the old place is written in new": Fault(
        ("move", "new"),
        "migrate.between",
        'return old if move.stage == "old" else new',
        'return old if move.stage in {"old", "new"} else new',
    ),
    "new places are read before old ones": Fault(
        ("move",),
        "migrate.query",
        "self._old, self._new = _Side(old), _Side(new)",
        "self._old, self._new = _Side(new), _Side(old)",
    ),
    "the new place is not read again": Fault(
        ("move",),
        "migrate.items",
        'if state == "stub" or (state == "absent" and moving.stage != "guard"):',
        'if state == "stub" or (state == "absent" and moving.stage == "switch"):',
    ),
    "the mark is not checked": Fault(
        ("move",),
        "migrate.items",
        '_UNMARKED = "attribute_not_exists(#shardkit_m)"',
        '_UNMARKED = "(attribute_exists(#shardkit_m) OR attribute_not_exists(#shardkit_m))"',
    ),
    "guard does not follow a stub": Fault(
        ("guard", "switch"),
        "migrate.items",
        'if state == "stub" or (state == "absent" and moving.stage != "guard"):',
        'if state in {"absent", "stub"} and moving.stage != "guard":',
    ),
    "the mover deletes without a condition": Fault(
        ("move",),
        "migrate.mover",
        "there = yield from freeze(send, homes, self._token(), streamed=self._streamed)",
        """there = (yield from send("GetItem", {"Key": homes.old})).get("Item", {MARK: {"S": "stub"}})
        if MARK not in there:
            yield from send("PutItem", {"Item": {**there, **homes.new}})
            yield from send("DeleteItem", {"Key": homes.old})
            return""",
    ),
    "scan_items reads one place": Fault(
        ("move", "new"),
        "migrate.scan",
        "if self._first and isinstance(step, Done)",
        "if False and isinstance(step, Done)",
    ),
    "the cache keeps what was written": Fault(
        ("old", "guard"),
        "cache.table_cache",
        "else Change(replace=replace, drop=drop)",
        "else Change()",
    ),
    "the journal has what was not sent": Fault(
        ("guard", "switch"),
        "bulk.journal",
        "number < known.top and number not in known.gaps",
        "number < known.top + 9",
    ),
}

_planted = ExitStack()


def mutant(name: str) -> Mutant:
    fault = FAULTS[name]
    return Mutant(import_module(f"shardkit.{fault.module}"), fault.was, fault.now, [])


def plant(name: str) -> None:
    """Change the code of this process, for as long as it lives; an empty name: change nothing."""
    if name:
        _planted.enter_context(mutated(mutant(name)))
