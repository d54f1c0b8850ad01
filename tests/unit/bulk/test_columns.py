"""Items as columns of Arrow: exact, or refused with the item and the column."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.bulk.columns import Columns, schema_of
from shardkit.bulk.sources.arrow import Frame, RowSection
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, InvalidValueError
from shardkit.sharding.form import WIRE_VALUES

KEY: WireItem = {"Id": {"S": "A1"}}


def batch(kind: Any, *values: WireValue | None, nullable: bool = True) -> list[Any]:
    """What a column of a type shows of some values."""
    columns = Columns(pa.schema([pa.field("Value", kind, nullable)]), ["Id"])
    items = [{**KEY, **({} if value is None else {"Value": value})} for value in values]
    shown: list[Any] = columns.batch(items).column(0).to_pylist()
    return shown


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.string(), {"S": ""}, ""),
        (pa.string(), {"N": "1E+125"}, "1E+125"),
        (pa.string(), {"NULL": True}, None),
        (pa.binary(), {"B": b"\x00\xff"}, b"\x00\xff"),
        (pa.bool_(), {"BOOL": False}, False),
        (pa.int64(), {"N": "-9223372036854775808"}, -(2**63)),
        (pa.int64(), {"N": "1E+3"}, 1000),
        (pa.int64(), {"N": "5.0"}, 5),
        (pa.int8(), {"N": "127"}, 127),
        (pa.decimal128(38, 0), {"N": "99999999999999999999999999999999999999"}, Decimal(10**38 - 1)),
        (pa.decimal128(5, 2), {"N": "-123.45"}, Decimal("-123.45")),
        (pa.decimal128(5, 0), {"N": "1E+4"}, Decimal(10000)),
        (pa.float64(), {"N": "0.1"}, 0.1),
        (pa.float64(), {"N": "9.9999999999999999999999999999999999999E+125"}, 1e126),
        (pa.float32(), {"N": "0.5"}, 0.5),
        (pa.date32(), {"S": "2014-07-09"}, date(2014, 7, 9)),
        (pa.timestamp("us"), {"S": "2014-07-09T01:02:03"}, datetime(2014, 7, 9, 1, 2, 3)),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), {"S": "2014-07-09T01:02:03.5Z"}, datetime(2014, 7, 9, 1, 2, 3, 500_000, UTC)),
        (pa.timestamp("us", "UTC"), {"S": "2014-07-09T01:02:03+01:00"}, datetime(2014, 7, 9, 0, 2, 3, 0, UTC)),
        (pa.list_(pa.int16()), {"L": [{"N": "1"}, {"NULL": True}]}, [1, None]),
        (pa.list_(pa.string()), {"SS": ["b", "a"]}, ["a", "b"]),
        (pa.list_(pa.int64()), {"NS": ["10", "9"]}, [9, 10]),
        (pa.list_(pa.binary()), {"BS": [b"b", b"a"]}, [b"a", b"b"]),
        (pa.map_(pa.string(), pa.int64()), {"M": {"a": {"N": "1"}}}, [("a", 1)]),
        (pa.struct([("a", pa.int64()), ("b", pa.bool_())]), {"M": {"a": {"N": "1"}, "c": {"N": "2"}}},
         {"a": 1, "b": None}),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_exact(kind: Any, value: WireValue, shown: Any) -> None:
    assert batch(kind, value, None) == [shown, None]


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (pa.int64(), {"S": "1"}, "its type is S"),
        (pa.int64(), {"N": "9223372036854775808"}, "int64"),
        (pa.int64(), {"N": "1.5"}, "it has a fraction"),
        (pa.int8(), {"N": "128"}, "int8"),
        (pa.decimal128(5, 2), {"N": "1.005"}, "decimal128(5, 2)"),
        (pa.decimal128(5, 2), {"N": "1000"}, "decimal128(5, 2)"),
        (pa.decimal128(38, 0), {"N": "1E+38"}, "decimal128(38, 0)"),
        (pa.float32(), {"N": "1E+39"}, "it is out of range"),
        (pa.string(), {"BOOL": True}, "its type is BOOL"),
        (pa.binary(), {"S": "x"}, "its type is S"),
        (pa.date32(), {"S": "2014-07-09T00:00:00"}, "2014-07-09T00:00:00"),
        (pa.timestamp("us"), {"S": "2014-07-09T01:02:03Z"}, "it has a time zone"),
        (pa.timestamp("us", "UTC"), {"S": "2014-07-09T01:02:03"}, "it has no time zone"),
        (pa.timestamp("us"), {"S": "2014-07-09T01:02:03.0000001"}, "it is finer than microseconds"),
        (pa.list_(pa.int64()), {"S": "x"}, "its type is S"),
        (pa.list_(pa.int64()), {"L": [{"S": "x"}]}, "its type is S"),
        (pa.list_(pa.int64()), {"SS": ["x"]}, "its type is S"),
        (pa.list_(pa.field("element", pa.int64(), False)), {"L": [{"NULL": True}]}, "must not be null"),
        (pa.map_(pa.string(), pa.int64()), {"L": []}, "its type is L"),
        (pa.struct([pa.field("a", pa.int64(), False)]), {"M": {}}, "must not be null"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused(kind: Any, value: WireValue, says: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        batch(kind, None, value)
    assert str(caught.value).startswith("item {'Id': 'A1'}: column 'Value' holds ")
    assert says in str(caught.value)


def test_a_missing_value_of_a_column_that_is_not_nullable() -> None:
    assert batch(pa.int64(), {"N": "1"}, nullable=False) == [1]
    with pytest.raises(InvalidValueError, match=r"item {'Id': 'A1'}: column 'Value' is missing"):
        batch(pa.int64(), None, nullable=False)


@pytest.mark.parametrize(
    "kind",
    [pa.time64("us"), pa.timestamp("ns"), pa.map_(pa.int64(), pa.string()), pa.list_(pa.month_day_nano_interval())],
    ids=str,
)
def test_types_without_values(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="which no value of DynamoDB has"):
        batch(kind)


# -- the schema of a sample --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-9223372036854775808"], pa.int64()),
        (["9223372036854775808"], pa.decimal128(38, 0)),
        (["1", "0.5"], pa.decimal128(38, 18)),
        (["1.50"], pa.decimal128(38, 18)),
        (["1.0", "3E+2"], pa.int64()),
        (["1E-30"], pa.decimal128(38, 30)),
        (["1234567890123456789012345.5"], pa.decimal128(38, 13)),
        (["0"], pa.int64()),
    ],
)
def test_numbers_of_a_sample(texts: list[str], kind: Any) -> None:
    items: list[WireItem] = [{"Id": {"N": text}} for text in texts]
    schema = schema_of(items, ["Id"])
    assert schema.field("Id").type == kind
    assert Columns(schema, ["Id"]).batch(items).num_rows == len(texts)


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "there are no items to infer it from"),
        ([{"a": {"S": "x"}}, {"a": {"N": "1"}}], "'a' has values of the types N and S"),
        ([{"a": {"M": {"b": {"S": "x"}}}}, {"a": {"M": {"b": {"N": "1"}}}}], r"'a\.b' has values of the types N and S"),
        ([{"a": {"N": "1E+30"}}, {"a": {"N": "1E-30"}}], "'a' has numbers of more than 38 digits"),
    ],
)
def test_samples_without_a_schema(items: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        schema_of(items, ["a"])


# Not NUL, at which pyarrow ends a column's name.
_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=3)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.decimals(-(10**15), 10**15, places=3, allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names, inner, max_size=2),
    max_leaves=5,
)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


@given(st.dictionaries(_names, _values, max_size=3))
def test_items_come_back_as_they_were(item: dict[str, Any]) -> None:
    # From an item to a batch of its sample's schema, and back as a load reads batches. A list in which values have
    # several types has no schema; nulls are omitted, except in lists.
    wire = WIRE_VALUES.shown(to_wire_item({"Id": "A1", **item}))
    try:
        columns = Columns(schema_of([wire], ["Id"]), ["Id"])
    except ConfigurationError:
        return
    table = pa.Table.from_batches([columns.batch([wire])])
    ((_, back),) = RowSection(Frame(table), 0, 1).records()
    assert back == _without_nulls({"Id": "A1", **item})
