"""Timestamps of 96 bits in Parquet files, as Spark writes them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.jobs import load
from nyala.schemas.errors import InvalidArgumentError

SPARK = [dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 0, 1)]
NESTED = [
    pa.list_(pa.timestamp("us")),
    pa.struct([("at", pa.timestamp("us"))]),
    pa.map_(pa.string(), pa.timestamp("us")),
]


def spark_file(path: Path) -> pa.Table:
    """A file with timestamps of 96 bits, also in lists, structs and maps."""
    cells = [pa.array(SPARK, pa.timestamp("us"))]
    cells += [pa.array([make(at) for at in SPARK], kind) for make, kind in zip(_MAKERS, NESTED, strict=True)]
    rows = pa.table({"id": pa.array([1, 2, 3]), "at": cells[0], "l": cells[1], "s": cells[2], "m": cells[3]})
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    assert pq.read_schema(path).field("at").type == pa.timestamp("ns")
    return rows


_MAKERS = [lambda at: [at, None], lambda at: {"at": at}, lambda at: [("k", at)]]


def test_an_import_has_all_years(tmp_path: Path) -> None:
    rows = spark_file(tmp_path / "a.parquet")
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", rows.schema, ["id"])
        table.bulk_import(str(tmp_path / "a.parquet"))
        assert table.scan(rows.schema.names, ordered=True).to_arrow().to_pylist() == rows.to_pylist()
        at = pa.array([1_001], pa.timestamp("ns"))
        pq.write_table(pa.table({"id": [9], "at": at}), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
        with pytest.raises(InvalidArgumentError, match="fraction of a microsecond"):
            table.bulk_import(str(tmp_path / "b.parquet"))


@pytest.mark.parametrize("way", ["load", "upsert", "create"])
def test_timestamps_of_96_bits_have_all_years(target: Database, tmp_path: Path, way: str) -> None:
    rows = spark_file(tmp_path / "a.parquet")
    if way == "create":
        table = target.create_table("t", primary_key=["id"], data=str(tmp_path / "a.parquet"))
    else:
        table = target.create_table("t", rows.schema, ["id"])
        if way == "load":
            assert load(target, "t", tmp_path / "a.parquet").applied == 3
        else:
            table.upsert(str(tmp_path / "a.parquet"))
    assert table.scan(rows.schema.names, ordered=True).to_arrow().to_pylist() == rows.to_pylist()


def test_timestamps_of_96_bits_lose_no_digits(target: Database, tmp_path: Path) -> None:
    for number, nested in enumerate([False, True]):
        at = pa.array([1_000, 1_001, 2_000], pa.timestamp("ns"))
        cells = pa.ListArray.from_arrays([0, 1, 2, 3], at) if nested else at
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": [1, 2, 3], "at": cells}), file, use_deprecated_int96_timestamps=True)
        kind = pa.list_(pa.timestamp("us")) if nested else pa.timestamp("us")
        table = target.create_table(f"t{number}", pa.schema([("id", pa.int64()), ("at", kind)]), ["id"])
        result = load(target, f"t{number}", file)
        assert (result.applied, [(error.row, error.message) for error in result.errors]) == (
            2,
            [(1, "column 'at': a fraction of a microsecond does not fit")],
        )
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]
        with pytest.raises(InvalidArgumentError, match="fraction of a microsecond"):
            table.upsert(str(file))
