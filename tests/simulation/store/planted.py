"""Planted mistakes: races and lost steps of a store, each of which some seeds must show.

A name leads to a function that plants the mistake for as long as its context lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from nyala.engine.commit.commit_log import CommitLog
from nyala.engine.commit.row_stamps import RowStamps
from nyala.engine.compaction import merge
from nyala.engine.compaction.switch_over import SwitchOver
from nyala.engine.fs.memory import MemoryFileSystem, MemoryWritableFile
from nyala.engine.maintenance.log_freeing import LogFreeing
from nyala.engine.manifest.environment import Environment
from nyala.engine.manifest.manifest import Manifest, ManifestFile
from nyala.engine.mvcc.mvcc import MvccManager
from nyala.engine.recovery import recovery
from nyala.engine.statement.execute import Statements
from nyala.engine.table import table
from nyala.engine.table.small import row_commit
from nyala.engine.tablet.tablet import Tablet

from .plan import Plan, plan_of, plan_with_slow_log

Plant = Callable[[], AbstractContextManager[object]]


@contextmanager
def batches_without_locks() -> Iterator[None]:
    """Batches look up their keys and apply their rows beside each other."""
    with patch.object(table, "write_locks", lambda tablets: nullcontext()):
        yield


@contextmanager
def answers_as_of_their_end() -> Iterator[None]:
    """The moment of an answer that is kept is that at which it is kept, not that of its snapshot."""
    stamped_row = table.Table.stamped_row

    def later(self: table.Table, known: Any, key: Any, snapshot: Callable[[], int], *given: Any) -> Any:
        row, stamp = stamped_row(self, known, key, snapshot, *given)
        return row, stamp and stamp._replace(moment=snapshot())

    with patch.object(table.Table, "stamped_row", later):
        yield


@contextmanager
def stamps_of_rows_missing() -> Iterator[None]:
    """The commit of a batch stamps no rows: the answers that are kept go on."""
    with patch.object(RowStamps, "rows_change", lambda *_: None):
        yield


@contextmanager
def log_not_synced() -> Iterator[None]:
    """Commits are acknowledged when their group is written."""
    sync = MemoryWritableFile.sync

    def sync_all_but_the_log(file: MemoryWritableFile) -> None:
        if not file._path.startswith("wal/"):
            sync(file)

    with patch.object(MemoryWritableFile, "sync", sync_all_but_the_log):
        yield


@contextmanager
def acknowledged_at_once() -> Iterator[None]:
    """Nobody waits for the log."""
    with patch.object(CommitLog, "acknowledge", lambda log, commit, durability: None):
        yield


@contextmanager
def snapshots_over_commits_in_flight() -> Iterator[None]:
    """A snapshot is simply now."""
    with patch.object(MvccManager, "_oldest", lambda manager: None):
        yield


@contextmanager
def changes_during_a_flush_lost() -> Iterator[None]:
    """The last round, under the lock, is forgotten."""
    put = SwitchOver.put

    def put_only(self: SwitchOver, *how: Any) -> None:
        with patch.object(SwitchOver, "_carry_over", lambda self: 0):
            put(self, *how)

    with patch.object(SwitchOver, "put", put_only):
        yield


@contextmanager
def statements_that_read_once() -> Iterator[None]:
    """Rows that changed while a statement read are not read again."""
    with patch.object(Statements, "_catch_up", lambda *how: 0):
        yield


@contextmanager
def log_freed_too_early() -> Iterator[None]:
    """The log is freed up to its end, whatever is in memory alone."""
    needed = LogFreeing.needed

    def all_of_it(self: LogFreeing) -> tuple[int, dict[int, int]]:
        return self._wal.writer.last_lsn + 1, needed(self)[1]

    with patch.object(LogFreeing, "needed", all_of_it):
        yield


@contextmanager
def half_a_batch_in_a_merge() -> Iterator[None]:
    """A merge does not wait for the batch that is being applied, and says that its files hold it."""
    mark = merge._mark

    def mark_too_late(tablet: Any, rowset_ids: Any) -> Any:
        moment, marks = mark(tablet, rowset_ids)
        return replace(moment, lsn=moment.lsn + 1), marks

    with patch.object(merge, "_mark", mark_too_late), patch.object(Environment, "wait_until_settled", lambda *_: None):
        yield


@contextmanager
def conditions_that_always_hold() -> Iterator[None]:
    """A condition on unchanged rows is not looked at."""
    with patch.object(Tablet, "changed_after", lambda self, locations, moment: np.zeros(len(locations), bool)):
        yield


@contextmanager
def rows_that_replace_values() -> Iterator[None]:
    """A single row that merges takes its own value instead of the sum."""
    with patch.object(row_commit, "merged", lambda before, cell, combine: cell):
        yield


@contextmanager
def directories_not_synced() -> Iterator[None]:
    """Names of tablets' files are not made durable."""
    sync = MemoryFileSystem.sync_directory

    def sync_all_but_tablets(disk: MemoryFileSystem, path: str) -> None:
        if not path.startswith("tablets"):
            sync(disk, path)

    with patch.object(MemoryFileSystem, "sync_directory", sync_all_but_tablets):
        yield


@contextmanager
def replays_that_claim_all() -> Iterator[None]:
    """A flush during the replay says that its files hold what the log has yet to bring (54c54b9c)."""

    def stand_at(self: Tablet, timestamp: int, lsn: int) -> None:
        self.last_timestamp, self.last_lsn = max(self.last_timestamp, timestamp), max(self.last_lsn, lsn)

    with patch.object(Tablet, "stand_at", stand_at):
        yield


@contextmanager
def files_hold_what_is_lost() -> Iterator[None]:
    """The manifest says that files hold records that are in flight; their positions are taken by others ("maintenance:
    The manifest claims no record that the log may lose"). It is written at once, as another flush may do."""
    assume = ManifestFile.assume

    def needed_to_the_end(self: LogFreeing) -> tuple[int, dict[int, int]]:
        tablets = [tablet for table in self._tables() for tablet in table.tablets]
        firsts = {tablet.tablet_id: tablet.first_unflushed_lsn() for tablet in tablets}
        in_files = {tablet.tablet_id: (firsts[tablet.tablet_id] or tablet.last_lsn + 1) - 1 for tablet in tablets}
        return min([self._wal.writer.last_lsn + 1, *filter(None, firsts.values())]), in_files

    def assume_and_write(self: ManifestFile, edit: Callable[[Manifest], Manifest], ids_used: int = 0) -> None:
        assume(self, edit, ids_used)
        if not ids_used:
            self.commit(lambda manifest: manifest)

    with (
        patch.object(LogFreeing, "needed", needed_to_the_end),
        patch.object(recovery, "end_with_log", lambda *_: None),
        patch.object(ManifestFile, "assume", assume_and_write),
    ):
        yield


@contextmanager
def manifests_name_what_is_in_flight() -> Iterator[None]:
    """The manifest names the newest change before its record is written, and another process takes that for a moment
    that may be read ("table: A manifest names no change before its rows are there")."""
    with patch.object(table.Table, "settled_change", lambda self, mvcc: self._last_change):
        yield


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        batches_without_locks,
        log_not_synced,
        acknowledged_at_once,
        snapshots_over_commits_in_flight,
        changes_during_a_flush_lost,
        statements_that_read_once,
        log_freed_too_early,
        half_a_batch_in_a_merge,
        conditions_that_always_hold,
        rows_that_replace_values,
        directories_not_synced,
        replays_that_claim_all,
        answers_as_of_their_end,
        stamps_of_rows_missing,
        files_hold_what_is_lost,
        manifests_name_what_is_in_flight,
    )
}

PLANS: dict[str, Callable[[int], Plan]] = dict.fromkeys(PLANTED, plan_of) | {
    "files_hold_what_is_lost": plan_with_slow_log,
}
"""How the plans are drawn that are run with each: as any others, unless hardly any of them would show it."""
