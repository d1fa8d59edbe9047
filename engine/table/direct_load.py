"""Direct load: rows of a large batch go straight into a rowset on disk, if all of them are new.

An ordinary write logs a row, copies it into a MemRowSet, and a flush encodes it. Here the writer encodes it, and the
log records only which file it is in (`tablet/attach`). This pays for large batches: each batch makes a rowset, with
files to sync, and overlapping rowsets cost every look-up and scan. So a batch in key order needs ``direct_load_bytes``
for each tablet it touches, and one in any other order as many as a flush writes. A part larger than the rowset size of
a merge compaction is cut at that size.

A batch with a row that is not new, or with two rows of one key, is written in the ordinary way, and so is a tablet's
part that is too small. That is decided before any file is written; a key that arrives in between is found under the
write lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, zip_longest

import numpy as np
import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, StoreError
from ...schemas.rows.operation import Operation
from ...schemas.rows.write import WriteCommand
from .. import threads
from ..compaction.merge import TARGET_BYTES
from ..fs.failures import named
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.rowset_entry import RowsetEntry
from ..rowset.base_file import write_base_file
from ..tablet.attach import NewKeys, StagedRowSet
from ..tablet.open import open_rowset, remove_orphans
from ..vectors.arrow import from_arrow
from ..vectors.keys.keys import KeyVector, argsort_keys, keys_ascend, slice_keys, take_keys
from ..vectors.physical import physical_of
from .routed_batch import RoutedBatch, TabletRows
from .table_version import TableVersion
from .tablet_change import DefaultCells, whole_rows


@dataclass(frozen=True, slots=True)
class DirectLoad:
    """Decides which batches are loaded directly into a table, and writes them."""

    environment: Environment
    sorted_bytes: int
    """The least bytes of rows in key order."""
    unsorted_bytes: int

    def may_take(self, size: int) -> bool:
        """Whether a batch of ``size`` bytes is large enough."""
        return size >= min(self.sorted_bytes, self.unsorted_bytes)

    @contextmanager
    def staged(self, routed: RoutedBatch, command: WriteCommand) -> Iterator[list[StagedRowSet]]:
        """Write the parts of a batch to load directly; what the body does not attach is removed again.

        Raises:
            StorageFullError, UnavailableError: nothing was applied.
        """
        staged: list[StagedRowSet] = []
        try:
            for part in routed.parts if _may_bypass(routed, command) else []:
                staged += self._stage(routed.version, part, routed.computing)
            for one in staged:
                one.keys.are_still_new()  # leaves little to compare under the lock
            yield staged
        finally:
            for one in staged:
                one.keys.forget()
            self.give_up([one for one in staged if not one.is_logged])

    def _stage(self, version: TableVersion, part: TabletRows, defaults: DefaultCells | None) -> list[StagedRowSet]:
        """Write a part as rowsets of about the target size; none if it is too small, has a row that is not new, or one
        with a default that cannot be computed."""
        size = part.rows.nbytes
        if not self.may_take(size) or not len(part.keys):
            return []
        is_sorted = keys_ascend(part.keys)
        if size < (self.sorted_bytes if is_sorted else self.unsorted_bytes):
            return []
        if not is_sorted and not np.array_equal(part.first, np.arange(len(part.first))):
            return []
        new = NewKeys(part.tablet, part.hashes)
        staged: list[StagedRowSet] = []
        try:
            if new.are_absent(part.keys):
                self.write(version, part, new, staged, defaults)
        except BaseException as error:
            self.give_up(staged)
            new.forget()
            if isinstance(error, InvalidArgumentError):
                return []  # the ordinary way refuses the row
            if part.tablet.retired and isinstance(error, StoreError):
                return []  # its files were deleted with it; the check under the locks finds the new table version
            raise
        if not staged:
            new.forget()
        return staged

    def write(
        self,
        version: TableVersion,
        part: TabletRows,
        new: NewKeys,
        staged: list[StagedRowSet],
        defaults: DefaultCells | None = None,
        pool: Executor | None = None,
    ) -> None:
        """Write rows with distinct keys as rowsets of about the target size, and add those to ``staged``. Idle threads
        of ``pool`` help, of which the caller may be one.

        Raises:
            InvalidArgumentError: a default cannot be computed; else as for the next.
            StorageFullError, UnavailableError: not all could be written; the caller gives up those in ``staged``.
        """
        places = _in_key_order(part.keys, -(-part.rows.nbytes // TARGET_BYTES))
        first, *others = [partial(self._write, version, part, each, new, staged, defaults) for each in places]
        helpers: list[Future[None]] = []
        try:
            helpers += map(pool.submit, others) if pool else ()
            first()
            for other, helper in zip_longest(others, helpers):
                if helper is None or helper.cancel():
                    other()
                else:
                    helper.result()
        finally:
            threads.wait([helper for helper in helpers if not helper.cancel()])

    def give_up(self, staged: list[StagedRowSet]) -> None:
        """Remove rowsets that will not be attached, and their files."""
        for one in staged:
            one.give_up()
            remove_orphans(self.environment, one.rowset.path)

    def _write(
        self,
        version: TableVersion,
        part: TabletRows,
        places: slice | np.ndarray,
        new: NewKeys,
        staged: list[StagedRowSet],
        defaults: DefaultCells | None,
    ) -> None:
        part = _taken(part, places)
        environment, tablet = self.environment, part.tablet
        rowset_id = environment.manifest.new_file_id()
        path = files.path(tablet.directory_id, rowset_id, "base")
        try:
            with named("the rows could not be written"):
                _write_base(version, part, defaults, environment, path, rowset_id)
                rowset = open_rowset(tablet, environment, RowsetEntry(id=rowset_id, durable_lsn=0), slot=-1)
            staged.append(StagedRowSet(rowset, new, part.hashes))
        except BaseException:
            remove_orphans(environment, path)
            raise


def _may_bypass(routed: RoutedBatch, command: WriteCommand) -> bool:
    """Whether all new rows of the batch will apply, whatever else is in the table."""
    is_refused = command.atomic and routed.checked.refusals.by_row is not None
    makes_rows = command.op.base in (Operation.INSERT, Operation.UPSERT) and routed.shape.is_complete
    return makes_rows and not is_refused and command.if_timestamp is None


def _in_key_order(keys: KeyVector, count: int) -> Iterator[slice | np.ndarray]:
    """Yield the places of distinct keys, in key order, in ``count`` parts of about one size."""
    order = None if keys_ascend(keys) else argsort_keys(keys)
    bounds = np.linspace(0, len(keys), count + 1).astype(np.int64).tolist()
    for first, last in pairwise(bounds):
        if last > first:
            yield slice(first, last) if order is None else order[first:last]


def _taken(part: TabletRows, places: slice | np.ndarray) -> TabletRows:
    """Return the rows at some places, as a view if these are a slice."""
    if isinstance(places, slice):
        rows = part.rows.slice(places.start, places.stop - places.start)
        keys = slice_keys(part.keys, places.start, places.stop)
    else:
        rows, keys = part.rows.take(pa.array(places)), take_keys(part.keys, places)
    hashes = part.hashes[places]
    return TabletRows(part.tablet, None, rows, keys, hashes, np.arange(len(hashes)))


def _write_base(
    version: TableVersion,
    part: TabletRows,
    defaults: DefaultCells | None,
    environment: Environment,
    path: str,
    rowset_id: int,
) -> None:
    """Write the rows in key order and make file and name durable. The base's timestamp is not known yet."""
    rows = whole_rows(version, part.rows, part.rows, defaults)
    arrays = {int(name): rows.column(name) for name in rows.schema.names}
    cells = {column_id: from_arrow(array, physical_of(array.type)) for column_id, array in arrays.items()}
    encodings = files.encodings(version.schema)
    write_base_file(environment.fs, path, rowset_id, cells, None, part.keys, encodings, 0, version.schema)
    environment.fs.sync_directory(files.directory(part.tablet.directory_id))
