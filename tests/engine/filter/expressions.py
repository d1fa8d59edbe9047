"""Random expressions of every type, as the store reads them and as DuckDB does.

DuckDB differs by design where `tests/engine/expression/test_values.py` says, so its text says what ours means: integers
have 64 bits, ``/`` of them truncates, floats are doubles in arithmetic, CONCAT with a NULL is NULL. Doubles in
arithmetic are of a middling size, since DuckDB lets them overflow to infinity and takes NaN for equal to itself.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from tests.engine.filter.duck import duckdb_literal
from tests.engine.filter.model import OPS, WORDS, sql_literal

DEPTH = 3
INTEGERS = ("int8_c", "int16_c", "int32_c", "int64_c", "id")
DECIMALS = ("decimal_7_2_c", "decimal_15_3_c", "decimal_30_6_c")
SHORT_DECIMALS = DECIMALS[:2]
TEXTS = ("string_c", "varchar_80_c")
WIDENED = {"float_c": "CAST(float_c AS DOUBLE)", "double_c": "double_c"}


class Term(NamedTuple):
    """An expression, and whether DuckDB computes it for the same rows: it has no part that some rows do not reach, and
    no number that is larger than its own."""

    ours: str
    duck: str
    is_strict: bool = True


Terms = st.SearchStrategy[Term]


def term(template: str, *parts: Term, duck: str = "", is_strict: bool = True) -> Term:
    """Return an expression with its parts in the places of a template."""
    ours = template.format(*(part.ours for part in parts))
    theirs = (duck or template).format(*(part.duck for part in parts))
    return Term(ours, theirs, is_strict and all(part.is_strict for part in parts))


def column(name: str, duck: str = "") -> Term:
    return Term(name, duck or name)


def _built(template: str, *parts: Terms, duck: str = "", is_strict: bool = True) -> Terms:
    return st.builds(lambda *drawn: term(template, *drawn, duck=duck, is_strict=is_strict), *parts)


def _any_of_one_type(depth: int, part: Terms, is_ordered: bool = True) -> list[Terms]:
    """What there is for every type: choices, and what is done about NULL."""
    condition = conditions(depth - 1)
    shapes = [
        _built("coalesce({0}, {1})", part, part, is_strict=False),
        _built("nullif({0}, {1})", part, part),
        _built("CASE WHEN {0} THEN {1} ELSE {2} END", condition, part, part, is_strict=False),
        _built("CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END", condition, part, condition, part, is_strict=False),
        _built("CASE {0} WHEN {1} THEN {2} ELSE {3} END", part, part, part, part, is_strict=False),
        _built("if({0}, {1}, {2})", condition, part, part, duck="CASE WHEN {0} THEN {1} ELSE {2} END", is_strict=False),
    ]
    if is_ordered:
        shapes += [_built("greatest({0}, {1})", part, part), _built("least({0}, {1}, {1})", part, part)]
    return shapes


@cache
def integers(depth: int = DEPTH) -> Terms:
    """64 bits."""
    columns = st.sampled_from(INTEGERS).map(lambda name: column(name, f"CAST({name} AS BIGINT)"))
    small = st.integers(-20, 20) | st.sampled_from([127, -128, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)])
    leaf = columns | small.map(lambda n: column(f"({n})", f"CAST({n} AS BIGINT)"))
    if depth <= 0:
        return leaf
    part, moment = st.deferred(lambda: integers(depth - 1)), st.deferred(lambda: timestamps(depth - 1))
    day, text = st.deferred(lambda: dates(depth - 1)), st.deferred(lambda: texts(depth - 1))
    part_of_date = st.sampled_from(["year", "month", "day"])
    part_of_time = st.sampled_from(["hour", "minute"])
    number = st.deferred(lambda: doubles(depth - 1))
    return leaf | st.one_of(
        *(_built(f"({{0}} {op} {{1}})", part, part) for op in "+-*"),
        _built("({0} / nullif({1}, 0))", part, part, duck="({0} // nullif({1}, 0))"),
        _built("({0} % nullif({1}, 0))", part, part),
        _built("mod({0}, 7)", part, duck="({0} % 7)"),
        _built("(-{0})", part.filter(lambda drawn: drawn.ours != f"({-(2**63)})")),  # DuckDB: of 128 bits then
        _built("abs({0})", part),
        _built("length({0})", text, duck="CAST(length({0}) AS BIGINT)"),
        _built("length(binary_c)", duck="CAST(octet_length(binary_c) AS BIGINT)"),
        st.builds(lambda name, of: term(f"{name}({{0}})", of), part_of_date, day | moment),
        st.builds(lambda name, of: term(f"extract({name} FROM {{0}})", of), part_of_date | part_of_time, moment),
        _built("({0} - {1})", day, day, duck="CAST({0} - {1} AS BIGINT)"),
        _built("CAST({0} AS BIGINT)", st.deferred(lambda: decimals(depth - 1)), is_strict=False),
        _built("CAST({0} AS BIGINT)", number, is_strict=False),
        _built("CAST({0} AS BIGINT)", st.deferred(lambda: conditions(depth - 1))),
        _built("CAST(CAST({0} % 100 AS TINYINT) AS BIGINT)", part),
        *_any_of_one_type(depth, part),
    )


@cache
def decimals(depth: int = DEPTH) -> Terms:
    """Exact numbers; not strict, as DuckDB has 38 digits for what comes in between."""
    literal = st.sampled_from(["2.5", "-0.01", "1000.125", "0.5", "-7.55", "99999.99"]).map(lambda n: column(f"({n})"))
    leaf = (st.sampled_from(DECIMALS).map(column) | literal).map(lambda drawn: drawn._replace(is_strict=False))
    if depth <= 0:
        return leaf
    part = st.deferred(lambda: decimals(depth - 1))
    short = st.sampled_from(SHORT_DECIMALS).map(column) | literal
    return leaf | st.one_of(
        _built("({0} + {1})", part, part),
        _built("({0} - {1})", part, part | integers(0)),
        _built("({0} * {1})", short, short, is_strict=False),
        _built("({0} % nullif({1}, 0))", short, literal),
        _built("(-{0})", part),
        _built("abs({0})", part),
        st.builds(lambda of, digits: term(f"round({{0}}, {digits})", of), part, st.integers(0, 3)),
        _built("round({0})", part),
        _built("ceil({0})", part),
        _built("floor({0})", part),
        _built("CAST({0} AS DECIMAL(30,4))", part | integers(depth - 1), is_strict=False),
        _built("CAST({0} AS DECIMAL(20,1))", short),
        *_any_of_one_type(depth, part),
    )


@cache
def doubles(depth: int = DEPTH) -> Terms:
    """Between 1e-30 and 1e30, or zero."""
    guard = "CASE WHEN abs({0}) BETWEEN 1e-30 AND 1e30 OR {0} = 0 THEN {0} END"
    columns = st.sampled_from(sorted(WIDENED.items())).map(lambda item: term(guard, column(item[1])))
    literal = st.sampled_from(["0.1e0", "2.5e0", "-1e-3", "0e0", "3e10", "-0.5e0"]).map(lambda n: column(f"({n})"))
    leaf = columns | literal
    if depth <= 0:
        return leaf
    part, short = st.deferred(lambda: doubles(depth - 1)), st.sampled_from(SHORT_DECIMALS).map(column)
    return leaf | st.one_of(
        *(_built(f"({{0}} {op} {{1}})", part, part, is_strict=False) for op in "+-*"),
        _built("({0} + {1})", part, st.deferred(lambda: integers(depth - 1)), is_strict=False),
        _built("({0} / nullif({1}, 0))", part, part, is_strict=False),
        _built("({0} % nullif({1}, 0))", part, part, is_strict=False),
        _built("(-{0})", part),
        _built("abs({0})", part),
        _built("round({0})", part),
        _built("ceil({0})", part),
        _built("floor({0})", part),
        _built("CAST({0} AS DOUBLE)", st.deferred(lambda: integers(depth - 1)) | short),
        *_any_of_one_type(depth, part),
    )


@cache
def texts(depth: int = DEPTH) -> Terms:
    written = st.sampled_from([*WORDS[:9], " a ", "aXb", "2024-02-29"])
    literal = written.map(lambda word: column(sql_literal(word), duckdb_literal(word, "string_c")))
    leaf = st.sampled_from(TEXTS).map(column) | literal
    if depth <= 0:
        return leaf
    part = st.deferred(lambda: texts(depth - 1))
    year = "{0} BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31'"
    first, count = st.integers(1, 4), st.integers(0, 3)
    return leaf | st.one_of(
        _built("({0} || {1})", part, part),
        _built("concat({0}, {1}, {0})", part, part, duck="({0} || {1} || {0})"),
        *(_built(f"{name}({{0}})", part) for name in ("upper", "lower", "trim", "ltrim", "rtrim")),
        _built("trim(both 'a' FROM {0})", part, duck="trim({0}, 'a')"),
        _built("replace({0}, 'a', 'xy')", part),
        st.builds(lambda of, at, n: term(f"substr({{0}}, {at}, {n})", of), part, first, count),
        st.builds(lambda of, at: term(f"substring({{0}}, {at})", of), part, first),
        st.builds(
            lambda side, of, n: term(f"{side}({{0}}, {n})", of),
            st.sampled_from(["left", "right"]),
            part,
            st.integers(-2, 3),
        ),
        _built("CAST({0} AS TEXT)", st.deferred(lambda: integers(depth - 1))),
        _built("CAST({0} AS TEXT)", st.deferred(lambda: stored_dates(depth - 1))),
        _built(
            f"CASE WHEN {year} THEN CAST({{0}} AS TEXT) END",
            st.deferred(lambda: timestamps(depth - 1)),
            is_strict=False,
        ),
        _built("CAST({0} AS TEXT)", st.sampled_from(DECIMALS).map(column)),
        _built("lower(CAST({0} AS TEXT))", st.deferred(lambda: conditions(depth - 1))),
        *_any_of_one_type(depth, part),
    )


@cache
def dates(depth: int = DEPTH) -> Terms:
    """From the year 1 on."""
    literal = st.sampled_from(["2024-02-29", "1970-01-01", "1969-12-31", "1600-03-01"])
    leaf = st.just(column("date_c")) | literal.map(lambda day: column(f"DATE '{day}'"))
    if depth <= 0:
        return leaf
    part = st.deferred(lambda: dates(depth - 1))
    days = st.integers(0, 1000)
    return leaf | st.one_of(
        st.builds(lambda of, count: term(f"({{0}} + {count})", of), part, days),
        _built("CAST({0} AS DATE)", st.deferred(lambda: timestamps(0))),
        *_any_of_one_type(depth, part),
    )


@cache
def timestamps(depth: int = DEPTH) -> Terms:
    """Also far outside of Python's calendar."""
    literal = st.sampled_from(["2024-02-29 12:00:00.000001", "1969-12-31 23:59:59.999999", "1970-01-01"])
    leaf = st.just(column("timestamp_us_c")) | literal.map(lambda moment: column(f"TIMESTAMP '{moment}'"))
    if depth <= 0:
        return leaf
    part = st.deferred(lambda: timestamps(depth - 1))
    interval = st.sampled_from(["'90' MINUTE", "'1' DAY", "'36' HOUR", "'7' SECOND"])
    return leaf | st.one_of(
        st.builds(
            lambda of, op, span: term(f"({{0}} {op} INTERVAL {span})", of), part, st.sampled_from("+-"), interval
        ),
        _built("CAST({0} AS TIMESTAMP)", st.deferred(lambda: dates(depth - 1))),
        *_any_of_one_type(depth, part),
    )


@cache
def conditions(depth: int = DEPTH) -> Terms:
    """What is true, false or unknown."""
    leaf = st.just(column("bool_c")) | st.sampled_from(["TRUE", "FALSE"]).map(column)
    if depth <= 0:
        return leaf
    kinds = (integers, decimals, doubles, texts, dates, timestamps)
    alike = [st.deferred(lambda kind=kind: kind(depth - 1)) for kind in kinds]
    whole, exact, number, text, day, moment = alike
    part = st.deferred(lambda: conditions(depth - 1))
    ops = st.sampled_from(sorted(OPS))
    pairs = [(each, each) for each in alike] + [(whole, exact), (whole, number), (day, moment), (part, part)]
    binary = st.sampled_from([column("binary_c"), column("CAST(string_c AS BINARY)", "encode(string_c)")])
    pattern = st.lists(st.sampled_from(["%", "_", "a", "b", "A", "x", "\\%", "\u65e5"]), max_size=4).map("".join)
    span = st.sampled_from(["'5' DAY", "'0' SECOND", "'1' MICROSECOND"])
    return leaf | st.one_of(
        *(st.builds(lambda op, one, other: term(f"({{0}} {op} {{1}})", one, other), ops, *pair) for pair in pairs),
        st.builds(lambda op, one, other: term(f"({{0}} {op} {{1}})", one, other), ops, binary, binary),
        *(_built("({0} BETWEEN {1} AND {2})", each, each, each, is_strict=False) for each in alike),
        *(_built("({0} NOT IN ({1}, {2}))", each, each, each) for each in alike),
        *(_built("({0} IN ({1}, {1}, {2}))", each, each, each) for each in alike),
        _built("({0} IS NULL)", st.one_of(*alike, part)),
        _built("({0} IS NOT NULL)", st.one_of(*alike, part)),
        st.builds(_like, text, st.sampled_from(["LIKE", "ILIKE", "NOT LIKE", "NOT ILIKE"]), pattern),
        st.builds(lambda one, other, least: term(f"({{0}} - {{1}} > INTERVAL {least})", one, other, is_strict=False),
                  moment, moment, span),
        st.builds(lambda of, test: term(f"({{0}} IS {test})", of), part,
                  st.sampled_from(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"])),
        _built("CAST({0} AS BOOLEAN)", whole),
        _built("(NOT {0})", part),
        _built("({0} AND {1})", part, part, is_strict=False),
        _built("({0} OR {1})", part, part, is_strict=False),
        *_any_of_one_type(depth, part, is_ordered=False),
    )  # fmt: skip


def _like(text: Term, op: str, pattern: str) -> Term:
    written = sql_literal(pattern)
    return term(f"({{0}} {op} {written})", text, duck=f"({{0}} {op} {written} ESCAPE '\\')")


def long_chains() -> Terms:
    """A sum, a text, a NULLIF and a CASE of many parts. DuckDB evaluates the operands of the last two twice a level."""
    count, small = st.integers(20, 60), column("int16_c", "CAST(int16_c AS BIGINT)")
    return st.one_of(
        st.builds(lambda n: term("(" + " + ".join(["{0}"] * n) + " > 5)", small), count),
        st.builds(lambda n: term("(length(" + " || ".join(["{0}"] * n) + ") > 40)", column("string_c")), count),
        st.builds(
            lambda n: term("(" + "nullif(" * n + "{0}" + ", 0)" * n + " = 1)", small, duck="(nullif({0}, 0) = 1)"),
            count,
        ),
        st.builds(
            lambda n: term("(" + "CASE " * n + "{0}" + " WHEN 5 THEN 0 WHEN 1 THEN 2 ELSE 1 END" * n + " = 1)", small),
            st.integers(5, 10),
        ),
    )


def stored_dates(depth: int = DEPTH) -> Terms:
    """Columns have the years 1 to 9999; DuckDB writes those before as years "(BC)"."""
    return _built("CASE WHEN {0} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN {0} END", dates(depth))


VALUES = {
    "int64": integers,
    "decimal(38,6)": decimals,
    "double": doubles,
    "string": texts,
    "date": stored_dates,
    "timestamp[us]": timestamps,
    "bool": conditions,
}
"""The expressions of each type, by the type of the column that takes them."""
