"""``shardkit tune``: what it says, does, and exits with."""

from __future__ import annotations

import importlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import CalculatedSuffix, StageError
from shardkit.shard_map import Tuner
from tests.functional.test_tuner import Fleet
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

click_testing = pytest.importorskip("click.testing")
COMMAND: Any = importlib.import_module("shardkit.cli.tune")


@pytest.fixture
def fleet(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet(resource)
    monkeypatch.setattr("shardkit.cli.command.Aws.dynamodb", lambda *_: resource)
    monkeypatch.setattr(COMMAND, "Tuner", partial(Tuner, clock=lambda: made.moment.now))
    return made


def run(fleet: Fleet, *given: str, code: int = 0) -> str:
    given = (fleet.table.name, "--control", fleet.control.name, *given)
    result = click_testing.CliRunner().invoke(COMMAND.tune, given)
    assert result.exit_code == code, result.output
    return str(result.output)


def minutes(fleet: Fleet, count: int, *given: str, code: int = 0) -> str:
    said = ""
    for _ in range(count):
        fleet.report(3000, queries=60)
        said = run(fleet, *given, code=code)
        fleet.moment.wait(60)
    return said


def test_it_says_what_it_would_do_and_why(fleet: Fleet) -> None:
    said = minutes(fleet, 10)
    assert said.splitlines() == [
        (
            "1970-01-01 00:25 UTC: would grow: hot in 10 of 15 minutes, or for the third time in 26 hours; hot gets 64 "
            "shards; 3,163 read units/s"
        ),
        "  2 of 2 processes; hot: 3,000 to 3,000 write units/s in its busiest second",
    ]
    assert fleet.admin.read().stage == "old"


def test_with_apply_it_acts_and_the_log_tells_it(fleet: Fleet) -> None:
    minutes(fleet, 22, "--apply", "--max-shards", "8")
    assert fleet.admin.read().new == CalculatedSuffix("sk", shards={None: 2, "hot": 8})
    story = [line.partition("UTC: ")[2][:24] for line in run(fleet, "--log").splitlines() if "UTC" in line]
    assert story == [
        "none: hot for fewer than",
        "grow: hot in 10 of 15 mi",
        "none: every process has ",
        "advance: a growth is und",
        "none: every process has ",
    ]
    log = json.loads(run(fleet, "--log", "--json"))
    assert [decision["action"] for decision in log] == ["none", "grow", "none", "advance", "none"]


def test_limits_are_kept(fleet: Fleet) -> None:
    assert "max_read_units=50.0: no more is allowed" in minutes(fleet, 10, "--apply", "--max-read-units", "50")


def test_nobody_reports(fleet: Fleet) -> None:
    said = json.loads(run(fleet, "--json"))
    assert [(each["action"], each["key"], each["reports"]) for each in said] == [("none", None, 0)]
    assert run(fleet).endswith("\n  0 of 0 processes\n")


@pytest.mark.parametrize("given", [("--max-shards", "0"), ("--max-read-units", "-1")])
def test_wrong_use(fleet: Fleet, given: tuple[str, ...]) -> None:
    run(fleet, *given, code=2)


def test_a_table_without_a_map_is_refused(fleet: Fleet, resource: DynamoDBServiceResource) -> None:
    fleet.table = make_table(resource, ("pk", "S"), ("sk", "S"))
    assert "has no shard map" in run(fleet, code=2)


def test_another_process_was_faster(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(_: Tuner) -> None:
        raise StageError("control: another tuner of the table ran meanwhile; nothing was done")

    monkeypatch.setattr(Tuner, "step", step)
    assert run(fleet, code=3) == "control: another tuner of the table ran meanwhile; nothing was done\n"
