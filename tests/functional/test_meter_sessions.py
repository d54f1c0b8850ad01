"""A meter on a session: all DynamoDB clients that it makes from then on, and no others."""

from __future__ import annotations

from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError

from shardkit import CapacityMeter
from shardkit.errors import ConfigurationError
from tests.support.tables import make_table


@pytest.fixture
def table(resource: Any) -> str:
    return str(make_table(resource).name)


def write(client: Any, table: str) -> None:
    client.put_item(TableName=table, Item={"pk": {"S": "x"}})


def test_canary_clients_that_a_session_makes(table: str) -> None:
    session = boto3.session.Session(region_name="us-east-1")
    before, meter = session.client("dynamodb"), CapacityMeter()
    with meter.attach(session, key_schema={table: "pk"}):
        client, again = session.client("dynamodb"), session.client("dynamodb")
        write(client, table)
        write(again, table)
        write(before, table)
        write(boto3.client("dynamodb"), table)
        assert meter.requests == 2
        assert meter.by_key.keys() == {(table, "x")}
        session.resource("dynamodb").Table(table).put_item(Item={"pk": "y"})
        assert meter.requests == 3
        session.client("s3")
        session.client("dynamodbstreams")
    later = session.client("dynamodb")
    for known in (client, again, later):
        write(known, table)
    assert meter.requests == 3


def test_a_session_of_botocore(table: str) -> None:
    session, meter = botocore.session.get_session(), CapacityMeter()
    attachment = meter.attach(session)
    client = session.create_client("dynamodb", region_name="us-east-1")
    write(client, table)
    with pytest.raises(ClientError):
        write(client, "missing")
    assert meter.requests == 2
    attachment.detach()
    attachment.detach()
    write(client, table)
    assert meter.requests == 2


def test_several_meters_and_a_client_counted_once(table: str) -> None:
    session, meters = boto3.session.Session(region_name="us-east-1"), [CapacityMeter(), CapacityMeter()]
    attachments = [meter.attach(session) for meter in (*meters, meters[0])]
    client = session.client("dynamodb")
    with meters[1].attach(client):
        write(client, table)
    assert [meter.requests for meter in meters] == [1, 1]
    attachments[0].detach()
    write(client, table)
    assert [meter.requests for meter in meters] == [2, 2]
    attachments[2].detach()
    write(client, table)
    assert [meter.requests for meter in meters] == [2, 3]


def test_a_resource(resource: Any, table: str) -> None:
    meter = CapacityMeter()
    with meter.attach(resource, key_schema={table: "pk"}):
        resource.Table(table).put_item(Item={"pk": "x"})
        resource.meta.client.get_item(TableName=table, Key={"pk": "x"})
    assert meter.by_operation.keys() == {"PutItem", "GetItem"}
    assert meter.by_key.keys() == {(table, "x")}


def test_what_is_no_session() -> None:
    for target in (object(), boto3, {"client": 1}):
        with pytest.raises(ConfigurationError, match="session"):
            CapacityMeter().attach(target)
