"""What most tests wait for, in less time: boto3's new sessions and clients, and moto's answers."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import botocore.hooks
import botocore.session

__all__ = ["answer_in_less_time", "read_models_once"]


def read_models_once() -> None:
    """Have all of boto3's sessions share what they read of botocore's data files; each would read them again.

    They also share what events are called now, and see at a glance that a handler takes any keyword.
    """
    botocore.session.create_loader = cache(botocore.session.create_loader)

    aliaser: Any = botocore.hooks.EventAliaser
    as_usual = aliaser.__init__
    names: dict[str, str] = {}

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        as_usual(self, *arguments, **keywords)
        self._alias_name_cache = names

    aliaser.__init__ = init

    hooks: Any = botocore.hooks
    look_at = hooks.accepts_kwargs

    def accepts_kwargs(handler: Any) -> Any:
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        return look_at(handler) if code is None else code.co_flags & inspect.CO_VARKEYWORDS

    hooks.accepts_kwargs = accepts_kwargs


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
