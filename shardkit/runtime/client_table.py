"""ClientTable: the methods of boto3's ``Table`` to which a sharded table forwards, over an aiobotocore client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from botocore import xform_name

from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.targets import is_async


class ClientTable:
    """A table of an aiobotocore client. Attributes of its description are awaited, as on aioboto3's ``Table``."""

    def __init__(self, client: Any, name: str) -> None:
        self.name = self.table_name = name
        self.meta = SimpleNamespace(client=client)
        self._description: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def get_available_subresources(self) -> list[str]:
        return []

    async def load(self) -> None:
        self._description = (await self.meta.client.describe_table(TableName=self.name))["Table"]

    async def reload(self) -> None:
        await self.load()

    async def update(self, **options: Any) -> ClientTable:
        await self.meta.client.update_table(TableName=self.name, **options)
        return ClientTable(self.meta.client, self.name)

    async def delete(self, **options: Any) -> dict[str, Any]:
        response: dict[str, Any] = await self.meta.client.delete_table(TableName=self.name, **options)
        return response

    async def wait_until_exists(self, **options: Any) -> None:
        await self.meta.client.get_waiter("table_exists").wait(TableName=self.name, **options)

    async def wait_until_not_exists(self, **options: Any) -> None:
        await self.meta.client.get_waiter("table_not_exists").wait(TableName=self.name, **options)

    def __getattr__(self, name: str) -> Any:
        members = self.meta.client.meta.service_model.shape_for("TableDescription").members
        member = next((one for one in members if xform_name(one) == name), None)
        if member is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._attribute(member)

    async def _attribute(self, member: str) -> Any:
        if self._description is None:
            await self.load()
        return (self._description or {}).get(member)


def table_of(given: Any, table_name: str | None) -> Any:
    """Return an aioboto3 ``Table`` as it is, or for an aiobotocore client its table ``table_name``."""
    meta = getattr(given, "meta", None)
    client, name = getattr(meta, "client", given), getattr(given, "name", None)
    if not is_async(client) or not hasattr(getattr(client, "meta", None), "events"):
        give = "enter it: async with … as client" if is_async(client) else "use shardkit.ShardedTable for a boto3 Table"
        raise ConfigurationError(
            f"table: must be an aiobotocore client or an aioboto3 Table, got {brief(given)}; {give}"
        )
    if client is not given and isinstance(name, str):
        if table_name not in {None, name}:
            raise ConfigurationError(
                f"table_name: must be {name!r}, the Table's name, got {brief(table_name)}; omit it"
            )
        return given
    if not isinstance(table_name, str):
        raise ConfigurationError(
            f"table_name: must be the name of a table, got {brief(table_name)} with a client; for example, "
            "table_name='Orders'"
        )
    return ClientTable(client, table_name)
