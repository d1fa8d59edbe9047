"""TableVersion: what a table is made of at one moment, replaced as a whole by an alteration.

A writer takes the version, routes its batch by it, takes the write locks of the tablets that the batch touches in
ascending tablet id, and then checks that the table still has that version: an alteration replaces it under the write
locks of all tablets. A scan keeps the version that it began with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ...schemas.errors import UnavailableError, WrongServerError
from ...schemas.literal import from_json
from ...schemas.partition_schema import UNPARTITIONED, PartitionSchema, sum_of
from ...schemas.table import TableOptions, TableSchema
from ..partition.router import NOWHERE, Router
from ..tablet.tablet import Tablet
from ..vectors.arrow import from_arrow
from ..vectors.keys import KeyEncoder, KeyVector
from ..vectors.physical import physical_of

_UINT16_MAX = (1 << 16) - 1
_CLOSED_SECONDS = 0.1
"""After this, whoever writes to a tablet that is about to move may try again."""


@dataclass(frozen=True, eq=False)
class TableVersion:
    """Schema, options and tablets that go together; immutable. The tablets stand in ascending id."""

    schema: TableSchema
    options: TableOptions
    tablets: tuple[Tablet, ...]
    partitions: PartitionSchema = UNPARTITIONED

    @cached_property
    def router(self) -> Router:
        """Finds the tablet of a row, by its place in ``tablets``."""
        return Router(self.partitions, self.schema, [tablet.partition for tablet in self.tablets])

    @cached_property
    def immutable(self) -> frozenset[int]:
        """The ids of the columns that only a new row may take."""
        return frozenset(column.id for column in self.schema.values if column.immutable)

    @cached_property
    def defaults(self) -> dict[int, pa.Scalar]:
        """What a new row gets in each column beside the key that its batch does not have, by column id."""
        return {column.id: _default_cell(column) for column in self.schema.values}

    @cached_property
    def default_bytes(self) -> dict[int, int]:
        """The size of each of ``defaults`` in a row."""
        return {column_id: pa.array([cell.as_py()], cell.type).nbytes for column_id, cell in self.defaults.items()}

    def bytes_of_defaults(self, sent: Iterable[int]) -> int:
        """Return how many bytes a new row gets by ``defaults`` when only the columns ``sent`` (ids) come with it."""
        return sum(self.default_bytes[column_id] for column_id in set(self.defaults).difference(sent))

    @cached_property
    def encoder(self) -> KeyEncoder:
        """The encoder of the table's keys."""
        return KeyEncoder([physical_of(column.logical.arrow) for column in self.schema.key])

    def keys_of(self, rows: pa.RecordBatch) -> KeyVector:
        """Return the encoded keys of a batch whose columns are named by id."""
        columns = [rows.column(str(column.id)) for column in self.schema.key]
        return self.encoder.encode([from_arrow(cells, physical_of(cells.type)) for cells in columns])

    @cached_property
    def elsewhere(self) -> np.ndarray | None:
        """Which of ``tablets`` (bool) other servers have; None when none are."""
        found = np.array([tablet.elsewhere is not None for tablet in self.tablets], np.bool_)
        return found if found.any() else None

    @cached_property
    def tablets_here(self) -> str:
        """Stands for the tablets that are here, as ``ScanPlan`` tells it."""
        return sum_of(tablet.partition for tablet in self.tablets if tablet.elsewhere is None)

    @cached_property
    def tablets_all(self) -> str:
        """Stands for all tablets of the table."""
        return sum_of(tablet.partition for tablet in self.tablets)

    def check_here(self, numbers: np.ndarray | None) -> None:
        """Refuse rows of tablets that other servers have, or that are in quarantine; ``numbers`` as ``covers`` gives
        them, None for all tablets.

        Raises:
            WrongServerError: naming the server of the first.
            CorruptionError: naming a damaged file of the first.
        """
        if self._out_of_reach is None:
            return
        found = np.flatnonzero(self._out_of_reach if numbers is None else self._out_of_reach[numbers])
        if len(found):
            check_here(self.tablets[found[0] if numbers is None else numbers[found[0]]])

    @cached_property
    def _out_of_reach(self) -> np.ndarray | None:
        """Which of ``tablets`` (bool) nobody can read or write here; None when all can be."""
        found = np.array([bool(tablet.elsewhere or tablet.quarantine) for tablet in self.tablets], np.bool_)
        return found if found.any() else None

    def check_writable(self, numbers: np.ndarray | None) -> None:
        """Refuse rows that are to be written as ``check_here`` does, and those of tablets that are about to move.

        Raises:
            WrongServerError: naming the server of the first.
            CorruptionError: naming a damaged file of the first.
            UnavailableError: for a moment; nothing is applied.
        """
        self.check_here(numbers)
        closed = [number for number, tablet in enumerate(self.tablets) if tablet.is_closed and tablet.is_closed()]
        if closed and (numbers is None or np.isin(closed, numbers).any()):
            raise UnavailableError(
                "a tablet of the rows is moving, or an import is in progress: try again", _CLOSED_SECONDS
            )

    def covers(self, rows: pa.RecordBatch) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return where in ``tablets`` the tablet of each row is, and which rows (bool) have none.

        The first is None when all are in the one tablet that there is, the second when all have one. The columns of
        ``rows`` are named by id.
        """
        numbers = self.router.numbers_of(rows)
        if numbers is None:
            return None, None
        missing = numbers == NOWHERE
        return numbers, missing if missing.any() else None


def check_here(tablet: Tablet) -> None:
    """Refuse a tablet whose rows cannot be reached here.

    Raises:
        WrongServerError: it is on another server, which the text names.
        CorruptionError: it is in quarantine; the text names a damaged file.
    """
    if tablet.elsewhere is not None:
        raise WrongServerError(
            f"tablet {tablet.tablet_id} of the table is on the server {tablet.elsewhere!r}: ask that server, "
            "or connect with the placement of the servers"
        )
    tablet.check_sound()


def grouped(numbers: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Return the order that brings rows together by number, else as they stand, and (number, first, last) of each."""
    # numpy sorts 16 bits by counting, which takes a fraction of the time.
    is_narrow = len(numbers) and numbers.min() >= 0 and numbers.max() <= _UINT16_MAX
    order = np.argsort(numbers.astype(np.uint16) if is_narrow else numbers, kind="stable")
    sorted_numbers = numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=-1))
    ends = np.append(starts[1:], len(numbers))
    return order, list(zip(sorted_numbers[starts].tolist(), starts.tolist(), ends.tolist(), strict=True))


@contextmanager
def write_locks(tablets: Collection[Tablet]) -> Iterator[None]:
    """Hold the write locks of ``tablets``, taken in ascending id: so no two that take several wait for each other."""
    with ExitStack() as held:
        for tablet in sorted(tablets, key=lambda tablet: tablet.tablet_id):
            held.enter_context(tablet.write_lock)
        yield


def _default_cell(column: ColumnSchema) -> pa.Scalar:
    value = from_json(column.write_default, column.logical, f"the write_default of column {column.name!r}:")
    return pa.scalar(value, column.logical.arrow)
