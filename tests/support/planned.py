"""A time series with plans in an account of its own, whose requests can be interleaved one by one."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from shardkit import CalculatedSuffix, Strategy
from shardkit.core.machine import Answer, Done, Machine, Program, ProgramMachine, Response, Send, Wait
from shardkit.sharding.parameters import FanOutOptions
from shardkit.timeseries.programs import SeriesPrograms
from shardkit.timeseries.settings import Series
from tests.support.fakes import client_error
from tests.support.series import CLICKS

NOW = datetime(2016, 4, 15, 23, 30, tzinfo=UTC)  # the next day's table is due
TODAY, TOMORROW = "clicks-2016-04-15", "clicks-2016-04-16"
CONTROL: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    "TableStatus": "ACTIVE",
}


def a_process(strategy: Strategy | None = None, *, plans: str | None = "Control", **options: Any) -> SeriesPrograms:
    series = Series(
        **{"name": "clicks", "at": "Time", "period": "day", "schema": CLICKS, "missing": "create"} | options
    )
    return SeriesPrograms(series, strategy or CalculatedSuffix("Time", shards=4), lambda: 0.5, lambda: NOW, plans=plans)


def fan_out() -> FanOutOptions:
    return FanOutOptions(4, lambda: 0.5)


def click(time: str) -> dict[str, Any]:
    return {"Customer": "c1", "Time": time}


@dataclass
class Account:
    """DynamoDB as far as the programs of a series need it: each request is one step."""

    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[tuple[str, str], Any]] = field(default_factory=dict)
    creations: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Operations on the control table that are refused, with the error code."""
    late: list[str] = field(default_factory=list)
    """Tables that were made before their plan."""

    def answer(self, send: Send) -> Answer:
        params: Any = send.params
        self.requests.append((send.operation, params))
        if params.get("TableName") == "Control":
            return self._control(send.operation, params)
        if send.operation == "ListTables":
            return {"TableNames": sorted([*self.tables, "Control"])}
        if send.operation == "BatchWriteItem":
            ((table, writes),) = params["RequestItems"].items()
            if table not in self.tables:
                return client_error("ResourceNotFoundException")
            for write in writes:
                if "PutRequest" in write:
                    self._put(table, write["PutRequest"]["Item"])
                else:
                    key = write["DeleteRequest"]["Key"]
                    self.tables[table].pop((key["Customer"]["S"], key["Time"]["S"]), None)
            return {"UnprocessedItems": {}}
        table = params["TableName"]
        if send.operation == "CreateTable":
            if table in self.tables:
                return client_error("ResourceInUseException")
            if table.removeprefix("clicks-") not in self.plans:
                self.late.append(table)
            self.tables[table], self.creations[table] = {}, params
            return {}
        if table not in self.tables:
            return client_error("ResourceNotFoundException")
        return self._item(send.operation, table, params)

    def _item(self, operation: str, table: str, params: Any) -> Answer:
        if operation == "DescribeTable":
            described = {**CLICKS, "TableName": table, "TableStatus": "ACTIVE", "TableArn": f"arn:{table}"}
            return {"Table": described}
        if operation == "PutItem":
            self._put(table, params["Item"])
            return {}
        if operation == "DeleteItem":
            self.tables[table].pop((params["Key"]["Customer"]["S"], params["Key"]["Time"]["S"]), None)
            return {}
        assert operation == "GetItem", operation
        found = self.tables[table].get((params["Key"]["Customer"]["S"], params["Key"]["Time"]["S"]))
        return {} if found is None else {"Item": found}

    def _put(self, table: str, item: Any) -> None:
        self.tables[table][item["Customer"]["S"], item["Time"]["S"]] = item

    def _control(self, operation: str, params: Any) -> Answer:
        if operation in self.refused:
            return client_error(self.refused[operation])
        if operation == "DescribeTable":
            return {"Table": dict(CONTROL)}
        if operation == "PutItem":
            item = params["Item"]
            assert item["pk"] == {"S": "shardkit:plan:clicks"}
            if item["sk"]["S"] in self.plans:
                return client_error("ConditionalCheckFailedException")
            self.plans[item["sk"]["S"]] = item
            return {}
        assert operation == "Query"
        assert params["ConsistentRead"]
        first, last = (params["ExpressionAttributeValues"][name]["S"] for name in (":first", ":last"))
        found: Response = {"Items": [self.plans[name] for name in sorted(self.plans) if first <= name <= last]}
        return found

    def run(self, program: Program[Any]) -> Any:
        """Run a program to its end."""
        steps = self.steps(program)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value

    def steps(self, program: Program[Any]) -> Generator[None, None, Any]:
        """Run a program; a request reaches the service in one step, and its answer the program in another."""
        machine: Machine[Any] = ProgramMachine(program)
        now = 0.0
        while True:
            step = machine.next(now)
            if isinstance(step, Done):
                return step.value
            if isinstance(step, Wait):
                now = step.until or now
                continue
            yield
            answer = self.answer(step)
            yield
            machine.receive(step, answer if isinstance(answer, Exception) else step.answer(answer), now)


def interleaved(running: list[Generator[None, None, Any]], rng: Random, *, dies: float) -> None:
    """Run programs in a random order of their steps; with the probability ``dies`` one stands still for good."""
    while running:
        one = rng.choice(running)
        if rng.random() < dies or next(one, running) is running:
            running.remove(one)
