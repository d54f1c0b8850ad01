"""What most tests wait for, in less time: boto3's new sessions, and moto's answers."""

from __future__ import annotations

from functools import cache
from typing import Any

import botocore.session

__all__ = ["read_models_once", "write_attributes_fast"]


def read_models_once() -> None:
    """Have all of boto3's sessions share what they read of botocore's data files; each would read them again."""
    botocore.session.create_loader = cache(botocore.session.create_loader)


def write_attributes_fast() -> None:
    """Have moto write the one member that an attribute value has; it looks for all ten, under several names each."""
    try:
        from moto.core.serialize import SERVICE_SPECIFIC_SERIALIZERS, JSONSerializer
    except ImportError:  # a moto that writes its answers otherwise
        return

    class Serializer(JSONSerializer):
        def _serialize_type_structure(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
            if shape.name != "AttributeValue" or type(value) is not dict:
                super()._serialize_type_structure(serialized, value, shape, key)
                return
            written: dict[str, Any] = {}
            for name, content in value.items():
                self._serialize(written, content, shape.members[name], name)
            self._default_serialize(serialized, written, shape, key)

    SERVICE_SPECIFIC_SERIALIZERS["dynamodb"] = {"json": Serializer}
