"""TabletPart: the rows of a staged part for one tablet, checked, a limited number of bytes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.rows.batches import in_one
from ...schemas.rows.operation import Operation
from ...schemas.rows.transaction import StagedRowError
from ...schemas.rows.write import Durability
from ..table.auto_increment import NO_IDS
from ..table.checked_batch import CheckedBatch, RowRefusals, check_batch, row_bytes
from ..table.computing import Computing
from ..table.routed_batch import RoutedBatch, route
from ..table.table import Table
from ..table.table_version import TableVersion
from ..table.write_result import NO_REASONS, answer
from ..tablet import outcome
from ..tablet.outcome import Shape
from ..tablet.tablet import Tablet
from ..vectors.keys.keys import KeyVector, first_occurrences, hash_keys, take_keys
from .staging.area import StagedPart

CHUNK_BYTES = 32 << 20
"""Batches of one operation and schema are combined up to this size."""
_LITTLE_BYTES = 1 << 10


class StagedChunk(NamedTuple):
    """Consecutive rows of a transaction's part with one operation."""

    part: str
    first_row: int
    operation: Operation
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True, eq=False)
class TabletPart:
    """Rows of a transaction, of one chunk, that belong to one tablet."""

    part: str
    operation: Operation
    shape: Shape
    tablet: Tablet
    rows: pa.RecordBatch
    keys: KeyVector
    hashes: np.ndarray
    first: np.ndarray
    """For each row, the first row of the piece with its key."""
    positions: np.ndarray
    """The position of each row in its part as staged."""
    cuts: np.ndarray | None
    """How many cells of each row were cut; None if none was."""
    computing: Computing | None
    """What is to be computed for the rows; None: nothing."""

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def makes_rows(self) -> bool:
        """Whether rows with new keys are inserted."""
        return self.operation.base in (Operation.INSERT, Operation.UPSERT) and self.shape.is_complete

    def chosen(self, rows: np.ndarray) -> TabletPart:
        """Return only the rows of a mask (bool), which takes all rows of a key or none."""
        if rows.all():
            return self
        at = np.flatnonzero(rows)
        keys, hashes = take_keys(self.keys, at), self.hashes[at]
        first = first_occurrences(keys, hashes)
        taken = self.rows.take(pa.array(at))
        cuts = None if self.cuts is None else self.cuts[at]
        return replace(self, rows=taken, keys=keys, hashes=hashes, first=first, positions=self.positions[at], cuts=cuts)

    def alone(self) -> TabletPart:
        """Return a copy that does not keep its chunk in memory, if the chunk is much larger."""
        if self.rows.get_total_buffer_size() <= 2 * self.rows.nbytes + _LITTLE_BYTES:
            return self
        at = np.arange(len(self))
        return replace(self, rows=self.rows.take(pa.array(at)), keys=take_keys(self.keys, at))


class Refusals:
    """The refused rows of a transaction: the first of them, and the number of all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.errors: list[StagedRowError] = []
        self.count = 0

    def add(
        self,
        part: str,
        version: TableVersion,
        table: Table,
        checked: CheckedBatch,
        status: np.ndarray,
        first: int,
        reasons: Mapping[int, str] = NO_REASONS,
    ) -> None:
        """Add the refused rows of a part's batch, whose first row has position ``first`` in the part."""
        said = answer(checked.rows, version.schema, checked, status, 0, Durability.FSYNC, True, None, reasons)
        self.count += said.error_count
        room = self._most - len(self.errors)
        self.errors += [
            StagedRowError(part=part, table=table.name, row=error.row + first, code=error.code, message=error.message)
            for error in said.errors[:room]
        ]

    def extend(self, others: Refusals) -> None:
        """Add those of other rows."""
        self.count += others.count
        self.errors += others.errors[: self._most - len(self.errors)]

    def add_failed(
        self, piece: TabletPart, version: TableVersion, table: Table, status: np.ndarray, reasons: Mapping[int, str]
    ) -> None:
        """Add the rows of a piece that did not apply to the state of the table."""
        if (status < outcome.IGNORED).any():
            checked = CheckedBatch(piece.rows, piece.positions, RowRefusals(len(piece)))
            self.add(piece.part, version, table, checked, status, 0, reasons)


def chunks(part: StagedPart, version: TableVersion, limits: Limits) -> Iterator[StagedChunk]:
    """Yield the rows of a transaction's part in order, in batches of at most the size that one write may have.

    Raises:
        CorruptionError: its file is not what was written.
    """
    waiting: list[pa.RecordBatch] = []
    size = rows = first = 0
    most_bytes, operation = min(CHUNK_BYTES, limits.batch_bytes), Operation.UPSERT
    for next_operation, batch in part.batches():
        is_same = bool(waiting) and next_operation is operation and batch.schema.equals(waiting[0].schema)
        is_full = size + batch.nbytes > most_bytes or (
            rows + batch.num_rows > limits.batch_bytes // _row_bytes(batch.schema, version)
        )
        if waiting and (not is_same or is_full):
            yield StagedChunk(part.info.part, first, operation, in_one(waiting))
            first, waiting, size, rows = first + rows, [], 0, 0
        operation = next_operation
        waiting.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
    if waiting:
        yield StagedChunk(part.info.part, first, operation, in_one(waiting))


def _row_bytes(sent: pa.Schema, version: TableVersion) -> int:
    """Return the bytes per row that the check of a batch counts: of the cells sent, or of the defaults."""
    columns = [version.schema.by_name[name] for name in sent.names if name in version.schema.by_name]
    return max(row_bytes(columns), version.bytes_of_defaults(column.id for column in columns), 1)


def keys_of(chunk: StagedChunk, table: Table, version: TableVersion, limits: Limits) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of the keys in a chunk of a transaction, none if the store will number the rows, since it gives
    no id that the transaction brings; and the ids that upserts bring, without those that were assigned before."""
    schema = version.schema
    if schema.auto_incrementing and chunk.operation.base is Operation.INSERT:
        return np.empty(0, np.uint64), NO_IDS
    with _about(chunk):
        keys = chunk.batch.select([column.name for column in schema.key])
        checked = check_batch(keys, schema, Operation.DELETE, limits)
        rows = table.auto_increment.number(checked, schema, chunk.operation).rows
        ids = NO_IDS
        if schema.auto_incrementing and chunk.operation.base is Operation.UPSERT:
            ids = rows.column(schema.key_columns - 1).to_numpy(zero_copy_only=False)
        return hash_keys(version.keys_of(rows)), ids[ids > table.auto_increment.last]


def routed(
    chunk: StagedChunk, table: Table, version: TableVersion, limits: Limits, now: int, brought: np.ndarray = NO_IDS
) -> RoutedBatch:
    """Check a chunk of a transaction at the moment ``now`` and divide it by tablet; ``brought`` are the ids that the
    transaction brings. Thread safe, but rows that the store numbers must come in order.

    Raises:
        InvalidArgumentError: it does not fit the table, whatever its cells.
    """
    with _about(chunk):
        return route(version, chunk.batch, chunk.operation, limits, table.auto_increment, now, brought)


def pieces(chunk: StagedChunk, routed: RoutedBatch, table: Table, refusals: Refusals) -> list[TabletPart]:
    """Return the rows of a transaction's chunk by tablet, without the refused ones, which are added to ``refusals``."""
    checked = routed.checked
    if checked.refusals.by_row is not None:
        applied = np.zeros(checked.rows.num_rows, np.int8)
        refusals.add(chunk.part, routed.version, table, checked, applied, chunk.first_row)
    return _tablet_parts(chunk, routed)


def _tablet_parts(chunk: StagedChunk, routed: RoutedBatch) -> list[TabletPart]:
    checked = routed.checked
    accepted = np.arange(checked.rows.num_rows) if checked.positions is None else checked.positions
    cuts = checked.cuts
    return [
        TabletPart(
            part=chunk.part,
            operation=chunk.operation,
            shape=routed.shape,
            tablet=part.tablet,
            rows=part.rows,
            keys=part.keys,
            hashes=part.hashes,
            first=part.first,
            positions=chunk.first_row + (accepted if part.positions is None else accepted[part.positions]),
            cuts=cuts if cuts is None or part.positions is None else cuts[part.positions],
            computing=routed.computing,
        )
        for part in routed.parts
        if len(part.hashes)
    ]


@contextmanager
def _about(chunk: StagedChunk) -> Iterator[None]:
    """Name the part in errors about its rows."""
    try:
        yield
    except InvalidArgumentError as error:
        where = f"part {chunk.part!r}, from row {chunk.first_row:,} on"
        raise InvalidArgumentError(f"{where}: {error.message}") from error
