"""No write is acknowledged into a log file that somebody has deleted, replaced or cut: the store is read-only then."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.schemas.errors import UnavailableError

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])


def replace(file: Path) -> None:
    shutil.copyfile(file, file.with_suffix(".copy"))
    file.with_suffix(".copy").rename(file)


def cut(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size)


HARM: dict[str, Callable[[Path], object]] = {
    "deleted": lambda file: file.unlink(),
    "moved away": lambda file: file.rename(file.with_suffix(".old")),
    "replaced by a copy": replace,
    "cut to nothing": lambda file: cut(file, 0),
    "cut by its last byte": lambda file: cut(file, file.stat().st_size - 1),
    "its directory moved": lambda file: file.parent.rename(file.parent.with_name("elsewhere")),
}


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("harm", HARM)
def test_a_lost_log_file_stops_writes_and_not_reads(tmp_path: Path, harm: str, durability: str) -> None:
    with nyala.open(tmp_path, durability=durability, maintenance="off") as db:
        table: Table = db.create_table("t", SCHEMA, primary_key=["k"])
        table.upsert({"k": [1], "v": ["before"]})
        (file,) = (tmp_path / "wal").iterdir()
        HARM[harm](file)
        with pytest.raises(UnavailableError, match=f"wal/{file.name} was deleted, replaced or cut"):
            table.upsert({"k": [2], "v": ["lost"]})
        with pytest.raises(UnavailableError, match="restart"):
            table.upsert({"k": [3], "v": ["too"]})
        health = db._store.health()
        assert health.status == "read_only" and file.name in health.reason
        assert str(tmp_path) not in health.reason
        assert table.get((1,)) == {"k": 1, "v": "before"}
        assert table.scan().to_arrow()["k"].to_pylist() == [1], "what was not acknowledged is not shown"


def test_a_lost_file_that_is_no_longer_written_to_stops_nothing(tmp_path: Path) -> None:
    with nyala.open(tmp_path, wal_segment_bytes=1 << 16, maintenance="off") as db:
        table: Table = db.create_table("t", SCHEMA, primary_key=["k"])
        cells = ["x" * 20_000] * 3
        for number in range(4):
            table.upsert({"k": [3 * number, 3 * number + 1, 3 * number + 2], "v": cells})
        oldest = min((tmp_path / "wal").iterdir())
        table.maintain("flush")
        assert not oldest.exists(), "the store frees its log"
        table.upsert({"k": [100], "v": ["goes on"]})
        assert table.get((100,)) == {"k": 100, "v": "goes on"}
