"""What a sharded table hands on to the boto3 ``Table`` as it is, because it carries no key."""

from __future__ import annotations

from typing import Any

from shardkit.errors import UnsupportedOperationError
from shardkit.sharding.operations import decide

__all__ = ["ForwardingTable"]


class _Attribute:
    """An attribute of boto3's ``Table``; most are read from one DescribeTable, made when the first is asked for."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self.__doc__ = f"boto3's ``Table.{name}``."

    def __get__(self, instance: ForwardingTable | None, owner: type) -> Any:
        return self if instance is None else getattr(instance.table, self._name)


class ForwardingTable:
    """The part of boto3's ``Table`` that sharding does not touch."""

    _table: Any

    @property
    def table(self) -> Any:
        """The boto3 ``Table`` itself, unsharded."""
        return self._table

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self._table.name)

    @property
    def meta(self) -> Any:
        """boto3's ``Table.meta``; ``meta.client`` is the unsharded client."""
        return self._table.meta

    archival_summary = _Attribute()
    attribute_definitions = _Attribute()
    billing_mode_summary = _Attribute()
    creation_date_time = _Attribute()
    deletion_protection_enabled = _Attribute()
    disassociation_protection_enabled = _Attribute()
    global_secondary_indexes = _Attribute()
    global_table_settings_replication_mode = _Attribute()
    global_table_version = _Attribute()
    global_table_witnesses = _Attribute()
    item_count = _Attribute()
    key_schema = _Attribute()
    latest_stream_arn = _Attribute()
    latest_stream_label = _Attribute()
    local_secondary_indexes = _Attribute()
    multi_region_consistency = _Attribute()
    on_demand_throughput = _Attribute()
    provisioned_throughput = _Attribute()
    replicas = _Attribute()
    restore_summary = _Attribute()
    sse_description = _Attribute()
    stream_specification = _Attribute()
    table_arn = _Attribute()
    table_class_summary = _Attribute()
    table_id = _Attribute()
    table_name = _Attribute()
    table_size_bytes = _Attribute()
    table_status = _Attribute()
    vector_indexes = _Attribute()
    warm_throughput = _Attribute()

    def get_available_subresources(self) -> list[str]:
        """Name boto3's subresources of a table (there are none)."""
        names: list[str] = self._table.get_available_subresources()
        return names

    def load(self) -> None:
        """Fetch the table's attributes (one DescribeTable)."""
        self._table.load()

    def reload(self) -> None:
        """Fetch the table's attributes again (one DescribeTable)."""
        self._table.reload()

    def update(self, **options: Any) -> Any:
        """Change the table's settings (UpdateTable)."""
        return self._table.update(**options)

    def delete(self, **options: Any) -> dict[str, Any]:
        """Delete the table and all its items (DeleteTable)."""
        response: dict[str, Any] = self._table.delete(**options)
        return response

    def wait_until_exists(self, **options: Any) -> None:
        """Wait until the table is active."""
        self._table.wait_until_exists(**options)

    def wait_until_not_exists(self, **options: Any) -> None:
        """Wait until the table is gone."""
        self._table.wait_until_not_exists(**options)

    def __getattr__(self, name: str) -> Any:
        """Refuse what boto3 offers and nobody has decided on, or has decided against."""
        if not name.startswith("_"):
            operation = self.meta.client.meta.method_to_api_mapping.get(name)
            decision = decide(operation or name)
            if decision.action == "refuse" and (operation or hasattr(type(self._table), name)):
                raise UnsupportedOperationError(
                    f"{name} is not done on the sharded table {self.name!r}: {decision.reason}"
                )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
