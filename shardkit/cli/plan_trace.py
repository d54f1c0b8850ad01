"""``shardkit plan trace``: a recorded load, with other numbers of shards and with more traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from shardkit.analysis.prices import Prices
from shardkit.cli import options
from shardkit.cli.command import FAILED, Call, Command, Outcome
from shardkit.cli.options import OUTPUT, option, parsed_toml
from shardkit.cli.pictures import COLOURS, GREY, drawing, picture
from shardkit.cli.timeseries import prices_of
from shardkit.errors import ConfigurationError
from shardkit.partitions.plan_trace import FINE, TracePlan, plan_trace
from shardkit.partitions.scenarios.entries import Entries


@click.command("trace", cls=Command, refused="not planned")
@click.argument("files", nargs=-1, required=True)
@option("--shards", group="What if", default="1,2,4,8,16,32", help="Numbers of shards to try.")
@option("--times", group="What if", default="1,1.25,1.5,2,3", help="Multiples of the traffic.")
@option("--key", "keys", group="What if", multiple=True, help="A key that has so many, repeatable; if not given, all.")
@option("--random", "at_random", group="What if", is_flag=True, help="Shards are drawn, as of RandomSuffix.")
@option("--table", group="Table", help="The table, if the files have several.")
@option("--index", group="Table", help="A global index of it.")
@option("--partitions", group="Table", type=int, help="Partitions; if not given, enough for twice the busiest second.")
@option("--read-units", group="Table", type=float, help="Provisioned read units a second; if not given, on-demand.")
@option("--write-units", group="Table", type=float, help="Provisioned write units a second, likewise.")
@option("--prices", group=OUTPUT, help="A TOML file with [prices], as of shardkit timeseries, to show dollars.")
@option("--plot", group=OUTPUT, help="Draw what is throttled, by traffic: to a file such as trace.svg.")
@options.as_json
def trace(_: Call, files: tuple[str, ...], prices: str | None, plot: str | None, **how: Any) -> Outcome:
    """Replay a recorded load (Trace) with other numbers of shards, and with more traffic. Nothing is sent.

    FILES are trace files of all processes, or folders of them.

    Exit codes: 0 a number of shards serves the traffic as it was, 1 none does or it is not known, 2 wrong use.
    """
    drawn = drawing(plot, draw)
    how["shards"], how["times"] = _numbers("--shards", how["shards"], int), _numbers("--times", how["times"], float)
    plan = plan_trace(files, **how | {"keys": how["keys"] or None}, prices=None if prices is None else _prices(prices))
    code = FAILED if plan.decisions[plan.times.index(1)] is None else 0
    return Outcome(plan.to_dict, lambda _: print(plan), code, draw=lambda: drawn(plan))


def _numbers(name: str, text: str, kind: Callable[[str], float]) -> list[float]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ConfigurationError(f"{name}: {text!r} is not a list of numbers; give for example 1,2,4") from None


def _prices(path: str) -> Prices:
    problems: list[str] = []
    found = prices_of(Entries(parsed_toml("--prices", path), "", problems))
    if found is None or problems:
        raise ConfigurationError(f"--prices: {path}: {'; '.join(problems) or 'has no table [prices]'}")
    return found


def draw(plan: TracePlan, path: str, *, dark: bool = False) -> None:
    """Draw the part that is throttled over multiples of the traffic: a line for each number, a band for the hashes."""
    with picture(path, 3.4, dark=dark) as figure:
        axes = figure.subplots()
        for number, way in enumerate(plan.ways):
            colour, style = COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else "--"
            axes.fill_between(plan.times, *zip(*way.interval, strict=True), color=colour, alpha=0.15, linewidth=0)
            axes.plot(plan.times, way.throttled, style, marker=".", color=colour, label=f"{way.shards:,}")
        axes.axhline(FINE, color=GREY, linewidth=0.8, linestyle=":")
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set(xlabel="traffic (multiples of what was recorded)", ylabel="throttled, of the units", ylim=(0, None))
        axes.set_title(f"{plan.table}, {plan.partitions:,} partitions: {plan.sentence.partition(';')[0]}")
        axes.grid(visible=True)
        axes.legend(title="shards", loc="upper left")
