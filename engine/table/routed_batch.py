"""RoutedBatch: a batch that is checked and divided by tablet, before any lock is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.timestamp import microseconds_of
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.rows.operation import Operation
from ..tablet.outcome import Shape
from ..tablet.tablet import Tablet
from ..vectors.keys.keys import BytesKeys, KeyVector, first_occurrences, hash_keys, slice_keys, take_keys
from .auto_increment import NO_IDS, AutoIncrement
from .checked_batch import CheckedBatch, check_batch, over_limit
from .computing import Computing, computing_of
from .table_version import TableVersion, grouped

_ROWS_ALONE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class TabletRows:
    """The rows of a batch that belong to one tablet."""

    tablet: Tablet
    positions: np.ndarray | None
    """Positions of its rows among the accepted rows of the batch, ascending; None: all of them."""
    rows: pa.RecordBatch
    keys: KeyVector
    hashes: np.ndarray
    first: np.ndarray
    """For each row, the first row with its key."""


@dataclass(frozen=True, slots=True, eq=False)
class RoutedBatch:
    """A batch that was checked and divided by tablet, for one version of its table."""

    version: TableVersion
    batch: pa.RecordBatch
    checked: CheckedBatch
    shape: Shape
    parts: list[TabletRows]
    """One for each tablet that the batch touches. A table with a single tablet always has one, perhaps empty."""
    first_id: int | None
    """The least id that the store gave to its rows; None if it gave none."""
    computing: Computing | None = None
    """What is to be computed for its rows; None: nothing."""


def route(
    version: TableVersion,
    batch: pa.RecordBatch,
    operation: Operation,
    limits: Limits,
    auto_increment: AutoIncrement,
    now: int | None,
    brought: np.ndarray = NO_IDS,
    rules: Mapping[str, str] | None = None,
) -> RoutedBatch:
    """Check a batch, number new rows if the table does so, and divide the batch by tablet. Rows that say when they were
    written, but not in the batch, are written at the moment ``now``, if it is given. ``brought`` are ids that the same
    commit brings, ascending; ``rules`` those of a merge, by column, None for those of the table.

    Raises:
        InvalidArgumentError: the batch as a whole is wrong.
        WrongServerError: a row's tablet is on another server.
    """
    checked = check_batch(batch, version.schema, operation, limits)
    checked = checked if now is None else filled(version, checked, operation, now)
    checked = auto_increment.number(checked, version.schema, operation, brought)
    _check_defaults(version, checked, operation, limits)
    checked, keys = keyed(version, checked, operation, limits)
    checked, keys, numbers = _covered(version, checked, keys)
    if len(keys):
        version.check_writable(numbers)
    sent = set(checked.column_ids)
    shape, computing = shape_of(version, sent), None
    if version.formulas or operation is Operation.MERGE:
        computing = computing_of(version, operation, rules, sent, now or 0, limits)
        if computing and computing.rules is not None:
            kept = {number for number, rule in computing.rules.items() if rule.keeps}
            changes = len(kept) < len(computing.rules) or shape_of(version, sent - kept).has_values
            shape = replace(shape, has_values=changes)
    return RoutedBatch(
        version,
        batch,
        checked,
        shape,
        by_tablet(version, checked.rows, keys, numbers),
        auto_increment.first_id(checked, version.schema, operation),
        computing,
    )


def filled(version: TableVersion, checked: CheckedBatch, operation: Operation, now: int) -> CheckedBatch:
    """Return a batch whose rows have the moment ``now`` as that of their last write, if the table has a column for it
    and they have no value of their own."""
    column = version.schema.filled
    if column is None or operation.base is Operation.DELETE:
        return checked
    name, moment = str(column.id), pa.scalar(microseconds_of(now), column.logical.arrow)
    rows = checked.rows
    if name not in rows.schema.names:
        return checked.with_column(rows.num_columns, name, pa.repeat(moment, rows.num_rows))
    if not rows.column(name).null_count:
        return checked
    whole = rows.set_column(rows.schema.get_field_index(name), name, pc.fill_null(rows.column(name), moment))
    return CheckedBatch(whole, checked.positions, checked.refusals)


def _covered(
    version: TableVersion, checked: CheckedBatch, keys: KeyVector
) -> tuple[CheckedBatch, KeyVector, np.ndarray | None]:
    """Return the rows that have a tablet, and its number for each; refuses the others."""
    numbers, missing = version.covers(checked.rows)
    if numbers is None or missing is None:
        return checked, keys, numbers
    kept = np.flatnonzero(~missing)
    checked = without_range(version, checked, missing)
    return checked, take_keys(keys, kept), numbers[kept]


def without_range(version: TableVersion, checked: CheckedBatch, missing: np.ndarray) -> CheckedBatch:
    """Refuse the rows of a batch where ``missing`` is True: no range covers them."""
    names = ", ".join(column.name for column in version.partitions.range_keys(version.schema))
    return checked.without(
        missing,
        "NO_PARTITION",
        f"no range partition covers the row's values of ({names}): describe shows the ranges, add_range_partition adds "
        "one",
    )


def by_tablet(
    version: TableVersion, rows: pa.RecordBatch, keys: KeyVector, numbers: np.ndarray | None
) -> list[TabletRows]:
    """Return the rows of a batch by tablet, in ascending id. All have a tablet; ``numbers`` are as from
    `TableVersion.covers`."""
    if numbers is None:
        return [_tablet_rows(version.tablets[0], None, rows, keys)]
    if not len(numbers):
        return []
    order, groups = grouped(numbers)
    if len(groups) == 1:
        return [_tablet_rows(version.tablets[groups[0][0]], None, rows, keys)]
    keys = take_keys(keys, order)
    return [
        _tablet_rows(version.tablets[number], order[first:last], part, slice_keys(keys, first, last))
        for (number, first, last), part in zip(groups, _taken(rows, order, groups), strict=True)
    ]


def _taken(rows: pa.RecordBatch, order: np.ndarray, groups: list[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each group. A large group gets its own memory, so that it can outlive the others; many small
    groups share one, which is quicker."""
    if len(order) >= _ROWS_ALONE * len(groups):
        for _, first, last in groups:
            yield rows.take(pa.array(order[first:last]))
        return
    together = rows.take(pa.array(order))
    for _, first, last in groups:
        yield together.slice(first, last - first)


def _tablet_rows(tablet: Tablet, positions: np.ndarray | None, rows: pa.RecordBatch, keys: KeyVector) -> TabletRows:
    hashes = hash_keys(keys)
    return TabletRows(tablet, positions, rows, keys, hashes, first_occurrences(keys, hashes))


def shape_of(version: TableVersion, sent: set[int]) -> Shape:
    """Return what a batch of the columns ``sent`` may do to its table."""
    immutable = sent & version.immutable
    return Shape(
        is_complete=not version.schema.required_columns(sent),
        has_values=len(sent) > version.schema.key_columns + len(immutable),
        has_immutable=bool(immutable),
    )


def _check_defaults(version: TableVersion, checked: CheckedBatch, operation: Operation, limits: Limits) -> None:
    """Reject a small batch that long defaults would make too large."""
    if operation.base in (Operation.INSERT, Operation.UPSERT):
        size = checked.rows.num_rows * version.bytes_of_defaults(checked.column_ids)
        if size > limits.batch_bytes:
            raise InvalidArgumentError(f"the write_defaults of the omitted columns {over_limit(size, limits)}")


def keyed(
    version: TableVersion, checked: CheckedBatch, operation: Operation, limits: Limits
) -> tuple[CheckedBatch, KeyVector]:
    """Encode the keys of a batch and refuse rows whose key is too large; deletes pass, as they find nothing."""
    keys = version.keys_of(checked.rows)
    if operation.base is Operation.DELETE or not isinstance(keys, BytesKeys):
        return checked, keys
    too_large = np.diff(keys.offsets) > limits.key_bytes
    if not too_large.any():
        return checked, keys
    kept = np.flatnonzero(~too_large)
    message = f"the encoded key has more than {limits.key_bytes:,} bytes"
    return checked.without(too_large, "TOO_LARGE", message), take_keys(keys, kept)
