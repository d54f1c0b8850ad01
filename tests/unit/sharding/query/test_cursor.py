"""The cursor (promise 5): one checked ASCII token of bounded length."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Send
from shardkit.dynamodb.body import binary_text, encode
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.values import Binary, WireItem
from shardkit.errors import ConfigurationError, CursorError, InvalidKeyError
from shardkit.sharding.form import PYTHON_VALUES, WIRE_VALUES
from shardkit.sharding.layout import Sharding
from shardkit.sharding.query.cursor import Cursor, as_key, from_key, is_token, made_for
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.scan import scan
from shardkit.strategies import CalculatedSuffix, RandomSuffix, Stage, Strategy, Unsharded
from tests.support.moving import moving
from tests.support.strategies import vectors
from tests.support.tables import described, many

PURPOSE = made_for("orders", None, {"pk": {"S": "k"}})
WIRE = st.one_of(
    st.text(max_size=20).map(lambda text: {"S": text}),
    st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: {"N": str(number)}),
    st.binary(max_size=20).map(lambda data: {"B": binary_text(data)}),
)


def plan(sharding: Sharding, start: Any = None, *, shard: int | None = None, **more: Any) -> QueryPlan:
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), **more}
    return QueryPlan.of(sharding, params if start is None else {**params, "ExclusiveStartKey": start}, shard=shard)


def calculated(strategy: Strategy | None = None) -> Sharding:
    return described(
        strategy or CalculatedSuffix("sk", 3),
        {"pk": "S", "sk": "N", "a": "N", "city": "S"},
        ["pk", "sk"],
        secondary={"with-a": (["pk"], ["a"]), "city": (["city"], ["a"])},
    )


@given(shard=st.none() | st.integers(0, 10**6), key=st.dictionaries(st.text(max_size=9), WIRE, max_size=4))
def test_round_trip(shard: int | None, key: dict[str, Any]) -> None:
    """A cursor is read back as it was written, also through JSON and in a client's form."""
    token = Cursor(shard, key).token(PURPOSE, PYTHON_VALUES)
    assert token["shardkit"].isascii()
    assert Cursor.read(json.loads(json.dumps(token)), PURPOSE, "it", PYTHON_VALUES) == Cursor(shard, key)
    assert Cursor.read({"shardkit": {"S": token["shardkit"]}}, PURPOSE, "it", PYTHON_VALUES) == Cursor(shard, key)


@pytest.mark.parametrize("row", vectors("cursors.json"), ids=lambda row: row["name"])
def test_golden_tokens(row: dict[str, Any]) -> None:
    """Tokens outlive a release, in links and queues: each is written and read as it ever was."""
    cursor = Cursor(row["shard"], row["key"])
    purpose = made_for(*row["made_for"])
    assert cursor.token(purpose, PYTHON_VALUES) == {"shardkit": row["token"]}
    assert Cursor.read({"shardkit": row["token"]}, purpose, "it", PYTHON_VALUES) == cursor


@pytest.mark.parametrize("row", vectors("cursors.json"), ids=lambda row: row["name"])
def test_golden_tokens_of_reads(row: dict[str, Any]) -> None:
    """A Query and a Scan make and take these very tokens."""
    table, index, equals, *shard = row["made_for"]
    start = {"ExclusiveStartKey": {"shardkit": row["token"]}, **({"IndexName": index} if index else {})}
    # What the rows are keyed by: the table by Date and mostly OrderId.
    attributes = row["key"] | (equals if equals != "scan" else {})
    indexes = {
        "ByTotal": (["Date"], ["Total"]),
        "Places": (["Date", "City"], ["Total", "Photo", "Street"]),
        "ByCustomer": (["Customer"], ["Total"]),
    }
    sharding = described(
        Unsharded() if "unsharded" in row["name"] else RandomSuffix(10**6),
        {name: letter for name, value in attributes.items() for letter in value},
        ["Date", "OrderId"] if "OrderId" in row["key"] else ["Date"],
        secondary={index: indexes[index]} if index else {},
        name=table,
    )
    if equals == "scan":
        program = scan(sharding, start)
        send = program.send(None)
        assert isinstance(send, Send)
        assert send.params["ExclusiveStartKey"] == row["key"]
        with pytest.raises(StopIteration) as ended:
            program.send({"Items": [], "LastEvaluatedKey": row["key"]})
        assert ended.value.value["LastEvaluatedKey"] == start["ExclusiveStartKey"]
        return
    conditions = {
        name: {"AttributeValueList": [value], "ComparisonOperator": "EQ"}
        for name, value in from_wire_item(equals).items()
    }
    read = QueryPlan.of(sharding, {"KeyConditions": conditions, **start}, shard=shard[0] if shard else None)
    assert read.start == Cursor(row["shard"], row["key"])
    assert read.cursor(row["shard"], row["key"]) == start["ExclusiveStartKey"]


# Signed.

SECRET, OTHER = b"0123456789abcdef", b"fedcba9876543210"
SIGNING = PYTHON_VALUES.signing(SECRET)


@given(shard=st.none() | st.integers(0, 10**6), key=st.dictionaries(st.text(max_size=9), WIRE, max_size=4))
def test_signed_round_trip(shard: int | None, key: dict[str, Any]) -> None:
    """Also of a table of a time series, through JSON and in a client's form, and while secrets are changed."""
    cursor, period = Cursor(shard, key), "2014-07."
    token = cursor.token(PURPOSE, SIGNING, period)
    changing = PYTHON_VALUES.signing([OTHER, SECRET])
    for form in (SIGNING, changing):
        assert Cursor.read(json.loads(json.dumps(token)), PURPOSE, "it", form, period) == cursor
    assert WIRE_VALUES.signing(SECRET).cursor_secrets == SIGNING.cursor_secrets
    assert cursor.token(PURPOSE, WIRE_VALUES.signing(SECRET), period) == {"shardkit": {"S": token["shardkit"]}}
    assert cursor.token(PURPOSE, changing, period) == cursor.token(PURPOSE, PYTHON_VALUES.signing(OTHER), period)


@pytest.mark.parametrize("row", vectors("signed_cursors.json"), ids=lambda row: row["name"])
def test_golden_signatures(row: dict[str, Any]) -> None:
    """A signed token is written and read as it ever was: the token, and its HMAC."""
    cursor, purpose = Cursor(row["shard"], row["key"]), made_for(*row["made_for"])
    form = PYTHON_VALUES.signing(base64.b64decode(row["secret"]))
    assert cursor.token(purpose, form, row["period"]) == {"shardkit": row["token"]}
    assert Cursor.read({"shardkit": row["token"]}, purpose, "it", form, row["period"]) == cursor
    text, _, signature = row["token"].rpartition(".")
    assert cursor.token(purpose, PYTHON_VALUES, row["period"]) == {"shardkit": text}
    mac = hmac.new(base64.b64decode(row["secret"]), text.encode("ascii"), hashlib.sha256).digest()
    assert signature == base64.urlsafe_b64encode(mac).decode().rstrip("=")


def test_what_is_not_signed_is_refused() -> None:
    cursor, period = Cursor(2, {"sk": {"N": "17"}}), "2014-07."
    bare = cursor.token(PURPOSE, PYTHON_VALUES, period)["shardkit"]
    text = cursor.token(PURPOSE, SIGNING, period)["shardkit"]
    changed = [
        text[:place] + other + text[place + 1 :]
        for place, character in enumerate(text)
        for other in "Aa0-_+/=. é"
        if other != character
    ]
    ended = cursor.token(PURPOSE, SIGNING, "2014-08.")["shardkit"]
    swapped = "2014-07." + ended.removeprefix("2014-08.")
    for wrong in (
        *changed,
        *(text[:-1], text[1:], text + "A", text + "=", text + ".", text + "\n", text * 2, "." + text, swapped),
        *(bare, f"{bare}.", "", ".", "\udc80", "\udc80.\udc80", "x" * 10**6, "." * 10**6),
        cursor.token(PURPOSE, PYTHON_VALUES.signing(OTHER), period)["shardkit"],
    ):
        with pytest.raises(CursorError, match=r"^ExclusiveStartKey: .* is not signed with a secret of cursor_secret="):
            Cursor.read({"shardkit": wrong}, PURPOSE, "it", SIGNING, period)
    # Nor is a signed cursor read where no secret is known, though its token could be.
    with pytest.raises(CursorError, match="damaged"):
        Cursor.read({"shardkit": text}, PURPOSE, "it", PYTHON_VALUES, period)
    # What it is made for is checked all the same.
    with pytest.raises(CursorError, match="another key"):
        Cursor.read({"shardkit": text}, "another", "it", SIGNING, period)
    with pytest.raises(CursorError, match="is not a signed cursor"):
        is_token({"pk": "k", "sk": 17}, SIGNING)
    assert is_token({"shardkit": text}, SIGNING)


@pytest.mark.parametrize(
    "given", ["0123456789abcdef", b"0123456789abcde", b"", [], (), [SECRET, b"short"], [SECRET, "text"], 5, {SECRET}]
)
def test_secrets_are_checked_and_not_told(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^cursor_secret: must be bytes, at least 16, or a list") as refused:
        PYTHON_VALUES.signing(given)
    assert "0123" not in str(refused.value)
    assert "0123" not in repr(SIGNING)
    assert PYTHON_VALUES.signing(None) is PYTHON_VALUES


def test_binary_of_boto3() -> None:
    """Binary is the same as JSON's base64 text, as the bytes that botocore parses, and as boto3's Binary."""
    assert made_for({"pk": {"B": Binary(b"x")}}) == made_for({"pk": {"B": b"x"}}) == made_for({"pk": {"B": "eA=="}})


def test_damage_in_every_character() -> None:
    """Any other character in any place is noticed, and so are a cut, an addition and padding."""
    text = Cursor(2, {"sk": {"N": "17"}}).token(PURPOSE, PYTHON_VALUES)["shardkit"]
    for place, character in enumerate(text):
        for other in "Aa0-_+/=. é":
            if other != character:
                with pytest.raises(CursorError, match="damaged"):
                    Cursor.read({"shardkit": text[:place] + other + text[place + 1 :]}, PURPOSE, "it", PYTHON_VALUES)
    for wrong in (text[:-1], text[1:], text + "A", text + "=", text + "\n", "", "A", text * 2):
        with pytest.raises(CursorError, match="damaged"):
            Cursor.read({"shardkit": wrong}, PURPOSE, "it", PYTHON_VALUES)


@pytest.mark.parametrize("given", [{"shardkit": 5}, {"shardkit": {"N": "5"}}, {"shardkit": "x", "pk": "k"}])
def test_no_cursor_at_all(given: Mapping[str, Any]) -> None:
    """What only looks like a cursor is refused."""
    assert is_token(given, PYTHON_VALUES)
    with pytest.raises(CursorError, match="not a cursor"):
        Cursor.read(given, PURPOSE, "it", PYTHON_VALUES)


def test_another_version() -> None:
    """A cursor of a version to come is told from a damaged one, whatever it holds."""
    payload = orjson.dumps([2, "what", "ever", "it", "holds"])
    raw = hashlib.sha256(payload).digest()[:4] + payload
    with pytest.raises(CursorError, match="version 2"):
        Cursor.read({"shardkit": base64.urlsafe_b64encode(raw).decode().rstrip("=")}, PURPOSE, "it", PYTHON_VALUES)


def test_made_for_something_else() -> None:
    """A cursor of another table, index, logical key or sort key equality is refused."""
    sharding = many()
    start = plan(sharding).cursor(1, {"sk": {"N": "1"}, "a": {"N": "1"}})
    assert plan(sharding, start).start == Cursor(1, {"sk": {"N": "1"}})
    others: list[dict[str, Any]] = [
        {"KeyConditionExpression": Key("pk").eq("other")},
        {"KeyConditionExpression": Key("pk").eq("k") & Key("sk").eq(1)},
        {"IndexName": "by-a"},
    ]
    for other in others:
        with pytest.raises(CursorError, match="cursor is of another key, Shard=, table or index"):
            plan(sharding, start, **other)
    elsewhere = Sharding("elsewhere", sharding.strategy, sharding.keys, sharding.indexes, sharding.types)
    with pytest.raises(CursorError, match="cursor is of another key, Shard=, table or index than 'elsewhere', key"):
        plan(elsewhere, start)


@pytest.mark.parametrize("written", ["1", "1.0", "10E-1", "0.1E1"])
def test_one_number_in_many_ways(written: str) -> None:
    """A number is the same key however it is written; one that is none is left for the service to refuse."""
    assert made_for({"a": {"N": written}}) == made_for({"a": {"N": "1.00"}})
    assert made_for({"a": {"N": "0"}}) == made_for({"a": {"N": "-0.0"}}) != made_for({"a": {"S": "0"}})
    assert made_for({"a": {"N": "many"}}) != made_for({"a": {"N": "1"}})
    assert made_for({"a": {"N": "9" * 38}}) != made_for({"a": {"N": "9" * 37 + "8"}})


@pytest.mark.parametrize("shard", [0, 4, -1, None])
def test_a_shard_that_is_not_there(shard: Any) -> None:
    """A cursor on a shard that the key has not (any more) is refused; so is one for another Shard=."""
    start = Cursor(shard, {"sk": {"N": "1"}}).token(plan(many()).purpose, PYTHON_VALUES)
    with pytest.raises(CursorError, match="which is not one of"):
        plan(many(), start)
    with pytest.raises(CursorError, match="another key, Shard="):
        plan(many(), plan(many()).cursor(1, {"sk": {"N": "1"}}), shard=2)


def test_a_key_that_is_not_whole() -> None:
    """A cursor without the sort key is refused."""
    with pytest.raises(CursorError, match="start the read again"):
        plan(many(), Cursor(1, {}).token(plan(many()).purpose, PYTHON_VALUES))


def test_outside_of_the_key_condition() -> None:
    """As in DynamoDB, a start key must satisfy the key condition."""
    start = plan(many()).cursor(1, {"sk": {"N": "7"}})
    assert plan(many(), start, KeyConditionExpression=Key("pk").eq("k") & Key("sk").gt(6)).start is not None
    with pytest.raises(CursorError, match="outside the key condition"):
        plan(many(), start, KeyConditionExpression=Key("pk").eq("k") & Key("sk").lt(7))


def test_bounded_length() -> None:
    """The token's length is that of one key, whatever the number of shards: 10,000 shards add four digits."""
    types = {"pk": "B", "sk": "B", "a": "S"}
    lengths = {}
    for shards in (1, 10_000):
        sharding = described(RandomSuffix(shards), types, ["pk", "sk"], local={"by-a": (["pk"], ["a"])})
        big = QueryPlan.of(
            sharding, {"KeyConditionExpression": Key("pk").eq(b"\xff" * 2042), "IndexName": "by-a", "Limit": 1}
        )
        key: dict[str, Any] = {"sk": {"B": binary_text(b"\xff" * 1024)}, "a": {"S": "\U0001f600" * 256}}
        token = big.cursor(shards, key)["shardkit"]
        lengths[shards] = len(token)
        again = QueryPlan.of(
            sharding,
            {
                "KeyConditionExpression": Key("pk").eq(b"\xff" * 2042),
                "IndexName": "by-a",
                "ExclusiveStartKey": {"shardkit": token},
            },
        )
        assert again.start == Cursor(shards, key)
    assert lengths[10_000] - lengths[1] <= 6
    assert lengths[10_000] < 4096


class TestByHand:
    """A primary key in the cursor's place."""

    @given(st.integers(-(10**37), 10**37))
    def test_the_shard_is_calculated(self, number: int) -> None:
        """Where the shard is a function of the primary key, the key will do."""
        sharding = calculated()
        start = plan(sharding, {"pk": "k", "sk": number}).start
        assert start == Cursor(sharding.shard_of({"S": "k"}, {"pk": "k", "sk": number}), {"sk": {"N": str(number)}})

    def test_on_indexes(self) -> None:
        """On an index it takes the index's key and the table's; where it is not fanned out, the stored key is sent."""
        sharding = calculated()
        key = {"pk": "k", "sk": 1, "a": 5}
        shard = sharding.shard_of({"S": "k"}, key)
        assert plan(sharding, key, IndexName="with-a").start == Cursor(shard, {"a": {"N": "5"}, "sk": {"N": "1"}})
        city = plan(sharding, {**key, "city": "r"}, IndexName="city", KeyConditionExpression=Key("city").eq("r")).start
        assert city is not None
        assert (city.shard, from_wire_item(city.key)) == (None, {**key, "city": "r", "pk": f"k.{shard}"})
        with pytest.raises(CursorError, match="neither a cursor of shardkit nor a key"):
            plan(sharding, {"pk": "k", "sk": 1}, IndexName="with-a")

    def test_of_an_unsharded_table(self) -> None:
        """What an existing table has."""
        assert plan(calculated(Unsharded()), {"pk": "k", "sk": 1}).start == Cursor(None, {"sk": {"N": "1"}})

    @pytest.mark.parametrize(
        "strategy", [RandomSuffix(3), CalculatedSuffix("other", 3), CalculatedSuffix(lambda item: item["x"], 3)]
    )
    def test_the_shard_cannot_be_calculated(self, strategy: Strategy) -> None:
        """Where nobody can know the shard, the key is refused."""
        with pytest.raises(CursorError, match="cannot be calculated"):
            plan(calculated(strategy), {"pk": "k", "sk": 1})

    @pytest.mark.parametrize("wrong", [{}, {"pk": "k"}, {"pk": "k", "sk": 1, "more": 1}, "token", 5])
    def test_no_key(self, wrong: Any) -> None:
        """Neither a cursor nor a whole primary key."""
        with pytest.raises(CursorError, match="neither a cursor of shardkit nor a key"):
            plan(calculated(), wrong)

    def test_of_another_key(self) -> None:
        """A primary key of another logical key."""
        with pytest.raises(CursorError, match="not a key of 'orders'"):
            plan(calculated(), {"pk": "other", "sk": 1})

    def test_of_a_wrong_type(self) -> None:
        """A sort key of another type is refused before it is compared with any."""
        with pytest.raises(InvalidKeyError, match="must be a number"):
            plan(calculated(), {"pk": "k", "sk": "1"})

    def test_outside(self) -> None:
        """One that does not satisfy the key condition."""
        with pytest.raises(CursorError, match="outside the key condition"):
            plan(calculated(), {"pk": "k", "sk": 7}, KeyConditionExpression=Key("pk").eq("k") & Key("sk").lt(7))


def test_a_shard_for_a_query_that_is_not_fanned_out() -> None:
    """Shard= on an index with another partition key has no meaning."""
    with pytest.raises(ConfigurationError, match="not fanned out"):
        plan(calculated(), shard=1, IndexName="city", KeyConditionExpression=Key("city").eq("r"))


def signed(payload: bytes) -> dict[str, str]:
    raw = hashlib.sha256(payload).digest()[:4] + payload
    return {"shardkit": base64.urlsafe_b64encode(raw).decode().rstrip("=")}


def forged(*contents: Any) -> dict[str, str]:
    return signed(orjson.dumps(list(contents)))


@pytest.mark.parametrize(
    "rest",
    [
        (),
        (None,),
        (1, []),
        (1, {"sk": "x"}),
        (1, {"sk": ["N"]}),
        (1, {"sk": ["B", "x"]}),
        (1, {"sk": ["B", 5]}),
        (1, {"sk": ["N", {"S": "1"}]}),
        (1, {"sk": ["N", 1]}),
        (1, {"sk": ["S", None]}),
        (1, {"sk": [["S"], "x"]}),
        (1, {"sk": ["BOOL", "x"]}),
        *(
            (1, {"sk": ["N", text]})
            for text in (
                "",
                "x",
                "NaN",
                "-Infinity",
                "1_0",
                "\N{ARABIC-INDIC DIGIT ONE}",
                " 1",
                "1E999999999",
                "1E-131",
            )
        ),
        *((1, {"sk": ["N", text]}) for text in ("1" * 39, "1" * 400, "1E99999999999999999999", "0E999999999", "1E126")),
        ("1", {"sk": ["N", "1"]}),
        (1.5, {"sk": ["N", "1"]}),
        (True, {"sk": ["N", "1"]}),
        ([1], {"sk": ["N", "1"]}),
    ],
)
def test_what_a_forger_writes_is_refused(rest: tuple[Any, ...]) -> None:
    """The check sum keeps accidents out, not people: what it holds is looked at too."""
    with pytest.raises(CursorError, match="damaged"):
        Cursor.read(forged(1, PURPOSE, *rest), PURPOSE, "it", PYTHON_VALUES)


@pytest.mark.parametrize(
    "key",
    [
        {"sk": ["S", "text"]},
        {"sk": ["S", ""]},
        {"sk": ["N", "1"], "pk": ["S", "other.1"]},
        {},
    ],
)
def test_a_forged_key_is_refused(key: dict[str, Any]) -> None:
    """A cursor stands on a key of the table, of its types, and cannot name another partition key."""
    sharding = many()
    with pytest.raises(CursorError, match="damaged"):
        plan(sharding, forged(1, plan(sharding).purpose, 1, key))


def test_a_number_in_the_place_of_a_text() -> None:
    """Its message shows the number as it came, however long that is."""
    sharding = described(RandomSuffix(3), {"pk": "S", "sk": "S"}, ["pk", "sk"])
    with pytest.raises(CursorError, match="got type N"):
        plan(sharding, forged(1, plan(sharding).purpose, 1, {"sk": ["N", "1" + "0" * 100]}))


def test_the_length_is_looked_at_first() -> None:
    """A token of 50 MB is refused before it is decoded; the longest that can be is not."""
    with pytest.raises(CursorError, match="damaged") as raised:
        Cursor.read(signed(b"[" + b" " * 50_000_000 + b"1]"), PURPOSE, "it", PYTHON_VALUES)
    assert len(str(raised.value)) < 300
    with patch("shardkit.sharding.query.cursor.base64.b64decode", side_effect=AssertionError("it was decoded")):
        for long in ("A" * 150_000, {"S": "A" * 150_000}):
            with pytest.raises(CursorError, match="damaged"):
                Cursor.read({"shardkit": long}, PURPOSE, "it", PYTHON_VALUES)
    names = [name * 255 for name in "abcdefghij"]
    longest: WireItem = {name: {"S": "\x01" * (2048 if place < 5 else 1024)} for place, name in enumerate(names)}
    cursor = Cursor(10**6, longest)
    assert Cursor.read(cursor.token(PURPOSE, PYTHON_VALUES), PURPOSE, "it", PYTHON_VALUES) == cursor


# Whatever a token says, it is refused, or is a position that can be read on from.

LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["S", "N", "B", "sk", "a", "pk", "1", "-0", "1E100", "1E-200", "1E999999999", "NaN", "eA=="])
)  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["sk", "a", "S", ""]), inner, max_size=3)
    ),
    max_leaves=12,
)
VALUES = st.lists(st.sampled_from(["S", "N", "B", "NS", "", None]) | JSON, min_size=2, max_size=2) | JSON
QUERIES: dict[str, tuple[Sharding, dict[str, Any]]] = {
    "N": (many(), {}),
    "S": (described(RandomSuffix(3), {"pk": "S", "sk": "S"}, ["pk", "sk"]), {}),
    "B": (described(RandomSuffix(3), {"pk": "S", "sk": "B"}, ["pk", "sk"]), {}),
    "no sort key": (described(RandomSuffix(3), {"pk": "S"}, ["pk"]), {}),
    "unsharded": (calculated(Unsharded()), {}),
    "range": (many(), {"KeyConditionExpression": Key("pk").eq("k") & Key("sk").between(0, 10**30)}),
    "one item": (many(), {"KeyConditionExpression": Key("pk").eq("k") & Key("sk").eq(1)}),
    "local": (many(), {"IndexName": "by-a"}),
    "several sort keys": (many(), {"IndexName": "a-then-b"}),
    "two partition keys": (
        many(), {"IndexName": "two-and-a", "KeyConditionExpression": Key("pk").eq("k") & Key("city").eq("r")}
    ),
    "another partition key": (many(), {"IndexName": "city", "KeyConditionExpression": Key("city").eq("r")}),
}  # fmt: skip


@st.composite
def payloads(draw: st.DrawFn, purpose: str, shards: Sequence[int | None], names: Sequence[str]) -> bytes:
    """What a forger may write: any bytes, any JSON, and ever more of it right."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=40))
    if draw(st.integers(0, 9)) == 0:
        return orjson.dumps(draw(JSON))
    key = {name: draw(VALUES) for name in names} | draw(st.dictionaries(st.text(max_size=2), VALUES, max_size=1))
    right = [1, purpose, draw(st.sampled_from(shards) | JSON), key]
    wrong = draw(st.none() | st.integers(0, 5))
    if wrong is not None and wrong < len(right):
        right[wrong] = draw(JSON)
    return orjson.dumps(right)


@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data(), forward=st.booleans())
def test_any_forged_cursor(name: str, forward: bool, data: st.DataObject) -> None:
    """A CursorError, or a position: every shard's next request can be written, and its own cursor is read again."""
    sharding, more = QUERIES[name]
    more = {**more, "ScanIndexForward": forward}
    whole = plan(sharding, **more)
    token = signed(data.draw(payloads(whole.purpose, whole.shards, whole.key_names)))
    try:
        started = plan(sharding, token, **more)
    except CursorError:
        return
    assert started.start is not None
    for number in range(len(started.shards)):
        if send := started.request(number, None, None, lambda _: None):
            assert encode(send.params)
    items = [dict(started.start.key)]
    number = started.shards.index(started.start.shard)
    for item in started.run(number, items).items:
        again = plan(sharding, started.behind(number, item), **more)
        assert again.start_place == started.start_place


@given(data=st.data(), index=st.sampled_from([None, "city"]))
def test_any_forged_cursor_of_a_scan(data: st.DataObject, index: str | None) -> None:
    """The same of a Scan, which sends the key as it is stored."""
    sharding, params = many(), {} if index is None else {"IndexName": index}
    names = [*dict.fromkeys((*sharding.schema(index).names, *sharding.keys.names))]
    token = signed(data.draw(payloads(made_for("orders", index, "scan"), [None, None, 1], names)))
    program = scan(sharding, {**params, "ExclusiveStartKey": token})
    try:
        send = program.send(None)
    except CursorError:
        return
    assert isinstance(send, Send)
    assert set(send.params["ExclusiveStartKey"]) == set(names)
    assert from_wire_item(send.params["ExclusiveStartKey"])


def test_a_scan_refuses_a_key_that_is_none_of_its() -> None:
    """Of other attributes, of another type, or on a shard."""
    purpose = made_for("orders", None, "scan")
    good: WireItem = {"pk": {"S": "k.1"}, "sk": {"N": "1"}}
    for cursor in (
        Cursor(None, {"pk": {"S": "k.1"}}),
        Cursor(None, {**good, "a": {"N": "1"}}),
        Cursor(None, {**good, "sk": {"S": "1"}}),
        Cursor(1, good),
    ):
        with pytest.raises(CursorError, match="start the read again"):
            scan(many(), {"ExclusiveStartKey": cursor.token(purpose, PYTHON_VALUES)}).send(None)
    send = scan(many(), {"ExclusiveStartKey": Cursor(None, good).token(purpose, PYTHON_VALUES)}).send(None)
    assert isinstance(send, Send)
    assert send.params["ExclusiveStartKey"] == good


def test_a_scan_of_an_index_that_is_not_in_the_key_schema() -> None:
    """Its key's attributes are not known here: the table's must be among them."""
    purpose = made_for("orders", "later", "scan")
    key: WireItem = {"pk": {"S": "k.1"}, "sk": {"N": "1"}, "new": {"S": "x"}}
    start = {"IndexName": "later", "ExclusiveStartKey": Cursor(None, key).token(purpose, PYTHON_VALUES)}
    send = scan(many(), start).send(None)
    assert isinstance(send, Send)
    assert send.params["ExclusiveStartKey"] == key
    del key["pk"]
    with pytest.raises(CursorError, match="start the read again"):
        scan(many(), {**start, "ExclusiveStartKey": Cursor(None, key).token(purpose, PYTHON_VALUES)}).send(None)


def test_a_forged_value_of_the_key_condition() -> None:
    """A start key must be of the items that are asked for, also in what the shard does not tell."""
    more: dict[str, Any] = {"IndexName": "two-and-a", "KeyConditionExpression": Key("pk").eq("k") & Key("city").eq("r")}
    whole = plan(many(), **more)
    key: WireItem = {"city": {"S": "r"}, "a": {"N": "1"}, "sk": {"N": "1"}}
    assert plan(many(), whole.cursor(1, key), **more).start == Cursor(1, key)
    with pytest.raises(CursorError, match="not a key of 'orders'"):
        plan(many(), whole.cursor(1, {**key, "city": {"S": "elsewhere"}}), **more)


@given(
    st.one_of(st.text(min_size=1, max_size=5), st.sampled_from(["k", "k.2", "k.2.1", "k.9"])),
    st.integers(0, 50),
    st.sampled_from([CalculatedSuffix("sk", 3), CalculatedSuffix("city", 3), RandomSuffix(3), Unsharded()]),
    st.none() | st.integers(1, 3),
)
def test_a_key_as_a_cursor_means_the_position_that_it_came_from(
    pk: str, sk: int, strategy: Strategy, shard: int | None
) -> None:
    """Whatever the key, and in whichever shard it is stored; where that cannot be said, it is refused."""
    sharding = calculated(strategy)
    unsharded = isinstance(strategy, Unsharded)
    stored: WireItem = {"pk": {"S": pk if shard is None or unsharded else f"{pk}.{shard}"}, "sk": {"N": str(sk)}}
    try:
        shown = as_key(sharding, stored)
    except CursorError as error:
        assert not unsharded
        assert sharding.logical(stored["pk"])[1] is None
        assert "stored without a suffix" in str(error)  # noqa: PT017
        return
    assert from_key(sharding, shown) == stored


@pytest.mark.parametrize("stage", ["guard", "switch", "move"])
@pytest.mark.parametrize("strategies", [*permutations([Unsharded(), CalculatedSuffix("sk", 3)])])
def test_a_page_that_ends_at_an_unsuffixed_item_goes_on_after_it_while_items_move(
    stage: Stage, strategies: tuple[Strategy, Strategy]
) -> None:
    sharding = moving(stage, *strategies)
    for pk in ("k", "k.2"):
        stored: WireItem = {"pk": {"S": pk}, "sk": {"S": "7"}}
        assert from_key(sharding, as_key(sharding, stored)) == stored


def test_a_key_that_a_library_builds_from_an_item_is_a_cursor_too() -> None:
    sharding = calculated()
    key: WireItem = {"pk": {"S": "k"}, "sk": {"N": "7"}}
    stored = sharding.stored(key, sharding.known_shard(key, {"pk": "k", "sk": 7})[0])
    assert from_key(sharding, key) == stored
    assert as_key(sharding, stored) == key
    with pytest.raises(CursorError, match="hand-made"):
        from_key(calculated(RandomSuffix(3)), key)
