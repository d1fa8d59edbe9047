"""CellTable: the cells of some rows, a row for each key that was asked for, as `kernels/reads/point_batch` fills it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas.protocol.service import OneBatch
from ...codecs.codec import CorruptPageError
from ...kernels.reads import point_batch as kernels
from ...kernels.reads.point_read import CELL_BYTES, FULL, read_cells
from ...vectors.arrow import to_arrow
from ...vectors.gather import check_data_bytes
from ...vectors.keys.keys import KeyVector, U64Keys
from ...vectors.memory.memory import address_of, allocate, allocate_zeroed
from ...vectors.physical import PhysicalType
from ...vectors.vector import BytesVector, FixedVector, Vector
from .places import KEPT, Place, place_of
from .row_columns import RowColumns
from .scratch import RowScratch

_MESSAGE_BYTES_MAX = 1 << 20
_FEW_ROWS = 256
"""Kernels for so few rows keep the GIL: to hand it over takes longer."""
CELL_SIZE = CELL_BYTES + 1
"""Bytes of a cell in the table, with its flag of NULL."""


class TooManyBytesError(Exception):
    """Rows that kernels read at once have more bytes than they may: ``times`` as many, about, and more than once."""

    def __init__(self, times: float) -> None:
        super().__init__(times)
        self.times = times


@dataclass(slots=True, eq=False)
class Alive:
    """Rows of a table of cells (int64, ascending) that are alive."""

    rows: np.ndarray
    sizes: np.ndarray
    """For each column of the table (int64): how many bytes their strings have, and how many are NULL."""
    nbytes: int
    """Their bytes as columns."""


class CellTable:
    """A table that kernels fill: the cells of the columns, and the liveness, of the rows at some locations; -1 for keys
    that no row has."""

    def __init__(self, columns: RowColumns, locations: np.ndarray, held_max: int | None = None) -> None:
        """``held_max``: the most bytes of pages, and of strings restored from them, that it may hold; None: any."""
        self.columns = columns
        self.width = len(columns.ids) + 1
        self.held: list[object] = []
        """What must live until the columns have been taken: strings are addresses."""
        self.held_max = sys.maxsize if held_max is None else held_max
        self.held_bytes = self._text_bytes = 0
        count = len(locations)
        self._locations = locations
        self._cells = allocate_zeroed(count * self.width * CELL_BYTES, np.uint8)
        self._nulls = allocate(count * self.width, np.uint8)
        self._scratch = RowScratch()
        self._memory = address_of(self._cells), address_of(self._nulls)
        self._is_few = count <= _FEW_ROWS

    def check_held(self, share: float) -> None:
        """Count what is held after this share of the rows, each page once.

        Raises:
            TooManyBytesError: it is too much.
        """
        pages = {id(page): page.nbytes for held in self.held if type(held) is list for page in held if page is not None}
        self.held_bytes = sum(pages.values()) + self._text_bytes
        if self.held_bytes > self.held_max:
            raise TooManyBytesError(max(self.held_bytes / self.held_max, 2.0) / share)

    def read_places(self, places: Sequence[Place], rows: np.ndarray, positions: np.ndarray) -> None:
        """Read rows whose cells are all at the same places, one for each column; see ``read``."""
        fields = np.array(places, np.int64)
        tables = np.array([address_of(fields)], np.int64)
        self.read(address_of(tables), 0, rows, positions)

    def read(self, places: int, step: int, rows: np.ndarray, positions: np.ndarray) -> None:
        """Read rows (int64, -1 for none) into the table's rows ``positions`` (int64), from places as `read_cells` takes
        them.

        Raises:
            CorruptPageError: a cell cannot be decoded.
        """
        where = address_of(rows), address_of(positions), len(rows), self.width, *self._memory
        read = kernels.read_few_cells if self._is_few else read_cells
        while (outcome := read(places, step, *where, self._scratch.address)) == FULL:
            self.held.append(self._scratch.texts)
            self._text_bytes += len(self._scratch.texts)
            self.held_bytes += len(self._scratch.texts)
            if self.held_bytes > self.held_max:
                self.check_held(1.0)
            self._scratch.grow()
        if outcome < 0:
            raise CorruptPageError("a cell of the rows cannot be decoded")

    def put(self, cells: dict[int, Vector], rows: np.ndarray, positions: np.ndarray) -> None:
        """Read the cells of some columns, by their number, from vectors."""
        if cells:
            self.put_places({i: place_of(vector, self.held) for i, vector in cells.items()}, rows, positions)

    def put_places(self, known: dict[int, Place], rows: np.ndarray, positions: np.ndarray) -> None:
        """Read the cells of some columns, by their number, from places in memory."""
        self.read_places([known.get(i, KEPT) for i in range(self.width)], rows, positions)

    def has_other_keys(self, keys: KeyVector) -> bool:
        """Whether a row has another key than the one that was asked for. The key columns lead."""
        widths = self.columns.key_widths
        where = self._memory[0], self.width, address_of(widths), len(widths)
        if isinstance(keys, U64Keys):
            asked = address_of(keys.values), 0
        else:
            asked = address_of(keys.data), address_of(keys.offsets)
        return kernels.other_keys(*where, *asked, address_of(self._locations), len(self._locations)) > 0

    def alive(self, most: int = sys.maxsize) -> Alive:
        """Return the rows that are alive, the first ``most`` of them."""
        count = len(self._locations)
        room = allocate(count + 2 * self.width, np.int64)
        rows = address_of(room)
        measure = kernels.measure_few if self._is_few else kernels.measure_alive
        where = address_of(self._locations), count, most, rows, rows + 8 * count
        total = measure(*self._memory, self.width, *where)
        sizes = room[count : count + 2 * self.width]
        return Alive(room[:total], sizes, self._bytes_of(sizes.tolist(), total))

    def _bytes_of(self, sizes: Sequence[int], count: int) -> int:
        """Return the bytes of so many rows as columns, whose strings have these ``sizes``."""
        return self.columns.row_bytes * count + sum([sizes[place] for place in self.columns.text_sizes])

    def taken(self, rows: np.ndarray) -> list[pa.Array]:
        """Return rows (int64) of all columns, whether they are alive or not."""
        sizes = allocate(2 * self.width, np.int64)
        kernels.measure_columns(*self._memory, self.width, address_of(rows), len(rows), address_of(sizes))
        return self._taken(rows, sizes.tolist())

    def _taken(self, rows: np.ndarray, sizes: Sequence[int]) -> list[pa.Array]:
        table, kept = (*self._memory, self.width), (address_of(rows), len(rows))
        targets, vectors = np.zeros((self.width, kernels.TARGET_FIELDS), np.int64), []
        for i in range(self.width - 1):
            bytes_, nulls = sizes[2 * i : 2 * i + 2]
            vector, targets[i] = _room(self.columns.physicals[i], len(rows), bytes_, bool(nulls))
            vectors.append(vector)
        kernels.take_columns(*table, *kept, address_of(targets))
        self.held.clear()
        kinds = self.columns.columns
        return [to_arrow(vector, column.logical.arrow) for vector, column in zip(vectors, kinds, strict=True)]

    def batch(self, alive: Alive) -> pa.RecordBatch:
        """Return rows of all columns."""
        if (one := self.one_batch(alive)) is not None:
            return next(one)
        return pa.RecordBatch.from_arrays(self._taken(alive.rows, alive.sizes.tolist()), schema=self.columns.schema)

    def one_batch(self, alive: Alive) -> OneBatch | None:
        """Return rows as ``batch`` does, not decoded yet; None if the cells are not Arrow's, or are many.

        They are written into the body of one message: to make each array costs more than the cells of a few rows.
        """
        count, form = len(alive.rows), self.columns.form
        if form is None or alive.nbytes > _MESSAGE_BYTES_MAX:
            return None
        message = form.message(count, alive.nbytes)
        write = kernels.write_few if self._is_few else kernels.write_batch
        where = address_of(alive.rows), count, address_of(alive.sizes), form.address, address_of(message)
        end = write(*self._memory, self.width, *where)
        self.held.clear()
        return OneBatch(self.columns.schema, message.data[: form.head_bytes + end], count)


def _room(physical: PhysicalType, count: int, size: int, has_nulls: bool) -> tuple[Vector, Sequence[int]]:
    """Return a vector to be filled, and the fields of a target."""
    valid = allocate(count, np.bool_) if has_nulls else None
    flags = address_of(valid) if valid is not None else 0
    if physical is PhysicalType.BYTES:
        offsets, data = allocate(count + 1, np.int32), allocate(check_data_bytes(size), np.uint8)
        return BytesVector(offsets, data, valid), (0, address_of(offsets), address_of(data), flags)
    values = allocate(count, physical.dtype)
    return FixedVector(values, valid), (physical.width, address_of(values), 0, flags)
