"""What an expression costs: each node is evaluated once, within a budget of memory, and a request ends in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from nyala.engine.expression import evaluate as evaluating
from nyala.engine.expression import functions, pattern, sizes
from nyala.engine.expression.evaluate import evaluate, truth
from nyala.engine.expression.rows import Rows
from nyala.engine.statement.expressions import expressions_of
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.protocol.request import Request, serving
from nyala.schemas.rows.statement import Statement, StatementKind
from nyala.schemas.table.table import TableDefinition, TableSchema

COLUMNS = pa.schema({"n": pa.int64(), "s": pa.string(), "out": pa.int64(), "text": pa.string(), "yes": pa.bool_()})
SCHEMA = TableSchema.create(TableDefinition.from_arrow("t", COLUMNS, ["n"]), Limits())
ROWS = pa.record_batch(
    {"n": range(1, 101), "s": ["x"] * 100, "out": [7] * 100, "text": ["y"] * 100, "yes": [True] * 100}, schema=COLUMNS
)
DEPTH = 30
"""At two evaluations a level, a billion."""


def value(text: str, kind: str = "int64", rows: pa.RecordBatch = ROWS) -> pa.Array:
    (expression,) = expressions_of({"out": text}, SCHEMA, Limits(), 0).values()
    return evaluate(expression, Rows.of(rows), LogicalType.parse(kind))


def nested(before: str, after: str, depth: int = DEPTH) -> str:
    return before * depth + "n" + after * depth


NESTED = {
    "NULLIF": nested("nullif(", ", -1)"),
    "CASE with a subject": nested("CASE ", " WHEN -1 THEN 0 WHEN -2 THEN 0 ELSE 5 END"),
    "CASE": nested("CASE WHEN n > 0 THEN ", " ELSE 0 END"),
    "IF": nested("if(n > 0, ", ", 0)"),
    "BETWEEN": nested("CAST(", " BETWEEN -5 AND 1000 AS INT)"),
    "IN": nested("CAST(", " IN (1, 2, n) AS INT)"),
    "COALESCE": nested("coalesce(", ", 0)"),
    "GREATEST": nested("greatest(", ", 0)"),
    "ROUND": nested("round(", ")"),
    "IS NULL": nested("CAST(", " IS NULL AS INT)"),
}


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts the nodes that are evaluated."""
    count: list[int] = []
    monkeypatch.setattr(evaluating, "check", lambda: count.append(1))
    yield count


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_nested_operands_are_evaluated_once(text: str, visits: list[int]) -> None:
    value(text)
    assert len(visits) < 20 * DEPTH


def test_the_time_is_that_of_a_hundred_levels_not_of_two_to_the_hundredth() -> None:
    for text in NESTED.values():
        deep = text.replace("n", "n")
        assert len(deep) < 2_000
        start = time.process_time()
        value(deep)
        assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("before", "after"),
    [("date(", ")"), ("f(", ")"), ("(", ""), ("CAST(", " AS INT"), ("x -> ", ""), ("{", "}"), ("INTERVAL ", "")],
)
def test_no_text_takes_exponential_time_to_parse(before: str, after: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidArgumentError):
        value(nested(before, after, 1_000))
    assert time.process_time() - start < 2


class _Ends:
    """A request that is over after some looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise UnavailableError("the deadline is over")


@contextmanager
def ending_after(looks: int) -> Iterator[_Ends]:
    ends = _Ends(looks)
    with serving(Request("", ends.check)):
        yield ends


def test_a_request_ends_between_two_nodes() -> None:
    (expression,) = expressions_of({"out": " + ".join(["n"] * 1_000)}, SCHEMA, Limits(), 0).values()
    with ending_after(500), pytest.raises(UnavailableError):
        evaluate(expression, Rows.of(ROWS), LogicalType("int64"))
    with ending_after(10_000):
        assert evaluate(expression, Rows.of(ROWS), LogicalType("int64"))[0].as_py() == 1_000


def test_a_long_search_ends_between_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 takes 16 s for 2 MB of text and 1,000 pieces, in one call."""
    monkeypatch.setattr(pattern, "_STEP", 10_000)
    texts = pa.array(["ab" * 500] * 50 + [None])
    matcher = pattern.Matcher.of("%a" + "_" * 20 + "c")
    with ending_after(5), pytest.raises(UnavailableError):
        matcher.find(texts)
    with ending_after(1_000) as ends:
        assert matcher.find(texts).to_pylist() == [False] * 50 + [None]
    assert ends.left < 1_000 - 50


def test_values_that_are_kept_meanwhile_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them fits, and a function of them all is small: only the sum does not fit."""
    monkeypatch.setattr(sizes, "BYTES_MAX", 1_000)
    monkeypatch.setattr(functions, "check_joined", lambda values: None)
    long = "replace(s, 'x', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy')"
    values = [f"{long} || '{number}'" for number in range(30)]
    assert value(f"length({values[0]})", "int64")[0].as_py() == 61
    with pytest.raises(InvalidArgumentError, match="bytes of values for one row"):
        value(f"length(greatest({', '.join(values)}))")
    with pytest.raises(InvalidArgumentError, match="bytes of values for one row"):
        value(f"CASE {long} WHEN {values[1]} THEN 1 ELSE length(greatest({', '.join(values)})) END")


def test_a_sum_of_many_terms_is_as_deep_as_one_of_two() -> None:
    assert value(" + ".join(["n"] * 4_000))[1].as_py() == 8_000
    assert len(value("s" + " || 'x'" * 3_000, "string")[0].as_py()) == 3_001


def test_a_text_of_many_parts_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, 5,000 parts of a row copied 60 MB."""
    calls: list[int] = []
    original = evaluating.joined
    monkeypatch.setattr(evaluating, "joined", lambda values: calls.append(len(values)) or original(values))
    assert value("s" + " || s" * 100 + " || (s || 'y')", "string")[0].as_py() == "x" * 102 + "y"
    assert calls == [2, 102]


def test_a_long_list_is_made_ready_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = evaluating.cells_listed
    monkeypatch.setattr(evaluating, "cells_listed", lambda *given: calls.append(1) or original(*given))
    (expression,) = expressions_of(
        {"yes": f"n + 1 IN ({','.join(map(str, range(500)))})"}, SCHEMA, Limits(), 0
    ).values()
    for _ in range(5):
        assert truth(expression, Rows.of(ROWS)).to_pylist() == [True] * 100
    assert len(calls) == 1


def test_a_case_reads_only_the_columns_that_its_branches_name() -> None:
    taken: list[str] = []

    def column(name: str) -> pa.Array:
        taken.append(name)
        return ROWS.column(name)

    (expression,) = expressions_of({"out": "CASE WHEN n > 50 THEN n ELSE out END"}, SCHEMA, Limits(), 0).values()
    evaluate(expression, Rows(100, column), LogicalType("int64"))
    assert sorted(taken) == ["n", "out"]


def test_all_of_set_is_measured_before_any_of_it_is_read() -> None:
    texts = {f"c{number}": "n + 1" * 1_000 for number in range(1_000)}
    statement = Statement(table="t", kind=StatementKind.UPDATE, set=texts)
    start = time.process_time()
    with pytest.raises(InvalidArgumentError, match="at most 131,072 are allowed, in all expressions together"):
        statement.checked()
    assert time.process_time() - start < 1
