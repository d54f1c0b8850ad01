"""What a table for each period buys: throughput per partition over time, and deletes that cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.sizes import ITEM_BYTES, STORAGE_OVERHEAD
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.partitions.rules import PARTITION_BYTES, TablePartitions
from shardkit.partitions.statements import Statement, counted, model, number, rule, show

_SECTION = "Understand Access Patterns for Time Series Data"
MOST_PERIODS = 10_000


@dataclass(frozen=True, kw_only=True)
class PeriodPartitions:
    """The partitions at the end of a period: of one table with everything, and of the period's own table.

    Args:
        period: the period's number, from 1.
        size: bytes that the one table holds.
        partitions: partitions of the one table.
        read_units: read units a second of each of them (of the smallest, if they differ).
        write_units: write units a second of each of them, likewise.
        own_partitions: partitions of the period's table.
        own_read_units: read units a second of each of these.
        own_write_units: write units a second of each of these.
        deletes: write units that the one table takes in the period to delete the items that are past keeping.
        provisioned_read_units: read units a second of all tables of the series together.
        provisioned_write_units: write units a second, likewise.
    """

    period: int
    size: float
    partitions: int
    read_units: float
    write_units: float
    own_partitions: int
    own_read_units: float
    own_write_units: float
    deletes: float
    provisioned_read_units: float
    provisioned_write_units: float


@dataclass(frozen=True, kw_only=True)
class SeriesPlan:
    """One table that grows, beside a table for each period.

    Args:
        periods: the state at the end of each period.
        keep: how many periods that have ended are kept; None: all.
        puts: write units that the items of a period take.
        reasoning: the rules and models that the figures come from.
    """

    periods: tuple[PeriodPartitions, ...]
    keep: int | None
    puts: float
    reasoning: tuple[Statement, ...]

    @property
    def deletes(self) -> float:
        """The write units that deleting items one by one takes in all periods; deleting tables takes none."""
        return sum(each.deletes for each in self.periods)

    def figures(self) -> Iterator[str]:
        """Yield what the plan says, a sentence each."""
        last = self.periods[-1]
        yield (
            f"one table, after {counted(last.period, 'period')}: {number(last.size / 1000**3)} GB on "
            f"{counted(last.partitions, 'partition')}, each with {number(last.read_units)} read units and "
            f"{number(last.write_units)} write units a second"
        )
        yield (
            f"a table for each period: the current one has {counted(last.own_partitions, 'partition')}, each with "
            f"{number(last.own_read_units)} read units and {number(last.own_write_units)} write units a second: "
            f"{number(last.own_write_units / last.write_units)} times as many, in every period"
        )
        yield (
            f"its tables together have {number(last.provisioned_read_units)} read units and "
            f"{number(last.provisioned_write_units)} write units a second"
        )
        if self.keep is not None:
            yield (
                f"deleting what is older than {counted(self.keep, 'ended period')}: item by item "
                f"{number(last.deletes)} write units a period, as many as the {number(self.puts)} of its puts; as a "
                "table 0"
                if last.deletes
                else f"nothing is older than {counted(self.keep, 'ended period')} yet"
            )

    def __str__(self) -> str:
        return show("a table for each period", self.figures(), self.reasoning, ())

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {**asdict(self), "deletes": self.deletes}


def plan_series(
    *,
    periods: int,
    items: int,
    item_size: int,
    read_units: float,
    write_units: float,
    cold_read_units: float = 1,
    cold_write_units: float = 1,
    keep: int | None = None,
) -> SeriesPlan:
    """Compare one table that grows with a table for each period.

    Example:
        >>> plan = plan_series(periods=12, items=250_000_000, item_size=300, read_units=5000, write_units=8000)
        >>> [(each.partitions, round(each.write_units)) for each in plan.periods][::11]
        [(10, 800), (160, 50)]
        >>> {(each.own_partitions, round(each.own_write_units)) for each in plan.periods}
        {(10, 800)}

    Args:
        periods: how many periods to look at.
        items: items written in a period.
        item_size: bytes of an item.
        read_units: provisioned read units a second of the one table, and of the current period's.
        write_units: provisioned write units a second, likewise.
        cold_read_units: read units a second of each table whose period has ended.
        cold_write_units: write units a second, likewise.
        keep: how many periods that have ended are kept; None: all.

    Returns:
        The partitions and their throughput at the end of each period, and the write units of the deletes.

    Raises:
        ConfigurationError: an argument is not a number in its range.

    Source:
        Developer Guide, "Best Practices for Tables", Understand Partition Behavior and Understand Access Patterns for
        Time Series Data.
    """
    check_count("periods", periods, "periods", most=MOST_PERIODS)
    check_count("items", items, "items a period")
    check_count("item_size", item_size, "bytes", most=ITEM_BYTES)
    hot = {
        "read_units": check_number("read_units", read_units, "read units a second", above=True),
        "write_units": check_number("write_units", write_units, "write units a second", above=True),
    }
    cold_read = check_number("cold_read_units", cold_read_units, "read units a second")
    cold_write = check_number("cold_write_units", cold_write_units, "write units a second")
    if keep is not None:
        check_count("keep", keep, "periods that have ended", least=0, most=MOST_PERIODS)
    growth = items * (item_size + STORAGE_OVERHEAD)
    puts = items * write_units_of(item_size)
    one = created = TablePartitions.created(**hot)
    own = created.grown_to(growth)
    states = []
    for period in range(1, periods + 1):
        held = period if keep is None else min(period, keep + 1)
        # A table that was larger keeps its partitions.
        one = one.grown_to(held * growth)
        ended = held - 1
        states.append(
            PeriodPartitions(
                period=period,
                size=held * growth,
                partitions=one.partitions,
                read_units=one.throughput[-1].read_units,
                write_units=one.throughput[-1].write_units,
                own_partitions=own.partitions,
                own_read_units=own.throughput[-1].read_units,
                own_write_units=own.throughput[-1].write_units,
                deletes=puts if held < period else 0.0,
                provisioned_read_units=hot["read_units"] + ended * cold_read,
                provisioned_write_units=hot["write_units"] + ended * cold_write,
            )
        )
    reasoning = (
        *created.reasoning,
        rule(
            f"a partition holds about {PARTITION_BYTES // 1000**3} GB, and splits when it is full; its throughput is "
            "divided",
            "Increased Storage Requirements",
        ),
        model(
            f"an item takes {item_size:,} bytes and {STORAGE_OVERHEAD} of the service; the data is spread evenly over "
            "the keys"
        ),
        rule(
            "deleting a table is more efficient than removing items one by one, which doubles the write throughput",
            _SECTION,
        ),
        model("TTL deletes items without write units too, but the table keeps its partitions"),
        rule("for tables with older data, dial down the throughput", _SECTION),
        model("today, a partition may also use throughput that the others leave (adaptive capacity)"),
    )
    return SeriesPlan(periods=tuple(states), keep=keep, puts=puts, reasoning=reasoning)
