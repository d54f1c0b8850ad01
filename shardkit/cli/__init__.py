"""The command line ``shardkit …``: one file per command, assembled here.

Importing this module needs only the standard library. The dependencies of the command line are in the extras
``demo`` and ``load``, and are imported when a command runs.
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
    import typer


def install_hint(missing: str | None, command: str | None) -> str:
    extra = "demo" if command == "demo" else "load"
    return (
        f"The shardkit command line needs the package {missing!r}, which is not installed.\n"
        f"It comes with the {extra} extra:\n\n"
        f'    pip install "shardkit[{extra}]"\n'
    )


def build_app() -> typer.Typer:
    import typer

    from shardkit.cli.demo import demo
    from shardkit.cli.heat import heat
    from shardkit.cli.load import load
    from shardkit.cli.plan import plan
    from shardkit.cli.simulate import simulate
    from shardkit.cli.size import measure

    app = typer.Typer(
        name="shardkit",
        help="boto3 middleware that makes hot DynamoDB keys a non-problem.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_show_locals=False,
    )

    @app.callback()
    def commands(
        version: bool = typer.Option(False, "--version", callback=_show_version, help="Print the version and exit."),
    ) -> None:
        pass

    app.command()(demo)
    app.command()(load)
    app.command("size")(measure)
    app.command()(heat)
    app.add_typer(plan, name="plan")
    app.command()(simulate)
    return app


def main(args: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if args is None else list(args)
    try:
        app = build_app()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"rich", "typer"}:
            raise
        sys.stderr.write(install_hint(error.name, next(iter(given), None)))
        raise SystemExit(2) from None
    with _output():
        app(args=None if args is None else given)


def _show_version(asked: bool) -> None:
    if asked:
        import typer

        import shardkit

        print(f"shardkit {shardkit.__version__}")
        raise typer.Exit


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
