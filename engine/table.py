"""Table: routes a batch to its tablets and commits it; finds rows by key; unites the scans of its tablets.

For now a table has one tablet. All that knows this is ``_route``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..schemas.column import ColumnSchema
from ..schemas.errors import InvalidArgumentError
from ..schemas.limits import Limits
from ..schemas.literal import from_json
from ..schemas.operation import Operation
from ..schemas.table import TableOptions, TableSchema
from ..schemas.timestamp import parse_moment
from ..schemas.write import Durability, WriteCommand, WriteResult
from .answer import answer, required_columns
from .commit_log import Commit, CommitLog
from .incoming import Incoming, check_batch, over_limit
from .tablet import outcome
from .tablet.change import Change, ChangeKind
from .tablet.lookup import look_up
from .tablet.outcome import Outcome, Shape
from .tablet.tablet import Tablet
from .vectors.keys import BytesKeys, KeyVector, first_occurrences, hash_keys, take_keys
from .writers import Answered, Ticket


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """A write that is applied and not acknowledged. It becomes visible whether or not the answer is asked for."""

    schema: TableSchema
    batch: pa.RecordBatch
    incoming: Incoming
    status: np.ndarray
    rejected: bool
    commit: Commit | None
    log: CommitLog
    durability: Durability

    def result(self) -> WriteResult:
        """Return the answer once the write is durable and visible.

        Raises:
            UnavailableError: the log failed; whether the write survives is known after a restart.
        """
        timestamp = self.log.settle() if self.commit is None else self.commit.timestamp
        if self.commit is not None:
            self.log.acknowledge(self.commit, self.durability)
        return answer(self.batch, self.schema, self.incoming, self.status, timestamp, self.durability, self.rejected)


@dataclass(frozen=True, slots=True)
class RepeatedWrite:
    """A numbered write that was made before: its answer is there, though it may not be durable yet."""

    known: Answered
    log: CommitLog
    durability: Durability

    def result(self) -> WriteResult:
        """Return the first answer once the write is durable and visible. Raises as ``PendingWrite.result``."""
        self.log.acknowledge(Commit(self.known.timestamp, self.known.lsn), self.durability)
        return self.known.result(self.durability)


class Table:
    """An open table. Thread safe."""

    def __init__(
        self, table_id: int, name: str, schema: TableSchema, options: TableOptions, tablets: tuple[Tablet, ...]
    ) -> None:
        self.table_id = table_id
        self.name = name
        self.schema = schema
        self.options = options
        self.tablets = tablets
        self._immutable = {column.id for column in schema.values if column.immutable}
        self._defaults = {column.id: _default_cell(column) for column in schema.values}
        self._default_bytes = {column_id: pa.repeat(cell, 1).nbytes for column_id, cell in self._defaults.items()}

    def begin_write(
        self,
        command: WriteCommand,
        batch: pa.RecordBatch,
        log: CommitLog,
        limits: Limits,
        durability: Durability,
        ticket: Ticket | None = None,
    ) -> PendingWrite:
        """Apply a batch as one commit, and return what becomes its answer when the commit is durable.

        With a ``ticket`` the answer is logged and kept too, also when no row changes.

        Raises:
            InvalidArgumentError: the batch as a whole is wrong.
            SnapshotTooOldError: history no longer reaches back to the command's ``if_timestamp``.
            StorageFullError, UnavailableError: nothing was applied.
        """
        incoming = check_batch(batch, self.schema, command.op, limits)
        self._check_defaults(incoming, command.op, limits)
        incoming, keys = self._keyed(incoming, command.op, limits)
        hashes = hash_keys(keys)
        tablet = self._route(keys)
        shape = self._shape(set(incoming.column_ids))
        commit = None
        with tablet.write_lock:
            decided = tablet.decide(
                command.op,
                keys,
                hashes,
                first_occurrences(keys, hashes),
                shape,
                None if command.if_timestamp is None else parse_moment(command.if_timestamp, "if_timestamp"),
            )
            rejected = command.atomic and _has_errors(incoming, decided)
            if ticket or (decided.changes_rows and not rejected):
                changes = [] if rejected else self._changes(tablet, incoming.rows, decided)
                said = answer(batch, self.schema, incoming, decided.status, 0, durability, rejected) if ticket else None
                notes = [ticket.note(said)] if ticket and said else []
                with log.commit([change for change, _ in changes], notes, durability) as commit:
                    for change, locations in changes:
                        tablet.apply(change, locations, commit.timestamp, commit.lsn)
                    if ticket and said:
                        ticket.keep(said, commit.lsn, commit.timestamp)
        return PendingWrite(self.schema, batch, incoming, decided.status, rejected, commit, log, durability)

    def get(self, keys: pa.RecordBatch, snapshot: int, limits: Limits) -> pa.Table:
        """Return the live rows of the given keys at ``snapshot``, in the order asked."""
        incoming = check_batch(keys, self.schema, Operation.DELETE, limits)
        if incoming.refusals.reasons:
            raise InvalidArgumentError(incoming.refusals.reasons[0][1])
        incoming, encoded = self._keyed(incoming, Operation.DELETE, limits)
        return look_up(self._route(encoded), encoded, snapshot, self.schema.columns)

    def _shape(self, sent: set[int]) -> Shape:
        """Return what a batch of the columns ``sent`` can do."""
        immutable = sent & self._immutable
        return Shape(
            is_complete=not required_columns(self.schema, sent),
            has_values=len(sent) > self.schema.key_columns + len(immutable),
            has_immutable=bool(immutable),
        )

    def _check_defaults(self, incoming: Incoming, operation: Operation, limits: Limits) -> None:
        """Refuse few bytes whose long defaults would make them many."""
        if operation.base in (Operation.INSERT, Operation.UPSERT):
            absent = set(self._defaults).difference(incoming.column_ids)
            size = incoming.rows.num_rows * sum(self._default_bytes[column_id] for column_id in absent)
            if size > limits.batch_bytes:
                raise InvalidArgumentError(f"the write_defaults of the columns left out {over_limit(size, limits)}")

    def _keyed(self, incoming: Incoming, operation: Operation, limits: Limits) -> tuple[Incoming, KeyVector]:
        """Encode the keys and refuse those that are too large; deletes of them are let through to find nothing."""
        keys = self.tablets[0].encode_keys(incoming.rows)
        if operation.base is Operation.DELETE or not isinstance(keys, BytesKeys):
            return incoming, keys
        too_large = np.diff(keys.offsets) > limits.key_bytes
        if not too_large.any():
            return incoming, keys
        kept = np.flatnonzero(~too_large)
        return incoming.without(too_large, f"the encoded key has more than {limits.key_bytes:,} bytes"), take_keys(
            keys, kept
        )

    def _route(self, keys: KeyVector) -> Tablet:
        """Return the tablet that holds the keys."""
        del keys
        return self.tablets[0]

    def _changes(self, tablet: Tablet, rows: pa.RecordBatch, decided: Outcome) -> list[tuple[Change, np.ndarray]]:
        """Return what is to be logged and applied, with the locations of its rows."""
        changes: list[tuple[Change, np.ndarray]] = []

        def add(kind: ChangeKind, part: pa.RecordBatch, chosen: np.ndarray, locations: np.ndarray) -> None:
            if len(chosen):
                changes.append((Change(tablet.tablet_id, kind, _taken(part, chosen)), locations))

        if len(decided.stores):
            stored = Change(tablet.tablet_id, ChangeKind.STORE, self._stored(rows, decided))
            changes.append((stored, decided.store_locations))
        mutable = [name for name in rows.schema.names if int(name) not in self._immutable]
        add(ChangeKind.UPDATE, rows.select(mutable), decided.updates, decided.update_locations)
        keys = rows.select([str(column.id) for column in self.schema.key])
        add(ChangeKind.DELETE, keys, decided.deletes, decided.delete_locations)
        return changes

    def _stored(self, rows: pa.RecordBatch, decided: Outcome) -> pa.RecordBatch:
        """Return the rows that are stored, with every column of the table.

        Immutable cells are those of the first row with the key; defaults stand where the data had no column.
        """
        present = set(rows.schema.names)
        stored = first = _taken(rows, decided.stores)
        if self._immutable and not np.array_equal(decided.stores, decided.store_leaders):
            first = _taken(rows, decided.store_leaders)

        def cells(column_id: int) -> pa.Array:
            if str(column_id) not in present:
                return pa.repeat(self._defaults[column_id], len(decided.stores))
            return (first if column_id in self._immutable else stored).column(str(column_id))

        arrays = [cells(column.id) for column in self.schema.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in self.schema.columns])


def _default_cell(column: ColumnSchema) -> pa.Scalar:
    value = from_json(column.write_default, column.logical, f"the write_default of column {column.name!r}:")
    return pa.scalar(value, column.logical.arrow)


def _has_errors(incoming: Incoming, decided: Outcome) -> bool:
    return incoming.refusals.by_row is not None or bool((decided.status < outcome.IGNORED).any())


def _taken(rows: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    """Return the chosen rows; without a copy when these are all, in their order."""
    return rows if len(chosen) == rows.num_rows and _is_ascending(chosen) else rows.take(pa.array(chosen))


def _is_ascending(rows: np.ndarray) -> bool:
    return len(rows) < 2 or bool((rows[1:] > rows[:-1]).all())
