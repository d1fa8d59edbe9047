"""Parses the text of a filter, or of an expression of a statement, to a tree. Both are one language.

    filter   := expr, which must be true or false
    expr     := expr OR expr | expr AND expr | NOT expr | expr IS [NOT] NULL | expr IS [NOT] TRUE | FALSE
              | expr op expr | expr [NOT] BETWEEN expr AND expr | expr [NOT] IN ( expr, ... )
              | expr [NOT] LIKE | ILIKE string [ESCAPE character]
              | expr || expr | expr + - expr | expr * / % expr | - expr | expr :: type
              | ( expr ) | function ( expr, ... ) | CAST ( expr AS type ) | EXTRACT ( part FROM expr )
              | expr . field | expr [ number or key ] | expr -> | ->> JSON path
              | CASE [expr] WHEN expr THEN expr ... [ELSE expr] END | column | literal
    op       := = | == | <> | != | < | <= | > | >=
    literal  := number | string | TRUE | FALSE | NULL | X'hex' | DATE string | TIMESTAMP string | INTERVAL string unit

The operators of a line bind closer than those of the lines before. A column alone is a bool column.

sqlglot, which reads all of SQL, is not used: its parser recurses some twenty frames a parenthesis, and its time doubles
with each level of ``date(``. This parser keeps operators and open brackets on a stack of its own: its time is linear in
the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from ...schemas.cells.json_text import path_of
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.protocol.request import check
from .brackets import ARITHMETIC, Bracket, Operator, Rank
from .brackets import Kind as BracketKind
from .building import Builder, Part
from .operand import WordReader
from .pattern import with_backslash
from .signatures import ALIASES, MANY, NAMES, PARTS, SIGNATURES
from .tree import FIELD, ITEM, JSON, JSON_TEXT, Among, ComparisonOp, Constant, Expr, IsNull, IsTruth, Matches
from .words import Kind, Word, words_of

TEXT_MAX = 4 * 1024 * 1024
"""Characters of a filter; 100,000 quoted UUIDs fit. Send longer filters as a tree."""
_GRAMMAR = (
    "known are =, <>, <, <=, >, >=, [NOT] BETWEEN, [NOT] IN, [NOT] LIKE, [NOT] ILIKE, IS [NOT] NULL, AND, OR, NOT, "
    "+, -, *, /, %, ||, CASE, CAST and functions"
)
_COMPARISONS: dict[str, ComparisonOp] = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """The tree of a parsed expression, and of how many nodes it was made."""

    tree: Expr
    nodes: int


def parse_filter(text: str, limits: Limits) -> Expr:
    """Read a filter from SQL text.

    Raises:
        InvalidArgumentError: with the unsupported part, and what is supported; or a limit is exceeded.
    """
    parser = _Parser(_words(text, limits, "filter"), limits, "filter")
    return parser.parse(is_condition=True).tree


def parse_text(text: str, limits: Limits) -> Parsed:
    """Read an expression of any type from SQL text. Raises as ``parse_filter``."""
    return _Parser(_words(text, limits, "expression"), limits, "expression").parse(is_condition=False)


def _words(text: str, limits: Limits, what: str) -> list[Word]:
    if len(text) > TEXT_MAX:
        raise InvalidArgumentError(
            f"the {what} has {len(text):,} characters; at most {TEXT_MAX:,} are allowed; send a longer filter as a tree"
        )
    if not text.isascii():
        _check_unicode(text, what)
    words = words_of(text, limits, what)
    if len(words) == 1:
        raise InvalidArgumentError(f"the {what} is empty; {_GRAMMAR}")
    return words


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"the {what} is not valid Unicode at character {error.start + 1}") from None


class _Parser(WordReader):
    """Operator precedence over two stacks: operators and brackets that are open, and operands."""

    def __init__(self, words: list[Word], limits: Limits, what: str) -> None:
        super().__init__(words, what, _GRAMMAR)
        self._stack: list[Operator | Bracket] = []
        self._operands: list[Part] = []
        self._builder = Builder(self, limits, what)

    def parse(self, is_condition: bool) -> Parsed:
        """Read the whole text."""
        while True:
            check()
            self._operand()
            if not self._goes_on():
                break
        self._reduce(0)
        if self._stack:
            self._refuse_open(self.peek())
        (whole,) = self._operands
        if is_condition:
            self._builder.check_condition(whole)
        return Parsed(whole.expr, self._builder.count)

    # An operand, and what may stand before it

    def _operand(self) -> None:
        """Read NOTs, signs and opening brackets up to an operand, and that."""
        while True:
            word = self.peek()
            if word.is_symbol("("):
                self._open("(", self.take())
            elif word.is_keyword("NOT"):
                self._stack.append(Operator(Rank.NOT, "not", self.take()))
            elif word.is_symbol("-", "+"):
                self._stack.append(Operator(Rank.SIGN, word.text, self.take()))
            elif self.is_case():
                bracket = self._open("case", self.take())
                bracket.stage = "WHEN" if self.takes("WHEN") else ""
            elif self.is_call():
                if self._call():
                    return
            else:
                self._push(Part(self.operand(), 1, word))
                return

    def _call(self) -> bool:
        """Open a function; return whether it is complete, as it has no arguments or only a list of literals."""
        word = self.take()
        name = ALIASES.get(word.text.upper(), word.text.upper())
        if name not in SIGNATURES and name not in ("CAST", "EXTRACT"):
            self.refuse(word, f"the function {word.text}(...) is not supported; supported are {NAMES}")
        bracket = self._open("call", word, name)
        after = self.take()
        if after.kind is Kind.LIST:
            for value in after.value:
                self._push(Part(Constant(value), 1, after))
            self._close_call(word)
            return True
        if name == "EXTRACT":
            self._extract(bracket)
        elif name == "TRIM":
            self._trim(bracket)
        if self.peek().is_symbol(")"):
            self._close_call(self.take())
            return True
        return False

    def _extract(self, bracket: Bracket) -> None:
        part = self.take()
        if not part.is_keyword(*PARTS):
            self.refuse(part, f"EXTRACT takes {', '.join(PARTS)}, as in EXTRACT(YEAR FROM day)")
        if not self.takes("FROM"):
            self.expected(self.peek(), "FROM, as in EXTRACT(YEAR FROM day)")
        bracket.name = part.text.upper()

    def _trim(self, bracket: Bracket) -> None:
        """Read what may stand before FROM in TRIM(LEADING 'x' FROM text); else it has plain arguments."""
        after = self.peek(1)
        is_side = self.peek().is_keyword("BOTH", "LEADING", "TRAILING")
        if is_side and (after.kind is Kind.STRING or after.is_keyword("FROM")):
            bracket.name = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}[self.take().text.upper()]
        if self.peek().kind is Kind.STRING and self.peek(1).is_keyword("FROM"):
            bracket.literals.append(self.take().value)
        self.takes("FROM")

    # What may stand after an operand

    def _goes_on(self) -> bool:
        """Read what follows an operand: return True where the next operand is due, False at the end."""
        while True:
            word = self.peek()
            if word.kind is Kind.END:
                return False
            if word.kind is Kind.SYMBOL:
                if self._after_symbol(word):
                    return True
            elif self._after_keyword(word):
                return True

    def _after_symbol(self, word: Word) -> bool:
        """Read a symbol; return whether an operand is due."""
        if op := _COMPARISONS.get(word.text):
            self._comparison(op)
            return True
        if rank := ARITHMETIC.get(word.text):
            self._reduce(rank)
            self._stack.append(Operator(rank, word.text, self.take()))
            return True
        if word.is_symbol(","):
            self._comma()
            return True
        if word.is_symbol(")"):
            self._close()
        elif word.is_symbol(".", "[", JSON, JSON_TEXT):
            self._part()
        elif word.is_symbol("::"):
            self.take()
            kind = self.kind()
            self._operands.append(self._builder.cast(self._operands.pop(), kind))
        else:
            self.expected(word, "AND, OR or the end")
        return False

    def _part(self) -> None:
        """Read ``.field`` of a struct, ``[0]`` of a list, or a path after ``->`` or ``->>``."""
        word = self.take()
        place = self.take()
        if word.is_symbol("."):
            if place.kind not in (Kind.WORD, Kind.QUOTED):
                self.refuse(place, "a dot is followed by the field of a struct; a dot in a name needs double quotes")
            name, literal = FIELD, place.text
        else:
            sign = -1 if place.is_symbol("-") else 1
            place = self.take() if sign < 0 else place
            literal = place.value
            if isinstance(literal, int):
                literal *= sign
            name = ITEM if word.is_symbol("[") else word.text
            if name == ITEM:
                self._check_item(place)
            else:
                self._check_path(literal, place)
        self._builder.add()
        value = self._operands.pop()
        self._operands.append(self._builder.call(name, [value, Part(Constant(literal), 1, place)], value.word))

    def _check_item(self, place: Word) -> None:
        if place.kind not in (Kind.NUMBER, Kind.STRING):
            self.refuse(place, "brackets hold the number of an item, counted from 0, or the key of a map in quotes")
        self.expect("]", "the end of the brackets")

    def _check_path(self, path: Any, place: Word) -> None:
        try:
            path_of(path)
        except InvalidArgumentError as error:
            self.refuse(place, error.message)

    def _after_keyword(self, word: Word) -> bool:
        """Read a keyword; return whether an operand is due."""
        if word.is_keyword("AND", "OR"):
            self._junction()
            return True
        if word.is_keyword("IS"):
            self._is()
            return False
        if word.is_keyword("NOT", "BETWEEN", "IN", "LIKE", "ILIKE"):
            return self._range()
        if word.is_keyword("WHEN", "THEN", "ELSE", "END"):
            self._case_part()
            return not word.is_keyword("END")
        if word.is_keyword("AS"):
            self._cast()
            return False
        if word.is_keyword("FROM", "FOR"):
            self._reduce(0)
            if not self._is_open("call", "SUBSTR"):
                self.expected(word, "AND, OR or the end")
            self.take()
            return True
        self.expected(word, "AND, OR or the end")

    def _comparison(self, op: ComparisonOp) -> None:
        self._reduce(Rank.COMPARISON + 1)
        top = self._stack[-1] if self._stack else None
        if isinstance(top, Bracket) and top.kind == "between":
            self._refuse_open(self.peek())
        if isinstance(top, Operator) and top.rank == Rank.COMPARISON:
            self.expected(self.peek(), "AND, OR or the end")
        self._stack.append(Operator(Rank.COMPARISON, op, self.take()))

    def _junction(self) -> None:
        """Read AND or OR; an AND may be that of a BETWEEN."""
        word = self.take()
        self._reduce(Rank.RANGE + 1)
        top = self._stack[-1] if self._stack else None
        if isinstance(top, Bracket) and top.kind == "between":
            if not word.is_keyword("AND"):
                self._refuse_open(word)
            self._stack[-1] = Operator(Rank.RANGE, "between", top.word, top.negated)
            return
        rank = Rank.AND if word.is_keyword("AND") else Rank.OR
        self._reduce(rank)
        self._stack.append(Operator(rank, word.text.lower(), word))

    def _is(self) -> None:
        self.take()
        self._reduce(Rank.IS + 1)
        negated = self.takes("NOT")
        word = self.take()
        if word.is_keyword("NULL"):
            self._wrap(IsNull, negated)
        elif word.is_keyword("TRUE", "FALSE"):
            self._wrap(lambda each: IsTruth(each, word.is_keyword("TRUE")), negated)
        else:
            self.expected(word, "NULL, TRUE or FALSE, or NOT and one of these, after IS")

    def _range(self) -> bool:
        """Read [NOT] BETWEEN, IN or LIKE; return whether an operand is due."""
        self._reduce(Rank.RANGE + 1)
        negated = self.takes("NOT")
        word = self.take()
        if word.is_keyword("BETWEEN"):
            self._open("between", word, negated=negated)
            return True
        if word.is_keyword("IN"):
            return self._list(negated)
        if not word.is_keyword("LIKE", "ILIKE"):
            self.expected(word, "BETWEEN, IN, LIKE or ILIKE after NOT")
        pattern = self._pattern()
        self._wrap(lambda each: Matches(each, pattern, word.is_keyword("ILIKE")), negated)
        return False

    def _list(self, negated: bool) -> bool:
        word = self.take()
        if word.kind is Kind.LIST:
            self._wrap(lambda each: Among(each, word.value), negated)
            return False
        if not word.is_symbol("("):
            self.expected(word, "a list of values in parentheses after IN")
        self._open("list", word, negated=negated)
        if self.peek().is_symbol(")"):
            self._close()
            return False
        return True

    def _pattern(self) -> str:
        """Read the pattern after LIKE; one with ESCAPE is rewritten to the backslash."""
        word = self.take()
        if word.kind is not Kind.STRING:
            self.refuse(word, "LIKE takes a pattern in quotes")
        if not self.takes("ESCAPE"):
            return word.text
        escape = self.take()
        if escape.kind is not Kind.STRING or len(escape.text) != 1:
            self.refuse(escape, "ESCAPE takes one character in quotes")
        pattern = with_backslash(word.text, escape.text)
        if pattern is None:
            self.refuse(word, "the pattern ends in its escape character, which has nothing to escape")
        return pattern

    # Brackets

    def _open(self, kind: BracketKind, word: Word, name: str = "", negated: bool = False) -> Bracket:
        bracket = Bracket(kind, word, len(self._operands), name, negated)
        self._stack.append(bracket)
        return bracket

    def _is_open(self, kind: str, name: str = "") -> bool:
        top = self._stack[-1] if self._stack else None
        return isinstance(top, Bracket) and top.kind == kind and (not name or top.name == name)

    def _bracket(self, kind: str, word: Word) -> Bracket:
        """Return the innermost bracket, which must be of a kind."""
        if not self._is_open(kind):
            if kind == "case":
                self.refuse(word, f"no {kind.upper()} is open")
            self.expected(word, "AND, OR or the end")
        return cast(Bracket, self._stack[-1])

    def _refuse_open(self, word: Word) -> NoReturn:
        top = self._stack[-1] if self._stack else None
        if isinstance(top, Bracket) and top.kind == "between":
            self.expected(word, "AND between the ends of BETWEEN")
        if isinstance(top, Bracket) and top.kind == "case":
            self.expected(word, "WHEN, THEN, ELSE or END of a CASE")
        self.refuse(word, "a parenthesis is not closed")

    def _comma(self) -> None:
        word = self.peek()
        self._reduce(0)
        if not (self._is_open("call") or self._is_open("list")):
            self.expected(word, "a comparison or an operator after a value")
        self.take()

    def _close(self) -> None:
        """Read a closing parenthesis."""
        word = self.take()
        self._reduce(0)
        top = self._stack[-1] if self._stack else None
        if top is None:
            self.refuse(word, "no parenthesis is open")
        if self._is_open("call"):
            self._close_call(word)
        elif self._is_open("list"):
            self._close_list()
        elif self._is_open("("):
            self._stack.pop()
        else:
            self._refuse_open(word)

    def _close_call(self, word: Word) -> None:
        bracket = self._bracket("call", word)
        self._stack.pop()
        if bracket.name == "CAST":
            self.refuse(word, "CAST takes a type, as in CAST(price AS BIGINT)")
        args = self._take_from(bracket) + [Part(Constant(each), 1, word) for each in bracket.literals]
        least, most = SIGNATURES[bracket.name]
        if not least <= len(args) <= most:
            number = str(least) if least == most else f"{least} or {most}" if most < MANY else f"at least {least}"
            plural = "argument" if number == "1" else "arguments"
            self.refuse(bracket.word, f"{bracket.word.text.upper()} takes {number} {plural}, not {len(args)}")
        self._push(self._builder.call(bracket.name, args, bracket.word))

    def _close_list(self) -> None:
        bracket = cast(Bracket, self._stack.pop())
        items = self._take_from(bracket)
        self._operands.append(self._builder.among(self._operands.pop(), items, bracket.negated))

    def _cast(self) -> None:
        word = self.peek()
        self._reduce(0)
        if not self._is_open("call", "CAST") or len(self._operands) != self._bracket("call", word).first + 1:
            self.expected(word, "AND, OR or the end")
        self.take()
        kind = self.kind()
        self.expect(")", "the end of CAST")
        self._stack.pop()
        self._operands.append(self._builder.cast(self._operands.pop(), kind))

    def _case_part(self) -> None:
        """Read WHEN, THEN, ELSE or END."""
        word = self.take()
        self._reduce(0)
        bracket = self._bracket("case", word)
        before = bracket.stage
        if not bracket.then(word.text.upper()):
            self.refuse(word, "a CASE is CASE WHEN ... THEN ... ELSE ... END")
        if bracket.stage == "END":
            self._stack.pop()
            parts = self._take_from(bracket)
            subject = parts.pop(0) if bracket.has_subject else None
            default = parts.pop() if before == "ELSE" else None
            self._push(self._builder.case(subject, parts, default, bracket.word))

    # Stacks

    def _push(self, part: Part) -> None:
        if not isinstance(part.expr, Constant):
            self._builder.add()
        self._operands.append(part)

    def _take_from(self, bracket: Bracket) -> list[Part]:
        """Take the operands inside a bracket."""
        parts = self._operands[bracket.first :]
        del self._operands[bracket.first :]
        return parts

    def _wrap(self, build: Callable[[Expr], Expr], negated: bool = False) -> None:
        """Replace the last operand by what is made of it."""
        self._operands.append(self._builder.wrapped(self._operands.pop(), build, negated))

    def _reduce(self, rank: int) -> None:
        """Apply the operators that bind at least as close as ``rank``, back to the last bracket."""
        while self._stack and isinstance(top := self._stack[-1], Operator) and top.rank >= rank:
            self._stack.pop()
            self._apply(top)

    def _apply(self, operator: Operator) -> None:
        right = self._operands.pop()
        if operator.rank == Rank.NOT:
            part = self._builder.negated(right)
        elif operator.rank == Rank.SIGN:
            part = self._builder.signed(operator.op, right)
        elif operator.rank == Rank.RANGE:
            low = self._operands.pop()
            part = self._builder.between(self._operands.pop(), low, right, operator.negated)
        elif operator.rank == Rank.COMPARISON:
            part = self._builder.compared(cast(ComparisonOp, operator.op), self._operands.pop(), right)
        elif operator.rank in (Rank.AND, Rank.OR):
            part = self._builder.joined(operator.op, self._operands.pop(), right)
        else:
            part = self._builder.arithmetic(operator.op, self._operands.pop(), right)
        self._operands.append(part)
