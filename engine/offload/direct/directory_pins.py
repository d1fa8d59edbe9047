"""Pins of a store in a directory: snapshots whose files are kept for readers outside, until a lease ends.

A pin flushes the table, then gives each of its files a second name in a directory of the pin (``pins/<id>``). So
compactions, history collection and even dropping the table take nothing from readers, and need not know of pins. Pins
last while the store is open; opening it removes the directories of earlier ones, but for those that are kept, which
have a name (`pin_note`). Those of a store in a bucket are in `bucket_pins`.

A pin costs no space while the table uses its files. Files that compactions have replaced since are kept for pins alone:
when they exceed their limit, or the disk is below its reserve, a pin is released early: the oldest of the user whose
pins keep most. Those of kept pins do not count: only who made these drops them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ....schemas.errors import (
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    StoreError,
    UnreadableFileError,
)
from ....schemas.limits.share import most_greedy
from ....schemas.store.direct import PinnedTable, PinSnapshot
from ....schemas.store.pins import CreatePin, KeptPin, OpenedPin, OpenPin
from ... import threads
from ...fs.failures import named, reading
from ...fs.filesystem import join
from ...fs.tree import remove_quietly
from ...maintenance.op import MaintenanceOp, TabletOp
from ...maintenance.upkeep import flushed
from ...manifest import files, pin_note
from ...manifest.manifest import TabletEntry
from ...manifest.pin_note import ROOT, PinNote
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.tablet import Tablet
from ..leases import Leases
from .pins import ATTEMPTS, Pins, keeps_being_altered, no_kept_pin, table_of, too_old

if TYPE_CHECKING:
    from ...home.pinned import PinnedObjects
    from .bucket_pins import BucketPins

_LOG = logging.getLogger("nyala.engine")


@dataclass(eq=False)
class DirectoryPins(Pins):
    """The pins of one store in a directory. Thread safe."""

    def __post_init__(self) -> None:
        self._leases: Leases[dict[str, int]] = Leases("pin", self._remove, self._clock, self._room)
        """The files of each pin with their sizes, by their paths in the tablets' directories."""
        self._keeping = threads.Lock()
        self._unread: set[str] = set()
        """The ids of kept pins whose notes cannot be read."""
        self._kept = self._found_kept()

    def pin(self, asked: PinSnapshot) -> PinnedTable:
        """Keep the files that hold a table at a snapshot.

        Raises:
            NotFoundError: there is no such table.
            SnapshotTooOldError: the table's history no longer reaches back to it.
            StorageFullError, UnavailableError: there are too many pins, the table could not be flushed, or this disk
                does not support hard links.
        """
        table, snapshot = self._found(asked.table, asked.as_of)
        while pin_id := self._too_much():
            self._release_early(pin_id)
        with self._leases.begun():
            pinned, linked = self._pin(table, snapshot, asked.ttl_seconds)
            self._leases.add(pinned.pin_id, linked, asked.ttl_seconds)
        return pinned

    def create(self, asked: CreatePin) -> KeptPin:
        """Keep the files that hold a table at a snapshot until the pin is dropped, also by later processes.

        Raises:
            AlreadyPresentError: a pin has this name.
            InvalidArgumentError: all tables are asked for.
            NotFoundError, SnapshotTooOldError, StorageFullError, UnavailableError: as ``pin``.
        """
        if asked.table is None:
            raise InvalidArgumentError(
                "a pin without a table needs a store in a bucket, and this store is in a directory: use nyala "
                "checkpoint DIR to copy the whole store, or name a table"
            )
        table, snapshot = self._found(asked.table, asked.as_of)
        with self._keeping, named("the pin could not be made"):
            kept = {note.name: note.pinned.table_id for note in self._kept.values()}
            self._check_kept(asked.name, table.table_id, kept)
            self._room.check_disk(0)
            pinned, linked = self._pin(table, snapshot, None)
            note = PinNote(name=asked.name, pinned=pinned, options=table.options, sizes=linked)
            try:
                pin_note.keep(self._environment.fs, note)
            except BaseException:
                with suppress(OSError):  # the note may be on the disk: then its files are, too, until the next start
                    pin_note.keep_no_longer(self._environment.fs, pinned.directory)
                    remove_quietly(self._environment.fs, pinned.directory)
                raise
            self._kept[pinned.pin_id] = note
        return _told(note)

    def kept(self) -> list[KeptPin]:
        """Return the pins that are kept, oldest first."""
        return [_told(note) for note in sorted(self._kept.values(), key=lambda note: note.pinned.snapshot)]

    def open(self, asked: OpenPin) -> OpenedPin:
        """Return what a reader needs of a kept pin. Raises NotFoundError: there is none, or it has another table."""
        note = self._kept.get(asked.pin_id)
        if note is None:
            raise no_kept_pin(asked.pin_id)
        table_of(note.name, note.manifest.tables, asked.table)
        return OpenedPin(pinned=note.pinned, options=note.options)

    def drop(self, pin_id: str) -> None:
        """Drop a kept pin, also one whose note cannot be read. Raises NotFoundError if it is gone already."""
        with self._keeping:
            if pin_id not in self._kept and pin_id not in self._unread:
                raise no_kept_pin(pin_id)
            directory = join(ROOT, pin_id)
            with named("the pin could not be dropped"):
                pin_note.keep_no_longer(self._environment.fs, directory)
            self._kept.pop(pin_id, None)
            self._unread.discard(pin_id)
            remove_quietly(self._environment.fs, directory)

    def _found_kept(self) -> dict[str, PinNote]:
        """Return the kept pins of earlier processes; those whose note cannot be read are told as damage, and stay."""
        found: dict[str, PinNote] = {}
        for directory in pin_note.kept(self._environment.fs):
            path = pin_note.path_in(directory)
            try:
                with reading(path):
                    note = pin_note.read_note(self._environment.fs, directory)
            except (CorruptionError, UnreadableFileError, InvalidArgumentError) as error:  # or a later version wrote it
                pin_id = directory.rpartition("/")[2]
                self._unread.add(pin_id)
                why = error.message if isinstance(error, InvalidArgumentError) else error.why
                step = f"to give up the pin, run `nyala pin drop {pin_id}`"
                self._environment.damage.note(CorruptionError(path, 0, f"{why}; {step}"))
            else:
                found[note.pinned.pin_id] = note
        return found

    def _pin(self, table: Table, snapshot: int, ttl_seconds: int | None) -> tuple[PinnedTable, dict[str, int]]:
        """Link the files of a table; return also their sizes."""
        pin_id = self._new_id(table.table_id)
        directory = join(ROOT, pin_id)
        for _ in range(ATTEMPTS):
            version = table.version
            linked: dict[str, int] = {}
            try:
                entries = self._linked(version, directory, snapshot, table.name, linked)
            except BaseException as error:
                remove_quietly(self._environment.fs, directory)
                is_altered = table.version is not version and table.dropped_until is None
                if isinstance(error, StoreError) and is_altered:
                    continue  # a tablet is gone; the new table version shows where its rows are
                raise
            if table.version is version:
                break
            remove_quietly(self._environment.fs, directory)
        else:
            raise keeps_being_altered(f"table {table.name!r} keeps")
        pinned = PinnedTable(
            pin_id=pin_id,
            table=table.name,
            table_id=table.table_id,
            snapshot=snapshot,
            schema_=version.schema,
            partitions=version.partitions,
            tablets=tuple(entry.told() for entry in entries),
            limits=self._limits,
            directory=directory,
            ttl_seconds=ttl_seconds,
        )
        return pinned, linked

    def renew(self, pin_id: str) -> None:
        """Restart the lease. Raises NotFoundError if the pin is gone."""
        self._leases.renew(pin_id)

    def release(self, pin_id: str) -> None:
        """Release the files. Raises NotFoundError if the pin is gone already."""
        self._leases.end_known(pin_id)

    def __len__(self) -> int:
        """Return the number of pins that have not ended, without those that are kept."""
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
        linked = self._leases.values() | {pin_id: note.sizes for pin_id, note in self._kept.copy().items()}
        return sum(self._needed_by(linked).values())

    def _needed_by(self, pins: dict[str, dict[str, int]]) -> dict[str, int]:
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
        """Return the pin to release if pins exceed their limit, the oldest that keeps any file of the user with the
        most; else None."""
        pins = self._leases.values()
        kept = self._needed_by(pins)
        with named("the size of pinned files could not be determined"):
            if not self._room.is_over(sum(kept.values())):
                return None
        users = {
            pin_id: self._leases.owner(pin_id).user
            for pin_id, linked in pins.items()
            if not kept.keys().isdisjoint(linked)
        }
        if not users:
            return None
        linked_by = {
            user: {path for each in users if users[each] == user for path in pins[each]} for user in users.values()
        }
        user = most_greedy({user: sum(kept.get(path, 0) for path in paths) for user, paths in linked_by.items()})
        return next(pin_id for pin_id in users if users[pin_id] == user)

    def _release_early(self, pin_id: str) -> None:
        if self._leases.end(pin_id):
            _LOG.warning(
                "pin %s is released early: pins alone keep more than pinned_bytes of files, or the disk has less than "
                "disk_reserve_bytes free",
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
                raise too_old(snapshot, name)
            home = files.directory(entry.home)
            fs.make_directory(join(directory, home))
            for file in (file for rowset in entry.rowsets for file in rowset.file_names):
                target = join(join(directory, home), file)
                if not fs.exists(target):  # tablets that were split share some
                    fs.link(join(home, file), target)
                    linked[join(home, file)] = fs.size(target)
        return entry


def kind_for(pinned: PinnedObjects | None) -> Callable[..., DirectoryPins | BucketPins]:
    """Return what makes the pins of a store: ``pinned`` is what pins hold in its bucket, None in a directory."""
    if pinned is None:
        return DirectoryPins
    from .bucket_pins import BucketPins  # a store in a directory needs no bucket

    return partial(BucketPins, _pinned=pinned)


def _told(note: PinNote) -> KeptPin:
    pinned = note.pinned
    return KeptPin(
        pin_id=pinned.pin_id,
        name=note.name,
        table=pinned.table,
        table_id=pinned.table_id,
        snapshot=pinned.snapshot,
    )
