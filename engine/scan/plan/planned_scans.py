"""Planned scans: keeps the versions that a plan read for its readers, whatever happens to the table's history.

A running scan keeps the versions of its tablets, and so its snapshot. A scan in parts has none until each part is
requested. So its plan takes the versions of all tablets at once, and keeps them here under a name that the tickets
carry. They are kept until all parts were read, the client releases them, or nobody has read for a time.

Planned scans are in memory only, and bounded: when flushes and compactions have replaced more rows and files than the
store may keep for them, a scan is forgotten: the least recently used of the user whose scans keep most. A ticket of a
forgotten scan still reads at its snapshot, as far as the table's history goes. So does one whose table or columns have
other names now.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ....schemas.limits.share import most_greedy
from ....schemas.protocol.request import owner
from ....schemas.protocol.service import Marked
from ....schemas.rows.scan import ChangeSpec, ScanSpec
from ....schemas.rows.scan_plan import ScanSplit
from ... import threads
from ...fs.low_water import LowWater
from ...options import StoreOptions
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.tablet import Tablet
from ...tablet.version import Version
from ..read.chunk import ChangeRange

_MICROSECONDS = 1_000_000
_PartKey = tuple[int | None, str | None]
"""The tablet of a part, and the key at its end."""


@dataclass(slots=True, eq=False)
class PlannedScan:
    """A planned scan, whose parts clients read by tickets, and the versions that it reads."""

    moments: tuple[int | str | None, ChangeSpec | None]
    """``as_of`` and ``changes`` of its tickets. No more is kept of the request: its filter may be large."""
    table: Table
    version: TableVersion
    snapshot: int
    changes: ChangeRange | None
    versions: Mapping[int, Version]
    """By the id of the tablet."""
    unread: set[_PartKey] = field(default_factory=set)
    used: int = 0
    """Last use, in microseconds since 1970."""
    user: str = ""
    """Who planned it; empty if nobody knows."""

    def versions_of(self, tablets: list[Tablet]) -> list[Version] | None:
        """Return the versions of tablets; None if the plan lacks one of them."""
        found = [self.versions.get(tablet.tablet_id) for tablet in tablets]
        return [version for version in found if version] if all(found) else None


class PlannedScans:
    """Keeps the planned scans of one store until their parts are read: their versions, as of the plan. Thread safe."""

    def __init__(
        self,
        now: Callable[[], int],
        new_name: Callable[[], UUID],
        options: StoreOptions,
        disk: LowWater,
    ) -> None:
        """``now`` gives microseconds since 1970; ``new_name`` a name that nobody can guess."""
        self._seconds = options.scan_lease_seconds
        self._now = now
        self._new_name = new_name
        self._disk = disk
        self._count_max = options.scan_leases_count
        self._bytes_max = options.scan_lease_disk_bytes, options.scan_lease_memory_bytes
        self._scans: OrderedDict[str, PlannedScan] = OrderedDict()
        """Least recently used first."""
        self._looked = 0
        self._lock = threads.Lock()

    def __len__(self) -> int:
        return len(self._scans)

    def keep(self, scan: PlannedScan, splits: list[ScanSplit]) -> str:
        """Keep a scan for reading in these parts; return its name. Who knows it may release it."""
        scan.unread = {(split.tablet, split.key_upper) for split in splits}
        scan.used, scan.user = self._now(), owner().user
        name = self._new_name().hex
        with self._lock:
            self._scans[name] = scan
            while len(self._scans) > self._count_max:
                self._forget_one(Counter(each.user for each in self._scans.values()))
        self.tidy()
        return name

    def of(self, ticket: ScanSpec) -> PlannedScan | None:
        """Return the scan of a ticket, if it is kept and has the ticket's snapshot and changes."""
        if ticket.lease is None:
            return None
        with self._lock:
            scan = self._scans.get(ticket.lease)
            if scan is None or scan.table.dropped_until is not None:
                return None
            self._use(ticket.lease, scan)
        return scan if scan.moments == (ticket.as_of, ticket.changes) else None

    def reading(self, ticket: ScanSpec, items: Iterator[Marked]) -> Iterator[Marked]:
        """Yield the batches of a ticket; the scan is kept meanwhile, and ends with its last part."""
        name = ticket.lease
        if name is None:
            yield from items
            return
        for item in items:
            yield item
            with self._lock:
                if scan := self._scans.get(name):
                    self._use(name, scan)
        with self._lock:
            if scan := self._scans.get(name):
                scan.unread.discard((ticket.tablet, ticket.key_upper))
                if ticket.tablet is None or not scan.unread:
                    del self._scans[name]

    def end(self, name: str) -> None:
        """Release a scan; does nothing if it is not kept."""
        with self._lock:
            self._scans.pop(name, None)

    def clear(self) -> None:
        """Release all scans."""
        with self._lock:
            self._scans.clear()

    def forget_others(self, tables: Iterable[Table]) -> None:
        """Release the scans of tables that are none of these."""
        with self._lock:
            if not self._scans:
                return
            kept = {*tables}
            for name in [name for name, scan in self._scans.items() if scan.table not in kept]:
                del self._scans[name]

    def tidy(self) -> None:
        """Forget expired scans, those of dropped tables, and the oldest while they keep too much, or anything that a
        disk which is nearly full could use; at most once a second."""
        with self._lock:
            now = self._now()
            if now < self._looked + _MICROSECONDS and now >= self._looked:
                return
            self._looked = now
            before = now - self._seconds * _MICROSECONDS
            while self._scans and next(iter(self._scans.values())).used < before:
                self._scans.popitem(last=False)
            for name in [name for name, scan in self._scans.items() if scan.table.dropped_until == 0]:
                del self._scans[name]  # nobody may read them, and they would keep the files
            while self._scans and (kept := self._too_much()):
                self._forget_one(kept)

    def bytes_kept(self) -> tuple[int, int]:
        """Return what only planned scans keep: bytes on disk, and in memory."""
        with self._lock:
            return self._bytes_kept()

    def _use(self, name: str, scan: PlannedScan) -> None:
        scan.used = self._now()
        self._scans.move_to_end(name)

    def _forget_one(self, held: Mapping[str, int]) -> None:
        """Forget the least recently used scan of the user with the most."""
        user = most_greedy(held)
        del self._scans[next(name for name, scan in self._scans.items() if scan.user == user)]

    def _too_much(self) -> dict[str, int] | None:
        """Return what the scans of each user keep, if all of them keep too much on disk or in memory; else None."""
        kept = self._bytes_kept()
        is_needed = kept[0] > 0 and self._disk.is_low
        over = [size > most for size, most in zip(kept, self._bytes_max, strict=True)]
        if not is_needed and not any(over):
            return None
        place = 0 if is_needed or over[0] else 1
        users = {scan.user for scan in self._scans.values()}
        return {user: self._bytes_kept(user)[place] for user in users}

    def _bytes_kept(self, user: str | None = None) -> tuple[int, int]:
        """Return what only planned scans keep, or those of a user, on disk and in memory."""
        tables = {scan.table.table_id: scan.table for scan in self._scans.values()}
        needed = _HeldScan(tablet.version for table in tables.values() for tablet in table.version.tablets)
        scans = [scan for scan in self._scans.values() if user in (None, scan.user)]
        held = _HeldScan(version for scan in scans for version in scan.versions.values())
        on_disk = sum(size for path, size in held.files.items() if path not in needed.files)
        return on_disk, sum(size for number, size in held.stores.items() if number not in needed.stores)


class _HeldScan:
    """The content of versions: bytes of files by path, and of memory stores by identity."""

    def __init__(self, versions: Iterable[Version]) -> None:
        self.files: dict[str, int] = {}
        self.stores: dict[int, int] = {}
        for version in {id(version): version for version in versions}.values():
            for rowset in version.on_disk:
                files = (rowset, *rowset.columns_files, *rowset.deltas.files)
                self.files |= {file.path: file.size_bytes for file in files}
                self.stores |= {id(store): store.nbytes for store in rowset.deltas.stores.memory}
            self.stores |= {id(memrowset): memrowset.nbytes for memrowset in version.in_memory}
