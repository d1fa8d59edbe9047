"""Tables with quotas: what held them once is restored and copied, whatever they are now, and they hold again then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.store import Store
from nyala.flight_server.commands.backups import FolderBackups
from nyala.jobs import backup, checksum, copy_table, restore
from nyala.schemas.errors import PermissionDeniedError, StorageFullError
from nyala.schemas.table.alter import Alteration, SetOption
from tests.clients.jobs.job_rows import rows


@pytest.fixture
def smaller(source: Database, homes: Table, tmp_path: Path) -> Table:
    """A table that shrank since its full backup, and then got a quota below what it had."""
    backup(source, "homes", tmp_path)
    homes.delete({"id": list(range(400))})
    homes.alter().set_option("max_rows", 120).set_option("max_bytes", 1 << 40).apply()
    backup(source, "homes", tmp_path)
    return homes


def test_rows_before_a_quota_do_not_stop_a_restore(
    source: Database, smaller: Table, target: Database, tmp_path: Path
) -> None:
    assert restore(target, tmp_path, "homes").verified
    assert checksum(target, "homes").is_same(checksum(source, "homes"))
    table = target.table("homes")
    assert table.describe()["options"] == smaller.describe()["options"]
    with pytest.raises(StorageFullError, match="max_rows"):
        table.insert(rows(range(1_000, 1_021)))


def test_a_table_above_its_quota_is_copied(source: Database, homes: Table, target: Database) -> None:
    homes.alter().set_option("max_rows", 10).apply()
    copy_table(source, target, "homes")
    assert checksum(target, "homes").is_same(checksum(source, "homes"))
    assert target.table("homes").describe()["options"]["max_rows"] == 10


def test_who_may_set_no_quota_restores_what_fits_it(
    source: Database, smaller: Table, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered = Store.alter_table

    def guarded(store: Store, asked: Alteration) -> Any:
        if any(isinstance(step, SetOption) and step.option in ("max_rows", "max_bytes") for step in asked.steps):
            raise PermissionDeniedError("no grant to set quotas")
        return altered(store, asked)

    monkeypatch.setattr(Store, "alter_table", guarded)
    with pytest.raises(StorageFullError, match="max_rows"):
        restore(target, tmp_path, "homes")
    backup(source, "homes", tmp_path, force_full=True)
    assert restore(target, tmp_path, "homes").verified
    assert target.table("homes").describe()["options"]["max_rows"] == 120


def test_a_repair_reads_a_backup_of_more_rows_than_the_quota(source: Database, smaller: Table, tmp_path: Path) -> None:
    store: Any = source._store
    about = store.describe_table("homes")
    with FolderBackups(tmp_path) as backups:
        found = [backups.of(about, (each.tablet,)) for each in smaller.tablets()]
        assert sum(batch.num_rows for each in found for batch in each.batches((None, None))) == 100
