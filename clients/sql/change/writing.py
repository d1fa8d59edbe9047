"""Rows by key, as one commit of the store."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError, StoreError, error_of
from ....schemas.protocol.service import StoreService
from ....schemas.rows.batches import in_one
from ....schemas.rows.operation import Operation
from ....schemas.rows.transaction import StagedBatch, TransactionCommit
from ....schemas.rows.write import Stage, WriteCommand, WriteResult
from .target import ChangeTarget

BATCH_ROWS = 65_536
_BATCH_BYTES = 8 << 20
_RULE = re.compile(r"the merge of column ('[^']*'): (column \1)?")
"""In an error of a merge, whose rules the statement does not know."""


class Part(NamedTuple):
    """Rows that an SQL statement writes by one operation."""

    op: Operation
    rows: pa.Table
    rules: dict[str, str] | None = None
    """Of a merge, which must be ``is_one_write``."""


class Changed(NamedTuple):
    """The outcome of an SQL statement that changes rows or tables."""

    kind: str
    """The statement, such as ``UPDATE`` or ``CREATE TABLE``."""
    count: int
    """How many rows it changed, as PostgreSQL counts them: an UPDATE counts rows that keep their values."""
    timestamp: int | None = None
    """That of its commit; None if nothing was committed, or not yet."""


@dataclass(frozen=True)
class Work:
    """What a try of an SQL statement has to write: its parts, in order, and how many rows the statement then has
    changed."""

    target: ChangeTarget
    kind: str
    parts: list[Part]
    count: int
    if_timestamp: int | None
    """A row that changed after this moment refuses all."""
    counts_applied: bool = False
    """Whether the store counts the rows, since some may be ignored."""
    is_read: bool = True
    """Whether rows of the table itself decide what is written."""

    def done(self, result: WriteResult | None) -> Changed:
        """Return the outcome, once written; None: nothing was to be written."""
        if result is None:
            return Changed(self.kind, 0 if self.counts_applied else self.count)
        count = result.applied if self.counts_applied else self.count - result.stale
        return Changed(self.kind, count, result.timestamp)


@dataclass
class Staging:
    """What SQL statements have staged in the store as parts of a transaction, and not yet committed."""

    store: StoreService
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    parts: list[str] = field(default_factory=list)
    _count: int = 0

    def stage(self, target: ChangeTarget, parts: Iterable[Part]) -> list[str]:
        """Stage parts and return their names, which ``commit`` lists. Raises StoreError: they do not count."""
        names: list[str] = []
        for part in parts:
            if not part.rows.num_rows:
                continue
            self._count += 1
            stage = Stage(transaction=self.id, part=str(self._count), table_id=target.about.bound_id)
            command = WriteCommand(table=target.name, op=part.op, stage=stage, rules=part.rules)
            names += self.store.stage(command, map(StagedBatch, batches_of(part.rows))).parts
        return names

    def commit(self, if_timestamp: int | None) -> WriteResult:
        """Apply ``parts`` as one commit. Raises as ``refuse_rows``; nothing is applied then."""
        commit = TransactionCommit(transaction=self.id, parts=self.parts, if_timestamp=if_timestamp)
        result = self.store.commit_transaction(commit)
        refuse_rows(result)
        return result

    def abort(self) -> None:
        """Discard all that is staged; the store does so later if it cannot now."""
        with suppress(StoreError):
            self.store.abort_transaction(self.id)


def write(store: StoreService, work: Work) -> Changed:
    """Write what an SQL statement has to write, as one commit.

    Raises:
        ConflictError: a row changed after ``if_timestamp``, or the table did. Nothing was applied.
        AlreadyPresentError: a key is there already, or twice in the rows. Nothing was applied.
        StoreError: nothing was applied.
    """
    parts = [part for part in work.parts if part.rows.num_rows]
    if not parts:
        return work.done(None)
    if len(parts) == 1 and is_one_write(work.target, parts[0].rows):
        return work.done(_write_at_once(store, work, parts[0]))
    staging = Staging(store)
    try:
        staging.parts = staging.stage(work.target, parts)
        return work.done(staging.commit(work.if_timestamp))
    except BaseException:
        staging.abort()
        raise


def _write_at_once(store: StoreService, work: Work, part: Part) -> WriteResult:
    command = WriteCommand(
        table=work.target.name,
        table_id=work.target.about.bound_id,
        op=part.op,
        atomic=True,
        if_timestamp=work.if_timestamp,
        rules=part.rules,
    )
    try:
        result = store.write(command, in_one(part.rows.to_batches()))
        refuse_rows(result)
    except InvalidArgumentError as error:
        if part.rules is None:
            raise
        raise InvalidArgumentError(_RULE.sub(_of_column, error.message, count=1)) from None
    return result


def _of_column(rule: re.Match[str]) -> str:
    return rule[2] or f"column {rule[1]}: "


def refuse_rows(result: WriteResult) -> None:
    """Raise the error of the first row of an SQL statement that the store refused, if it refused any.

    A conflict comes first: what else is refused may be another once the rows are read again. Of several servers, those
    that refuse no row have applied theirs.

    Raises:
        ConflictError, AlreadyPresentError, NotFoundError, InvalidArgumentError: the message names the key or column.
    """
    if not result.error_count:
        return
    first = next((each for each in result.errors if each.code == "CONFLICT"), result.errors[0])
    more = f" (and {result.error_count - 1:,} more rows)" if result.error_count > 1 else ""
    rest = f"{result.applied:,} rows of other servers were changed" if result.applied else "nothing was changed"
    raise error_of(first.code, f"{first.message}{more}; {rest}")


def batches_of(rows: pa.Table) -> Sequence[pa.RecordBatch]:
    """Return the rows of an SQL statement as batches that are small enough to be sent."""
    each = max(1, min(BATCH_ROWS, rows.num_rows * _BATCH_BYTES // max(rows.nbytes, 1)))
    return rows.combine_chunks().to_batches(max_chunksize=each)


def is_one_write(target: ChangeTarget, rows: pa.Table) -> bool:
    """Return whether the rows of an SQL statement are written at once, instead of being staged and then committed."""
    return len(target.about.stores) <= 1 and rows.num_rows <= BATCH_ROWS and rows.nbytes <= _BATCH_BYTES
