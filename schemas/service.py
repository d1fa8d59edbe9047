"""The one interface of a store, in this process or behind Arrow Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from .alter import Alteration
from .bulk import ImportBegin, ImportCommit, ImportPlan
from .compaction import CompactionBegin, CompactionCommit, CompactionDone, CompactionPlan
from .description import DroppedTable, Health, ScanPlan, TableDescription, TableStats, TabletMap
from .direct import PinnedTable, PinSnapshot
from .moving import MoveProgress
from .scan import ScanSpec
from .statement import Statement
from .table import TableDefinition
from .transaction import StagedBatch, StageResult, TransactionCommit, TransactionResult
from .write import WriteCommand, WriteResult


class MaintenanceKind(StrEnum):
    """What ``maintain`` can be asked to do at once, on the caller's thread."""

    FLUSH = "flush"
    """Write the MemRowSets to disk."""
    FLUSH_DELTAS = "flush_deltas"
    """Write the DeltaMemStores to REDO files."""
    COMPACT = "compact"
    """Merge all DiskRowSets of a tablet into ones that do not overlap, their deltas included."""
    MINOR_COMPACT = "minor_compact"
    """Merge the REDO files of each DiskRowSet into one."""
    MAJOR_COMPACT = "major_compact"
    """Bring base columns up to the REDO files, which then hold deletes and re-inserts only."""
    GC = "gc"
    """Drop what only snapshots before the table's history can see."""


class Marked(NamedTuple):
    """What comes next in a scan that can be resumed: rows, if any, and how far the scan has come with them."""

    batch: pa.RecordBatch | None
    below: bytes | None
    """All rows whose encoded keys lie below this one have come, and no others; None: nothing can be said here."""


@dataclass(frozen=True, slots=True)
class ScanStream:
    """A running scan: ``batches`` at ``snapshot``, all of ``schema``.

    ``batches`` is a generator; closing it releases what the scan pins. Batches hold rows of one rowset (or, ordered, of
    all) and any number of bytes; the sender splits them.
    """

    schema: pa.Schema
    snapshot: int | None
    """None if the scan reads at its own "now", which is not reported."""
    batches: Iterator[pa.RecordBatch]
    marked: Iterator[Marked] | None = None
    """The same batches with the keys at which the scan could go on, where it was asked for ``marks``. Read one of the
    two."""
    rest: Callable[[], ScanSpec] | None = None
    """Tells what is left to be read after an error, where that is known."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches)


class PendingResult(Protocol):
    """A write on its way."""

    def result(self) -> WriteResult:
        """Return the answer once the write is durable. From any thread; may raise ``StoreError``."""
        ...


class TransactionService(Protocol):
    """Rows that are staged part by part, and committed all at once. Errors and threads as ``StoreService``."""

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """Stage rows as the part of a transaction that ``command.stage`` names, in the order in which they are applied.

        Nothing is visible before the transaction is committed. A part that raises on the way is thrown away; one that
        is staged again takes the place of the first.
        """
        ...

    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        """Apply parts that were staged as one commit, all or nothing, and return when it is durable.

        Rows that are refused are in the answer, and nothing is applied then. A transaction that was committed before is
        answered as it was then.
        """
        ...

    def abort_transaction(self, transaction: str) -> None:
        """Throw away what was staged for a transaction; nothing happens if there is nothing."""
        ...


class StoreService(TransactionService, Protocol):
    """A store. Every method may raise ``StoreError``; all may be called from many threads at once."""

    def create_table(self, definition: TableDefinition) -> TableDescription:
        """Create a table; with ``if_not_exists`` return the one there is."""
        ...

    def alter_table(self, alteration: Alteration) -> TableDescription:
        """Change a table by all steps of an alteration, or by none; scans and writes go on meanwhile."""
        ...

    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """Drop a table with its data, which can be recalled for ``keep_seconds``. Scans that run go on."""
        ...

    def recall_table(self, table: str | int, new_name: str | None = None) -> TableDescription:
        """Bring a dropped table back, by name or id, with all of its rows and history, under ``new_name`` if given."""
        ...

    def dropped_tables(self) -> list[DroppedTable]:
        """Return the dropped tables that can be recalled, in the order of names and ids."""
        ...

    def tables(self) -> list[str]:
        """Return the names of the tables, sorted."""
        ...

    def describe_table(self, name: str) -> TableDescription:
        """Return a table's columns with ids, types, encodings and defaults, its key, options and schema version."""
        ...

    def tablets(self, name: str) -> TabletMap:
        """Return how a table is cut, and which of its tablets are here, where several servers share them."""
        ...

    def table_stats(self, name: str) -> TableStats:
        """Return live rows, bytes, rowsets, delta files and bytes by column."""
        ...

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """Apply one record batch as one commit and return when it is durable.

        Row errors are in the answer, never raised. With a ``writer`` in the command and a ``seq``, a batch that was
        applied before is answered as it was then.
        """
        ...

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        """Like ``write``, but return as soon as the batch has its place in the order of commits.

        The batch becomes durable and visible whether or not its ``result`` is asked for.
        Batches begun one after the other are applied in that order; each is durable when its ``result`` returns.
        """
        ...

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """Apply batches one by one, in order, each one commit; yield an answer for each, pipelined where that pays.

        Error positions count from the start of their own batch.
        """
        ...

    def execute(self, statement: Statement) -> WriteResult:
        """Change the rows that a condition selects, or bring a table back to a moment, as one commit.

        The answer counts the rows that were found. With errors, nothing was applied.
        """
        ...

    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """Return the commits to a table after a moment, or all that its history tells of, as ``COMMITS_SCHEMA``."""
        ...

    def last_change(self, table: str) -> int:
        """Return the timestamp of the last commit that changed rows of a table; 0 if there is none. It is visible."""
        ...

    def scan(self, spec: ScanSpec) -> ScanStream:
        """Start a scan. Wrong columns, filters and moments are raised here, not by the first batch."""
        ...

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """Say how a scan would run, without running it."""
        ...

    def release_scan(self, lease: str) -> None:
        """Keep no longer what was kept for a planned scan; nothing happens if it is not kept."""
        ...

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """Return the live rows of the given primary keys, in the order asked; keys that are absent are left out."""
        ...

    def import_begin(self, asked: ImportBegin) -> ImportPlan:
        """Begin an import: rowset files are built elsewhere by its plan, in a directory on storage that both reach."""
        ...

    def import_commit(self, asked: ImportCommit) -> WriteResult:
        """Check the files of an import and attach them, with all of their rows, as one commit; once, however often
        asked."""
        ...

    def import_abort(self, import_id: str) -> None:
        """Drop an import and its files."""
        ...

    def pin_snapshot(self, asked: PinSnapshot) -> PinnedTable:
        """Flush a table up to a snapshot and keep its files for readers outside, for a time that can be renewed."""
        ...

    def renew_pin(self, pin_id: str) -> None:
        """Keep the files of a pin for as long again."""
        ...

    def release_pin(self, pin_id: str) -> None:
        """Keep the files of a pin no longer. NOT_FOUND when they are gone already, as a repeated call may find."""
        ...

    def compaction_begin(self, asked: CompactionBegin) -> CompactionPlan:
        """Flush a table and hand out rowsets that are worth merging, for others to merge in files that both reach."""
        ...

    def compaction_commit(self, asked: CompactionCommit) -> CompactionDone:
        """Check the files of a task and put them in the place of what was merged, with what was changed meanwhile."""
        ...

    def compaction_renew(self, compaction_id: str) -> None:
        """Wait for the commits of a compaction as long again."""
        ...

    def compaction_abort(self, compaction_id: str) -> None:
        """Drop what of a compaction was not committed. NOT_FOUND when it is gone already."""
        ...

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """Move a tablet to another of the servers that share the table; reads and writes go on meanwhile.

        ``tablet`` is its number on the server that has it; ``server`` names that one where several have such a number.
        """
        ...

    def maintain(self, table: str, op: str) -> dict[str, Any]:
        """Do one kind of maintenance now; see ``MaintenanceKind``. Returns what was done."""
        ...

    def now(self, at_least: int = 0) -> int:
        """Return a timestamp at which every write acknowledged so far is visible, and no later one.

        It is ``at_least`` that, which another store's clock told: this one's clock follows it, when it is not too far.
        """
        ...

    def health(self) -> Health:
        """Return whether the store takes writes."""
        ...

    def close(self) -> None:
        """Stop. What was acknowledged is durable already."""
        ...
