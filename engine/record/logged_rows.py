"""LoggedRows: the rows of many changes of the log together, as columns; rows of changes of one form need one decoding.

Two changes have one form if they are of one tablet, one kind, and the same columns with the same types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas.errors import CorruptionError
from ..codecs.codec import CorruptPageError
from ..codecs.row import WantedColumn, check, decode
from ..kernels.log import log_parts as kernels
from ..vectors.arrow import from_arrow, to_arrow
from ..vectors.gather import MAX_DATA_BYTES
from ..vectors.memory.memory import address_of, allocate, allocate_zeroed
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import BytesVector, Vector, stored_as
from .change import ARROW_FORM, ROWS_FORM, Change, ChangeKind
from .change_rows import ARROW_TYPES, COUNTS_BYTES, PHYSICAL_TYPES
from .parts import Parts

CELLS_MAX = 1 << 22
"""More cells in one change of few rows are corruption; writers use thousands. NULLs take no bytes, so the length of a
change does not limit the memory of its cells."""

_WHY = {
    kernels.TOO_SHORT: "the change has too few bytes for them",
    kernels.TOO_MANY_CELLS: "a small change cannot have so many cells",
    kernels.ROWS_OUTSIDE: "they do not fill the change",
}


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRows:
    """Rows of changes of one form, in the order of the log; a key may occur in several changes.

    Types are those of the columns at the time of the change, or others with the same physical types.
    """

    tablet_id: int
    kind: ChangeKind
    cells: Mapping[int, Vector]
    """By column id."""
    parts: np.ndarray
    """The place of each row's change among the parts (int64, ascending)."""

    def __len__(self) -> int:
        return len(self.parts)

    def taken(self, rows: np.ndarray) -> LoggedRows:
        """Return some of the rows, by ascending places."""
        cells = {column_id: vector.take(rows) for column_id, vector in self.cells.items()}
        return LoggedRows(self.tablet_id, self.kind, cells, self.parts[rows])


def rows_of(changes: Parts) -> list[LoggedRows]:
    """Return the rows of all changes in log records, by form; those of a tablet follow each other.

    Raises:
        CorruptionError: a change is not what was logged.
    """
    for part in np.flatnonzero((changes.forms != ROWS_FORM) & (changes.forms != ARROW_FORM)).tolist():
        raise _corruption(changes, part, f"the form of a change is unknown: {int(changes.forms[part])}")
    forms = [_rows_of_batch(changes, part) for part in np.flatnonzero(changes.forms == ARROW_FORM).tolist()]
    in_rows = np.flatnonzero(changes.forms == ROWS_FORM)
    if len(in_rows):
        forms += _FewRows(changes, in_rows).decoded()
    return sorted(forms, key=lambda form: form.tablet_id)


def unpack_changes(parts: Parts) -> Iterator[Change]:
    """Yield the changes in log records one by one, their rows as a batch. Raises as ``rows_of`` does."""
    changes = parts.changes
    for part in range(len(changes)):
        if changes.forms[part] == ARROW_FORM:
            yield Change(int(changes.owners[part]), _kind_of(changes, part), _batch_of(changes, part))
            continue
        (form,) = rows_of(changes.taken(np.array([part])))
        arrays = [to_arrow(vector, ARROW_TYPES[stored_as(vector)]) for vector in form.cells.values()]
        names = [str(column_id) for column_id in form.cells]
        yield Change(form.tablet_id, form.kind, pa.RecordBatch.from_arrays(arrays, names))


def _corruption(changes: Parts, part: int, why: object) -> CorruptionError:
    return CorruptionError("wal", 0, f"log record {changes.lsn_of(part)}: {why}")


def _kind_of(changes: Parts, part: int) -> ChangeKind:
    try:
        return ChangeKind(int(changes.kinds[part]))
    except ValueError as error:
        raise _corruption(changes, part, error) from error


def _batch_of(changes: Parts, part: int) -> pa.RecordBatch:
    """Return the rows of a change that is an Arrow stream."""
    stream = pa.foreign_buffer(int(changes.bodies[part]), int(changes.sizes[part]), changes.memory)
    try:
        return pa.ipc.open_stream(stream).read_next_batch()
    except (ValueError, OSError, pa.ArrowException, StopIteration) as error:
        raise _corruption(changes, part, error) from error


def _rows_of_batch(changes: Parts, part: int) -> LoggedRows:
    batch = _batch_of(changes, part)
    try:
        cells = {
            int(name): from_arrow(column, physical_of(column.type))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
    except ValueError as error:
        raise _corruption(changes, part, error) from error
    places = np.full(batch.num_rows, part, np.int64)
    return LoggedRows(int(changes.owners[part]), _kind_of(changes, part), cells, places)


class _FewRows:
    """Changes in row encoding: measured, then their forms are numbered, then the rows of each form are decoded."""

    def __init__(self, changes: Parts, places: np.ndarray) -> None:
        """``places`` are those of such changes. Raises CorruptionError if one contradicts itself."""
        self._changes = changes
        self._places = places
        self._bodies = np.ascontiguousarray(changes.bodies[places])
        self._heads, self._rows, self._bytes = (allocate(len(places), np.int64) for _ in range(3))
        sizes = np.ascontiguousarray(changes.sizes[places])
        measured = [address_of(column) for column in (self._heads, self._rows, self._bytes)]
        outcome = kernels.measure_changes(
            address_of(self._bodies), address_of(sizes), len(places), CELLS_MAX, *measured
        )
        if outcome < 0:
            one, why = divmod(-1 - int(outcome), kernels.REASONS)
            counts = changes.bytes_at(int(self._bodies[one]), min(int(sizes[one]), COUNTS_BYTES))
            columns, rows = (int.from_bytes(counts[at : at + 4], "little") for at in (0, 4))
            raise self._corruption(one, f"the change says {columns} columns of {rows} rows: {_WHY[why]}")

    def decoded(self) -> list[LoggedRows]:
        """Return the rows by form. Raises CorruptionError."""
        numbers, types = self._forms()
        if len(types) == 1:
            return [self._decoded(np.arange(len(numbers)), *types)]
        order = np.argsort(numbers, kind="stable")
        groups = np.split(order, np.searchsorted(numbers[order], np.arange(1, len(types))))
        return [self._decoded(group, columns) for group, columns in zip(groups, types, strict=True)]

    def _forms(self) -> tuple[np.ndarray, list[dict[int, PhysicalType]]]:
        """Return the number of each change's form, and the columns of each form."""
        count = len(self._bodies)
        starts = self._bodies + COUNTS_BYTES
        owners = self._changes.owners[self._places] * 256 + self._changes.kinds[self._places]
        slots = allocate_zeroed(max(16, 1 << (2 * count - 1).bit_length()), np.uint64)
        numbers, firsts = allocate(count, np.int64), allocate(count, np.int64)
        names = address_of(starts), address_of(self._heads), address_of(owners), count
        table = address_of(slots), len(slots)
        different = kernels.number_strings(*names, *table, address_of(numbers), address_of(firsts))
        known: dict[object, int] = {}
        types: list[dict[int, PhysicalType]] = []
        same = np.empty(different, np.int64)
        for number, first in enumerate(firsts[:different].tolist()):
            columns = self._columns(first)
            # Writers may name the columns in any order: the rows are the same.
            form = int(owners[first]), frozenset(columns.items())
            if form not in known:
                known[form] = len(types)
                types.append(columns)
            same[number] = known[form]
        return same[numbers], types

    def _columns(self, one: int) -> dict[int, PhysicalType]:
        """Return the types of a change's columns by id."""
        head = self._changes.bytes_at(int(self._bodies[one]) + COUNTS_BYTES, int(self._heads[one]))
        count = len(head) // 5
        ids = np.frombuffer(head, "<u4", count).tolist()
        types = [PHYSICAL_TYPES.get(code) for code in head[4 * count :]]
        if len(set(ids)) < count:
            raise self._corruption(one, "a column occurs twice in a change")
        if None in types:
            raise self._corruption(one, "a column of a change has an unknown type")
        return {column_id: physical for column_id, physical in zip(ids, types, strict=True) if physical is not None}

    def _decoded(self, those: np.ndarray, columns: Mapping[int, PhysicalType]) -> LoggedRows:
        rows = self._rows[those]
        try:
            cells = self._cells(those, int(rows.sum()), columns)
        except CorruptPageError as error:
            if len(those) == 1:
                raise self._corruption(int(those[0]), error) from error
            for one in those.tolist():  # one of them is at fault
                self._decoded(np.array([one]), columns)
            raise
        part = int(self._places[those[0]])
        places = np.repeat(self._places[those], rows)
        return LoggedRows(int(self._changes.owners[part]), _kind_of(self._changes, part), cells, places)

    def _cells(self, those: np.ndarray, row_count: int, columns: Mapping[int, PhysicalType]) -> dict[int, Vector]:
        """Return the cells of the rows of these changes, by column id. Raises CorruptPageError."""
        size = int(self._bytes[those].sum())
        if size > MAX_DATA_BYTES:
            raise CorruptPageError(f"{size} bytes of rows are too many for small changes")
        offsets, data = allocate(row_count + 1, np.int32), allocate(size, np.uint8)
        measured = address_of(self._bodies), address_of(self._heads), address_of(self._rows), len(self._bodies)
        kernels.gather_rows(*measured, address_of(those), len(those), address_of(offsets), address_of(data))
        rows = BytesVector(offsets, data)
        check(rows)
        wanted = [WantedColumn(column_id, physical) for column_id, physical in columns.items()]
        return dict(zip(columns, decode(rows, wanted), strict=True))

    def _corruption(self, one: int, why: object) -> CorruptionError:
        return _corruption(self._changes, int(self._places[one]), why)
