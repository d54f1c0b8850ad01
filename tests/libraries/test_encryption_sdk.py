"""DynamoDB Encryption Client: its EncryptedTable signs the logical key, which a sharded Table shows it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from tests.support.installed import Setting

pytest.importorskip("dynamodb_encryption_sdk")

from dynamodb_encryption_sdk.delegated_keys.jce import JceNameLocalDelegatedKey
from dynamodb_encryption_sdk.encrypted.table import EncryptedTable
from dynamodb_encryption_sdk.identifiers import CryptoAction, EncryptionKeyType, KeyEncodingType
from dynamodb_encryption_sdk.material_providers.wrapped import WrappedCryptographicMaterialsProvider
from dynamodb_encryption_sdk.structures import AttributeActions

if TYPE_CHECKING:
    import boto3


def local_keys() -> Any:
    wrapping, signing = (
        JceNameLocalDelegatedKey(key=key, algorithm=name, key_type=EncryptionKeyType.SYMMETRIC, key_encoding=encoding)
        for key, name, encoding in [
            (b"w" * 32, "AES", KeyEncodingType.RAW),
            (b"s" * 32, "HmacSHA512", KeyEncodingType.RAW),
        ]
    )
    return WrappedCryptographicMaterialsProvider(wrapping_key=wrapping, unwrapping_key=wrapping, signing_key=signing)


def test_an_encrypted_table(setting: Setting, boto3_session: boto3.Session) -> None:
    plain = setting.make_table()
    resource = boto3_session.resource("dynamodb", endpoint_url=setting.url)
    items = [{"pk": "2014-07-09", "sk": f"A{number:02}", "name": f"name {number}"} for number in range(20)]
    with setting.install(resource, plain.name):
        table = EncryptedTable(
            table=resource.Table(plain.name),
            materials_provider=local_keys(),
            attribute_actions=AttributeActions(default_action=CryptoAction.ENCRYPT_AND_SIGN),
        )
        table.put_item(Item=items[0])
        with table.batch_writer() as batch:
            for item in items[1:]:
                batch.put_item(Item=item)
        setting.assert_stored(plain, {"2014-07-09": 20})
        assert all(b"name" not in bytes(item["name"]) for item in plain.scan()["Items"])  # type: ignore[arg-type]
        assert table.get_item(Key={"pk": "2014-07-09", "sk": "A07"})["Item"] == items[7]
        assert table.query(KeyConditionExpression=Key("pk").eq("2014-07-09"))["Items"] == items
        assert sorted(table.scan()["Items"], key=lambda item: str(item["sk"])) == items
    resource.meta.client.close()
