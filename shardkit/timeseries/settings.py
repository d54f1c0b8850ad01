"""What the tables of a time series are: their schema, their throughput while hot and cold, and how long they stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from shardkit.analysis.prices import Prices
from shardkit.core.checks import check_count, did_you_mean
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.values import WireValue
from shardkit.errors import ConfigurationError, brief
from shardkit.sharding.form import Form
from shardkit.timeseries.periods import Calendar, Period, PeriodLength, TimeFormat, Times, second_of

TableClass = Literal["STANDARD", "STANDARD_INFREQUENT_ACCESS"]
Late = Literal["write", "error"]
Missing = Literal["create", "error"]

_DAY = 86_400
_BUCKET = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?").fullmatch
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,230}", re.ASCII).fullmatch  # a table's name has at most 255 characters
_OURS = frozenset(
    {"TableName", "BillingMode", "ProvisionedThroughput", "OnDemandThroughput", "WarmThroughput", "TableClass"}
)


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The throughput and the table class of a table, and of its global indexes.

    Example:
        Throughput(read_units=5000, write_units=8000)
        Throughput(max_write_units=20_000, warm_write_units=12_000)  # on-demand

    With ``read_units`` and ``write_units`` the table is provisioned; without them it is on-demand.

    Args:
        read_units: Provisioned read units per second.
        write_units: Provisioned write units per second.
        max_read_units: The maximum read units per second of an on-demand table; None: no maximum.
        max_write_units: The maximum write units per second, likewise.
        warm_read_units: Read units per second that a new table serves at once (``WarmThroughput``); at least 12,000.
        warm_write_units: Write units per second, likewise; at least 4,000.
        table_class: ``"STANDARD"`` or ``"STANDARD_INFREQUENT_ACCESS"``.
        indexes: The throughput of single global indexes, by name; others have the table's.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    read_units: int | None = None
    write_units: int | None = None
    max_read_units: int | None = None
    max_write_units: int | None = None
    warm_read_units: int | None = None
    warm_write_units: int | None = None
    table_class: TableClass = "STANDARD"
    indexes: Mapping[str, Throughput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name.endswith("_units") and value is not None:
                check_count(each.name, value, "units a second")
        if (self.read_units is None) != (self.write_units is None):
            raise ConfigurationError(
                f"read_units, write_units: must be given together, got {self.read_units} and {self.write_units}; "
                "without both, the table is on-demand"
            )
        if not self.on_demand and (self.max_read_units, self.max_write_units) != (None, None):
            raise ConfigurationError(
                f"max_read_units, max_write_units: must be those of an on-demand table, got {self.max_read_units} and "
                f"{self.max_write_units} with read_units; leave one of them out"
            )
        if self.table_class not in get_args(TableClass):
            raise ConfigurationError(
                f"table_class: must be one of {', '.join(map(repr, get_args(TableClass)))}, got "
                f"{brief(self.table_class)}"
            )
        if not isinstance(self.indexes, Mapping):
            raise ConfigurationError(
                f"indexes: must map names of global indexes to Throughputs, got {brief(self.indexes)}; leave it out "
                "to give them the table's"
            )
        for name, index in self.indexes.items():
            if not isinstance(index, Throughput) or index.on_demand != self.on_demand or index.indexes:
                raise ConfigurationError(
                    f"indexes: of {name!r}: must be a Throughput, "
                    f"{'on-demand' if self.on_demand else 'provisioned'} as the table's, got {brief(index)}"
                )

    @property
    def on_demand(self) -> bool:
        return self.read_units is None

    def of_index(self, name: str) -> Throughput:
        return self.indexes.get(name, self)

    def settings(self, *, warm: bool) -> dict[str, Any]:
        """Return the parameters of CreateTable or UpdateTable for a table or an index."""
        given: dict[str, Any] = {}
        if not self.on_demand:
            given["ProvisionedThroughput"] = {
                "ReadCapacityUnits": self.read_units,
                "WriteCapacityUnits": self.write_units,
            }
        maxima = {"MaxReadRequestUnits": self.max_read_units, "MaxWriteRequestUnits": self.max_write_units}
        warmth = {"ReadUnitsPerSecond": self.warm_read_units, "WriteUnitsPerSecond": self.warm_write_units}
        for name, units in (("OnDemandThroughput", maxima), ("WarmThroughput", warmth if warm else {})):
            if known := {each: value for each, value in units.items() if value is not None}:
                given[name] = known
        return given

    def __str__(self) -> str:
        if self.on_demand:
            most = _units(self.max_read_units, self.max_write_units)
            text = "on-demand" + (f", at most {most} a second" if most else "")
        else:
            text = f"{_units(self.read_units, self.write_units)} a second"
        if warm := _units(self.warm_read_units, self.warm_write_units):
            text += f", warm for {warm}"
        return text + ("" if self.table_class == "STANDARD" else ", Infrequent Access")


def _is_list_of_maps(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(one, Mapping) for one in given)


def _units(read: int | None, write: int | None) -> str:
    known = [f"{units:,} {kind}" for units, kind in ((read, "read"), (write, "write")) if units is not None]
    return f"{' and '.join(known)} units" if known else ""


@dataclass(frozen=True)
class Archive:
    """Where tables are exported to."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, given: Any) -> Archive:
        found = _BUCKET(given) if isinstance(given, str) else None
        if found is None:
            raise ConfigurationError(
                f"archive: must be a place in S3, got {brief(given)}; give, for example, 's3://bucket/clicks'"
            )
        return cls(found["bucket"], (found["prefix"] or "").strip("/"))

    def prefix_of(self, table: str) -> str:
        return f"{self.prefix}/{table}" if self.prefix else table


@dataclass(frozen=True)
class Series:
    """The settings of a time series, checked; :class:`shardkit.TimeSeries` documents them."""

    name: str
    at: str
    period: PeriodLength
    schema: Mapping[str, Any]
    time_format: TimeFormat = "iso"
    hot: Throughput = Throughput()
    cold: Throughput | None = None
    keep: int | None = None
    archive: str | None = None
    delete: bool = False
    late: Late = "write"
    missing: Missing = "error"
    ahead: timedelta | None = None
    cool_after: timedelta = timedelta()
    prices: Prices | None = None
    new: Mapping[Period, Throughput] = field(default_factory=dict)
    """What the tables of single periods are created with, instead of ``hot``."""

    calendar: Calendar = field(init=False)
    times: Times = field(init=False)
    exported_to: Archive | None = field(init=False)

    def __post_init__(self) -> None:
        self._check_names()
        self._check_ends()
        made: dict[str, Any] = {
            "calendar": Calendar(self.period),
            "times": Times(self.at, self.time_format, ordered=self.at in self._checked_sort_keys()),
            "exported_to": None if self.archive is None else Archive.of(self.archive),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)
        defined = self.schema["AttributeDefinitions"] or ()
        types = {each.get("AttributeName"): each.get("AttributeType") for each in defined}
        if types.get(self.at, self.times.letter) != self.times.letter:
            raise ConfigurationError(
                f"time_format: must fit the type of {self.at!r} in schema ({types[self.at]}), got "
                f"{self.time_format!r}; give 'iso' or 'iso without zone' for S, 'seconds' or 'milliseconds' for N"
            )

    def _check_names(self) -> None:
        if not isinstance(self.name, str) or not _TABLE_NAME(self.name):
            raise ConfigurationError(
                f"name: must be 1 to 230 letters, digits and the characters _ . -, got {brief(self.name)}; the name of "
                "a period is added to it"
            )
        if not isinstance(self.at, str) or not self.at:
            raise ConfigurationError(f"at: must be the name of an attribute, got {brief(self.at)}")
        for name, kinds in (("late", Late), ("missing", Missing)):
            if getattr(self, name) not in get_args(kinds):
                raise ConfigurationError(
                    f"{name}: must be one of {', '.join(map(repr, get_args(kinds)))}, got {brief(getattr(self, name))}"
                )
        for name, needed in (("hot", True), ("cold", False)):
            given = getattr(self, name)
            if not isinstance(given, Throughput) and (needed or given is not None):
                raise ConfigurationError(f"{name}: must be a Throughput, got {brief(given)}")
        if self.prices is not None and not isinstance(self.prices, Prices):
            raise ConfigurationError(f"prices: must be Prices, got {brief(self.prices)}")

    def _check_ends(self) -> None:
        if self.keep is not None:
            check_count("keep", self.keep, "periods that have ended", least=0, most=1_000_000)
        if not isinstance(self.delete, bool) or (self.delete and self.keep is None):
            raise ConfigurationError(
                f"delete: must be True or False, got {brief(self.delete)} with keep={self.keep}; with delete=True, "
                "give keep= too"
            )
        if self.archive is not None and self.keep is None:
            raise ConfigurationError(
                f"archive: needs keep=, because only older tables are archived, got {brief(self.archive)} with "
                "keep=None; give keep= too"
            )
        for name in ("ahead", "cool_after"):
            given = getattr(self, name)
            if given is None and name == "ahead":
                continue
            if not isinstance(given, timedelta) or given < timedelta():
                raise ConfigurationError(f"{name}: must be a timedelta, not negative, got {brief(given)}")

    def _checked_sort_keys(self) -> set[str]:
        lists = ("AttributeDefinitions", "LocalSecondaryIndexes", "GlobalSecondaryIndexes")
        if (
            not isinstance(self.schema, Mapping)
            or not {"KeySchema", "AttributeDefinitions"} <= self.schema.keys()
            or not all(_is_list_of_maps(self.schema.get(name) or []) for name in lists)
        ):
            raise ConfigurationError(
                f"schema: must be what CreateTable takes, got {brief(self.schema)}; give {{'KeySchema': […], "
                "'AttributeDefinitions': […]}, and the indexes"
            )
        given = [name for part in (self.schema, *self._indexes()) for name in part if name in _OURS]
        if given:
            raise ConfigurationError(
                f"schema: must be without {', '.join(sorted({*given}))}, which are the series' own; use hot= and cold="
            )
        schemas = [
            KeySchema.of(self.schema["KeySchema"], "schema"),
            *(KeySchema.of(index.get("KeySchema"), f"index {index.get('IndexName')!r}") for index in self._indexes()),
        ]
        known = {str(index.get("IndexName")) for index in self.schema.get("GlobalSecondaryIndexes") or ()}
        for one in (self.hot, self.cold):
            for name in one.indexes if one else ():
                if name not in known:
                    raise ConfigurationError(
                        f"indexes: {name!r} must be a global index of schema{did_you_mean(name, known)}, which has "
                        f"{', '.join(sorted(known)) or 'none'}"
                    )
        return {name for schema in schemas for name in schema.sort}

    def _indexes(self) -> Iterator[Mapping[str, Any]]:
        for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes"):
            yield from self.schema.get(kind) or ()

    def table(self, period: Period) -> str:
        return f"{self.name}-{period}"

    def period_of_table(self, table: str) -> Period | None:
        """Return the period of a table; None: the table is not one of this series."""
        prefix = f"{self.name}-"
        return self.calendar.named(table.removeprefix(prefix)) if table.startswith(prefix) else None

    def period_of(self, given: Any, form: Form) -> Period | None:
        """Return the period of an item or a key in the caller's form; None: it has no time."""
        if not isinstance(given, Mapping) or given.get(self.at) is None:
            return None
        return self.period_at(form.item({self.at: given[self.at]})[self.at])

    def period_at(self, time: WireValue) -> Period:
        return self.calendar.of(self.times.second(time))

    def current(self, now: datetime) -> Period:
        return self.calendar.of(second_of("now", now))

    def is_past_keeping(self, period: Period, current: Period) -> bool:
        """Return whether a period is older than those that are kept: the current one, and ``keep`` before it."""
        return self.keep is not None and period.number < current.number - self.keep

    def past_keeping_since(self, period: Period) -> int:
        """Return the second from which a period is no longer kept."""
        assert self.keep is not None
        return self.calendar.at(period.number + self.keep).end

    @property
    def seconds_ahead(self) -> float:
        """How long before its start a period's table is created: a tenth of a period, at most a day."""
        if self.ahead is not None:
            return self.ahead.total_seconds()
        first = self.calendar.at(0)
        return min(_DAY, (first.end - first.start) / 10)

    def creation(self, period: Period, throughput: Throughput) -> dict[str, Any]:
        """Return the parameters of CreateTable for a period."""
        indexes = [
            {**index, **throughput.of_index(str(index["IndexName"])).settings(warm=True)}
            for index in self.schema.get("GlobalSecondaryIndexes") or ()
        ]
        return {
            **self.schema,
            "TableName": self.table(period),
            "BillingMode": "PAY_PER_REQUEST" if throughput.on_demand else "PROVISIONED",
            **throughput.settings(warm=True),
            **({"GlobalSecondaryIndexes": indexes} if indexes else {}),
            **({} if throughput.table_class == "STANDARD" else {"TableClass": throughput.table_class}),
        }
