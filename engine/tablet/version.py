"""Version: the rowsets of a tablet at one moment.

A version is never changed; a flush puts a new one in its place. A scan keeps the version that it started with and so
sees the same rowsets to its end. Everything that is committed up to the scan's snapshot is in it, because the snapshot
is taken first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..rowset.diskrowset import DiskRowSet
from ..rowset.memrowset import MemRowSet
from ..rowset.rowset import RowSet


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """The rowsets of a tablet at one moment. ``active`` takes new rows; ``frozen`` are being written to disk, oldest
    first."""

    active: MemRowSet
    frozen: tuple[MemRowSet, ...] = ()
    disk: tuple[DiskRowSet, ...] = ()
    attached: tuple[DiskRowSet, ...] = ()
    """On disk too, in the order of their commits: maintenance passes over them until the manifest names them."""
    history_floor: int = 0
    """Snapshots below this timestamp can no longer be read."""

    def rowsets(self) -> tuple[RowSet, ...]:
        """Return all rowsets, those on disk first."""
        return (*self.disk, *self.attached, *self.frozen, self.active)

    @property
    def on_disk(self) -> tuple[DiskRowSet, ...]:
        """All DiskRowSets."""
        return (*self.disk, *self.attached)

    @property
    def in_memory(self) -> tuple[MemRowSet, ...]:
        """The MemRowSets, oldest first."""
        return (*self.frozen, self.active)
