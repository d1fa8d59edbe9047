"""Pins: snapshots whose files are kept for readers outside, until a lease ends.

What is in memory is flushed, then every file of the table gets a second name, in a directory of the pin
(``pins/<id>``). So compactions, the collection of history and even a dropped table take nothing from its readers, and
nothing here has to know of them. A pin lives as long as the store is open; what is there when it is opened again
belongs to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...schemas.direct import PinnedTable, PinSnapshot
from ...schemas.errors import NotFoundError, SnapshotTooOldError, StoreError, UnavailableError
from ...schemas.limits import Limits
from ..fs.failures import named
from ..fs.filesystem import FileSystem, join
from ..fs.tree import remove_quietly, remove_tree
from ..layout import Layout
from ..leases import Leases
from ..maintenance.op import MaintenanceOp
from ..room import Room
from ..table import Table
from ..tablet import files
from ..tablet.environment import Environment
from ..tablet.manifest import TabletEntry
from ..tablet.tablet import Tablet
from ..upkeep import TabletOp, flushed

ROOT = "pins"
_ATTEMPTS = 5


class Pins:
    """The pins of one store. Thread safe."""

    def __init__(
        self,
        environment: Environment,
        limits: Limits,
        room: Room,
        now: Callable[[], int],
        new_timestamp: Callable[[], int],
    ) -> None:
        """``now`` tells the time in microseconds since 1970; ``new_timestamp`` never gives one twice."""
        self._environment = environment
        self._limits = limits
        self._new_timestamp = new_timestamp
        self._leases: Leases[None] = Leases("pin", now, room)

    def pin(self, asked: PinSnapshot, table: Table, snapshot: int) -> PinnedTable:
        """Keep the files that hold the table at ``snapshot``, up to which all commits are visible.

        Raises:
            SnapshotTooOldError: the table's history no longer reaches back to it.
            StorageFullError, UnavailableError: there are too many pins, the table could not be flushed, or files cannot
                have two names on this disk.
        """
        with self._leases.begun():
            return self._pin(asked, table, snapshot)

    def _pin(self, asked: PinSnapshot, table: Table, snapshot: int) -> PinnedTable:
        pin_id = f"{table.table_id}-{self._new_timestamp():x}"
        directory = join(ROOT, pin_id)
        for _ in range(_ATTEMPTS):
            layout = table.layout
            try:
                entries = self._linked(layout, directory, snapshot, table.name)
            except StoreError:
                remove_quietly(self._environment.fs, directory)
                if table.layout is not layout and table.dropped_until is None:
                    continue  # a tablet has gone; the new layout will show where its rows are
                raise
            if table.layout is layout:
                break
            remove_quietly(self._environment.fs, directory)
        else:
            raise UnavailableError(f"table {table.name!r} is being altered again and again: try later", 1.0)
        self._leases.add(pin_id, None, asked.ttl_seconds)
        return PinnedTable(
            pin_id=pin_id,
            table=table.name,
            table_id=table.table_id,
            snapshot=snapshot,
            schema_=layout.schema,
            partitions=layout.partitions,
            tablets=tuple(entry.model_dump(mode="json") for entry in entries),
            limits=self._limits,
            directory=directory,
            ttl_seconds=asked.ttl_seconds,
        )

    def renew(self, pin_id: str) -> None:
        """Keep the files for as long again. Raises NotFoundError when the pin is gone."""
        self._leases.renew(pin_id)

    def release(self, pin_id: str) -> None:
        """Keep the files no longer. Raises NotFoundError when the pin is gone already."""
        self._leases.end_known(pin_id)
        remove_quietly(self._environment.fs, join(ROOT, pin_id))

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of releasing pins whose time is over."""
        return [
            TabletOp(f"release pin {pin_id}", lambda: 1.0, partial(self._release_expired, pin_id))
            for pin_id in self._leases.expired()
        ]

    def _release_expired(self, pin_id: str) -> None:
        if self._leases.end_expired(pin_id):
            remove_quietly(self._environment.fs, join(ROOT, pin_id))

    def _linked(self, layout: Layout, directory: str, snapshot: int, name: str) -> list[TabletEntry]:
        layout.check_here(None)  # a part of a table would pass for all of it
        with named("the files of a snapshot could not be kept for readers"):
            self._environment.fs.make_directory(directory)
            return [self._tablet(tablet, directory, snapshot, name) for tablet in layout.tablets]

    def _tablet(self, tablet: Tablet, directory: str, snapshot: int, name: str) -> TabletEntry:
        """Flush a tablet and give its files a name in ``directory``; return its entry, without what is not needed."""
        fs = self._environment.fs
        with flushed(tablet, self._environment):
            entry = self._environment.manifest.current.tablet(tablet.tablet_id)
            if entry is None:
                raise NotFoundError(f"table {name!r} was dropped")
            if snapshot < entry.history_floor:
                raise SnapshotTooOldError(f"snapshot {snapshot} lies before the history that table {name!r} still has")
            home = files.directory(entry.home)
            fs.make_directory(join(directory, home))
            for file in (file for rowset in entry.rowsets for file in rowset.file_names):
                target = join(join(directory, home), file)
                if not fs.exists(target):  # tablets that were divided share some
                    fs.link(join(home, file), target)
        return entry


def sweep(fs: FileSystem) -> None:
    """Remove what the pins of a former process have kept."""
    remove_tree(fs, ROOT)
