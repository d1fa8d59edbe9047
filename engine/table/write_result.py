"""The answer to a write: which rows were refused, by position in the batch as sent, and why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ...schemas.cells.moment import python_cell
from ...schemas.rows.write import ROW_ERRORS_MAX, Durability, RowError, WriteResult
from ...schemas.table.table import TableSchema
from ..tablet import outcome
from .checked_batch import CheckedBatch

_REASONS = {
    outcome.ALREADY_PRESENT: ("ALREADY_PRESENT", "a row with the key {key} is already present"),
    outcome.NOT_FOUND: ("NOT_FOUND", "there is no row with the key {key}"),
    outcome.INCOMPLETE: ("INVALID_ARGUMENT", "a new row needs {missing}: NULL is not allowed, and there is no default"),
    outcome.CONFLICT: ("CONFLICT", "the row with the key {key} changed after if_timestamp"),
    outcome.REFUSED: ("INVALID_ARGUMENT", "the row with the key {key}: {reason}"),
    outcome.IMMUTABLE: ("IMMUTABLE", "the row with the key {key} exists, and {immutable} cannot change"),
}
NO_REASONS: Mapping[int, str] = {}
_SHOWN_MAX = 200
"""The most characters of a key's cell in a message."""


def answer(
    batch: pa.RecordBatch,
    schema: TableSchema,
    checked: CheckedBatch,
    status: np.ndarray,
    timestamp: int,
    durability: Durability,
    rejected: bool,
    stored: int | None = None,
    reasons: Mapping[int, str] = NO_REASONS,
) -> WriteResult:
    """Return the answer to ``batch``, which was written to a table. ``status`` has one code per accepted row;
    ``rejected``: the batch is atomic and was rejected as a whole, so nothing applied; ``stored``: how many keys are
    new, if replaced rows are counted; ``reasons``: why accepted rows are REFUSED."""
    truncated = 0 if rejected else cut_cells(checked.cuts, status)
    if checked.refusals.by_row is None and not status.any():
        return WriteResult(
            timestamp=timestamp,
            rows=batch.num_rows,
            applied=len(status),
            durability=durability,
            truncated=truncated,
            replaced=0 if stored is None else len(status) - stored,
        )
    failed = np.flatnonzero(status < outcome.IGNORED)
    positions = failed if checked.positions is None else checked.positions[failed]
    refused = np.empty(0, np.int64) if checked.refusals.by_row is None else np.flatnonzero(checked.refusals.by_row)
    errors = _refusal_errors(checked, refused) + _state_errors(schema, checked, positions, failed, status, reasons)
    applied = 0 if rejected else int(np.count_nonzero(status == outcome.APPLIED))
    return WriteResult(
        timestamp=timestamp,
        rows=batch.num_rows,
        applied=applied,
        ignored=0 if rejected else int(np.count_nonzero(status == outcome.IGNORED)),
        stale=0 if rejected else int(np.count_nonzero(status == outcome.STALE)),
        error_count=len(refused) + len(failed),
        errors=sorted(errors, key=lambda error: error.row)[:ROW_ERRORS_MAX],
        durability=durability,
        truncated=truncated,
        replaced=0 if stored is None or rejected else applied - stored,
    )


def cut_cells(cuts: np.ndarray | None, status: np.ndarray) -> int:
    """Return how many cells were cut in the rows of a batch that were applied; ``cuts`` has the number of each row."""
    return 0 if cuts is None else int(cuts[status == outcome.APPLIED].sum())


def _refusal_errors(checked: CheckedBatch, refused: np.ndarray) -> list[RowError]:
    refusals = checked.refusals
    if refusals.by_row is None:
        return []
    shown = refused[:ROW_ERRORS_MAX]
    reasons = [refusals.reasons[number - 1] for number in refusals.by_row[shown].tolist()]
    return [
        RowError(row=row, code=code, message=message)
        for row, (code, message) in zip(shown.tolist(), reasons, strict=True)
    ]


def _state_errors(
    schema: TableSchema,
    checked: CheckedBatch,
    positions: np.ndarray,
    failed: np.ndarray,
    status: np.ndarray,
    reasons: Mapping[int, str],
) -> list[RowError]:
    """Say why the accepted rows ``failed`` did not apply; ``positions`` are theirs in the batch as sent."""
    if not len(failed):
        return []
    failed = failed[:ROW_ERRORS_MAX]
    keys = checked.rows.select([str(column.id) for column in schema.key]).take(pa.array(failed))
    missing = " and ".join(repr(column.name) for column in schema.required_columns(set(checked.column_ids)))
    immutable = " and ".join(repr(name) for name in _immutable_names(schema, checked))
    errors = []
    for at, (row, code) in enumerate(zip(positions[:ROW_ERRORS_MAX].tolist(), status[failed].tolist(), strict=True)):
        word, text = _REASONS[code]
        cells = zip(schema.key, keys.columns, strict=True)
        key = ", ".join(f"{column.name}={_shown(array[at])}" for column, array in cells)
        reason = reasons.get(int(failed[at]), "a value cannot be computed")
        message = text.format(key=f"({key})", missing=missing, immutable=immutable, reason=reason)
        errors.append(RowError(row=row, code=word, message=message))
    return errors


def _immutable_names(schema: TableSchema, checked: CheckedBatch) -> list[str]:
    return [schema.by_id[column_id].name for column_id in checked.column_ids if schema.by_id[column_id].immutable]


def _shown(cell: pa.Scalar) -> str:
    """Return a key's cell as text. Never raises, since the commit is made."""
    shown = str(python_cell(cell))
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
