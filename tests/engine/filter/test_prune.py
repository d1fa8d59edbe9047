"""Pruning loses no row: brute force over pages and keys; and it does prune, case by case."""

import datetime as dt
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nyala.engine.cfile.zone_map import PageZones, ZoneMap, zone_map_of
from nyala.engine.expression.parse import parse_filter
from nyala.engine.filter.evaluate import select
from nyala.engine.filter.prune import is_key_range, key_range, may_match, pages_may_match
from nyala.engine.vectors.keys.keys import KeyEncoder, argsort_keys, key_bytes, lower_bound, take_keys
from nyala.engine.vectors.physical import physical_of
from nyala.schemas.rows.predicate import Comparison, InList, Like
from tests.dose import dose
from tests.engine.filter import model
from tests.engine.filter.model import COLUMNS, KINDS, LIMITS, ROW_COUNT, SCHEMA, bind, predicates, table_of

PHYSICAL = {column.id: physical_of(column.logical.arrow) for column in SCHEMA.columns}


def _pages():
    """Pages of few rows, so that many hold one value, no value, NaNs only; cut from every order of the rows."""
    pages = []
    for name in KINDS:
        order = sorted(range(ROW_COUNT), key=lambda row, name=name: repr(COLUMNS[name][row]))
        for first in range(0, ROW_COUNT, 6):
            rows = np.array(order[first : first + 6], np.int64)
            vectors = {column_id: vector.take(rows) for column_id, vector in VECTORS.items()}
            zones = {column_id: zone_map_of(vector, PHYSICAL[column_id]) for column_id, vector in vectors.items()}
            pages.append((vectors, zones, len(rows)))
    return pages


VECTORS = model.vectors_of()
PAGES = _pages()


@settings(max_examples=60, deadline=None)
@given(predicates(), st.randoms(use_true_random=False))
def test_no_page_that_is_pruned_holds_a_match(predicate, chosen):
    bound = bind(predicate, SCHEMA)
    for vectors, zones, row_count in chosen.sample(PAGES, 120):
        if not may_match(bound, zones.get, row_count):
            assert not select(bound, vectors, row_count).any()


@settings(max_examples=300, deadline=None)
@given(model.leaves())
def test_no_leaf_prunes_a_match(leaf):
    bound = bind(leaf, SCHEMA)
    column_id = SCHEMA.column(leaf.column).id
    for vectors, zones, row_count in PAGES[:: len(PAGES) // 200]:
        if not may_match(bound, zones.get, row_count):
            assert not select(bound, {column_id: vectors[column_id]}, row_count).any()


@settings(max_examples=300, deadline=None)
@given(st.one_of(predicates(), model.leaves()))
def test_all_pages_at_once_are_told_as_one_by_one(predicate):
    bound = bind(predicate, SCHEMA)
    assume(bound.column_ids)
    chosen = PAGES[:: len(PAGES) // 200]
    zones = {
        number: PageZones.of([page[1][number] for page in chosen], PHYSICAL[number]) for number in bound.column_ids
    }
    expected = [may_match(bound, page_zones.get, row_count) for _, page_zones, row_count in chosen]
    assert pages_may_match(bound, zones).tolist() == expected


NAN = float("nan")


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [
        ("int32_c = 3", [1, 5], True),
        ("int32_c = 3", [4, 5], False),
        ("int32_c < 1", [1, 5], False),
        ("int32_c <= 1", [1, 5], True),
        ("int32_c > 5", [1, 5], False),
        ("int32_c >= 5", [1, 5], True),
        ("int32_c > 4.5", [1, 4], False),
        ("int32_c <> 2", [2, 2], False),
        ("int32_c <> 2", [2, 2, None], False),
        ("int32_c <> 2", [2, 3], True),
        ("int32_c IN (1, 6)", [2, 5], False),
        ("int32_c IN (1, 4, 6)", [2, 5], True),
        ("int32_c NOT IN (2, 4)", [2, 2], False),
        ("int32_c NOT IN (2, 4)", [2, 3], True),
        ("int32_c NOT BETWEEN 1 AND 5", [1, 5], False),
        ("int32_c IS NULL", [1, 5], False),
        ("int32_c IS NULL", [1, None], True),
        ("int32_c IS NOT NULL", [None, None], False),
        ("int32_c <> 2", [None, None], False),
        ("int32_c = 3 OR int32_c = 9", [4, 5], False),
        ("int32_c > 3 AND int32_c < 2", [4, 5], False),
        ("double_c > 5", [1.0, NAN], False),
        ("NOT double_c <= 5", [1.0, NAN], True),
        ("double_c <> 1", [1.0, NAN], True),
        ("double_c NOT IN (1, 2)", [1.0, NAN], True),
        ("double_c NOT IN (1)", [1.0, NAN], True),
        ("double_c = 1", [NAN, NAN], False),
        ("double_c <> 1", [NAN, None], True),
        ("double_c = 0", [-0.0, -0.0], True),
        ("double_c <> 0", [-0.0, 0.0], False),
        ("decimal_30_6_c > 1e20", [Decimal(1), Decimal(10) ** 20], False),
        ("date_c > TIMESTAMP '2024-05-31 12:00:00'", [dt.date(2024, 5, 31)], False),
        ("bool_c", [False, False], False),
        ("string_c LIKE 'ab%'", ["aa", "aazz"], False),
        ("string_c LIKE 'ab%c'", ["ac", "b"], False),
        ("string_c LIKE 'ab%c'", ["aa", "b"], True),
        ("string_c = 'b'", ["x" * 100, "y" * 100], False),
        ("string_c > 'z'", ["x" * 100, "y" * 100], False),
        ("string_c <> '" + "x" * 64 + "'", ["x" * 100, "x" * 100], True),
        ("binary_c > X'ff'", [b"\xff" * 70], True),
    ],
)
def test_what_a_page_may_hold(text, cells, expected):
    bound = bind(parse_filter(text, LIMITS), SCHEMA)
    (column_id,) = bound.column_ids
    column = SCHEMA.by_id[column_id]
    arrays = {**model.ARROW, column.name: pa.array(cells, column.logical.arrow)}
    zone = zone_map_of(model.vectors_of(arrays)[column_id], PHYSICAL[column_id])
    assert may_match(bound, {column_id: zone}.get, len(cells)) is expected
    assert pages_may_match(bound, {column_id: PageZones.of([zone], PHYSICAL[column_id])}).tolist() == [expected]


def test_where_nothing_is_known_a_page_may_match():
    bound = bind(parse_filter("int32_c = 3", LIMITS), SCHEMA)
    assert may_match(bound, lambda _: None, 10)
    assert not may_match(bound, lambda _: None, 0)
    assert may_match(bound, lambda _: ZoneMap(None, None, 0, 10, exact=False), 10)
    assert not may_match(bind(parse_filter("FALSE", LIMITS), SCHEMA), lambda _: None, 10)
    assert may_match(bind(None, SCHEMA), lambda _: None, 10)


# Keys

STRINGS = ["", "\0", "\0\0", "\0\1", "a", "a\0", "a\0b", "a\1", "ab", "b", "\U0010ffff"]
KEYS = {
    "one small integer": ["int8"],
    "one wide integer": ["int64"],
    "integers in one word": ["int16", "int8", "int32"],
    "integers in many bytes": ["int64", "int8"],
    "a decimal and a date": ["decimal(30,6)", "date"],
    "a string": ["string"],
    "a binary": ["binary"],
    "a string before an integer": ["string", "int8"],
    "an integer before a string": ["int8", "string"],
    "strings": ["string", "varchar(80)", "binary"],
}


def _key_cells(kind):
    if kind in ("string", "varchar(80)"):
        return STRINGS
    if kind == "binary":
        return [text.encode() for text in STRINGS] + [b"\xff", b"\xff\xff", b"a\xff"]
    return model.CELLS[kind]


class _KeyTable:
    """All combinations of a few cells, some left out, as rows in key order."""

    def __init__(self, kinds):
        self.names = [f"k{position}" for position in range(len(kinds))]
        self.kinds = dict(zip(self.names, kinds, strict=True))
        self.schema = table_of([(name, kind, False) for name, kind in self.kinds.items()], len(kinds))
        chosen = random.Random(3)
        rows = {tuple(chosen.choice(_key_cells(kind)) for kind in kinds) for _ in range(300)}
        arrays = {
            column.name: pa.array([row[position] for row in rows], column.logical.arrow)
            for position, column in enumerate(self.schema.columns)
        }
        vectors = model.vectors_of(arrays, self.schema)
        self.encoder = KeyEncoder([physical_of(column.logical.arrow) for column in self.schema.key])
        keys = self.encoder.encode([vectors[column.id] for column in self.schema.key])
        order = argsort_keys(keys)
        self.keys = take_keys(keys, order)
        self.vectors = {column_id: vector.take(order) for column_id, vector in vectors.items()}
        self.row_count = len(rows)

    def check(self, predicate):
        """Assert that no selected row lies outside of the range; return the rows in it and the rows selected."""
        bound = bind(predicate, self.schema)
        found = key_range(bound, self.schema, self.encoder)
        selected = np.flatnonzero(select(bound, self.vectors, self.row_count))
        for row in selected:
            key = key_bytes(self.keys, int(row))
            assert found.lower is None or key >= found.lower
            assert found.upper is None or key < found.upper
        first = 0 if found.lower is None else lower_bound(self.keys, found.lower)
        last = self.row_count if found.upper is None else lower_bound(self.keys, found.upper)
        assert all(first <= row < last for row in selected)
        assert not found.is_empty or not len(selected)
        assert not is_key_range(bound, self.schema) or list(range(first, last)) == selected.tolist()
        return list(range(first, last)), selected.tolist()


TABLES = {what: _KeyTable(kinds) for what, kinds in KEYS.items()}


@st.composite
def _key_leaves(draw, table):
    name = draw(st.sampled_from(table.names))
    kind = table.kinds[name]
    cells = st.sampled_from(_key_cells(kind))
    literal = (cells if kind in ("string", "varchar(80)", "binary") else model.literals(kind)) | cells
    if kind in ("string", "varchar(80)") and draw(st.booleans()):
        return Like(op="like", column=name, pattern=draw(st.sampled_from(["a%", "a_%", "%", "\0%", "a", "ab%b", "_"])))
    if draw(st.integers(0, 3)) == 0:
        return InList(op="in", column=name, values=draw(st.lists(literal, min_size=1, max_size=3)))
    return Comparison(op=draw(st.sampled_from(list(model.OPS))), column=name, value=draw(literal))


@pytest.mark.parametrize("what", KEYS)
@settings(max_examples=dose(20, 60), deadline=None)
@given(data=st.data())
def test_no_key_outside_of_the_range_is_selected(what, data):
    TABLES[what].check(data.draw(predicates(_key_leaves(TABLES[what]))))


@pytest.mark.parametrize("what", KEYS)
@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_equal_leading_columns_and_one_comparison_are_the_range_itself(what, op):
    table = TABLES[what]
    for length in range(len(table.names)):
        name = table.names[length]
        for cell in _key_cells(table.kinds[name]):
            leading = [f"{before} = {_sql(_key_cells(table.kinds[before])[1])}" for before in table.names[:length]]
            predicate = parse_filter(" AND ".join([*leading, f"{name} {op} {_sql(cell)}"]), LIMITS)
            in_range, selected = table.check(predicate)
            assert in_range == selected
            assert is_key_range(bound := bind(predicate, table.schema), table.schema) or bound.is_trivially_false


@pytest.mark.parametrize(
    "text",
    [
        "k0 > 1 AND k1 = 'a'",
        "k1 = 'a'",
        "k0 = 1 AND k1 <> 'a'",
        "k0 = 1 OR k1 = 'a'",
        "k0 IN (1, 3)",
        "k0 = 1 AND k1 LIKE 'a%b'",
    ],
)
def test_other_filters_are_no_range_of_keys(text):
    table = TABLES["an integer before a string"]
    assert not is_key_range(bind(parse_filter(text, LIMITS), table.schema), table.schema)


def _sql(cell):
    if isinstance(cell, bytes):
        return f"X'{cell.hex()}'"
    return (
        model.sql_literal(str(cell))
        if isinstance(cell, str | dt.date)
        else f"{cell:f}"
        if isinstance(cell, Decimal)
        else str(cell)
    )


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("k0 = 127", b"\xff", None),
        ("k0 > 126.5", b"\xff", None),
        ("k0 > 127", b"", b""),
        ("k0 >= 128", b"", b""),
        ("k0 = 1.5", b"", b""),
        ("k0 = -128", b"\x00", b"\x01"),
        ("k0 < -128", b"", b""),
        ("k0 <= 1000", None, None),
        ("k0 BETWEEN 0 AND 3", b"\x80", b"\x84"),
        ("k0 IN (5, 3, 1)", b"\x81", b"\x86"),
        ("k0 = 1 OR k0 BETWEEN 3 AND 4", b"\x81", b"\x85"),
        ("k0 = 1 AND k0 = 2", b"", b""),
        ("(k0 > 1 AND k0 < 2) OR k0 = 5", b"\x82", b"\x86"),
        ("(k0 = 1 AND k0 = 2 OR k0 = 3 AND k0 = 4) AND k0 > 0", b"", b""),
        ("k0 <> 5", None, None),
        ("NOT k0 < 5", b"\x85", None),
        ("TRUE", None, None),
        ("FALSE", b"", b""),
    ],
)
def test_ranges_of_an_int8_key(text, lower, upper):
    table = TABLES["one small integer"]
    found = key_range(bind(parse_filter(text, LIMITS), table.schema), table.schema, table.encoder)
    assert (found.lower, found.upper) == (lower, upper)
    assert found.is_empty == (upper == b"")


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("k0 LIKE 'a%b'", b"a", b"b"),
        ("k0 LIKE 'a%'", b"a", b"b"),
        ("k0 = 'a'", b"a", b"a\0"),
        ("k0 > 'a'", b"a\0", None),
        ("k0 LIKE '%b'", None, None),
    ],
)
def test_ranges_of_a_string_key(text, lower, upper):
    table = TABLES["a string"]
    found = key_range(bind(parse_filter(text, LIMITS), table.schema), table.schema, table.encoder)
    assert (found.lower, found.upper) == (lower, upper)


def test_a_filter_beside_the_key_leaves_every_key():
    schema = table_of([("k", "string", False), ("v", "int32", True)])
    found = key_range(bind(parse_filter("v = 1 OR k = 'a'", LIMITS), schema), schema, TABLES["a string"].encoder)
    assert (found.lower, found.upper) == (None, None)
