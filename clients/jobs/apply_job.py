"""Change application: apply files of changes (CDC) to a table in order, one commit per batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pydantic import BaseModel

from ...schemas import compute as pc
from ...schemas.description import TableDescription
from ...schemas.errors import InvalidArgumentError, RowErrors
from ...schemas.operation import Operation
from ...schemas.transaction import TransactionResult
from ..executors.progress import JobProgress, Show
from .folder import Place
from .input_files import InputFile, input_files
from .link import Store, StoreLink
from .writing import replacing

BATCH_ROWS = 250_000
FILES_MAX = 4_096
"""How many files the store remembers: with more, one that was applied long ago could be applied again."""

_MEANINGS = {
    "upsert": "insert update upsert i u c r +i +u update_postimage update_after",
    "delete": "delete d -d",
    "skip": "-u update_preimage update_before",
}
OPERATIONS: Mapping[str, str] = {word: kind for kind, words in _MEANINGS.items() for word in words.split()}
"""The meaning of the words in the operation column, in lower case: ours, Debezium's, Delta's and Flink's."""
_KIND, _PLACE = "_kind", "_place"


class ApplyResult(BaseModel, frozen=True):
    """The outcome of applying changes."""

    table: str
    files: int
    changes: int
    """Rows in the files."""
    applied: int
    """Keys upserted or deleted by this run: of several changes of a key in a batch, the last counts."""
    ignored: int
    """Deletes of keys that did not exist."""
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
    show: Show = "auto",
) -> ApplyResult:
    """Apply files of changes to a table, in the order given; the files of a folder in path order.

    Each row of a file has the columns of the table, or the key and some of them, and in ``op_column`` the operation:
    one of ``OPERATIONS``. Other columns that start with ``_`` are ignored. A file is split into batches of
    ``batch_rows`` changes. In each batch the last change of a key counts, by ``order_by`` (then the whole file is
    sorted) and by position. A batch is one commit: its upserts and deletes become visible together, or not at all.

    Run an interrupted run again as it was: it skips batches already applied. Files are identified by path, size and
    modification time; another ``run`` applies them again.

    Raises:
        NotFoundError: the table, a file or a folder does not exist.
        InvalidArgumentError: a file has no key or no ``op_column``, or has an unknown operation.
        RowErrors: rows of a batch were rejected, so none of it was applied; a note names the batch. All earlier batches
            were applied.
    """
    link = StoreLink.to(store)
    about = link.service.describe_table(table)
    if batch_rows < 1:
        raise InvalidArgumentError(f"batch_rows must be at least 1, not {batch_rows}")
    files = input_files(source)
    if len(files) > FILES_MAX:
        raise InvalidArgumentError(f"{len(files):,} files are too many for one run; at most {FILES_MAX:,} are allowed")
    results: list[TransactionResult] = []
    changes = 0
    with JobProgress(f"apply changes to {table}", len(files), show) as progress:
        for file in files:
            said = f"{about.table_id}:{op_column}:{order_by}:{batch_rows}:{run}:{file.digest}"
            application = f"apply-{hashlib.blake2b(said.encode(), digest_size=12).hexdigest()}"
            rows = 0
            for number, batch in enumerate(_batches(file, about, op_column, order_by, batch_rows)):
                results.append(_apply(link, about, batch, op_column, application, number, file))
                rows += batch.num_rows
            changes += rows
            progress.add(rows)
    return _result(table, len(files), changes, results)


def _apply(
    link: StoreLink,
    about: TableDescription,
    changes: pa.Table,
    op_column: str,
    application: str,
    number: int,
    file: InputFile,
) -> TransactionResult:
    """Commit one batch, unless an earlier run did."""
    there, gone = net_changes(changes, about, op_column)
    transaction = link.database.transaction(app_id=application, app_version=number)
    try:
        with transaction:
            if gone.num_rows:
                transaction.write(about.name, gone, Operation.DELETE_IGNORE)
            if there.num_rows:
                transaction.write(about.name, there, replacing(about))
    except RowErrors as error:
        error.add_note(f"this is batch {number + 1} of {file}; none of it was applied, all earlier batches were")
        raise
    assert transaction.result is not None
    return transaction.result


def net_changes(changes: pa.Table, about: TableDescription, op_column: str) -> tuple[pa.Table, pa.Table]:
    """Return the rows to upsert and the keys to delete, by the last change of each key.

    Raises:
        InvalidArgumentError: an operation is unknown.
    """
    words = pc.utf8_lower(changes[op_column].cast(pa.string()))
    place = pc.index_in(words, pa.array(list(OPERATIONS)))
    if place.null_count:
        unknown = changes.filter(pc.is_null(place))[op_column][0].as_py()
        raise InvalidArgumentError(
            f"column {op_column!r} has the unknown operation {unknown!r}; known: {', '.join(OPERATIONS)}"
        )
    kinds = pc.take(pa.array(list(OPERATIONS.values())), place)
    told = changes.append_column(_KIND, kinds).filter(pc.not_equal(kinds, "skip"))
    numbered = told.append_column(_PLACE, pc.cumulative_sum(pa.repeat(1, told.num_rows)))
    newest = numbered.group_by(about.primary_key).aggregate([(_PLACE, "max")])[f"{_PLACE}_max"]
    last = told.take(pc.subtract(newest.take(pc.sort_indices(newest)), 1))
    is_gone = pc.equal(last[_KIND], "delete")
    columns = [column.name for column in about.columns if column.name in last.column_names]
    return last.filter(pc.invert(is_gone)).select(columns), last.filter(is_gone).select(about.primary_key)


def _batches(
    file: InputFile, about: TableDescription, op_column: str, order_by: str | None, batch_rows: int
) -> Iterator[pa.Table]:
    reader = file.read(about.columns)
    _check_columns(file, reader.schema, about, op_column, order_by)
    if order_by is not None:
        whole = reader.read_all()
        # Stable: equal changes keep their order in the file.
        reader = whole.take(pc.sort_indices(whole, [(order_by, "ascending")])).to_reader()
    waiting: list[pa.RecordBatch] = []
    for batch in reader:
        waiting.append(batch)
        while (rows := sum(each.num_rows for each in waiting)) >= batch_rows:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, batch_rows)
            waiting = table.slice(batch_rows).to_batches() if rows > batch_rows else []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _check_columns(
    file: InputFile, schema: pa.Schema, about: TableDescription, op_column: str, order_by: str | None
) -> None:
    needed = [*about.primary_key, op_column, *([order_by] if order_by else [])]
    if missing := [name for name in needed if name not in schema.names]:
        raise InvalidArgumentError(f"{file} has no column {missing[0]!r}; it has {', '.join(schema.names[:20])}")
    known = {column.name for column in about.columns} | set(needed)
    if unknown := [name for name in schema.names if name not in known and not name.startswith("_")]:
        raise InvalidArgumentError(
            f"{file} has the column {unknown[0]!r}, which is not in table {about.name!r}: remove it, or let its name "
            "start with _"
        )


def _result(table: str, files: int, changes: int, results: Sequence[TransactionResult]) -> ApplyResult:
    done = [result for result in results if not result.skipped]
    return ApplyResult(
        table=table,
        files=files,
        changes=changes,
        applied=sum(result.applied for result in done),
        ignored=sum(result.ignored for result in done),
        commits=len(done),
        skipped=len(results) - len(done),
        timestamp=max((result.timestamp for result in done), default=None),
        truncated=sum(result.cells_truncated for result in done),
    )
