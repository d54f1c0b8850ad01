"""Rewrite the conditions and projections that a suffix affects, and refuse those that cannot be rewritten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from shardkit.dynamodb.expressions.tokens import (
    NAMES,
    VALUES,
    Part,
    Token,
    fresh,
    name_of,
    parts,
    path_name,
    rebuilt,
    renamed,
    render,
    taken_placeholders,
    text_of,
    tokenize,
    value_of,
)
from shardkit.dynamodb.expressions.update import actions
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import UnsupportedExpressionError, brief

# These do not depend on the value, so they mean the same for a logical and a physical key.
_PRESENCE = frozenset({"attribute_exists", "attribute_not_exists", "attribute_type"})
_LEGACY_PRESENCE = frozenset({"NULL", "NOT_NULL"})
_LEGACY_EQUALITY = frozenset({"EQ", "NE", "IN"})
# DynamoDB refuses a request that mixes expressions with any of these.
_LEGACY_PARAMETERS = frozenset(
    {
        "AttributeUpdates",
        "AttributesToGet",
        "ConditionalOperator",
        "Expected",
        "KeyConditions",
        "QueryFilter",
        "ScanFilter",
    }
)
_NOTHING = Token("space", "")
_MOST_LISTED = 100  # values of IN (API reference)
_KEPT = "shardkit keeps this attribute for an index; use the attribute that has the logical value"
_EXPRESSIONS = ("FilterExpression", "ConditionExpression", "KeyConditionExpression")


def build_conditions(params: Mapping[str, Any]) -> dict[str, Any]:
    """Convert boto3's condition objects to expressions: `Attr("a").eq(1)` becomes `#n0 = :v0`."""
    result = dict(params)
    given = [name for name in _EXPRESSIONS if isinstance(params.get(name), ConditionBase)]
    if not given:
        return result
    builder = ConditionExpressionBuilder()
    taken = taken_placeholders(params)
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    for parameter in given:
        built = builder.build_expression(params[parameter], is_key_condition=parameter == "KeyConditionExpression")
        generated = {*built.attribute_name_placeholders, *built.attribute_value_placeholders}
        # boto3 would overwrite the caller's #n0 with its own; renaming ours keeps both.
        clashes = sorted(generated & taken)
        taken |= generated
        renames = {placeholder: fresh(placeholder[:2], taken) for placeholder in clashes}
        result[parameter] = renamed(built.condition_expression, renames)
        names.update({renames.get(key, key): name for key, name in built.attribute_name_placeholders.items()})
        values.update({renames.get(key, key): value for key, value in built.attribute_value_placeholders.items()})
    if names:
        result[NAMES] = {**(params.get(NAMES) or {}), **names}
    if values:
        result[VALUES] = {**(params.get(VALUES) or {}), **values}
    return result


def rewrite_partition_key(
    params: Mapping[str, Any], name: str, physical: Callable[[WireValue], WireValue]
) -> dict[str, Any]:
    """Return a single-item write whose condition compares the partition key with physical values."""
    expected = params.get("Expected")
    if expected is not None and name in expected:
        return {**params, "Expected": {**expected, name: _physical_expected(expected[name], name, physical)}}
    text = text_of(params, "ConditionExpression")
    if text is None:
        return dict(params)
    tokens = list(tokenize(text))
    taken = taken_placeholders(params)
    places: dict[str, str] = {}
    values: dict[str, WireValue] = {}
    compared = _comparisons(params, text, name, lambda: _condition_error("ConditionExpression", text, name))
    for part in (part for _, _, listed in compared for part in listed):
        if part.text not in places:
            places[part.text] = fresh(":shardkit_v", taken)
            values[places[part.text]] = physical(value_of(params, part.text))
        tokens[part.at] = Token("value", places[part.text])
    if not places:
        return dict(params)
    return rebuilt(params, {"ConditionExpression": render(tokens)}, values=values, released=set(places))


def refuse_partition_key(params: Mapping[str, Any], name: str, parameter: str) -> None:
    """Refuse a filter or an update that depends on the partition key's value; a filter may test its presence."""
    given = params.get(parameter)
    if parameter == "AttributeUpdates":
        if given and name in given:
            raise _update_error(parameter, given, name)
    elif parameter in ("ScanFilter", "QueryFilter"):
        if given and name in given and given[name].get("ComparisonOperator") not in _LEGACY_PRESENCE:
            raise _filter_error(parameter, given, name)
    else:
        text = text_of(params, parameter) or ""
        found = parts(text)
        for index, part in enumerate(found):
            if part.kind != "path" or name_of(params, part.text) != name:
                continue
            if parameter == "UpdateExpression":
                raise _update_error(parameter, text, name)
            if not part.nested and not _asks_presence(found, index):
                raise _filter_error(parameter, text, name)


def updated_attributes(params: Mapping[str, Any]) -> frozenset[str]:
    """Return the top-level attributes that an update changes: info and b for `SET info.a = :v REMOVE b`."""
    return frozenset(action.name for action in actions(params))


def refuse_attributes(params: Mapping[str, Any], names: Collection[str], *parameters: str, why: str = _KEPT) -> None:
    """Refuse expressions that mention attributes: by default because shardkit keeps them."""
    for parameter in parameters if names else ():
        given = params.get(parameter)
        if isinstance(given, Mapping | list | tuple):
            found = {*names}.intersection(given)
        else:
            text = text_of(params, parameter) or ""
            found = {name_of(params, part.text) for part in parts(text) if part.kind == "path"} & {*names}
        if found:
            raise UnsupportedExpressionError(
                f"{parameter}: must not mention {min(found)!r}, got {brief(given, 200)}; {why}"
            )


def rewrite_spread(
    params: Mapping[str, Any], parameter: str, name: str, all_physical: Callable[[WireValue], Sequence[WireValue]]
) -> dict[str, Any]:
    """Return a request whose condition or filter compares an attribute with all physical values of a logical one.

    ``a = :v`` becomes ``a IN (:v1, :v2)``, and ``a <> :v`` becomes ``NOT a IN (:v1, :v2)``.
    """
    given = params.get(parameter)
    if isinstance(given, Mapping):
        if name not in given:
            return dict(params)
        return {**params, parameter: {**given, name: _spread_legacy(parameter, given[name], name, all_physical)}}
    text = text_of(params, parameter) or ""
    tokens = list(tokenize(text))
    taken = taken_placeholders(params)
    values: dict[str, WireValue] = {}
    released: set[str] = set()
    for path, operator, compared in _comparisons(params, text, name, lambda: _spread_error(parameter, text, name)):
        listed = [one for part in compared for one in all_physical(value_of(params, part.text))]
        places = [fresh(":shardkit_v", taken) for _ in _checked_list(listed, parameter, name)]
        values.update(zip(places, listed, strict=True))
        released.update(part.text for part in compared)
        first, last = _around_operand(tokens, path.at)
        begin, end = _around_operand(tokens, compared[-1].at)
        if len(compared) > 1:  # else the parentheses of IN are those around its value
            end = next(at for at in range(end + 1, len(tokens)) if tokens[at].text == ")")
        first, last = min(first, begin), max(last, end)
        before = next((at for at in range(first - 1, -1, -1) if tokens[at].kind != "space"), -1)
        negated = before >= 0 and tokens[before].text.upper() == "NOT"
        if operator == "<>" and negated:  # "NOT NOT" is not known to every engine
            tokens[before] = _NOTHING
        word = "NOT " if operator == "<>" and not negated else ""
        written = Token("space", f"{word}{tokens[path.at].text} IN ({', '.join(places)})")
        tokens[first : last + 1] = [written, *[_NOTHING] * (last - first)]  # as many as before
    return rebuilt(params, {parameter: render(tokens)}, values=values, released=released) if values else dict(params)


def project(params: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], frozenset[str]]:
    """Add key attributes to the projection, if there is one; also return the added names, to remove from items."""
    result = dict(params)
    added: set[str] = set()
    listed = params.get("AttributesToGet")
    if listed is not None:
        missing = [name for name in dict.fromkeys(names) if name not in listed]
        result["AttributesToGet"] = [*listed, *missing]
        added.update(missing)
    text = text_of(params, "ProjectionExpression")
    if text is None:
        return result, frozenset(added)
    paths = [part for part in parts(text) if part.kind == "path"]
    whole = {path_name(params, part) for part in paths}
    missing = [name for name in dict.fromkeys(names) if name not in whole]
    below = sorted({name_of(params, part.text) for part in paths if part.nested} & set(missing))
    if below:
        # Adding the attribute itself would make two paths overlap, which DynamoDB refuses.
        raise UnsupportedExpressionError(
            f"ProjectionExpression: {text!r} selects a part of {below[0]!r}, but a key attribute has no parts; select "
            "the attribute itself, or omit it"
        )
    taken = taken_placeholders(params)
    placeholders = {fresh("#shardkit_p", taken): name for name in missing}
    if placeholders:
        result = rebuilt(result, {"ProjectionExpression": ", ".join([text, *placeholders])}, names=placeholders)
    return result, frozenset(added.union(missing))


def select_instead(params: Mapping[str, Any], name: str, other: str) -> dict[str, Any]:
    """Return a request that selects another attribute, if it selects this one."""
    result = dict(params)
    listed = params.get("AttributesToGet")
    if listed is not None:
        result["AttributesToGet"] = [other if one == name else one for one in listed]
    text = text_of(params, "ProjectionExpression") or ""
    found = [part for part in parts(text) if path_name(params, part) == name]
    if not found:
        return result
    tokens = list(tokenize(text))
    placeholder = fresh("#shardkit_s", taken_placeholders(params))
    for part in found:
        tokens[part.at] = Token("placeholder", placeholder)
    changed = {"ProjectionExpression": render(tokens)}
    return rebuilt(result, changed, names={placeholder: other}, released={part.text for part in found})


def keys_only(params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a Select=COUNT request that returns these attributes instead, for the caller to count."""
    if any(params.get(parameter) is not None for parameter in ("ProjectionExpression", "AttributesToGet")):
        return dict(params)  # the service refuses COUNT with a projection
    result = {parameter: value for parameter, value in params.items() if parameter != "Select"}
    wanted = list(dict.fromkeys(names))
    if any(params.get(parameter) is not None for parameter in _LEGACY_PARAMETERS):
        return {**result, "AttributesToGet": wanted}
    taken = taken_placeholders(params)
    placeholders = {fresh("#shardkit_p", taken): name for name in wanted}
    return rebuilt(result, {"ProjectionExpression": ", ".join(placeholders)}, names=placeholders)


def and_condition(params: Mapping[str, Any], expression: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Add a condition without values to a write: `x OR y` and `b` become `(x OR y) AND b`."""
    legacy = sorted(parameter for parameter in _LEGACY_PARAMETERS if params.get(parameter) is not None)
    if legacy:
        raise UnsupportedExpressionError(
            f"{legacy[0]}: not supported for this write, which adds a condition ({expression!r}), and DynamoDB refuses "
            "both in one request; use ConditionExpression and UpdateExpression"
        )
    taken = taken_placeholders(params)
    defined = params.get(NAMES) or {}
    clashes = [key for key, name in names.items() if key in taken and defined.get(key) != name]
    taken.update(names)
    renames = {key: fresh(f"{key}_", taken) for key in clashes}
    expression = renamed(expression, renames)
    own = text_of(params, "ConditionExpression")
    return rebuilt(
        params,
        {"ConditionExpression": expression if own is None else f"{grouped(own)} AND {grouped(expression)}"},
        names={renames.get(key, key): name for key, name in names.items()},
    )


def as_read(attributes: Mapping[str, WireValue | None], prefix: str) -> tuple[str, dict[str, str], WireItem]:
    """Return the condition that attributes are as they were read (None: absent), its names, and its values."""
    numbered = {f"{prefix}{number}": one for number, one in enumerate(attributes.items())}
    terms = (f"#{key} = :{key}" if one else f"attribute_not_exists(#{key})" for key, (_, one) in numbered.items())
    names = {f"#{key}": name for key, (name, _) in numbered.items()}
    return " AND ".join(terms), names, {f":{key}": one for key, (_, one) in numbered.items() if one}


def grouped(text: str) -> str:
    """Put an expression in parentheses if it has an OR outside parentheses; DynamoDB refuses redundant ones."""
    depth = 0
    for part in parts(text):
        depth += {"(": 1, ")": -1}.get(part.text, 0)
        if depth == 0 and part.kind == "keyword" and part.text == "OR":
            return f"({text})"
    return text


def _asks_presence(found: Sequence[Part], index: int) -> bool:
    return index > 1 and found[index - 2].kind == "function" and found[index - 2].text in _PRESENCE


def _comparisons(
    params: Mapping[str, Any], text: str, name: str, refuse: Callable[[], UnsupportedExpressionError]
) -> Iterator[tuple[Part, str, list[Part]]]:
    """Yield the comparisons of an attribute by =, <> or IN: path, operator and values; refuse all other uses."""
    found = parts(text)
    edge = Part("edge", "", -1)
    around = (edge, edge, edge, *found, edge, edge)  # no bounds checks when looking left and right
    for index, part in enumerate(found):
        if path_name(params, part) != name or _asks_presence(found, index):
            continue
        middle = index + 3
        left, right = around[middle - 1], around[middle + 1]
        listed = _listed(found, index + 1)
        if right.text in ("=", "<>") and around[middle + 2].kind == "value" and left.kind != "operator":
            yield part, right.text, [around[middle + 2]]
        elif left.text in ("=", "<>") and around[middle - 2].kind == "value" and right.kind != "operator":
            yield part, left.text, [around[middle - 2]]
        elif listed:
            yield part, "IN", listed
        else:
            raise refuse()


def _listed(found: Sequence[Part], at: int) -> list[Part]:
    """Return the values of `IN (:a, :b)` at a position; empty if there is something else."""
    if [part.text for part in found[at : at + 2]] != ["IN", "("]:
        return []
    values: list[Part] = []
    for part in found[at + 2 :]:
        if part.text == ")":
            return values
        if part.kind == "value":
            values.append(part)
        elif part.text != ",":
            return []
    return []


def _physical_expected(
    condition: Mapping[str, Any], name: str, physical: Callable[[WireValue], WireValue]
) -> dict[str, Any]:
    operator = condition.get("ComparisonOperator")
    if operator in _LEGACY_PRESENCE:
        return dict(condition)
    if operator is not None and operator not in _LEGACY_EQUALITY:
        raise _condition_error("Expected", condition, name)
    result = dict(condition)
    if "Value" in condition:
        result["Value"] = physical(condition["Value"])
    if "AttributeValueList" in condition:
        result["AttributeValueList"] = [physical(value) for value in condition["AttributeValueList"]]
    return result


def _around_operand(tokens: Sequence[Token], at: int) -> tuple[int, int]:
    """Return the first and the last token of an operand with the parentheses around it alone: `(a) = (:v)`."""
    places = [place for place, token in enumerate(tokens) if token.kind != "space"]
    left = right = places.index(at)
    while (
        left > 0
        and right + 1 < len(places)
        and (tokens[places[left - 1]].text, tokens[places[right + 1]].text) == ("(", ")")
    ):
        left, right = left - 1, right + 1
    return places[left], places[right]


def _checked_list(listed: Sequence[WireValue], parameter: str, name: str) -> Sequence[WireValue]:
    if len(listed) > _MOST_LISTED:
        raise UnsupportedExpressionError(
            f"{parameter}: compares {name!r}, which has {len(listed)} stored values for it, but IN takes at most "
            f"{_MOST_LISTED}; use fewer shards, or an index with source="
        )
    return listed


def _spread_legacy(
    parameter: str, condition: Mapping[str, Any], name: str, all_physical: Callable[[WireValue], Sequence[WireValue]]
) -> dict[str, Any]:
    operator = condition.get("ComparisonOperator")
    if operator in _LEGACY_PRESENCE or condition.get("Exists") is False:
        return dict(condition)
    if operator not in {None, "EQ", "IN"}:
        raise _spread_error(parameter, condition, name)
    given = [condition["Value"]] if "Value" in condition else condition.get("AttributeValueList") or ()
    listed = _checked_list([one for value in given for one in all_physical(value)], parameter, name)
    return {"ComparisonOperator": "IN", "AttributeValueList": [*listed]}


def _spread_error(parameter: str, given: object, name: str) -> UnsupportedExpressionError:
    return UnsupportedExpressionError(
        f"{parameter}: {given!r} uses {name!r}, which is stored with the suffix of an index, with other operators than "
        "=, <> or IN with :values, attribute_exists, attribute_not_exists, attribute_type; compare it with = to a "
        "whole value, or give the index source="
    )


def _condition_error(parameter: str, given: object, name: str) -> UnsupportedExpressionError:
    return UnsupportedExpressionError(
        f"{parameter}: {given!r} uses the partition key {name!r} with other operators than =, <> or IN with :values, "
        "attribute_exists, attribute_not_exists, attribute_type; the stored key has a suffix, which changes its order, "
        "length and content; compare it with = to a whole value, or keep a copy in another attribute"
    )


def _filter_error(parameter: str, given: object, name: str) -> UnsupportedExpressionError:
    return UnsupportedExpressionError(
        f"{parameter}: {given!r} compares the partition key {name!r}, but a filter sees stored keys with their suffix; "
        "query the logical key, or filter on another attribute with a copy of it"
    )


def _update_error(parameter: str, given: object, name: str) -> UnsupportedExpressionError:
    return UnsupportedExpressionError(
        f"{parameter}: {given!r} uses the partition key {name!r}, which cannot be updated and is stored with a suffix; "
        "to copy the logical key, pass it as a :value"
    )
