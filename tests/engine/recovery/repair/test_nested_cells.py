"""A repair of lists, structs and maps that may not be NULL: rows whose cells are lost are dropped, and all is sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.repair import repair_store
from nyala.engine.recovery.verify import verify_store
from nyala.flight_server.commands.backups import FolderBackups
from nyala.jobs import backup
from nyala.schemas.errors import CorruptionError

PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "list": (pa.list_(PAIR), [{"a": 1, "b": "x"}]),
    "struct": (PAIR, {"a": 1, "b": "x"}),
    "map": (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
    "two": (pa.list_(PAIR, 2), [{"a": 1, "b": "x"}, None]),
}


def _harm_cells(store: Path) -> None:
    """Damage the page with the cells of the second column, and nothing else."""
    (file,) = store.glob("tablets/2/*.base")
    sound = file.read_bytes()
    for offset in range(64, len(sound)):
        file.write_bytes(sound[:offset] + bytes([sound[offset] ^ 1]) + sound[offset + 1 :])
        try:
            reader = CFileReader.open(LocalFileSystem(store), f"tablets/2/{file.name}", int(file.stem))
        except CorruptionError:
            continue
        try:
            reader.stream(StreamKey(2, "base")).read(0, 10)
        except CorruptionError:
            return
        finally:
            reader.close()
    raise AssertionError("the column has a page")


@pytest.mark.parametrize("has_backup", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_lost_cells_of_a_nested_column_that_is_not_null(tmp_path: Path, name: str, has_backup: bool) -> None:
    store, (kind, cell) = tmp_path / "store", KINDS[name]
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("n", kind, False)])
    with nyala.open(store, maintenance="off", wal_segment_bytes=1 << 16) as db:
        table = db.create_table("t", schema, "k")
        table.upsert([{"k": key, "n": cell} for key in range(10)])
        backup(db, "t", tmp_path / "backups")
        table.maintain("flush")
        rows = table.scan(ordered=True).to_arrow()
        filler = db.create_table("filler", pa.schema([("k", pa.int64()), ("s", pa.string())]), "k")
        for key in range(3):  # the log tells no more of what is in files
            filler.upsert([{"k": key, "s": "x" * 60_000}])
        filler.maintain("flush")
        db.drop_table("filler")
    _harm_cells(store)
    with FolderBackups(tmp_path / "backups") as backups:
        report = repair_store(LocalFileSystem(store), apply=True, backups=backups if has_backup else None)
    assert report.repairs[0].rows_lost == (0 if has_backup else 10)
    assert verify_store(LocalFileSystem(store)).is_sound
    with nyala.open(store, maintenance="off") as db:
        found = db.table("t").scan(ordered=True).to_arrow()
        assert found.equals(rows if has_backup else rows.schema.empty_table())
