"""One SQL statement: parsed once, by sqlglot in PostgreSQL's dialect.

DataFusion runs the text of a query as it was written, but for edits: a parameter gets DataFusion's form, a table that
is read twice gets a name for each time, so that each time has a filter of its own, a table as of another time gets a
name that stands for this time, computations of integers get casts (`overflow`), and right joins become left ones. So do
the queries of statements that change rows (`change.written`).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from .functions import CHANGING
from .one_table import OneTable, one_table
from .order_names import has_order_names
from .overflow import COMPUTED
from .text.array_lists import with_lists_of_arrays
from .text.distinct_orders import with_numbered_orders
from .text.edits import Edit, edited
from .text.first_lists import FirstLists, first_lists
from .text.json_paths import with_json_functions
from .text.microseconds import with_microseconds
from .text.moment_formats import with_known_formats
from .text.names import lower, quoted
from .text.null_lists import without_null_lists
from .text.operators import with_known_operators
from .text.parsed_text import ParsedText, read_text
from .text.patterns import with_regular_patterns
from .text.postgres_words import with_known_words
from .text.precedence import with_parentheses, with_powers
from .text.remembered import remembered
from .text.right_joins import without_right_joins
from .text.row_values import with_row_values
from .text.time_travel import Moments, in_time, moves_in_time

TEXT_MAX = 1 << 20
PARAMETERS_MAX = 1000
_CONSTANT = (exp.Select, exp.Alias, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Paren)
INFORMATION = "information_schema"
CATALOG, SCHEMA = "nyala", "public"
_REWRITES = (
    with_row_values,
    with_json_functions,
    with_known_words,
    with_known_formats,
    with_regular_patterns,
    with_microseconds,
    with_powers,
    with_known_operators,
    with_lists_of_arrays,
    with_parentheses,
    without_null_lists,
    with_numbered_orders,
    without_right_joins,
)
"""What edits the text of a query, in this order."""
_NAMED = re.compile(r"[A-Za-z_]\w*", re.ASCII)

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that it keeps as text


class Kind(StrEnum):
    """The kinds of SQL statements."""

    QUERY = "query"
    EXPLAIN = "explain"
    SHOW = "show"
    DESCRIBE = "describe"
    CHANGE = "change"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class TableUse:
    """A table that an SQL query reads: the store's name of it, and the name that the query's text has for it."""

    table: str
    name: str
    moments: Moments | None = None
    """Of which time; None: of the statement's snapshot."""


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement: its tree, and for a query the text that DataFusion gets. Trees are shared: copy before a
    change."""

    kind: Kind
    tree: exp.Expr
    text: str
    """With parameters as ``$p1``, or as ``$name``."""
    uses: tuple[TableUse, ...] = ()
    information: tuple[str, ...] = ()
    """The tables of ``information_schema`` that it reads."""
    shadows: frozenset[str] = frozenset()
    """The names of WITH, which need not be tables."""
    parameters: tuple[str, ...] = ()
    """The names of parameters, in the order of their first place."""
    one_table: OneTable | None = None
    """What it asks of its only table, if the store answers that alone."""
    first: FirstLists | None = None
    """Of a query: lists that run before it."""
    has_lists: bool = False
    """Whether a list of IN is a query."""
    computes: bool = False
    """Whether it adds, subtracts, multiplies or negates anything."""
    has_order_names: bool = False
    """Whether it orders by a name that a column of its answer and one of a table may share."""
    is_steady: bool = True
    """Whether it calls no function of ``CHANGING``, so that its plan may be kept."""
    analyze: bool = False
    """Of EXPLAIN: run it."""

    @property
    def is_constant(self) -> bool:
        """Whether it selects constants alone, so that its answer never changes."""
        return self.kind is Kind.QUERY and all(isinstance(node, _CONSTANT) for node in self.tree.walk())

    def bound(self, given: Sequence[Any] | Mapping[str, Any] | None) -> dict[str, pa.Scalar]:
        """Return parameters by name, as Arrow scalars.

        Raises:
            InvalidArgumentError: too few or too many are given, or a value is of no Arrow type.
        """
        if given is None or not given:
            values: dict[str, Any] = {}
        elif isinstance(given, Mapping):
            values = dict(given)
        elif isinstance(given, str | bytes) or not isinstance(given, Sequence):
            raise InvalidArgumentError("params must be a list of values, or a dict from names to values")
        else:
            values = {f"p{number + 1}": value for number, value in enumerate(given)}
        missing = [name for name in self.parameters if name not in values]
        surplus = [name for name in values if name not in self.parameters]
        if missing or surplus:
            raise InvalidArgumentError(
                f"the statement has {counted(len(self.parameters), 'parameter')}, but params has {len(values)}"
                + (f": {_shown(missing[0])} is missing" if missing else f": it has no {_shown(surplus[0])}")
            )
        return {name: _scalar(name, values[name]) for name in self.parameters}


def _shown(name: str) -> str:
    return f"parameter {name[1:]}" if re.fullmatch(r"p\d+", name) else f"${name}"


def _scalar(name: str, value: Any) -> pa.Scalar:
    if isinstance(value, pa.Scalar):
        return value
    try:
        return pa.scalar(value.item() if hasattr(value, "item") and hasattr(value, "dtype") else value)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if isinstance(value, int) and 0 <= value < 1 << 64:
            return pa.scalar(value, pa.uint64())
        raise InvalidArgumentError(
            f"{_shown(name)} cannot be of type {type(value).__name__}: give a number, text, bytes, a date, a time or "
            "None"
        ) from None


def statement(text: str) -> Statement:
    """Parse one SQL statement.

    Raises:
        InvalidArgumentError: it is too long, has a mistake, or is several statements; the message names the place.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"a statement is text, not {type(text).__name__}")
    if len(text) > TEXT_MAX:
        raise InvalidArgumentError(f"the statement has {len(text):,} characters; at most {TEXT_MAX:,} are allowed")
    return _remembered(text)


def parsed(text: str) -> Statement:
    """Parse one SQL statement, which is not remembered. Raises as ``statement``."""
    parts = read_text(text)
    kind = _kind(parts)
    if kind is Kind.EXPLAIN:
        inner = parts.tree.expression.name.strip()
        analyze = inner[:8].lower() == "analyze "
        query = parsed(inner[8:] if analyze else inner)
        if query.kind is not Kind.QUERY:
            raise InvalidArgumentError("EXPLAIN takes a query: SELECT, VALUES or WITH")
        return replace(query, kind=Kind.EXPLAIN, analyze=analyze)
    if kind is Kind.QUERY:
        for rewrite in _REWRITES:
            if (safe := rewrite(text, parts)) != text:
                text, parts = safe, read_text(safe)
    edits, parameters = _parameters(parts.tokens)
    if len(parameters) > PARAMETERS_MAX:
        raise InvalidArgumentError(
            f"the statement has {len(parameters):,} parameters; at most {PARAMETERS_MAX:,} are allowed"
        )
    if kind is Kind.QUERY:
        return _query(text, parts, edits, parameters)
    text = edited(text, edits)
    return Statement(kind, read_text(text).tree if parameters else parts.tree, text, parameters=parameters)


def _query(text: str, parts: ParsedText, edits: list[Edit], parameters: tuple[str, ...]) -> Statement:
    plain = not parameters and not parts.of(exp.With)
    is_steady = not any(token.text.lower() in CHANGING for token in parts.tokens)
    moments: dict[str, Moments] = {}
    if moves_in_time(parts.of(exp.Table)):  # a new text, which has parameters in DataFusion's form already
        text = edited(text, edits)
        text, moments = in_time(text, read_text(text))
        parts, edits, plain = read_text(text), [], False
    uses, information = _uses(parts, shadows := _shadows(parts), moments, edits)
    alone = len(uses) == 1 and not information and uses[0].moments is None
    return Statement(
        Kind.QUERY,
        parts.tree,
        edited(text, edits),
        uses,
        information,
        shadows,
        parameters,
        one_table=one_table(parts.tree) if alone else None,
        first=first_lists(text, parts.tokens) if plain else None,
        has_lists=any(node.args.get("query") for node in parts.of(exp.In)),
        computes=bool(parts.of(*COMPUTED, exp.Sum)) or any(not node.this.is_number for node in parts.of(exp.Neg)),
        has_order_names=has_order_names(parts.tree),
        is_steady=is_steady,
    )


def _kind(parts: ParsedText) -> Kind:
    tree = parts.tree
    if isinstance(tree, exp.Select) and tree.args.get("into"):
        raise InvalidArgumentError("SELECT INTO is not supported: write CREATE TABLE name AS SELECT ...")
    if isinstance(tree, exp.Query | exp.Values):
        if any(not each.args.get("distinct") for each in parts.of(exp.Intersect, exp.Except)):
            raise InvalidArgumentError(
                "INTERSECT ALL and EXCEPT ALL are not supported: leave out ALL, or count the rows"
            )
        if parts.of(exp.Insert, exp.Update, exp.Delete, exp.Merge):
            raise InvalidArgumentError("a change inside WITH is not supported: send it as a separate statement")
        return Kind.QUERY
    if isinstance(tree, exp.Describe):
        return Kind.DESCRIBE
    if isinstance(tree, exp.Transaction | exp.Commit | exp.Rollback):
        return Kind.TRANSACTION
    if isinstance(tree, exp.Command):
        word = tree.name.upper()
        if word == "EXPLAIN":
            return Kind.EXPLAIN
        if word == "SHOW":
            return Kind.SHOW
        raise InvalidArgumentError(f"{word} is not supported")
    if isinstance(tree, exp.Insert | exp.Update | exp.Delete | exp.Merge | exp.TruncateTable | exp.Create | exp.Alter):
        return Kind.CHANGE
    if isinstance(tree, exp.Drop | exp.Comment):
        return Kind.CHANGE
    raise InvalidArgumentError(f"{parts.tokens[0].text.upper()[:40]} is not supported")


def _parameters(tokens: list[Token]) -> tuple[list[Edit], tuple[str, ...]]:
    """Return the edits that give parameters DataFusion's form, and their names."""
    edits: list[Edit] = []
    names: dict[str, None] = {}
    marks = 0
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type is TokenType.PLACEHOLDER and token.text == "?":
            marks += 1
            name, end = f"p{marks}", token.end
        elif token.token_type is TokenType.PARAMETER and token.text == "$" and after and after.start == token.end + 1:
            if after.token_type is TokenType.NUMBER and after.text.isdecimal():
                name = f"p{int(after.text)}"
            elif _NAMED.fullmatch(after.text):
                name = after.text
            else:
                continue
            end = after.end
        else:
            continue
        names[name] = None
        edits.append(Edit(token.start, end + 1, f"${name} "))  # else the text up to the next dollar could be quoted
    if marks and len(names) > marks:
        raise InvalidArgumentError("the statement has parameters of several forms: write ? for all, or $1, or $name")
    return edits, tuple(names)


def _shadows(parts: ParsedText) -> frozenset[str]:
    return frozenset(_name(node.args["alias"].this) for node in parts.of(exp.CTE))


def _uses(
    parts: ParsedText, shadows: frozenset[str], moments: Mapping[str, Moments], edits: list[Edit]
) -> tuple[tuple[TableUse, ...], tuple[str, ...]]:
    """Return the tables that a query reads, and add edits for those whose names in the text change."""
    tables = [node for node in parts.of(exp.Table) if node.name or isinstance(node.this, exp.Func)]
    times = Counter(_name(node.this) for node in tables if isinstance(node.this, exp.Identifier))
    may_rename = not any(column.args.get("db") for column in parts.of(exp.Column))
    uses: dict[str, TableUse] = {}
    information: dict[str, None] = {}
    for node in tables:
        if isinstance(node.this, exp.Func):
            continue  # a function of DataFusion: it has those that are allowed
        name = _name(node.this)
        if _is_information(node):
            information[name] = None
            continue
        if times[name] > 1 and may_rename and name not in shadows and "start" in node.this.meta:
            own = next(own for number in count(1) if (own := f"{name}#{number}") not in uses and own not in times)
            edits.append(_renamed(node, own))
        else:
            own = name
        moved = moments.get(name)
        uses.setdefault(own, TableUse(name if moved is None else moved.table, own, moved))
    return tuple(uses.values()), tuple(information)


def _is_information(node: exp.Table) -> bool:
    """Whether a table is one of ``information_schema``. Raises InvalidArgumentError: its schema is another one."""
    schema, catalog = node.args.get("db"), node.args.get("catalog")
    if catalog is not None and _name(catalog) != CATALOG:
        raise InvalidArgumentError(f"there is no catalog {_name(catalog)!r}: all tables are in {CATALOG}.{SCHEMA}")
    if schema is None or _name(schema) == SCHEMA:
        return False
    if _name(schema) == INFORMATION:
        return True
    raise InvalidArgumentError(f"there is no schema {_name(schema)!r}: all tables are in {CATALOG}.{SCHEMA}")


def _name(identifier: Any) -> str:
    """Return the name that an identifier stands for: without quotes it is in lower case, as in PostgreSQL."""
    text = identifier.name
    return text if identifier.args.get("quoted") else lower(text)


def _renamed(node: exp.Table, own: str) -> Edit:
    parts = [part for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part is not None]
    alias = "" if node.alias else f" AS {quoted(_name(node.this))}"
    return Edit(parts[0].meta["start"], node.this.meta["end"] + 1, quoted(own) + alias)


_remembered = remembered(parsed)
