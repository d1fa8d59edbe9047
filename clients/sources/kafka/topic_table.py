"""The table that a topic is applied to: what its messages make of it is staged, and wrong rows become rejects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, NotFoundError, StoreError
from ....schemas.rows.operation import Operation
from ....schemas.rows.transaction import StagedRowError, StageResult
from ....schemas.store.description import TableDescription
from ....schemas.table.table import TableDefinition
from ...api.database import Database
from ...convert.casting import Caster
from ...convert.change_order import in_order
from ...convert.net_changes import net_changes
from ...convert.row_shapes import key_codes
from ..source import SourceColumn, SourceTable
from ..staging import StagedCommit
from .formats.decoded import Decoded, Format, Messages, Shape, in_halves
from .formats.plain import OWN_COLUMNS

_NUMBER = " message"
"""The column with the number of each row's message; no column of a table begins with a space."""
_ORDER = " order"
"""The column with the value by which a row was sorted, if a column orders the rows of the table."""


@dataclass(frozen=True)
class Staged:
    """What messages of a topic make of its table: a part of a commit, and the messages of its rows."""

    part: StageResult
    numbers: np.ndarray


class TopicTable:
    """The table of one topic. One thread uses it."""

    def __init__(self, database: Database, topic: str, name: str, key: Sequence[str], op: Operation) -> None:
        self._database = database
        self._topic = topic
        self.name = name
        self._key = list(key)
        self._op = op
        self.count_partitions: Callable[[], int] = lambda: 0
        """Asks Kafka how many partitions the topic has now: a topic may grow."""
        self._about: TableDescription | None = None
        self._shape: Shape | None = None

    def refresh(self) -> None:
        """Look at the table anew."""
        self._about = None
        if self.name in self._database.tables():
            self._about = self._database._store.describe_table(self.name)

    def has_changed(self) -> bool:
        """Look at the table anew; return whether its columns are others."""
        before = self._about
        self.refresh()
        return before is not None and self._about is not None and before.schema_version != self._about.schema_version

    @property
    def is_there(self) -> bool:
        """Whether there is such a table."""
        return self._about is not None

    @property
    def partitions(self) -> int:
        """How many partitions the topic has now. Raises UnavailableError: no broker answers."""
        return self.count_partitions()

    @property
    def about(self) -> TableDescription:
        """The table now. Raises NotFoundError: it is not there."""
        if self._about is None:
            raise NotFoundError(
                f"there is no table {self.name!r} for the topic {self._topic}, and its messages do not describe one: "
                f"create it first, as in: nyala table create {self.name} ..."
            )
        return self._about

    def fit(self, shape: Shape) -> None:
        """Create the table if it is not there, and add the columns that it lacks."""
        if shape == self._shape and self._about is not None:
            return
        if self._about is None:
            self._create(shape)
        if new := self._new_in(shape):
            change = self._database.table(self.name).alter()
            for each in new:
                change.add_column(each.name, each.type)
            try:
                change.apply()
            except StoreError as error:
                self.refresh()  # another process of the group may have been first
                if self._new_in(shape):
                    raise ConflictError(
                        f"messages of the topic {self._topic} have the new fields "
                        f"{', '.join(each.name for each in new)}, but the table {self.name!r} cannot get columns for "
                        f"them ({error.message}); all earlier messages are applied: add the columns, and start again"
                    ) from None
            self.refresh()
        self._shape = shape

    def _new_in(self, shape: Shape) -> list[SourceColumn]:
        there = {column.name for column in self.about.columns}
        return [each for each in shape.columns if each.name not in there]

    def _create(self, shape: Shape) -> None:
        key = self._key or list(shape.key or ())
        names = [each.name for each in shape.columns]
        if not key or not set(key) <= set(names):
            raise InvalidArgumentError(
                f"the messages of the topic {self._topic} do not say which columns are the key of {self.name!r}: name "
                "them with --key, or create the table first"
            )
        order = [*key, *(name for name in names if name not in key)]
        columns = sorted(shape.columns, key=lambda each: order.index(each.name))
        table = SourceTable(name=self._topic, target=self.name, columns=columns, key=key)
        with suppress(AlreadyPresentError):  # another process of the group was first
            self._database.create_table_as(TableDefinition.from_arrow(self.name, table.schema, key))
        self.refresh()

    def decode(self, format: Format, messages: Messages) -> list[Decoded]:
        """Return what messages make of the table, all of whose rows fit its columns."""
        return [self._fitted(part, messages) for part in format.decode(messages, self)]

    def _fitted(self, part: Decoded, messages: Messages) -> Decoded:
        """Return rows with the types of the table; those that do not fit are rejects."""
        if not part.rows.num_rows:
            return part
        rows = self._with_own_columns(part.rows, part.numbers, messages)
        wrong: dict[int, str] = {}
        try:
            caster = Caster(rows.schema, self.about.columns)
            parts = in_halves(lambda first, end: caster.cast(rows[first:end]), 0, rows.num_rows, wrong)
        except InvalidArgumentError as error:  # of the columns, not of cells
            wrong, parts = dict.fromkeys(range(rows.num_rows), error.message), []
        for column in self.about.columns:
            if not column.nullable and column.name in rows.schema.names:
                is_wrong = rows.column(column.name).is_null().to_numpy(zero_copy_only=False)
                if column.name not in self.about.primary_key:
                    is_wrong = is_wrong & ~part.is_delete
                why = f"column {column.name!r} is NULL, and the table does not allow it"
                wrong = dict.fromkeys(map(int, np.flatnonzero(is_wrong)), why) | wrong
        if self._op.base is Operation.INSERT and part.is_delete.any():
            why = "it deletes its key, but messages of the topic are only inserted"
            wrong = dict.fromkeys(map(int, np.flatnonzero(part.is_delete)), why) | wrong
        if not wrong:
            fitted = parts[0]
            return Decoded(fitted, part.numbers, part.is_delete, part.rejects, part.absent, part.truncates)
        rejects = part.rejects | {int(part.numbers[row]): why for row, why in wrong.items()}
        cut = Decoded(rows, part.numbers, part.is_delete, rejects, part.absent, part.truncates)
        kept = without(cut, np.array(list(rejects), np.int64))
        if not kept.rows.num_rows:
            return kept
        fitted = Caster(kept.rows.schema, self.about.columns).cast(kept.rows)
        return Decoded(fitted, kept.numbers, kept.is_delete, rejects, kept.absent, part.truncates)

    def _with_own_columns(self, rows: pa.RecordBatch, numbers: np.ndarray, messages: Messages) -> pa.RecordBatch:
        """Return rows with the columns of the table that tell of the message."""
        own = OWN_COLUMNS & {column.name for column in self.about.columns}
        for name in sorted(own - set(rows.schema.names)):
            if name == "kafka_topic":
                cells = pa.repeat(pa.scalar(messages.topic), rows.num_rows)
            elif name == "kafka_key":
                cells = pa.array(messages.keys, pa.binary()).take(pa.array(numbers))
            elif name == "kafka_timestamp":
                times = pa.array([None if each < 0 else each for each in messages.times], pa.int64())
                cells = times.cast(pa.timestamp("ms")).cast(pa.timestamp("us")).take(pa.array(numbers))
            else:
                places = messages.partitions if name == "kafka_partition" else messages.offsets
                cells = pa.array(np.array(places, np.int64)[numbers])
            rows = rows.append_column(name, cells)
        return rows

    def stage(self, part: Decoded, staging: StagedCommit) -> list[Staged]:
        """Stage rows; return the parts."""
        about = self.about
        if part.truncates:
            staging.truncate(about)
        if not part.rows.num_rows:
            return []
        numbers = pa.array(part.numbers)
        if self._op.base is Operation.INSERT:
            written = part.rows
            return self._write(staging, about, written.append_column(_NUMBER, numbers), self._op)
        order = about.options.order_by
        if order is not None and order in part.rows.schema.names:
            part = _sorted(part, order, key_codes(part.rows, about.primary_key))
            numbers = pa.array(part.numbers)
        rows = part.rows.append_column(_NUMBER, numbers)
        names = [name for name in rows.schema.names if name != _ORDER]
        has = np.ones((rows.num_rows, len(names)), np.bool_)
        for name, mask in part.absent.items():
            has[:, names.index(name)] = ~mask
        is_whole = set(names) >= {column.name for column in about.columns}
        resets = part.is_delete | has.all(axis=1) if is_whole else part.is_delete
        codes = key_codes(rows, about.primary_key)
        gone, images = net_changes(rows, codes, names, part.is_delete, resets, has)
        deleted = rows.take(pa.array(gone))
        staged: list[Staged] = []
        columns = [*about.primary_key, _NUMBER]
        if order in names and order not in about.primary_key:  # a delete has no NULL there
            values = deleted.column(_ORDER)
            ordered = deleted.select(columns).append_column(order, values).filter(values.is_valid())
            staged += self._write(staging, about, ordered, Operation.DELETE_IGNORE)
            deleted = deleted.filter(deleted.column(order).is_null())
        staged += self._write(staging, about, deleted.select(columns), Operation.DELETE_IGNORE)
        for image in images:
            staged += self._write(staging, about, image, self._op)
        return staged

    def _write(
        self, staging: StagedCommit, about: TableDescription, rows: pa.RecordBatch, op: Operation
    ) -> list[Staged]:
        numbers = rows.column(_NUMBER).to_numpy()
        cells = rows.select([name for name in rows.schema.names if name != _NUMBER])
        staged = staging.write(about, cells, op)
        return [] if staged is None else [Staged(staged, numbers)]


def without(part: Decoded, numbers: np.ndarray) -> Decoded:
    """Return a topic's rows without those of some messages."""
    kept = ~np.isin(part.numbers, numbers)
    return _taken(part, np.flatnonzero(kept))


def _taken(part: Decoded, order: np.ndarray) -> Decoded:
    absent = {name: mask[order] for name, mask in part.absent.items()}
    rows = part.rows.take(pa.array(order))
    return Decoded(rows, part.numbers[order], part.is_delete[order], part.rejects, absent, part.truncates)


def _sorted(part: Decoded, order: str, keys: np.ndarray) -> Decoded:
    """Return a topic's rows in the order of a column, with the values by which they were sorted."""
    cells = part.rows.column(order)
    has_none = part.is_delete & cells.is_null().to_numpy(zero_copy_only=False)
    places, values = in_order(cells, keys, has_none | part.absent.get(order, np.zeros(len(keys), np.bool_)))
    rows = part.rows.append_column(_ORDER, values)
    whole = Decoded(rows, part.numbers, part.is_delete, part.rejects, part.absent, part.truncates)
    return _taken(whole, places)


def message_of(error: StagedRowError, staged: Sequence[Staged]) -> int | None:
    """Return the message of a topic whose row a commit refused; None if it is of no part here."""
    for each in staged:
        if error.part in each.part.parts:
            return int(each.numbers[each.part.as_staged(error).row])
    return None
