"""The text form of a strategy, and the names of functions in it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from shardkit.errors import ConfigurationError
from shardkit.strategies import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy, register_function
from tests.support.strategies import STRATEGIES, length_of, vectors


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.filterwarnings("ignore:code_point_product")
def test_the_text_form_survives_json(strategy: Strategy) -> None:
    assert Strategy.from_dict(json.loads(json.dumps(strategy.to_dict()))) == strategy


@pytest.mark.parametrize(
    ("strategy", "row"), [*zip(STRATEGIES, vectors("strategies.json"), strict=True)], ids=map(repr, STRATEGIES)
)
@pytest.mark.filterwarnings("ignore:code_point_product")
def test_golden_text_forms(strategy: Strategy, row: dict[str, Any]) -> None:
    """Each is written and read as it ever was; what a form leaves out means what it ever did."""
    assert json.dumps(strategy.to_dict()) == json.dumps(row["form"])
    assert Strategy.from_dict(row["form"]) == Strategy.from_dict(row["short"]) == strategy


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        {},
        {"type": "Other"},
        {"type": ["RandomSuffix"]},
        {"type": "RandomSuffix"},
        {"type": "RandomSuffix", "shards": 2, "newer": 1},
        {"type": "RandomSuffix", "shards": 2, 5: 1},
        {"type": "Unsharded", "shards": 2},
        {"type": "RandomSuffix", "shards": 0},
        {"type": "RandomSuffix", "shards": [[{"N": "1"}, 2]]},
        {"type": "RandomSuffix", "shards": [[{"B": "?"}, 2]]},
        {"type": "RandomSuffix", "shards": [[{"B": 5}, 2]]},
        {"type": "RandomSuffix", "shards": [["k", 2]]},
        {"type": "RandomSuffix", "shards": [5]},
        {"type": "RandomSuffix", "shards": [[{"S": ""}, 2]]},
        {"type": "RandomSuffix", "shards": {"function": "unknown"}},
        {"type": "RandomSuffix", "shards": {"function": ["unhashable"]}},
        {"type": "RandomSuffix", "shards": {"k": "2"}},
        {"type": "RandomSuffix", "shards": {"": 2}},
        {"type": "RandomSuffix", "shards": {"k": [2]}},
        {"type": "RangeSuffix", "by": "sk", "boundaries": {"k": "F"}},
        {"type": "RangeSuffix", "by": "sk", "boundaries": {"k": [{}]}},
        {"type": "CalculatedSuffix", "by": {"a": 1}, "shards": 2},
        {"type": "RandomSuffix", "shards": [[{}, 2]]},
        {"type": "CalculatedSuffix", "by": [], "shards": 2},
        {"type": "RangeSuffix", "by": "sk", "boundaries": [{}]},
        {"type": "RangeSuffix", "by": "sk", "boundaries": [{"N": "1", "B": "YQ=="}]},
    ],
)
def test_a_wrong_text_form_is_refused(form: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"must be|; give (one of )?shards|; give none|call register_function"):
        Strategy.from_dict(form)


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ('{"type": "RandomSuffix", "shards": {"t0000": 8, "function": 2}}', RandomSuffix({"t0000": 8, "function": 2})),
        ('{"type": "RandomSuffix", "shards": {"function": 3}}', RandomSuffix({"function": 3})),
        ('{"type": "CalculatedSuffix", "by": "a", "shards": {"k": 5}}', CalculatedSuffix("a", shards={"k": 5})),
        (
            '{"type": "RangeSuffix", "by": "a", "boundaries": {"k": ["F", "M"], "n": [{"N": "1"}]}}',
            RangeSuffix("a", {"k": ["F", "M"], "n": [1]}),
        ),
    ],
)
def test_counts_and_boundaries_per_key_may_be_given_as_to_the_class(text: str, strategy: Strategy) -> None:
    """In JSON, keys are text; what is written keeps its form."""
    form = json.loads(text)
    assert Strategy.from_dict(form) == strategy
    assert Strategy.from_dict(json.loads(json.dumps(strategy.to_dict()))) == strategy
    if not isinstance(strategy, RangeSuffix):
        assert Strategy.from_dict({**form, "shards": {**form["shards"], None: 2}}).shards_for("other") == range(1, 3)


def test_functions_need_a_name() -> None:
    def local(_: Any) -> int:
        return 2

    strategy = RandomSuffix(local)
    with pytest.raises(ConfigurationError, match="register_function"):
        strategy.to_dict()
    name = f"test.{uuid.uuid4()}"
    assert register_function(local, name=name) is local
    assert register_function(local, name=name) is local
    assert Strategy.from_dict(strategy.to_dict()) == strategy
    with pytest.raises(ConfigurationError, match="is taken by"):
        register_function(length_of, name=name)
    for function, wrong in ((local, ""), (local, None), (5, "five")):
        with pytest.raises(ConfigurationError, match="must be a callable and a non-empty str"):
            register_function(function, name=wrong)  # type: ignore[type-var, arg-type]
