"""The client's way to the tablet of a row against the engine's."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.cluster import hashing
from nyala.clients.cluster.router import NOWHERE, TabletRouter
from nyala.engine.partition.router import Router
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import physical_of
from nyala.engine.vectors.raw_cell import raw_cell
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.column import ColumnDefinition
from nyala.schemas.table.partition import Level
from nyala.schemas.table.partition import hash as by_hash
from nyala.schemas.table.partition import range as by_range
from nyala.schemas.table.partition_schema import PartitionSchema
from nyala.schemas.table.table import TableDefinition, TableSchema

RANDOM = np.random.default_rng(7)
ROWS = 3_000


def integers(bits: int) -> list[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    near = RANDOM.integers(-50, 50, ROWS - 2).tolist()
    return [
        low,
        high,
        *(
            value if spread else near[at]
            for at, (value, spread) in enumerate(
                zip(
                    RANDOM.integers(low, high, ROWS - 2, endpoint=True).tolist(),
                    RANDOM.random(ROWS - 2) < 0.5,
                    strict=True,
                )
            )
        ),
    ]


def texts() -> list[str]:
    lengths = RANDOM.integers(0, 90, ROWS)
    letters = list("abcxyz \0\u00e9\U0001f600~")
    return ["".join(RANDOM.choice(letters, length)) for length in lengths]


VALUES: dict[str, list[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "date": [dt.date(1969, 1, 1) + dt.timedelta(days=int(day)) for day in RANDOM.integers(0, 40_000, ROWS)],
    "timestamp[us]": [
        dt.datetime(1950, 1, 1) + dt.timedelta(seconds=int(s)) for s in RANDOM.integers(0, 1 << 32, ROWS)
    ],
    "decimal(7,2)": [Decimal(int(value)).scaleb(-2) for value in RANDOM.integers(-9_999_999, 9_999_999, ROWS)],
    "decimal(18,3)": [Decimal(int(value)).scaleb(-3) for value in RANDOM.integers(-(10**17), 10**17, ROWS)],
    "decimal(38,4)": [
        Decimal(value * 10**k).scaleb(-4) for value, k in zip(integers(32), [0, 5, 20] * 1000, strict=True)
    ],
    "string": texts(),
    "varchar(3)": texts(),
    "binary": [text.encode() for text in texts()],
}


def schema_of(kinds: Sequence[str]) -> TableSchema:
    columns = [ColumnDefinition(name=f"c{place}", type=kind, nullable=False) for place, kind in enumerate(kinds)]
    names = [column.name for column in columns]
    return TableSchema.create(TableDefinition(name="t", columns=columns, primary_key=names), Limits())


def random_rows(kinds: Sequence[str], schema: TableSchema) -> pa.RecordBatch:
    arrays = [pa.array(VALUES[kind], column.logical.arrow) for kind, column in zip(kinds, schema.key, strict=True)]
    return pa.record_batch(arrays, names=[column.name for column in schema.key])


def check(kinds: Sequence[str], levels: Sequence[Level], given: pa.RecordBatch | None = None) -> np.ndarray:
    """Compare both routers on random rows; return the numbers."""
    schema = schema_of(kinds)
    partitions = PartitionSchema.create(levels, schema, Limits())
    rows = random_rows(kinds, schema) if given is None else given
    arrays = list(rows.columns)
    for place, column in enumerate(schema.key):
        if column.logical.name == "varchar":
            arrays[place] = pa.array([text[: column.logical.length] for text in arrays[place].to_pylist()])
    by_id = pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in schema.key])
    router = Router(partitions, schema, list(partitions.tablets()))
    wanted = router.numbers_of(by_id)
    found = TabletRouter(partitions, schema.columns).numbers_of(rows)
    vectors = [from_arrow(cells, physical_of(cells.type)) for cells in by_id.columns]
    keys = [[raw_cell(vector, row) for vector in vectors] for row in range(0, rows.num_rows, 7)]
    wanted = np.zeros(rows.num_rows, np.int64) if wanted is None else wanted
    assert [router.number_of_cells(key) for key in keys] == wanted[::7].tolist()
    np.testing.assert_array_equal(found, wanted)
    check_keys(partitions, schema, rows, found)
    return found


def check_keys(partitions: PartitionSchema, schema: TableSchema, rows: pa.RecordBatch, wanted: np.ndarray) -> None:
    """Compare the way of single rows, which leaves some to that of batches."""
    router = TabletRouter(partitions, schema.columns)
    cells = [rows.column(column.name).to_pylist() for column in router.columns]
    found = [router.number_of(values) for values in zip(*cells, strict=True)]
    assert all(number in (None, other) for number, other in zip(found, wanted.tolist(), strict=True))
    is_plain = all(
        column.logical.is_integer or column.logical.name in ("string", "binary") for column in router.columns
    )
    assert not is_plain or found.count(None) <= 0.2 * len(found)


@pytest.mark.parametrize("kind", VALUES)
def test_hash_of_every_type(kind: str) -> None:
    numbers = check([kind], [by_hash("c0", buckets=16)])
    assert len(set(numbers.tolist())) > 8


@pytest.mark.parametrize("kind", ["decimal(38,4)", "string", "binary"])
def test_hash_of_large_groups_of_equal_length(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "LARGE_GROUP", 0)
    numbers = check([kind], [by_hash("c0", buckets=16)])
    assert len(set(numbers.tolist())) > 8


def test_hashes_of_several_columns_and_levels() -> None:
    kinds = ["string", "int64", "decimal(38,4)"]
    numbers = check(kinds, [by_hash("c1", "c0", buckets=5), by_hash("c2", buckets=7, seed=3)])
    assert set(numbers.tolist()) == set(range(35))


@pytest.mark.parametrize("kind", VALUES)
def test_ranges_of_every_type(kind: str) -> None:
    ordered = sorted(set(VALUES[kind])) if kind != "varchar(3)" else ["ab", "b", "x", "xy"]
    cuts = [ordered[len(ordered) * part // 5] for part in range(1, 5)]
    bounds = [(None, cuts[0]), (cuts[1], cuts[2]), (cuts[2], cuts[3]), (cuts[3], None)]
    numbers = check([kind], [by_range("c0", bounds=bounds)])
    assert set(numbers.tolist()) >= {NOWHERE, 0, 2, 3} or kind == "varchar(3)"


def test_ranges_of_several_columns_with_hashes_of_their_own() -> None:
    bounds = [
        {"lower": (-40,), "upper": (0, "b")},
        {"lower": (0, "b"), "upper": (0, "x"), "hash": [by_hash("c1", buckets=3)]},
        {"lower": (0, "x"), "upper": (30,), "hash": []},
    ]
    numbers = check(["int8", "string"], [by_hash("c0", buckets=2), by_range("c0", "c1", bounds=bounds)])
    assert set(numbers.tolist()) >= {NOWHERE, 0, 1, 5}


def test_rows_as_they_are_sent() -> None:
    """Other types that the store casts, slices, dictionaries; and what it refuses may go anywhere."""
    levels = [by_hash("c0", "c1", buckets=4)]
    sent = pa.record_batch(
        [pa.array([1.0, 2.0, 3.0] * 10), pa.array(["x", "y", "z"] * 10).dictionary_encode()], names=["c0", "c1"]
    )
    plain = pa.record_batch([pa.array([1, 2, 3] * 10), pa.array(["x", "y", "z"] * 10)], names=["c0", "c1"])
    schema = schema_of(["int64", "string"])
    router = TabletRouter(PartitionSchema.create(levels, schema, Limits()), schema.columns)
    np.testing.assert_array_equal(router.numbers_of(sent), router.numbers_of(plain))
    np.testing.assert_array_equal(router.numbers_of(plain.slice(4, 9)), router.numbers_of(plain)[4:13])
    strange = pa.record_batch([pa.array([None, 1.5, float("nan")]), pa.array([None, "y", "z"])], names=["c0", "c1"])
    assert set(router.numbers_of(strange).tolist()) <= set(range(4))


@pytest.mark.parametrize("value", [None, True, 1.0, "1", 1 << 63, -(1 << 63) - 1])
def test_a_single_value_of_another_type_is_left_to_batches(value: Any) -> None:
    schema = schema_of(["int64"])
    router = TabletRouter(PartitionSchema.create([by_hash("c0", buckets=4)], schema, Limits()), schema.columns)
    assert router.number_of([value]) is None


def test_no_rows() -> None:
    empty = pa.record_batch([pa.array([], pa.string())], names=["c0"])
    assert len(check(["string"], [by_hash("c0", buckets=4)], empty)) == 0


def test_a_client_without_xxhash_is_told_what_to_install() -> None:
    script = "import sys; sys.modules['xxhash'] = None; import nyala.clients.cluster.store"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a client of several servers needs xxhash: pip install 'nyala[servers]'" in done.stderr
