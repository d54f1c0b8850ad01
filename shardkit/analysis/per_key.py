"""Shards for a few hot keys only: when that is the better answer, and what to write."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardkit.analysis.hot_index import by_argument, quoted
from shardkit.analysis.keys import Key, Uniformity, key_text, tells_a_time
from shardkit.analysis.shards import ShardsNeeded, better_for, shards_for
from shardkit.analysis.verdict import Verdict

FEW = 10
"""The most hot keys that are few: as many as a line of code lists, and a person keeps up to date."""

SUFFIXED = (
    'all keys get a suffix (the others ".1"), so items that are in a table already must move: shardkit reshard, '
    "docs/adopt.md"
)
"""What a strategy for a few hot keys changes for the other keys of a table without suffixes."""

NOT_COUNTED = "their load is not counted, and comes on top"
"""What the number of shards of one key leaves out: the load of the others, on the same partitions."""


def are_few(hot: Collection[Any], keys: int | None) -> bool:
    """Return whether only the hot keys should have shards, instead of all.

    So it is if they are at most ten, and at most half of the keys: then the next new key is probably not hot, and most
    Queries are of keys that need no shards. Not if they are dates or times: the next hot key is not known in advance.

    Args:
        hot: the values of the hot partition keys.
        keys: how many different keys there are; None: unknown.
    """
    return 0 < len(hot) <= FEW and (keys is None or 2 * len(hot) <= keys) and not all(map(tells_a_time, hot))


@dataclass(frozen=True)
class PerKey:
    """A strategy that gives shards to a few hot keys, and one to each other key.

    Example:
        >>> print(PerKey({"t0000": 8}, ("sk",)).line)
        CalculatedSuffix("sk", shards={"t0000": 8})

    Args:
        shards: the hot keys, with how many shards each needs; None is every other key, which has one if it is not here.
        by: the attributes to calculate the shard from: the table's sort key; none if it is unknown.
        sharded: whether the table is sharded already, so that ``argument`` is what to change.
        partitions: the partitions that the table must have for that; None: enough for twice what each key takes.
        better: the strategy to prefer if the table has more partitions (:func:`shardkit.analysis.shards.better_for`).
    """

    shards: Mapping[Any, Any]
    by: Sequence[str] = ()
    sharded: bool = False
    partitions: int | None = None
    better: PerKey | None = None

    @property
    def argument(self) -> str:
        """Its argument ``shards``, as Python."""
        counts = (f"{quoted(key) if isinstance(key, str) else repr(key)}: {n}" for key, n in self.shards.items())
        return f"shards={{{', '.join(counts)}}}"

    @property
    def line(self) -> str:
        """The strategy, as Python."""
        return f"CalculatedSuffix({by_argument(self._by)}, {self.argument})"

    @property
    def form(self) -> dict[str, Any]:
        """The strategy's text form."""
        shards: Any = {**self.shards}
        if not all(isinstance(key, str) for key in shards):
            shards = [[_form(key), count] for key, count in shards.items()]
        return {"type": "CalculatedSuffix", "by": self._by[0] if len(self._by) == 1 else [*self._by], "shards": shards}

    @property
    def option(self) -> str:
        """The strategy as an option of commands, quoted for a shell."""
        return f"--strategy {shlex.quote(json.dumps(self.form, ensure_ascii=False))}"

    @property
    def _by(self) -> Sequence[str]:
        return self.by or ("<sort key>",)


def per_key(found: Uniformity, verdict: Verdict, by: Sequence[str] = ()) -> PerKey | None:
    """Return the strategy for the hot keys of a candidate; None: it is good, or all keys should have shards.

    Args:
        found: the candidate's counts, with more than ten of its hottest keys if it has so many.
        verdict: the verdict on it.
        by: as of :class:`PerKey`.
    """
    if verdict.good or found.times:
        return None
    hot: dict[Key, ShardsNeeded] = {}
    for usage in found.hottest:
        writes = 0.0 if verdict.writes is None else verdict.writes.rate * usage.write_units / found.write_units
        reads = 0.0
        if verdict.reads is not None:
            # Of too many keys to count, the share of the reads is taken to be that of the writes.
            share = usage.write_units / found.write_units
            if usage.read_units is not None:
                share = usage.read_units / found.read_units
            reads = verdict.reads.rate * share
        needed = shards_for(read_units=reads, write_units=writes)
        if needed.shards != 1:
            hot[usage.key] = needed
    if not are_few([_carrier(key) for key in hot], found.distinct):
        return None
    shards = _shards(hot)
    if shards is None:
        return None
    few = PerKey(shards, tuple(by))
    better = better_for(max(hot.values(), key=lambda one: one.shards or 1))
    if better is None:
        return few
    partitions = better.fits[0].partitions  # for all of them
    fits = {key: one.fits[0] for key, one in hot.items()}
    shards = _shards(
        {
            key: shards_for(read_units=fit.read_units, write_units=fit.write_units, partitions=partitions)
            for key, fit in fits.items()
        }
    )
    return few if shards is None else replace(few, better=replace(few, shards=shards, partitions=partitions))


def _shards(needed: Mapping[Key, ShardsNeeded]) -> dict[str | bytes, int] | None:
    known = {_carrier(key): one.shards for key, one in needed.items() if one.shards is not None}
    return known if len(known) == len(needed) else None


def _carrier(key: Key) -> str | bytes:
    """Return a key that can have a suffix: a number, and the parts of a composite key, as text."""
    if len(key) == 1 and isinstance(key[0], bytes):
        return key[0]
    return key_text(key)


def _form(key: str | bytes | None) -> dict[str, str] | None:
    if key is None:
        return None
    return {"S": key} if isinstance(key, str) else {"B": base64.b64encode(key).decode()}
