"""Damage that is found while the store runs is shown by `health` and logged once, and costs nobody else."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.manifest.damage import DamageRegistry
from nyala.schemas.errors import CorruptionError, RemoteCorruptionError, UnavailableError, UnreadableFileError
from nyala.schemas.store.description import Health

PLAIN = {"v": nyala.ColumnOptions(encoding="plain", compression="none")}


def filled(path: Path) -> Path:
    """Make a store of two tables, of one file each; return the file of the table `cold`."""
    with nyala.open(path) as db:
        for name in ("cold", "warm"):
            schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
            table = db.create_table(name, schema, primary_key=["k"], column_options=PLAIN)
            table.upsert({"k": list(range(10)), "v": [f"value {number}" for number in range(10)]})
            table.maintain("flush")
    return sorted(path.glob("tablets/*/*.base"))[0]


def flip(file: Path, what: bytes) -> None:
    """Change one bit of the place where `what` stands in a file."""
    content = bytearray(file.read_bytes())
    place = content.index(what)
    content[place] ^= 1
    file.write_bytes(content)


def health(db: Database) -> Health:
    return db._store.health()


def test_health_and_log_name_a_damaged_file_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = filled(tmp_path)
    flip(file, b"value 3")
    name = str(file.relative_to(tmp_path))
    with nyala.open(tmp_path) as db, caplog.at_level(logging.ERROR, "nyala.damage"):
        assert health(db).status == "ok"
        for _ in range(3):
            with pytest.raises(CorruptionError, match=name):
                db.table("cold").scan().to_arrow()
        with pytest.raises(CorruptionError, match=name):
            db.table("cold").get((3,))
        found = health(db)
        assert found.status == "degraded" and found.takes_writes
        (damaged,) = found.damaged
        assert (damaged.path, damaged.table, damaged.is_quarantined) == (name, "cold", False)
        assert damaged.offset > 0 and "checksum" in damaged.why and "nyala verify" in damaged.next_step
        assert [record.getMessage() for record in caplog.records if name in record.getMessage()] == [
            f"damaged file {name} at byte {damaged.offset}: {damaged.why}"
        ]
        assert db.table("cold").scan(["k"]).to_arrow().num_rows == 10, "a column that is not damaged is read"
        assert db.table("warm").scan().to_arrow().num_rows == 10
        db.table("warm").upsert({"k": [1], "v": ["new"]})
        db.drop_table("cold")
        assert health(db).status == "ok", "what was dropped is nobody's damage"


def test_only_files_of_the_store_are_noted() -> None:
    registry = DamageRegistry()
    errors: list[Callable[[], Exception]] = [
        lambda: CorruptionError("imports/1/part.base", 0, "somebody's file"),
        lambda: RemoteCorruptionError("another server's file"),
        lambda: UnavailableError("not now"),
        lambda: ValueError("no error of a store"),
    ]
    for error in errors:
        registry.note(error())
    assert registry.found() == []
    registry.note(UnreadableFileError("tablets/1/2.base", "Input/output error"))
    assert [(damage.path, damage.why) for damage in registry.found()] == [("tablets/1/2.base", "Input/output error")]
