"""Prices of DynamoDB, as a user gives them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from shardkit.core.checks import check_number


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in US dollars, from the price list of your Region; shardkit knows none.

    Example:
        Prices(read_unit_hour=0.00013, write_unit_hour=0.00065, gb_month=0.25)

    Args:
        read_unit_hour: A provisioned read unit for an hour, table class Standard.
        write_unit_hour: A provisioned write unit for an hour, likewise.
        gb_month: A GB (2**30 bytes) of storage for a month, likewise.
        infrequent_read_unit_hour: The same in the table class Infrequent Access; by default as in Standard.
        infrequent_write_unit_hour: Likewise.
        infrequent_gb_month: Likewise.
        export_gb: A GB that is exported.
        million_reads: A million read request units of a table with on-demand capacity.
        million_writes: A million write request units, likewise.

    Raises:
        ConfigurationError: A price is not a number >= 0.
    """

    read_unit_hour: float = 0.0
    write_unit_hour: float = 0.0
    gb_month: float = 0.0
    infrequent_read_unit_hour: float | None = None
    infrequent_write_unit_hour: float | None = None
    infrequent_gb_month: float | None = None
    export_gb: float = 0.0
    million_reads: float = 0.0
    million_writes: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) is not None:
                check_number(each.name, getattr(self, each.name), "a price")

    def of_class(self, table_class: str) -> tuple[float, float, float]:
        """Return the prices of a read unit and a write unit for an hour, and of a GB for a month."""
        standard = self.read_unit_hour, self.write_unit_hour, self.gb_month
        if table_class != "STANDARD_INFREQUENT_ACCESS":
            return standard
        infrequent = self.infrequent_read_unit_hour, self.infrequent_write_unit_hour, self.infrequent_gb_month
        read, write, gb = (one if other is None else other for one, other in zip(standard, infrequent, strict=True))
        return read, write, gb
