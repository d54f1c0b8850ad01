"""``shardkit timeseries`` and the scenario of a time series: what they show, do, and exit with."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardkit.capacity import Trace, TraceRow
from shardkit.cli import build_app
from shardkit.partitions import plan_series

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

click_testing = pytest.importorskip("click.testing")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONFIG = EXAMPLES / "timeseries.toml"
SCENARIO = EXAMPLES / "clicks.toml"


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), args, env={"COLUMNS": "200"})


@pytest.mark.usefixtures("resource")
def test_plan() -> None:
    result = invoke("timeseries", "plan", str(CONFIG), "--now", "2014-07-31T12:00:00")
    assert result.exit_code == 0
    assert result.stdout == (
        "clicks at 2014-07-31 12:00 UTC: 2 steps\n"
        "  create           clicks-2014-07\n"
        "    for 2014-07-01 00:00 UTC: 5,000 read and 8,000 write units a second\n"
        "    costs 5,000 read and 8,000 write units a second, $4,270.50 a month\n"
        "  create           clicks-2014-08\n"
        "    for 2014-08-01 00:00 UTC: 5,000 read and 8,000 write units a second\n"
        "    costs 5,000 read and 8,000 write units a second, $4,270.50 a month\n"
        "  in all\n"
        "    costs 10,000 read and 16,000 write units a second, $8,541.00 a month\n"
    )
    planned = json.loads(invoke("timeseries", "plan", str(CONFIG), "--now", "2014-07-31T00:00:00Z", "--json").stdout)
    assert [step["table"] for step in planned["steps"]] == ["clicks-2014-07", "clicks-2014-08"]


@pytest.mark.usefixtures("resource")
def test_throughput_of_an_index(tmp_path: Path) -> None:
    file = tmp_path / "timeseries.toml"
    index = (
        "GlobalSecondaryIndexes = [{ IndexName = 'by-time', Projection = { ProjectionType = 'ALL' }, "
        "KeySchema = [{ AttributeName = 'Time', KeyType = 'HASH' }] }]"
    )
    text = CONFIG.read_text(encoding="utf-8").replace(
        "[hot]", f"{index}\n[hot.indexes.by-time]\nread_units = 7\nwrite_units = 2\n[hot]"
    )
    file.write_text(text, encoding="utf-8")
    result = invoke("timeseries", "plan", str(file), "--now", "2014-07-09")
    assert "costs 5,007 read and 8,002 write units a second" in result.stdout, result.stderr


def test_maintain_as_if_it_were_another_time(resource: DynamoDBServiceResource) -> None:
    result = invoke("timeseries", "maintain", str(CONFIG), "--now", "2014-07-09")
    assert result.exit_code == 0, result.output
    assert resource.meta.client.list_tables()["TableNames"] == ["clicks-2014-07"]


def test_maintain(resource: DynamoDBServiceResource) -> None:
    result = invoke("timeseries", "maintain", str(CONFIG))
    assert result.exit_code == 0, result.output
    assert "\n  done     create           clicks-" in result.stdout
    assert result.stdout.startswith("clicks at ")  # the plan comes first
    assert resource.meta.client.list_tables()["TableNames"]
    again = invoke("timeseries", "maintain", str(CONFIG), "--json")
    assert again.stderr.startswith("clicks at ")
    report = json.loads(again.stdout)
    assert (report["done"], report["plan"]["steps"]) == ([], [])


def test_a_failed_step(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(params: Any, **_: Any) -> None:
        raise PermissionError("not allowed to create")

    aws: Any = importlib.import_module("shardkit.cli.command").Aws
    made = aws.dynamodb

    def dynamodb(self: Any, connections: int) -> Any:
        to = made(self, connections)
        to.meta.client.meta.events.register("before-call.dynamodb.CreateTable", denied)
        return to

    monkeypatch.setattr(aws, "dynamodb", dynamodb)
    result = invoke("timeseries", "maintain", str(CONFIG))
    assert result.exit_code == 1
    assert result.stdout.endswith("\n    not allowed to create\n")
    assert "  failed   create           clicks-" in result.stdout
    assert resource.meta.client.list_tables()["TableNames"] == []


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            'name = "clicks"\nperoid = "month"\nkeep = "all"\nahead = "soon"\n[hot]\nread_units = -1\n',
            [
                "timeseries.toml is not a time series:",
                "  at: missing; must be a text, not empty",
                "  period: missing; must be day, week, month, or a duration (6h)",
                "  peroid = 'month': unknown entry (did you mean period?)",
                "  keep = 'all': must be an integer from 0 to 1,000,000 (periods that have ended)",
                "  ahead: 'soon' is not a duration; give seconds, minutes, hours or days: 90s, 30m, 3h, 1d",
                "  [hot] read_units = -1: must be an integer from 1 to 1,000,000,000,000 (units a second)",
                "  schema: missing; must be a table",
            ],
        ),
        ("name = ", ["config: ", " is not TOML: "]),
        (
            'name = "clicks"\nat = "Time"\nperiod = "30s"\n[schema]\n',
            ["period = '30s': must be day, week, month, or a duration (6h), from a minute to 366 days"],
        ),
        (
            'name = "clicks"\nat = "Time"\nlate = "error"\nperiod = "year"\ntime_format = "ms"\n[schema]\n',
            [
                "late = 'error': must be left out, because it is about items, not tables; give it to TimeSeries only",
                "period = 'year': must be day, week, month, or a duration (6h), from a minute to 366 days",
                "time_format = 'ms': must be one of iso, iso without zone, seconds, milliseconds",
            ],
        ),
    ],
)
@pytest.mark.usefixtures("resource")
def test_wrong_configurations(tmp_path: Path, text: str, messages: list[str]) -> None:
    file = tmp_path / "timeseries.toml"
    file.write_text(text, encoding="utf-8")
    result = invoke("timeseries", "plan", str(file))
    assert result.exit_code == 2
    for message in messages:
        assert message in result.stderr, result.stderr


@pytest.mark.usefixtures("resource")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["plan", str(CONFIG), "--now", "soon"], "not planned: --now: 'soon' is not a time"),
        (["maintain", str(CONFIG), "--now", "soon"], "not begun: --now: 'soon' is not a time"),
        (["plan", "none.toml"], "not planned: config: "),
        (["maintain", "none.toml"], "not begun: config: "),
    ],
)
def test_wrong_use(args: list[str], message: str) -> None:
    result = invoke("timeseries", *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_growing_table_against_monthly_ones() -> None:
    result = invoke("simulate", str(SCENARIO))
    assert result.exit_code == 0, result.output
    plan = plan_series(
        periods=24,
        items=250_000_000,
        item_size=200,
        read_units=5000,
        write_units=8000,
        cold_read_units=50,
        cold_write_units=1,
        keep=12,
    )
    # The guide's: the more data in one table, the less throughput has each partition; and deletes double the writes.
    last = plan.periods[-1]
    assert (last.partitions, last.own_partitions, last.write_units, last.own_write_units) == (160, 10, 50, 800)
    assert (last.deletes, plan.puts, plan.deletes) == (250_000_000, 250_000_000, 11 * 250_000_000)
    assert (last.provisioned_read_units, last.provisioned_write_units) == (5600, 8012)
    assert result.stdout.endswith(f"\n{plan}\n")
    assert "24             160           50          10          800  250,000,000" in result.stdout
    assert json.loads(invoke("simulate", str(SCENARIO), "--json").stdout)["periods"][-1]["partitions"] == 160


def test_a_wrong_scenario(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text("[series]\nitems = 0\n[series.hot]\nread_units = 5\n[table]\n", encoding="utf-8")
    result = invoke("simulate", str(file))
    assert result.exit_code == 2
    for message in (
        "[series] items = 0: must be an integer from 1 to",
        "[series] item_size: missing",
        "[series.hot] write_units: missing",
        "table = {}: unknown entry",
    ):
        assert message in result.stderr, result.stderr


def planned_config(folder: Path, resource: DynamoDBServiceResource) -> str:
    """The example's series by the day, with plans; and a trace of a hot 8 July."""
    file = folder / "timeseries.toml"
    text = CONFIG.read_text(encoding="utf-8").replace('period = "month"', 'period = "day"\nplans = "Control"')
    text = text.replace('ahead = "1d"', 'ahead = "1h"')
    text += '\n[strategy]\ntype = "CalculatedSuffix"\nby = "Time"\nshards = 4\n'
    file.write_text(text, encoding="utf-8")
    resource.create_table(
        TableName="Control",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    )
    trace = Trace(folder / "traces", keys="plain")
    trace.add(TraceRow(1404800000, "PutItem", "clicks-2014-07-08", key="c1", calls=3000, write_units=3000.0))
    trace.flush()
    return str(file)


def test_tune(resource: DynamoDBServiceResource, tmp_path: Path) -> None:
    config, traces = planned_config(tmp_path, resource), str(tmp_path / "traces")
    maintain = ["timeseries", "maintain", config, "--now"]
    assert invoke(*maintain, "2014-07-08").exit_code == 0
    advised = invoke("timeseries", "plan", config, "--now", "2014-07-09", "--trace", traces)
    planned = (
        "CalculatedSuffix(by='Time', shards=16), 32,000 warm write units: key 'c1' of clicks-2014-07-08 asked for 3,000"
    )
    assert f"  advice           clicks-2014-07-09: {planned} write units in its highest second; to" in advised.stdout
    for given in (["--tune"], ["--tune", "--trace", traces], ["--tune", "--deployed"]):
        refused = invoke(*maintain, "2014-07-09", *given)
        assert refused.exit_code == 2
        assert (
            "not begun: --tune: needs --trace FILES and --deployed, because a process without plans=" in refused.stderr
        )
    tuned = invoke(*maintain, "2014-07-09", "--tune", "--deployed", "--trace", traces, "--max-shards", "12")
    assert tuned.exit_code == 0, tuned.output
    assert "shards=12)" in tuned.stdout
    items = resource.Table("Control").scan()["Items"]
    assert [json.loads(str(item["shardkit:plan"]))["strategy"]["shards"] for item in items] == [4, 12]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            'plans = "Control"',
            "",
            "'shards': 4}: must be left out, because it is about items",
        ),
        ("[strategy]", "[prizes]", "strategy: missing; must be a table"),
        ('"CalculatedSuffix"', '"Calculated"', "type is one of"),
        ('"Control"', '""', "plans = '': must be a text, not empty"),
    ],
)
def test_wrong_plans(resource: DynamoDBServiceResource, tmp_path: Path, before: str, after: str, message: str) -> None:
    config = Path(planned_config(tmp_path, resource))
    config.write_text(config.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    result = invoke("timeseries", "plan", str(config))
    assert result.exit_code == 2
    assert message in result.stderr, result.stderr
