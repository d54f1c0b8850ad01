"""Python values ⇄ wire values: boto3's own results, in JSON's form, with the size that DynamoDB counts."""

from __future__ import annotations

import base64
import enum
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity import item_size
from shardkit.dynamodb.body import binary_bytes, binary_text, encode
from shardkit.dynamodb.decode import from_wire, from_wire_item, refuse_unreadable
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import InvalidKeyError, InvalidValueError
from shardkit.sharding.form import WIRE_VALUES

serialize: Any = TypeSerializer().serialize
deserialize: Any = TypeDeserializer().deserialize

# Up to 38 digits, as boto3's context takes them.
NUMBERS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.builds(
        lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
        st.integers(0, 1),
        st.lists(st.integers(0, 9), min_size=1, max_size=38).map(tuple),
        st.integers(-90, 80),
    ),
    st.sampled_from([0, Decimal("-0"), Decimal("0E+5"), Decimal("0.00"), Decimal("9" * 38), Decimal("-1E-128")]),
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
BINARIES = st.one_of(st.binary(max_size=9), st.binary(max_size=9).map(Binary))
SCALARS = st.one_of(TEXTS, NUMBERS, BINARIES, st.binary(max_size=9).map(bytearray), st.booleans(), st.none())
SETS = st.one_of(st.sets(TEXTS, max_size=4), st.sets(NUMBERS, max_size=4), st.frozensets(BINARIES, max_size=4))
VALUES = st.recursive(
    st.one_of(SCALARS, SETS),
    lambda members: st.one_of(
        st.lists(members, max_size=4),
        st.lists(members, max_size=4).map(tuple),
        st.dictionaries(TEXTS, members, max_size=4),
        st.dictionaries(TEXTS, members, max_size=4).map(OrderedDict),
        st.dictionaries(TEXTS, members, max_size=4).map(MappingProxyType),
    ),
    max_leaves=12,
)
ITEMS = st.dictionaries(TEXTS, VALUES, max_size=6)


def json_form(wire: Any) -> Any:
    """boto3's wire form as JSON has it, written independently: binary is base64 text."""
    ((letter, content),) = wire.items()
    if letter == "M":
        return {"M": {name: json_form(member) for name, member in content.items()}}
    if letter == "L":
        return {"L": [json_form(member) for member in content]}
    if letter == "B":
        return {"B": base64.b64encode(content).decode()}
    return {"BS": [base64.b64encode(raw).decode() for raw in content]} if letter == "BS" else wire


def slow_size(value: Any) -> int:
    """The Developer Guide's rules, read off Python values."""
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, int | Decimal):
        whole, _, fraction = format(Decimal(value).copy_abs(), "f").partition(".")
        whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
        if not whole and not fraction:
            return 1
        # The zeros between the digits and the point are none.
        whole, fraction = (whole, fraction) if fraction else (whole.rstrip("0"), "")
        fraction = fraction if whole else fraction.lstrip("0")
        return 1 + -(-len(whole) // 2) + -(-len(fraction) // 2) + (value < 0)
    if isinstance(value, Mapping):
        return 3 + sum(1 + len(name.encode()) + slow_size(member) for name, member in value.items())
    if isinstance(value, list | tuple):
        return 3 + sum(1 + slow_size(member) for member in value)
    if isinstance(value, set | frozenset):
        return sum(map(slow_size, value))
    return len(bytes(value))


def slow_item_size(item: Mapping[str, Any]) -> int:
    return sum(len(name.encode()) + slow_size(value) for name, value in item.items())


def typed(value: Any) -> Any:
    """A value with the types all the way down: 1 is not True, Binary is not bytes, 1.0 is not 1."""
    if isinstance(value, Mapping):
        return type(value), [(name, typed(member)) for name, member in value.items()]
    if isinstance(value, list):
        return list, [typed(member) for member in value]
    if isinstance(value, set):
        return set, {typed(member) for member in value}
    return type(value), bytes(value.value) if isinstance(value, Binary) else str(value)  # type: ignore[attr-defined]


@given(ITEMS)
def test_written_as_boto3_writes(item: dict[str, Any]) -> None:
    """Both wire forms say the same, the order of a set's members among it; and the size is the guide's."""
    wire = to_wire_item(item)
    assert wire == {name: json_form(serialize(value)) for name, value in item.items()}
    assert item_size(wire) == slow_item_size(item)
    assert item_size({**item, "a name that is in no item": ""}) == item_size(wire) + 25


@given(ITEMS)
def test_an_item_is_never_larger_than_its_json(item: dict[str, Any]) -> None:
    """A bulk load counts the size of an item only where its JSON is longer than a write unit."""
    wire = to_wire_item(item)
    assert item_size(wire) <= len(encode(wire))


@given(ITEMS)
def test_read_as_boto3_reads(item: dict[str, Any]) -> None:
    """From JSON's form and from botocore's the same values, of the same types, as from boto3; and the same size."""
    parsed = {name: serialize(value) for name, value in item.items()}
    wanted = {name: deserialize(value) for name, value in parsed.items()}
    for wire in (parsed, to_wire_item(item)):
        assert typed(from_wire_item(wire)) == typed(wanted)
        assert typed({name: from_wire(value) for name, value in wire.items()}) == typed(wanted)
        assert item_size(wire) == slow_item_size(item)


@given(ITEMS)
def test_round_trip_through_http(item: dict[str, Any]) -> None:
    """What is sent and read again is what boto3 would show, also where stray bytes were in it."""
    wanted = {name: deserialize(serialize(value)) for name, value in item.items()}
    for wire in (to_wire_item(item), {name: serialize(value) for name, value in item.items()}):
        body = orjson.loads(encode({"Item": wire}))
        assert typed(from_wire_item(body["Item"])) == typed(wanted)


class Colour(str, enum.Enum):  # noqa: UP042 - its str() is not its value
    RED = "red"

    def __str__(self) -> str:
        return "no colour"


class Wide(str, enum.Enum):  # noqa: UP042 - its str() is not its value
    """An Enum whose value is not its text."""

    A4 = "a4"

    @property
    def value(self) -> tuple[str, int]:  # type: ignore[override]
        return str.__str__(self), 297


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()


class Names(dict[str, Any]):
    pass


class Data(bytes):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED, Wide.A4, Level.HIGH, Name("x"), Names(a=1), Data(b"x"), defaultdict(list, a=[1]), True,
        [Level.HIGH],
        {Colour.RED}, {True, 2}, {Level.HIGH, Decimal(4)}, frozenset({"a"}), {"a": 1}.keys(), {1: "a"}.keys(),
        {Data(b"x"), Binary(b"y")}, set(), ({"a": None}, ()), bytearray(b"x"), "", b"", [], {}, "\U0001f600",
    ],
)  # fmt: skip
def test_subclasses_and_rare_types(value: Any) -> None:
    """Treated as boto3 treats them; and what is written is JSON that says it."""
    wire = to_wire_item({"a": value})
    assert wire == {"a": json_form(serialize(value))}
    assert orjson.loads(encode(wire)) == wire


@pytest.mark.parametrize(
    "value",
    [
        1.5, float("nan"), Decimal("NaN"), Decimal("Infinity"), 10**38 + 1, Decimal("1." + "1" * 38), Decimal("1E+127"),
        Decimal("1E-166"), {1, "a"}, {1.5}, {"a", b"a"}, {None}, {(1,)}, memoryview(b"x"), object(), range(3),
        iter([]), [1.5], {"a": {"b": [{1.5}]}}, complex(1), (1, {"a": object()}),
    ],
)  # fmt: skip
def test_refused_as_boto3_refuses(value: Any) -> None:
    """All that boto3 refuses is refused, as a TypeError that names the attribute."""
    with pytest.raises((TypeError, ArithmeticError)):
        serialize(value)
    for write in (to_wire_item, item_size):
        with pytest.raises(InvalidValueError, match=r"attribute 'Total': got .*, which DynamoDB cannot hold: "):
            write({"OrderId": "A17", "Total": value})


def test_a_number_too_long_to_print() -> None:
    with pytest.raises(InvalidValueError, match="a number can have 38 digits"):
        to_wire_item({"Total": 10**5000})


@pytest.mark.parametrize("value", [Decimal("-Infinity"), Decimal("sNaN")])
def test_refused_before_the_service_does(value: Any) -> None:
    """boto3 lets these pass, and the service refuses the whole batch."""
    assert serialize(value) == {"N": str(value)}
    for write in (to_wire_item, item_size):
        with pytest.raises(InvalidValueError, match="Infinity and NaN"):
            write({"Total": value})


@pytest.mark.parametrize("item", [{5: "x"}, {"a": {None: 1}}, {"a": [{5: 1}]}])
def test_a_name_is_a_text(item: Any) -> None:
    with pytest.raises(InvalidKeyError, match="give a str"):
        to_wire_item(item)
    with pytest.raises(InvalidKeyError, match="give a str"):
        item_size({"k": "x", **item})


@pytest.mark.parametrize("item", ["text", None, 5, [("a", 1)]])
def test_an_item_is_a_mapping(item: Any) -> None:
    with pytest.raises(InvalidKeyError, match="must be a mapping"):
        to_wire_item(item)


@pytest.mark.parametrize(
    "value", [{}, {"X": 1}, {"S": "x", "N": "1"}, "S", None, 5, {"S": 5}, {"N": "x"}, {"N": 1}, {"L": [{}]}, {"B": "?"},
              {"M": {"b": {"X": 1}}}, {"BS": ["x"]}, {"L": 5}]
)  # fmt: skip
def test_what_is_no_wire_value(value: Any) -> None:
    """A TypeError, as boto3 raises, that names the attribute."""
    with pytest.raises(InvalidValueError, match="attribute 'a': must be a wire value"):
        refuse_unreadable({"b": {"S": "x"}, "a": value})
    with pytest.raises(TypeError, match="must be a wire value"):
        from_wire(value)


@pytest.mark.parametrize("value", [{}, {"X": 1}, {"S": "x", "N": "1"}, "S", None, {"L": [{}]}, {"B": "?"}])
def test_an_item_read_that_is_no_wire_form(value: Any) -> None:
    """The quick reader refuses what has no one type letter; contents it takes as boto3 does."""
    with pytest.raises(InvalidValueError, match="attribute 'a': must be a wire value"):
        from_wire_item({"b": {"S": "x"}, "a": value})


@pytest.mark.parametrize("number", ["1" * 39, "1E+127", "1E-166"])
def test_numbers_that_no_item_has(number: str) -> None:
    """boto3's context traps them, and ours is the same."""
    with pytest.raises(ArithmeticError) as theirs:
        deserialize({"N": number})
    with pytest.raises(ArithmeticError) as ours:
        from_wire({"N": number})
    assert type(ours.value) is type(theirs.value)


def test_as_deep_as_dynamodb_and_deeper() -> None:
    """DynamoDB takes 32 levels; what is beyond JSON's is refused with a reason."""
    value: Any = "x"
    for _ in range(32):
        value = {"a": [value]}
    assert from_wire_item(orjson.loads(encode({"Item": to_wire_item({"a": value})}))["Item"]) == {"a": value}
    wire: Any = {"S": "x"}
    for _ in range(300):
        wire = {"L": [wire]}
    with pytest.raises(InvalidValueError, match=r"32 levels|cannot be written"):
        encode({"Item": {"a": wire}})


@given(ITEMS)
def test_json_as_botocore_parses_it(item: Any) -> None:
    """Binary values are bytes, at any depth; nothing else changes, whatever its name."""
    wire = to_wire_item({**item, "B": "eA==", "BS": [{"B": "eA=="}, {"BS": b"x"}]})
    shown = WIRE_VALUES.shown(orjson.loads(encode(wire)))
    assert {name: deserialize(value) for name, value in shown.items()} == from_wire_item(wire)
    assert encode(shown) == encode(wire)


@given(st.binary(max_size=20))
def test_binary(raw: bytes) -> None:
    """Each form that binary comes in."""
    text = base64.b64encode(raw).decode()
    assert binary_text(raw) == text
    for content in (text, raw, bytearray(raw), memoryview(raw), Binary(raw)):
        assert binary_bytes(content) == raw
        assert type(binary_bytes(content)) is bytes


@pytest.mark.parametrize("content", ["x", "é", "eA", "eA==\n", "e A=", None, 5, ["eA=="]])
def test_what_is_no_binary(content: Any) -> None:
    with pytest.raises(InvalidValueError, match="base64 text or bytes"):
        binary_bytes(content)


def test_stray_members_are_written() -> None:
    """What botocore's validation would have let pass: sets, tuples, mappings, names of a subclass of str."""
    written = encode({Name("Item"): MappingProxyType({"a": {"BS": {b"x"}}, "b": {"L": ({"B": Binary(b"y")},)}})})
    assert orjson.loads(written) == {"Item": {"a": {"BS": ["eA=="]}, "b": {"L": [{"B": "eQ=="}]}}}


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"Item": {"a": {"S": "\ud800"}}}, r"Item\.a\.S: '\\ud800'"),
        ({"Item": {"a": {"L": [{"S": "x"}, {"S": "\udfff"}]}}}, r"Item\.a\.L\[1\]\.S: '"),
        ({"Item": {"\ud800": {"S": "x"}}}, "a name in Item: '"),
        ({"\ud800": 1}, "a name in the request: '"),
        ({"Item": {5: {"S": "x"}}}, "Dict key must be str"),
        ({"Item": {"a": object()}}, "object"),
        ({"Limit": 10**30}, "64-bit"),
    ],
)
def test_what_json_cannot_write(params: Any, place: str) -> None:
    """It is refused, and the message says where it stands."""
    with pytest.raises(InvalidValueError, match=place):
        encode(params)
