"""Backups of a table whose past is another one than at the last backup: an increment would not lead to its rows."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.jobs.backup import parts
from nyala.jobs import backup, checksum, restore

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
HASHED = [nyala.hash("id", buckets=4)]


def test_a_directory_that_was_put_back_starts_a_new_chain(tmp_path: Path, target: Database) -> None:
    """The rows of the history that was given up are in the backups, and no change removes them."""
    home, folder = tmp_path / "store", tmp_path / "backups"
    with nyala.open(home) as db:
        db.create_table("t", SCHEMA, ["id"]).insert({"id": [1, 2]})
        backup(db, "t", folder)
    shutil.copytree(home, tmp_path / "earlier")
    with nyala.open(home) as db:
        db.table("t").insert({"id": [3]})
        assert backup(db, "t", folder).kind == "increment"
    shutil.rmtree(home)
    (tmp_path / "earlier").rename(home)
    with nyala.open(home) as db:
        db.table("t").insert({"id": [4]})
        made = backup(db, "t", folder)
        assert made.kind == "full" and "had 3 rows at the last backup" in (made.why_full or "")
        db.table("t").insert({"id": [5]})
        assert backup(db, "t", folder).kind == "increment"
        restore(target, folder, "t")
        assert checksum(target, "t").is_same(checksum(db, "t"))


def test_a_backup_beside_another_ttl_starts_again(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads go by the present one: the parts would be of two states."""
    now = datetime.now(UTC).replace(tzinfo=None)
    table = source.create_table("t", SCHEMA, ["id"], HASHED, ttl="at + 30d")
    table.insert({"id": list(range(100)), "at": [now] * 100})
    backup(source, "t", tmp_path)
    table.upsert({"id": list(range(100)), "at": [now - timedelta(days=each % 20) for each in range(100)]})
    write, written = parts._write_file, []

    def alter_between(*given: object) -> object:
        written.append(given)
        if len(written) == 2:
            table.alter().set_option("ttl", "at + 5d").apply()
        return write(*given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(parts, "_write_file", alter_between)
    made = backup(source, "t", tmp_path, workers=1)
    assert made.kind == "full" and "expire at other times" in (made.why_full or "")
    assert made.checksum == checksum(source, "t", as_of=made.until).checksum
    assert restore(target, tmp_path, "t").verified
