"""Verbs: the methods of a store that are Arrow Flight actions, each described once."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from ..rows.commits import CommitsBody, CommitsPage, commits_of, pages_of
from ..rows.scan import ScanSpec
from ..rows.scan_plan import ScanPlan
from ..rows.statement import Statement
from ..rows.transaction import TransactionAbort, TransactionCommit, TransactionResult
from ..rows.write import WriteResult
from ..store.bulk import ImportAbort, ImportBegin, ImportCommit, ImportPlan
from ..store.checkpoint import Checkpoint, MakeCheckpoint
from ..store.compaction import CompactionBegin, CompactionCommit, CompactionDone, CompactionName, CompactionPlan
from ..store.description import (
    DroppedTable,
    DroppedTables,
    Health,
    TableDescription,
    TableNames,
    TableStats,
    TabletMap,
)
from ..store.grants import Privilege
from ..store.metrics import Metrics
from ..store.placement import Placement
from ..table.alter import Alteration
from ..table.table import TableDefinition
from .command import DropBody, LastChange, LeaseName, NowBody, RecallBody, TableName
from .grant_verbs import GrantVerbs
from .maintenance_verbs import MaintenanceVerbs
from .move_verbs import MoveVerbs
from .need import ADMINS, ANYONE, BY_CONTENT, SEES_TABLE, on_all_tables, on_column, on_table, on_table_of_id
from .pin_verbs import PinVerbs
from .verb import ANSWER, Kind, Pieces, Verb, verb

_IMPORTED = "files cannot be imported"
_MERGED = "files cannot be merged outside"


class Verbs(GrantVerbs, MaintenanceVerbs, MoveVerbs, PinVerbs, Protocol):
    """The verbs of a store. A class that inherits them implements ``perform(verb, *arguments)``, which they call.

    Every method may raise ``StoreError``; all may be called from many threads at once.
    """

    @verb(TableDefinition, TableDescription, needs=BY_CONTENT)
    def create_table(self, definition: TableDefinition) -> TableDescription:
        """Create a table; with ``if_not_exists`` return an existing one."""
        return ANSWER

    @verb(Alteration, TableDescription, needs=BY_CONTENT)
    def alter_table(self, alteration: Alteration) -> TableDescription:
        """Apply all steps of an alteration to a table, or none; scans and writes continue meanwhile."""
        return ANSWER

    @verb(DropBody, needs=on_table(Privilege.ALTER))
    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """Drop a table with its data, which can be recalled for ``keep_seconds``. Running scans continue."""
        return ANSWER

    @verb(RecallBody, TableDescription, needs=on_all_tables(Privilege.ALTER))
    def recall_table(self, table: str | int, new_name: str | None = None) -> TableDescription:
        """Bring a dropped table back, by name or id, with all of its rows and history, under ``new_name`` if given."""
        return ANSWER

    @verb(None, DroppedTables, member="tables", is_read=True, needs=on_all_tables(Privilege.ALTER))
    def dropped_tables(self) -> list[DroppedTable]:
        """Return the dropped tables that can be recalled, by name and id."""
        return ANSWER

    @verb(TableName, TableDescription, is_read=True, needs=SEES_TABLE)
    def describe_table(self, name: str) -> TableDescription:
        """Return a table's columns with ids, types, encodings and defaults, its key, options and schema version."""
        return ANSWER

    @verb(TableName, TableStats, is_read=True, needs=SEES_TABLE)
    def table_stats(self, name: str) -> TableStats:
        """Return a table's live rows, and its bytes on disk and in memory, by tablet and by column."""
        return ANSWER

    @verb(TableName, LastChange, member="timestamp", is_read=True, needs=on_column(Privilege.READ))
    def last_change(self, table: str) -> int:
        """Return the timestamp of the last commit that changed rows of a table; 0 if there is none. It is visible."""
        return ANSWER

    @verb(TransactionCommit, TransactionResult, kind=Kind.TASK, is_long=True, needs=BY_CONTENT)
    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        """Apply staged parts as one commit, all or nothing, and return when it is durable.

        Refused rows are in the answer; nothing is applied then. A transaction that was committed before gets its first
        answer again.
        """
        return ANSWER

    @verb(TransactionAbort, needs=BY_CONTENT)
    def abort_transaction(self, transaction: str) -> None:
        """Discard everything staged for a transaction; does nothing if there is nothing."""
        return ANSWER

    @verb(Statement, WriteResult, kind=Kind.STATEMENT, is_long=True, needs=BY_CONTENT)
    def execute(self, statement: Statement) -> WriteResult:
        """Change the rows that a condition selects, or restore a table to an earlier state, as one commit.

        An update has in ``set`` an expression for each column that it changes. The answer counts the selected rows.
        With errors, nothing was applied.
        """
        return ANSWER

    @verb(CommitsBody, Pieces(pages_of, commits_of, CommitsPage), is_read=True, needs=on_column(Privilege.READ))
    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """Return the commits to a table after a moment, or all in its history, ascending."""
        return ANSWER  # with the columns of ``COMMITS_SCHEMA``

    @verb(TableName, TabletMap, is_read=True, needs=SEES_TABLE)
    def tablets(self, name: str) -> TabletMap:
        """Return a table's partitions, and which of its tablets are on this server, if several servers share them."""
        return ANSWER

    @verb(None, TableNames, member="tables", is_read=True, needs=BY_CONTENT)
    def tables(self) -> list[str]:
        """Return the names of the tables, sorted."""
        return ANSWER

    @verb(None, Placement, needs=ANYONE)
    def placement(self) -> Placement:
        """Return the placement of the servers that share their tables, of which this is one. NOT_FOUND if it is
        alone."""
        return ANSWER

    @verb(ScanSpec, ScanPlan, name="explain", kind=Kind.PLAN, is_long=True, is_read=True, needs=BY_CONTENT)
    def plan(self, spec: ScanSpec) -> ScanPlan:
        """Return how a scan would run, and what it would skip and why, without running it. The body is that of a
        ticket."""
        return ANSWER

    @verb(ImportBegin, ImportPlan, alone=_IMPORTED, needs=on_table(Privilege.INSERT))
    def import_begin(self, asked: ImportBegin) -> ImportPlan:
        """Begin an import: others build rowset files by its plan, in a directory on storage that both reach."""
        return ANSWER

    @verb(ImportCommit, WriteResult, kind=Kind.TASK, is_long=True, alone=_IMPORTED, needs=BY_CONTENT)
    def import_commit(self, asked: ImportCommit) -> WriteResult:
        """Check the files of an import and attach them, with all their rows, as one commit; repeated calls apply it
        once."""
        return ANSWER

    @verb(ImportAbort, alone=_IMPORTED, needs=on_table_of_id(Privilege.INSERT))
    def import_abort(self, import_id: str) -> None:
        """Drop an import and its files."""
        return ANSWER

    @verb(LeaseName, needs=ANYONE)
    def release_scan(self, lease: str) -> None:
        """Release what GetFlightInfo keeps for its tickets; does nothing if nothing is kept."""
        return ANSWER

    @verb(
        CompactionBegin,
        CompactionPlan,
        kind=Kind.TASK,
        alone=_MERGED,
        needs=on_table(Privilege.ADMIN),  # who merges rows outside may bring back others
    )
    def compaction_begin(self, asked: CompactionBegin) -> CompactionPlan:
        """Flush a table and hand out rowsets worth merging, for others to merge in files that both reach."""
        return ANSWER

    @verb(
        CompactionCommit,
        CompactionDone,
        kind=Kind.TASK,
        is_long=True,
        alone=_MERGED,
        needs=on_table_of_id(Privilege.ADMIN),
    )
    def compaction_commit(self, asked: CompactionCommit) -> CompactionDone:
        """Check the files of a task and install them in place of the merged rowsets, carrying over later changes."""
        return ANSWER

    @verb(CompactionName, alone=_MERGED, needs=on_table_of_id(Privilege.ADMIN))
    def compaction_renew(self, compaction_id: str) -> None:
        """Wait for the commits of a compaction for the same time again."""
        return ANSWER

    @verb(CompactionName, alone=_MERGED, needs=on_table_of_id(Privilege.ADMIN))
    def compaction_abort(self, compaction_id: str) -> None:
        """Drop the uncommitted tasks of a compaction. NOT_FOUND if it is gone already."""
        return ANSWER

    @verb(MakeCheckpoint, Checkpoint, kind=Kind.TASK, alone="a checkpoint cannot be made", needs=ADMINS)
    def checkpoint(self, asked: MakeCheckpoint) -> Checkpoint:
        """Make a copy of the store in a directory on its machine, as a store of its own, while writes continue."""
        return ANSWER

    @verb(NowBody, dict, member="timestamp", is_read=True, needs=ANYONE)
    def now(self, at_least: int = 0) -> int:
        """Return a timestamp at which every write acknowledged so far is visible, and no later one.

        It is at least ``at_least``, the time of another store's clock: this one's clock follows it unless it is too far
        ahead.
        """
        return ANSWER

    @verb(None, Metrics, is_read=True, needs=on_all_tables(Privilege.MAINTAIN))
    def metrics(self) -> Metrics:
        """Return what was counted and measured since the process started, or the store was opened, as docs/metrics.md
        lists it."""
        return ANSWER

    @verb(None, Health, needs=BY_CONTENT)
    def health(self) -> Health:
        """Return whether the store accepts writes: its status is ok, degraded or read_only."""
        return ANSWER


VERBS: dict[str, Verb] = {
    method.verb.name: method.verb
    for kind in (Verbs, MoveVerbs, GrantVerbs, MaintenanceVerbs, PinVerbs)
    for method in vars(kind).values()
    if hasattr(method, "verb")
}
"""By action name, in the order of ListActions."""
