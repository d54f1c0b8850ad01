"""The journal of a pass, whatever became of its file: it goes on where it was, or it is refused and left as it is."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardkit import ConfigurationError
from shardkit.passes.passes import _Journal

POSITIONS: dict[int, Any] = {0: {"OrderId": {"S": "A18"}, "Date": {"S": "2014-07-4"}}, 2: None}


def journal(path: Path) -> _Journal:
    return _Journal(
        path,
        "move",
        {"table": "Orders", "keys": ["Date", "OrderId"]},
        {"workers": 3, "draw": random.random, "segments": 3},
    )


def test_any_byte_that_is_changed_missing_or_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    path = tmp_path / "move.journal"
    kept = journal(path)
    kept.keep(cast("Any", SimpleNamespace(positions=POSITIONS, state={})))
    kept.close()
    whole = path.read_bytes()
    for at, byte in enumerate(whole):
        before, after = whole[:at], whole[at + 1 :]
        digit = [byte ^ 1, byte ^ 32, ord("0") + (byte + 3) % 10]
        damaged = [before + bytes([other]) + after for other in digit if other != byte]
        for content in (*damaged, before + after, before + b"1" + whole[at:], before + bytes(len(after))):
            path.write_bytes(content)
            with pytest.raises(ConfigurationError, match=r"is damaged, or .* the move begins anew"):
                journal(path)
            assert path.read_bytes() == content
        if before:
            path.write_bytes(before)
            with pytest.raises(ConfigurationError, match="is damaged"):
                journal(path)
    path.write_bytes(whole)
    again = journal(path)
    again.close()
    assert (again.given["segments"], again.given["positions"]) == (3, POSITIONS)
    assert path.read_bytes() == whole
