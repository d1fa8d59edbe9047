"""Pins: snapshots whose files are kept for readers outside, until a lease ends.

A pin flushes the table, then gives each of its files a second name in a directory of the pin (``pins/<id>``). So
compactions, history collection and even dropping the table take nothing from readers, and need not know of pins. Pins
last while the store is open; opening it removes the directories of earlier ones.

A pin costs no space while the table uses its files. Files that compactions have replaced since are kept for pins alone:
when they exceed their limit, or the disk is below its reserve, the oldest pin is released early.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ....schemas.direct import PinnedTable, PinSnapshot
from ....schemas.errors import NotFoundError, SnapshotTooOldError, StoreError, UnavailableError
from ....schemas.limits import Limits
from ...catalog.catalog import Catalog
from ...commit.room import Room
from ...fs.failures import named
from ...fs.filesystem import FileSystem, join
from ...fs.tree import remove_quietly, remove_tree
from ...maintenance.op import MaintenanceOp, TabletOp
from ...maintenance.upkeep import flushed
from ...manifest import files
from ...manifest.environment import Environment
from ...manifest.manifest import TabletEntry
from ...scan.snapshots import Snapshots
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.tablet import Tablet
from ..leases import Leases

_LOG = logging.getLogger("nyala.engine")
ROOT = "pins"
_ATTEMPTS = 5


class Pins:
    """The pins of one store. Thread safe."""

    def __init__(
        self,
        catalog: Catalog,
        environment: Environment,
        snapshots: Snapshots,
        limits: Limits,
        room: Room,
        now: Callable[[], int],
        new_timestamp: Callable[[], int],
    ) -> None:
        """``now`` gives microseconds since 1970; ``new_timestamp`` is unique at each call."""
        self._catalog = catalog
        self._environment = environment
        self._snapshots = snapshots
        self._limits = limits
        self._new_timestamp = new_timestamp
        self._room = room
        self._leases: Leases[dict[str, int]] = Leases("pin", self._remove, now, room)
        """The files of each pin with their sizes, by their paths in the tablets' directories."""

    def pin(self, asked: PinSnapshot) -> PinnedTable:
        """Keep the files that hold a table at a snapshot.

        Raises:
            NotFoundError: there is no such table.
            SnapshotTooOldError: the table's history no longer reaches back to it.
            StorageFullError, UnavailableError: there are too many pins, the table could not be flushed, or this disk
                does not support hard links.
        """
        table = self._catalog.table(asked.table)
        snapshot = self._snapshots.of(asked.as_of, table, "as_of")
        while pin_id := self._too_much():
            self._release_early(pin_id)
        with self._leases.begun():
            return self._pin(asked, table, snapshot)

    def _pin(self, asked: PinSnapshot, table: Table, snapshot: int) -> PinnedTable:
        pin_id = f"{table.table_id}-{self._new_timestamp():x}"
        directory = join(ROOT, pin_id)
        for _ in range(_ATTEMPTS):
            version = table.version
            linked: dict[str, int] = {}
            try:
                entries = self._linked(version, directory, snapshot, table.name, linked)
            except StoreError:
                remove_quietly(self._environment.fs, directory)
                if table.version is not version and table.dropped_until is None:
                    continue  # a tablet is gone; the new table version shows where its rows are
                raise
            if table.version is version:
                break
            remove_quietly(self._environment.fs, directory)
        else:
            raise UnavailableError(f"table {table.name!r} keeps being altered: try again later", 1.0)
        self._leases.add(pin_id, linked, asked.ttl_seconds)
        return PinnedTable(
            pin_id=pin_id,
            table=table.name,
            table_id=table.table_id,
            snapshot=snapshot,
            schema_=version.schema,
            partitions=version.partitions,
            tablets=tuple(entry.model_dump(mode="json") for entry in entries),
            limits=self._limits,
            directory=directory,
            ttl_seconds=asked.ttl_seconds,
        )

    def renew(self, pin_id: str) -> None:
        """Restart the lease. Raises NotFoundError if the pin is gone."""
        self._leases.renew(pin_id)

    def release(self, pin_id: str) -> None:
        """Release the files. Raises NotFoundError if the pin is gone already."""
        self._leases.end_known(pin_id)

    def __len__(self) -> int:
        """Return the number of pins that have not ended."""
        return len(self._leases)

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of releasing pins that have expired or keep too much."""
        found = self._leases.removals("release")
        if not found and (pin_id := self._too_much()):
            found.append(TabletOp(f"release pin {pin_id}", lambda: 1.0, partial(self._release_early, pin_id)))
        return found

    @property
    def kept_bytes(self) -> int:
        """Bytes of the files that only pins keep."""
        return sum(self._kept(self._leases.values()).values())

    def _kept(self, pins: dict[str, dict[str, int]]) -> dict[str, int]:
        """Return the files that only these pins keep, with their sizes."""
        files_of_pins = {path: size for linked in pins.values() for path, size in linked.items()}
        if not files_of_pins:
            return {}
        needed = {
            join(files.directory(tablet.home), name)
            for table in self._environment.manifest.current.tables
            for tablet in table.tablets
            for rowset in tablet.rowsets
            for name in rowset.file_names
        }
        return {path: size for path, size in files_of_pins.items() if path not in needed}

    def _too_much(self) -> str | None:
        """Return the oldest pin that keeps any file, if pins exceed their limit; else None."""
        pins = self._leases.values()
        kept = self._kept(pins)
        with named("the size of pinned files could not be determined"):
            if not self._room.is_over(sum(kept.values())):
                return None
        return next((pin_id for pin_id, linked in pins.items() if not kept.keys().isdisjoint(linked)), None)

    def _release_early(self, pin_id: str) -> None:
        if self._leases.end(pin_id):
            _LOG.warning(
                "pin %s is released early: pins keep more than pinned_bytes of files that nothing else "
                "needs, or the disk is full but for disk_reserve_bytes",
                pin_id,
            )

    def _remove(self, pin_id: str, _: dict[str, int]) -> None:
        remove_quietly(self._environment.fs, join(ROOT, pin_id))

    def _linked(
        self, version: TableVersion, directory: str, snapshot: int, name: str, linked: dict[str, int]
    ) -> list[TabletEntry]:
        """Give the files of all tablets a name in ``directory``, and add them with their sizes to ``linked``."""
        version.check_here(None)  # a pin of some tablets would look like the whole table
        with named("the files of a snapshot could not be kept for readers"):
            self._environment.fs.make_directory(directory)
            return [self._tablet(tablet, directory, snapshot, name, linked) for tablet in version.tablets]

    def _tablet(self, tablet: Tablet, directory: str, snapshot: int, name: str, linked: dict[str, int]) -> TabletEntry:
        """Flush a tablet and link its files into ``directory``; return its entry, without unneeded fields."""
        fs = self._environment.fs
        with flushed(tablet, self._environment):
            entry = self._environment.manifest.current.tablet(tablet.tablet_id)
            if entry is None:
                raise NotFoundError(f"table {name!r} was dropped")
            if snapshot < entry.history_floor:
                raise SnapshotTooOldError(f"snapshot {snapshot} is older than the history that table {name!r} keeps")
            home = files.directory(entry.home)
            fs.make_directory(join(directory, home))
            for file in (file for rowset in entry.rowsets for file in rowset.file_names):
                target = join(join(directory, home), file)
                if not fs.exists(target):  # tablets that were split share some
                    fs.link(join(home, file), target)
                    linked[join(home, file)] = fs.size(target)
        return entry


def sweep(fs: FileSystem) -> None:
    """Remove the pins of an earlier process."""
    remove_tree(fs, ROOT)
