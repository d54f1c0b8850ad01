"""What each command is given, and how each ends: its report, its errors, and its exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError
from click.exceptions import Exit
from rich.console import Console

from shardkit.cli.screen import say, tell
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, ShardkitError, TableNotDescribedError

FAILED, WRONG_USE, STOPPED = 1, 2, 3
"""Exit codes: some records failed · wrong use, nothing was done · stopped before its end."""
ERRORS = (BotoCoreError, ClientError, OSError, ShardkitError)
"""Those of which a command shows the message."""
_WIDE = 200


class Aws(NamedTuple):
    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def dynamodb(self, connections: int = 10) -> Any:
        config = Config(max_pool_connections=connections)
        try:
            _ = urlsplit(self.endpoint_url or "").port  # botocore checks it only when it sends
            return self.session.resource("dynamodb", endpoint_url=self.endpoint_url, config=config)
        except ValueError as error:
            raise ConfigurationError(
                f"--endpoint-url: {self.endpoint_url!r} or the region is invalid: {error}"
            ) from error

    def client(self, service: str) -> Any:
        session: Any = self.session
        return session.client(service)

    @property
    def session(self) -> Session:
        return Session(profile_name=self.profile, region_name=self.region)


class Call:
    """One call of a command; its connections are closed at its end.

    Attributes:
        stderr: Standard error.
        shown: Where to show the progress; None: nowhere.
        aws: The options of ``options.connection``.
        as_json: Whether the report is JSON.
    """

    def __init__(self, context: click.Context, aws: Aws, *, progress: bool, as_json: bool) -> None:
        self.stderr = Console(stderr=True, highlight=False)
        self.shown = self.stderr if progress else None
        self.aws = aws
        self.as_json = as_json
        self.enter = context.with_resource
        self._at_end = context.call_on_close

    def say(self, text: str) -> None:
        """Print a line on standard error."""
        say(self.stderr, text)

    def dynamodb(self, connections: int = 10, aws: Aws | None = None) -> Any:
        resource = (aws or self.aws).dynamodb(connections)
        self._at_end(resource.meta.client.close)
        return resource

    def s3(self) -> Any:
        client = self.aws.client("s3")
        self._at_end(client.close)
        return client

    @contextmanager
    def refusing(self, what: str, code: int = WRONG_USE, table: str | None = None) -> Iterator[None]:
        """Report an error as ``what``, and exit with a code."""
        try:
            yield
        except BrokenPipeError:  # the reader of the output has closed it: end silently
            raise
        except ERRORS as error:
            raise self.ended(f"{what}: {explained(error, table)}", code) from None

    def ended(self, text: str, code: int = STOPPED) -> Exit:
        """Print a line on standard error, and return what ends the command without a report."""
        self.say(text)
        return Exit(code)


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        told: Its report for --json.
        show: Print the report for a reader.
        code: Its exit code.
        note: What to say on standard error after it.
        draw: Draw the picture that was asked for.
    """

    told: Callable[[], Any]
    show: Callable[[Console], object]
    code: int = 0
    note: str = ""
    draw: Callable[[], object] = lambda: None

    @classmethod
    def of_text(cls, report: Any, code: int = 0) -> Outcome:
        """Return the outcome whose report is text."""

        def show(console: Console) -> None:
            for line in str(report).splitlines():
                tell(console, line)

        return cls(report.to_dict, show, code)


class Option(click.Option):
    """An option that --help shows under the heading ``group``."""

    def __init__(self, *names: Any, group: str = "Options", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group


class Command(click.Command):
    """A command that is given its :class:`Call` and returns its :class:`Outcome`; --help groups its options.

    ``refused`` is what an error says of it that is raised before it has begun.
    """

    def __init__(self, *names: Any, refused: str = "not begun", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self._refused = refused

    def invoke(self, ctx: click.Context) -> Any:
        given = dict(ctx.params)
        aws = Aws(*(given.pop(name, None) for name in Aws._fields))
        call = Call(ctx, aws, progress=given.pop("progress", True), as_json=given.pop("as_json", False))
        try:
            with call.refusing(self._refused, table=given.get("table")):
                outcome: Outcome = ctx.invoke(self.callback, call, **given)  # type: ignore[arg-type]
            ctx.close()
            if call.as_json:
                print(json.dumps(outcome.told()))
            else:
                outcome.show(out())
            if outcome.note:
                call.say(outcome.note)
            with call.refusing("no picture"):
                outcome.draw()
        except KeyboardInterrupt:  # click would exit with 1, as if records had failed
            raise call.ended("stopped before its end: interrupted") from None
        raise Exit(outcome.code)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for each in self.get_params(ctx):
            if isinstance(each, click.Option) and (record := each.get_help_record(ctx)):
                groups.setdefault(getattr(each, "group", "Options"), []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


def agreed(question: str) -> bool:
    """Ask on a terminal; where nobody can be asked or answers, return False."""
    with suppress(click.Abort):
        return sys.stdin.isatty() and click.confirm(question, err=True)
    return False


def out() -> Console:
    """Return the console for standard output: a file gets lines of up to 200 characters."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def explained(error: Exception, table: str | None = None) -> str:
    """Return an error's message, with what the command line's options can do about it."""
    of = f"table {table!r}: " if table else ""
    if isinstance(error, NoRegionError):
        return "no AWS region is set; give --region, or set AWS_DEFAULT_REGION"
    if isinstance(error, NoCredentialsError):
        return f"{of}no AWS credentials were found; give --profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    missing = isinstance(error, ClientError) and code_of(error) == "ResourceNotFoundException"
    if isinstance(error, TableNotDescribedError) or (missing and table):
        return (
            f"{of}DescribeTable failed: {error.__cause__ or error}; check the table's name, --region, --profile, and "
            "the permission dynamodb:DescribeTable"
        )
    return str(error)
