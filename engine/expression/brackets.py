"""A parser's stack: operators whose last operand is not complete, and brackets that are open."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from .words import Word

Kind = Literal["(", "call", "list", "case", "between"]


class Rank(IntEnum):
    """How close the operators of an expression bind."""

    OR = 1
    AND = 2
    NOT = 3
    IS = 4
    COMPARISON = 5
    RANGE = 6
    """BETWEEN, IN and LIKE."""
    JOIN = 7
    SUM = 8
    PRODUCT = 9
    SIGN = 10


ARITHMETIC = {
    "||": Rank.JOIN,
    "+": Rank.SUM,
    "-": Rank.SUM,
    "*": Rank.PRODUCT,
    "/": Rank.PRODUCT,
    "%": Rank.PRODUCT,
}


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of an expression that is being parsed; ``negated``: NOT stands before it."""

    rank: int
    op: str
    word: Word
    negated: bool = False


@dataclass(slots=True)
class Bracket:
    """An open bracket of an expression that is being parsed: a parenthesis, a function, a list, a CASE, or a BETWEEN
    before its AND."""

    kind: Kind
    word: Word
    first: int
    """The number of operands before it."""
    name: str = ""
    """Of a function."""
    negated: bool = False
    literals: list[Any] = field(default_factory=list)
    """Arguments of a function that stand before its others, and count after them."""
    stage: str = ""
    """The last keyword of a CASE; empty until its first WHEN."""
    has_subject: bool = False
    """Of a CASE."""

    def then(self, keyword: str) -> bool:
        """Go on with the next keyword of a CASE; return whether it may come now."""
        after = {"": ("WHEN",), "WHEN": ("THEN",), "THEN": ("WHEN", "ELSE", "END"), "ELSE": ("END",)}
        if keyword not in after[self.stage]:
            return False
        self.has_subject |= not self.stage
        self.stage = keyword
        return True
