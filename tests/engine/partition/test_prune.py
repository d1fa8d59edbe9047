"""Pruning of tablets: the metrics table of Kudu's schema design as golden tables, and a proof by brute force."""

import datetime as dt
import random

import numpy as np
import pyarrow as pa
import pytest

from nyala import hash as by_hash
from nyala import range as by_range
from nyala.engine.filter.bind import bind
from nyala.engine.filter.evaluate import select
from nyala.engine.filter.where import parse_where
from nyala.engine.partition.prune import prune
from nyala.engine.partition.router import NOWHERE, Router
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import physical_of
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.partition_schema import PartitionSchema
from nyala.schemas.table.table import TableDefinition, TableSchema

LIMITS = Limits()


class Partitioned:
    """A table that is cut, without rows."""

    def __init__(self, fields: list, *levels) -> None:
        definition = TableDefinition.from_arrow(
            "t", pa.schema(fields), [name for name, _ in fields[:-1]], partition_by=levels
        )
        self.schema = TableSchema.create(definition, LIMITS)
        self.partitions = PartitionSchema.create(definition.partition_by, self.schema, LIMITS)
        self.tablets = list(self.partitions.tablets())
        self.router = Router(self.partitions, self.schema, self.tablets)

    def bound(self, where: str):
        return bind(parse_where(where, LIMITS), self.schema)

    def left(self, where: str) -> list[int]:
        return prune(self.bound(where), self.partitions, self.schema, self.tablets).left

    def levels(self, where: str) -> list[tuple[str, int, int]]:
        found = prune(self.bound(where), self.partitions, self.schema, self.tablets).levels
        return [(each.level, each.tablets, each.left) for each in found]


METRICS = [("host", pa.string()), ("metric", pa.string()), ("time", pa.timestamp("us")), ("value", pa.float64())]
Y2014, Y2015, Y2016, Y2017 = (dt.datetime(year, 1, 1) for year in range(2014, 2018))
UNBOUNDED = Partitioned(METRICS, by_range("time", splits=[Y2015, Y2016]))
BOUNDED = Partitioned(METRICS, by_range("time", bounds=[(Y2014, Y2017)], splits=[Y2015, Y2016]))
BY_HASH = Partitioned(METRICS, by_hash("host", "metric", buckets=4))
BOTH = Partitioned(
    METRICS, by_hash("host", "metric", buckets=4), by_range("time", bounds=[(Y2014, Y2017)], splits=[Y2015, Y2016])
)
TWICE = Partitioned(METRICS, by_hash("host", buckets=4), by_hash("metric", buckets=3))


@pytest.mark.parametrize(
    ("where", "unbounded", "bounded"),
    [
        ("host = 'a'", [0, 1, 2], [0, 1, 2]),
        ("time < '2014-01-01'", [0], []),
        ("time <= '2014-01-01'", [0], [0]),
        ("time = '2015-01-01'", [1], [1]),
        ("time < '2015-01-01'", [0], [0]),
        ("time <= '2015-01-01'", [0, 1], [0, 1]),
        ("time >= '2016-01-01'", [2], [2]),
        ("time >= '2017-01-01'", [2], []),
        ("time BETWEEN '2014-06-01' AND '2015-06-01'", [0, 1], [0, 1]),
        ("time IN ('2014-06-01', '2016-06-01')", [0, 2], [0, 2]),
        ("time IN ('2014-06-01', '2015-01-01')", [0, 1], [0, 1]),
        ("time < '2014-06-01' OR time > '2016-06-01'", [0, 2], [0, 2]),
        ("time < '2014-06-01' OR host = 'a'", [0, 1, 2], [0, 1, 2]),
        ("NOT time < '2016-01-01'", [2], [2]),
        ("time > '2015-03-01' AND time < '2015-01-01'", [], []),
        ("time IS NULL", [], []),
    ],
)
def test_range_by_time(where: str, unbounded: list[int], bounded: list[int]) -> None:
    assert UNBOUNDED.left(where) == unbounded
    assert BOUNDED.left(where) == bounded


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("host = 'a' AND metric = 'cpu'", 1),
        ("metric = 'cpu' AND time > '2015-01-01' AND host = 'a' AND value > 3", 1),
        ("host = 'a'", 4),
        ("host > 'a' AND metric = 'cpu'", 4),
        ("host = 'a' AND metric <> 'cpu'", 4),
        ("host = 'a' AND metric NOT IN ('cpu', 'mem')", 4),
        ("host = 'a' AND metric = 'cpu' OR host = 'a' AND metric = 'cpu' AND value > 5", 1),
        ("(host = 'a' AND metric = 'cpu') OR value > 5", 4),
        ("host = 'a' AND host = 'b' AND metric = 'cpu'", 0),
    ],
)
def test_hash_by_host_and_metric(where: str, count: int) -> None:
    assert len(BY_HASH.left(where)) == count


def test_a_list_of_values_goes_to_their_buckets() -> None:
    one_by_one = {
        tuple(BY_HASH.left(f"host = '{host}' AND metric = '{metric}'")) for host in "ab" for metric in ("cpu", "mem")
    }
    together = BY_HASH.left("host IN ('a', 'b') AND metric IN ('cpu', 'mem')")
    assert {(each,) for each in together} == one_by_one and 1 < len(together) <= 4


@pytest.mark.parametrize(
    ("where", "by_hash", "by_range", "both"),
    [
        ("host = 'a' AND metric = 'cpu'", 3, 12, 3),
        ("time = '2015-06-01'", 12, 4, 4),
        ("host = 'a' AND metric = 'cpu' AND time >= '2016-01-01'", 3, 4, 1),
        ("host = 'a' AND time >= '2015-01-01'", 12, 8, 8),
        ("value > 0", 12, 12, 12),
        ("host = 'a' AND metric = 'cpu' AND time = '2020-01-01'", 3, 0, 0),
    ],
)
def test_hash_and_range(where: str, by_hash: int, by_range: int, both: int) -> None:
    assert BOTH.levels(where) == [("hash(host, metric)", 12, by_hash), ("range(time)", 12, by_range)]
    assert len(BOTH.left(where)) == both


@pytest.mark.parametrize(
    ("where", "by_host", "by_metric", "both"),
    [
        ("host = 'a'", 3, 12, 3),
        ("metric = 'cpu'", 12, 4, 4),
        ("host = 'a' AND metric = 'cpu'", 3, 4, 1),
        ("time > '2015-01-01'", 12, 12, 12),
        ("host = 'a' OR metric = 'cpu'", 12, 12, 12),
    ],
)
def test_hash_and_hash(where: str, by_host: int, by_metric: int, both: int) -> None:
    assert TWICE.levels(where) == [("hash(host)", 12, by_host), ("hash(metric)", 12, by_metric)]
    assert len(TWICE.left(where)) == both


# No tablet that is left out could hold a row that matches


KEY = [("a", pa.int8()), ("s", pa.string()), ("b", pa.int32()), ("v", pa.int32())]
A, S, B = [-128, -3, 0, 1, 2, 3, 4, 127], ["", "a", "a\0", "ab", "b", "\u00e9"], [-5, 0, 1, 2, 9]
VALUES = (("a", A), ("s", S), ("b", B))
LEVELS = {
    "range(a)": [by_range("a", bounds=[(None, -3), (0, 2), (2, 3), (4, None)])],
    "range(s)": [by_range("s", bounds=[("", "a"), ("a", "ab"), ("b", None)])],
    "range(a, s)": [by_range("a", "s", splits=[(0, "a"), (0, "b"), (2,)])],
    "range(s, b)": [by_range("s", "b", bounds=[(("a", 0), ("a", 5)), (("a\0", 1), ("\u00e9",))])],
    "range(b, a)": [by_range("b", "a", bounds=[((0,), (1, 2)), ((1, 2), (2,)), ((2, 1), None)])],
    "hash(a)": [by_hash("a", buckets=3, seed=5)],
    "hash(a, s)": [by_hash("a", "s", buckets=5)],
    "hash(a) x hash(s, b)": [by_hash("a", buckets=2), by_hash("s", "b", buckets=3)],
    "hash(s) x range(a)": [by_hash("s", buckets=3), by_range("a", bounds=[(-3, 1), (1, 4)])],
    "hashes of their own": [
        by_hash("s", buckets=3),
        by_range(
            "a",
            bounds=[
                (None, 0),
                {"lower": 0, "upper": 3, "hash": [by_hash("b", buckets=2), by_hash("s", buckets=2)]},
                {"lower": 3, "hash": []},
            ],
        ),
    ],
}


def literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def any_filter(dice: random.Random, depth: int = 2) -> str:
    if depth and dice.random() < 0.6:
        joined = dice.choice((" AND ", " OR ")).join(any_filter(dice, depth - 1) for _ in range(dice.choice((2, 2, 3))))
        return f"{dice.choice(('', '', 'NOT '))}({joined})"
    name, values = dice.choice((*VALUES, ("v", B)))
    match dice.randrange(6):
        case 0 | 1:
            return f"{name} = {literal(dice.choice(values))}"
        case 2:
            return f"{name} {dice.choice(('<', '<=', '>', '>=', '<>'))} {literal(dice.choice(values))}"
        case 3 | 4:
            listed = ", ".join(literal(value) for value in dice.sample(values, dice.randrange(1, 4)))
            return f"{name} {dice.choice(('IN', 'IN', 'NOT IN'))} ({listed})"
        case _:
            return f"s LIKE '{dice.choice(('a%', 'ab%', '%', 'b'))}'" if name == "s" else f"{name} IS NOT NULL"


def narrow_filter(dice: random.Random) -> str:
    """Values of all key columns."""
    parts = [f"{name} IN ({', '.join(map(literal, dice.sample(values, 2)))})" for name, values in VALUES]
    return " AND ".join([*parts, any_filter(dice, 0)])


@pytest.mark.parametrize("what", LEVELS)
def test_no_tablet_that_is_left_out_could_hold_a_match(what: str) -> None:
    table = Partitioned(KEY, *LEVELS[what])
    every = [(a, s, b, v) for a in A for s in S for b in B for v in (0, 9)]
    arrays = [pa.array(cells, kind) for cells, (_, kind) in zip(zip(*every, strict=True), KEY, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in table.schema.columns])
    numbers = table.router.numbers_of(batch)
    assert numbers is not None and set(numbers.tolist()) - {NOWHERE} == set(range(len(table.tablets)))
    cells = {
        column.id: from_arrow(array, physical_of(array.type))
        for column, array in zip(table.schema.columns, arrays, strict=True)
    }
    dice, left_out = random.Random(what), 0
    for _ in range(150):
        where = any_filter(dice) if dice.random() < 0.5 else narrow_filter(dice)
        bound = table.bound(where)
        known = {column_id: cells[column_id] for column_id in bound.column_ids}
        matching = (
            numbers[select(bound, known, len(every))] if known else numbers[: 0 if bound.is_trivially_false else None]
        )
        left = table.left(where)
        assert set(np.unique(matching).tolist()) - {NOWHERE} <= set(left), where
        left_out += len(table.tablets) - len(left)
    assert left_out > 50  # it is no proof to leave out nothing


@pytest.mark.parametrize("what", [what for what in LEVELS if "range" in what or "own" in what])
def test_rows_go_to_the_range_that_their_values_lie_in(what: str) -> None:
    """What the tablets' partitions say of the values, compared as tuples in Python."""
    table = Partitioned(KEY, *LEVELS[what])
    every = [(a, s, b) for a in A for s in S for b in B]
    arrays = [pa.array(cells, kind) for cells, (_, kind) in zip(zip(*every, strict=True), KEY[:3], strict=True)]
    numbers = table.router.numbers_of(pa.RecordBatch.from_arrays(arrays, names=["1", "2", "3"]))
    assert numbers is not None
    for row, number in zip(every, numbers.tolist(), strict=True):
        values = tuple(row[column_id - 1] for column_id in table.partitions.range_columns)
        holding = {
            (each.lower, each.upper)
            for each in table.tablets
            if each.lower <= values and (not each.upper or values < each.upper)
        }
        found = set() if number == NOWHERE else {(table.tablets[number].lower, table.tablets[number].upper)}
        assert found == holding, row
