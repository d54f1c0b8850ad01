from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.cache.entries import Entry, decoded, item_key, page_key, pages_key
from shardkit.dynamodb.values import comparable_item

NAMES = ("pk", "sk")
TEXTS = st.text("ab:1SNB", max_size=4)
NUMBERS = st.sampled_from(["1", "1.0", "10E-1", "10", "1E+1", "-0", "0", "0.10", str(Decimal("9" * 38)), "1E-130"])
VALUES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    TEXTS.map(lambda text: {"S": text}),
    NUMBERS.map(lambda text: {"N": text}),
    st.binary(max_size=2).map(lambda raw: {"B": raw}),
    st.sampled_from(["", "YQ==", "/w=="]).map(lambda text: {"B": text}),
)
KEYS = st.fixed_dictionaries({"pk": VALUES, "sk": VALUES})


@given(KEYS, KEYS)
def test_equal_keys_have_one_entry_and_others_not(one: Any, other: Any) -> None:
    prefix = b"shardkit:us-east-1:Orders:"
    same = item_key(prefix, NAMES, one) == item_key(prefix, NAMES, other)
    assert same == (comparable_item(one) == comparable_item(other))
    assert not item_key(prefix, NAMES, one).startswith(pages_key(prefix, one["pk"]))


def test_pages_have_one_entry_in_any_order_of_their_parameters() -> None:
    params = {"TableName": "Orders", "Limit": 5, "ExpressionAttributeValues": {":a": {"B": b"\xff"}}}
    assert page_key(b"p", params, b"") == page_key(b"p", dict(reversed(params.items())), b"")
    assert page_key(b"p", params, b"") != page_key(b"p", {**params, "Limit": 6}, b"")
    assert page_key(b"p", params, b"") != page_key(b"p", params, b"secret")


@pytest.mark.parametrize(
    "entry",
    [
        Entry(0.5, None, None, 12.5),
        Entry(1.0, {"pk": {"S": "é"}, "n": {"N": "1.50"}}, None, 1e9),
        Entry(0.5, {}, None, 0.0),
        Entry(2.0, None, {"Items": [], "Count": 0}, 1.0),
    ],
)
def test_entries_are_read_as_they_were_written(entry: Entry) -> None:
    assert decoded(entry.encoded(b"k"), b"k") == entry


def test_what_is_no_entry() -> None:
    text = b'{"v":2,"t":0.0,"u":0.5,"i":{"b":{"B":"/w=="}}'
    assert Entry(0.5, {"b": {"B": b"\xff"}}).encoded(b"k") == text + b',"c":"c85deb5f"}'
    first = b'{"v":1,"t":0.0,"u":0.5,"i":{"b":{"B":"/w=="}}}'  # of version 1, which had no sum
    for content in (None, b"", b"!mark", b"=version", b"{", b"[1]", text + b"}", first, b"\x80"):
        assert decoded(content, b"k") is None


@given(st.data())
def test_damage_is_noticed(data: st.DataObject) -> None:
    """Also damage that is still JSON: another type, an invalid number, another key's copy."""
    content = Entry(1.0, {"pk": {"S": "p1"}, "n": {"N": "1"}}, None, 1e9).encoded(b"key")
    assert decoded(content, b"kez") is None
    damaged = data.draw(
        st.sampled_from([content.replace(b'"S"', b'"N"'), content.replace(b'"N"', b'"SS"'), content[:-1]])
        | st.builds(
            lambda at, byte: content[:at] + bytes([byte]) + content[at + 1 :],
            st.integers(0, len(content) - 1),
            st.integers(0, 255),
        )
    )
    assert damaged == content or decoded(damaged, b"key") is None
