"""Patterns of moments in PostgreSQL's letters, as in ``to_char(at, 'YYYY-MM-DD')``, written in those of DataFusion.

A pattern with ``%`` is one of DataFusion already.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import TokenType

from ....schemas.errors import InvalidArgumentError
from .edits import Edit, edited
from .null_lists import elements_of
from .parsed_text import ParsedText

_LETTERS = {
    "YYYY": "%Y",
    "IYYY": "%G",
    "YY": "%y",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "IW": "%V",
    "ID": "%u",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%3f",
    "US": "%6f",
    "AM": "%p",
    "PM": "%p",
    "am": "%P",
    "pm": "%P",
    "Mon": "%b",
    "Dy": "%a",
    "FMMonth": "%B",
    "FMDay": "%A",
}
_PART = re.compile("|".join([*sorted(_LETTERS, key=len, reverse=True), r'"[^"]*"', '[^A-Za-z"]+', "T"]))
_FUNCTIONS = ("to_char", "to_date", "to_timestamp")


def with_known_formats(text: str, parts: ParsedText) -> str:
    """Return the text of a query, whose ``parts`` these are, with patterns of moments that DataFusion knows.

    Raises:
        InvalidArgumentError: a pattern has letters that are not known.
    """
    edits: list[Edit] = []
    for place, token in enumerate(parts.tokens):
        if token.text.lower() not in _FUNCTIONS:
            continue
        for element in elements_of(parts.tokens, place + 1)[1:]:
            pattern = element[0]
            if len(element) == 1 and pattern.token_type is TokenType.STRING and "%" not in pattern.text:
                written = _written(pattern.text).replace("'", "''")
                edits.append(Edit(pattern.start, pattern.end + 1, f"'{written}'"))
    return edited(text, edits) if edits else text


def _written(pattern: str) -> str:
    """Return a pattern in the letters of DataFusion."""
    answer: list[str] = []
    place = 0
    while place < len(pattern):
        part = _PART.match(pattern, place)
        if part is None:
            letters = re.match("[A-Za-z]*", pattern[place:])
            raise InvalidArgumentError(
                f"the pattern {pattern!r} has {letters[0] if letters else pattern[place]!r}, which is not supported: "
                f"it may have {', '.join(_LETTERS)}, and other text in double quotes"
            )
        answer.append(_LETTERS.get(part[0]) or part[0].strip('"'))
        place = part.end()
    return "".join(answer)
