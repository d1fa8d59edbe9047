"""The replica of a store in a bucket: the slots of its log, and how fresh it is.

FRESHNESS. No clock of another machine is compared. A listing that was sent at some time shows every slot that had
landed by then. Once all of them are applied, every write that was acknowledged before that time is visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...schemas.errors import CorruptionError, UnavailableError
from ..bucket.files import BucketFileSystem
from ..fs.filesystem import FileLock
from ..home.bucket import BucketHome
from ..home.manifests import read_manifest
from ..manifest.makers import maker_of, with_makers
from ..manifest.manifest import Manifest
from ..manifest.rowset_entry import RowsetEntry
from ..mvcc.clock import Clock
from ..options import StoreOptions
from ..tablet.attach import logged_attachments, with_logged
from ..wal.records import LogRecords
from ..wal.slots.chain import Chain
from ..wal.slots.payload import whole
from ..wal.slots.reader import SlotReader, newest_slot
from ..wal.slots.slot import Slot, SlotHeader, SlotKind, decode_slot
from ..wal.slots.slot_store import SlotStore
from .log_listing import LogListing
from .replica import PATIENCE_SECONDS, Replica
from .source import GapError, OtherHistoryError, replaced_meanwhile


@dataclass(frozen=True, slots=True)
class SlotPoint:
    """A point to which a replica can be brought, of a log of slots: a slot. See ``Point``."""

    slot: Slot

    readable = 0

    @property
    def header(self) -> SlotHeader:
        return self.slot.header

    @property
    def number(self) -> int:
        return self.header.number

    @property
    def mark(self) -> int:
        return self.slot.crc

    @property
    def manifest(self) -> str:
        return self.header.manifest

    @property
    def store_uuid(self) -> str:
        return self.header.store_uuid.hex()

    @property
    def safe(self) -> int:
        return self.header.safe


class SlotSource:
    """Where a replica gets the slots and the manifests of the store at ``home``. See ``Source``."""

    def __init__(self, home: BucketHome, slots: SlotStore, cache: FileLock | None = None) -> None:
        """``cache`` is the lock of the home's cache, if it is to be released at the end."""
        self.home = home
        self.slots = slots
        self._cache = cache
        self._seen: SlotPoint | None = None
        self._fs: BucketFileSystem | None = None
        self._makers: dict[int, str] = {}
        """Of the files that can be read; see ``makers``. Others for each replica."""
        self._listed_for: int | None = None
        """The slot that was the newest before files were listed, while they are opened for it."""

    def look(self) -> SlotPoint:
        """See LookingSource. Lists the end of the log."""
        seen = self._seen
        end = self.slots.end(seen.number - 1 if seen else 0)
        if seen is not None and end == seen.number:
            return seen
        content = self.slots.read(end) if end else None
        newest = newest_slot(self.slots) if content is None else decode_slot(end, content)
        if newest is None:
            raise self.home.missing()
        self._seen = SlotPoint(newest)
        return self._seen

    def close(self) -> None:
        """See LookingSource. The cache is free for others."""
        if self._cache is not None:
            self._cache.close()

    def make_files(self, point: SlotPoint, options: StoreOptions) -> BucketFileSystem:
        makers = self._makers = {}  # not this source: it is freed before another store opens
        self._fs = self.home.files_beside(
            point.store_uuid, options.bucket_cache_bytes, lambda path: maker_of(makers, path)
        )
        self._listed_for = point.number
        return self._fs

    def close_files(self) -> None:
        if self._fs is not None:
            self._fs.close(wait=False)

    def may_be_void(self, newest: SlotPoint) -> bool:
        return newest.header.kind is SlotKind.CLAIM and self.slots.end(newest.number - 1) != newest.number

    def following(self, last: SlotPoint, newest: SlotPoint) -> Iterator[LogRecords]:
        self._listed_for = None
        chain = Chain()
        chain.last = last.slot
        for number in range(last.number + 1, newest.number + 1):
            content = self.slots.read(number)
            if content is None:
                raise GapError
            slot = decode_slot(number, content)
            try:
                chain.follow(slot)
                slot = whole(self.slots, slot)
            except CorruptionError:
                raise GapError from None  # if the log is damaged, opening it says so
            self.know(slot.header.makers)
            yield slot.records()

    def reaches_back(self, last: SlotPoint, newest: SlotPoint) -> bool:
        return newest.header.needed_slot <= last.number + 1

    def needed(self, newest: SlotPoint) -> NeededSlots:
        if newest.number != self._listed_for:
            self._listed_for = None
        needed = NeededSlots(self, newest)
        self.know(with_makers(with_logged(needed.manifest, needed.attached), needed.makers).makers)
        return needed

    def other_history(self) -> OtherHistoryError:
        return put_back()

    def look_for(self, paths: Sequence[str]) -> None:
        assert self._fs is not None, "made before anything is opened"
        # A file that was listed before it was named may be one of a history that is gone, and replaced since.
        is_sure = self._fs.is_read if self._listed_for is None else self._fs.exists
        if not all(map(is_sure, paths)):
            self._fs.look_again(paths[0].rpartition("/")[0])

    def check_newest(self, point: SlotPoint) -> None:
        newest = newest_slot(self.slots)
        if newest is None or newest.header.manifest != point.manifest:
            raise replaced_meanwhile()

    def know(self, makers: Mapping[int, str]) -> None:
        """Take note of who made the files that are to be read. Raises OtherHistoryError: the names of those that were
        read before mean others now."""
        known = self._makers
        if any(known.get(reign, maker) != maker for reign, maker in makers.items()):
            raise put_back()
        known.update(makers)  # the files look here


class NeededSlots:
    """What a replica needs of a log of slots: the manifest that a slot names, and the slots that it needs. See
    ``NeededLog``."""

    def __init__(self, source: SlotSource, newest: SlotPoint) -> None:
        self._reader = SlotReader(source.slots, newest.slot)
        self.attached: list[tuple[int, RowsetEntry]] = logged_attachments(
            slot.records() for slot in self._reader.read()
        )
        self.manifest = _manifest(source, newest)

    @property
    def makers(self) -> Mapping[int, str]:
        """Who made files in the reigns of these slots."""
        return self._reader.makers

    def records(self, former: SlotPoint | None) -> Iterator[tuple[bool, LogRecords]]:
        done = former.number if former else 0
        for slot in _of_one_history(self._reader.read(), former):
            yield slot.header.number > done, slot.records()


class SlotReplica(Replica[SlotPoint]):
    """The replica of a store in a bucket. One thread calls ``advance_to``; any may read."""

    def __init__(self, home: BucketHome, slots: SlotStore, options: StoreOptions, clock: Clock | None = None) -> None:
        """``slots`` are those of the store at ``home``, whose cache this process has locked (``BucketHome.take``)."""
        self.source = SlotSource(home, slots)
        super().__init__(self.source, options, clock, True, home.seconds_since_boot)
        self._fresh_at = float("-inf")
        self._listing = LogListing(home.seconds_since_boot)

    def advance_to(self, newest: Slot, looked: float = float("-inf")) -> None:
        """Apply the log up to ``newest``, the newest slot that is known: see ``advance``."""
        self.advance(SlotPoint(newest), looked)

    def snapshot(self, max_staleness: float) -> int:
        """Return a snapshot with every write that was acknowledged more than ``max_staleness`` seconds before the call.

        Raises:
            UnavailableError: the replica is further behind, or the bucket does not answer.
        """
        self.check_opened()
        since = self.source.home.seconds_since_boot() - max_staleness
        if self._fresh_at < since:
            at, end = self._listing.since(since, self._listed_end)
            if not self.wait_for(end, PATIENCE_SECONDS):
                raise UnavailableError(f"this replica is {end - self.end:,} slots of the log behind")
            self._fresh_at = max(self._fresh_at, at)
        return self.safe

    def _listed_end(self) -> int:
        known = self.end
        end = self.source.home.slots_within(PATIENCE_SECONDS).end(max(known - 1, 0))
        if end < known:
            raise UnavailableError(f"the log ends with slot {end:,}, but this replica has read slot {known:,}")
        return end


def put_back() -> OtherHistoryError:
    """Return a replica's error for a bucket whose log is another one than before."""
    return OtherHistoryError("the bucket was put back to an earlier state: rows that this replica has read are gone")


def _manifest(source: SlotSource, point: SlotPoint) -> Manifest:
    header = point.header
    if not header.manifest:
        return Manifest(store_uuid=point.store_uuid)
    try:
        return read_manifest(source.home.bucket, source.home.prefix, header.manifest, header.manifest_crc)
    except CorruptionError:
        source.check_newest(point)
        raise


def _of_one_history(slots: Iterable[Slot], former: SlotPoint | None) -> Iterator[Slot]:
    """Yield the slots. Raises OtherHistoryError at one in the place of the last that was applied, but another."""
    for slot in slots:
        if former and slot.header.number == former.number and slot.crc != former.mark:
            raise put_back()
        yield slot
