"""Powertools for AWS Lambda: idempotency records with a sort key, and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installed import Setting

pytest.importorskip("aws_lambda_powertools")

from aws_lambda_powertools.utilities import idempotency
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyValidationError,
)
from aws_lambda_powertools.utilities.parameters import DynamoDBProvider
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb.service_resource import Table

PAYMENTS = "idempotency#payments"
"""The partition key of every record: the reason why such a table is hot."""


@pytest.fixture
def table(setting: Setting) -> Table:
    return setting.make_table("id", "sort_key")


@pytest.fixture
def store(setting: Setting, table: Table, boto3_session: boto3.Session) -> Iterator[Any]:
    client: Any = boto3_session.client("dynamodb", endpoint_url=setting.url)
    with setting.install(client, table.name, by="sort_key"):
        yield idempotency.DynamoDBPersistenceLayer(
            table.name, sort_key_attr="sort_key", static_pk_value=PAYMENTS, boto3_client=client
        )
    client.close()


class Payments:
    """A function that may run only once for each order, and how often it ran."""

    def __init__(self, store: Any) -> None:
        self.ran = 0
        self.fails = False
        self.inside: Any = None
        config = idempotency.IdempotencyConfig(
            event_key_jmespath="order", payload_validation_jmespath="total", raise_on_no_idempotency_key=True
        )
        config.register_lambda_context(SimpleNamespace(get_remaining_time_in_millis=lambda: 60_000))
        self.pay = idempotency.idempotent_function(
            self._pay, data_keyword_argument="payment", persistence_store=store, config=config
        )

    def _pay(self, payment: dict[str, Any]) -> dict[str, Any]:
        self.ran += 1
        if self.inside is not None:
            self.inside()
        if self.fails:
            raise ArithmeticError
        return {"paid": payment["order"], "run": self.ran}


@pytest.fixture
def payments(store: Any) -> Payments:
    return Payments(store)


def test_once_per_order(setting: Setting, table: Table, payments: Payments) -> None:
    for number in range(20):
        assert payments.pay(payment={"order": f"A{number}", "total": 5})["run"] == number + 1
    setting.assert_stored(table, {PAYMENTS: 20})
    assert payments.pay(payment={"order": "A7", "total": 5}) == {"paid": "A7", "run": 8}
    assert payments.ran == 20


def test_a_changed_payload(setting: Setting, table: Table, payments: Payments) -> None:
    """The item of the failed condition is validated."""
    payments.pay(payment={"order": "A1", "total": 5})
    with pytest.raises(IdempotencyValidationError):
        payments.pay(payment={"order": "A1", "total": 6})
    setting.assert_stored(table, {PAYMENTS: 1})


def test_a_call_in_progress(setting: Setting, table: Table, payments: Payments) -> None:
    def again() -> None:
        payments.inside = None
        setting.assert_stored(table, {PAYMENTS: 1})
        with pytest.raises(IdempotencyAlreadyInProgressError):
            payments.pay(payment={"order": "A1", "total": 5})

    payments.inside = again
    assert payments.pay(payment={"order": "A1", "total": 5})["run"] == 1


def test_a_failure_deletes_the_record(setting: Setting, table: Table, payments: Payments) -> None:
    payments.fails = True
    with pytest.raises(ArithmeticError):
        payments.pay(payment={"order": "A1", "total": 5})
    setting.assert_stored(table, {})
    payments.fails = False
    assert payments.pay(payment={"order": "A1", "total": 5})["run"] == 2
    setting.assert_stored(table, {PAYMENTS: 1})


@pytest.fixture
def provider(setting: Setting, boto3_session: boto3.Session) -> Iterator[Any]:
    """A provider of 30 parameters under one path, and one of its own."""
    table = setting.make_table("id", "sk")
    resource = boto3_session.resource("dynamodb", endpoint_url=setting.url)
    with setting.install(resource, table.name):
        provider = DynamoDBProvider(table.name, boto3_client=resource)
        for number in range(30):
            resource.Table(table.name).put_item(Item={"id": "/shop", "sk": f"p{number:02}", "value": str(number)})
        setting.assert_stored(table, {"/shop": 30})
        yield provider
    resource.meta.client.close()


def test_parameters_of_a_path(provider: Any) -> None:
    wanted = {f"p{number:02}": str(number) for number in range(30)}
    assert provider.get_multiple("/shop") == wanted
    assert provider.get_multiple("/shop", Limit=4, force_fetch=True) == wanted
    assert provider.get_multiple("/none") == {}


def test_one_parameter(setting: Setting, boto3_session: boto3.Session) -> None:
    """A table with only a partition key: each key has one item, and one shard."""
    table = setting.make_table("id", None)
    resource = boto3_session.resource("dynamodb", endpoint_url=setting.url)
    with setting.install(resource, table.name, by=None):
        provider = DynamoDBProvider(table.name, boto3_client=resource)
        resource.Table(table.name).put_item(Item={"id": "colour", "value": "red"})
        assert provider.get("colour") == "red"
        with pytest.raises(GetParameterError):
            provider.get("none")
    setting.assert_stored(table, {"colour": 1})
    resource.meta.client.close()
