"""The command line: ``shardkit …``. One file a command; this one only puts them together.

Importing this module needs nothing but the standard library: the command line's own dependencies are
in the ``demo`` and ``load`` extras, and are looked for when a command is run.
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

__all__ = ["build_app", "install_hint", "main"]


def install_hint(missing: str | None, command: str | None) -> str:
    """What to tell a user who lacks a package that a command needs: ``demo`` has an extra of its own."""
    extra = "demo" if command == "demo" else "load"
    return (
        f"The shardkit command line needs the package {missing!r}, which is not installed.\n"
        f"It comes with the {extra} extra:\n\n"
        f'    pip install "shardkit[{extra}]"\n'
    )


def build_app() -> typer.Typer:
    """The typer application with every command; needs typer and rich."""
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
    def commands() -> None:
        # With a callback, typer keeps the name of a command even where there is only one.
        pass

    app.command()(demo)
    app.command()(load)
    app.command("size")(measure)
    app.command()(heat)
    app.add_typer(plan, name="plan")
    app.command()(simulate)
    return app


def main(args: Sequence[str] | None = None) -> None:
    """The console script."""
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


@contextmanager
def _output() -> Iterator[None]:
    """Let a command write where it can: what a stream's encoding lacks is escaped, and a closed stream takes nothing.

    Where the output cannot be written (a full disk), that is said, and the exit code is 1.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - to the end
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # who reads the output has seen enough
            with suppress(OSError):
                sys.stderr.write(f"the output cannot be written: {error}\n")
        # Python writes what is left once more when it ends.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
