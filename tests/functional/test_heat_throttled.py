"""``shardkit heat --table T --throttled``: the reports of Contributor Insights, as botocore's models know them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.stub import Stubber

from shardkit import CalculatedSuffix, ConfigurationError, RandomSuffix, Resharding, Strategy, Unsharded
from shardkit.analysis.per_key import SUFFIXED
from shardkit.dynamodb.schema import Index, KeySchema

if TYPE_CHECKING:
    import boto3

rich_console = pytest.importorskip("rich.console")
throttled: Any = pytest.importorskip("shardkit.cli.throttled")
live: Any = pytest.importorskip("shardkit.cli.live_table")

UNTIL = datetime(2026, 11, 22, 12, tzinfo=UTC)
LAST = timedelta(hours=3)
RULES = {code: f"DynamoDBContributorInsights-{code}-Orders-1576629651520" for code in ("PKC", "SKC", "PKT", "SKT")}


def described(status: str = "ENABLED", *codes: str, **more: Any) -> dict[str, Any]:
    """A response of DescribeContributorInsights: shape and names of the rules are those of AWS CLI's example."""
    rules = [RULES[code] for code in codes]
    return {"TableName": "Orders", "ContributorInsightsRuleList": rules, "ContributorInsightsStatus": status, **more}


def report(*keys: tuple[list[str], float, float]) -> dict[str, Any]:
    """A response of GetInsightRuleReport, in the shape of AWS CLI's example: keys, their sum, their busiest minute."""
    return {
        "KeyLabels": ["PartitionKey"],
        "AggregationStatistic": "Sum",
        "AggregateValue": sum(value for _, value, _ in keys),
        "ApproximateUniqueCount": len(keys),
        "Contributors": [
            {
                "Keys": names,
                "ApproximateAggregateValue": value,
                "Datapoints": [{"Timestamp": UNTIL - timedelta(minutes=17), "ApproximateValue": peak}],
            }
            for names, value, peak in keys
        ],
    }


class Service:
    """The two services, which answer what is queued and check what is asked."""

    def __init__(self, session: boto3.Session) -> None:
        self.dynamodb, self.cloudwatch = session.client("dynamodb"), session.client("cloudwatch")
        self.stubs = [Stubber(self.dynamodb), Stubber(self.cloudwatch)]
        for stub in self.stubs:
            stub.activate()

    def describes(self, answer: dict[str, Any], **index: str) -> None:
        self.stubs[0].add_response("describe_contributor_insights", answer, {"TableName": "Orders", **index})

    def reports(self, code: str, answer: dict[str, Any], top: int = 10) -> None:
        asked = {
            "RuleName": RULES[code], "StartTime": UNTIL - LAST, "EndTime": UNTIL, "Period": 60,
            "MaxContributorCount": top, "OrderBy": "Sum",
        }  # fmt: skip
        self.stubs[1].add_response("get_insight_rule_report", answer, asked)

    def read(self, *, index: str | None = None, top: int = 10, strategy: Strategy | None = None) -> Any:
        return throttled.read_throttled(
            self.dynamodb, self.cloudwatch, "Orders", index, until=UNTIL, last=LAST, top=top, strategy=strategy
        )

    def read_all(self, index: str | None = None, key_type: str = "S", **window: Any) -> Any:
        by_day = Index("ByDay", KeySchema(("Date",), ("Total",)), local=False, projected=None)
        by_status = Index("ByStatus", KeySchema(("Status",)), local=False, projected=None)
        table = live.LiveTable(
            client=self.dynamodb, name="Orders", index=index, own_keys=KeySchema(("Date",), ("OrderId",)),
            key_types={"Date": key_type}, keys=KeySchema(("Date",)), items=0, bytes=0, provisioned=None,
            global_indexes=(by_day, by_status),
        )  # fmt: skip
        how = {"until": UNTIL, "last": LAST, "top": 10, **window}
        return throttled.read_throttled_table(self.dynamodb, self.cloudwatch, table, **how)


@pytest.fixture
def service(boto3_session: boto3.Session) -> Iterator[Service]:
    service = Service(boto3_session)
    yield service
    for stub in service.stubs:
        stub.assert_no_pending_responses()


def shown(found: Any) -> str:
    file = io.StringIO()
    found.show(rich_console.Console(file=file, width=200, highlight=False))
    return file.getvalue()


def test_the_reports_of_all_rules(service: Service) -> None:
    service.describes(described("ENABLED", "PKC", "SKC", "PKT", "SKT", ContributorInsightsMode="THROTTLED_KEYS"))
    service.reports("PKT", report((["2014-07-09"], 1204.0, 300.0), (["2014-07-08"], 12.0, 12.0)))
    service.reports("SKT", report((["2014-07-09", "A17"], 800.0, 200.0)))
    service.reports("PKC", report((["2014-07-09"], 9_000_000.0, 171_000.0), (["2014-07-07"], 1000.0, 90_000.0)))
    service.reports("SKC", report())
    found = service.read()
    assert shown(found) == (
        "Orders, 2026-11-22 09:00 to 2026-11-22 12:00 UTC\n"
        "\n"
        "most throttled partition keys:\n"
        "\n"
        "  key         throttles  busiest minute        at\n"
        "  2014-07-09      1,204             300  22 11:43\n"
        "  2014-07-08         12              12  22 11:43\n"
        "  throttled because the key is too hot, or because the whole table is: the errors\n"
        "  say which (docs/troubleshooting.md); more shards help only against the first\n"
        "\n"
        "most throttled items:\n"
        "\n"
        "  key             throttles  busiest minute        at\n"
        "  2014-07-09#A17        800             200  22 11:43\n"
        "\n"
        "most consuming partition keys:\n"
        "\n"
        "  key             units  busiest minute        at  share\n"
        "  2014-07-09  9,000,000         171,000  22 11:43    95%\n"
        "  2014-07-07      1,000          90,000  22 11:43    50%\n"
        "  advice: 2014-07-09: 12 shards instead of 1, for its busiest minute\n"
        "\n"
        "most consuming items: none\n"
    )
    data = json.loads(json.dumps(found.to_json()))
    assert (data["table"], data["mode"], data["since"]) == ("Orders", "THROTTLED_KEYS", "2026-11-22T09:00:00+00:00")
    assert [(one["kind"], len(one["keys"])) for one in data["reports"]] == [
        ("PKT", 2), ("SKT", 1), ("PKC", 2), ("SKC", 0),
    ]  # fmt: skip
    assert data["reports"][2]["keys"][0] == {
        "keys": ["2014-07-09"], "value": 9_000_000.0, "peak": 171_000.0, "peak_at": "2026-11-22T11:43:00+00:00",
        "peak_share": 0.95,
    }  # fmt: skip


def test_a_few_hot_keys_get_shards_alone(service: Service) -> None:
    """What they consume says how many; throttles alone do not. Of a sharded table, or an index, other lines tell."""
    service.describes(described("ENABLED", "PKT", "PKC"))
    service.reports("PKT", report((["t0"], 500.0, 9.0)))
    service.reports("PKC", report((["t0"], 900_000.0, 171_000.0), (["t1"], 1000.0, 90_000.0)))
    service.describes(described("DISABLED"), IndexName="ByDay")
    service.describes(described("DISABLED"), IndexName="ByStatus")
    text = shown(service.read_all())
    assert '  write: CalculatedSuffix("OrderId", shards={"t0": N}), with N from shardkit plan shards\n' in text
    cheap = text.index(f'  {SUFFIXED}\n  write: CalculatedSuffix("OrderId", shards={{"t0": 12}})\n')
    assert cheap < text.index("  advice: t0: 12 shards instead of 1, for its busiest minute\n")


def test_a_number_gets_no_shards(service: Service) -> None:
    """The reports have its text, which would be refused as a key of ``shards``."""
    service.describes(described("ENABLED", "PKC"))
    service.reports("PKC", report((["5"], 900_000.0, 171_000.0)))
    service.describes(described("DISABLED"), IndexName="ByDay")
    service.describes(described("DISABLED"), IndexName="ByStatus")
    text = shown(service.read_all(key_type="N"))
    assert "  the partition key is a number, which cannot have a suffix: shard a table whose key is its text\n" in text
    assert "shards={" not in text


def test_the_logical_keys_of_a_sharded_table(service: Service) -> None:
    service.describes(described("ENABLED", "PKT", "PKC"))
    service.reports("PKT", report((["a.1"], 500.0, 9.0), (["b.3"], 400.0, 9.0), (["a.7"], 300.0, 9.0)), top=3)
    service.reports("PKC", report((["a.1"], 900_000.0, 180_000.0)), top=3)
    found = shown(service.read(top=3, strategy=RandomSuffix(10)))
    assert "  a: 2 of its 10 shards, 800 throttles together\n  b: 1 of its 10 shards, 400 throttles together\n" in found
    assert "advice: a.1: 638 shards instead of 10, for its busiest minute" in found


def test_a_logical_key_of_a_table_that_moves(service: Service) -> None:
    """It has the places of both strategies."""
    service.describes(described("ENABLED", "PKT"))
    service.reports("PKT", report((["a"], 500.0, 9.0), (["a.1"], 400.0, 9.0), (["a.2"], 300.0, 9.0)))
    moving = Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=2), stage="move")
    assert "  a: 3 of its 3 shards, 1,200 throttles together\n" in shown(service.read(strategy=moving))


def test_an_index(service: Service) -> None:
    service.describes(described("ENABLED", "PKT", IndexName="ByStatus"), IndexName="ByStatus")
    service.reports("PKT", report())
    assert shown(service.read(index="ByStatus")).startswith("Orders, index ByStatus, 2026")


def test_a_table_and_its_indexes(service: Service) -> None:
    """Those whose key has not the table's are advised on as indexes, and have not the table's strategy."""
    service.describes(described("DISABLED"))
    service.describes(described("ENABLED", "PKC", IndexName="ByDay"), IndexName="ByDay")
    service.describes(described("ENABLED", "PKT", "PKC", IndexName="ByStatus"), IndexName="ByStatus")
    service.reports("PKC", report((["2014-07-09.1"], 900_000.0, 171_000.0)))
    service.reports("PKT", report((["open"], 1204.0, 300.0)))
    service.reports("PKC", report((["open"], 900_000.0, 171_000.0)))
    found = service.read_all(strategy=RandomSuffix(10))
    text = shown(found)
    assert text.count("Orders, index By") == 2
    by_day, by_status = text.split("Orders, index ByStatus")
    assert "  2014-07-09: 1 of its 10 shards, 900,000 units together\n" in by_day
    assert "indexes=" not in by_day
    assert (
        "  throttled because the key is too hot, or because the whole index is: the errors\n"
        "  say which (docs/troubleshooting.md); more shards help only against the first\n"
        "  a hot index throttles the writes of its table; docs/sharded-indexes.md: how to shard it\n"
    ) in by_status
    line = 'indexes={"ByStatus": CalculatedSuffix(("Date", "OrderId"), shards=12, attribute="shard")}'
    assert (
        "  advice: open: 12 shards instead of 1, for its busiest minute\n"
        f"    create an index with the partition key Status, shard (a number), and write {line} with its name: see "
        "docs/sharded-indexes.md\n"
    ) in by_status
    off = "CloudWatch Contributor Insights is DISABLED for table 'Orders'"
    assert text.endswith(f"\n\n{off}\n")
    data = json.loads(json.dumps(found.to_json()))
    assert (data["index"], [one["index"] for one in data["indexes"]], data["off"]) == ("ByDay", ["ByStatus"], [off])


def test_the_index_that_is_named_alone(service: Service) -> None:
    """With its own strategy, if it is sharded."""
    service.describes(described("ENABLED", "PKC", IndexName="ByStatus"), IndexName="ByStatus")
    service.reports("PKC", report((["open.1"], 900_000.0, 180_000.0)))
    text = shown(service.read_all("ByStatus", strategy=RandomSuffix(10)))
    assert "open: 1 of its 10 shards" in text
    assert "advice: open.1: 638 shards instead of 10" in text
    assert "indexes=" not in text


def test_nothing_is_enabled(service: Service) -> None:
    service.describes(described("DISABLED"))
    for index in ("ByDay", "ByStatus"):
        service.describes(described("DISABLED", IndexName=index), IndexName=index)
    with pytest.raises(ConfigurationError, match=r"--throttled: .* is DISABLED for table 'Orders'; enable it with"):
        service.read_all()


@pytest.mark.parametrize(
    ("answer", "index", "message"),
    [
        (
            described("DISABLED"), None,
            (r"Contributor Insights is DISABLED for table 'Orders'; enable it with: aws dynamodb "
            r"update-contributor-insights --table-name Orders --contributor-insights-action ENABLE "
            r"--contributor-insights-mode THROTTLED_KEYS\. CloudWatch charges"),
        ),
        (described("DISABLED"), "ByStatus", "for index 'ByStatus' .* --table-name Orders --index-name ByStatus "),
        (described("ENABLING", "PKT"), None, "is ENABLING for table 'Orders'; try again in a few minutes"),
        (
            described("FAILED", FailureException={"ExceptionDescription": "rule limit reached"}), None,
            r"is FAILED for table 'Orders' \(rule limit reached\); enable it",
        ),
        (described("ENABLED"), None, "is ENABLED for table"),
    ],
)  # fmt: skip
def test_it_is_not_enabled(service: Service, answer: dict[str, Any], index: str | None, message: str) -> None:
    service.describes(answer, **({} if index is None else {"IndexName": index}))
    with pytest.raises(ConfigurationError, match=f"--throttled: .*{message}"):
        service.read(index=index)


@pytest.mark.parametrize("top", [0, 26])
def test_more_keys_than_are_reported(service: Service, top: int) -> None:
    with pytest.raises(ConfigurationError, match="--top: must be an integer from 1 to 25"):
        service.read(top=top)
