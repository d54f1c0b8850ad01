"""The command line ``shardkit …``: one file per command, assembled here.

Importing this module needs only the standard library. The dependencies of the command line are in the extras
``cli``, ``demo`` and ``load``, and are imported when a command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click


def install_hint(missing: str, command: str | None) -> str:
    needed = f"The shardkit command line needs the package {missing!r}, which is not installed.\n"
    if command in {None, "--help", "--version"}:
        return (
            f"{needed}It comes with an extra, demo or load for the commands of these names, and cli for the others:\n\n"
            '    pip install "shardkit[demo]"\n'
            '    pip install "shardkit[load]"\n'
            '    pip install "shardkit[cli]"\n'
        )
    extra = command if command in {"demo", "load"} else "cli"
    return f'{needed}It comes with the {extra} extra:\n\n    pip install "shardkit[{extra}]"\n'


# Where each command is, and the first sentence of its help. Importing them all takes ten times as long as --help.
COMMANDS = {
    "backfill": ("backfill.backfill", "Give a table's items the attribute of a sharded index, then verify."),
    "compare": ("changes.compare", "Compare the items of two tables, after a copy, an import or a move."),
    "copy": ("changes.copy", "Copy the items of a table into another one: account, Region and strategy may differ."),
    "count": ("changes.count", "Count the items of a table that meet a condition."),
    "delete": ("changes.delete", "Delete the items of a table that meet a condition; other writers win."),
    "demo": (
        "demo.demo",
        "Load real flights into a plain and a sharded table, side by side, and see which partitions throttle.",
    ),
    "heat": (
        "heat.heat",
        "Judge candidates for a partition key by the items of a data file, or the partition keys of a live table.",
    ),
    "import": (
        "import_table.import_table",
        "Let DynamoDB import what shardkit stage has put into S3, and wait for it.",
    ),
    "load": ("load.load", "Load files into a table: every partition busy, no item lost or written twice."),
    "plan": (
        "plan.plan",
        "Plan before you pay: the throughput for a load, the shards for a key, the partitions of a table.",
    ),
    "reshard": (
        "reshard.reshard",
        "Move a table's items to another strategy: adopt a table, change its shards, or give one hot key more.",
    ),
    "simulate": ("simulate.simulate", "Simulate a table's partitions under a load, in virtual time."),
    "size": (
        "size.measure",
        "Measure the items of a data file or of a live table: sizes, read and write units, costliest attributes.",
    ),
    "stage": (
        "stage.stage",
        "Write files to S3 in mixed order, so that DynamoDB imports them at full speed: shardkit import.",
    ),
    "tune": ("tune.tune", "Give hot keys more shards, by what the processes of a table with a shard map report."),
    "timeseries": (
        "timeseries.timeseries",
        "Maintain the tables of a time series: create, dial down, archive and delete them.",
    ),
    "update": ("changes.update", "Update the items of a table that meet a condition; other writers win."),
}


def load_command(name: str) -> click.Command:
    module, _, attribute = COMMANDS[name][0].partition(".")
    command: click.Command = getattr(import_module(f"shardkit.cli.{module}"), attribute)
    return command


def build_app() -> click.Group:
    import click

    class LoadedLater(click.Command):
        """A command that is loaded when it is called; until then, its name and its help."""

        def make_context(
            self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
        ) -> click.Context:
            assert self.name is not None
            return load_command(self.name).make_context(info_name, args, parent, **extra)

    @click.group("shardkit", context_settings={"show_default": True, "max_content_width": 120})
    @click.version_option(package_name="shardkit", message="shardkit %(version)s", help="Print the version and exit.")
    def shardkit() -> None:
        """boto3 middleware that makes hot DynamoDB keys a non-problem."""

    for name, (_, text) in COMMANDS.items():
        shardkit.add_command(LoadedLater(name, help=text))
    return shardkit


def main(args: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if args is None else list(args)
    try:
        app = build_app()
        if given and given[0] in COMMANDS:
            load_command(given[0])  # here, where a missing extra and Ctrl-C are handled
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"click", "rich"}:
            raise
        sys.stderr.write(install_hint(missing, next(iter(given), None)))
        raise SystemExit(2) from None
    except KeyboardInterrupt:  # importing takes most of a short command's time
        sys.stderr.write("stopped before its end: interrupted\n")
        raise SystemExit(3) from None
    with _output():
        app(given, prog_name="shardkit")


@contextmanager
def _output() -> Iterator[None]:
    """Escape characters that the output's encoding lacks, and write nothing to a closed stream.

    If the output cannot be written (a full disk), report that and exit with 1.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until exit
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # the reader of the output has closed it: end silently
            with suppress(OSError):
                sys.stderr.write(f"the output cannot be written: {error}\n")
        # Python flushes the stream again at exit: let that go to the null device.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
