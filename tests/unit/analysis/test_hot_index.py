"""What to write for a hot index."""

from __future__ import annotations

from shardkit.analysis.hot_index import index_advice, index_line


def test_a_key_of_four_attributes_has_no_room_for_a_shard() -> None:
    partition = ["status", "region", "kind", "day"]
    assert index_line("by-status", partition, ["OrderId"], 5) is None
    advice = index_advice("by-status", partition, ["OrderId"], 5)
    assert advice.startswith("create an index whose partition key has at most three of status, region, kind, day, and")
    assert index_line("by-status", partition[:3], ["OrderId"], 5) is not None
