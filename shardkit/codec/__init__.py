"""Python values ⇄ wire values: ``"x"`` as a boto3 resource shows it, ``{"S": "x"}`` as it goes over HTTP.

Wire values have JSON's form: binary is base64 text. Where botocore has parsed them (errors that carry an item, calls of
others) binary is bytes; ``binary`` reads both. Sizes are counted here, and nowhere else, by the Developer Guide's
"DynamoDB item sizes and formats".
"""

from shardkit.codec.reading import from_wire, from_wire_item, from_wire_response, sized_from_wire_item
from shardkit.codec.values import Binary, WireItem, WireValue
from shardkit.codec.writing import sized_to_wire_item, to_wire_item, to_wire_params
from shardkit.jsonform import binary, binary_text, encode

__all__ = [
    "Binary",
    "WireItem",
    "WireValue",
    "binary",
    "binary_text",
    "encode",
    "from_wire",
    "from_wire_item",
    "from_wire_response",
    "sized_from_wire_item",
    "sized_to_wire_item",
    "to_wire_item",
    "to_wire_params",
]
