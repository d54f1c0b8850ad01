"""docs/reference/iam.md: its policies allow what shardkit sends, as recorded, and no action that it does not need."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore import xform_name
from botocore.stub import ANY, Stubber
from rich.console import Console

from shardkit import (
    CalculatedSuffix,
    RandomSuffix,
    RangeSuffix,
    ShardedTable,
    ShardMapAdmin,
    SharedBudget,
    Strategy,
    TimeSeries,
    Unsharded,
    backfill_index,
    bulk_load,
    import_items,
    open_source,
    passes,
    stage_items,
)
from shardkit.capacity import CapacityMeter, HeatReport
from shardkit.dynamodb.encode import to_wire_item
from tests.functional.test_docs import DOCS, FENCE
from tests.functional.test_tuner import Fleet
from tests.support import staged
from tests.support.beats import Beats
from tests.support.fakes import timeless
from tests.support.mapped import Moment
from tests.support.permissions import (
    CALLS,
    ORDER,
    PAGE,
    POLICIES,
    STRATEGIES,
    TABLE,
    USER,
    Access,
    allows,
    like,
    listed,
)
from tests.support.recorder import recording
from tests.support.series import CLICKS
from tests.support.tables import GlobalIndex, LocalIndex, make_table
from tests.support.wire import Body

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

PARTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def accesses(operation: str, body: Body) -> Iterator[Access]:
    """Give what a request needs; a transaction needs the action of each of its parts."""
    match operation:
        case "BatchGetItem":
            [(_, asked)] = body["RequestItems"].items()
            yield Access(operation, keys=frozenset(key["User"]["S"] for key in asked["Keys"]))
        case "BatchWriteItem":
            [(_, writes)] = body["RequestItems"].items()
            items = [write.get("PutRequest", {}).get("Item") or write["DeleteRequest"]["Key"] for write in writes]
            yield Access(operation, keys=frozenset(item["User"]["S"] for item in items))
        case "TransactWriteItems" | "TransactGetItems":
            for entry in body["TransactItems"]:
                [(kind, part)] = entry.items()
                item = part.get("Item") or part["Key"]
                yield Access(PARTS.get(kind, "GetItem"), keys=frozenset([item["User"]["S"]]))
        case "Query":
            found = re.search(r"(#\w+) = (:\w+)", body["KeyConditionExpression"])
            assert found is not None
            assert body["ExpressionAttributeNames"][found[1]] == "User"
            resource = f"{TABLE}/index/{body['IndexName']}" if "IndexName" in body else TABLE
            yield Access(operation, resource, frozenset([body["ExpressionAttributeValues"][found[2]]["S"]]))
        case "Scan" | "DescribeContributorInsights" | "DescribeTable":
            yield Access(operation, f"{TABLE}/index/{body['IndexName']}" if "IndexName" in body else TABLE)
        case _:
            item = body.get("Item") or body["Key"]
            yield Access(operation, keys=frozenset([item["User"]["S"]]))


def sharded(resource: DynamoDBServiceResource, strategy: Strategy) -> ShardedTable:
    make_table(
        resource, ("User", "S"), ("OrderId", "S"), name="Orders", local_indexes=[LocalIndex("ByTotal", ("Total", "N"))]
    )
    orders = ShardedTable(resource.Table("Orders"), strategy)
    timeless(orders)
    return orders


REPORT = ("StartTime", "EndTime", "Period", "MaxContributorCount", "OrderBy")


def sent(resource: DynamoDBServiceResource, *roles: str) -> list[Access]:
    """Give what the roles' calls need, with each of the strategies."""
    found = []
    for strategy in STRATEGIES:
        orders = sharded(resource, strategy)
        with recording(orders.meta.client) as recorder:
            for role in roles:
                CALLS[role](orders)
        found += [access for operation, body in recorder.calls for access in accesses(operation, body)]
        orders.delete()
    return found


@pytest.mark.parametrize("role", CALLS)
def test_a_policy_allows_what_is_sent_and_no_other_action(role: str, resource: DynamoDBServiceResource) -> None:
    asked = sent(resource, role)
    assert [access for access in asked if not allows(POLICIES[role], access)] == []
    [statement] = POLICIES[role]["Statement"]
    assert {f"dynamodb:{access.action}" for access in asked} == set(listed(statement["Action"]))


def test_a_report_of_heat_and_a_tuner(resource: DynamoDBServiceResource) -> None:
    fleet = Fleet(resource)
    where = {fleet.control.name: f"{TABLE.removesuffix('Orders')}Control", fleet.table.name: TABLE}

    def check(name: str, asked: list[Access]) -> None:
        assert [access for access in asked if not allows(POLICIES[name], access)] == []
        listed_ = {(one["Resource"], action) for one in POLICIES[name]["Statement"] for action in listed(one["Action"])}
        assert {(access.resource, f"dynamodb:{access.action}") for access in asked} == listed_

    with recording(fleet.control.meta.client) as recorder:
        heat = HeatReport(resource.Table(fleet.control.name))
        with CapacityMeter(heat=heat).attach(fleet.orders):
            fleet.orders.put_item(Item={"pk": "a", "sk": "1"})
            heat.flush()
    asked = [(operation, str(body["TableName"])) for operation, body in recorder.requests]
    check("HeatReport", [Access(one, where[table]) for one, table in asked if table == fleet.control.name])
    with recording(fleet.control.meta.client) as recorder:
        fleet.control = resource.Table(fleet.control.name)
        fleet.tuner = fleet.another(apply=True)
        fleet.minutes(12)
    asked = [(operation, str(body["TableName"])) for operation, body in recorder.requests]
    describe = [Access("DescribeTable", TABLE)]  # by the command
    check("Tuner", [*describe, *(Access(operation, where[table]) for operation, table in asked)])


def test_a_shared_budget(resource: DynamoDBServiceResource) -> None:
    budgets = make_table(resource, name="Budgets")
    beats = Beats()
    with recording(budgets.meta.client) as recorder:
        shared = SharedBudget(budgets, "Orders", 100.0, clock=beats.read, start=beats.start)
        rate = shared.shared_rate("write", "write_units")
        while rate.ready(beats.now) > beats.now:
            beats.sleep(1.0)
        shared.close()
    where = f"{TABLE.removesuffix('Orders')}Budgets"
    asked = [Access(operation, where) for operation, body in recorder.requests if body["TableName"] == "Budgets"]
    assert len(asked) == len(recorder.requests)
    assert all(allows(POLICIES["SharedBudget"], access) for access in asked)
    [statement] = POLICIES["SharedBudget"]["Statement"]
    assert {f"dynamodb:{access.action}" for access in asked} == set(listed(statement["Action"]))


def test_plans_of_a_time_series(resource: DynamoDBServiceResource) -> None:
    """Their policy allows what each process sends to the control table, under the key of its own series only."""
    make_table(resource, ("pk", "S"), ("sk", "S"), name="Control")
    settings: dict[str, Any] = {"at": "Time", "period": "day", "schema": CLICKS, "missing": "create"}
    now = datetime(2014, 7, 9, tzinfo=UTC)
    for name in ("clicks", "visits"):
        series = TimeSeries(resource, name, **settings, plans="Control", clock=lambda: now)
        with recording(resource.meta.client) as recorder:
            series.put_item(Item={"Customer": "c1", "Time": "2014-07-09T10:00:00Z"})
        sent = [(operation, body) for operation, body in recorder.requests if body.get("TableName") == "Control"]
        where = f"{TABLE.removesuffix('Orders')}Control"
        asked = []
        for operation, body in sent:
            named = body.get("Item", {}).get("pk") or body.get("ExpressionAttributeValues", {}).get(":series")
            asked.append(Access(operation, where, frozenset() if named is None else frozenset([named["S"]])))
        assert {access.action for access in asked} == {"DescribeTable", "PutItem", "Query"}
        refused = {access.action for access in asked if not allows(POLICIES["Plans"], access)}
        assert refused == (set() if name == "clicks" else {"PutItem", "Query"})


def test_services_are_kept_from_the_map(resource: DynamoDBServiceResource) -> None:
    """The statement of docs/reference/threat-model.md has what an admin sends, and each action that writes an item."""
    (block,) = [
        one
        for one in FENCE.finditer((DOCS / "reference" / "threat-model.md").read_text("utf-8"))
        if one["language"] == "json"
    ]
    statement = json.loads(block["text"])
    assert (statement["Effect"], statement["Resource"]) == ("Deny", TABLE)
    denied = statement["Condition"]["ForAnyValue:StringEquals"]["dynamodb:LeadingKeys"]
    orders = make_table(resource, ("User", "S"), ("OrderId", "S"))
    with recording(orders.meta.client) as recorder:
        ShardMapAdmin(orders).create(Unsharded())
    written = [
        access for operation, body in recorder.requests if "Item" in body for access in accesses(operation, body)
    ]
    assert {(f"dynamodb:{access.action}", *access.keys) for access in written} == {("dynamodb:PutItem", *denied)}
    writing = {f"dynamodb:{kind}Item" for kind in ("Put", "Update", "Delete", "BatchWrite")}
    assert {*statement["Action"]} == writing | {f"dynamodb:PartiQL{kind}" for kind in ("Insert", "Update", "Delete")}


def test_a_look_at_a_live_table(resource: DynamoDBServiceResource, boto3_session: boto3.Session) -> None:
    """Of the table and of an index: a sample, and the reports of Contributor Insights."""
    live: Any = pytest.importorskip("shardkit.cli.live_table")
    heat: Any = pytest.importorskip("shardkit.cli.heat_live")
    throttled: Any = pytest.importorskip("shardkit.cli.throttled")
    client: Any = sharded(resource, STRATEGIES[0]).meta.client
    cloudwatch = boto3_session.client("cloudwatch")
    rule = "DynamoDBContributorInsights-PKT-Orders-1576629651520"
    enabled = {"ContributorInsightsStatus": "ENABLED", "ContributorInsightsRuleList": [rule]}
    rates = {"write_units": None, "read_units": None, "most_units": 1000.0, "rate": 1e9}
    asked: list[Access] = []

    def describe_insights(params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:  # which moto does not know
        asked.extend(accesses("DescribeContributorInsights", json.loads(params["body"])))
        return SimpleNamespace(status_code=200), enabled

    client.meta.events.register("before-call.dynamodb.DescribeContributorInsights", describe_insights)
    with recording(client) as recorder, Stubber(cloudwatch) as stub:
        for index in (None, "ByTotal"):
            found = replace(live.describe(client, "Orders", index), bytes=1000)
            heat.heat_of_sample(found, None, None, Console(quiet=True), top=1, progress=False, **rates)()
            stub.add_response("get_insight_rule_report", {}, {**dict.fromkeys(REPORT, ANY), "RuleName": rule})
            throttled.read_throttled(
                client, cloudwatch, "Orders", index, until=datetime.now(UTC), last=timedelta(hours=1), top=1
            )
            arn = f"arn:aws:cloudwatch:us-east-1:123456789012:insight-rule/{rule}"
            asked.append(Access("GetInsightRuleReport", arn, service="cloudwatch"))
    asked += [access for operation, body in recorder.requests for access in accesses(operation, body)]
    assert [access for access in asked if not allows(POLICIES["Looker"], access)] == []
    actions = {action for statement in POLICIES["Looker"]["Statement"] for action in listed(statement["Action"])}
    assert {f"{access.service}:{access.action}" for access in asked} == actions


def asked_of_s3(client: Any) -> list[Access]:
    """Return what the client's requests need, as they are sent."""
    asked: list[Access] = []

    def ask(params: dict[str, Any], model: Any, **_: Any) -> None:
        action = {"HeadObject": "GetObject", "ListObjectsV2": "ListBucket"}.get(model.name, model.name)
        bucket = f"arn:aws:s3:::{params['Bucket']}"
        asked.append(Access(action, f"{bucket}/{params['Key']}" if "Key" in params else bucket, service="s3"))

    client.meta.events.register("provide-client-params.s3.*", ask)
    return asked


def test_a_stage(resource: DynamoDBServiceResource, boto3_session: boto3.Session, tmp_path: Path) -> None:
    """Also one that finds itself complete."""
    s3 = boto3_session.client("s3")
    s3.create_bucket(Bucket="bucket")
    path = tmp_path / "orders.jsonl"
    path.write_text('{"User": "user-1", "OrderId": "A1"}', encoding="utf-8")
    orders = sharded(resource, STRATEGIES[0])
    asked = asked_of_s3(s3)
    with recording(orders.meta.client) as recorder:
        for _ in range(2):
            stage_items(open_source(str(path)), staged.WHERE, table=orders, s3=s3, work_dir=tmp_path)
    asked += [access for operation, body in recorder.calls for access in accesses(operation, body)]
    assert [access for access in asked if not allows(POLICIES["Stager"], access)] == []
    actions = {action for statement in POLICIES["Stager"]["Statement"] for action in listed(statement["Action"])}
    assert {f"{access.service}:{access.action}" for access in asked} == actions


Answers = list[tuple[str, str | dict[str, Any]]]
ARNS = {"DescribeImport": staged.IMPORT_ARN, "DescribeBulkOperation": staged.PUT_ARN, "ListBulkOperations": "*"}
OF_THE_IMPORT = {
    "s3:PutObject",
    *(f"logs:{what}" for what in ("CreateLogGroup", "CreateLogStream", "DescribeLogGroups", "DescribeLogStreams")),
    *(f"logs:{what}" for what in ("PutLogEvents", "PutRetentionPolicy")),
}
"""What an import itself needs, according to the Developer Guide; its requests are AWS's own."""


@staged.has_bulk_put
def test_an_import(resource: DynamoDBServiceResource, boto3_session: boto3.Session) -> None:
    """Into a new table and into an existing one; found again, each is waited for."""
    client: Any = resource.meta.client
    s3 = boto3_session.client("s3")
    staged.put_stage(s3, [to_wire_item({"Date": "2014-07-09", "OrderId": "A1"})])
    done = {"ProcessedItemCount": 1}
    new: Answers = [
        ("DescribeTable", "ResourceNotFoundException"),
        ("ImportTable", staged.described_import()),
        ("DescribeImport", staged.described_import("COMPLETED", ImportedItemCount=1, **done)),
    ]
    existing: Answers = [
        ("DescribeTable", staged.described_table()),
        ("ListImports", {"ImportSummaryList": []}),
        ("ListBulkOperations", {"BulkOperationsSummaryList": []}),
        ("StartBulkPutItems", staged.described_put()),
        ("DescribeBulkOperation", staged.described_put("COMPLETED", **done)),
    ]
    asked = asked_of_s3(s3)
    for answers in (new, existing):
        with Stubber(client) as stub:
            for operation, answer in answers:
                if isinstance(answer, str):
                    stub.add_client_error(xform_name(operation), answer)
                else:
                    stub.add_response(xform_name(operation), answer)
                asked.append(Access(operation, ARNS.get(operation, TABLE)))
            import_items(staged.WHERE, table="Orders", client=client, s3=s3, sleep=lambda _: None)
    assert [access for access in asked if not allows(POLICIES["Importer"], access)] == []
    actions = {action for statement in POLICIES["Importer"]["Statement"] for action in listed(statement["Action"])}
    assert {f"{access.service}:{access.action}" for access in asked} == actions - OF_THE_IMPORT
    assert actions >= OF_THE_IMPORT


def test_passes(resource: DynamoDBServiceResource) -> None:
    indexes = [GlobalIndex("by-total", ("Total", "N"))]
    raw = make_table(resource, ("User", "S"), ("OrderId", "S"), global_indexes=indexes, name="Orders")
    orders = ShardedTable(raw, CalculatedSuffix("OrderId", 3))
    bulk_load(orders, [{"User": USER, "OrderId": f"A{number}", "Total": number} for number in range(4)])
    fast: Any = {"read_units": None, "segments": 2}
    with recording(orders.meta.client) as recorder:
        passes.count(ShardedTable(raw, CalculatedSuffix("OrderId", 3)), index="by-total", **fast)
        passes.update(orders, lambda item: {**item, "Paid": 1}, index="by-total", write_units="50%", **fast)
        passes.delete(orders, where=lambda item: item["OrderId"] == "A0", dry_run=True, **fast)
        passes.delete(orders, where=lambda item: item["OrderId"] == "A0", **fast)
    asked = [access for operation, body in recorder.calls for access in accesses(operation, body)]
    assert [access for access in asked if not allows(POLICIES["Changer"], access)] == []
    [statement] = POLICIES["Changer"]["Statement"]
    assert {f"dynamodb:{access.action}" for access in asked} == set(statement["Action"])
    with recording(orders.meta.client) as recorder:
        assert passes.compare(orders, ShardedTable(raw, CalculatedSuffix("OrderId", 3)), **fast).equal
    asked = [access for operation, body in recorder.calls for access in accesses(operation, body)]
    assert [access for access in asked if not allows(POLICIES["Reader"], access)] == []


def test_a_backfill(resource: DynamoDBServiceResource) -> None:
    """Without UpdateItem, it can verify."""
    index = GlobalIndex("by-status", ("ix", "S"))
    table = make_table(resource, ("User", "S"), ("OrderId", "S"), global_indexes=[index], name="Orders")
    table.put_item(Item={**ORDER, "Status": "open"})
    by_status = CalculatedSuffix("OrderId", shards=2, source="Status")
    orders = ShardedTable(table, Unsharded(), indexes={"by-status": by_status})
    with recording(table.meta.client) as recorder:
        backfill_index(orders, "by-status", write_units="10%")
        whole = len(recorder.calls)
        backfill_index(orders, "by-status", verify_only=True)
    asked = [access for operation, body in recorder.calls for access in accesses(operation, body)]
    assert [access for access in asked if not allows(POLICIES["Backfill"], access)] == []
    [statement] = POLICIES["Backfill"]["Statement"]
    assert {f"dynamodb:{access.action}" for access in asked} == set(statement["Action"])
    assert {access.action for access in asked[whole:]} == {"Scan"}


def test_a_move(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each verb sends what its row of the table says, and the policy has all of it."""
    click_testing: Any = pytest.importorskip("click.testing")
    command: Any = importlib.import_module("shardkit.cli.reshard")
    moment = Moment()
    monkeypatch.setattr("shardkit.cli.command.Aws.dynamodb", lambda *_: resource)
    monkeypatch.setattr(command, "ShardMapAdmin", moment.admin)
    table = make_table(resource, ("User", "S"), ("OrderId", "S"), name="Orders")
    table.put_item(Item=ORDER)

    def actions(*given: str) -> set[str]:
        moment.wait(700)
        with recording(table.meta.client) as recorder:
            result = click_testing.CliRunner().invoke(
                command.reshard, ["Orders", *given, "--no-progress", "--workers", "1"]
            )
        assert result.exit_code == (3 if "--key" in given else 0), result.output  # it has more steps
        asked = [access for operation, body in recorder.requests for access in accesses(operation, body)]
        assert [access for access in asked if not allows(POLICIES["Move"], access)] == []
        return {access.action for access in asked}

    to = ("--from", "unsharded", "--by", "OrderId", "--shards", "4")
    sent: dict[str, set[str]] = {"plan": actions("plan", *to), "start": actions("start", *to)}
    sent["abort --deployed"] = actions("abort", "--deployed")
    actions("start", *to)
    sent["start"] |= actions("start", "--deployed", *to)
    sent["abort"] = actions("abort")
    actions("start", "--deployed", *to)
    sent |= {"advance": actions("advance"), "status": actions("status")}
    actions("advance")
    sent |= {verb: actions(verb) for verb in ("move", "verify", "finish")}
    sent["--key"] = actions("--key", USER, "--shards", "8", "--deployed")
    rows = re.search(r"^\| verb \| actions \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert rows is not None
    told: dict[str, set[str]] = {}
    for line in rows[0].strip().splitlines()[2:]:
        verbs, named = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split(" | "))
        told |= {verb: set(named) for verb in verbs}
    whole = {action.removeprefix("dynamodb:") for action in POLICIES["Move"]["Statement"][0]["Action"]}
    assert told.pop("--offline") == set()
    assert {verb: named or whole for verb, named in told.items()} == sent


def test_a_tenant_reaches_its_own_keys_only(resource: DynamoDBServiceResource) -> None:
    policy = POLICIES["OwnItems"]
    asked = [access for access in sent(resource, "Reader", "Writer", "Loader") if access.resource == TABLE]
    assert {access.action for access in asked if not allows(policy, access)} == {"Scan"}
    actions = {f"dynamodb:{access.action}" for access in asked}
    assert actions - {"dynamodb:Scan", "dynamodb:DescribeTable"} == set(policy["Statement"][0]["Action"])
    for other in ("user-10", "user", "user-2"):
        assert {access.action for access in asked if allows(policy, access, tenant=other)} == {"DescribeTable"}
    assert not allows(policy, Access("BatchWriteItem", keys=frozenset(["user-1#1", "user-2#1"])))


def test_a_scan_would_be_let_in() -> None:
    """Why the page says never to add it."""
    first, second = POLICIES["OwnItems"]["Statement"]
    assert not allows(POLICIES["OwnItems"], Access("Scan"))
    assert allows({"Statement": [{**first, "Action": [*first["Action"], "dynamodb:Scan"]}, second]}, Access("Scan"))


def stored(name: str, separator: str) -> list[str]:
    return [str(key) for key in CalculatedSuffix("OrderId", shards=20, separator=separator).physical_keys(name)]


def test_what_a_pattern_lets_in() -> None:
    rows = re.search(r"^\| pattern \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert rows is not None
    tested = set()
    for line in rows[0].strip().splitlines()[2:]:
        cell, shards, besides = [part.strip() for part in line.strip("|").split(" | ")]
        separator = "#" if "separator" in cell else "."
        own = stored(USER, separator)
        patterns = re.findall(r"`(user[^`]*)`", cell) or own
        let_in = [any(like(key, pattern) for pattern in patterns) for key in own]
        assert (all(let_in), any(let_in)) == {"all shards": (True, True), "nothing": (False, False)}[shards]
        for other in re.findall(r"`(user[^`]*[^.])`", besides):
            assert any(like(other, pattern) for pattern in patterns), other
            tested.add(other)
        if besides.startswith("nothing"):
            for name in ("user-10", "user-1.admin", "user-1a", "user"):
                assert not any(like(key, pattern) for key in stored(name, separator) for pattern in patterns)
    assert tested == {"user-1", "user-10.7", "user-1a.7", "user-1.admin.7", "user-1.ab", "user-1..7"}


def test_the_stored_keys_of_each_strategy() -> None:
    assert CalculatedSuffix("OrderId", shards=20).physical_keys(USER)[::19] == ("user-1.1", "user-1.20")
    assert RandomSuffix(20).physical_keys(USER) == CalculatedSuffix("OrderId", shards=20).physical_keys(USER)
    assert RangeSuffix("OrderId", ["F", "N"]).physical_keys(USER) == ("user-1.x", "user-1.x46", "user-1.x4e")
    assert CalculatedSuffix("OrderId", shards={"another": 5}).physical_keys(USER) == ("user-1.1",)
    assert Unsharded().physical_keys(USER) == (USER,)
