"""``shardkit reshard``: what it does, shows, says to do next, and exits with."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ShardedTable, ShardMap, Unsharded
from shardkit.migrate.marks import MARK
from tests.functional.test_docs import DOCS
from tests.support.mapped import Moment
from tests.support.moving import ADOPT, TOKEN, homes, resharding
from tests.support.recorder import answering, recording
from tests.support.tables import GlobalIndex, make_table
from tests.support.wire import Body

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

click_testing = pytest.importorskip("click.testing")
COMMAND: Any = importlib.import_module("shardkit.cli.reshard")
TO = ("--from", "unsharded", "--by", "sk", "--shards", "4")
PACE = ("--write-units", "100000", "--read-units", "100000", "--workers", "1")
FAST = (*PACE, "--no-progress")
# moto is not safe for threads: a Scan fails if another request adds an item meanwhile.


@pytest.fixture
def table(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Six items. The command does not make a session."""
    monkeypatch.setattr("shardkit.cli.command.Aws.dynamodb", lambda *_: resource)
    made = make_table(resource, ("pk", "S"), ("sk", "S"), name="Orders")
    for number in range(6):
        made.put_item(Item={"pk": "k", "sk": f"s{number}", "v": number})
    return made


def run(*given: str, code: int = 0) -> Any:
    result = click_testing.CliRunner().invoke(COMMAND.reshard, ["Orders", *given, *FAST])
    assert result.exit_code == code, result.output
    return result


def lines(*given: str, code: int = 0) -> list[str]:
    return str(run(*given, code=code).stdout).splitlines()


def next_command(shown: list[str]) -> list[str]:
    """The command that was printed last, without the program and the table."""
    [*_, last] = [line for line in shown if "shardkit reshard Orders " in line]
    return [part for part in shlex.split(last.partition("shardkit reshard Orders ")[2]) if part not in PACE]


def test_all_the_way_by_what_it_says(table: Table) -> None:
    """Every command is the one that the command before printed, and is listed on the page; the end finds all items."""
    deployed, used = [], []
    command = next_command(lines(*TO, "plan"))
    assert command == [*TO, "start", "--static"]
    shown: list[str] = []
    for _ in range(8):
        shown = lines(*command)
        used.append(" ".join(command[len(TO) :]))
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
    _, _, page = (DOCS / "adopt.md").read_text(encoding="utf-8").partition("\n## With the stages in the code\n")
    listed = re.findall(r"^\| `(.+?)(?: --write-units \d+)?`", page.partition("\n## ")[0], re.MULTILINE)
    assert listed == used
    found = ShardedTable(table, ADOPT[1]).scan_items()
    assert sorted(str(item["sk"]) for item in found) == [f"s{number}" for number in range(6)]


def test_a_plan(table: Table) -> None:
    with recording(table.meta.client) as sent:
        shown = lines(*TO, "plan")
    assert {name for name, _ in sent.requests} == {
        "DescribeTable",
        "GetItem",
        "Scan",
    }  # one to see whether there is a map
    assert shown[:2] == [
        "6 items read: 6 would move, 0 are at their place already",
        f"36 write units of the table; at the given rates {shown[1].rpartition('rates ')[2]}",
    ]
    assert [line.split() for line in shown if line.startswith("stage guard")] == [
        ["stage", "guard", *["0.5", "+", "0", "1.5", "+", "0", "0", "+", "1", "0", "+", "2", "0", "+", "1"]]
    ]
    assert shown[-2] == shlex.join(["next:", "shardkit", "reshard", "Orders", *TO, *PACE, "start"])
    assert next_command(shown) == next_command(lines(*TO, "plan", "--static")) == [*TO, "start", "--static"]
    table.put_item(Item={"pk": "k.3", "sk": "s0"})
    shown = lines(*TO, "plan", code=1)
    assert "1 cannot move: 1 ambiguous keys, 0 too large" in shown
    said, _, other = shown[-1].partition(": --to ")
    assert said == "next: choose another separator, which is in no key"
    [form] = shlex.split(other)
    assert json.loads(form) == CalculatedSuffix("sk", 4, separator="#").to_dict()
    assert lines("--from", "unsharded", "--to", form, "plan")[0].startswith("7 items read: 7 would move")
    told = json.loads(run(*TO, "plan", "--json", code=1).stdout)
    assert (told["exit_code"], told["moving"], told["ambiguous"]) == (1, 6, 1)


def test_what_every_next_command_needs(table: Table) -> None:
    """Where the table is, and the pace."""
    where = ("--region", "eu-west-1", "--profile", "other", "--endpoint-url", "http://localhost:1")
    shown = lines(*TO, *where, "start", "--static")
    options = [*TO, *PACE, *where]
    assert shlex.split(shown[-1]) == [
        *("then:", "shardkit", "reshard", "Orders"), *options, *("advance", "--stage", "guard", "--deployed")
    ]  # fmt: skip
    assert shlex.split(shown[1])[-2 - len(options) :] == [*options, "plan", "--static"]


@pytest.fixture
def inverted(resource: DynamoDBServiceResource, table: Table) -> None:
    """The table, with an index of its keys alone."""
    table.delete()
    make_table(
        resource, ("pk", "S"), ("sk", "S"), name="Orders",
        global_indexes=[GlobalIndex("inverted", ("sk", "S"), ("pk", "S"), "KEYS_ONLY")],
    )  # fmt: skip


@pytest.mark.usefixtures("inverted")
def test_an_index_that_the_stages_refuse() -> None:
    """The plan names it, and nothing is started."""
    shown = lines(*TO, "plan", code=1)
    assert any(line.startswith("index inverted: not readable from stage 'guard' to 'move'") for line in shown)
    assert shown[-1].startswith("next: make another index that projects ALL attributes")
    for static in ((), ("--static",)):
        assert "not begun: index inverted: not readable" in run(*TO, "start", *static, code=2).stderr
    assert "the table has no shard map" in run("--key", "k", "--shards", "8", code=2).stderr


@pytest.mark.parametrize("verb", ["move", "verify", "finish"])
@pytest.mark.parametrize("stage", ["old", "guard", "switch", "new"])
def test_items_move_in_stage_move_alone(table: Table, verb: str, stage: str) -> None:
    """In the stages before, processes would not find what has moved."""
    with recording(table.meta.client) as sent:
        result = run(*TO, verb, "--stage", stage, "--deployed", code=2)
    assert f"--stage: must be 'move' to move, verify or finish, got '{stage}'; bring every process" in result.stderr
    assert set(sent.operations) <= {"DescribeTable", "GetItem"}


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


def test_a_table_that_is_missing(table: Table) -> None:
    table.delete()
    said = run(*TO, "plan", code=2).stderr
    assert said.startswith("not begun: table 'Orders': DescribeTable failed: ")
    assert "check the table's name, --region, --profile" in said


def test_ctrl_c_says_what_was_done(table: Table) -> None:
    """Twice: before anything, and when items have moved."""

    def interrupt(_: Body) -> NoReturn:
        raise KeyboardInterrupt

    with answering(table.meta.client, "Scan", interrupt):
        said = run(*TO, "--offline", "--stopped", code=3).stderr
    assert said == "stopped before its end: interrupted; the same command goes on\n"
    with answering(table.meta.client, "DeleteItem", interrupt):
        said = run(*TO, "--offline", "--stopped", code=3).stderr
    assert said == "stopped before its end: interrupted after 6 items read, 0 moved; the same command goes on\n"


def test_what_cannot_move_is_grouped(table: Table) -> None:
    """Each reason once: of the four keys, one is where its item would go."""
    for shard in range(1, 5):
        table.put_item(Item={"pk": f"v.{shard}", "sk": "s0"})
    shown = lines(*TO, "plan", code=1)
    [group] = [line for line in shown if line.startswith("cannot move: pk")]
    [alone] = [line for line in shown if line.startswith("cannot move: {")]
    assert group.startswith("cannot move: pk: neither where the old strategy stores the item nor")
    others = {f"  {{'pk': 'v.{shard}', 'sk': 's0'}}" for shard in range(1, 5) if f"'v.{shard}'" not in alone}
    assert {line for line in shown if line.startswith("  {")} == others
    assert any(line.startswith("Units of one operation on an item of the mean size, ") for line in shown)


def test_what_is_left_offline(table: Table) -> None:
    """Then no process is in a stage."""
    table.put_item(Item={"pk": "k.9", "sk": "s0"})
    table.put_item(Item={"pk": homes({"pk": "k", "sk": "s1"}).new["pk"]["S"], "sk": "s1", "other": True})
    shown = lines(*TO, "--offline", "--stopped", code=1)
    assert shown[-3] == "next: mend what failed"
    assert shown[-2].startswith("      check that --from is the strategy by which the items are stored")
    assert "stage" not in "".join(shown[-2:])


def shard(table: Table) -> None:
    for item in ShardedTable(table, Unsharded()).scan_items():
        ShardedTable(table, CalculatedSuffix("sk", 4)).put_item(Item=item)
        table.delete_item(Key={"pk": item["pk"], "sk": item["sk"]})


def test_many_items_look_like_shards(table: Table) -> None:
    """As where the table is sharded already."""
    shard(table)
    assert lines(*TO, "plan", code=1)[-2].startswith("next: many items look like shards already: check that --from")


def test_what_is_left_is_said(table: Table) -> None:
    conflict = homes({"pk": "k", "sk": "s0"}).new["pk"]["S"]
    table.put_item(Item={"pk": conflict, "sk": "s0", "other": True})
    shown = lines(*TO, "move", "--deployed", code=1)
    assert any(line.startswith("failed: {'pk': 'k', 'sk': 's0'}: Key: the old and the new place") for line in shown)
    assert shown[-3:-1] == ["next: mend what failed", "      bring every process to stage 'move', if not done"]
    assert next_command(shown) == [*TO, "move", "--deployed"]
    assert "7 items verified: 1 are not at their new places" in shown
    assert lines(*TO, "finish", "--deployed", code=1)[-1] == shown[-1]


@pytest.mark.parametrize(
    ("stage", "code", "said", "deployed"),
    [
        ("old", 0, "stage 'old': nothing has begun", None),
        ("guard", 0, "it goes back to 'old'", "Unsharded()"),
        ("switch", 0, "it goes back to 'guard'", "stage='guard'"),
        ("move", 0, "it goes back to 'switch', and no further", "stage='switch'"),
        ("new", 0, "it goes back to 'move', and no further", "stage='move'"),
    ],
)
@pytest.mark.usefixtures("table")
def test_how_far_it_goes_back(stage: str, code: int, said: str, deployed: str | None) -> None:
    shown = lines(*TO, "abort", "--stage", stage, code=code)
    assert shown[0] == said
    assert deployed is None or deployed in shown[1]


def test_only_stubs_are_left(table: Table) -> None:
    """As after a process that was still in stage switch: no failure of the move."""
    lines(*TO, "move", "--deployed")
    ShardedTable(table, resharding("switch")).put_item(Item={"pk": "k", "sk": "new"})
    [said] = [line for line in lines(*TO, "verify", "--deployed", code=1) if "verified" in line]
    assert said.startswith("8 items verified: 1 are not at their new places, all of them stubs")
    assert "7 items verified: all are at their new places" in lines(*TO, "move", "--deployed")


def test_not_to_old_once_new_items_have_stubs(table: Table) -> None:
    ShardedTable(table, resharding("switch")).put_item(Item={"pk": "k", "sk": "new"})
    shown = lines(*TO, "abort", "--stage", "guard", code=1)
    assert shown[0].startswith("new items are at new places")
    assert shown[1].startswith("next: to undo all of it, go on to 'new': shardkit reshard Orders ")
    assert next_command(shown[:2]) == [*TO, "status", "--stage", "guard"]
    assert next_command(shown) == ["--from", json.dumps(ADOPT[1].to_dict()), "--to", "unsharded", "plan", "--static"]


@pytest.mark.parametrize("stage", ["guard", "switch"])
def test_not_where_items_without_a_stub_are_missed(table: Table, stage: str) -> None:
    """In stage move, new items have none."""
    ShardedTable(table, resharding("switch")).put_item(Item={"pk": "k", "sk": "new"})
    ShardedTable(table, resharding("move")).put_item(Item={"pk": "k", "sk": "newer"})
    switch = ShardedTable(table, resharding("switch"))
    for number in range(3):  # stubs without an item, which are not those of other items
        switch.put_item(Item={"pk": "gone", "sk": f"s{number}"})
        switch.delete_item(Key={"pk": "gone", "sk": f"s{number}"})
    shown = lines(*TO, "abort", "--stage", stage, code=1)
    assert shown[0].startswith("1 items are at new places, or have keys that look so, without a stub")


def test_not_where_an_item_is_half_moved(table: Table) -> None:
    """Guard reads a frozen item, and cannot write it."""
    table.put_item(Item={"pk": "k", "sk": "half", MARK: TOKEN})
    assert "or are half moved" in lines(*TO, "abort", "--stage", "switch", code=1)[0]


def test_from_switch_to_guard_with_stubs(table: Table) -> None:
    ShardedTable(table, resharding("switch")).put_item(Item={"pk": "k", "sk": "new"})
    assert lines(*TO, "abort", "--stage", "switch")[0] == "it goes back to 'guard'"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("plan",), "--from: missing; for example --from unsharded --by OrderId --shards 200"),
        (("plan", "--from", "unsharded"), "--to (or --by and --shards): missing"),
        (("plan", *TO, "--to", "unsharded"), "--to: is not supported with --by and --shards"),
        (("plan", "--from", "unsharded", "--by", "sk"), "--by, --shards: give both, or --to"),
        (("plan", "--from", "{"), "--from: '{' is not valid JSON"),
        (TO, "VERB, --offline, --key: give one of them"),
        (("move", "--offline", *TO), "VERB, --offline, --key: give one of them"),
        (("finish", *TO), "table 'Orders' has no shard map (start makes one); if the stages are in the code, bring"),
        (
            ("move", "--static", *TO),
            "--deployed: every process that uses the table must be in stage 'move'; add --deployed",
        ),
        (("--offline", *TO), "--stopped: all services that use the table must be stopped"),
        (("--key", "k", "--shards", "8"), "create(strategy), deploy ShardMap() to every process, and add --deployed"),
        (("advance", *TO), "table 'Orders' has no shard map (start makes one); if the stages are in the code, give"),
        (("status",), "table 'Orders' has no shard map (start makes one)"),
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


# -- with a shard map


@pytest.fixture
def moment(table: Table, monkeypatch: pytest.MonkeyPatch) -> Moment:
    """The clock of the map. To wait takes no time."""
    moment = Moment()
    monkeypatch.setattr(COMMAND, "ShardMapAdmin", moment.admin)
    monkeypatch.setattr(COMMAND, "Mapped", partial(COMMAND.Mapped, sleep=moment.wait, clock=lambda: moment.now))
    return moment


@pytest.mark.usefixtures("moment")
def test_all_the_way_by_the_map(table: Table) -> None:
    """Two deployments; then the map leads every process. Each command is the one that the command before printed."""
    orders = ShardedTable(table, ShardMap())
    shown = lines(*TO, "start")
    assert [shown[0], shown[2]] == [
        "the shard map was created: Unsharded()",
        "      deploy to every process: ShardMap(), in place of Unsharded()",
    ]
    stages = []
    while "no move is under way" not in shown[-1]:
        command = next_command(shown[:-1] if "move" in shown[-2] and "finish" in shown[-1] else shown)
        shown = lines(*command, "--wait")
        stages += [line.split()[1] for line in shown if line.startswith("stage")]
        if stages == ["'guard'", "'switch'", "'move'"] and shown[0].startswith("stage"):
            assert "6 items verified: 6 are not at their new places" in lines(*next_command(shown[:2]), code=1)[0]
    assert "6 items verified: all are at their new places" in shown  # by finish, which goes on to the last stage
    assert stages == ["'guard'", "'switch'", "'move'", "'new'"]
    assert sorted(str(item["sk"]) for item in orders.scan_items()) == [f"s{number}" for number in range(6)]
    assert {item["pk"] for item in table.scan()["Items"]} <= {"shardkit:map", *(f"k.{shard}" for shard in range(1, 5))}
    assert lines("status")[0] == f"stage 'new' by the shard map: {ADOPT[1]!r}"
    for verb in ("move", "verify"):
        refused = run(verb, code=3).stderr
        assert "must be 'move', but no move is under way: the shard map of table 'Orders' is at 'new'" in refused
        assert next_command([refused]) == ["status"]
    again = ("--by", "sk", "--shards", "8", "start", "--deployed")
    early = run(*again, code=3).stderr
    assert "cannot go from 'new' to 'guard' yet" in early
    assert next_command([early]) == [*again, "--wait"]
    assert lines(*again, "--wait")[0].startswith("stage 'guard'")


@pytest.mark.parametrize("shards", ["4", "9"])
def test_no_map_with_a_strategy_by_which_the_items_are_not_stored(moment: Moment, table: Table, shards: str) -> None:
    """Also where the new strategy is the one by which they are stored."""
    shard(table)
    refused = run(*TO[:-1], shards, "start", code=2).stderr
    assert re.search(r"--from: by Unsharded\(\), no item is stored as \{'pk': 'k\.\d', 'sk': 's\d'\}; give", refused)
    assert next_command([refused]) == [*TO[:-1], shards, "plan"]
    assert not moment.admin(table).exists()
    # From 4 to 8 shards, some items keep their place.
    old = ("--from", json.dumps(CalculatedSuffix("sk", 4).to_dict()))
    assert lines(*old, *TO[2:-1], "8", "start")[0].startswith("the shard map was created: CalculatedSuffix(")


def test_a_map_that_is_taken_away(moment: Moment, table: Table) -> None:
    lines(*TO, "start")
    wrong = ("--from", '{"type": "CalculatedSuffix", "by": "sk", "shards": 2}', *TO[2:])
    command = next_command([run(*wrong, "start", "--deployed", code=2).stderr])
    assert command == [*wrong, "abort"]
    shown = lines(*command)
    assert shown[:2] == ["nothing to abort: no move is under way", "stage 'old' by the shard map: Unsharded()"]
    assert moment.admin(table).exists()
    command = next_command(shown)
    assert command == [*wrong, "abort", "--deployed"]
    assert lines(*command) == ["the shard map was deleted: calls with ShardMap() fail, all others go on"]
    assert not moment.admin(table).exists()
    # Once a move has begun, the map stays.
    lines(*TO, "start")
    lines(*TO, "start", "--deployed")
    for said in ("from 'guard' back to 'old'", "nothing to abort: no move is under way"):
        assert lines("abort", "--deployed")[0] == said
    assert moment.admin(table).exists()


def test_too_early(moment: Moment) -> None:
    """Nothing is changed, and it says when to come again."""
    lines(*TO, "start")
    assert lines("status")[1] == "next: deploy to every process, if not done: ShardMap()"
    assert next_command(lines(*TO, "status")) == [*TO, "start", "--deployed"]
    assert lines(*TO, "start", "--deployed")[0].startswith("stage 'guard'")
    result = run(*TO, "advance", code=3)
    assert "cannot go from 'guard' to 'switch' yet" in result.stderr
    assert " seconds, or let it wait: shardkit reshard Orders " in result.stderr
    assert next_command([result.stderr]) == [*TO, "advance", "--wait"]
    told = json.loads(run("status", "--json").stdout)
    assert (told["stage"], told["exit_code"]) == ("guard", 0)
    assert 600 < told["wait"] < 640
    assert told["next"][0].startswith("wait 10:3")
    moment.wait(700)
    assert lines("advance")[0].startswith("stage 'switch'")


def test_what_it_waits_for_is_said(moment: Moment) -> None:
    """At once, and then each minute."""
    lines(*TO, "start")
    lines(*TO, "start", "--deployed")
    moment.wait(500)
    result = click_testing.CliRunner().invoke(COMMAND.reshard, ["Orders", "advance", "--wait", *PACE])
    assert result.stdout.startswith("stage 'switch'"), result.output
    said = re.findall(r"^waiting until \d\d:\d\d:\d\d: processes leave 'old', (.+) left$", result.stderr, re.MULTILINE)
    assert said == ["2:11 min", "1:11 min", "11.0 s"]


@pytest.mark.usefixtures("moment")
def test_the_time_of_a_verification_is_without_the_wait() -> None:
    """It begins when the wait has ended, and so is shown at once."""
    lines(*TO, "start")
    lines(*TO, "start", "--deployed")
    for _ in range(2):
        lines("advance", "--wait")
    lines("move")
    result = click_testing.CliRunner().invoke(COMMAND.reshard, ["Orders", "finish", "--wait", *PACE])
    assert result.exit_code == 0, result.output
    *waiting, verified = result.stderr.splitlines()
    assert {line.partition(" until ")[0] for line in waiting} == {"waiting"}
    assert re.fullmatch(r"6 items verified, 0 left, \d\.\d s", verified)


def test_what_the_map_refuses(moment: Moment) -> None:
    lines(*TO, "start")
    moment.wait(700)
    assert "--deployed: every process that uses the table must have ShardMap()" in run(*TO, "start", code=2).stderr
    static = run(*TO, "start", "--static", "--deployed", code=2).stderr
    assert static == "not begun: --static: the table has a shard map, and the stage is in it; omit --static\n"
    assert "--to: missing" in run("start", "--deployed", code=2).stderr
    wrong = ("--from", '{"type": "CalculatedSuffix", "by": "sk", "shards": 2}', *TO[2:])
    assert "--from, --to: the shard map has Unsharded()" in run(*wrong, "start", "--deployed", code=2).stderr
    lines(*TO, "start", "--deployed")
    assert "--from, --to: the shard map has Unsharded(), and moves to" in run("plan", *TO[:5], "9", code=2).stderr
    for given in (("--offline", "--stopped"), ("start", "--deployed")):
        refused = run(*TO, *given, code=2).stderr
        assert next_command([refused]) == [*TO, "advance", "--wait"], refused
    for verb in ("move", "verify", "finish"):
        refused = run(verb, code=3).stderr
        assert "stage: must be 'move', but the shard map of table 'Orders' is at 'guard'" in refused
        assert next_command([refused]) == ["advance", "--wait"]


def test_it_goes_back_by_the_map(moment: Moment) -> None:
    lines(*TO, "start")
    lines(*TO, "start", "--deployed", "--wait")
    shown = lines("abort")
    assert shown[:2] == ["from 'guard' back to 'old'", "stage 'old' by the shard map: Unsharded()"]
    assert shown[2].startswith(f"the move to {ADOPT[1]!r} was aborted")
    assert shown[2].endswith("; the map stays, and can no longer be deleted")
    assert lines("status") == shown[1:]
    assert lines("abort") == ["nothing to abort: no move is under way", shown[1], shown[3]]
    refused = run("advance", code=2).stderr
    assert "advance: no move is under way" in refused
    assert "must be 'move'" in run("move", code=3).stderr
    assert next_command([refused]) == next_command(shown) == ["start", "--deployed"]
    assert lines("start", "--deployed")[0].startswith("stage 'guard'")
    lines("advance", "--wait")
    shown = lines("abort", "--wait")
    assert shown[0] == "from 'switch' back to 'guard'"
    assert shown[2].startswith(
        "no further: cannot go back from 'guard' to 'old', because the move has been in 'switch'"
    )
    assert lines("abort", "--wait", code=1)[1].startswith("no further: ")


def test_finish_verifies_first(moment: Moment, table: Table) -> None:
    lines(*TO, "start")
    moment.wait(700)
    lines(*TO, "start", "--deployed", "--wait")
    lines("advance", "--wait")
    lines("advance", "--wait")
    assert next_command([run("advance", code=2).stderr]) == ["move"]
    early = run("finish", code=3).stderr
    assert "not every process has followed" in early
    assert next_command([early]) == ["finish", "--wait"]
    began = moment.now
    shown = lines("finish", "--wait", code=1)
    assert moment.now == began  # it does not wait for what is left
    assert "6 items verified: 6 are not at their new places" in shown
    assert shown[-1].startswith("next: shardkit reshard Orders ")  # nothing failed that could be mended
    assert next_command(shown) == ["move"]
    assert json.loads(run("status", "--json").stdout)["stage"] == "move"
    assert next_command(lines("move")) == ["finish", "--wait"]
    assert "--stage: the table has a shard map" in run("move", "--stage", "move", code=2).stderr
    told = json.loads(run("finish", "--wait", "--json").stdout)
    assert (told["verified"], told["left"], told["stage"]) == (6, 0, "new")


def test_finish_verifies_again_after_the_wait(moment: Moment, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then a process may be in stage switch."""

    def leave_a_stub(seconds: float) -> None:
        table.put_item(Item={"pk": "k", "sk": "late", MARK: "stub"})
        moment.wait(seconds)

    lines(*TO, "start")
    lines(*TO, "start", "--deployed")
    for _ in range(2):
        lines("advance", "--wait")
    lines("move")
    monkeypatch.setattr(COMMAND, "Mapped", partial(COMMAND.Mapped, sleep=leave_a_stub))
    assert "1 are not at their new places, all of them stubs" in "".join(lines("finish", "--wait", code=1))


def test_one_hot_key_grows(moment: Moment, table: Table) -> None:
    """Without a mover: two waits, and then new items use all shards. What begins it needs ``ShardMap()`` everywhere."""
    strategy = CalculatedSuffix("sk", 2)
    orders = ShardedTable(table, strategy)
    for item in orders.scan_items():
        table.delete_item(Key={"pk": item["pk"], "sk": item["sk"]})
    for number in range(4):
        orders.put_item(Item={"pk": "hot", "sk": f"s{number}"})
    moment.admin(table).create(strategy)
    moment.wait(700)
    refused = run("--key", "hot", "--shards", "8", "--wait", code=2).stderr
    assert "--deployed: every process that uses the table must have ShardMap() as its strategy" in refused
    assert moment.admin(table).read().stage == "old"
    shown = lines("--key", "hot", "--shards", "8", "--deployed", code=3)
    assert shown[0].startswith("key 'hot' does not have its new shards yet: the map is at 'guard'")
    assert sorted(next_command(shown)) == sorted(["--key", "hot", "--shards", "8", "--wait"])
    shown = lines("--key", "hot", "--shards", "8", "--wait")
    assert shown[0] == "key 'hot' has 8 shards: new items use all of them, and reads find all items"
    assert shown[1] == "next: nothing: no item has to move, and the table may stay so"
    assert shown[1:] == lines("status")[2:]
    grown = ShardedTable(table, ShardMap())
    for number in range(4, 30):
        grown.put_item(Item={"pk": "hot", "sk": f"s{number}"})
    assert len({item["pk"] for item in table.scan()["Items"]}) > 5
    assert len(list(grown.query_items(KeyConditionExpression=Key("pk").eq("hot")))) == 30
    assert "--shards: missing" in run("--key", "hot", code=2).stderr
    # Another key grows after the commands that are named.
    warm = ("--key", "warm", "--shards", "3")
    refused = run(*warm, code=3).stderr
    assert "not begun: --key: another move is under way, in stage 'move', to CalculatedSuffix(" in refused
    move, finish = refused.partition("end it first: ")[2].split(", then ")
    for command in (move, finish):
        lines(*next_command([command]))
    early = run(*warm, "--deployed", code=3).stderr
    assert next_command([early]) == [*warm, "--deployed", "--wait"]
    assert "key 'warm' has 3 shards" in lines(*next_command([early]))[0]


def test_strategies_as_json(table: Table) -> None:
    ShardedTable(table, CalculatedSuffix("sk", 2)).put_item(Item={"pk": "d", "sk": "s0"})
    table.delete_item(Key={"pk": "k", "sk": "s0"})
    old, new = (json.dumps(CalculatedSuffix("sk", shards).to_dict()) for shards in (2, 6))
    assert lines("plan", "--from", old, "--to", new, code=1)[0].startswith("6 items read: ")
