"""What Contributor Insights reports, and what it says of a partition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from shardkit.analysis.contributors import KINDS, Contributor, contributors_of, rules_of

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def report(*contributors: tuple[list[str], list[float]]) -> dict[str, Any]:
    """A response of GetInsightRuleReport, in the shape of the example in the AWS CLI's reference for it."""
    return {
        "KeyLabels": ["PartitionKey"],
        "AggregationStatistic": "Sum",
        "AggregateValue": sum(sum(values) for _, values in contributors),
        "ApproximateUniqueCount": len(contributors),
        "Contributors": [
            {
                "Keys": keys,
                "ApproximateAggregateValue": sum(values),
                "Datapoints": [
                    {"Timestamp": NOON + timedelta(minutes=minute), "ApproximateValue": value}
                    for minute, value in enumerate(values)
                ],
            }
            for keys, values in contributors
        ],
    }


def test_rules_by_their_names() -> None:
    """The names are those of the Developer Guide and of the AWS CLI's example for DescribeContributorInsights."""
    names = [
        "DynamoDBContributorInsights-PKC-MusicCollection-1576629651520",
        "DynamoDBContributorInsights-SKC-MusicCollection-1576629651520",
        "DynamoDBContributorInsights-PKT-MusicCollection-1576629651520",
        "DynamoDBContributorInsights-SKT-MusicCollection-1576629651520",
    ]
    assert {kind.code: name for kind, name in rules_of(names).items()} == {name[28:31]: name for name in names}
    assert list(rules_of(names)) == list(KINDS)
    assert rules_of(["DynamoDBContributorInsights-PKT-Orders-by-PKC-1576629651520"]).keys() == {KINDS[0]}
    assert rules_of(["my own rule", "DynamoDBContributorInsights-NEW-Orders-1"]) == {}


def test_the_highest_first_with_their_busiest_minute() -> None:
    found = contributors_of(report((["a"], [1.0, 5.0, 2.0]), (["b", "17"], [9.0]), (["c"], [])))
    assert found == [
        Contributor(("b", "17"), 9.0, 9.0, NOON),
        Contributor(("a",), 8.0, 5.0, NOON + timedelta(minutes=1)),
        Contributor(("c",), 0.0, 0.0, None),
    ]
    assert contributors_of({}) == []


def test_a_partitions_share() -> None:
    """180,000 are a key that was used at its maximum for a minute (Developer Guide)."""
    whole = Contributor(("a",), 500_000.0, 180_000.0, NOON)
    assert (whole.peak_share, whole.near, whole.shards_needed()) == (1.0, True, 15)
    half = Contributor(("a",), 500_000.0, 90_000.0, NOON)
    assert (half.peak_share, half.near, half.shards_needed()) == (0.5, False, 1)
    assert half.shards_needed(10) == Contributor(("a",), 1.0, 900_000.0, NOON).shards_needed()
