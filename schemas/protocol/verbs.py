"""Verbs: the methods of a store that are Arrow Flight actions, each described once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from ..rows.commits import CommitsBody, commits_of, pages_of
from ..rows.scan import ScanSpec
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
    ScanPlan,
    TableDescription,
    TableNames,
    TableStats,
    TabletMap,
)
from ..store.metrics import Metrics
from ..store.moving import (
    HandedOver,
    MoveBegin,
    MoveFetch,
    MoveHandOver,
    MoveLacking,
    MoveName,
    MoveRead,
    MoveRound,
    Moves,
    MoveStatus,
)
from ..store.placement import Placement
from ..table.alter import Alteration
from ..table.table import TableDefinition
from .command import DropBody, LastChange, LeaseName, NowBody, RecallBody, TableName
from .grant_verbs import GrantVerbs
from .maintenance_verbs import MaintenanceVerbs
from .pin_verbs import PinVerbs
from .verb import ANSWER, Kind, Pieces, Verb, verb

_IMPORTED = "files cannot be imported"
_MERGED = "files cannot be merged outside"


class Verbs(GrantVerbs, MaintenanceVerbs, PinVerbs, Protocol):
    """The verbs of a store. A class that inherits them implements ``perform(verb, *arguments)``, which they call.

    Every method may raise ``StoreError``; all may be called from many threads at once.
    """

    @verb(
        'Create a table: {"name","columns":[{"name","type","nullable","encoding","compression","block_rows",'
        '"read_default","write_default","comment","immutable","too_long"}],"primary_key":[...],"unique_key",'
        '"if_not_exists","options":{...}}. Answers its description.',
        TableDefinition,
        TableDescription,
    )
    def create_table(self, definition: TableDefinition) -> TableDescription:
        """Create a table; with ``if_not_exists`` return an existing one."""
        return ANSWER

    @verb(
        'Change a table by all steps or none: {"name","steps":[{"op":"add_column","name","type",...},'
        '{"op":"drop_column","name"},...],"if_version"}. Answers its description.',
        Alteration,
        TableDescription,
    )
    def alter_table(self, alteration: Alteration) -> TableDescription:
        """Apply all steps of an alteration to a table, or none; scans and writes continue meanwhile."""
        return ANSWER

    @verb(
        'Drop a table with its data, which can be recalled for a time: {"table","keep_seconds"}. Answers {}.', DropBody
    )
    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """Drop a table with its data, which can be recalled for ``keep_seconds``. Running scans continue."""
        return ANSWER

    @verb(
        'Bring back a table that was dropped, by name or id: {"table","new_name"}. Answers its description.',
        RecallBody,
        TableDescription,
    )
    def recall_table(self, table: str | int, new_name: str | None = None) -> TableDescription:
        """Bring a dropped table back, by name or id, with all of its rows and history, under ``new_name`` if given."""
        return ANSWER

    @verb(
        'The tables that can be recalled: no body. Answers {"tables":[{"table_id","name","until"}]}.',
        None,
        DroppedTables,
        member="tables",
        is_read=True,
    )
    def dropped_tables(self) -> list[DroppedTable]:
        """Return the dropped tables that can be recalled, by name and id."""
        return ANSWER

    @verb(
        'A table\'s columns with ids, types, encodings and defaults, its key, options and schema version: {"table"}.',
        TableName,
        TableDescription,
        is_read=True,
    )
    def describe_table(self, name: str) -> TableDescription:
        """Return a table's columns with ids, types, encodings and defaults, its key, options and schema version."""
        return ANSWER

    @verb(
        'A table\'s live rows, bytes on disk and memory, by tablet and by column: {"table"}.',
        TableName,
        TableStats,
        is_read=True,
    )
    def table_stats(self, name: str) -> TableStats:
        """Return live rows, bytes, rowsets, delta files and bytes by column."""
        return ANSWER

    @verb(
        'The timestamp of the last commit that changed rows of a table, 0 if there is none: {"table"}. Answers '
        '{"timestamp"}.',
        TableName,
        LastChange,
        member="timestamp",
        is_read=True,
    )
    def last_change(self, table: str) -> int:
        """Return the timestamp of the last commit that changed rows of a table; 0 if there is none. It is visible."""
        return ANSWER

    @verb(
        'Commit parts that were staged, all or none: {"transaction","parts":[...],"truncate":[tables],'
        '"if_timestamp","app_id","app_version"}. Answers what became of it.',
        TransactionCommit,
        TransactionResult,
        kind=Kind.TASK,
        is_long=True,
    )
    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        """Apply staged parts as one commit, all or nothing, and return when it is durable.

        Refused rows are in the answer; nothing is applied then. A transaction that was committed before gets its first
        answer again.
        """
        return ANSWER

    @verb('Throw away what was staged for a transaction: {"transaction"}. Answers {}.', TransactionAbort)
    def abort_transaction(self, transaction: str) -> None:
        """Discard everything staged for a transaction; does nothing if there is nothing."""
        return ANSWER

    @verb(
        'Change rows as one commit: {"table","kind":"update"|"delete"|"restore","set":{column:expression},"where",'
        '"as_of","durability","writer","seq"}. Answers as a write does.',
        Statement,
        WriteResult,
        kind=Kind.STATEMENT,
        is_long=True,
    )
    def execute(self, statement: Statement) -> WriteResult:
        """Change the rows that a condition selects, or restore a table to an earlier state, as one commit.

        The answer counts the selected rows. With errors, nothing was applied.
        """
        return ANSWER

    @verb(
        'The commits to a table after a moment, ascending, as several results: {"table","since"}. Each answers '
        '{"timestamp":[...],"writer":[...],"transaction":[...],"inserted":[...],"updated":[...],"deleted":[...],'
        '"operation":[...],"user":[...]}.',
        CommitsBody,
        Pieces(pages_of, commits_of),
        is_read=True,
    )
    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """Return the commits to a table after a moment, or all in its history, as ``COMMITS_SCHEMA``."""
        return ANSWER

    @verb(
        'How a table is cut, and which of its tablets are on this server: {"table"}. Answers {"schema_version",'
        '"partitions","tablets":[{"tablet","partition","server"}]}.',
        TableName,
        TabletMap,
        is_read=True,
    )
    def tablets(self, name: str) -> TabletMap:
        """Return a table's partitions, and which of its tablets are here, if several servers share them."""
        return ANSWER

    @verb('The names of the tables: no body. Answers {"tables"}.', None, TableNames, member="tables", is_read=True)
    def tables(self) -> list[str]:
        """Return the names of the tables, sorted."""
        return ANSWER

    @verb(
        "The placement of the servers that share their tables, of which this is one: no body. Answers it as JSON.",
        None,
        Placement,
    )
    def placement(self) -> Placement:
        """Return the placement that this server is part of. NOT_FOUND if it is alone."""
        return ANSWER

    @verb(
        "How a scan would run, and what is pruned and why: the JSON of a ticket.",
        ScanSpec,
        ScanPlan,
        name="explain",
        kind=Kind.PLAN,
        is_long=True,
        is_read=True,
    )
    def plan(self, spec: ScanSpec) -> ScanPlan:
        """Return how a scan would run, without running it."""
        return ANSWER

    @verb(
        'Begin an import of rowset files: {"table","ttl_seconds"}. Answers the plan that builders go by.',
        ImportBegin,
        ImportPlan,
        alone=_IMPORTED,
    )
    def import_begin(self, asked: ImportBegin) -> ImportPlan:
        """Begin an import: others build rowset files by its plan, in a directory on storage that both reach."""
        return ANSWER

    @verb(
        'Attach the files of an import as one commit: {"import_id","files":[...],"mode":"insert_only"|"upsert"}. '
        "Answers as a write does.",
        ImportCommit,
        WriteResult,
        kind=Kind.TASK,
        is_long=True,
        alone=_IMPORTED,
    )
    def import_commit(self, asked: ImportCommit) -> WriteResult:
        """Check the files of an import and attach them, with all their rows, as one commit; repeated calls apply it
        once."""
        return ANSWER

    @verb('Drop an import and its files: {"import_id"}. Answers {}.', ImportAbort, alone=_IMPORTED)
    def import_abort(self, import_id: str) -> None:
        """Drop an import and its files."""
        return ANSWER

    @verb(
        'Keep no longer what GetFlightInfo keeps for its tickets: {"lease"}. Answers {}, also when nothing is kept.',
        LeaseName,
    )
    def release_scan(self, lease: str) -> None:
        """Release what was kept for a planned scan; does nothing if nothing is kept."""
        return ANSWER

    @verb(
        'Hand out rowsets to be merged outside: {"table","tablets","replace","ttl_seconds"}. Answers the tasks.',
        CompactionBegin,
        CompactionPlan,
        kind=Kind.TASK,
        alone=_MERGED,
    )
    def compaction_begin(self, asked: CompactionBegin) -> CompactionPlan:
        """Flush a table and hand out rowsets worth merging, for others to merge in files that both reach."""
        return ANSWER

    @verb(
        'Put the merged files of a task in place: {"compaction_id","task":{"number","attempt","rowsets":[...],'
        '"is_history_lost"}}. Answers what was done.',
        CompactionCommit,
        CompactionDone,
        kind=Kind.TASK,
        is_long=True,
        alone=_MERGED,
    )
    def compaction_commit(self, asked: CompactionCommit) -> CompactionDone:
        """Check the files of a task and install them in place of the merged rowsets, carrying over later changes."""
        return ANSWER

    @verb('Wait for the commits as long again: {"compaction_id"}. Answers {}.', CompactionName, alone=_MERGED)
    def compaction_renew(self, compaction_id: str) -> None:
        """Wait for the commits of a compaction for the same time again."""
        return ANSWER

    @verb('Drop what was not committed: {"compaction_id"}. Answers {}.', CompactionName, alone=_MERGED)
    def compaction_abort(self, compaction_id: str) -> None:
        """Drop the uncommitted tasks of a compaction. NOT_FOUND if it is gone already."""
        return ANSWER

    @verb(
        "The moves of a table's tablets that did not end, and those by which tablets came: "
        '{"table"}. Answers {"arriving","left","arrived"}.',
        TableName,
        Moves,
        is_read=True,
    )
    def moves(self, table: str) -> Moves:
        """Return the moves of a table's tablets."""
        return ANSWER

    @verb(
        'Begin to move a tablet away from this server, or the next round: {"move","table","tablet","to","last"}. '
        "Answers the round: the tablet's files.",
        MoveBegin,
        MoveRound,
        kind=Kind.TASK,
    )
    def move_begin(self, asked: MoveBegin) -> MoveRound:
        """Source: flush memory, and return the list of the tablet's files; they stay readable."""
        return ANSWER

    @verb(
        'The newest round of a move, again: {"move"}. The target compares with it.', MoveName, MoveRound, is_read=True
    )
    def move_round(self, move: str) -> MoveRound:
        """Source: return the newest round again. The target asks for it, since it trusts only the source."""
        return ANSWER

    @verb(
        'The bytes of a file of the newest round, as several results: {"move","name"}.',
        MoveRead,
        Pieces(),
        kind=Kind.TASK,
    )
    def move_read(self, asked: MoveRead) -> Iterator[bytes]:
        """Source: yield the bytes of a file of the newest round."""
        return ANSWER

    @verb(
        'Tell the server that a tablet moves to of a round: its JSON. Answers {"names"}, the files to be fetched.',
        MoveRound,
        MoveLacking,
        kind=Kind.TASK,
        is_long=True,
        has_nulls=True,
    )
    def move_receive(self, asked: MoveRound) -> MoveLacking:
        """Target: receive a round; return the files to fetch."""
        return ANSWER

    @verb('Fetch a file from the server that has it: {"move","source","file"}. Answers {}.', MoveFetch, kind=Kind.TASK)
    def move_fetch(self, asked: MoveFetch) -> None:
        """Target: fetch a file from the source, and check it."""
        return ANSWER

    @verb(
        "Keep the files of the last round, durably: its JSON. Answers {}.",
        MoveRound,
        kind=Kind.TASK,
        is_long=True,
        has_nulls=True,
    )
    def move_prepare(self, asked: MoveRound) -> None:
        """Target: keep the files of the last round, durably; the tablet is still the source's."""
        return ANSWER

    @verb(
        'Give a tablet up, durably, once the other server has prepared the round: {"move","number"}. Answers what '
        "move_take_over takes.",
        MoveHandOver,
        HandedOver,
        kind=Kind.TASK,
    )
    def move_hand_over(self, asked: MoveHandOver) -> HandedOver:
        """Source: give the tablet up, durably, if the target has all of it."""
        return ANSWER

    @verb(
        "Serve a tablet that was handed over: what move_hand_over answered.",
        HandedOver,
        kind=Kind.TASK,
        is_long=True,
        has_nulls=True,
    )
    def move_take_over(self, asked: HandedOver) -> None:
        """Target: serve the tablet."""
        return ANSWER

    @verb('End a move, at the server that the tablet came from: {"move"}. Answers {}.', MoveName)
    def move_forget(self, move: str) -> None:
        """Source: forget the move, once the target serves the tablet."""
        return ANSWER

    @verb(
        'Where a move away from this server stands: {"move"}. Answers '
        '{"state":"under_way"|"handed_over"|"unknown"}, and what was handed over.',
        MoveName,
        MoveStatus,
        is_read=True,
    )
    def move_status(self, move: str) -> MoveStatus:
        """Source: return the state of a move."""
        return ANSWER

    @verb('Give a move up, unless the tablet was handed over: {"move"}. As move_status.', MoveName, MoveStatus)
    def move_abort(self, move: str) -> MoveStatus:
        """Abort a move, unless it was handed over, as the answer says. NOT_FOUND if there is none."""
        return ANSWER

    @verb(
        'Copy the store as it is now into a directory of the server: {"directory"}. Answers {"directory",'
        '"timestamp","store_uuid","files","linked","copied","bytes","bytes_copied","log_bytes"}.',
        MakeCheckpoint,
        Checkpoint,
        kind=Kind.TASK,
        alone="a checkpoint cannot be made",
    )
    def checkpoint(self, asked: MakeCheckpoint) -> Checkpoint:
        """Make a copy of the store in a directory on its machine, as a store of its own, while writes continue."""
        return ANSWER

    @verb(
        'A timestamp at which every write acknowledged so far is visible: no body, or {"at_least"} with a '
        'timestamp that this clock is to follow. Answers {"timestamp"}.',
        NowBody,
        dict,
        member="timestamp",
        is_read=True,
    )
    def now(self, at_least: int = 0) -> int:
        """Return a timestamp at which every write acknowledged so far is visible, and no later one.

        It is at least ``at_least``, the time of another store's clock: this one's clock follows it unless it is too far
        ahead.
        """
        return ANSWER

    @verb(
        "What the process has counted and measured since its start, as docs/metrics.md lists it: no body. Answers "
        '{"families":[{"name","kind","about","bounds","samples":[{"labels","value","counts","least",'
        '"greatest"}]}]}.',
        None,
        Metrics,
        is_read=True,
    )
    def metrics(self) -> Metrics:
        """Return what the store has counted and measured since it was opened."""
        return ANSWER

    @verb(
        'Whether the store takes writes: no body. Answers {"status":"ok"|"degraded"|"read_only","reason","version",'
        '"server","damaged":[{"path","offset","why","table","tablet","is_quarantined","next_step"}]}.',
        None,
        Health,
    )
    def health(self) -> Health:
        """Return whether the store accepts writes."""
        return ANSWER


VERBS: dict[str, Verb] = {
    method.verb.name: method.verb
    for kind in (Verbs, GrantVerbs, MaintenanceVerbs, PinVerbs)
    for method in vars(kind).values()
    if hasattr(method, "verb")
}
"""By action name, in the order of ListActions."""
