"""Direct load: rows of a large batch go straight into a rowset on disk, if all of them are new.

On the ordinary way a row is written to the log, copied into a MemRowSet, and encoded by a flush. Here it is encoded by
its writer, and the log says no more than which file it is in (`tablet/attach`). It pays for rows that come in large
batches: each batch makes a rowset, with files to sync, and rowsets that overlap cost every look-up and scan. So a batch
in the order of its keys must have ``direct_load_bytes`` for each tablet it touches, and one in any other order as many
as a flush writes. A part of more than the size that a merge compaction cuts rowsets at is cut there too.

A batch of which any row is not new, or repeats a key of another, goes the ordinary way, and so does what a tablet has
too little of. That is decided before anything is written; a key that comes in between is found under the write lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ...schemas.errors import StoreError
from ...schemas.operation import Operation
from ...schemas.write import WriteCommand
from ..compaction.merge import TARGET_BYTES
from ..fs.failures import named
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.manifest import RowsetEntry
from ..rowset.base_file import write_base_file
from ..tablet.attach import NewKeys, StagedRowSet
from ..tablet.open import open_rowset, remove_orphans
from ..vectors.arrow import from_arrow
from ..vectors.keys import argsort_keys, keys_ascend, slice_keys, take_keys
from ..vectors.physical import physical_of
from .routed_batch import RoutedBatch, TabletRows, whole_rows
from .table_version import TableVersion


@dataclass(frozen=True, slots=True)
class DirectLoad:
    """When a batch is loaded directly, and where to."""

    environment: Environment
    sorted_bytes: int
    """What rows in key order must have."""
    unsorted_bytes: int

    @contextmanager
    def staged(self, routed: RoutedBatch, command: WriteCommand) -> Iterator[list[StagedRowSet]]:
        """Write the parts of a batch that are to be loaded directly; what the body does not attach is removed again.

        Raises:
            StorageFullError, UnavailableError: nothing was applied.
        """
        staged: list[StagedRowSet] = []
        try:
            for part in routed.parts if _may_bypass(routed, command) else []:
                staged += self._stage(routed.version, part)
            for one in staged:
                one.keys.are_still_new()  # so that little is left to be compared under the lock
            yield staged
        finally:
            for one in staged:
                one.keys.forget()
            self.give_up([one for one in staged if not one.is_logged])

    def _stage(self, version: TableVersion, part: TabletRows) -> list[StagedRowSet]:
        """Write a part in rowsets of about the target size; none when it is too small or has a row that is not new."""
        size = part.rows.nbytes
        if size < min(self.sorted_bytes, self.unsorted_bytes) or not len(part.keys):
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
                self.write(version, part, new, staged)
        except BaseException as error:
            self.give_up(staged)
            new.forget()
            if part.tablet.retired and isinstance(error, StoreError):
                return []  # its files were deleted with it; the locks will show what became of the table version
            raise
        if not staged:
            new.forget()
        return staged

    def write(self, version: TableVersion, part: TabletRows, new: NewKeys, staged: list[StagedRowSet]) -> None:
        """Write rows, no two of one key, as rowsets of about the target size, which are added to ``staged``.

        Raises:
            StorageFullError, UnavailableError: not all could be written; those in ``staged`` are to be given up.
        """
        for piece in _in_key_order(part, keys_ascend(part.keys), -(-part.rows.nbytes // TARGET_BYTES)):
            staged.append(self._write(version, piece, new))

    def give_up(self, staged: list[StagedRowSet]) -> None:
        """Remove rowsets that are not to be attached, and their files."""
        for one in staged:
            one.give_up()
            remove_orphans(self.environment, one.rowset.path)

    def _write(self, version: TableVersion, part: TabletRows, new: NewKeys) -> StagedRowSet:
        environment, tablet = self.environment, part.tablet
        rowset_id = environment.manifest.new_id()
        path = files.path(tablet.directory_id, rowset_id, "base")
        try:
            with named("the rows could not be written"):
                _write_base(version, part, environment, path, rowset_id)
                rowset = open_rowset(tablet, environment, RowsetEntry(id=rowset_id, durable_lsn=0), slot=-1)
            return StagedRowSet(rowset, new, part.hashes)
        except BaseException:
            remove_orphans(environment, path)
            raise


def _may_bypass(routed: RoutedBatch, command: WriteCommand) -> bool:
    """Whether new rows of the batch will be applied, whatever else is in the table."""
    is_refused = command.atomic and routed.checked.refusals.by_row is not None
    makes_rows = command.op.base in (Operation.INSERT, Operation.UPSERT) and routed.shape.is_complete
    return makes_rows and not is_refused and command.if_timestamp is None


def _in_key_order(part: TabletRows, is_sorted: bool, count: int) -> Iterator[TabletRows]:
    """Cut the rows of a part, no two of one key, in the order of their keys into ``count`` parts of about one size."""
    order = None if is_sorted else argsort_keys(part.keys)
    bounds = np.linspace(0, len(part.keys), count + 1).astype(np.int64).tolist()
    for first, last in pairwise(bounds):
        if order is None:
            rows, keys = part.rows.slice(first, last - first), slice_keys(part.keys, first, last)
            hashes = part.hashes[first:last]
        else:
            chosen = order[first:last]
            rows, keys = part.rows.take(pa.array(chosen)), take_keys(part.keys, chosen)
            hashes = part.hashes[chosen]
        if last > first:
            yield TabletRows(part.tablet, None, rows, keys, hashes, np.arange(last - first))


def _write_base(version: TableVersion, part: TabletRows, environment: Environment, path: str, rowset_id: int) -> None:
    """Write the rows in key order and make file and name durable. What moment the base shows is not known yet."""
    rows = whole_rows(version, part.rows, part.rows)
    arrays = {int(name): rows.column(name) for name in rows.schema.names}
    cells = {column_id: from_arrow(array, physical_of(array.type)) for column_id, array in arrays.items()}
    encodings = files.encodings(version.schema)
    write_base_file(environment.fs, path, rowset_id, cells, None, part.keys, encodings, 0, version.schema.version)
    environment.fs.sync_directory(files.directory(part.tablet.directory_id))
