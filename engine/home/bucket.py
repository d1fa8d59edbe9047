"""A bucket as the home of a store: its log of slots decides everything (ADR 13).

    cluster                        made once; what is beside it are the stores of one cluster
    stores/<name>/log/<number>     the slots: the newest one is the root of the store
    stores/<name>/manifests/...    immutable manifests, of which a slot names one
    stores/<name>/tablets/...      files, under numbers that carry the reign: reign << 40 | n

Losing the local cache loses time. Whoever claims the log has the store; the one before it learns so at its next slot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from hashlib import blake2b
from typing import TYPE_CHECKING

from ...schemas.errors import CorruptionError, InvalidArgumentError, NotFoundError, UnavailableError
from ...schemas.store.bucket_place import BucketPlace
from ...schemas.store.whereabouts import Holder, Whereabouts
from ..bucket import Bucket, hurried
from ..bucket.at_once import asking
from ..bucket.files import BucketFileSystem, check_room
from ..bucket.probe import probe
from ..fs.encryption.key_source import NO_KEY, KeySource
from ..fs.failures import named
from ..fs.filesystem import FileLock, FileSystem
from ..fs.local import LocalFileSystem
from ..fs.low_water import low_mark
from ..fs.memory import MemoryFileSystem
from ..fs.store_lock import STORE_LOCK
from ..kernels.ahead.private import cache_base, is_private
from ..manifest import files
from ..manifest.makers import maker_of
from ..manifest.manifest import Manifest, ManifestFile
from ..mvcc.clock import Clock, boot_seconds
from ..mvcc.leased import LeasedMvcc
from ..mvcc.mvcc import MvccManager
from ..options import StoreOptions
from ..wal.slots import BucketSlots, SlotLog, SlotOptions
from ..wal.slots.bucket_slots import CHUNKS
from ..wal.slots.slot import SlotHeader, SlotKind
from ..wal.slots.slot_log import pause
from ..wal.slots.standby import Standby
from .ahead import CacheAhead
from .cluster import make_cluster, read_cluster
from .copy_mark import read_copy_mark
from .home import HeldHome, Home, Opening
from .manifests import ManifestInBucket, read_manifest
from .pinned import PinnedObjects
from .shared_root import SharedRoot
from .where import read_where, write_where

if TYPE_CHECKING:
    from ..wal.store_log import StoreLog

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_BEATS = 10 / 3
"""Beats in the time of a lease: one may be late, and another lost."""
_ATTEMPTS = 4
"""Attempts to put a slot in the time of a lease, if the bucket does not answer: one request may get lost."""
_ASIDE_SECONDS = 5.0
"""A document beside the store is worth no longer wait."""
_CACHES_MAX = 16
"""Processes of one machine that stand by for one store, each with a cache of its own."""


class BucketHome(Home):
    """A bucket as the home of the store ``name``, which ``url`` names in messages."""

    def __init__(
        self,
        bucket: Bucket,
        name: str,
        url: str,
        cache: FileSystem | None = None,
        boot: Callable[[], float] = boot_seconds,
        pause: Callable[[float], object] = pause,
        probes: bool = True,
    ) -> None:
        """``cache`` takes the place of the directory that the options say; ``boot`` and ``pause`` are the time by which
        leases are counted. With ``probes``, the bucket is tried before a store in it is opened."""
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError(f"{name!r} cannot name a store: use up to 64 letters, digits and '._-'")
        self.bucket = bucket
        self.prefix = f"stores/{name}/"
        self.slots = self._slots()
        self.name = name
        self.url = url
        self._cache = cache
        self._boot, self._pause, self._probes = boot, pause, probes
        self._low_bytes: int | None = None
        self._standby: Standby | None = None
        self.locations: Sequence[str] = ()
        self.held: HeldBucket | None = None
        """What ``take`` returned last."""

    @property
    def where(self) -> str:
        return f"{self.url} ({self.name})"

    def missing(self) -> NotFoundError:
        """Return the error that there is no store of this name."""
        return NotFoundError(f"there is no store at {self.where}: check the URL and the name")

    def by(self, standby: Standby, locations: Sequence[str]) -> BucketHome:
        """Return this home for a process that stands by until it may take the store. Clients reach it at
        ``locations``, as others are told."""
        home = copy(self)
        home._standby, home.locations = standby, locations
        standby.check = home._check
        return home

    def has_store(self) -> bool:
        """Whether anybody has ever opened the store. Raises UnavailableError."""
        return self.slots.end() > 0

    def files(self, store_uuid: str) -> BucketFileSystem:
        """Return the files as a reader sees them that keeps nothing; close it."""
        return BucketFileSystem(self.bucket, self.prefix, MemoryFileSystem(is_volatile=True), 0, store_uuid)

    def files_beside(self, store_uuid: str, capacity_bytes: int, maker_of: Callable[[str], str]) -> BucketFileSystem:
        """Return the files as a reader sees them beside the process that has the store, through the cache that
        ``take`` has locked; close it before another one uses the cache. ``maker_of``: see ``BucketFileSystem``."""
        assert self._cache is not None, "locked by take"
        return BucketFileSystem(
            self.bucket,
            self.prefix,
            self._cache,
            capacity_bytes,
            store_uuid,
            is_held=lambda: False,
            maker_of=maker_of,
        )

    def take_cache(self, options: StoreOptions) -> FileLock:
        """Lock a cache for a reader beside the process that has the store (``files_beside``). Raises as ``take``."""
        self._cache, lock = self._locked_cache(options, several=True)
        return lock

    def slots_within(self, seconds: float) -> BucketSlots:
        """Return the slots for somebody who waits no longer than some seconds for an answer."""
        return BucketSlots(hurried(self.bucket, seconds), self.prefix)

    def seconds_since_boot(self) -> float:
        """Return the time by which leases are counted."""
        return self._boot()

    def take(self, opening: Opening) -> HeldHome:
        """See Home. Waits until the process that has the store is silent for ``lease_seconds``, or has released it:
        twice as long at most, or as long as that takes for a home ``by`` a standby."""
        options = opening.options
        key = KeySource(options.key_file, options.key_command, options.key)
        if key != NO_KEY or (key.named() != NO_KEY and not self.has_store()):
            raise InvalidArgumentError(
                "a store in a bucket cannot be encrypted: give no key, unset NYALA_KEY_FILE and "
                "NYALA_KEY_COMMAND, and let the bucket encrypt its objects"
            )
        cache, lock = self._locked_cache(options, several=self._standby is not None)
        self._cache, self._low_bytes = cache, options.disk_low_bytes
        try:
            with asking() as ask:
                mark = ask.submit(read_copy_mark, self.bucket, self.prefix)
                found = ask.submit(read_cluster, self.bucket, "")
                probed = ask.submit(probe, self.bucket, opening.new_uuid().hex) if self._probes else None
            if mark.result() and not self.has_store():
                raise self.unfinished_copy()
            if probed:
                probed.result()
            cluster = found.result() or make_cluster(self.bucket, "", opening.new_uuid)
            time = {"boot": self._boot, "pause": self._pause}
            slots = self._slots(options.lease_seconds / _ATTEMPTS)
            with self._fetching_ahead(cache, options):
                log = SlotLog.open(
                    slots,
                    opening.clock,
                    opening.new_uuid,
                    _slot_options(options),
                    {"locations": [*self.locations]} if self.locations else None,
                    standby=self._standby,
                    **time,
                )
            try:
                self.held = HeldBucket(self, log, cache, lock, opening, cluster.uuid)
                return self.held
            except BaseException:
                log.close()
                raise
        except BaseException:
            lock.close()
            raise

    def unfinished_copy(self) -> UnavailableError:
        """Return the error for a place where no store may be made."""
        return UnavailableError(
            f"a copy to {self.where} is not finished: run the copy again, or delete the objects below {self.prefix}"
        )

    def copy_met_opening(self) -> UnavailableError:
        """Return the error for a place where a claim stands, so that no copy can be finished there any more."""
        return UnavailableError(
            f"another process opened {self.where} while a first copy to it began: delete the objects below "
            f"{self.prefix}"
        )

    def _check(self, newest: SlotHeader) -> None:
        """Raise unless this process can read what it would open, and has room for new files."""
        if newest.manifest:
            read_manifest(self.bucket, self.prefix, newest.manifest, newest.manifest_crc)
        if self._cache is not None:
            with named(f"the cache of {self.where} takes no new files"):
                check_room(self._cache, low_mark(self._cache, self._low_bytes))

    @contextmanager
    def _fetching_ahead(self, cache: FileSystem, options: StoreOptions) -> Iterator[None]:
        """Let a process that stands by in the body fetch what it would read first."""
        if self._standby is None or self._standby.is_read or not options.bucket_cache_bytes:
            yield
            return
        ahead = CacheAhead(self.bucket, self.prefix, cache, options.bucket_cache_bytes)
        self._standby.ahead = ahead.see
        try:
            yield
        finally:
            ahead.stop()

    def _locked_cache(self, options: StoreOptions, several: bool = False) -> tuple[FileSystem, FileLock]:
        """Return the cache, which no other process uses. Those that stand by or read on one machine, ``several``, have
        one each."""
        is_own = self._cache is not None or options.bucket_cache is not None
        for number in range(1, 2 if is_own or not several else _CACHES_MAX + 1):
            with named(f"the cache of {self.where} could not be used"):
                cache = self._cache_directory(options, number)
                cache.make_directory("")
                with suppress(UnavailableError):
                    return cache, cache.lock(STORE_LOCK)
        raise UnavailableError(
            f"the cache {getattr(cache, 'root', 'of this store')} is in use: close its store, or set another "
            f"bucket_cache for {self.where}"
        )

    def _slots(self, attempt_seconds: float | None = None) -> BucketSlots:
        return BucketSlots(self.bucket, self.prefix, attempt_seconds)

    def _cache_directory(self, options: StoreOptions, number: int) -> FileSystem:
        if self._cache is not None:
            return self._cache
        if options.bucket_cache is not None:
            return LocalFileSystem(options.bucket_cache)
        digest = blake2b(self.url.encode(), digest_size=8).hexdigest()
        try:
            place = f"{digest}-{self.name}" if number == 1 else f"{digest}.{number}-{self.name}"
            directory = cache_base() / "buckets" / place
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if is_private(directory):
                return LocalFileSystem(directory)
            why = f"other users can write to {directory} or to a directory above it"
        except (OSError, RuntimeError) as error:  # no home, a read-only disk, a file where a directory should be
            why = str(error)
        raise InvalidArgumentError(
            f"there is no place for the cache of {self.where}: {why}; set bucket_cache to a local directory"
        )


class HeldBucket:
    """The home of a store in a bucket, whose log this process has claimed."""

    is_log_never_idle = True

    def __init__(
        self, home: BucketHome, log: SlotLog, cache: FileSystem, lock: FileLock, opening: Opening, cluster: str
    ) -> None:
        """``cluster`` is the uuid of all stores there."""
        options = opening.options
        self._home = home
        self._note = opening.note
        self._log = log
        self._lock = lock
        self._uuid = log.store_uuid.hex()
        self._patience_seconds = options.log_patience_seconds
        self.fs = BucketFileSystem(
            home.bucket,
            home.prefix,
            cache,
            options.bucket_cache_bytes,
            self._uuid,
            is_held=lambda: self._log.lease.holds,
            is_pinned=lambda path: self.pinned.holds(path),
            maker_of=self._maker_of,
        )
        self._manifest: ManifestFile | None = None
        log.on_alone = self.fs.forget_stock  # until then the former holder may have put what it acknowledged
        self.place = BucketPlace(url=home.url, prefix=home.prefix)
        self.shared_root = SharedRoot(self.fs, cluster, home.url, home.prefix)
        self.pinned = PinnedObjects(home.bucket, self.place, lambda: self._place.next_name)
        self._unlinked: tuple[int, int] | None = None
        """A mark of the files that were unlinked, and the slot with which they may be deleted."""
        self.first_number = log.reign << files.REIGN_BITS
        self._place = ManifestInBucket(
            home.bucket,
            home.prefix,
            log.reign,
            log.newest.manifest,
            log,
            self.fs.deletions,
            self.pinned.holds_manifest,
        )

    @property
    def clock(self) -> Clock:
        return self._log.clock

    def open_manifest(self) -> ManifestFile:
        """See HeldHome. A new store has no manifest before its first table."""
        with asking() as ask:
            counting = ask.submit(self._counting_manifest)
            others = [ask.submit(each) for each in (self.fs.take_stock, self._log.fetch, self._place.find_replaced)]
        manifest = counting.result()
        for each in others:
            each.result()
        self._log.note_chunks(self.fs.list(CHUNKS.rstrip("/")))
        file = ManifestFile(self._place, manifest, self.first_number + 1)
        self._manifest = file
        self.pinned.watch(file)
        self.pinned.load(manifest, self._note)
        self._place.remove_replaced()
        return file

    def _counting_manifest(self) -> Manifest:
        newest, home = self._log.newest, self._home
        if newest.manifest:
            manifest = read_manifest(home.bucket, home.prefix, newest.manifest, newest.manifest_crc)
            if manifest.store_uuid != self._uuid:
                why = f"the manifest belongs to the store {manifest.store_uuid}, but the log to the store {self._uuid}"
                raise CorruptionError(f"manifests/{newest.manifest}", 0, why)
            return manifest
        if read_copy_mark(home.bucket, home.prefix):  # made after this process looked for it
            raise home.copy_met_opening()
        return Manifest(store_uuid=self._uuid)

    def _maker_of(self, path: str) -> str:
        return maker_of(self._manifest.current.makers, path) if self._manifest else ""

    def opened(self) -> None:
        self.fs.forget_stock()

    def open_log(self) -> StoreLog:
        return self._log

    def mvcc(self) -> MvccManager:
        return LeasedMvcc(self._log.clock, self, self._patience_seconds)

    # For LeasedMvcc: how far this process may speak for the store.

    @property
    def safe(self) -> int:
        return self._log.newest.safe

    @property
    def ceiling(self) -> int:
        return self._log.newest.ceiling

    def check(self) -> None:
        self._log.lease.check()

    def reach(self, timestamp: int) -> None:
        self._log.clock.foresee(timestamp)
        self._log.check_held()

    def has_garbage(self) -> bool:
        return self._place.has_replaced() or self._are_unlinked_free()

    def remove_garbage(self) -> None:
        """See HeldHome. Asks the bucket, so no thread calls it that others wait for."""
        if self._are_unlinked_free() and self._unlinked:
            (mark, _), self._unlinked = self._unlinked, None
            self.fs.deletions.release(mark)
        self._place.remove_replaced()

    def _are_unlinked_free(self) -> bool:
        """Whether a slot has landed that was sent after files were unlinked: then this process still had the store."""
        deletions, landed = self.fs.deletions, self._log.newest.number
        if not deletions.has_due():
            self._unlinked = None
        elif self._unlinked is None:
            self._unlinked = deletions.mark(), landed + 2  # the next slot may have been sent before
        return self._unlinked is not None and landed >= self._unlinked[1]

    @property
    def lost(self) -> UnavailableError | None:
        """Why this process can have the store no longer: another one has it, or its log is closed or failed."""
        return self._log.failed

    @property
    def epoch(self) -> int:
        """The number of the claim of this process."""
        return self._log.epoch

    @property
    def end(self) -> int:
        """The number of the newest slot of the log."""
        return self._log.newest.number

    @property
    def sent(self) -> float:
        """When that was first sent, in seconds since the machine started."""
        return self._log.sent

    @property
    def lease_seconds(self) -> float:
        """What is left of the lease."""
        return self._log.lease.seconds_left

    def note_where(self) -> None:
        """Leave a hint in the bucket that this process has the store, unless it is there. Raises UnavailableError."""
        bucket, name, here = self._home.bucket, self._home.name, self.whereabouts()
        try:
            is_there = read_where(bucket, name) == here
        except (CorruptionError, InvalidArgumentError):
            is_there = False
        if not is_there:
            write_where(bucket, name, here)

    def whereabouts(self) -> Whereabouts:
        """Return who this is."""
        log = self._log
        holder = Holder(locations=[*self._home.locations], epoch=log.epoch, process=log.process.hex())
        return Whereabouts(name=self._home.name, state="holder", holder=holder)

    def read_aside(self, name: str) -> bytes | None:
        try:
            return hurried(self._home.bucket, _ASIDE_SECONDS).get(self._home.prefix + name)
        except FileNotFoundError:
            return None

    def write_aside(self, name: str, document: bytes) -> None:
        """See HeldHome. A request of a former holder may come late, and replace what the present one wrote."""
        self._log.lease.check()
        hurried(self._home.bucket, _ASIDE_SECONDS).put(self._home.prefix + name, document)

    def check_held(self) -> None:
        self._log.check_held()

    def check_directory(self, what: str) -> None:
        raise InvalidArgumentError(f"{what} is not possible for a store in a bucket (see docs/failover.md)")

    def close(self) -> None:
        self._log.close()
        if self._log.newest.kind is SlotKind.RELEASE:  # whoever opens the store next needs nothing that was dropped
            self.fs.deletions.release(self.fs.deletions.mark())
            self._place.remove_replaced()
        self.fs.close()
        self._lock.close()


def _slot_options(options: StoreOptions) -> SlotOptions:
    return SlotOptions(
        ttl_seconds=options.lease_seconds,
        beat_seconds=options.lease_seconds / _BEATS,
        poll_seconds=min(0.2, options.lease_seconds / 10),
        linger_seconds=options.log_linger_ms / 1e3,
        patience_seconds=options.log_patience_seconds,
        queue_bytes=options.wal_queue_bytes,
    )
