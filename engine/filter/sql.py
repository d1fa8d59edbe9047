"""Parses a filter from SQL text to a predicate.

    filter   := part | NOT filter | filter AND filter | filter OR filter | ( filter )
    part     := column op literal | literal op column | column | TRUE | FALSE
              | column [NOT] BETWEEN literal AND literal
              | column [NOT] IN ( literal, ... )
              | column [NOT] LIKE string [ESCAPE character]
              | column IS [NOT] NULL
    op       := = | == | <> | != | < | <= | > | >=
    literal  := number | string | TRUE | FALSE | X'hex' | DATE string | TIMESTAMP string
              | CAST(string AS DATE | TIMESTAMP)

NOT binds closer than AND, AND closer than OR. A column alone is a bool column: ``active`` means ``active = TRUE``.

sqlglot's tokenizer reads the words (``words.py``). Its parser is not used: it recurses some twenty frames a
parenthesis, so that fifty of them, which programs easily write, end in a RecursionError; and its tree covers all of
SQL, and changes with its versions. This parser keeps its operators on its own stack.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits import Limits
from ...schemas.predicate import (
    Between,
    Comparison,
    ComparisonOp,
    InList,
    Junction,
    Like,
    Not,
    NullTest,
    Predicate,
    check_size,
)
from ...schemas.request import check
from .words import Kind, Word, error_at, number_value, words_of

MAX_TEXT = 4 * 1024 * 1024
"""Characters of a filter; 100,000 quoted UUIDs fit. Send longer filters as a tree."""
MAX_DEPTH = 100
"""Levels of AND, OR and NOT inside each other; parentheses that change nothing do not count."""

SUPPORTED = (
    "a filter compares a column with literals by =, <>, <, <=, >, >=, [NOT] BETWEEN, [NOT] IN, [NOT] LIKE or "
    "IS [NOT] NULL, and joins such parts by AND, OR, NOT and parentheses"
)
_OPS: dict[str, ComparisonOp] = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_FLIPPED: dict[ComparisonOp, ComparisonOp] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_RESERVED = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE")
_OTHER_SQL = ("CASE", "WHEN", "ILIKE", "RLIKE", "REGEXP", "SIMILAR", "GLOB", "COLLATE", "INTERVAL", "ANY", "ALL")
_RANK = {"or": 1, "and": 2, "not": 3}


def parse_sql(text: str, limits: Limits) -> Predicate:
    """Read a filter from SQL text.

    Raises:
        InvalidArgumentError: with the unsupported part, and what is supported; or a limit is exceeded.
    """
    if len(text) > MAX_TEXT:
        raise InvalidArgumentError(
            f"the filter has {len(text):,} characters; at most {MAX_TEXT:,} are allowed; send a longer filter as a tree"
        )
    if not text.isascii():
        _check_unicode(text)
    words = words_of(text, limits)
    if len(words) == 1:
        raise InvalidArgumentError(f"the filter is empty; {SUPPORTED}")
    return check_size(_Parser(words, limits).parse(), limits)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"the filter is not valid Unicode at character {error.start + 1}") from None


@dataclass(slots=True)
class _Branch:
    """AND, OR or NOT under construction."""

    op: str
    parts: list["_Part"]
    depth: int

    def add(self, part: "_Part") -> None:
        """Append an operand, or the operands of one with the same operator."""
        if isinstance(part, _Branch) and part.op == self.op:
            self.parts.extend(part.parts)
            self.depth = max(self.depth, part.depth)
        else:
            self.parts.append(part)
            self.depth = max(self.depth, 1 + _depth(part))
        if self.depth > MAX_DEPTH:
            raise InvalidArgumentError(f"the filter is nested more than {MAX_DEPTH} levels deep")

    def finish(self) -> Predicate:
        """Return the predicate; recurses no deeper than ``MAX_DEPTH``."""
        parts = [part.finish() if isinstance(part, _Branch) else part for part in self.parts]
        if self.op == "not":
            return Not(op="not", arg=parts[0])
        return Junction(op="and" if self.op == "and" else "or", args=parts)


_Part = Predicate | _Branch


def _depth(part: _Part) -> int:
    return part.depth if isinstance(part, _Branch) else 0


def _negated(part: _Part) -> _Part:
    if isinstance(part, _Branch) and part.op == "not":
        return part.parts[0]
    branch = _Branch("not", [], 0)
    branch.add(part)
    return branch


def _joined(op: str, left: _Part, right: _Part) -> _Part:
    if not (isinstance(left, _Branch) and left.op == op):
        first, left = left, _Branch(op, [], 0)
        left.add(first)
    left.add(right)
    return left


class _Parser:
    """Operator precedence over two stacks: waiting operators, and operands."""

    def __init__(self, words: list[Word], limits: Limits) -> None:
        self._words = words
        self._next = 0
        self._operators: list[str] = []
        self._operands: list[_Part] = []
        self._nodes_left = limits.predicate_nodes
        self._limits = limits

    def parse(self) -> Predicate:
        while True:
            check()
            self._prefix()
            self._operands.append(self._part())
            self._close_parentheses()
            word = self._take()
            if word.kind is Kind.END:
                break
            if not word.is_keyword("AND", "OR"):
                _refuse(word, "expected AND, OR or the end")
            self._push(word.text.lower())
        self._reduce(0)
        if self._operators:
            _refuse(self._words[-1], "a parenthesis is not closed")
        (whole,) = self._operands
        return whole.finish() if isinstance(whole, _Branch) else whole

    def _prefix(self) -> None:
        """Take the NOTs and the opening parentheses before a part."""
        while True:
            if self._peek().is_symbol("("):
                self._operators.append("(")
            elif self._peek().is_keyword("NOT"):
                self._operators.append("not")
            else:
                return
            self._take()

    def _close_parentheses(self) -> None:
        while self._peek().is_symbol(")"):
            self._reduce(0)
            if not self._operators:
                _refuse(self._peek(), "no parenthesis is open")
            self._operators.pop()
            self._take()

    def _push(self, op: str) -> None:
        self._reduce(_RANK[op])
        self._operators.append(op)

    def _reduce(self, rank: int) -> None:
        """Apply the waiting operators that bind at least as close as ``rank``, back to the last parenthesis."""
        while self._operators and self._operators[-1] != "(" and _RANK[self._operators[-1]] >= rank:
            op = self._operators.pop()
            right = self._operands.pop()
            if op == "not":
                self._operands.append(_negated(right))
            else:
                self._operands.append(_joined(op, self._operands.pop(), right))

    def _part(self) -> Predicate:
        """Read a column and its comparison."""
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise InvalidArgumentError(f"the filter has more than {self._limits.predicate_nodes:,} parts")
        word = self._peek()
        if self._is_column(word):
            return self._of_column(self._column())
        value = self._literal()
        op = _OPS.get(self._peek().text) if self._peek().kind is Kind.SYMBOL else None
        if op is None:
            if value is True or value is False:
                return Junction(op="and" if value else "or", args=[])
            _refuse(word, "a literal alone is not a condition")
        self._take()
        if not self._is_column(self._peek()):
            _refuse(self._peek(), "one side of a comparison must be a column")
        return Comparison(op=_FLIPPED[op], column=self._column(), value=value)

    def _of_column(self, column: str) -> Predicate:
        word = self._peek()
        if word.kind is Kind.SYMBOL and (op := _OPS.get(word.text)):
            self._take()
            if self._peek().is_keyword("NULL"):
                _refuse(self._peek(), f"a comparison with NULL is never true; write {_null_test(column, op)}")
            return Comparison(op=op, column=column, value=self._literal())
        if self._took("IS"):
            op_name = "is_not_null" if self._took("NOT") else "is_null"
            if not self._took("NULL"):
                _refuse(self._peek(), "expected NULL or NOT NULL after IS")
            return NullTest(op=op_name, column=column)
        if word.is_keyword("NOT", "BETWEEN", "IN", "LIKE"):
            return self._range_or_list(column)
        if not (word.kind is Kind.END or word.is_symbol(")") or word.is_keyword("AND", "OR")):
            _refuse(word, "expected a comparison after a column")
        return Comparison(op="=", column=column, value=True)

    def _range_or_list(self, column: str) -> Predicate:
        negated = self._took("NOT")
        part: Predicate
        if self._took("BETWEEN"):
            lower = self._literal()
            if not self._took("AND"):
                _refuse(self._peek(), "expected AND between the ends of BETWEEN")
            part = Between(op="between", column=column, lower=lower, upper=self._literal())
        elif self._took("IN"):
            return InList(op="not_in" if negated else "in", column=column, values=self._list())
        elif self._took("LIKE"):
            part = Like(op="like", column=column, pattern=self._pattern())
        else:
            _refuse(self._peek(), "expected BETWEEN, IN or LIKE after NOT")
        return Not(op="not", arg=part) if negated else part

    def _list(self) -> list[Any]:
        word = self._take()
        if word.kind is Kind.LIST:
            return word.value
        if not word.is_symbol("("):
            _refuse(word, "expected a list of literals in parentheses after IN")
        values: list[Any] = []
        if self._peek().is_symbol(")"):
            self._take()
            return values
        while True:
            values.append(self._literal())
            word = self._take()
            if word.is_symbol(")"):
                return values
            if not word.is_symbol(","):
                _refuse(word, "expected a comma or the end of the list")

    def _pattern(self) -> str:
        """Read the pattern after LIKE; one with ESCAPE is rewritten to the backslash."""
        word = self._take()
        if word.kind is not Kind.STRING:
            _refuse(word, "LIKE takes a pattern in quotes")
        if not self._took("ESCAPE"):
            return word.text
        escape = self._take()
        if escape.kind is not Kind.STRING or len(escape.text) != 1:
            _refuse(escape, "ESCAPE takes one character in quotes")
        return _with_backslash(word, escape.text)

    def _literal(self) -> Any:
        word = self._take()
        if word.kind in (Kind.NUMBER, Kind.STRING, Kind.BINARY):
            return word.value
        if word.is_symbol("-", "+", "."):
            return self._signed(word)
        if word.is_keyword("TRUE", "FALSE"):
            return word.is_keyword("TRUE")
        if word.is_keyword("DATE", "TIMESTAMP") and self._peek().kind is Kind.STRING:
            return {word.text.lower(): self._take().text}
        if word.is_keyword("CAST") and self._peek().is_symbol("("):
            return self._cast()
        return _refuse(word, _why_no_literal(word, self._peek()))

    def _signed(self, word: Word) -> Any:
        """Read a number that the tokenizer left in pieces: its sign, or its leading point."""
        sign = 1
        while word.is_symbol("-", "+"):
            sign = -sign if word.text == "-" else sign
            word = self._take()
        digits = word.text
        if word.is_symbol(".") and self._peek().start == word.start + 1:
            word = self._take()
            digits += word.text
        if word.kind is not Kind.NUMBER:
            _refuse(word, "expected a number")
        try:
            return number_value(f"-{digits}" if sign < 0 else digits)
        except ValueError:
            _refuse(word, "expected a number")

    def _cast(self) -> Any:
        self._take()
        text, joint, kind, end = (self._take() for _ in range(4))
        if not (text.kind is Kind.STRING and joint.is_keyword("AS") and kind.is_keyword("DATE", "TIMESTAMP")):
            _refuse(text, "CAST takes a string AS DATE or AS TIMESTAMP")
        if not end.is_symbol(")"):
            _refuse(end, "expected the end of CAST")
        return {kind.text.lower(): text.text}

    def _is_column(self, word: Word) -> bool:
        if word.kind is Kind.QUOTED:
            return True
        if word.kind is not Kind.WORD or word.is_keyword(*_RESERVED):
            return False
        after = self._words[self._next + 1]
        is_typed = word.is_keyword("DATE", "TIMESTAMP") and after.kind is Kind.STRING
        return not (is_typed or after.is_symbol("(") or after.kind is Kind.LIST)

    def _column(self) -> str:
        word = self._take()
        if self._peek().is_symbol("."):
            _refuse(self._peek(), "a column has no qualifier; a dot in its name needs double quotes")
        return word.text

    def _peek(self) -> Word:
        return self._words[self._next]

    def _take(self) -> Word:
        """Return the next word and step over it; the end stays."""
        word = self._words[self._next]
        self._next = min(self._next + 1, len(self._words) - 1)
        return word

    def _took(self, keyword: str) -> bool:
        """Step over ``keyword`` if it is next."""
        found = self._peek().is_keyword(keyword)
        if found:
            self._take()
        return found


def _refuse(word: Word, why: str) -> NoReturn:
    raise error_at(word, f"{_known_form(word) or why}; {SUPPORTED}")


def _known_form(word: Word) -> str | None:
    """Return the unsupported SQL form that a word would begin."""
    if word.is_symbol("+", "-", "*", "/", "%", "||", "^", "&", "|"):
        return "arithmetic is not supported"
    if word.is_symbol("::"):
        return "write CAST('...' AS DATE) or DATE '...' for ::date"
    if word.is_keyword("SELECT", "EXISTS"):
        return "subqueries are not supported"
    if word.is_keyword(*_OTHER_SQL):
        return f"{word.text.upper()} is not supported"
    if word.is_symbol("?", ":", "@"):
        return "parameters are not supported"
    return None


def _why_no_literal(word: Word, after: Word) -> str:
    if word.is_keyword("NULL"):
        return "NULL cannot be compared; write IS NULL or IS NOT NULL"
    if word.kind not in (Kind.WORD, Kind.QUOTED) or word.is_keyword(*_RESERVED):
        return "expected a literal"
    if word.kind is Kind.WORD and (after.is_symbol("(") or after.kind is Kind.LIST):
        return f"functions are not supported, such as {word.text}(...)"
    return (
        f"expected a literal, not column {word.text!r}; columns cannot be compared with each other, and text "
        "needs single quotes"
    )


def _null_test(column: str, op: str) -> str:
    return f"{column} IS {'NOT NULL' if op == '<>' else 'NULL'}"


def _with_backslash(pattern: Word, escape: str) -> str:
    """Return a pattern whose escape is ``escape`` as one whose escape is the backslash."""
    written: list[str] = []
    characters = iter(pattern.text)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                _refuse(pattern, "the pattern ends in its escape, which escapes nothing")
            written.append(f"\\{literal}")
        else:
            written.append("\\\\" if character == "\\" else character)
    return "".join(written)
