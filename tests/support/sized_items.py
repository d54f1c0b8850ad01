"""Random items whose sizes are at the edges of write units: a byte that is counted wrongly is a unit more or less."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from typing import Any

from shardkit.dynamodb.values import number_size

KB = 1024
EXACT = Context(prec=300)
NAMES = ("a", "Total", "é", "日本", "😀 mixed ü", "long " * 12)
TEXTS = ("", "abc", "Zürich", "日本語", "😀", "line\nbreak", "x" * 200)


def number(rng: random.Random, *, straddling: bool = True) -> str:
    """A number in any notation that the service takes; only one that engines count alike, where none may straddle."""
    while True:
        text = _number(rng)
        if straddling or number_size(text) == aligned_size(text):
            return text


def aligned_size(text: str) -> int:
    """The size of a number where pairs of digits begin at the decimal point, up to 21 bytes: DynamoDB Local's."""
    sign, digits, exponent = EXACT.create_decimal(text).normalize(EXACT).as_tuple()
    assert isinstance(exponent, int)
    if digits == (0,):
        return 1
    return min(1 + -(-(len(digits) + exponent) // 2) - exponent // 2 + sign, 21)


def _number(rng: random.Random) -> str:
    digits = "".join(rng.choices("0123456789", weights=[4, *[1] * 9], k=rng.choice((1, 2, 3, 4, 5, 10, 37, 38))))
    sign = rng.choice(("", "", "-"))
    form = rng.randrange(5)
    if form == 0:
        return sign + digits
    if form == 1:
        place = rng.randint(0, len(digits))
        return f"{sign}{digits[:place] or '0'}.{digits[place:] or '0'}"
    if form == 2:
        return f"{sign}{digits}{rng.choice(('E+', 'e', 'E-'))}{rng.randint(0, 80)}"
    if form == 3:
        return f"{sign}{'0' * rng.randint(0, 5)}{digits}{'0' * (38 - len(digits)) if rng.random() < 0.3 else ''}"
    return f"{sign}0.{'0' * rng.randint(0, 60)}{digits}"


def value(rng: random.Random, depth: int = 0, *, straddling: bool = True) -> dict[str, Any]:
    """A wire value of any type, documents up to three deep."""
    kind = rng.choice(("S", "N", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", *(("L", "M") * 2 if depth < 3 else ())))
    if kind == "N":
        return {kind: number(rng, straddling=straddling)}
    if kind == "NS":
        texts = [number(rng, straddling=straddling) for _ in range(rng.randint(1, 4))]
        return {kind: list({Decimal(text): text for text in texts}.values())}
    if kind == "L":
        return {kind: [value(rng, depth + 1, straddling=straddling) for _ in range(rng.randint(0, 3))]}
    if kind == "M":
        return {
            kind: {name: value(rng, depth + 1, straddling=straddling) for name in rng.sample(NAMES, rng.randint(0, 3))}
        }
    if kind == "SS":
        return {kind: rng.sample(TEXTS, rng.randint(1, 3))}
    if kind == "BS":
        return {kind: [rng.randbytes(size) for size in rng.sample(range(1, 20), rng.randint(1, 3))]}
    plain: dict[str, Any] = {
        "S": rng.choice(TEXTS), "B": rng.randbytes(rng.randint(0, 30)), "BOOL": rng.random() < 0.5, "NULL": True
    }  # fmt: skip
    return {kind: plain[kind]}
