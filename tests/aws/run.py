"""A run: where it is, what it makes and spends, and the outcome of each of its checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import WaiterError

from tests.aws.check import Check, NotVerified, Refuted
from tests.aws.journal import Journal, delete_tables
from tests.aws.spending import Spending

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

T = TypeVar("T")
Verdict = Literal["verified", "refuted", "not verified"]


@dataclass(frozen=True)
class Place:
    """AWS, or an engine. Another process can make the same clients of it."""

    region: str
    profile: str | None = None
    engine: str = ""
    endpoint: str | None = None

    @property
    def on_aws(self) -> bool:
        return not self.engine

    def session(self) -> boto3.Session:
        if self.on_aws:
            return boto3.Session(profile_name=self.profile, region_name=self.region)
        return boto3.Session(region_name=self.region, aws_access_key_id="testing", aws_secret_access_key="testing")

    def resource(self, session: boto3.Session, **config: Any) -> DynamoDBServiceResource:
        config = {"retries": {"mode": "standard"}, "max_pool_connections": 50, **config}
        return session.resource("dynamodb", endpoint_url=self.endpoint, config=Config(**config))


@dataclass(frozen=True)
class Outcome:
    check: Check
    verdict: Verdict
    seen: str
    dollars: float


@dataclass
class Run:
    """What a check is given.

    On an engine, time does not have to pass (``clock``, ``sleep``). ``made`` is told each table, so that a test can put
    simulated partitions in front of it; ``throttles`` says that it does.
    """

    place: Place
    ident: str
    folder: Path
    bound: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    throttles: bool = False
    made: Callable[[Table], object] = lambda _: None
    role: str = ""
    bucket: str = ""

    def __post_init__(self) -> None:
        self.throttles |= self.place.on_aws
        self.journal = Journal(self.folder, self.ident)
        self.spending = Spending(self.bound, clock=self.clock, sleep=self.sleep)
        self.session = self.watched(self.place.session())
        self.resource = self.place.resource(self.session)
        self.once = self.place.resource(self.session, retries={"total_max_attempts": 1})
        """Of clients that do not retry, so that the first throttle is seen."""
        self.client: Any = self.session.client("dynamodb", endpoint_url=self.place.endpoint)

    def watched(self, session: boto3.Session) -> boto3.Session:
        """Count, bound and journal what a session's clients do."""
        self.spending.attach(session)
        self.journal.attach(session)
        return session

    # -- what checks use

    def request(self, types: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the arguments of CreateTable for a table of orders; ``types`` are those of the keys of indexes."""
        known = {"day": "S", "id": "S", **(types or {})}
        return {
            "TableName": self.journal.new_name(),
            "KeySchema": schema("day", "id"),
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in known.items()],
            "BillingMode": "PAY_PER_REQUEST",
        }

    def table(self, resource: Any = None, *, types: Mapping[str, str] | None = None, **more: Any) -> Table:
        """Make a table of orders, with whatever else CreateTable takes."""
        request = self.request(types)
        table: Table = (resource or self.resource).create_table(**request | more)
        self.active(table)
        self.made(table)
        return table

    def active(self, table: Table) -> None:
        """Wait until a table and its indexes can be used."""

        def ready() -> bool:
            found = self.client.describe_table(TableName=table.name)["Table"]
            parts = [found["TableStatus"], *(index["IndexStatus"] for index in found.get("GlobalSecondaryIndexes", ()))]
            return set(parts) == {"ACTIVE"}

        if not self.until(ready, 1200, every=2.0):
            raise WaiterError("table", "it is not active after 20 minutes", {})
        table.reload()

    def until(self, ask: Callable[[], T], seconds: float, *, every: float = 1.0) -> T:
        """Ask until there is something, or the time is over."""
        end = self.clock() + seconds
        while not (found := ask()) and self.clock() < end:
            self.sleep(every)
        return found

    def lacks(self, what: str) -> Exception:
        """The outcome where something is not there: an engine need not have it, AWS must."""
        return Refuted(what) if self.place.on_aws else NotVerified(f"this engine: {what}")

    def on_aws_only(self, why: str) -> None:
        if not self.place.on_aws:
            raise NotVerified(why)

    # -- the run

    def carry_out(self, checks: Iterable[Check]) -> Iterator[Outcome]:
        for check in checks:
            before = self.spending.dollars
            self.spending.begin(check)
            try:
                verdict, seen = self._verdict(check)
                yield Outcome(check, verdict, seen, self.spending.dollars - before)
            finally:
                delete_tables(self)

    def _verdict(self, check: Check) -> tuple[Verdict, str]:
        try:
            return "verified", check.run(self)
        except Refuted as error:
            return "refuted", str(error)
        except NotVerified as error:
            return "not verified", str(error)
        except Exception as error:  # noqa: BLE001 - an error is a check that was not made, and must not hide the others
            return "not verified", f"{type(error).__name__}: {error}"


def schema(partition_key: str, sort_key: str = "") -> Any:
    """The key schema of a table or an index; a partition key may be of several attributes, apart by a space."""
    keys = [(name, "HASH") for name in partition_key.split()] + ([(sort_key, "RANGE")] if sort_key else [])
    return [{"AttributeName": name, "KeyType": kind} for name, kind in keys]


def index(name: str, partition_key: str, sort_key: str = "", **more: Any) -> Any:
    return {
        "IndexName": name,
        "KeySchema": schema(partition_key, sort_key),
        "Projection": {"ProjectionType": "ALL"},
        **more,
    }
