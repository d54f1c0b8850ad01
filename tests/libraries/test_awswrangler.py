"""AWS SDK for pandas: writes and reads of frames, through its session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from tests.conftest import REGION
from tests.support.installed import Setting

wr = pytest.importorskip("awswrangler")
pd = pytest.importorskip("pandas")

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table

DAYS = ["2014-07-09", "2014-07-10"]
ROWS = [{"day": day, "number": f"A{number:03}", "total": number} for day in DAYS for number in range(30)]
JULY_9 = Key("day").eq("2014-07-09")


@pytest.fixture
def table(setting: Setting) -> Table:
    return setting.make_table("day", "number")


@pytest.fixture
def session(setting: Setting, table: Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    monkeypatch.setattr(wr.config, "dynamodb_endpoint_url", setting.url)
    session = boto3.Session("testing", "testing", region_name=REGION)
    with setting.install(session, table.name, by="number"):
        yield session


@pytest.fixture
def loaded(setting: Setting, table: Table, session: boto3.Session) -> str:
    """The name of the table, with 30 orders of two days each."""
    wr.dynamodb.put_df(pd.DataFrame(ROWS), table.name, boto3_session=session)
    setting.assert_stored(table, dict.fromkeys(DAYS, 30))
    return table.name


def rows(frame: Any) -> list[dict[str, Any]]:
    found = frame.astype({"total": int}).sort_values(["day", "number"])
    return [
        {str(name): value for name, value in row.items()}
        for row in found[["day", "number", "total"]].to_dict("records")
    ]


def test_a_query(loaded: str, session: boto3.Session) -> None:
    frame = wr.dynamodb.read_items(loaded, key_condition_expression=JULY_9, boto3_session=session)
    assert [*frame["number"]] == [row["number"] for row in ROWS[:30]]
    assert rows(frame) == ROWS[:30]


def test_a_query_as_text_with_a_filter(loaded: str, session: boto3.Session) -> None:
    frame = wr.dynamodb.read_items(
        loaded,
        key_condition_expression="#d = :day AND begins_with(#n, :a01)",
        filter_expression="total >= :fifteen",
        expression_attribute_names={"#d": "day", "#n": "number"},
        expression_attribute_values={":day": "2014-07-10", ":a01": "A01", ":fifteen": 15},
        boto3_session=session,
    )
    assert rows(frame) == ROWS[45:50]


def test_chunks(loaded: str, session: boto3.Session) -> None:
    chunks = wr.dynamodb.read_items(
        loaded, key_condition_expression=JULY_9, chunked=True, as_dataframe=False, boto3_session=session
    )
    found = list(itertools.chain.from_iterable(chunks))
    assert [item["number"] for item in found] == [row["number"] for row in ROWS[:30]]


def test_at_most_some_items(loaded: str, session: boto3.Session) -> None:
    frame = wr.dynamodb.read_items(
        loaded, key_condition_expression=JULY_9, max_items_evaluated=7, boto3_session=session
    )
    assert rows(frame) == ROWS[:7]


@pytest.mark.parametrize("places", [[3], [3, 44, 59]])
def test_keys(places: list[int], loaded: str, session: boto3.Session) -> None:
    """One key is a GetItem, more are a BatchGetItem."""
    frame = wr.dynamodb.read_items(
        loaded,
        partition_values=[ROWS[place]["day"] for place in places],
        sort_values=[ROWS[place]["number"] for place in places],
        columns=["day", "number", "total"],
        boto3_session=session,
    )
    assert rows(frame) == [ROWS[place] for place in places]


@pytest.mark.parametrize("threads", [False, 3])
@pytest.mark.filterwarnings("ignore:Attempting DynamoDB Scan operation")
def test_scans(threads: bool | int, loaded: str, session: boto3.Session) -> None:
    everything = {"use_threads": threads, "boto3_session": session}
    assert rows(wr.dynamodb.read_items(loaded, allow_full_scan=True, **everything)) == ROWS
    frame = wr.dynamodb.read_items(loaded, filter_expression=Attr("total").lt(2), **everything)
    assert rows(frame) == [*ROWS[:2], *ROWS[30:32]]


def test_deletes(setting: Setting, loaded: str, session: boto3.Session) -> None:
    wr.dynamodb.delete_items(ROWS[:29], loaded, boto3_session=session)
    setting.assert_stored(setting.resource.Table(loaded), {"2014-07-09": 1, "2014-07-10": 30})


def test_partiql(setting: Setting, loaded: str, session: boto3.Session) -> None:
    """A statement names a key's value; a sharded table refuses it with the reason."""
    ask = {"parameters": ["2014-07-09", "A003"], "boto3_session": session}
    statement = f'SELECT * FROM "{loaded}" WHERE "day" = ? AND "number" = ?'  # noqa: S608 - a table's name
    if setting.sharded:
        with pytest.raises(ClientError, match="PartiQL"):
            wr.dynamodb.read_partiql_query(statement, **ask)
    else:
        assert rows(wr.dynamodb.read_partiql_query(statement, **ask)) == [ROWS[3]]
