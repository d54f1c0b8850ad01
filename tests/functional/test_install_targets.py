"""What shardkit.install() is put on: clients, resources, tables, sessions, everything; and how it is taken off."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ConfigurationError, ShardedTable, install, install_everywhere
from shardkit.cache import CacheOptions
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

STRATEGY = CalculatedSuffix("sk", shards=3)
KEY = {"pk": "day", "sk": "a"}
WIRE = {"pk": {"S": "day"}, "sk": {"S": "a"}}
STORED = STRATEGY.physical_key("day", STRATEGY.shard_of("day", {"sk": "a"}))


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    """A table; the client of ``resource`` sees what is stored."""
    return make_table(resource, ("pk", "S"), ("sk", "S"))


@pytest.fixture
def default_session() -> Iterator[boto3.Session]:
    """boto3's default session: a new one."""
    before = boto3.DEFAULT_SESSION
    boto3.setup_default_session()
    assert boto3.DEFAULT_SESSION is not None
    yield boto3.DEFAULT_SESSION
    boto3.DEFAULT_SESSION = before


def sharded_by(client: Any, table: Table) -> bool:
    """Whether what a client writes is stored with a suffix."""
    try:
        client.put_item(TableName=table.name, Item=WIRE)
    except ClientError:  # a resource's client takes Python values
        client.put_item(TableName=table.name, Item=KEY)
    (item,) = table.scan()["Items"]
    table.delete_item(Key=item)
    assert item["pk"] in {"day", STORED}
    return bool(item["pk"] == STORED)


def test_a_client_until_it_is_uninstalled(table: Table) -> None:
    client, other = boto3.client("dynamodb"), boto3.client("dynamodb")
    with install(client, {table.name: STRATEGY}) as installation:
        assert sharded_by(client, table)
        assert not sharded_by(other, table)
    assert not sharded_by(client, table)
    with install(client, {table.name: STRATEGY}):
        installation.uninstall()  # a second time does nothing to the next installation
        assert sharded_by(client, table)


@pytest.mark.parametrize("target", ["resource", "Table", "ShardedTable"])
def test_what_has_a_client(table: Table, target: str) -> None:
    """All that is made from the same resource, before and after."""
    resource: Any = boto3.resource("dynamodb")
    before = resource.Table(table.name)
    given = {"resource": resource, "Table": before, "ShardedTable": ShardedTable(before, STRATEGY)}[target]
    with install(given, {table.name: STRATEGY}):
        assert sharded_by(resource.meta.client, table)
        for one in (before, resource.Table(table.name)):
            one.put_item(Item={"pk": "day", "sk": "a"})
            assert table.scan()["Items"] == [{"pk": STORED, "sk": "a"}]
            assert one.get_item(Key={"pk": "day", "sk": "a"})["Item"] == {"pk": "day", "sk": "a"}
        with before.batch_writer() as batch:
            batch.delete_item(Key={"pk": "day", "sk": "a"})
        assert table.scan()["Items"] == []
    assert not sharded_by(resource.meta.client, table)


def make_client(session: Any) -> Any:
    if hasattr(session, "create_client"):
        return session.create_client("dynamodb", region_name="us-east-1")
    return session.client("dynamodb")


@pytest.mark.parametrize("make", [boto3.Session, botocore.session.get_session])
def test_a_session(table: Table, make: Any) -> None:
    """Its clients from now on; uninstalled from all of them."""
    session = make()
    before = make_client(session)
    with install(session, {table.name: STRATEGY}):
        clients = [make_client(session), make_client(session)]
        assert all(sharded_by(client, table) for client in clients)
        assert not sharded_by(before, table)
        assert not sharded_by(make_client(make()), table)
    assert not any(sharded_by(client, table) for client in (*clients, make_client(session)))
    with install(session, {table.name: STRATEGY}):
        assert sharded_by(make_client(session), table)


def test_everywhere(table: Table, default_session: boto3.Session) -> None:
    """Sessions made later, whoever makes them, and boto3's default one; of others, nothing."""
    old, old_client = boto3.Session(), boto3.client("dynamodb")
    with install_everywhere({table.name: STRATEGY}):
        sessions: list[Any] = [boto3.Session(), botocore.session.get_session(), default_session]
        clients = [*map(make_client, sessions), boto3.client("dynamodb"), boto3.resource("dynamodb").meta.client]
        assert all(sharded_by(client, table) for client in clients)
        assert not sharded_by(make_client(old), table)
        assert not sharded_by(old_client, table)
    assert not any(sharded_by(client, table) for client in clients)
    assert not any(sharded_by(make_client(session), table) for session in (*sessions, boto3.Session()))


def test_everywhere_before_boto3_has_a_default_session(
    table: Table, default_session: boto3.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with install_everywhere({table.name: STRATEGY}):
        assert sharded_by(boto3.client("dynamodb"), table)
    assert not sharded_by(boto3.client("dynamodb"), table)


def test_twice_is_an_error(table: Table) -> None:
    """Of two installations, one would undo the other's when it goes: the first stays, untouched."""
    tables = {table.name: STRATEGY}
    inner = botocore.session.get_session()
    session = boto3.Session(botocore_session=inner)
    with install(session, tables):
        client, resource = session.client("dynamodb"), session.resource("dynamodb")
        for target in (session, inner, client, resource, resource.Table("T")):
            with pytest.raises(ConfigurationError, match="installed already; give all tables to one install"):
                install(target, {"Other": STRATEGY})
        assert sharded_by(client, table)
        assert sharded_by(session.client("dynamodb"), table)
    assert not sharded_by(client, table)
    with install(client, tables), pytest.raises(ConfigurationError, match="installed already"):
        install(client, tables)
    assert not sharded_by(client, table)


def test_twice_everywhere_is_an_error(table: Table, default_session: boto3.Session) -> None:
    tables = {table.name: STRATEGY}
    with install_everywhere(tables):
        session, client = boto3.Session(), boto3.client("dynamodb")
        with pytest.raises(ConfigurationError, match="installed everywhere already"):
            install_everywhere(tables)
        for target in (session, default_session, client):
            with pytest.raises(ConfigurationError, match="installed already"):
                install(target, tables)
        assert sharded_by(client, table)
        assert sharded_by(session.client("dynamodb"), table)
    assert not sharded_by(client, table)


def test_everywhere_where_the_default_session_has_an_installation(table: Table, default_session: boto3.Session) -> None:
    """It is refused whole, and can be made later."""
    tables = {table.name: STRATEGY}
    with install(default_session, tables):
        with pytest.raises(ConfigurationError, match="this session has sharded tables installed already"):
            install_everywhere(tables)
        assert not sharded_by(boto3.Session().client("dynamodb"), table)
        assert sharded_by(boto3.client("dynamodb"), table)
    with install_everywhere(tables):
        assert sharded_by(boto3.Session().client("dynamodb"), table)
    assert not sharded_by(boto3.Session().client("dynamodb"), table)


@pytest.mark.parametrize("target", [None, "dynamodb", object(), boto3, {}, 7])
def test_no_target(target: Any) -> None:
    with pytest.raises(ConfigurationError, match="target: must be "):
        install(target, {"T": STRATEGY})


def test_a_client_of_another_service() -> None:
    with pytest.raises(ConfigurationError, match=r"target: must be .* a client of dynamodbstreams"):
        install(boto3.client("dynamodbstreams"), {"T": STRATEGY})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": {}}, "tables: must map"),
        ({"tables": None}, "tables: must map"),
        ({"tables": ["T"]}, "tables: must map"),
        ({"tables": "T"}, "tables: must map"),
        ({"tables": {1: STRATEGY}}, "tables: must map"),
        ({"tables": {"": STRATEGY}}, "tables: must map"),
        ({"tables": {"T": "sk, 3 shards"}}, "strategy: must be"),
        ({"tables": {"T": CalculatedSuffix}}, "strategy: must be"),
        ({"key_schemas": []}, "key_schemas: must map"),
        ({"key_schemas": {"U": {}}}, "key_schemas: must map"),
        ({"key_schemas": {"T": {}}}, "key_schema: of table 'T': not a key schema"),
        ({"key_schemas": {"T": {"KeySchema": 7}}}, "key_schema"),
        ({"max_concurrency": 0}, "max_concurrency: must be"),
        ({"max_concurrency": 1001}, "max_concurrency: must be"),
        ({"max_concurrency": "3"}, "max_concurrency: must be"),
        ({"max_concurrency": True}, "max_concurrency: must be"),
        ({"rng": 7}, "rng: must be"),
    ],
)
def test_arguments_are_checked_at_once(options: dict[str, Any], message: str) -> None:
    """Before anything is installed, on every target."""
    client, session = boto3.client("dynamodb"), boto3.Session()
    for target in (client, session):
        with pytest.raises(ConfigurationError, match=message):
            install(target, **{"tables": {"T": STRATEGY}, **options})
        install(target, {"T": STRATEGY})  # nothing is there from the refused one
    with pytest.raises(ConfigurationError, match=message):
        install_everywhere(**{"tables": {"T": STRATEGY}, **options})


def test_what_was_given_may_change_afterwards(table: Table) -> None:
    """The installation keeps what it was given."""
    tables, client = {table.name: STRATEGY}, boto3.client("dynamodb")
    with install(client, tables):
        tables.clear()
        assert sharded_by(client, table)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("target", ["client", "session"])
def test_an_installed_client_is_collected(table: Table, target: str, cached: bool) -> None:
    """The installation keeps no client alive, once nobody holds the client (or its installation)."""
    session = boto3.Session()
    client = session.client("dynamodb")
    cache = {table.name: CacheOptions(max_bytes=100_000)} if cached else None
    if target == "session":
        install(session, {table.name: STRATEGY}, cache=cache)
        client = session.client("dynamodb")
    else:
        install(client, {table.name: STRATEGY}, cache=cache)
    assert sharded_by(client, table)
    client.query(
        TableName=table.name, KeyConditions={"pk": {"AttributeValueList": [WIRE["pk"]], "ComparisonOperator": "EQ"}}
    )
    gone = weakref.ref(client)
    client.close()
    del client
    deadline = time.monotonic() + 10
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()  # until a thread of the fan-out has put down its last task
    assert gone() is None


def test_a_call_that_began_before_uninstall_ends_as_it_began(table: Table) -> None:
    """Its parameters are logical: the service must not see them, least of all to write."""
    client = boto3.client("dynamodb")
    installation = install(client, {table.name: STRATEGY})
    # The first call describes the table before it writes: it does not ride.
    client.meta.events.register("before-endpoint-resolution.dynamodb", lambda **_: installation.uninstall())
    client.put_item(TableName=table.name, Item=WIRE)
    assert table.scan()["Items"] == [{"pk": STORED, "sk": "a"}]
    assert not sharded_by(client, make_empty(table))


def make_empty(table: Table) -> Table:
    for item in table.scan()["Items"]:
        table.delete_item(Key=item)
    return table
