"""Filters and aggregates in one kernel call, beside a read of vectors: the same answers, whatever was done before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.rowset.rowset import RowSet
from nyala.engine.store import Store
from nyala.schemas.errors import CorruptionError
from nyala.schemas.table.column import ColumnOptions

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 20)
ROWS = 3_300
REALS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324, None]
CENTS = [0, 1, -1, 250, -250, (1 << 63) - 1, -(1 << 63), None]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [-128, -1, 0, 5, 127, None]),
    "small": (pa.int16(), [-32768, 7, 8, 32767, None]),
    "word": (pa.int32(), [-(1 << 31), -7, 0, 7, (1 << 31) - 1, None]),
    "long": (pa.int64(), CENTS),
    "sure": (pa.int32(), [3, 4, 5]),
    "single": (pa.float32(), [*REALS[:-2], 0.25, math.nan, None]),
    "double": (pa.float64(), REALS),
    "flag": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["", "a", "b", "ab", "c", None]),
    "wide": (pa.decimal128(20, 2), [Decimal("0.00"), Decimal("0.01"), Decimal("1.00"), None]),
    "any": (pa.string(), [f"plain {number}" for number in range(50)]),
}
ENCODINGS = {"small": "run_length", "long": "bitshuffle", "word": "frame_of_reference", "double": "alp", "any": "plain"}
LITERALS = {
    "tiny": ["-128", "0", "5", "2.5", "127", "1000"],
    "small": ["7", "8.5", "-32768"],
    "word": ["-7", "0", "2147483647", "-2147483648"],
    "long": ["0", "250", "9223372036854775807", "-9223372036854775808"],
    "sure": ["3", "4", "5"],
    "single": ["0.0", "-0.0", "0.25", "1.5", "0.1"],
    "double": ["0.0", "-0.0", "1.5", "1e308"],
    "flag": ["true", "false"],
    "text": ["''", "'a'", "'ab'", "'zz'"],
    "wide": ["0", "0.01", "1"],
    "any": ["'plain 3'"],
}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        yield store


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the kernels decided, and how often they could not."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> None:
        method = getattr(DiskRowSet, name)

        def call(self: DiskRowSet, *arguments: Any) -> Any:
            found = method(self, *arguments)
            counts[name if found is not None else f"no {name}"] += 1
            return found

        monkeypatch.setattr(DiskRowSet, name, call)

    counted("choose")
    counted("fold")
    return counts


def mixed_table(store: Store, random: Random) -> Table:
    """Return a table of cells at the ends of their types, in several encodings, changed and deleted here and there."""
    fields = [pa.field("k", pa.int64(), False)]
    fields += [pa.field(name, kind, None in values) for name, (kind, values) in VALUES.items()]
    options = {name: ColumnOptions(encoding=encoding) for name, encoding in ENCODINGS.items()}
    table = Database(store).create_table("t", pa.schema(fields), ["k"], column_options=options)
    table.insert(_rows(table, random, range(0, 2 * ROWS, 2)))
    table.maintain("flush")
    table.upsert(_rows(table, random, range(0, 2 * ROWS, 34)))
    table.maintain("flush_deltas")
    table.upsert(_rows(table, random, range(0, 500, 6)))
    table.delete({"k": list(range(100, 2 * ROWS, 222))})
    table.insert(_rows(table, random, range(1, 200, 2)))  # in memory
    return table


def _rows(table: Table, random: Random, keys: range) -> pa.Table:
    columns = {name: random.choices(values, k=len(keys)) for name, (_, values) in VALUES.items()}
    return pa.table({"k": list(keys), **columns}, table.schema)


def some_leaf(random: Random) -> str:
    name = random.choice(list(VALUES))
    literals = LITERALS[name]
    negated = random.choice(["", "not "])
    match random.randrange(5):
        case 0:
            return f"{name} is {negated}null"
        case 1:
            return f"{name} {negated}in ({', '.join(random.choices(literals, k=random.randrange(1, 4)))})"
        case 2:
            return f"{name} {negated}between {random.choice(literals)} and {random.choice(literals)}"
    return f"{negated}{name} {random.choice(['=', '<>', '<', '<=', '>', '>='])} {random.choice(literals)}"


def some_filter(random: Random, depth: int = 2) -> str:
    if depth == 0 or random.random() < 0.3:
        return some_leaf(random)
    parts = [some_filter(random, depth - 1) for _ in range(random.randrange(2, 4))]
    return "(" + random.choice([" and ", " or "]).join(parts) + ")"


def some_aggregate(random: Random) -> tuple[dict[str, tuple[str, str]], list[str]]:
    measures = {"n": ("*", "count")}
    for number in range(random.randrange(4)):
        name = random.choice([name for name in VALUES if name != "any"])
        functions = ["count", "min", "max"] + ["sum", "avg"] * (name not in ("flag", "text"))
        measures[f"m{number}"] = (name, random.choice(functions))
    return measures, random.sample(
        ["tiny", "sure", "flag", "text", "small", "any", "wide"], random.choice([0, 0, 1, 1, 2])
    )


def agree(read: Callable[[], pa.Table], monkeypatch: pytest.MonkeyPatch, what: object) -> None:
    found = read()
    with monkeypatch.context() as patched:
        for name in ("choose", "fold"):
            patched.setattr(DiskRowSet, name, getattr(RowSet, name))
        expected = read()
    assert found.schema == expected.schema
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), what


def test_both_ways_agree_on_random_filters_and_aggregates(
    store: Store, ways: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = Random().randrange(1 << 30)
    print("seed", seed)
    random = Random(seed)
    table = mixed_table(store, random)
    for _ in range(60):
        where = some_filter(random)
        agree(lambda where=where: table.scan(["k"], where=where).to_arrow(), monkeypatch, where)
        measures, groups = some_aggregate(random)
        filtered = table.scan(where=random.choice([where, None]))
        asked = where, measures, groups
        agree(lambda asked=asked, scan=filtered: scan.aggregate(asked[1], asked[2]), monkeypatch, asked)
    assert min(ways["choose"], ways["no choose"], ways["fold"], ways["no fold"]) > 0


def test_integers_outside_the_zone_maps_are_grouped_another_way(store: Store, ways: Counter[str]) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), ("g", pa.int32())])
    table = Database(store).create_table("t", schema, ["k"])
    table.insert({"k": list(range(2_000)), "g": [n % 3 for n in range(2_000)]})
    table.maintain("flush")

    def groups() -> list[int]:
        found = table.scan(where="k > 2").aggregate({"n": ("*", "count")}, ["g"])
        return sorted(row["g"] for row in found.to_pylist())

    assert groups() == [0, 1, 2]
    assert (ways["fold"], ways["no fold"]) == (1, 0)
    table.update({"k": [5], "g": [-1_000_000]})
    assert groups() == [-1_000_000, 0, 1, 2]
    assert (ways["fold"], ways["no fold"]) == (1, 1)


def test_an_integer_just_above_the_zone_maps_is_not_null(store: Store, ways: Counter[str]) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), ("g", pa.int32())])
    table = Database(store).create_table("t", schema, ["k"])
    table.insert({"k": list(range(2_000)), "g": [*(n % 3 for n in range(1_999)), None]})
    table.maintain("flush")
    table.update({"k": [5], "g": [3]})
    found = table.scan(where="k > 2").aggregate({"n": ("*", "count")}, ["g"]).to_pylist()
    counts = {row["g"]: row["n"] for row in found}
    assert (counts[3], counts[None]) == (1, 1)
    assert ways["no fold"] == 1


def test_a_damaged_block_is_reported(store: Store) -> None:
    table = mixed_table(store, Random(1))
    (tablet,) = store._catalog.table("t").tablets
    (rowset,) = tablet.version.on_disk
    stored = rowset.base_stream(store._catalog.table("t").schema.column("long").id).page(0).stored
    kept = stored[-9:].copy()
    stored[-9:] = 0xFF  # in memory: its checksum was right
    for read in (
        lambda: table.scan(where="long > 0").count(),
        lambda: table.scan().aggregate({"s": ("long", "sum")}, []),
    ):
        with pytest.raises(CorruptionError, match="is not a valid LZ4 block"):
            read()
    stored[-9:] = kept
    assert table.scan(where="long is not null or long is null").count() > 3_000
