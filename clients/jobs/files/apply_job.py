"""Change application: apply files of changes (CDC) to a table in order, one commit per batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import BaseModel

from ....schemas.errors import InvalidArgumentError, RowErrors
from ....schemas.rows.transaction import TransactionResult
from ...executors.progress import JobProgress, Show
from ..folder import Place
from ..link import Store, StoreLink
from .file_format import ReadOptions
from .input_files import input_files

if TYPE_CHECKING:
    from .change_rows import ChangeFile

BATCH_ROWS = 250_000
FILES_MAX = 4_096
"""How many files the store remembers: with more, one that was applied long ago could be applied again."""


class ApplyResult(BaseModel, frozen=True):
    """The outcome of the job that applies files of changes."""

    table: str
    files: int
    changes: int
    """Rows in the files."""
    applied: int
    """Keys upserted or deleted by this run: of several changes of a key in a batch, the last counts. A key that is
    deleted and comes back with some of the columns counts twice."""
    ignored: int
    """Deletes of keys that did not exist."""
    stale: int = 0
    """Changes older than the rows of their keys: see the table option ``order_by``."""
    commits: int
    skipped: int
    """Batches that an earlier run committed."""
    timestamp: int | None
    """Of this run's last commit."""
    truncated: int = 0
    """Cells of applied rows that were cut to the length of their varchar column."""


def apply_changes(
    store: Store,
    table: str,
    source: Place | Sequence[Place],
    *,
    op_column: str = "_op",
    order_by: str | None = None,
    batch_rows: int = BATCH_ROWS,
    run: str = "",
    options: ReadOptions | None = None,
    show: Show = "auto",
) -> ApplyResult:
    """Apply files of changes to a table, in the order given; the files of a folder in path order.

    Each row of a file has the columns of the table, or the key and some of them, and in ``op_column`` the operation:
    one of ``change_rows.OPERATIONS``. Other columns that start with ``_`` and that the table lacks are ignored. A file
    is split into batches of ``batch_rows`` changes. In each batch the last change of a key counts, by ``order_by`` (by
    default that of the table; then the whole file is sorted) and by position. Cells that a row of JSON lacks stay as
    they are: a row may have only what changed. A batch is one commit: its upserts and deletes become visible
    together, or not at all. ``options`` say how the files are read.

    Run an interrupted run again as it was: it skips batches already applied. Files are identified by path, size and
    modification time; another ``run`` applies them again.

    Raises:
        NotFoundError: the table, a file or a folder does not exist.
        InvalidArgumentError: a file has no key or no ``op_column``, or has an unknown operation.
        RowErrors: rows of a batch were rejected, so none of it was applied; a note names the batch. All earlier batches
            were applied.
    """
    from .change_rows import ChangeFile  # needs numpy

    link = StoreLink.to(store)
    about = link.service.describe_table(table)
    if batch_rows < 1:
        raise InvalidArgumentError(f"batch_rows must be at least 1, not {batch_rows}")
    files = input_files(source, options)
    if len(files) > FILES_MAX:
        raise InvalidArgumentError(f"{len(files):,} files are too many for one run; at most {FILES_MAX:,} are allowed")
    order_by = order_by or about.options.order_by
    results: list[TransactionResult] = []
    changes = 0
    with JobProgress(f"apply changes to {table}", len(files), show) as progress:
        for file in files:
            said = f"{about.table_id}:{op_column}:{order_by}:{batch_rows}:{run}:{file.digest}"
            application = f"apply-{hashlib.blake2b(said.encode(), digest_size=12).hexdigest()}"
            rows, read = 0, ChangeFile(file, about, op_column, order_by)
            for number, batch in enumerate(read.batches(batch_rows)):
                results.append(_apply(link, read, batch, application, number))
                rows += batch.num_rows
            changes += rows
            progress.add(rows)
    return _result(table, len(files), changes, results)


def _apply(
    link: StoreLink, changes: ChangeFile, rows: pa.RecordBatch, application: str, number: int
) -> TransactionResult:
    """Commit one batch, unless an earlier run did."""
    parts = changes.net(rows)
    transaction = link.database.transaction(app_id=application, app_version=number)
    try:
        with transaction:
            for operation, part in parts:
                transaction.write(changes.about.name, part, operation)
    except RowErrors as error:
        error.add_note(
            f"this is batch {number + 1} of {changes.file}; no row of this batch was applied, all earlier batches were "
            "applied"
        )
        raise
    assert transaction.result is not None
    return transaction.result


def _result(table: str, files: int, changes: int, results: Sequence[TransactionResult]) -> ApplyResult:
    done = [result for result in results if not result.skipped]
    return ApplyResult(
        table=table,
        files=files,
        changes=changes,
        applied=sum(result.applied for result in done),
        ignored=sum(result.ignored for result in done),
        stale=sum(result.stale for result in done),
        commits=len(done),
        skipped=len(results) - len(done),
        timestamp=max((result.timestamp for result in done), default=None),
        truncated=sum(result.cells_truncated for result in done),
    )
