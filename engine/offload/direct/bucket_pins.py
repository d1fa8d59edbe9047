"""Pins of a store in a bucket: entries of its manifest, so that they outlive the process that made them.

A pin flushes its tables and is committed with the manifest that names their files: from then on nothing deletes these,
whoever has the store, until another manifest comes without the pin. So making, renewing and ending one are each a
commit of the manifest. See ``home/pinned``.

A pin with a name has no time to live: it stays until it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ....schemas.errors import InvalidArgumentError, NotFoundError
from ....schemas.protocol.request import NOBODY, Owner, owner
from ....schemas.store.direct import PinnedIn, PinnedTable, PinSnapshot
from ....schemas.store.pins import CreatePin, KeptPin, OpenedPin, OpenPin
from ...fs.failures import named
from ...home.manifests import DIRECTORY, file_paths
from ...home.pinned import PinnedObjects, held_by
from ...maintenance.op import MaintenanceOp, TabletOp
from ...maintenance.upkeep import flushed
from ...manifest.interrupts import interrupts_later
from ...manifest.manifest import Manifest, PinEntry, TableEntry
from ...mvcc.ends import Ends
from ...table.table import Table
from .pins import ATTEMPTS, Pins, keeps_being_altered, no_kept_pin, table_of, too_old

_ALL = 0
"""Stands for a table's number in the id of a pin of all tables."""
_Tablets = Mapping[int, set[int]]
"""Numbers of tablets, by that of their table."""


class _AlteredError(Exception):
    """A table has other tablets than those that were flushed, or the history of one begins after the snapshot."""


@dataclass(eq=False)
class BucketPins(Pins):
    """The pins of one store in a bucket. Thread safe."""

    _pinned: PinnedObjects

    def __post_init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        """Who asked for the pins that were made here."""
        self._ends = Ends()
        """Of pins, by id."""

    def pin(self, asked: PinSnapshot) -> PinnedTable:
        """As ``DirectoryPins.pin``, without hard links. UnavailableError: also if another process has the store."""
        table, snapshot = self._found(asked.table, asked.as_of)
        pin = self._new(table, snapshot)
        until = self._until(asked.ttl_seconds)
        pin = pin.model_copy(update={"ttl_seconds": asked.ttl_seconds, "expires": until})
        made: list[PinnedTable] = []

        def answer(pin: PinEntry, held: Manifest) -> None:  # while the store still knows these files
            with named("the sizes of pinned files could not be determined"):
                sizes = {path: self._environment.fs.size(path) for path in file_paths(held)}
            made.append(self._answer(pin, held.tables[0], held.store_uuid, sizes))

        self._made(pin, lambda: [table], answer)
        return made[-1]

    def create(self, asked: CreatePin) -> KeptPin:
        """Keep the files that hold a table, or all tables, at a snapshot until the pin is dropped.

        Raises as ``DirectoryPins.create``. InvalidArgumentError: all tables at an earlier time are asked for.
        """
        if asked.table is not None:
            table, snapshot = self._found(asked.table, asked.as_of)
        elif asked.as_of is None:
            table, snapshot = None, self._snapshots.now()
        else:
            raise InvalidArgumentError(
                "a pin of all tables keeps them as they are now: leave out as_of, or name a table"
            )
        pin = self._new(table, snapshot).model_copy(update={"name": asked.name})
        made = self._made(pin, lambda: [table] if table else self._catalog.tables(), lambda pin, held: None)
        return self._told(made)

    def kept(self) -> list[KeptPin]:
        """Return the pins that are kept, oldest first."""
        return [self._told(pin) for pin in self._environment.manifest.current.pins if pin.name]

    def open(self, asked: OpenPin) -> OpenedPin:
        """Return what a reader needs of a kept pin.

        Raises:
            NotFoundError: there is no such pin, or it does not keep this table.
            InvalidArgumentError: it keeps several tables, and none is named.
            CorruptionError, UnavailableError: what it keeps cannot be read.
        """
        pin = next((each for each in self._environment.manifest.current.pins if each.id == asked.pin_id), None)
        if pin is None or not pin.name:
            raise no_kept_pin(asked.pin_id)
        held = self._pinned.read(pin)
        entry = table_of(pin.name, [table for table in held.tables if table.dropped_until is None], asked.table)
        of_table = held.model_copy(update={"tables": (entry,)})
        pinned = self._answer(pin, entry, held.store_uuid, self._pinned.sizes(of_table))
        return OpenedPin(pinned=pinned, options=entry.options)

    def drop(self, pin_id: str) -> None:
        """Drop a kept pin. Raises NotFoundError if it is gone already, and as ``ManifestFile.commit``."""
        if not self._end(lambda pin: pin.id == pin_id and pin.name is not None):
            raise no_kept_pin(pin_id)

    def renew(self, pin_id: str) -> None:
        """Restart its time. Raises NotFoundError if the pin is gone, and as ``ManifestFile.commit``."""

        def edit(manifest: Manifest) -> Manifest:
            for pin in manifest.pins:
                if pin.id == pin_id and pin.ttl_seconds and not self._is_expired(pin):
                    return manifest.with_pin(pin.model_copy(update={"expires": self._until(pin.ttl_seconds)}))
            raise _gone(pin_id)

        self._environment.manifest.commit(edit)

    def release(self, pin_id: str) -> None:
        """Release the files. Raises NotFoundError if the pin is gone already, and as ``ManifestFile.commit``."""
        if not self._end(lambda pin: pin.id == pin_id and pin.name is None):
            raise _gone(pin_id)

    def __len__(self) -> int:
        """Return the number of pins that have not ended, without those that are kept."""
        return sum(pin.name is None for pin in self._environment.manifest.current.pins)

    def removals(self) -> list[MaintenanceOp]:
        """Return the work of ending pins that have expired."""
        # Looks at each, since its time counts from then on.
        if [pin for pin in self._environment.manifest.current.pins if self._is_expired(pin)]:
            return [TabletOp("release expired pins", lambda: 1.0, lambda: self._end(self._is_expired))]
        return []

    def _new(self, table: Table | None, snapshot: int) -> PinEntry:
        """Return a pin without an end."""
        return PinEntry(
            id=self._new_id(table.table_id if table else _ALL),
            manifest="",
            table=table.table_id if table else None,
            snapshot=snapshot,
            ttl_seconds=None,
            expires=None,
        )

    def _made(
        self, pin: PinEntry, tables: Callable[[], Sequence[Table]], note: Callable[[PinEntry, Manifest], None]
    ) -> PinEntry:
        """Flush tables and commit a pin of them; ``note`` gets what it holds at that moment."""
        self._check_room(pin, self._environment.manifest.current)
        for _ in range(ATTEMPTS):
            with ExitStack() as held:
                found = tables()
                for table in found:  # flushing the others may take longer than a table keeps history
                    held.enter_context(self._snapshots.holding(table, pin.snapshot))
                try:
                    return self._committed(pin, self._flushed(found), note)
                except _AlteredError:  # the new version of the table shows where its rows are
                    if pin.table is None:
                        pin = pin.model_copy(update={"snapshot": self._snapshots.now()})
        what = "the tables keep" if pin.table is None else f"table {tables()[0].name!r} keeps"
        raise keeps_being_altered(what)

    def _flushed(self, tables: Sequence[Table]) -> _Tablets:
        """Flush tables; return which tablets that were."""
        flushed_ids: dict[int, set[int]] = {}
        for table in tables:
            version = table.version
            version.check_here(None)  # a pin of some tablets would look like the whole table
            for tablet in version.tablets:
                with flushed(tablet, self._environment):
                    pass  # it may be compacted before the commit: what it holds at the snapshot stays the same
            flushed_ids[table.table_id] = {tablet.tablet_id for tablet in version.tablets}
        return flushed_ids

    def _committed(self, pin: PinEntry, flushed_ids: _Tablets, note: Callable[[PinEntry, Manifest], None]) -> PinEntry:
        """Commit a pin of what the manifest names at that moment."""

        def edit(manifest: Manifest) -> Manifest:
            nonlocal pin
            self._check_room(pin, manifest)
            named = pin.model_copy(update={"manifest": self._pinned.next_manifest()})
            held = held_by(named, manifest)
            _check_flushed(named, held, flushed_ids)
            note(named, held)
            self._pinned.add(named, held)
            pin = named  # not before: if this fails, the next pin is made in that manifest
            return manifest.with_pin(pin)

        with interrupts_later():
            self._owners[pin.id] = owner()
            try:
                self._environment.manifest.commit(edit)
            except BaseException:
                self._owners.pop(pin.id, None)
                self._pinned.forget([pin])
                raise
        return pin

    def _answer(self, pin: PinEntry, entry: TableEntry, store_uuid: str, sizes: dict[str, int]) -> PinnedTable:
        return PinnedTable(
            pin_id=pin.id,
            table=entry.name,
            table_id=entry.id,
            snapshot=pin.snapshot,
            schema_=entry.schema_,
            partitions=entry.partitions,
            tablets=tuple(tablet.told() for tablet in entry.tablets),
            limits=self._limits,
            directory="",
            ttl_seconds=pin.ttl_seconds,
            bucket=PinnedIn(
                url=self._pinned.place.url,
                prefix=self._pinned.place.prefix,
                manifest=f"{DIRECTORY}{pin.manifest}",
                store_uuid=store_uuid,
                sizes=sizes,
            ),
        )

    def _told(self, pin: PinEntry) -> KeptPin:
        table = self._pinned.table_name(pin)
        return KeptPin(pin_id=pin.id, name=pin.name or "", table=table, table_id=pin.table, snapshot=pin.snapshot)

    def _check_room(self, pin: PinEntry, manifest: Manifest) -> None:
        if pin.name:
            self._check_kept(pin.name, pin.table, {each.name: each.table for each in manifest.pins if each.name})
            return
        pins = [each.id for each in manifest.pins if each.name is None and not self._is_expired(each)]
        self._room.check_count("pins", [self._owners.get(each, NOBODY) for each in pins])

    def _until(self, ttl_seconds: int) -> int:
        return self._clock.physical_microseconds() + ttl_seconds * 1_000_000

    def _is_expired(self, pin: PinEntry) -> bool:
        return pin.expires is not None and self._ends.is_over(pin.id, pin.expires, self._clock)

    def _end(self, is_over: Callable[[PinEntry], bool]) -> list[PinEntry]:
        """End pins, and return them."""
        ended: list[PinEntry] = []

        def edit(manifest: Manifest) -> Manifest:
            ended[:] = filter(is_over, manifest.pins)  # not before: a renewal may be on its way
            return manifest.without_pins({pin.id for pin in ended})

        if any(map(is_over, self._environment.manifest.current.pins)):
            with interrupts_later():
                self._environment.manifest.commit(edit)
                self._pinned.forget(ended)
        for pin in ended:
            self._owners.pop(pin.id, None)
            self._ends.forget(pin.id)
        return ended


def _check_flushed(pin: PinEntry, held: Manifest, flushed_ids: _Tablets) -> None:
    """Raise unless the files of the tables that a pin holds have all of its snapshot."""
    if pin.table is not None and (not held.tables or held.tables[0].dropped_until is not None):
        raise NotFoundError("the table was dropped")
    for entry in held.tables:
        if {tablet.id for tablet in entry.tablets} != flushed_ids.get(entry.id):
            raise _AlteredError
        if entry.dropped_until is None and any(pin.snapshot < tablet.history_floor for tablet in entry.tablets):
            if pin.table is None:
                raise _AlteredError  # a later snapshot does as well
            raise too_old(pin.snapshot, entry.name)


def _gone(pin_id: str) -> NotFoundError:
    return NotFoundError(f"there is no pin {pin_id!r}: it expired, or it ended; start a new one")
