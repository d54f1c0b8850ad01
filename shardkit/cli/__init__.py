"""The command line ``shardkit …``: one file per command, assembled here.

Importing this module needs only the standard library. The dependencies of the command line are in the extras
``cli``, ``demo`` and ``load``, and are imported when a command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

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


def build_app() -> click.Group:
    import click

    from shardkit.cli.backfill import backfill
    from shardkit.cli.demo import demo
    from shardkit.cli.heat import heat
    from shardkit.cli.import_table import import_table
    from shardkit.cli.load import load
    from shardkit.cli.plan import plan
    from shardkit.cli.reshard import reshard
    from shardkit.cli.simulate import simulate
    from shardkit.cli.size import measure
    from shardkit.cli.stage import stage
    from shardkit.cli.timeseries import timeseries

    @click.group("shardkit", context_settings={"show_default": True, "max_content_width": 120})
    @click.version_option(package_name="shardkit", message="shardkit %(version)s", help="Print the version and exit.")
    def shardkit() -> None:
        """boto3 middleware that makes hot DynamoDB keys a non-problem."""

    for command in (demo, load, stage, import_table, backfill, reshard, measure, heat, plan, simulate, timeseries):
        shardkit.add_command(command)
    return shardkit


def main(args: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if args is None else list(args)
    try:
        app = build_app()
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
