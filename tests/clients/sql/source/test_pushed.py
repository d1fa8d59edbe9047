"""Pushed filters in SQL's logic: what the store evaluates, what is left, and that both together are what SQL means."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.sql.source.parts import conjuncts, part_of
from nyala.clients.sql.source.pushed import one_nan, read_pushed

NAN = float("nan")
ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "n": pa.array([1, 2, None, 9, 0, -1, 3, 4], pa.int32()),
        "f": pa.array([1.0, NAN, None, 9.0, 0.0, -0.0, float("inf"), float("-inf")]),
        "g": pa.array([0.1, NAN, None, 9.0, 0.0, -0.0, float("inf"), float("-inf")], pa.float32()),
        "h": pa.array([2048.0, NAN, None, 9.0, 0.0, -0.0, float("inf"), float("-inf")], pa.float16()),
        "s": ["a", "b", None, "z", "a%", "", "it's", "\u00e5"],
        "b": [True, False, None, True, False, None, True, False],
    }
)
n, f, g, h, s, b = (pc.field(name) for name in ("n", "f", "g", "h", "s", "b"))
NULL = pc.scalar(pa.scalar(None, pa.bool_()))

CASES: list[tuple[Any, list[int], bool]] = [
    # IN and NOT IN
    (n.isin([1, 2, 5, 6]), [0, 1], True),
    (~n.isin([1, 2, 5, 6]), [3, 4, 5, 6, 7], True),
    (~s.isin(["a", "b", "c", "d"]), [3, 4, 5, 6, 7], True),
    (n.isin([1, 2, 5, None]), [0, 1], True),
    (~n.isin([1, 2, 5, None]), [], True),
    (n.isin(pa.array([], pa.int32())), [], True),
    (~n.isin(pa.array([], pa.int32())), [0, 1, 3, 4, 5, 6, 7], True),
    (f.isin([1.0, NAN, 7.0, 8.0]), [0, 1], True),
    (~f.isin([1.0, NAN, 7.0, 8.0]), [3, 4, 5, 6, 7], True),
    (f.isin([0.0, NAN, 7.0, 8.0]), [1, 4], False),  # a list tells the zeros apart, as in DataFusion
    (~f.isin([0.0, NAN, 7.0, 8.0]), [0, 3, 5, 6, 7], False),
    # NaN and zeros
    (f > 5.0, [1, 3, 6], True),
    (f >= 9.0, [1, 3, 6], True),
    (~(f < 5.0), [1, 3, 6], True),
    (f < 5.0, [0, 4, 5, 7], True),
    (~(f > 5.0), [0, 4, 5, 7], True),
    (f == NAN, [1], True),
    (~(f == NAN), [0, 3, 4, 5, 6, 7], True),
    (f != NAN, [0, 3, 4, 5, 6, 7], True),
    (f < NAN, [0, 3, 4, 5, 6, 7], True),
    (f <= NAN, [0, 1, 3, 4, 5, 6, 7], True),
    (f > NAN, [], True),
    (f >= NAN, [1], True),
    (~(f >= NAN), [0, 3, 4, 5, 6, 7], True),
    (f != 1.0, [1, 3, 4, 5, 6, 7], True),
    (f == 0.0, [4, 5], True),
    (f == -0.0, [4, 5], True),
    (f < 0.0, [7], True),
    (f >= 0.0, [0, 1, 3, 4, 5, 6], True),
    (f.is_nan(), [1], True),
    (~f.is_nan(), [0, 3, 4, 5, 6, 7], True),
    ((f > 5.0) | f.is_nan(), [1, 3, 6], True),  # as DuckDB writes it
    (pc.scalar(5.0) < f, [1, 3, 6], True),
    (f.is_null(nan_is_null=True), [1, 2], True),
    (~f.is_null(nan_is_null=True), [0, 3, 4, 5, 6, 7], True),
    (g == 0.1, [], False),  # no float of 32 bits is 0.1
    (g == pc.scalar(pa.scalar(0.1, pa.float32())), [0], True),
    (g.isin([0.1, 9.0, 5.0, 6.0]), [3], False),
    (~g.isin([0.1, 9.0, 5.0, 6.0]), [0, 1, 4, 5, 6, 7], False),
    (h == 9.0, [3], True),
    (h < 2049.0, [0, 3, 4, 5, 7], False),  # no float of 16 bits is 2049
    (h == 2049, [], False),
    (h > 0.1, [0, 1, 3, 6], False),
    (h != 1e9, [0, 1, 3, 4, 5, 6, 7], False),
    (h.isin([2049.0, 9.0, NAN, 5.0]), [1, 3], False),
    (h.isin([2049, 9, 4, 5]), [3], False),
    (~h.isin([2049.0, 9.0, 4.0, 5.0]), [0, 1, 4, 5, 6, 7], False),
    # three values
    (~((n == 1) & (s == "a")), [1, 3, 4, 5, 6, 7], True),
    (~((n == 1) | (f > 5.0)), [4, 5, 7], True),
    (b, [0, 3, 6], True),
    (~b, [1, 4, 7], True),
    (b == pc.scalar(False), [1, 4, 7], True),
    ((n == 1) | NULL, [0], True),
    (~((n == 1) & NULL), [1, 3, 4, 5, 6, 7], True),
    (n == pc.scalar(None), [], True),
    (pc.scalar(True), [0, 1, 2, 3, 4, 5, 6, 7], True),
    (False, [], True),
    (None, [], True),
    (pa.scalar(False), [], True),
    # what the store's filters lack
    (n > f, [7], False),
    ((n > f) & (n > -5), [7], False),
    ((n > f) | (n == 1), [0, 7], False),
    (~(n > f), [0, 1, 3, 4, 5, 6], False),
    (f == f, [0, 1, 3, 4, 5, 6, 7], False),
    ((n > 2).is_null(), [2], False),
    ((n > 2) == b, [1, 3, 4, 6], False),
    (b < pc.scalar(True), [1, 4, 7], False),
    (n.cast(pa.float64()) > 2.5, [3, 6, 7], False),
    (pc.add(n, 1) > 3, [3, 6, 7], False),
    (pc.utf8_upper(s) == "A", [0], False),
    # text
    (pc.starts_with(s, "a"), [0, 4], True),
    (~pc.starts_with(s, "a%"), [0, 1, 3, 5, 6, 7], True),
    (pc.match_substring(s, "'"), [6], True),
    (pc.match_substring_regex(s, "^[ab]$"), [0, 1], False),
]


@pytest.fixture(scope="module")
def dataset() -> nyala.NyalaDataset:
    from nyala.engine.fs.memory import MemoryFileSystem
    from nyala.engine.options import StoreOptions
    from nyala.engine.store import Store

    database = Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    table = database.create_table("t", ROWS.schema, ["id"])
    table.insert(ROWS.slice(0, 4))
    table.maintain("flush")
    table.insert(ROWS.slice(4))
    return table.dataset()


@pytest.mark.parametrize(("expression", "ids", "is_exact"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_a_filter_means_what_it_means_in_sql(
    dataset: nyala.NyalaDataset, expression: Any, ids: list[int], is_exact: bool
) -> None:
    assert read_pushed(expression, ROWS.schema).is_exact == is_exact
    # The constant stands for "no filter" in the methods of a dataset, so it goes a longer way.
    chosen = dataset.filter(expression)
    assert sorted(chosen.to_table(["id"])["id"].to_pylist()) == ids
    assert chosen.count_rows() == len(ids)
    # All of it evaluated on batches, nothing by the store:
    found = read_everything_left(expression)
    assert found["id"].to_pylist() == ids


def read_everything_left(expression: Any) -> pa.RecordBatch:
    from nyala.clients.sql.source.evaluation import kept

    return kept(ROWS.combine_chunks().to_batches()[0], conjuncts(part_of(expression)))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (pc.field("nope") > 1, "names the column 'nope'; there are: id, n, f, g, h, s, b"),
        (pc.field(0) > 1, "instead of giving its position"),
        (pc.field("n", "inner") > 1, "names the field 'inner', which a value of type int32 lacks"),
        (pc.field("n", 0) > 1, "instead of giving its position"),
        (pc.binary_repeat(s, n) == "aa", "'binary_repeat', which is not supported"),
        (s > n, "does not take values of type string and int32"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_work_is_refused(dataset: nyala.NyalaDataset, expression: Any, message: str) -> None:
    with pytest.raises(nyala.InvalidArgumentError, match=message.replace("(", r"\(")) as raised:
        dataset.to_table(filter=expression)
    assert "\n" not in str(raised.value) and "Arrow" not in str(raised.value)


def chain(links: int) -> pc.Expression:
    found = n == 1
    for number in range(links):
        found = found | (n == number)
    return found


def nested(levels: int) -> pc.Expression:
    found = n == 1
    for number in range(levels):
        found = (found | (n == number)) & (n >= 0)
    return found


def negated(levels: int) -> pc.Expression:
    found = n == 1
    for _ in range(levels):
        found = ~found
    return found


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        (chain(50), 6),
        (chain(9_000), 6),
        (nested(30), 6),
        (nested(2_000), 6),
        (negated(2_000), 1),
        (negated(2_001), 6),
        (n.isin(list(range(40_000))), 6),
        (n.isin(list(range(140_000))), 6),
        (~n.isin(list(range(1, 140_000))), 2),
        (n.isin(list(range(30_000))) & n.isin(list(range(2, 30_000))) & n.isin(list(range(3, 30_000))), 3),
    ],
    ids=range(10),
)
def test_filters_of_any_size_work(dataset: nyala.NyalaDataset, expression: pc.Expression, rows: int) -> None:
    assert dataset.count_rows(expression) == rows


def test_every_nan_is_read_as_one(dataset: nyala.NyalaDataset) -> None:
    odd = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0xFFF8 << 48, 0x7FF8 << 48 | 1, 0x7FF0 << 48)]
    batch = pa.record_batch(
        {"k": pa.array([0, 1, 2]), "f": pa.array(odd), "g": pa.array([1.0, NAN, None], pa.float32())}
    )
    read = one_nan(batch)
    assert read["f"].view(pa.int64()).to_pylist() == [0x7FF8 << 48, 0x7FF8 << 48, 0x7FF0 << 48]
    assert read.schema == batch.schema and read["g"].null_count == 1
    assert one_nan(batch.slice(1, 1))["f"].view(pa.int64()).to_pylist() == [0x7FF8 << 48]
    for without in (batch.select(["k"]), batch.slice(2).select(["f"]), batch.slice(0, 0)):
        assert one_nan(without) is without


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_moments_that_python_lacks_are_compared(unit: str) -> None:
    late = pa.scalar(2**40 * {"s": 1, "ms": 1_000, "us": 1_000_000}[unit], pa.timestamp(unit))
    schema = pa.schema({"t": pa.timestamp("us"), "d": pa.date32()})
    for expression in (
        pc.field("t") < late,
        pc.field("t").isin(pa.array([late])),
        pc.field("d") < pa.scalar(2**31 - 1, pa.date32()),
    ):
        pushed = read_pushed(expression, schema)
        assert pushed.is_exact and pushed.where is not None
