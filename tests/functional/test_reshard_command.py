"""``shardkit reshard``: what it does, shows, says to do next, and exits with."""

from __future__ import annotations

import importlib
import json
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.cli import build_app
from tests.support.moving import ADOPT, homes, resharding
from tests.support.recorder import answering, recording
from tests.support.tables import make_table
from tests.support.wire import Body

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

click_testing = pytest.importorskip("click.testing")
COMMAND: Any = importlib.import_module("shardkit.cli.reshard")
TO = ("--from", "unsharded", "--by", "sk", "--shards", "4")
FAST = ("--write-units", "100000", "--read-units", "100000", "--no-progress")


@pytest.fixture
def table(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Six items. The command does not make a session."""
    monkeypatch.setattr(COMMAND, "dynamodb", lambda *_: resource)
    made = make_table(resource, ("pk", "S"), ("sk", "S"), name="Orders")
    for number in range(6):
        made.put_item(Item={"pk": "k", "sk": f"s{number}", "v": number})
    return made


def run(*given: str, code: int = 0) -> Any:
    result = click_testing.CliRunner().invoke(build_app(), ["reshard", "Orders", *given, *FAST])
    assert result.exit_code == code, result.output
    return result


def lines(*given: str, code: int = 0) -> list[str]:
    return str(run(*given, code=code).stdout).splitlines()


def next_command(shown: list[str]) -> list[str]:
    """The command that was printed last, without the program and the table."""
    [*_, last] = [line for line in shown if "shardkit reshard Orders " in line]
    return shlex.split(last.partition("shardkit reshard Orders ")[2])


def test_all_the_way_by_what_it_says(table: Table) -> None:
    """Every command is the one that the command before printed; at the end the new strategy alone finds all."""
    deployed = []
    command = [*TO, "plan"]
    shown: list[str] = []
    for _ in range(8):
        shown = lines(*command)
        deployed += [line.partition("every process: ")[2] for line in shown if "every process: " in line]
        if command[-2:] == ["finish", "--deployed"]:
            break
        command = next_command(shown[:1] if command[-2] == "advance" and "move" in command else shown)
        if command[-2:] == ["finish", "--deployed"]:
            assert "6 items verified: all are at their new places" in shown
    assert deployed == [
        *(f"Resharding(Unsharded(), {ADOPT[1]!r}, stage={stage!r})" for stage in ("guard", "switch", "move")),
        repr(ADOPT[1]),
    ]
    found = ShardedTable(table, ADOPT[1]).scan_items()
    assert sorted(str(item["sk"]) for item in found) == [f"s{number}" for number in range(6)]


def test_a_plan(table: Table) -> None:
    with recording(table.meta.client) as sent:
        shown = lines(*TO, "plan")
    assert set(sent.operations) == {"DescribeTable", "Scan"}
    assert shown[:2] == [
        "6 items read: 6 would move, 0 are at their place already",
        f"36 write units of the table; at the given rates {shown[1].rpartition('rates ')[2]}",
    ]
    assert [line.split() for line in shown if line.startswith("stage guard")] == [
        ["stage", "guard", *["0.5", "+", "0", "1.5", "+", "0", "0", "+", "1", "0", "+", "2", "0", "+", "1"]]
    ]
    assert shown[-1] == "next: shardkit reshard Orders --from unsharded --by sk --shards 4 start"
    table.put_item(Item={"pk": "k.3", "sk": "s0"})
    shown = lines(*TO, "plan", code=1)
    assert "1 cannot move: 1 ambiguous keys, 0 too large" in shown
    assert shown[-1] == "next: make these items smaller, delete them, or choose another separator"
    told = json.loads(run(*TO, "plan", "--json", code=1).stdout)
    assert (told["exit_code"], told["moving"], told["ambiguous"]) == (1, 6, 1)


def test_offline(table: Table) -> None:
    """One command; it goes on after it was stopped."""

    def denied(_: Body) -> NoReturn:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DeleteItem")

    with answering(table.meta.client, "DeleteItem", denied):
        result = run(*TO, "--offline", "--stopped", code=3)
    assert "AccessDenied" in result.stderr
    shown = lines(*TO, "--offline", "--stopped")
    assert "6 items verified: all are at their new places" in shown
    assert shown[-2:] == [f"next: deploy to every process: {ADOPT[1]!r}", "      then start the services"]
    assert all("." in str(item["pk"]) for item in table.scan()["Items"])


def test_what_is_left_is_said(table: Table) -> None:
    conflict = homes({"pk": "k", "sk": "s0"}).new["pk"]["S"]
    table.put_item(Item={"pk": conflict, "sk": "s0", "other": True})
    shown = lines(*TO, "move", "--deployed", code=1)
    assert any(line.startswith("failed: {'pk': 'k', 'sk': 's0'}: Key: the old and the new place") for line in shown)
    assert shown[-1] == "next: bring every process to stage 'move', mend what failed, and move again"
    assert "7 items verified: 1 are not at their new places" in shown
    assert lines(*TO, "finish", "--deployed", code=1)[-1] == shown[-1]


@pytest.mark.parametrize(
    ("stage", "code", "said", "deployed"),
    [
        ("old", 0, "stage 'old': nothing has begun", None),
        ("guard", 0, "it goes back to 'old'", "Unsharded()"),
        ("switch", 0, "it goes back to 'guard'", "stage='guard'"),
        ("move", 1, "it goes back to 'switch', and no further", "stage='switch'"),
        ("new", 1, "it goes back to 'move', and no further", "stage='move'"),
    ],
)
@pytest.mark.usefixtures("table")
def test_how_far_it_goes_back(stage: str, code: int, said: str, deployed: str | None) -> None:
    shown = lines(*TO, "abort", "--stage", stage, code=code)
    assert shown[0] == said
    assert deployed is None or deployed in shown[1]


def test_not_to_old_once_new_items_have_stubs(table: Table) -> None:
    ShardedTable(table, resharding("switch")).put_item(Item={"pk": "k", "sk": "new"})
    shown = lines(*TO, "abort", "--stage", "guard", code=1)
    assert shown[0].startswith("new items are at new places")
    assert shown[1] == "next: to undo all of it, go on to 'new', then move back: --from and --to exchanged"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("plan",), "--from: missing; for example --from unsharded --by OrderId --shards 200"),
        (("plan", "--from", "unsharded"), "--to (or --by and --shards): missing"),
        (("plan", *TO, "--to", "unsharded"), "--to: is not supported with --by and --shards"),
        (("plan", "--from", "unsharded", "--by", "sk"), "--by, --shards: give both, or --to"),
        (("plan", "--from", "{"), "--from: '{' is not valid JSON"),
        (TO, "VERB, --offline: give one of them"),
        (("move", "--offline", *TO), "VERB, --offline: give one of them"),
        (("move", *TO), "--deployed: every process that uses the table must be in stage 'move'; add --deployed"),
        (("--offline", *TO), "--stopped: all services that use the table must be stopped"),
        (("advance", *TO), "--stage: missing; give the stage that all processes have now: old, guard"),
        (
            ("plan", "--from", "unsharded", "--to", '{"type": "RandomSuffix", "shards": 4}'),
            "old, new: items cannot move",
        ),
    ],
)
@pytest.mark.usefixtures("table")
def test_wrong_use(given: tuple[str, ...], said: str) -> None:
    result = run(*given, code=2)
    assert "not begun: " in result.stderr
    assert said in result.stderr


def test_strategies_as_json(table: Table) -> None:
    ShardedTable(table, CalculatedSuffix("sk", 2)).put_item(Item={"pk": "d", "sk": "s0"})
    table.delete_item(Key={"pk": "k", "sk": "s0"})
    old, new = (json.dumps(CalculatedSuffix("sk", shards).to_dict()) for shards in (2, 6))
    assert lines("plan", "--from", old, "--to", new, code=1)[0].startswith("6 items read: ")
