"""What most tests wait for, in less time: boto3's new sessions, and moto's answers."""

from __future__ import annotations

from functools import cache
from typing import Any

import botocore.session

__all__ = ["answer_in_less_time", "read_models_once"]


def read_models_once() -> None:
    """Have all of boto3's sessions share what they read of botocore's data files; each would read them again."""
    botocore.session.create_loader = cache(botocore.session.create_loader)


def answer_in_less_time() -> None:
    """Have moto write the one member that an attribute value has; it looks for all of them, each by up to six names.

    It does not look for its methods in each request either, nor prepare answers to what does not come from boto3.
    """
    try:
        from moto.core import models, responses
        from moto.core.serialize import SERVICE_SPECIFIC_SERIALIZERS, JSONSerializer
    except ImportError:  # a moto that writes its answers otherwise
        return

    class Serializer(JSONSerializer):
        def _serialize_type_structure(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
            if shape.name != "AttributeValue" or type(value) is not dict:
                super()._serialize_type_structure(serialized, value, shape, key)
                return
            written: dict[str, Any] = {}
            serialized[key] = written
            for name, content in value.items():
                if type(content) is str and name in {"S", "N"}:
                    written[name] = content
                else:
                    self._serialize(written, content, shape.members[name], name)

    SERVICE_SPECIFIC_SERIALIZERS["dynamodb"] = {"json": Serializer}
    answering: Any = responses
    answering.method_names_from_class = cache(answering.method_names_from_class)
    models.RESPONSES_METHODS = []
