"""TableVersion: schema, options and tablets of a table at one moment; an alteration replaces it as a whole.

A writer takes the version, routes its batch by it, takes the write locks of the affected tablets in ascending tablet
id, and then checks that the table still has that version: an alteration replaces it under the write locks of all
tablets. A scan keeps the version that it began with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

import numpy as np
import pyarrow as pa

from ...schemas.cells.literal import from_json
from ...schemas.errors import UnavailableError, WrongServerError
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition import HashLevel
from ...schemas.table.partition_schema import UNPARTITIONED, PartitionSchema, sum_of
from ...schemas.table.table import TableOptions, TableSchema
from ..manifest.interrupts import interrupts_later
from ..partition.router import NOWHERE, Router
from ..tablet.tablet import Tablet
from ..vectors.arrow import from_arrow
from ..vectors.keys.keys import KeyEncoder, KeyVector
from ..vectors.physical import physical_of
from .formulas import Formula, MergeRules, default_formulas, table_rules
from .quota import Quota, quota_of

Plan = TypeVar("Plan")

_UINT16_MAX = (1 << 16) - 1
_CLOSED_SECONDS = 0.1
"""Retry time for writes to a tablet that is about to move."""


class Plans(dict[type[Any], Any]):
    """Plans for the rows of one version of a table, by class: ``plans[PointPlan]`` is made when it is first looked up,
    and then always the same. Thread safe."""

    def __init__(self, version: TableVersion) -> None:
        super().__init__()
        self._version = ref(version)  # without plans, nothing refers back to a version

    def __missing__(self, kind: type[Any]) -> Any:
        return self.setdefault(kind, kind(self._version()))

    if TYPE_CHECKING:

        def __getitem__(self, kind: type[Plan]) -> Plan: ...


@dataclass(frozen=True, eq=False)
class TableVersion:
    """Schema, options and tablets that belong together; immutable. The tablets are in ascending id."""

    schema: TableSchema
    options: TableOptions
    tablets: tuple[Tablet, ...]
    partitions: PartitionSchema = UNPARTITIONED
    plans: Plans = field(init=False)
    descriptions: dict[str, TableDescription] = field(default_factory=dict, init=False)
    """By the table's name; filled by `stats.described`."""
    quota: Quota | None = field(init=False)
    """What the table may hold at most; None: there is no limit. Two would each count for themselves: it is there from
    the beginning."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "plans", Plans(self))
        object.__setattr__(self, "quota", quota_of(self.options, self.tablets))

    def prepared(self) -> TableVersion:
        """Return it ready for the first batch: what is worked out when it is first asked for is there."""
        _ = self.router, self.defaults, self.formulas, self.default_bytes, self.encoder
        return self

    def with_tablet(self, old: Tablet, new: Tablet) -> TableVersion:
        """Return the table version with ``new``, of the same rows, for ``old``, ready for the first batch."""
        kept = [tablet for tablet in self.tablets if tablet is not old]
        return replace(self, tablets=tuple(sorted((*kept, new), key=lambda tablet: tablet.tablet_id))).prepared()

    @cached_property
    def router(self) -> Router:
        """Finds the tablet of a row, by its place in ``tablets``."""
        return Router(self.partitions, self.schema, [tablet.partition for tablet in self.tablets])

    @cached_property
    def hash(self) -> list[HashLevel]:
        """The hash levels of all ranges, as in ``ScanPlan``."""
        return self.partitions.common_hash(self.schema)

    @cached_property
    def immutable(self) -> frozenset[int]:
        """The ids of the columns that only new rows set."""
        return frozenset(column.id for column in self.schema.values if column.immutable)

    @cached_property
    def defaults(self) -> dict[int, pa.Scalar]:
        """The default cell of each non-key column, by column id, for new rows whose batch lacks the column."""
        return {column.id: _default_cell(column) for column in self.schema.values}

    @cached_property
    def formulas(self) -> dict[int, Formula]:
        """The default expressions, by column id, for new rows whose batch lacks the column."""
        return default_formulas(self.schema)

    @cached_property
    def rules(self) -> MergeRules:
        """The merge rules of the columns."""
        return table_rules(self.schema)

    @cached_property
    def default_bytes(self) -> dict[int, int]:
        """The bytes of each default in a row."""
        return {column_id: pa.repeat(cell, 1).nbytes for column_id, cell in self.defaults.items()}

    def bytes_of_defaults(self, sent: Iterable[int]) -> int:
        """Return the bytes of defaults in a new row when its batch has only the columns ``sent`` (ids)."""
        return sum(self.default_bytes[column_id] for column_id in set(self.defaults).difference(sent))

    @cached_property
    def encoder(self) -> KeyEncoder:
        """The encoder of the table's keys."""
        return KeyEncoder([physical_of(column.logical.arrow) for column in self.schema.key])

    def forget_plans(self) -> None:
        """Drop the plans, which refer back to this version: of a dropped table, they would keep deleted files open, and
        so their disk space, until the interpreter looks for cycles."""
        self.plans.clear()

    def keys_of(self, rows: pa.RecordBatch) -> KeyVector:
        """Return the encoded keys of a batch whose columns are named by id."""
        columns = [rows.column(str(column.id)) for column in self.schema.key]
        return self.encoder.encode([from_arrow(cells, physical_of(cells.type)) for cells in columns])

    def order_of(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return the cells of a batch that order its rows among the changes of their keys; None if it has none, or the
        table has no order. Columns are named by id."""
        column = self.schema.ordering
        return None if column is None or str(column.id) not in rows.schema.names else rows.column(str(column.id))

    @cached_property
    def elsewhere(self) -> np.ndarray | None:
        """Which of ``tablets`` (bool) are on other servers; None for none."""
        found = np.array([tablet.elsewhere is not None for tablet in self.tablets], np.bool_)
        return found if found.any() else None

    @cached_property
    def tablets_here(self) -> str:
        """A checksum of the tablets that are here, as in ``ScanPlan``."""
        return sum_of(tablet.partition for tablet in self.tablets if tablet.elsewhere is None)

    @cached_property
    def tablets_all(self) -> str:
        """A checksum of all tablets of the table."""
        return sum_of(tablet.partition for tablet in self.tablets)

    def check_here(self, numbers: np.ndarray | None) -> None:
        """Reject rows of tablets that are on other servers or in quarantine; ``numbers`` as from ``covers``, None for
        all tablets.

        Raises:
            WrongServerError: with the server of the first such tablet.
            CorruptionError: with a damaged file of the first such tablet.
        """
        if self._out_of_reach is None:
            return
        found = np.flatnonzero(self._out_of_reach if numbers is None else self._out_of_reach[numbers])
        if len(found):
            check_here(self.tablets[found[0] if numbers is None else numbers[found[0]]])

    @property
    def is_all_here(self) -> bool:
        """Whether all tablets can be read here."""
        return not self._away

    def is_here(self, number: int) -> bool:
        """Whether a tablet, by its index in ``tablets``, can be read here."""
        return number not in self._away

    @cached_property
    def _out_of_reach(self) -> np.ndarray | None:
        """Which of ``tablets`` (bool) cannot be read or written here; None for none."""
        found = np.array([bool(tablet.elsewhere or tablet.quarantine) for tablet in self.tablets], np.bool_)
        return found if found.any() else None

    @cached_property
    def _away(self) -> frozenset[int]:
        """The indexes of the tablets that cannot be read or written here."""
        return frozenset(() if self._out_of_reach is None else np.flatnonzero(self._out_of_reach).tolist())

    def check_writable(self, numbers: np.ndarray | None) -> None:
        """Reject rows to be written as ``check_here`` does, and rows of tablets that are about to move.

        Raises:
            WrongServerError: with the server of the first such tablet.
            CorruptionError: with a damaged file of the first such tablet.
            UnavailableError: a tablet is about to move; nothing is applied.
        """
        self.check_here(numbers)
        closed = [number for number, tablet in enumerate(self.tablets) if tablet.is_closed and tablet.is_closed()]
        if closed and (numbers is None or np.isin(closed, numbers).any()):
            raise UnavailableError(
                "a tablet with some of these rows is moving, or an import is in progress: try again", _CLOSED_SECONDS
            )

    def covers(self, rows: pa.RecordBatch) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the index in ``tablets`` of each row's tablet, and which rows (bool) have none.

        The first is None when all rows are in the only tablet, the second when all have a tablet. The columns of
        ``rows`` are named by id.
        """
        numbers = self.router.numbers_of(rows)
        if numbers is None:
            return None, None
        missing = numbers == NOWHERE
        return numbers, missing if missing.any() else None


def check_here(tablet: Tablet) -> None:
    """Raise if the rows of a table's tablet cannot be reached here.

    Raises:
        WrongServerError: it is on another server, which the text names.
        CorruptionError: it is in quarantine; the text names a damaged file.
    """
    if tablet.elsewhere is not None:
        raise WrongServerError(
            f"tablet {tablet.tablet_id} of the table is on the server {tablet.elsewhere!r}: connect to that "
            "server, or give the client the placement of all servers"
        )
    tablet.check_sound()


def grouped(numbers: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """For a batch to write, return a stable order that groups the rows of a batch by the number of their tablet, and
    (number, first, last) of each group."""
    # numpy sorts 16-bit numbers by counting, which takes a fraction of the time.
    is_narrow = len(numbers) and numbers.min() >= 0 and numbers.max() <= _UINT16_MAX
    order = np.argsort(numbers.astype(np.uint16) if is_narrow else numbers, kind="stable")
    sorted_numbers = numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=-1))
    ends = np.append(starts[1:], len(numbers))
    return order, list(zip(sorted_numbers[starts].tolist(), starts.tolist(), ends.tolist(), strict=True))


@contextmanager
def write_locks(tablets: Collection[Tablet]) -> Iterator[None]:
    """Hold the write locks of ``tablets`` of a table, taken in ascending id to prevent deadlock."""
    if len(tablets) == 1:
        with next(iter(tablets)).write_lock:
            yield
        return
    with ExitStack() as held:
        with interrupts_later():  # else a lock that is taken may not be noted, and stays taken
            for tablet in sorted(tablets, key=lambda tablet: tablet.tablet_id):
                held.enter_context(tablet.write_lock)
        yield


def _default_cell(column: ColumnSchema) -> pa.Scalar:
    value = from_json(column.write_default, column.logical, f"the write_default of column {column.name!r}:")
    return pa.scalar(value, column.logical.arrow)
