"""What ``shardkit heat`` says of global secondary indexes: which one is hot, and what to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardkit.analysis.hot_index import index_advice, index_line
from shardkit.analysis.keys import Candidate, Uniformity, key_text
from shardkit.analysis.verdict import TABLE_UNITS, Verdict, judge
from shardkit.cli.screen import clipped, percent, say
from shardkit.dynamodb.encode import to_wire_item

if TYPE_CHECKING:
    from rich.console import Console


WORDS = {True: ("good", "bold green"), False: ("bad", "bold red"), None: ("unknown", "bold yellow")}
"""What a verdict is called, and how it is shown."""


class IndexCounts:
    """Counts the items of a table by the partition key of a global index.

    Args:
        index: the index's name; None: it has none yet.
        partition: the attributes of its partition key.
        times: those that say when an item is written; None: by their values.
        also: other attributes without which an item has no entry: those of its sort key.
        projected: the attributes of an entry; None: all.
        by: the attributes of the table's primary key; none if they are unknown.
    """

    def __init__(
        self,
        index: str | None,
        partition: Sequence[str],
        times: Iterable[str] | None,
        *,
        also: Sequence[str] = (),
        projected: frozenset[str] | None = None,
        by: Sequence[str] = (),
    ) -> None:
        self.index = index
        self.by = tuple(by)
        kept = None if times is None else [name for name in times if name in partition]
        self.candidate = Candidate(partition, times=kept)
        self._also = also
        self._projected = projected

    def take(self, item: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        """Count an item; ``sizes`` are the bytes of each of its attributes."""
        if all(name in item for name in self._also):
            projected = self._projected
            size = sum(bytes_ for name, bytes_ in sizes.items() if projected is None or name in projected)
            self.candidate.add(item, size)

    def judged(self, units: float, write_units: float | None, read_units: float | None) -> JudgedIndex | None:
        """Return the verdict if the table's items, of so many write units, are written at this rate; None: no writes.

        An index takes the part of the load that its entries take: of a sparse one, or a small projection, little.
        """
        rate = TABLE_UNITS if write_units is None and read_units is None else write_units
        if rate is None:
            return None
        if not self.candidate.uniformity.items:
            return JudgedIndex(self.index, self.candidate.attributes, self.by, 0.0, None, None)
        found = self.candidate.uniformity.result(1)
        part = found.write_units / units
        verdict = judge(found, write_units=rate * part)
        return JudgedIndex(self.index, self.candidate.attributes, self.by, part, found, verdict)


@dataclass(frozen=True)
class JudgedIndex:
    """An index, and the verdict on it; ``found`` and ``verdict`` are None if no item has its key.

    ``part`` is the write units of its entries, divided by those of the table's items.
    """

    index: str | None
    partition: tuple[str, ...]
    by: tuple[str, ...]
    part: float
    found: Uniformity | None
    verdict: Verdict | None

    @property
    def _hot(self) -> bool:
        return self.verdict is not None and self.verdict.good is False

    @property
    def line(self) -> str | None:
        """What to write: ``indexes={…}``; None: the index is not hot, or no number of shards is enough."""
        if self.verdict is None or self.verdict.shards is None or not self._hot:
            return None
        return index_line(self.index, self.partition, self.by, self.verdict.shards)

    def show(self, console: Console) -> None:
        names = ", ".join(self.partition)
        title = f"index with the key {names}" if self.index is None else f"index {self.index} ({names})"
        console.print()
        if self.found is None or self.verdict is None or self.verdict.writes is None:
            say(console, f"{title}: no item that was read has its key")
            return
        heat, (word, style) = self.verdict.writes, WORDS[self.verdict.good]
        say(
            console,
            f"{title}: {word} at {heat.rate:,.0f} write units a second, {percent(self.part)} of the table's",
            style,
        )
        say(console, f"  {self.verdict.reason}")
        if self._hot:
            key = (
                "the hottest key at any one time" if self.found.times else clipped(key_text(self.found.hottest[0].key))
            )
            say(
                console,
                f"  {key} takes {heat.units:,.0f} write units a second ({percent(heat.share)}); one partition serves "
                f"{heat.limit:,}, and a hot index throttles the writes of its table",
            )
            self.show_advice(console)

    def show_advice(self, console: Console) -> None:
        """Print what to write if it is hot."""
        if self.verdict is None or not self._hot:
            return
        shards = self.verdict.shards
        if shards is None:
            say(console, f"  no number of shards is enough: {self.verdict.needed.reason}")
        else:
            say(console, f"  {shards:,} shards: {index_advice(self.index, self.partition, self.by, shards)}")

    def to_json(self) -> dict[str, Any]:
        """Return the index for ``--json``; the key is in wire form."""
        found, verdict = self.found, self.verdict
        hottest = None if found is None else dict(zip(self.partition, found.hottest[0].key, strict=True))
        heat = None if verdict is None else verdict.writes
        return {
            "index": self.index,
            "attributes": list(self.partition),
            "good": None if verdict is None else verdict.good,
            "reason": None if verdict is None else verdict.reason,
            "items": 0 if found is None else found.items,
            "rate": None if heat is None else heat.rate,
            "hottest_key": None if hottest is None else to_wire_item(hottest),
            "hottest_share": None if heat is None else heat.share,
            "hottest": None if heat is None else heat.units,
            "shards_needed": None if verdict is None else verdict.shards,
            "line": self.line,
        }
