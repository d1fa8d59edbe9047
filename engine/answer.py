"""The answer to a write: which rows were refused, by position in the batch as it was sent, and why."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..schemas.table import TableSchema
from ..schemas.write import ROW_ERRORS_MAX, Durability, RowError, WriteResult
from .incoming import Incoming
from .tablet import outcome

_REASONS = {
    outcome.ALREADY_PRESENT: ("ALREADY_PRESENT", "a row with the key {key} is already present"),
    outcome.NOT_FOUND: ("NOT_FOUND", "there is no row with the key {key}"),
    outcome.INCOMPLETE: ("INVALID_ARGUMENT", "a new row needs {missing}: not nullable and without a default"),
}


def answer(
    batch: pa.RecordBatch,
    schema: TableSchema,
    incoming: Incoming,
    status: np.ndarray,
    timestamp: int,
    durability: Durability,
    rejected: bool,
) -> WriteResult:
    """Return the answer to ``batch``. ``status`` has one code for each accepted row; ``rejected`` says that an atomic
    batch was refused whole, so that nothing applied."""
    failed = np.flatnonzero(status < outcome.IGNORED)
    positions = failed if incoming.positions is None else incoming.positions[failed]
    refused = np.empty(0, np.int64) if incoming.refusals.by_row is None else np.flatnonzero(incoming.refusals.by_row)
    errors = _refusal_errors(incoming, refused) + _state_errors(batch, schema, incoming, positions, status[failed])
    return WriteResult(
        timestamp=timestamp,
        rows=batch.num_rows,
        applied=0 if rejected else int(np.count_nonzero(status == outcome.APPLIED)),
        ignored=0 if rejected else int(np.count_nonzero(status == outcome.IGNORED)),
        error_count=len(refused) + len(failed),
        errors=sorted(errors, key=lambda error: error.row)[:ROW_ERRORS_MAX],
        durability=durability,
    )


def _refusal_errors(incoming: Incoming, refused: np.ndarray) -> list[RowError]:
    refusals = incoming.refusals
    if refusals.by_row is None:
        return []
    shown = refused[:ROW_ERRORS_MAX]
    reasons = [refusals.reasons[number - 1] for number in refusals.by_row[shown].tolist()]
    return [
        RowError(row=row, code=code, message=message)
        for row, (code, message) in zip(shown.tolist(), reasons, strict=True)
    ]


def _state_errors(
    batch: pa.RecordBatch, schema: TableSchema, incoming: Incoming, positions: np.ndarray, status: np.ndarray
) -> list[RowError]:
    shown = positions[:ROW_ERRORS_MAX]
    if not len(shown):
        return []
    keys = batch.select([column.name for column in schema.key]).take(pa.array(shown)).to_pylist()
    missing = " and ".join(repr(column.name) for column in required_columns(schema, set(incoming.column_ids)))
    errors = []
    for row, code, key in zip(shown.tolist(), status.tolist(), keys, strict=False):
        word, text = _REASONS[code]
        shown_key = ", ".join(f"{name}={value}" for name, value in key.items())
        errors.append(RowError(row=row, code=word, message=text.format(key=f"({shown_key})", missing=missing)))
    return errors


def required_columns(schema: TableSchema, present: set[int]) -> list:
    """Return the columns that a new row needs and neither the data nor a default gives."""
    return [
        column
        for column in schema.values
        if column.id not in present and not column.nullable and column.write_default is None
    ]
