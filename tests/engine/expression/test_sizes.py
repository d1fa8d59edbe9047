"""Expressions whose values would take far more memory than any commit may are refused before they are computed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.engine.expression import sizes
from nyala.engine.expression.evaluate import evaluate
from nyala.engine.expression.rows import Rows
from nyala.engine.statement.expressions import expressions_of
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.table import TableDefinition, TableSchema

BYTES_MAX = 100_000
RESULT_BYTES_MAX = 2_000_000
COLUMNS = pa.schema({"k": pa.int64(), "b": pa.string()})
SCHEMA = TableSchema.create(TableDefinition.from_arrow("t", COLUMNS, ["k"]), Limits())
ROWS = pa.record_batch({"k": range(1_000), "b": [None, *["x"] * 999]}, schema=COLUMNS)
LONG = "y" * 200


def nested(count: int, text: str = "b") -> str:
    for _ in range(count):
        text = f"replace({text}, 'x', 'xxxxxxxxxx')"
    return text


def value(text: str, rows: pa.RecordBatch = ROWS) -> pa.Array:
    (expression,) = expressions_of({"b": text}, SCHEMA, Limits(), 0).values()
    return evaluate(expression, Rows.of(rows), LogicalType("string"))


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "BYTES_MAX", BYTES_MAX)
    monkeypatch.setattr(sizes, "RESULT_BYTES_MAX", RESULT_BYTES_MAX)


LARGE = {
    "many letters of one": nested(6, "'x'"),
    "many letters of each": nested(6),
    "their length": f"CAST(length({nested(6)}) AS TEXT)",
    "joined": f"b || {nested(6, repr('x'))}",
    "parts": f"CASE WHEN k > 400 THEN {nested(5, repr('x'))} ELSE {nested(6)} END",
    "a literal instead of others": f"coalesce({nested(6, repr('x'))}, b)",
    "one that is greater": f"greatest(b, {nested(6, repr('x'))})",
}
IN_PARTS = {
    "many letters of each": nested(3),
    "joined": f"b || '{LONG}'",
    "concatenated": f"concat(b, '{LONG}', b)",
    "a literal for each row": f"'{LONG}'",
    "a literal for most rows": f"CASE WHEN k > 5 THEN '{LONG}' ELSE b END",
    "parts": f"CASE WHEN k > 400 THEN '{LONG[:150]}' ELSE '{LONG[:100]}' END",
    "a literal instead of others": f"coalesce('{LONG}', b)",
    "a literal for NULLs": f"coalesce(nullif(b, 'x'), '{LONG}')",
    "a literal or NULL": f"nullif('{LONG}', b)",
    "a literal that is greater": f"greatest(b, '{LONG}')",
}
SMALL = {
    "few letters": nested(1),
    "a literal for few rows": f"CASE WHEN k < 5 THEN '{LONG}' ELSE b END",
    "a literal for one NULL": f"coalesce(b, '{LONG}')",
    "what gets shorter": f"replace(b, '{LONG}', 'x')",
    "long text of one row": nested(4, "'x'") + " || b",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_what_would_be_too_large_for_one_row_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="bytes of values for one row; at most 100,000 are allowed"):
        value(text)


@pytest.mark.parametrize("text", IN_PARTS.values(), ids=IN_PARTS)
def test_what_is_too_large_for_all_rows_is_computed_for_some_at_once(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts = value(text)
    monkeypatch.setattr(sizes, "BYTES_MAX", 1 << 30)
    assert in_parts.equals(value(text)) and in_parts.nbytes > BYTES_MAX


def test_results_may_not_be_more_than_a_commit() -> None:
    with pytest.raises(InvalidArgumentError, match="more than 2,000,000 bytes of values for one batch of rows"):
        value(f"{nested(3)} || {nested(3)} || {nested(3)}")


@pytest.mark.parametrize("text", SMALL.values(), ids=SMALL)
def test_what_fits_is_computed(text: str) -> None:
    rows = ROWS.slice(1, 1) if text.endswith("|| b") else ROWS
    assert len(value(text, rows)) == rows.num_rows
