"""A small table of all types, filters drawn at random, and what SQL says about each row, worked out row by row.

The evaluator here shares nothing with the product: it compares Python numbers, which are exact, in three-valued logic.
"""

import base64
import datetime as dt
import math
import operator
import random
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from nyala.engine.filter.bind import bind as bind_tree
from nyala.engine.filter.where import expr_of
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import physical_of
from nyala.schemas.cells.moment import is_beyond
from nyala.schemas.limits.limits import Limits
from nyala.schemas.message import Message
from nyala.schemas.rows.predicate import Between, Comparison, InList, Junction, Like, Not, NullTest
from nyala.schemas.table.table import TableDefinition, TableSchema

LIMITS = Limits()
EPOCH = dt.datetime(1970, 1, 1)
OPS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WORDS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "a%b",
    "a_b",
    "a\\b",
    "a\nb",
    "a\0b",
    "\0",
    "\xe9",
    "\u65e5\u672c",
    "\U00010000",
    "A",
    "x" * 70,
    "x" * 69 + "y",
]
NUMBERS = ["0", "1", "-1", "2.5", "-2.5", "0.1", "127", "128", "-128.5", "1e3", "99999.99", "1e30", "-1e30", "1e-30"]
BEYOND = [-(2**62), -62_135_596_800_000_001, 253_402_300_800_000_000, 2**62]
"""Timestamps that Python lacks, in microseconds."""
CELLS = {
    "int8": [-128, -127, -1, 0, 1, 2, 3, 126, 127],
    "int16": [-(2**15), -1, 0, 1, 2, 2**15 - 1],
    "int32": [-(2**31), -3, -1, 0, 1, 2, 128, 2**31 - 1],
    "int64": [-(2**63), -(2**53) - 1, -1, 0, 1, 2, 1000, 2**53 + 1, 2**63 - 1],
    "bool": [False, True],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp[us]": [
        dt.datetime(1, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        EPOCH,
        dt.datetime(2024, 2, 29),
        dt.datetime(2024, 2, 29, 12, 0, 0, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        *BEYOND,
    ],
    "float": [float(np.float32(x)) for x in (0.0, -0.0, 0.1, 1, -2.5, 3.4e38, 1e-45, math.inf, -math.inf, math.nan)],
    "double": [0.0, -0.0, 0.1, 1.0, -2.5, 2.0**53, 1.7e308, 5e-324, math.inf, -math.inf, math.nan],
    "decimal(7,2)": [Decimal(x) for x in ("0", "0.01", "-0.01", "2.5", "-2.5", "99999.99", "-99999.99")],
    "decimal(15,3)": [Decimal(x) for x in ("0", "0.001", "2.5", "1000", "-999999999999.999")],
    "decimal(30,6)": [
        Decimal(x)
        for x in ("0", "0.000001", "-2.5", "2.5", "18446744073709.551616", "-1e20", "9e23", "9" * 24 + ".999999")
    ],
    "string": WORDS,
    "varchar(80)": WORDS,
    "binary": [word.encode() for word in WORDS] + [b"\xff", b"\xff" * 70, b"\xff" * 70 + b"\0", b"\x80"],
}
NAMES = {kind: re.sub(r"\W+", "_", kind).strip("_") + "_c" for kind in CELLS}
KINDS = {name: kind for kind, name in NAMES.items()}


def bind(where: Any, schema):
    """Bind a filter in its form on the wire, or as it was parsed."""
    is_wire = isinstance(where, Message)
    return bind_tree(expr_of(where, LIMITS) if is_wire else where, schema)  # pyright: ignore[reportArgumentType]


def table_of(columns, key_columns=1):
    """A TableSchema of (name, type, nullable)."""
    definition = TableDefinition.model_validate(
        {
            "name": "t",
            "columns": [{"name": name, "type": kind, "nullable": nullable} for name, kind, nullable in columns],
            "primary_key": [name for name, _, _ in columns[:key_columns]],
        }
    )
    return TableSchema.create(definition, LIMITS)


SCHEMA = table_of([("id", "int32", False), *((name, kind, True) for kind, name in NAMES.items())])
ROW_COUNT = 240


def _rows():
    chosen = random.Random(7)
    columns = {"id": list(range(ROW_COUNT))}
    for kind, name in NAMES.items():
        pool = [*CELLS[kind], None]
        columns[name] = pool + [chosen.choice(pool) for _ in range(ROW_COUNT - len(pool))]
        chosen.shuffle(columns[name])
    return columns


COLUMNS = _rows()
ARROW = {c.name: pa.array(COLUMNS[c.name], c.logical.arrow) for c in SCHEMA.columns}


def vectors_of(arrays=ARROW, schema=SCHEMA, dictionary=False):
    """Vectors by column id; with ``dictionary`` those of strings are coded."""
    vectors = {}
    for column in schema.columns:
        array, physical = arrays[column.name], physical_of(column.logical.arrow)
        is_coded = dictionary and column.logical.is_variable
        vectors[column.id] = from_arrow(array.dictionary_encode() if is_coded else array, physical)
    return vectors


def numbers(kind):
    """Literals for a column of numbers: as JSON has them and as SQL text does."""
    written = st.sampled_from(NUMBERS).map(lambda n: int(n) if n.lstrip("-").isdigit() else {"decimal": n})
    near = st.sampled_from([cell for cell in CELLS[kind] if isinstance(cell, int)] or [0])
    whole = st.tuples(near, st.integers(-1, 1)).map(sum)
    digits = st.decimals(-200, 200, places=3).map(lambda number: {"decimal": f"{number:f}"})
    return written | whole | digits


def literals(kind):
    """JSON literals that a column of ``kind`` may be compared with; SQL text can write each."""
    if kind == "bool":
        return st.booleans()
    if kind in ("date", "timestamp[us]"):
        dates = st.sampled_from(CELLS["date"]).map(lambda day: {"date": day.isoformat()})
        moments = st.sampled_from(
            ["2024-02-29 12:00:00", "2024-02-29", "1969-12-31 23:59:59.999999", "0001-01-01 00:00:00.000001"]
        )
        zoned = st.sampled_from(
            ["2024-02-29 02:00:00+02:00", "2024-02-29T12:00:00.000001Z", "1970-01-01 00:00:00.0000001"]
        )
        beyond = st.builds(int.__add__, st.sampled_from(BEYOND), st.integers(-1, 1)).filter(is_beyond)
        return dates | (moments | zoned | beyond).map(lambda moment: {"timestamp": moment}) | moments
    if kind in ("string", "varchar(80)"):
        return st.sampled_from(WORDS) | st.text("ab%_\\", max_size=3)
    if kind == "binary":
        chosen = st.sampled_from(CELLS["binary"]) | st.binary(max_size=2)
        return chosen.map(lambda cell: {"base64": base64.b64encode(cell).decode()})
    return numbers(kind)


@st.composite
def leaves(draw, names=tuple(KINDS)):
    """A predicate without parts."""
    name = draw(st.sampled_from(names))
    literal = literals(KINDS[name])
    shapes = ["compare", "compare", "in", "between", "null"]
    if KINDS[name] in ("string", "varchar(80)"):
        shapes.append("like")
    match draw(st.sampled_from(shapes)):
        case "compare":
            return Comparison(op=draw(st.sampled_from(list(OPS))), column=name, value=draw(literal))
        case "in":
            listed = draw(st.lists(literal, min_size=1, max_size=12))
            return InList(op=draw(st.sampled_from(["in", "not_in"])), column=name, values=listed)
        case "between":
            return Between(op="between", column=name, lower=draw(literal), upper=draw(literal))
        case "like":
            pieces = st.sampled_from(["%", "_", "a", "b", "x", "\\%", "\\\\", "\\_", "\xe9", ".", "\n", "\0"])
            return Like(op="like", column=name, pattern="".join(draw(st.lists(pieces, max_size=5))))
    return NullTest(op=draw(st.sampled_from(["is_null", "is_not_null"])), column=name)


def predicates(leaf=None):
    """Trees of AND, OR and NOT."""
    return st.recursive(
        leaves() if leaf is None else leaf,
        lambda part: (
            part.map(lambda arg: Not(op="not", arg=arg))
            | st.builds(Junction, op=st.sampled_from(["and", "or"]), args=st.lists(part, max_size=4))
        ),
        max_leaves=8,
    )


def truth(node, row, kinds=KINDS):
    """Return True, False or None for unknown: SQL's answer for one row, a dict of Python cells."""
    if isinstance(node, Not):
        inner = truth(node.arg, row, kinds)
        return None if inner is None else not inner
    if isinstance(node, Junction):
        decides = node.op == "or"
        answers = [truth(part, row, kinds) for part in node.args]
        return decides if decides in answers else None if None in answers else not decides
    cell, kind = row[node.column], kinds[node.column]
    if isinstance(node, NullTest):
        return (cell is None) == (node.op == "is_null")
    if isinstance(node, InList) and not node.values:
        return node.op == "not_in"
    if cell is None:
        return None
    value = meaning(cell, kind)
    if isinstance(node, Comparison):
        return OPS[node.op](value, meaning(node.value, kind))
    if isinstance(node, Between):
        return meaning(node.lower, kind) <= value <= meaning(node.upper, kind)
    if isinstance(node, InList):
        return any(value == meaning(listed, kind) for listed in node.values) == (node.op == "in")
    return re.fullmatch(_like_regex(node.pattern), cell, re.DOTALL) is not None


def meaning(value, kind) -> Any:
    """Return a cell or a literal as what it is compared as: a number (microseconds for a moment) or bytes."""
    if kind in ("date", "timestamp[us]"):
        return _microseconds(value)
    if kind in ("string", "varchar(80)"):
        return value.encode()
    if kind == "binary":
        return base64.b64decode(value["base64"]) if isinstance(value, dict) else value
    if isinstance(value, dict):
        value = Decimal(value["decimal"])
    if kind in ("float", "double"):
        with np.errstate(over="ignore"):
            rounded = float(np.float32(float(value))) if kind == "float" else float(value)
        return rounded if isinstance(value, float) or math.isfinite(rounded) else Fraction(value)
    return Fraction(value)


def _microseconds(value):
    if isinstance(value, dict):
        (value,) = value.values()
    finer = 0
    if isinstance(value, str) and len(value.lstrip("-")) > 8 and value.lstrip("-").isdigit():
        value = int(value)
    if isinstance(value, str):
        if value.endswith("0000001"):
            value, finer = value[:-1], Fraction(1, 10)
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, int):
        return Fraction(value)
    if not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if value.tzinfo:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return Fraction((value - EPOCH) // dt.timedelta(microseconds=1)) + finer


def _like_regex(pattern):
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return "".join(wild.get(piece) or re.escape(piece[-1]) for piece in pieces)


def to_sql(node, literal=None, like_suffix="", wrapper="{}"):
    """Return a predicate as SQL text. ``literal(value, column)`` writes the literals, ``wrapper`` is put around each
    column."""
    write = literal or (lambda value, column: sql_literal(value))

    def name(node):
        return wrapper.format('"' + node.column.replace('"', '""') + '"')

    if isinstance(node, Not):
        return f"NOT ({to_sql(node.arg, literal, like_suffix, wrapper)})"
    if isinstance(node, Junction):
        if not node.args:
            return "TRUE" if node.op == "and" else "FALSE"
        return f" {node.op} ".join(f"({to_sql(part, literal, like_suffix, wrapper)})" for part in node.args)
    if isinstance(node, Comparison):
        return f"{name(node)} {node.op} {write(node.value, node.column)}"
    if isinstance(node, Between):
        return f"{name(node)} between {write(node.lower, node.column)} and {write(node.upper, node.column)}"
    if isinstance(node, InList):
        listed = ", ".join(write(value, node.column) for value in node.values)
        return f"{name(node)} {node.op.replace('_', ' ')} ({listed})"
    if isinstance(node, Like):
        return f"{name(node)} LIKE {sql_literal(node.pattern)}{like_suffix}"
    return f"{name(node)} IS {'NOT ' if node.op == 'is_not_null' else ''}NULL"


def sql_literal(value):
    """Return a JSON literal as SQL text."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    ((kind, content),) = value.items()
    if kind == "base64":
        return f"X'{base64.b64decode(content).hex()}'"
    return content if kind == "decimal" else f"{kind.upper()} '{content}'"
