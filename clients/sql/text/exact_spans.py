"""Intervals and times that a query compares.

DataFusion compares intervals by their months, then by their days, then by the rest: 25 hours are less than one day. It
makes an interval of a duration, and of the difference of two timestamps. So an interval that is compared is written in
seconds here, if it has no months: a day has 24 hours, as in PostgreSQL. A ``TIME '12:30'`` or ``'12:30'::time`` that
is compared becomes text, which DataFusion casts to the type of the other side: it has no common type of times of two
units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from .edits import Edit, edited
from .parsed_text import tokens_of

_WORDS = re.compile(r"\b(?:interval|time)\b", re.IGNORECASE)
_COMPARISONS = (TokenType.EQ, TokenType.NEQ, TokenType.GT, TokenType.GTE, TokenType.LT, TokenType.LTE)
_BEFORE = (*_COMPARISONS, TokenType.BETWEEN, TokenType.AND)
_SIGNS = (TokenType.PLUS, TokenType.DASH)
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_SECONDS = {
    "week": Decimal(604_800),
    "day": Decimal(86_400),
    "hour": Decimal(3_600),
    "minute": Decimal(60),
    "second": Decimal(1),
    "millisecond": Decimal("0.001"),
    "microsecond": Decimal("0.000001"),
}


def exact_spans(text: str, tables: Mapping[str, pa.Schema]) -> str:
    """Return an SQL query that compares spans of time by their lengths, and times with times. ``tables`` are those that
    it names: where one has intervals of months, intervals stay as they are."""
    if not _WORDS.search(text):
        return text
    kinds = {field.type for schema in tables.values() for field in schema}
    has_intervals = any(pa.types.is_interval(kind) for kind in kinds)
    has_times = any(pa.types.is_time(kind) for kind in kinds)
    tokens = tokens_of(text)
    edits: list[Edit] = []
    in_list = False
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.IN:
            in_list = True
        elif token.token_type is TokenType.R_PAREN:
            in_list = False
        span = _span(tokens, place)
        if span is None:
            continue
        is_listed = in_list and _is(tokens, span.first - 1, TokenType.L_PAREN, TokenType.COMMA)
        if not (is_listed or _is(tokens, span.first - 1, *_BEFORE) or _is(tokens, span.last + 1, *_COMPARISONS)):
            continue
        start, end = tokens[span.first].start, tokens[span.last].end + 1
        if span.word == "time" and has_times:
            edits.append(Edit(start, end, "'" + span.content.replace("'", "''") + "'"))
        elif span.word == "interval" and not (has_intervals or _is(tokens, span.last + 1, *_SIGNS)):
            seconds = _seconds(span.content)
            if seconds is not None:
                edits.append(Edit(start, end, f"INTERVAL '{seconds:f} seconds'"))
    return edited(text, edits) if edits else text


class _WrittenSpan(NamedTuple):
    """An interval or a time that a query writes."""

    word: str
    content: str
    first: int
    last: int
    """Its first and its last token."""


def _span(tokens: Sequence[Token], place: int) -> _WrittenSpan | None:
    """Return the interval or the time whose word stands at a place: INTERVAL '1 day', TIME '12:30', '12:30'::time or
    CAST('12:30' AS time)."""
    word = tokens[place].text.lower()
    if word not in ("interval", "time"):
        return None
    if _is(tokens, place + 1, TokenType.STRING):
        content = tokens[place + 1].text
        unit = tokens[place + 2] if word == "interval" and place + 2 < len(tokens) else None
        if unit is not None and _unit(unit.text):
            return _WrittenSpan(word, f"{content} {unit.text}", place, place + 2)
        return _WrittenSpan(word, content, place, place + 1)
    if place < 2 or word != "time" or not _is(tokens, place - 2, TokenType.STRING):
        return None
    first, last = (
        place - 2,
        place + 3 * (tokens[place + 1 : place + 2] != [] and tokens[place + 1].text.lower() == "without"),
    )
    if _is(tokens, place - 1, TokenType.DCOLON):
        return _WrittenSpan(word, tokens[first].text, first, last)
    is_cast = first > 1 and tokens[first - 2].text.lower() == "cast" and _is(tokens, last + 1, TokenType.R_PAREN)
    return _WrittenSpan(word, tokens[first].text, first - 2, last + 1) if is_cast else None


def _is(tokens: Sequence[Token], place: int, *kinds: TokenType) -> bool:
    return 0 <= place < len(tokens) and tokens[place].token_type in kinds


def _unit(word: str) -> str:
    """Return a unit without its plural; empty for another word."""
    lower = word.lower()
    return next((unit for unit in (lower, lower.removesuffix("s")) if unit in _SECONDS), "")


def _seconds(text: str) -> Decimal | None:
    """Return the length of an interval; None if it has months, or another form."""
    total, at, lower = Decimal(0), 0, text.lower()
    while at < len(lower):
        match = _PART.match(lower, at)
        if match is None or not (unit := _unit(match[2])):
            return None
        total += Decimal(match[1]) * _SECONDS[unit]
        at = match.end()
    return total
