"""Stored items as columns of Arrow, exactly: record batches of a schema, and the schema of a sample."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, InvalidValueError, brief

try:
    import pyarrow as pa
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        'schema: columns need the package pyarrow, which is not installed; pip install "shardkit[load]"'
    ) from missing

_LONG = range(-(2**63), 2**63)
_DIGITS = 38  # of DynamoDB's numbers, and of Arrow's and Spark's decimals
_SCALE = 18  # of a decimal that a sample suggests: other items may have more digits than those of the sample
_MOST_FLOAT32 = 3.4028234663852886e38
_FINER_THAN_MICROSECONDS = re.compile(r"[.,]\d{6}0*[1-9]").search

Read = Callable[[WireValue | None], Any]
"""Reads a stored value, or None where it is missing, as what pyarrow takes for a type.

Raises:
    ValueError, OverflowError: The value is of another type, or does not fit.
"""


class Columns:
    """Makes record batches of a schema from items, in wire values as botocore shows them.

    ``keys`` are the names of the primary key: they name an item in errors.
    """

    def __init__(self, schema: Any, keys: Sequence[str]) -> None:
        self.schema = schema
        self._keys = keys
        self._columns = [(field, reader_of(field)) for field in schema]

    def batch(self, items: Sequence[WireItem]) -> Any:
        """Return the items as a record batch.

        Raises:
            InvalidValueError: A value is of another type than its column, or does not fit.
        """
        return pa.RecordBatch.from_arrays(
            [self._column(field, read, items) for field, read in self._columns], schema=self.schema
        )

    def _column(self, field: Any, read: Read, items: Sequence[WireItem]) -> Any:
        try:
            return pa.array([read(item.get(field.name)) for item in items], field.type)
        except (ValueError, OverflowError):
            for item in items:  # one by one, to name the item
                try:
                    pa.array([read(item.get(field.name))], field.type)
                except (ValueError, OverflowError) as error:
                    raise self._error(field, item, error) from error
            raise

    def _error(self, field: Any, item: WireItem, error: Exception) -> InvalidValueError:
        key = {name: next(iter(item[name].values())) for name in self._keys if name in item}
        value = item.get(field.name)
        given = "is missing" if value is None else f"holds {brief(value)}, which is not of type {field.type}"
        return InvalidValueError(
            f"item {brief(key, 200)}: column {field.name!r} {given} ({error}); give schema= another type for it (a "
            "string holds every number as it is stored), or correct the item"
        )


def reader_of(field: Any) -> Read:
    """Return what reads the values of a column, of a list or of a struct.

    Raises:
        ConfigurationError: The type has no values of DynamoDB.
    """
    read = _reader(field.type, field.name)
    if field.nullable:
        return lambda value: None if value is None or "NULL" in value else read(value)

    def required(value: WireValue | None) -> Any:
        if value is None or "NULL" in value:
            raise ValueError("must not be null")
        return read(value)

    return required


def _reader(kind: Any, name: str) -> Callable[[WireValue], Any]:
    types = pa.types
    if types.is_list(kind):
        return _list_reader(reader_of(kind.value_field))
    if types.is_struct(kind):
        return _struct_reader({member.name: reader_of(member) for member in kind})
    if types.is_map(kind) and types.is_string(kind.key_type):
        entry = reader_of(kind.item_field)
        return lambda value: [(name, entry(member)) for name, member in _content(value, "M").items()]
    if types.is_string(kind):
        return lambda value: value["N"] if "N" in value else _content(value, "S")
    for is_kind, letter, convert in _SCALARS:
        if is_kind(kind):
            return lambda value: convert(_content(value, letter))
    if types.is_timestamp(kind) and kind.unit == "us":
        return lambda value: _timestamp(_content(value, "S"), zoned=kind.tz is not None)
    raise ConfigurationError(
        f"schema: column {name!r} is of type {kind}, which no value of DynamoDB has; give a string, binary, boolean, "
        "number, decimal, date, timestamp, array, struct, or map with string keys"
    )


def _content(value: WireValue, letter: str) -> Any:
    try:
        return value[letter]
    except KeyError:
        raise ValueError(f"its type is {next(iter(value), None)}") from None


def _struct_reader(members: Mapping[str, Read]) -> Callable[[WireValue], dict[str, Any]]:
    def struct(value: WireValue) -> dict[str, Any]:
        content = _content(value, "M")
        return {name: read(content.get(name)) for name, read in members.items()}

    return struct


def _list_reader(read: Read) -> Callable[[WireValue], list[Any]]:
    def members(value: WireValue) -> list[Any]:
        ((letter, content),) = value.items()
        if letter == "L":
            return [read(member) for member in content]
        if letter not in _SETS:
            raise ValueError(f"its type is {letter}")
        # A set has no order, but a task that reads it again must return the same rows.
        return sorted(read({_SETS[letter]: member}) for member in content)

    return members


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = Decimal(text)
        if number.as_integer_ratio()[1] != 1:
            raise ValueError("it has a fraction") from None
        return int(number)


def _float32(text: str) -> float:
    number = float(text)
    if abs(number) > _MOST_FLOAT32:
        raise ValueError("it is out of range")
    return number


def _timestamp(text: str, *, zoned: bool) -> datetime:
    moment = datetime.fromisoformat(text)
    if (moment.tzinfo is not None) != zoned:
        raise ValueError("it has no time zone, as timestamp_ntz" if zoned else "it has a time zone, as timestamp")
    if _FINER_THAN_MICROSECONDS(text):
        raise ValueError("it is finer than microseconds")
    return moment


def _as_it_is(content: Any) -> Any:
    return content


# A float64 is never out of range: DynamoDB's largest number is below 1E+126.
_SCALARS: tuple[tuple[Callable[[Any], bool], str, Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, "BOOL", _as_it_is),
    (pa.types.is_binary, "B", _as_it_is),
    (pa.types.is_integer, "N", _integer),
    (pa.types.is_decimal128, "N", Decimal),
    (pa.types.is_float32, "N", _float32),
    (pa.types.is_float64, "N", float),
    (pa.types.is_date32, "S", date.fromisoformat),
)
_SETS: Mapping[str, str] = {"SS": "S", "NS": "N", "BS": "B"}


def schema_of(items: Iterable[WireItem], keys: Sequence[str]) -> Any:
    """Return the schema of a sample: the primary key first, then the other attributes by name.

    Raises:
        ConfigurationError: There are no items; or no type holds all values of an attribute.
    """
    values: dict[str, list[WireValue]] = {name: [] for name in keys}
    empty = True
    for item in items:
        empty = False
        for name, value in item.items():
            values.setdefault(name, []).append(value)
    if empty:
        raise ConfigurationError("schema: there are no items to infer it from, got None; give a schema")
    others = sorted(values.keys() - set(keys))
    return pa.schema([pa.field(name, _type_of(values[name], name)) for name in (*keys, *others)])


def _type_of(values: Sequence[WireValue], name: str) -> Any:
    contents: dict[str, list[Any]] = {}
    for value in values:
        for letter, content in value.items():
            contents.setdefault(letter, []).append(content)
    contents.pop("NULL", None)
    if len(contents) > 1:
        raise ConfigurationError(
            f"schema: attribute {name!r} has values of the types {' and '.join(sorted(contents))}; give a schema with "
            "the type that you want, or without this attribute"
        )
    for letter, found in contents.items():
        if letter == "N":
            return _number_type(found, name)
        if letter == "L":
            return pa.list_(_type_of([member for members in found for member in members], name))
        if letter in _SETS:
            return pa.list_(_type_of([{_SETS[letter]: member} for members in found for member in members], name))
        if letter == "M" and any(found):
            names = sorted({member for members in found for member in members})
            fields = [(one, [members[one] for members in found if one in members]) for one in names]
            return pa.struct([pa.field(one, _type_of(inner, f"{name}.{one}")) for one, inner in fields])
        return _TYPES[letter]
    return pa.string()


_TYPES = {"S": pa.string(), "B": pa.binary(), "BOOL": pa.bool_(), "M": pa.map_(pa.string(), pa.string())}


def _number_type(texts: Iterable[str], name: str) -> Any:
    whole = scale = 0
    long = True
    for text in texts:
        number = Decimal(text)
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)  # DynamoDB has neither infinity nor NaN
        while exponent < 0 and digits[-1:] == (0,):  # an engine may keep 1.50
            digits, exponent = digits[:-1], exponent + 1
        scale = max(scale, -exponent)
        whole = max(whole, len(digits) + exponent)
        long = long and exponent >= 0 and math.isfinite(number) and int(number) in _LONG
    if long:
        return pa.int64()
    if whole + scale > _DIGITS:
        raise ConfigurationError(
            f"schema: attribute {name!r} has numbers of more than {_DIGITS} digits (with the fraction), and a decimal "
            "holds no more; give a schema in which it is a double (rounded) or a string"
        )
    return pa.decimal128(_DIGITS, min(max(scale, _SCALE), _DIGITS - whole) if scale else 0)
