"""Reads the parts of an expression that stand by themselves: columns, literals, intervals and types."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import NoReturn

from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from .tree import ColumnName, Constant
from .words import Kind, Word, error_at

RESERVED = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE")
"""A column of such a name needs double quotes."""
_NAME_BEFORE = ("AND", "OR", "IS", "IN", "NOT", "BETWEEN", "LIKE", "ILIKE", "THEN", "WHEN", "ELSE", "END", "AS", "FROM")
"""A word before one of these is a column, even if it is also a keyword."""
INTERVALS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
"""Units of an interval, in microseconds."""
_LONGEST = 1 << 63


class WordReader:
    """Reads the words of SQL text from left to right; ``grammar`` is the advice where its syntax is wrong."""

    def __init__(self, words: list[Word], what: str, grammar: str) -> None:
        """``what`` names the text in errors."""
        self._words = words
        self._next = 0
        self._what = what
        self._grammar = grammar

    def peek(self, ahead: int = 0) -> Word:
        """Return the next word, or one after it; the end stays."""
        return self._words[min(self._next + ahead, len(self._words) - 1)]

    def take(self) -> Word:
        """Return the next word and step over it; the end stays."""
        word = self._words[self._next]
        self._next = min(self._next + 1, len(self._words) - 1)
        return word

    def takes(self, *keywords: str) -> bool:
        """Step over one of the keywords if it is next; return whether it was."""
        is_next = self.peek().is_keyword(*keywords)
        if is_next:
            self.take()
        return is_next

    def expect(self, symbol: str, what: str) -> None:
        """Step over a symbol, which is ``what`` is expected. Raises InvalidArgumentError: another word is next."""
        word = self.take()
        if not word.is_symbol(symbol):
            self.expected(word, what)

    def expected(self, word: Word, what: str) -> NoReturn:
        """Raise InvalidArgumentError at a word that cannot stand there, with the grammar: it begins an unsupported
        form, or the syntax is wrong."""
        raise error_at(word, f"{_known_form(word) or f'expected {what}'}; {self._grammar}", self._what)

    def refuse(self, word: Word, why: str) -> NoReturn:
        """Raise InvalidArgumentError at a word that is understood; the grammar would not help."""
        raise error_at(word, _known_form(word) or why, self._what)

    def is_call(self) -> bool:
        """Whether a function follows."""
        word = self.peek()
        return word.kind is Kind.WORD and not word.is_keyword(*RESERVED) and _opens(self.peek(1))

    def is_case(self) -> bool:
        """Whether CASE follows as a keyword: a column may be called ``case``."""
        after = self.peek(1)
        if not self.peek().is_keyword("CASE") or after.kind is Kind.END:
            return False
        return after.is_keyword("WHEN") or after.is_symbol("(", "-", "+") or not self._is_compared(after)

    def operand(self) -> ColumnName | Constant:
        """Read a column or a literal."""
        word = self.peek()
        if word.is_keyword("SELECT") and not self._is_compared(self.peek(1)):
            self.expected(word, "a literal or a column")
        if self._is_column():
            return self._column()
        if word.kind in (Kind.NUMBER, Kind.STRING, Kind.BINARY):
            return Constant(self.take().value)
        if word.is_keyword("TRUE", "FALSE"):
            return Constant(self.take().is_keyword("TRUE"))
        if word.is_keyword("NULL"):
            self.take()
            return Constant(None)
        if word.is_keyword("DATE", "TIMESTAMP"):
            self.take()
            return Constant({word.text.lower(): self.take().text})
        if word.is_keyword("INTERVAL"):
            self.take()
            return Constant({"interval": self._interval()})
        self.expected(word, "a literal or a column")

    @staticmethod
    def _is_compared(after: Word) -> bool:
        """Whether a word before this one stands for a column."""
        return after.is_keyword(*_NAME_BEFORE) or (after.kind is Kind.SYMBOL and not after.is_symbol("*", "("))

    def _is_column(self) -> bool:
        word, after = self.peek(), self.peek(1)
        if word.kind is Kind.QUOTED:
            return True
        if word.kind is not Kind.WORD or word.is_keyword(*RESERVED):
            return False
        is_typed = word.is_keyword("DATE", "TIMESTAMP") and after.kind is Kind.STRING
        return not is_typed and not (word.is_keyword("INTERVAL") and after.kind in (Kind.STRING, Kind.NUMBER))

    def _column(self) -> ColumnName:
        return ColumnName(self.take().text)

    def _interval(self) -> int:
        """Read ``'90' MINUTE``, ``90 MINUTES`` or ``'90 minutes'`` as microseconds."""
        word = self.take()
        number, _, unit = word.text.strip().partition(" ")
        unit = (unit.strip() or (self.take().text if self.peek().kind is Kind.WORD else "")).upper()
        size = INTERVALS.get(unit.removesuffix("S") if unit not in INTERVALS else unit)
        try:
            microseconds = Decimal(number) * (size or 0)
        except InvalidOperation:
            size, microseconds = None, Decimal(0)
        if size is None or not microseconds.is_finite():
            self.refuse(word, f"an interval is a number of {', '.join(INTERVALS)}, as in INTERVAL '1' DAY")
        if abs(microseconds) >= _LONGEST:
            self.refuse(word, "the interval is too long: at most 292,000 years")
        return int(microseconds)

    def kind(self) -> LogicalType:
        """Read a type, as CAST takes it."""
        word = self.take()
        if word.kind is not Kind.WORD:
            self.expected(word, "a type")
        text = word.text
        if word.is_keyword("DOUBLE"):
            self.takes("PRECISION")
        if self.peek().is_symbol("["):  # timestamp[us]
            text += "".join(self.take().text for _ in range(3))
        elif self.peek().is_symbol("("):
            self.take()
            sizes = [self.take().text]
            while self.peek().is_symbol(","):
                self.take()
                sizes.append(self.take().text)
            self.expect(")", "the end of the type")
            text += f"({','.join(sizes)})"
        try:
            return LogicalType.parse(text)
        except InvalidArgumentError as error:
            raise error_at(word, error.message, self._what) from None


def _opens(word: Word) -> bool:
    return word.is_symbol("(") or word.kind is Kind.LIST


def _known_form(word: Word) -> str | None:
    """Return the unsupported SQL form that a word would begin."""
    if word.is_symbol("^", "&", "|", "~", "#"):
        return f"the operator {word.text} is not supported"
    if word.is_keyword("SELECT", "EXISTS"):
        return "subqueries are not supported"
    if word.is_keyword("RLIKE", "REGEXP", "SIMILAR", "GLOB", "COLLATE", "ANY", "ALL", "OVER"):
        return f"{word.text.upper()} is not supported"
    if word.is_symbol("?", ":", "@"):
        return "parameters are not supported"
    return None
