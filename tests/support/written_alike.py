"""The same transactions and batches on a sharded table and on a plain one: the same outcomes, and the same items."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Key
from botocore import xform_name
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, ShardedTable, install
from shardkit.strategies import Strategy
from tests.support.equivalence import Item, Pair, canonical, make_pair
from tests.support.queries import SHAPES

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

STRATEGIES: Mapping[str, Strategy] = {
    "calculated": CalculatedSuffix("sk", 3),
    "ranges": RangeSuffix("sk", [2, 3]),
    "located": RandomSuffix(3, locate=True),
}
_KEYS = st.builds(lambda pk, sk: {"pk": pk, "sk": sk}, st.sampled_from(["", ".1"]), st.integers(1, 3))
_CONDITIONS = st.sampled_from(
    [
        "attribute_exists(pk)",
        "attribute_not_exists(pk)",
        "attribute_not_exists(sk) OR n = :one",
        "n = :one",
        "pk = :pk",
        "pk <> :pk AND n = :one",
    ]
)


@dataclass(frozen=True)
class Part:
    """An action on one item: ``n`` is what a put or an update writes."""

    kind: str
    key: Mapping[str, Any]
    n: int = 0
    condition: str | None = None


Call = tuple[str, list[Part]]


def calls(strategy: str) -> st.SearchStrategy[list[Call]]:
    """Calls in turn; with ``locate`` no update of an item that may not exist, and no key twice in a call."""
    conditions = st.none() | _CONDITIONS

    def parts(kinds: Sequence[str], condition: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Part]]:
        part = st.builds(Part, st.sampled_from(kinds), _KEYS, st.integers(0, 2), condition)
        once = (lambda part: tuple(part.key.values())) if strategy == "located" else None
        return st.lists(part, min_size=1, max_size=4, unique_by=once)

    writes = ["Put", "Put", "Delete", "ConditionCheck", *(["Update"] if strategy != "located" else [])]
    none = st.none()
    return st.lists(
        st.one_of(
            st.tuples(st.just("TransactWriteItems"), parts(writes, conditions)),
            st.tuples(st.just("TransactWriteItems"), parts(writes, none)),
            st.tuples(st.just("TransactGetItems"), parts(["Get"], none)),
            st.tuples(st.just("BatchWriteItem"), parts(["Put", "Delete"], none)),
            st.tuples(st.just("BatchGetItem"), parts(["Get"], none)),
        ),
        min_size=3,
        max_size=6,
    )


def check_alike(session: boto3.Session, resource: DynamoDBServiceResource, strategy: str) -> None:
    """Draw calls, and make them on a sharded table and on a plain one of the resource."""
    pair = make_pair(resource, SHAPES["numbers"])
    sharded = ShardedTable(pair.physical, STRATEGIES[strategy])
    other = session.resource("dynamodb", endpoint_url=resource.meta.client.meta.endpoint_url)
    install(other, {sharded.name: STRATEGIES[strategy]})

    @settings(max_examples=settings().max_examples // 5)
    @given(made=calls(strategy))
    def same(made: list[Call]) -> None:
        _check(pair, sharded, other.meta.client, made)

    same()
    other.meta.client.close()


def _check(pair: Pair, sharded: ShardedTable, installed: Any, made: Sequence[Call]) -> None:
    """Make the same calls on both tables, on keys that no other case has; compare every outcome and the items.

    ``installed`` is a resource's client with the sharded table installed. Transactions go through it or through the
    ``ShardedTable``, in turn.
    """
    mark = uuid.uuid4().hex[:8]
    for number, (operation, parts) in enumerate(made):
        wanted = _outcome(operation, _call(pair.plain.meta.client, pair.plain.name, operation, parts, mark))
        through = sharded if number % 2 and operation.startswith("Transact") else installed
        assert _outcome(operation, _call(through, sharded.name, operation, parts, mark)) == wanted, (operation, parts)
    for ending in ("", ".1"):
        query: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq(mark + ending), "ConsistentRead": True}
        assert sharded.query(**query)["Items"] == pair.plain.query(**query)["Items"], ending


def _call(caller: Any, table: str, operation: str, parts: Sequence[Part], mark: str) -> dict[str, Any]:
    """Make a call; return its response, or that of the error."""
    items = [_item(part, mark) for part in parts]
    params: dict[str, Any]
    if operation.startswith("Transact"):
        params = {"TransactItems": [{part.kind: _action(table, part, mark)} for part in parts]}
    elif operation == "BatchGetItem":
        params = {"RequestItems": {table: {"Keys": items}}}
    else:
        pairs = zip(parts, items, strict=True)
        requests = [{f"{part.kind}Request": {"Item" if part.kind == "Put" else "Key": item}} for part, item in pairs]
        params = {"RequestItems": {table: requests}}
    try:
        return dict(getattr(caller, xform_name(operation))(**params))
    except ClientError as error:
        return dict(error.response)


def _item(part: Part, mark: str) -> Item:
    return {**part.key, "pk": mark + part.key["pk"], **({"n": part.n} if part.kind == "Put" else {})}


def _action(table: str, part: Part, mark: str) -> dict[str, Any]:
    action: dict[str, Any] = {"TableName": table, "Item" if part.kind == "Put" else "Key": _item(part, mark)}
    condition = part.condition or ("attribute_exists(pk)" if part.kind == "ConditionCheck" else None)
    if part.kind == "Update":
        action["UpdateExpression"] = "SET n = :n"
    if condition is not None:
        action |= {"ConditionExpression": condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    used = (condition or "") + action.get("UpdateExpression", "")
    values = {":one": 1, ":pk": mark + part.key["pk"], ":n": part.n}
    if given := {name: value for name, value in values.items() if name in used}:
        action["ExpressionAttributeValues"] = given
    return action


def _outcome(operation: str, response: Mapping[str, Any]) -> Any:
    """Return what is the same on both tables: a batch's items have no order."""
    if "Error" in response:
        reasons = [(reason["Code"], reason.get("Item")) for reason in response.get("CancellationReasons", ())]
        return response["Error"]["Code"], reasons
    if operation == "TransactGetItems":
        return response["Responses"]
    if operation == "BatchGetItem":
        (items,) = response["Responses"].values() or ([],)
        return sorted(map(canonical, items))
    return response.get("UnprocessedItems")
