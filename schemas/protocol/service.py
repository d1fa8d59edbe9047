"""The interface of every store, in this process or behind Arrow Flight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

import pyarrow as pa

from ..errors import InternalError, StoreError
from ..rows.prune_count import PruneCount
from ..rows.scan import ScanSpec
from ..rows.transaction import StagedBatch, StageResult
from ..rows.write import WriteCommand, WriteResult
from ..store.description import TableDescription
from ..store.moving import MoveProgress
from ..table.table import TableSchema
from .keys import key_of, only_row
from .verb import Verb
from .verbs import Verbs


class MaintenanceKind(StrEnum):
    """The operations of the verb ``maintain``, which run at once on the caller's thread."""

    FLUSH = "flush"
    """Write the MemRowSets to disk."""
    FLUSH_DELTAS = "flush_deltas"
    """Write the DeltaMemStores to REDO files."""
    COMPACT = "compact"
    """Merge all DiskRowSets of a tablet into ones that do not overlap, their deltas included."""
    MINOR_COMPACT = "minor_compact"
    """Merge the REDO files of each DiskRowSet into one."""
    MAJOR_COMPACT = "major_compact"
    """Update base columns to the newest REDO; the REDO files then contain only deletes and re-inserts."""
    GC = "gc"
    """Drop what only snapshots before the table's history can see."""


class Marked(NamedTuple):
    """What a store's service yields next of a resumable scan: rows, if any, and the progress after them."""

    batch: pa.RecordBatch | None
    below: bytes | None
    """Exactly the rows with encoded keys below this one have been yielded; None: unknown here."""


class OneBatch:
    """The only batch of a scan, an iterator, as the message of an Arrow stream: it is decoded when it is asked for, and
    a session sends it as it is."""

    def __init__(self, schema: pa.Schema, message: memoryview, num_rows: int) -> None:
        self.message = message
        """Its head and its body."""
        self.num_rows = num_rows
        self._schema: pa.Schema | None = schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        schema, self._schema = self._schema, None
        if schema is None:
            raise StopIteration
        return pa.ipc.read_record_batch(pa.py_buffer(self.message), schema)


@dataclass(frozen=True, slots=True)
class ScanStream:
    """A running scan, as a store's service answers it: ``batches`` at ``snapshot``, all of ``schema``.

    ``batches`` is a generator; closing it releases what the scan pins. Batches hold rows of one rowset (or, ordered, of
    all) and any number of bytes; the sender splits them.
    """

    schema: pa.Schema
    snapshot: int | None
    """None if the scan reads at its own "now", which is not reported."""
    batches: Iterator[pa.RecordBatch]
    marked: Iterator[Marked] | None = None
    """The same batches with the keys at which the scan can resume, if it was asked for ``marks``. Read only one of the
    two."""
    rest: Callable[[], ScanSpec] | None = None
    """Returns what is left to read after an error, if known."""
    counts: PruneCount | None = None
    """What it has read and skipped so far; None if that is counted elsewhere, or by no rowset and chunk."""
    source: tuple[int, TableSchema] | None = None
    """The number of the table that is read, and the schema by which the names of the request were understood; None:
    another process knows."""

    def close(self) -> None:
        """Release what the scan pins, whether it was begun or not."""
        for items in (self.batches, self.marked):
            if end := getattr(items, "close", None):
                end()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches)

    def to_table(self) -> pa.Table:
        """Return all rows, in memory."""
        return pa.Table.from_batches(list(self.batches), self.schema)


@runtime_checkable
class RowRelay(Protocol):
    """An interface beside ``StoreService``: the service of a store whose rows are on other servers, and whose answers a
    server passes on."""

    def told_row(self, table: str, key: Sequence[Any]) -> dict[str, Any] | None:
        """Return what the server that has a row answers to a get in a session, with the ``table_id`` of this store's
        description. ``key`` is as sessions write it.

        None: it is not known where the row is, or of which version of the table. Ask the methods of the store.
        """
        ...


class RowStamp(NamedTuple):
    """Until when the row of a key is the newest one: as long as each of the three addresses has a timestamp (uint64)
    that is no later than the moment."""

    moment: int
    """The timestamp of the snapshot at which the row was read."""
    row: int
    table: int
    store: int


class KeptAnswers(Protocol):
    """The answers to gets that a store keeps, as the messages of sessions, while they are right. Thread safe."""

    @property
    def address(self) -> int:
        """Where they are; see `engine.kernels.reads.kept_answers`."""
        ...

    def number_of(self, asker: Hashable) -> int:
        """Return the number of those who get the same answers as ``asker``. It may change: ask for each session."""
        ...

    def keep(self, asker: int, stamp: RowStamp, question: bytes, answer: bytes) -> None:
        """Keep an answer while its row is the newest one, unless it is too large."""
        ...


@runtime_checkable
class AnswerKeeper(Protocol):
    """An interface beside ``StoreService``: the service of a store in this process, which may keep answers."""

    def kept_answers(self) -> tuple[KeptAnswers, Hashable] | None:
        """Return the answers that it keeps, and who asks: others may get other answers. None: it keeps none."""
        ...

    def stamped_row(self, table: TableDescription, key: Sequence[Any]) -> tuple[dict[str, Any] | None, RowStamp | None]:
        """Do as ``get_row``, and return until when the row is the newest one; None: that cannot be told."""
        ...


@runtime_checkable
class GrantKeeper(Protocol):
    """An interface beside ``StoreService``: the service of a store in this process, which tells at once whether grants
    have changed."""

    def grants_version(self) -> object:
        """Return what differs after each change of what ``grants`` returns."""
        ...


class PendingResult(Protocol):
    """The interface of a write to a ``StoreService`` that is in flight."""

    def result(self) -> WriteResult:
        """Return the answer once the write is durable. From any thread; may raise ``StoreError``."""
        ...


class KeyReader(Protocol):
    """An interface that is a part of ``StoreService``: the service of a store that finds rows by their keys."""

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """Start to read the live rows of the given primary keys, all at one snapshot, in the order of the keys. Absent
        keys are left out; one that is given twice is answered twice.

        The stream has at least one batch. Its batches have some MB, but for single rows that are larger: so an answer
        takes little memory, however long it is.
        """
        ...

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """Do as ``look_up``, and return all rows, in memory."""
        return self.look_up(table, keys).to_table()

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """Return the live row with a key as Python values by column, None if there is none.

        ``key`` has a value for each key column of ``table``, which may be out of date: the row has the columns of
        today. Stores that read a row in a shorter way than ``get`` do so.
        """
        return only_row(self.get(table.name, key_of(key, table)))


class RowWriter(Protocol):
    """An interface beside ``StoreService``: the service of a store that may write a few rows without Arrow. Each method
    returns None if nothing was done, and the rows have to come as a batch: to ``write``, which also raises what there
    is to raise."""

    def write_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> WriteResult | None:
        """Apply one row, as Python values by column, as ``write`` does a batch of it."""
        return None

    def begin_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> PendingResult | None:
        """Like ``write_row``, but return as ``begin_write`` does."""
        return None

    def write_rows(self, command: WriteCommand, rows: Sequence[Mapping[str, Any]]) -> WriteResult | None:
        """Apply two or more rows, as Python values by column, as ``write`` does a batch of them."""
        return None


class RowGatherer(Protocol):
    """What writes rows of many callers together, each as a commit of its own. Thread safe."""

    def write_each(self, rows: Sequence[Any]) -> Sequence[WriteResult | StoreError | None]:
        """Write rows that a ``RowPlanner`` of the same store has planned. Return the answer to each, or its error;
        None: nothing was done, and it has to come as to ``write_row``. It waits for nothing but the log."""
        ...


@runtime_checkable
class RowPlanner(Protocol):
    """An interface beside ``StoreService``: the service of a store in this process, which may write rows together."""

    def gatherer(self) -> RowGatherer | None:
        """Return what writes its planned rows; None: it has to get them in another way."""
        ...

    def planned_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None) -> object | None:
        """Return a numbered row, as Python values by column, for the ``gatherer``; None: it has to come as to
        ``write_row``. Raises as that, with nothing done."""
        ...


class StoreService(Verbs, KeyReader, RowWriter, Protocol):
    """The service of a store. Every method may raise ``StoreError``; all may be called from many threads at once."""

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """Apply one record batch as one commit and return when it is durable.

        Row errors are in the answer, never raised. With a ``writer`` in the command and a ``seq``, a batch that was
        applied before gets its first answer again.
        """
        ...

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        """Like ``write``, but return as soon as the batch has its place in the order of commits.

        The batch becomes durable and visible even if its ``result`` is never called. Batches are applied in the order
        of these calls; each is durable when its ``result`` returns.
        """
        ...

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """Apply batches one by one, in order, each one commit; yield an answer for each, pipelined where that pays.

        Error positions count from the start of their own batch.
        """
        ...

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """Stage rows as the part of a transaction that ``command.stage`` names, in the order in which they are applied.

        Nothing is visible before the transaction is committed. A part that raises on the way is discarded; one that is
        staged again replaces the first.
        """
        ...

    def scan(self, spec: ScanSpec) -> ScanStream:
        """Start a scan. Invalid columns, filters and moments are raised here, not by the first batch."""
        ...

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """Move a tablet to another server that shares the table; reads and writes continue meanwhile.

        ``tablet`` is its number on its server; ``server`` names that server if several have a tablet of this number.
        """
        ...

    def close(self) -> None:
        """Close the store. Acknowledged writes are already durable."""
        ...


class RefusingStore(Verbs, KeyReader, RowWriter):
    """A ``StoreService`` that refuses every call, but for those that a subclass answers."""

    @abstractmethod
    def refuse(self) -> NoReturn:
        """Raise the error of a call that is not answered here."""
        raise InternalError("a store that refuses a call says why")

    def perform(self, verb: Verb, *_: Any, **__: Any) -> NoReturn:
        """See Verbs."""
        self.refuse()

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """See StoreService."""
        self.refuse()

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        """See StoreService."""
        self.refuse()

    def write_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> WriteResult | None:
        """See RowWriter. A client that is asked for a batch gives that a new number, and is not to be asked here."""
        self.refuse()

    def begin_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> PendingResult | None:
        """See RowWriter."""
        self.refuse()

    def write_rows(self, command: WriteCommand, rows: Sequence[Mapping[str, Any]]) -> WriteResult | None:
        """See RowWriter."""
        self.refuse()

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """See StoreService."""
        self.refuse()

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """See StoreService."""
        self.refuse()

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        self.refuse()

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService."""
        self.refuse()

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """See StoreService."""
        self.refuse()

    def close(self) -> None:
        """See StoreService."""
