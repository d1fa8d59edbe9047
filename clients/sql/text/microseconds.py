"""Types and texts of timestamps. DataFusion takes them for nanoseconds, of years from 1677 to 2262; the store has
microseconds.

``TIMESTAMP '9999-12-31'`` becomes ``TIMESTAMP(6) '9999-12-31'``, and so do casts. A literal with more than six digits
of a second stays as it is in these years.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from ....schemas import compute as pc
from .edits import Edit, edited
from .parsed_text import ParsedText

_TYPES = (TokenType.TIMESTAMP, TokenType.TIMESTAMPTZ)
_SHORT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
"""A moment without seconds, which DataFusion does not read."""
_FINE = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d{7,})(.*)")
"""A moment with more than six digits of a second."""
_FIRST, _LAST = "1678", "2261"
"""Years that nanoseconds have."""


def with_six_digits(moment: str) -> str:
    """Return a moment that SQL writes, with its seconds rounded to microseconds as PostgreSQL does: half to even."""
    match = _FINE.fullmatch(moment.strip())
    if match is None:
        return moment
    try:
        seconds = dt.datetime.fromisoformat(match[1])
        rounded = seconds + dt.timedelta(microseconds=round(Decimal(match[2]) * 1_000_000))
    except (ValueError, OverflowError):
        return moment
    return f"{rounded.isoformat(' ', 'microseconds')}{match[3]}"


def texts_of_moments(cells: pa.Array) -> pa.Array:
    """Return timestamps as PostgreSQL writes them: without zeros at the end of their seconds."""
    return pc.replace_substring_regex(cells.cast(pa.timestamp("us")).cast(pa.string()), r"(\.000000|0{1,5})$", "")


def with_microseconds(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, with types of microseconds."""
    tokens = parts.tokens
    if not any(token.token_type in _TYPES for token in tokens):
        return text
    edits: list[Edit] = []
    opened: list[bool] = []
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            opened.append(place > 0 and tokens[place - 1].text.lower() in ("cast", "try_cast"))
        elif token.token_type is TokenType.R_PAREN:
            opened = opened[:-1]
        elif token.token_type in _TYPES:
            is_type, literal = _literal(tokens, place, bool(opened and opened[-1]))
            if literal is not None and _SHORT.fullmatch(literal.text):
                edits.append(Edit(literal.end, literal.end, ":00"))
            fine = literal if literal is not None and _FINE.fullmatch(literal.text.strip()) else None
            if is_type and not (fine is not None and _FIRST <= fine.text.strip()[:4] <= _LAST):
                edits.append(Edit(token.end + 1, token.end + 1, "(6)"))
                if fine is not None:
                    edits.append(Edit(fine.start + 1, fine.end, with_six_digits(fine.text)))
    return edited(text, edits) if edits else text


def _literal(tokens: Sequence[Token], place: int, is_cast: bool) -> tuple[bool, Token | None]:
    """Return whether a type without digits stands at a place, and the literal that has it, if any."""
    after = place + 1
    if [token.text.lower() for token in tokens[after + 1 : after + 3]] == ["time", "zone"]:
        after += 3
    kind = _kind(tokens, after)
    if kind is TokenType.STRING:
        return True, tokens[after]
    before = _kind(tokens, place - 1)
    if kind in (TokenType.L_PAREN, TokenType.L_BRACKET) or not (
        before is TokenType.DCOLON or (is_cast and before is TokenType.ALIAS)
    ):
        return False, None
    return True, tokens[place - 2] if _kind(tokens, place - 2) is TokenType.STRING else None


def _kind(tokens: Sequence[Token], place: int) -> TokenType | None:
    return tokens[place].token_type if 0 <= place < len(tokens) else None
