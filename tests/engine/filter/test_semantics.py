"""Filters mean what SQL means: against an evaluator that goes row by row, and against DuckDB."""

import math

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from nyala.engine.expression.parse import parse_filter
from nyala.engine.filter.evaluate import select
from nyala.schemas.rows.predicate import InList, Not
from nyala.schemas.table.table import TableSchema
from tests.engine.filter import model
from tests.engine.filter.duck import duckdb_literal, is_common_ground
from tests.engine.filter.model import ARROW, COLUMNS, KINDS, LIMITS, ROW_COUNT, SCHEMA, bind, predicates, to_sql, truth

ROWS = [{name: column[row] for name, column in COLUMNS.items()} for row in range(ROW_COUNT)]
PLAIN = model.vectors_of()
CODED = model.vectors_of(dictionary=True)
FIRST, LAST = 31, 117
SLICED = {column_id: vector.slice(FIRST, LAST) for column_id, vector in PLAIN.items()}
FEW_OF_CODED = {column_id: vector.slice(40, 42) for column_id, vector in CODED.items()}


@settings(max_examples=250, deadline=None)
@given(predicates())
def test_selects_the_rows_where_three_valued_logic_is_true(predicate):
    answers = [truth(predicate, row) for row in ROWS]
    expected = np.array([answer is True for answer in answers])
    bound = bind(predicate, SCHEMA)
    for vectors, first, last in (
        (PLAIN, 0, ROW_COUNT),
        (CODED, 0, ROW_COUNT),
        (SLICED, FIRST, LAST),
        (FEW_OF_CODED, 40, 42),
    ):
        found = select(bound, vectors, last - first)
        assert found.dtype == np.bool_
        assert found.tolist() == expected[first:last].tolist()


@settings(max_examples=150, deadline=None)
@given(predicates())
def test_true_false_and_unknown_part_the_rows(predicate):
    answers = [truth(predicate, row) for row in ROWS]
    is_true = select(bind(predicate, SCHEMA), PLAIN, ROW_COUNT)
    is_false = select(bind(Not(op="not", arg=predicate), SCHEMA), PLAIN, ROW_COUNT)
    assert not (is_true & is_false).any()
    assert (~is_true & ~is_false).tolist() == [answer is None for answer in answers]


@settings(max_examples=150, deadline=None)
@given(predicates())
def test_sql_text_says_the_same_as_the_tree(predicate):
    parsed = parse_filter(to_sql(predicate), LIMITS)
    assert bind(parsed, SCHEMA) == bind(predicate, SCHEMA)


def test_the_vectors_are_left_as_they_were():
    before = {column_id: vector.valid.copy() for column_id, vector in PLAIN.items() if vector.valid is not None}
    select(bind(parse_filter("int8_c IS NOT NULL AND int8_c > 2", LIMITS), SCHEMA), PLAIN, ROW_COUNT)
    assert all((PLAIN[column_id].valid == valid).all() for column_id, valid in before.items())


class _Asked(dict):
    """Vectors that remember which of them were asked for."""

    def __init__(self, vectors):
        super().__init__(vectors)
        self.columns = []

    def __getitem__(self, column_id):
        self.columns.append(column_id)
        return super().__getitem__(column_id)


def test_a_column_is_not_asked_for_when_the_filter_is_decided():
    asked = _Asked(PLAIN)
    select(bind(parse_filter("string_c = 'a' AND id = -1", LIMITS), SCHEMA), asked, ROW_COUNT)
    assert asked.columns == [SCHEMA.column("id").id]


@pytest.mark.parametrize("count", [2, 8, 9, 100, 5_000])
@pytest.mark.parametrize("spread", [1, 10**12])
@pytest.mark.parametrize("name", ["int64_c", "double_c", "float_c", "decimal_30_6_c", "string_c"])
def test_every_way_to_search_a_list(name, spread, count):
    step = spread if name != "float_c" else 1
    cells = [number * step for number in range(-count // 2, count // 2)]
    values = [str(cell) for cell in cells] if name == "string_c" else cells
    arrays = {**ARROW, name: pa.array([*values[::3], *COLUMNS[name]], ARROW[name].type)}
    vector = model.vectors_of({key: arrays[key] for key in (name,)}, _only(name))
    listed = values[::2]
    for op in ("in", "not_in"):
        found = select(bind(InList(op=op, column=name, values=listed), _only(name)), vector, len(arrays[name]))
        members = {model.meaning(value, KINDS[name]) for value in listed}
        expected = [
            cell is not None and (model.meaning(cell, KINDS[name]) in members) == (op == "in")
            for cell in arrays[name].to_pylist()
        ]
        assert found.tolist() == expected


def _only(name):
    return TableSchema(columns=(SCHEMA.column(name),), key_columns=1, next_column_id=99)


# For DuckDB NaN is the greatest float and equal to itself: it is shown the rows without one.
_WITHOUT_NAN = np.array([not any(isinstance(c, float) and math.isnan(c) for c in row.values()) for row in ROWS])
_SHARED = pa.table(ARROW).filter(pa.array(_WITHOUT_NAN))
_SHARED_VECTORS = model.vectors_of({name: _SHARED[name].combine_chunks() for name in _SHARED.column_names})


@pytest.fixture(scope="module")
def database():
    with duckdb.connect() as connection:
        connection.register("shown", _SHARED)
        yield connection


_COMMON = predicates(model.leaves().filter(is_common_ground))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(predicate=_COMMON)
def test_selects_the_rows_that_duckdb_selects(database, predicate):
    database.execute("SET TimeZone = 'UTC'")
    text = to_sql(predicate, duckdb_literal, " ESCAPE '\\'")
    expected = database.execute(f"SELECT id FROM shown WHERE {text} ORDER BY id").fetchall()
    found = select(bind(predicate, SCHEMA), _SHARED_VECTORS, len(_SHARED))
    assert [(row,) for row in np.array(_SHARED["id"])[found].tolist()] == sorted(expected)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_either_zero_finds_both_in_long_lists_too(kind, zero):
    """Long lists go by a hash table, which would tell them apart."""
    name = model.NAMES[kind]
    numbers = [zero, *range(1, 20)]
    zeros = {row for row in range(ROW_COUNT) if COLUMNS[name][row] == 0}
    assert {math.copysign(1, COLUMNS[name][row]) for row in zeros} == {1, -1}
    for count in (1, 2, 20):
        found = select(bind(InList(op="in", column=name, values=numbers[:count]), SCHEMA), PLAIN, ROW_COUNT)
        assert zeros <= set(np.flatnonzero(found))
