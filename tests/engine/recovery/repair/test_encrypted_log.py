"""A damaged log of an encrypted store: a repair keeps as much as of one that is not."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

import nyala
from nyala.engine.fs import LocalFileSystem, local
from nyala.engine.fs.encryption.opening import opened
from nyala.engine.recovery.repair import LogRepair, repair_store
from nyala.schemas.store.store_key import StoreKey
from tests.doubles.encrypted import KEY

ROWS = 20


def filled(path: Path, key: StoreKey | None) -> Path:
    """Make a store that did not stop, with a commit for each row; return its only segment."""
    with nyala.open(path.with_name("running"), key=key, maintenance="off", wal_segment_bytes=1 << 18) as db:
        table = db.create_table("t", data={"k": [-1], "s": ["first"]}, primary_key=["k"])
        for row in range(ROWS - 1):
            table.insert({"k": [row], "s": ["x" * 3000]})
        shutil.copytree(path.with_name("running"), path)
    (segment,) = (path / "wal").iterdir()
    return segment


def repaired(path: Path, key: StoreKey | None) -> tuple[LogRepair, int]:
    """Repair the log; return what was told, and how many rows are left."""
    log = repair_store(opened(LocalFileSystem(path), key), apply=True).log
    assert log is not None
    with nyala.open(path, key=key, maintenance="off") as db:
        return log, db.table("t").count()


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_a_segment_that_lacks_its_last_bytes_loses_no_row(tmp_path: Path, key: StoreKey | None) -> None:
    segment = filled(tmp_path / "store", key)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 8)
    log, rows = repaired(tmp_path / "store", key)
    assert rows == ROWS and log.records_lost == 0
    assert len(log.damaged) == 1 and "should have" in log.damaged[0]


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
@pytest.mark.parametrize(("sector", "lost"), [(30_000, 1), (200_000, 0)])
def test_a_sector_that_cannot_be_read_costs_its_record(
    tmp_path: Path, key: StoreKey | None, sector: int, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = filled(tmp_path / "store", key)
    read: Any = local.LocalReadableFile.read_into

    def failing(self: Any, offset: int, buffer: Any) -> int:
        if self._where == str(segment) and offset <= sector < offset + memoryview(buffer).nbytes:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, offset, buffer)

    monkeypatch.setattr(local.LocalReadableFile, "read_into", failing)
    log, rows = repaired(tmp_path / "store", key)
    assert rows in range(ROWS - 3 * lost, ROWS - lost + 1) and log.records_lost == ROWS - rows
    assert any("cannot be read" in line for line in log.damaged)


def test_a_segment_whose_head_cannot_be_read_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = filled(tmp_path / "store", KEY)
    read: Any = local.LocalReadableFile.read_into

    def failing(self: Any, offset: int, buffer: Any) -> int:
        if self._where == str(segment) and not offset:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, offset, buffer)

    monkeypatch.setattr(local.LocalReadableFile, "read_into", failing)
    log = repair_store(opened(LocalFileSystem(tmp_path / "store"), KEY)).log
    assert log and log.damaged and "Input/output error" in log.damaged[0]
