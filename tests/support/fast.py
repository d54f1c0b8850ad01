"""What most tests wait for, in less time: boto3's new sessions and clients, and moto's answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import botocore.client
import botocore.regions
import botocore.session

__all__ = ["answer_in_less_time", "make_clients_in_less_time"]


def make_clients_in_less_time() -> None:
    """Have all of boto3's sessions and clients share what they make of botocore's data files."""
    botocore.session.create_loader = cache(botocore.session.create_loader)
    module: Any
    for module, name in (botocore.client, "ServiceModel"), (botocore.regions, "EndpointProvider"):
        setattr(module, name, _once(getattr(module, name)))


def _once(make: Callable[..., Any]) -> Callable[..., Any]:
    """What is made of the same contents of data files, which the one loader keeps, is the same."""
    made: dict[Any, Any] = {}

    def once(*contents: Any, **named: Any) -> Any:
        given = [*enumerate(contents), *named.items()]
        key = tuple((at, id(content) if isinstance(content, dict) else str(content)) for at, content in given)
        if key not in made:
            made[key] = make(*contents, **named), given
        return made[key][0]

    return once


def answer_in_less_time() -> None:
    """Have moto write only the members that an answer has; it looks for all of them, each by up to six names.

    It does not look for its methods in each request either, nor for DynamoDB among all services, nor prepare answers to
    what does not come from boto3.
    """
    try:
        from moto import backend_index
        from moto.core import models, responses
        from moto.core.serialize import SERVICE_SPECIFIC_SERIALIZERS, JSONSerializer
    except ImportError:  # a moto that writes its answers otherwise
        return

    class Serializer(JSONSerializer):
        def _serialize_type_structure(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
            if type(value) is not dict or not value.keys() <= shape.members.keys():
                super()._serialize_type_structure(serialized, value, shape, key)
                return
            written = serialized if not key else {}
            for name, content in value.items():
                if type(content) is str and name in {"S", "N"}:
                    written[name] = content
                elif content is not None:
                    self._serialize(written, content, shape.members[name], name)
            if key:
                serialized[key] = written

    SERVICE_SPECIFIC_SERIALIZERS["dynamodb"] = {"json": Serializer}
    answering: Any = responses
    answering.method_names_from_class = cache(answering.method_names_from_class)
    models.RESPONSES_METHODS = []
    backend_index.backend_url_patterns.sort(key=lambda pattern: pattern[0] != "dynamodb")
