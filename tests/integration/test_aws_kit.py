"""The kit that tries shardkit's promises on AWS (tests/aws): on engines, it finds what is known, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber

from shardkit.testing import VirtualClock, simulate_partitions
from tests.aws.__main__ import carry_out, chosen, main
from tests.aws.all_checks import CHECKS
from tests.aws.check import Check
from tests.aws.checks import account
from tests.aws.policy import policy
from tests.aws.run import Place, Run
from tests.support.engines import ENGINES, EngineName
from tests.support.fakes import hurried
from tests.support.permissions import Access, allows
from tests.support.profiles import LONG

PARTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
Endpoint = Callable[[EngineName], str]

THROTTLED = ("table_throttle", "key_throttle", "spread_key", "index_back_pressure", "on_demand_maximum", "bulk_pace")
ON_AWS = ("clock_skew", "iam")
LATER = ("leases",)
"""Two processes and real time: in the long search."""

KNOWN: Mapping[str, Mapping[str, str]] = {
    "dynoxide": {
        "sharded_index": "not verified: ClientError: An error occurred (ValidationException) when calling the Query",
        "units": "refuted: Scan of an index (",
        "warm_throughput": "not verified: this engine: a description has no warm throughput",
    },
    "dynamodb_local": {
        "transaction_units": "refuted: 2 + 6 for three entries",
        "units": "refuted: ",
        "warm_throughput": "not verified: this engine: a description has no warm throughput",
    },
    "moto": {
        "transactions": "refuted: each was to be added once: [2, 2, 2, 2, 2]",
        "transaction_units": "not verified: this engine: it does not say what a transaction consumes",
        "counter": "refuted: 23",
        "stream": "not verified: ClientError: An error occurred (404) when calling the DescribeStream",
        "units": "not verified: ",
    },
}
"""What is not verified on each engine, beside what needs throttles or AWS; a change here is news of the engine."""


def a_run(folder: Path, place: Place, **options: Any) -> Run:
    clock = VirtualClock()
    return Run(place, "test", folder, 5.0, **{"clock": clock, "sleep": hurried(clock), **options})


def found_by(run: Run, checks: Sequence[Check]) -> dict[str, str]:
    """Carry checks out, and return what the report says of each."""
    lines: list[str] = []
    status = carry_out(run, checks, lines.append, signed_off_by="tests")
    assert lines[-1] == "nothing is left behind"
    report = json.loads((run.folder / "shardkit-check-test.json").read_text(encoding="utf-8"))
    found = {one["name"]: f"{one['outcome']}: {one['seen']}" for one in report["checks"]}
    assert status == any(seen.startswith("refuted") for seen in found.values())
    assert all(one["dollars"] <= check.dollars for one, check in zip(report["checks"], CHECKS, strict=True))
    return {check.name: found[check.name] for check in checks}


def one_at_a_time(process: Callable[..., Any]) -> Callable[..., Any]:
    """Moto's tables are not safe for threads."""
    lock = threading.Lock()

    def locked(*args: Any) -> Any:
        with lock:
            return process(*args)

    return locked


@pytest.fixture(params=["moto", *(pytest.param(name, marks=pytest.mark.integration) for name in ENGINES)])
def place(
    request: pytest.FixtureRequest, engine_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param == "moto":
        with mock_aws(), monkeypatch.context() as patch:
            patch.setattr(BotocoreStubber, "process_request", one_at_a_time(BotocoreStubber.process_request))
            yield Place("us-east-1", engine="moto")
    else:
        yield Place("us-east-1", engine=request.param, endpoint=engine_endpoint(request.param))


def test_what_the_kit_finds_on_engines(place: Place, tmp_path: Path) -> None:
    """Each check is verified, but for what is known; it stays within its plan, and the policy allows what is sent."""
    run = a_run(tmp_path, place)
    asked = recorded(run)
    checks = [check for check in chosen([]) if check.name not in LATER]
    found = found_by(run, checks)
    not_here = {**dict.fromkeys(THROTTLED, "not verified: "), **dict.fromkeys(ON_AWS, "not verified: ")}
    for name, seen in found.items():
        assert seen.startswith({**not_here, **KNOWN[place.engine]}.get(name, "verified: ")), (name, seen)
    assert [access for access in asked if not allows(policy(), access)] == []
    if place.engine == "dynoxide":
        actions = {action for statement in policy()["Statement"] for action in statement["Action"]}
        assert {f"dynamodb:{access.action}" for access in asked} == actions


def recorded(run: Run) -> list[Access]:
    """Collect what IAM is asked for each request of the run."""
    found: list[Access] = []

    def see(model: Any, params: Mapping[str, Any], **_: Any) -> None:
        if model.service_model.service_name in {"dynamodb", "dynamodbstreams"}:
            found.extend(accesses(model.name, json.loads(params["body"])))

    run.session.events.register("before-call", see)
    for client in (run.client, run.resource.meta.client, run.once.meta.client):
        client.meta.events.register("before-call", see)
    return found


def accesses(operation: str, body: Mapping[str, Any]) -> Iterator[Access]:
    """Give what a request needs: an action on a table, an index or a stream; a transaction, those of its parts."""
    match operation:
        case "ListTables":
            yield Access(operation, "*")
        case "BatchGetItem" | "BatchWriteItem":
            yield from (Access(operation, arn(name)) for name in body["RequestItems"])
        case "TransactGetItems" | "TransactWriteItems":
            for action in body["TransactItems"]:
                [(kind, part)] = action.items()
                yield Access(PARTS.get(kind, "GetItem"), arn(part["TableName"]))
        case "DescribeStream" | "GetShardIterator":
            yield Access(operation, arn(body["StreamArn"].partition("/")[2]))
        case "GetRecords":  # its iterator says of which stream, but not to us
            yield Access(operation, arn("shardkit-check-test-any/stream/2026"))
        case "Query" | "Scan" if "IndexName" in body:
            yield Access(operation, arn(f"{body['TableName']}/index/{body['IndexName']}"))
        case _:
            yield Access(operation, arn(body["TableName"]))
            if "Tags" in body:
                yield Access("TagResource", arn(body["TableName"]))


def arn(table: str) -> str:
    return f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}"


@pytest.mark.integration
def test_checks_of_throttles_on_simulated_partitions(engine_endpoint: Endpoint, tmp_path: Path) -> None:
    place = Place("us-east-1", engine="simulated", endpoint=engine_endpoint("dynoxide"))
    with ExitStack() as stack:
        clock = VirtualClock()

        def simulate(table: Any) -> None:
            stack.enter_context(simulate_partitions(table, clock=clock))

        run = a_run(tmp_path, place, clock=clock, sleep=clock.sleep, made=simulate, throttles=True)
        found = found_by(run, [check for check in CHECKS if check.name in THROTTLED])
    assert {name: seen.partition(":")[0] for name, seen in found.items()} == dict.fromkeys(THROTTLED, "verified")


@pytest.mark.integration
def test_partitions_that_keep_no_promise_are_seen(engine_endpoint: Endpoint, tmp_path: Path) -> None:
    place = Place("us-east-1", engine="simulated", endpoint=engine_endpoint("dynoxide"))
    with ExitStack() as stack:
        clock = VirtualClock()

        def simulate(table: Any) -> None:
            stack.enter_context(simulate_partitions(table, clock=clock, partitions=1, write_units=800))

        run = a_run(tmp_path, place, clock=clock, sleep=clock.sleep, made=simulate, throttles=True)
        found = found_by(run, [check for check in CHECKS if check.name in {"spread_key", "on_demand_maximum"}])
    assert {name: seen.partition(":")[0] for name, seen in found.items()} == dict.fromkeys(found, "refuted")


@pytest.mark.integration
@pytest.mark.long_search
@pytest.mark.skipif(not LONG, reason="takes 32 seconds: set HYPOTHESIS_PROFILE=search")
def test_two_processes(engine_endpoint: Endpoint, tmp_path: Path) -> None:
    run = Run(Place("us-east-1", engine="dynoxide", endpoint=engine_endpoint("dynoxide")), "test", tmp_path, 5.0)
    found = found_by(run, [check for check in CHECKS if check.name in LATER])
    assert all(seen.startswith("verified: ") for seen in found.values()), found
    assert run.spending.units["write_units"] > 1000


@pytest.mark.integration
def test_the_check_of_policies(engine_endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a service that holds each request to the policy; and one that refuses nothing refutes the check."""
    run = a_run(tmp_path, Place("us-east-1", engine="dynoxide", endpoint=engine_endpoint("dynoxide")), role="role")
    strict = [True]

    def assumed(run: Run, policy: Mapping[str, Any]) -> Any:
        resource: Any = run.place.resource(run.watched(run.place.session()))

        def judge(model: Any, params: Mapping[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
            asked = accesses(model.name, json.loads(params["body"]))
            if not strict[0] or all(allows(policy, access) for access in asked):
                return None
            error = {"Code": "AccessDeniedException", "Message": model.name}
            return SimpleNamespace(status_code=400), {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}

        events: Any = resource.meta.client.meta.events  # the stubs know no answer of a handler
        events.register("before-call.dynamodb", judge)
        return resource

    monkeypatch.setattr(account, "assumed", assumed)
    [enough] = run.carry_out([account.iam])
    assert enough.seen == "Reader, Writer, Loader, Counter, Meter: each action is needed"
    strict[0] = False
    [too_much] = run.carry_out([account.iam])
    assert (too_much.verdict, too_much.seen) == ("refuted", "Reader needs no dynamodb:BatchGetItem")


@pytest.mark.integration
def test_what_a_killed_run_left_is_removed(
    engine_endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = engine_endpoint("dynoxide")
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    here = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "tests.aws", "run", "--endpoint", endpoint]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": here})

    def made() -> set[str]:
        names = {name for journal in tmp_path.glob("*.journal") for name in journal.read_text(encoding="utf-8").split()}
        return names & {*client.list_tables()["TableNames"]}

    try:
        end = time.monotonic() + 60
        while not made() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    [journal] = tmp_path.glob("*.journal")
    ident = journal.stem.removeprefix("shardkit-check-")
    assert made()
    lines: list[str] = []
    monkeypatch.chdir(tmp_path)
    with journal.open("a", encoding="utf-8") as file:
        file.write(f"shardkit-check-{ident}-never-made\n")
    command = ["clean", "--run", ident, "--endpoint", endpoint]
    assert main(command, say=lines.append) == 0
    assert lines == ["nothing is left behind"]
    assert not journal.exists()
    assert f"shardkit-check-{ident}-" not in " ".join(client.list_tables()["TableNames"])
