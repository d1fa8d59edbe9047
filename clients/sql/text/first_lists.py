"""Lists of IN that are queries with GROUP BY, which run first.

DataFusion joins with such a list as the last of all tables, and keeps the rows of the others in memory meanwhile, since
it does not know how few rows the list has. As a table in memory the list is joined first, and its keys restrict others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from sqlglot.tokenizer_core import Token, TokenType

from .edits import Edit, edited
from .names import quoted


@dataclass(frozen=True, slots=True)
class FirstLists:
    """An SQL query whose lists of IN have become tables in memory."""

    text: str
    lists: tuple[tuple[str, str], ...]
    """The name of each table, and the query of its rows."""


def first_lists(text: str, tokens: Sequence[Token]) -> FirstLists | None:
    """Return the SQL query ``text``, whose ``tokens`` these are, with names of tables for its lists of IN; None: it has
    none."""
    lists: list[tuple[str, str]] = []
    edits: list[Edit] = []
    names = {token.text for token in tokens}
    for start, end in _places(tokens):
        name = next(name for number in count(len(lists) + 1) if (name := f"#list{number}") not in names)
        names.add(name)
        lists.append((name, text[start:end]))
        edits.append(Edit(start, end, f"SELECT * FROM {quoted(name)}"))
    return FirstLists(edited(text, edits), tuple(lists)) if lists else None


def _places(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield where the queries with GROUP BY that are lists begin and end."""
    place = 0
    while place + 2 < len(tokens):
        kinds = [token.token_type for token in tokens[place : place + 3]]
        place += 1
        if kinds != [TokenType.IN, TokenType.L_PAREN, TokenType.SELECT]:
            continue
        depth, has_groups = 0, False
        for last in range(place, len(tokens)):
            kind = tokens[last].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            has_groups |= depth == 1 and kind is TokenType.GROUP_BY
            if depth == 0:
                if has_groups:
                    yield tokens[place + 1].start, tokens[last].start
                    place = last
                break
