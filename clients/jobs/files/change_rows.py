"""The rows of a file of changes, and what a batch of them makes of each key.

A row of JSON may be a partial image: it has the columns that changed. So of each row it is known which columns it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.cells.types import nearest_word
from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.batches import in_one
from ....schemas.rows.operation import Operation
from ....schemas.store.description import TableDescription
from ....schemas.table.column import ColumnSchema
from ...convert.change_order import in_order
from ...convert.net_changes import net_changes
from ...convert.row_shapes import key_codes, shapes_of
from ..writing import replacing
from .input_files import InputFile
from .pieces import Piece

_MEANINGS = {
    "upsert": "insert update upsert i u c r +i +u update_postimage update_after",
    "delete": "delete d -d expire",
    "skip": "-u update_preimage update_before",
}
OPERATIONS: Mapping[str, str] = {word: kind for kind, words in _MEANINGS.items() for word in words.split()}
"""The meaning of the words in the operation column, in lower case: ours, Debezium's, Delta's and Flink's."""
_SHAPE = " shape"
"""The column with the code of the columns that a row has; no column of a table begins with a space."""
_ORDER = " order"
"""The column with the value by which a change was sorted."""


@dataclass(frozen=True)
class ChangeFile:
    """A file of changes of a table, which a job applies."""

    file: InputFile
    about: TableDescription
    op_column: str
    order_by: str | None
    _shapes: dict[frozenset[str], int] = field(default_factory=dict)
    """The sets of columns that rows have, with their codes."""

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows, ``batch_rows`` at a time, in order.

        Raises:
            InvalidArgumentError: the file cannot be read, lacks the key or the operation, or has another column that
                the table lacks.
        """
        waiting: list[pa.RecordBatch] = []
        for rows in self._in_order():
            waiting.append(rows)
            while sum(each.num_rows for each in waiting) >= batch_rows:
                whole = _joined(waiting)
                yield whole.slice(0, batch_rows)
                waiting = [whole.slice(batch_rows)] if whole.num_rows > batch_rows else []
        if waiting:
            yield _joined(waiting)

    def net(self, rows: pa.RecordBatch) -> list[tuple[Operation, pa.RecordBatch]]:
        """Return what a batch makes of each key: deletes, then upserts, those with the same columns together.

        Of each cell the last change counts. A row that is deleted and comes back has only the cells that it comes with.

        Raises:
            InvalidArgumentError: an operation is unknown.
        """
        kinds = _kinds(rows, self.op_column)
        rows = rows.filter(pc.not_equal(kinds, "skip"))
        if not rows.num_rows:
            return []
        is_delete = pc.equal(kinds.filter(pc.not_equal(kinds, "skip")), "delete").to_numpy(zero_copy_only=False)
        keys, has, names = key_codes(rows, self.about.primary_key), self._presence(rows), self._names(rows)
        # A delete, and an image with all columns, leave nothing of what was before.
        resets = is_delete | has.all(axis=1) if names == self._columns else is_delete
        gone, images = net_changes(rows, keys, names, is_delete, resets, has)
        deletes = self._deletes(rows.take(pa.array(gone, pa.int64())))
        upserts = [(replacing(self.about), image) for image in images]
        return [(Operation.DELETE_IGNORE, part) for part in deletes if part.num_rows] + upserts

    def _deletes(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return what the deletes among the changes of a batch delete: first by the order of the table, then the keys
        without a value there, which go whatever the value of the row is."""
        key, order = self.about.primary_key, self.about.options.order_by
        if order is None or order not in rows.schema.names:
            return [rows.select(key)]
        values = rows.column(_ORDER if order == self.order_by else order)
        ordered = rows.select(key).append_column(order, values).filter(values.is_valid())
        return [ordered, rows.filter(rows.column(order).is_null()).select(key)]

    @property
    def _columns(self) -> list[str]:
        return [column.name for column in self.about.columns]

    def _names(self, rows: pa.RecordBatch) -> list[str]:
        """Return the columns of the table that rows may have."""
        return [name for name in self._columns if name in rows.schema.names]

    def _presence(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return for each row which of the columns it has (bool, rows by columns)."""
        names = self._names(rows)
        by_code = np.array([[name in shape for name in names] for shape in self._shapes], np.bool_)
        return by_code[rows.column(_SHAPE).to_numpy()]

    def _in_order(self) -> Iterator[pa.RecordBatch]:
        pieces = map(self._rows, self.file.pieces(self._typed_columns(), overlooked=_is_own, tells_absent=True))
        if self.order_by is None:
            yield from pieces
        elif whole := list(pieces):
            rows = _joined(whole)
            if self.order_by in rows.schema.names:
                yield self._sorted(rows, self.order_by)
            elif self.order_by == self.about.options.order_by:
                yield rows  # deletes need no value
            else:
                raise self._lacks(self.order_by, rows.schema.names)

    def _sorted(self, rows: pa.RecordBatch, by: str) -> pa.RecordBatch:
        """Return all changes of the file in their order."""
        order = in_order(rows.column(by), key_codes(rows, self.about.primary_key), self._is_open(rows, by))
        return rows.append_column(_ORDER, order.values).take(pa.array(order.places))

    def _is_open(self, rows: pa.RecordBatch, by: str) -> np.ndarray:
        """Return which changes have no value in the column of the order without meaning NULL (bool)."""
        is_open = pc.equal(_kinds(rows, self.op_column), "delete").to_numpy(zero_copy_only=False)
        if by in self._columns:
            is_open = is_open | ~self._presence(rows)[:, self._names(rows).index(by)]
        return is_open & rows.column(by).is_null().to_numpy(zero_copy_only=False)

    def _typed_columns(self) -> list[ColumnSchema]:
        """Return the columns whose types are known: those of the table, the operation and the order."""
        columns = list(self.about.columns)
        others = [self.op_column, *([self.order_by] if self.order_by else [])]
        is_guessed = self.file.is_text and self.order_by not in (None, *self._columns)
        schema = self.file.schema() if is_guessed else pa.schema([])
        for name in others:
            if name not in self._columns:
                kind = schema.field(name).type if name in schema.names and name != self.op_column else pa.string()
                columns.append(_column_of(name, kind))
        return columns

    def _rows(self, piece: Piece) -> pa.RecordBatch:
        """Return the rows of a piece with their shapes."""
        if piece.bad:
            first = piece.bad[0]
            where = f"row {first.row}" if first.line is None else f"line {first.line}"
            raise InvalidArgumentError(f"{self.file}, {where}: {first.message}")
        rows = piece.batch
        self._check(rows.schema.names)
        names = self._names(rows)
        if piece.absent:
            none = pa.repeat(False, rows.num_rows)
            absent = [piece.absent.get(name, none).to_numpy(zero_copy_only=False) for name in names]
            codes, shapes = shapes_of(np.stack(absent, axis=1))
            shape_codes = [
                self._code(name for name, gone in zip(names, row, strict=True) if not gone) for row in shapes
            ]
            return rows.append_column(_SHAPE, pa.array(np.array(shape_codes, np.int32)[codes]))
        return rows.append_column(_SHAPE, pa.repeat(pa.scalar(self._code(names), pa.int32()), rows.num_rows))

    def _code(self, names: Iterator[str] | Sequence[str]) -> int:
        return self._shapes.setdefault(frozenset(names), len(self._shapes))

    def _check(self, names: Sequence[str]) -> None:
        needed = [*self.about.primary_key, self.op_column]
        if missing := [name for name in needed if name not in names]:
            raise self._lacks(missing[0], names)
        if unknown := [name for name in names if name not in (*self._columns, self.op_column, self.order_by)]:
            raise InvalidArgumentError(
                f"{self.file} has the column {unknown[0]!r}, which is not in table {self.about.name!r}: remove it, or "
                "let its name start with _"
            )

    def _lacks(self, name: str, names: Sequence[str]) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self.file} has no column {name!r}; it has {', '.join(names[:20])}")


def _is_own(name: str) -> bool:
    """Whether a column that the table lacks belongs to whoever wrote the changes."""
    return name.startswith("_")


def _column_of(name: str, kind: pa.DataType) -> ColumnSchema:
    return ColumnSchema(id=1, name=name, type=nearest_word(kind), nullable=True, encoding="plain", compression="none")


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches as one; columns that some lack are NULL there."""
    whole = pa.concat_tables(map(pa.table, batches), promote_options="default")
    return in_one(whole.to_batches()) if whole.num_rows else batches[0]


def _kinds(rows: pa.RecordBatch, op_column: str) -> pa.StringArray:
    words = pc.utf8_lower(rows.column(op_column).cast(pa.string()))
    place = pc.index_in(words, pa.array(list(OPERATIONS)))
    if place.null_count:
        unknown = rows.filter(pc.is_null(place)).column(op_column)[0].as_py()
        raise InvalidArgumentError(
            f"column {op_column!r} has the unknown operation {unknown!r}; known: {', '.join(OPERATIONS)}"
        )
    return pc.take(pa.array(list(OPERATIONS.values())), place)
