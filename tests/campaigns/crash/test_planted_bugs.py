"""The net is worth what it catches: classic protocol bugs are planted, and each must be caught."""

from dataclasses import replace
from typing import Any

import pytest

from nyala.engine.commit.commit_log import CommitLog
from nyala.engine.commit.numbered_writes import NumberedWrites
from nyala.engine.compaction import merge
from nyala.engine.fs.memory import MemoryFileSystem, MemoryWritableFile
from nyala.engine.manifest.environment import Environment
from nyala.engine.manifest.place import ManifestInDirectory
from nyala.engine.table.small.row_commit import RowWrite
from nyala.schemas.rows.write import Durability
from tests.campaigns.crash.images import LostError, campaign
from tests.campaigns.crash.test_numbered_writes import (
    test_every_numbered_write_is_applied_once_wherever_the_power_fails as numbered_writes_and_power_failures,
)
from tests.campaigns.crash.workloads import WORKLOADS

IMAGES = 10


def assert_caught(*workloads: str) -> None:
    for name in workloads:
        with pytest.raises(LostError):
            campaign(WORKLOADS[name], IMAGES, deep_every=1_000)


def test_a_log_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = MemoryWritableFile.sync

    def sync_all_but_the_log(file: MemoryWritableFile) -> None:
        if not file._path.startswith("wal/"):
            sync(file)

    monkeypatch.setattr(MemoryWritableFile, "sync", sync_all_but_the_log)
    assert_caught("load", "update", "restarts")


def test_a_single_row_that_is_acknowledged_before_its_log_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge = CommitLog.acknowledge

    def acknowledge_others(log: CommitLog, commit: Any, durability: Durability) -> None:
        if not isinstance(commit, RowWrite):
            acknowledge(log, commit, durability)

    monkeypatch.setattr(CommitLog, "acknowledge", acknowledge_others)
    assert_caught("single_rows")


def test_a_manifest_that_is_renamed_before_it_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: ManifestInDirectory, document: bytes) -> None:
        file = self._fs.create("manifest.new")
        file.append(document)
        file.close()

    monkeypatch.setattr(ManifestInDirectory, "write", write)
    assert_caught("load", "update", "restarts")


def test_a_directory_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    sync_directory = MemoryFileSystem.sync_directory

    def sync_all_but_tablets(disk: MemoryFileSystem, path: str) -> None:
        if not path.startswith("tablets/"):
            sync_directory(disk, path)

    monkeypatch.setattr(MemoryFileSystem, "sync_directory", sync_all_but_tablets)
    assert_caught("load", "update", "restarts")


def test_half_a_batch_after_a_crash_in_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a merge say that they hold the next batch too; its rows that are not in them come from the log."""
    mark = merge._mark

    def mark_too_late(tablet: Any, rowset_ids: Any) -> Any:
        moment, marks = mark(tablet, rowset_ids)
        return replace(moment, lsn=moment.lsn + 1), marks

    monkeypatch.setattr(merge, "_mark", mark_too_late)
    monkeypatch.setattr(Environment, "wait_until_settled", lambda *_: None)
    assert_caught("compactions")


def test_numbered_writes_that_a_restart_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberedWrites, "restore", lambda *_: None)
    with pytest.raises(AssertionError):
        numbered_writes_and_power_failures()
