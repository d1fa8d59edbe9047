"""A folder of backups is of one store: what another store holds is never taken for what the folder continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.jobs import backup, checksum, restore
from nyala.schemas.errors import InvalidArgumentError
from tests.clients.jobs.job_rows import rows

Make = Callable[[], Database]


def test_a_restored_table_does_not_continue_the_folder_it_came_from(
    source: Database, homes: Table, make_database: Make, tmp_path: Path
) -> None:
    """The row that is deleted in the restored store would come back with the next restore."""
    made = [backup(source, "homes", tmp_path)]
    homes.upsert(rows(range(10), 3))
    made.append(backup(source, "homes", tmp_path))
    fresh = make_database()
    restore(fresh, tmp_path, "homes")
    fresh.table("homes").delete({"id": [7]})
    kept = sorted(str(path) for path in tmp_path.rglob("*"))
    for force_full in (False, True):
        with pytest.raises(InvalidArgumentError, match=r"backups of another store .* use another folder"):
            backup(fresh, "homes", tmp_path, force_full=force_full)
    assert kept == sorted(str(path) for path in tmp_path.rglob("*"))
    own = backup(fresh, "homes", tmp_path / "of the fresh one")
    assert own.kind == "full"
    again = make_database()
    assert restore(again, tmp_path / "of the fresh one", "homes").verified
    assert again.table("homes").get((7,)) is None
    homes.delete({"id": [8]})  # the store of the folder goes on
    made.append(backup(source, "homes", tmp_path))
    assert [each.kind for each in made] == ["full", "increment", "increment"]
    for each in made:
        restore(again, tmp_path, "homes", at=each.until, name=f"at {each.until}")
        assert checksum(again, f"at {each.until}").is_same(checksum(source, "homes", as_of=each.until))


def test_a_store_whose_table_has_another_number(source: Database, homes: Table, make_database: Make, tmp_path: Path):
    """Its backups would lie in a folder beside, by the same name: a restore would take the newest of either."""
    backup(source, "homes", tmp_path)
    fresh = make_database()
    fresh.create_table("other", homes.schema, ["id"])
    restore(fresh, tmp_path, "homes")
    assert fresh.table("homes").describe()["table_id"] != homes.describe()["table_id"]
    with pytest.raises(InvalidArgumentError, match="backups of another store"):
        backup(fresh, "homes", tmp_path)
    with pytest.raises(InvalidArgumentError, match="backups of another store"):
        backup(fresh, "other", tmp_path)


def test_a_store_keeps_its_identity(tmp_path: Path) -> None:
    files = MemoryFileSystem()
    told = []
    for _ in range(2):
        with Store.open(files, StoreOptions(maintenance="off")) as store:
            db = Database(store)
            table = db.create_table("t", rows(range(1)).schema, ["id"], if_not_exists=True)
            assert table.describe()["stores"] == [
                {"store_uuid": store.health().store_uuid, "table_id": 1, "server": None}
            ]
            told.append(store.health().store_uuid)
            backup(db, "t", tmp_path)
    assert told[0] == told[1] and len(told[0]) == 32
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        assert store.health().store_uuid != told[0]


def test_notes_that_do_not_say_whose_they_are(
    source: Database, homes: Table, make_database: Make, tmp_path: Path
) -> None:
    """Those of version 0.1: nothing is taken for granted, the next backup is a full one, and says why."""
    first = backup(source, "homes", tmp_path)
    note = Path(first.folder) / "metadata.json"
    said = json.loads(note.read_text())
    del said["table"]["stores"], said["seal"]
    note.write_text(json.dumps(said))
    (tmp_path / "store.json").unlink()
    homes.delete({"id": [1]})
    made = backup(source, "homes", tmp_path)
    assert made.kind == "full"
    assert made.why_full is not None and "not name its store" in made.why_full
    homes.delete({"id": [2]})
    last = backup(source, "homes", tmp_path)
    assert (last.kind, last.why_full) == ("increment", None)
    fresh = make_database()
    for each in (first, made, last):
        restore(fresh, tmp_path, "homes", at=each.until, name=f"at {each.until}")
        assert checksum(fresh, f"at {each.until}").is_same(checksum(source, "homes", as_of=each.until))


def test_a_table_made_anew_under_its_name(source: Database, homes: Table, make_database: Make, tmp_path: Path) -> None:
    """Restored into its own store after it was dropped: a chain of its own, beside the old one, by the same name."""
    old = backup(source, "homes", tmp_path)
    before = checksum(source, "homes")
    source.drop_table("homes")
    restore(source, tmp_path, "homes")
    source.table("homes").delete({"id": list(range(100))})
    new = backup(source, "homes", tmp_path)
    assert new.kind == "full"
    fresh = make_database()
    restore(fresh, tmp_path, "homes", at=old.until, name="then")
    assert checksum(fresh, "then").is_same(before)
    restore(fresh, tmp_path, "homes", name="now")
    assert fresh.table("now").scan().count() == 400


def test_every_restore_is_verified(source: Database, homes: Table, make_database: Make, tmp_path: Path) -> None:
    until = [backup(source, "homes", tmp_path).until]
    homes.upsert(rows(range(480, 560), 4))
    homes.delete({"id": list(range(30))})
    until.append(backup(source, "homes", tmp_path).until)
    homes.alter().add_column("stars", "int16", nullable=False, read_default=3).drop_column("city").apply()
    homes.update({"id": [77], "stars": [5]})
    until.append(backup(source, "homes", tmp_path).until)
    homes.delete({"id": [78]})
    until.append(backup(source, "homes", tmp_path).until)
    for moment in until:
        assert restore(make_database(), tmp_path, "homes", at=moment).verified
