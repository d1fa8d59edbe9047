"""MemoryGate: limits the memory of unflushed rows by slowing down or rejecting writers.

Below the soft limit, batches are admitted at once. Above it, each waits, the longer the closer memory is to the hard
limit, while flushes run: writers slow down to the speed of the disk instead of reaching the hard limit. At the hard
limit a batch is rejected at once, with a time to retry after.

Tables with maintenance off are flushed only when their users ask, so waiting for that would be pointless. What they
hold is subtracted from both limits before writers are slowed down, and the rejection at the hard limit says what to do.

Tablets whose flushes fail are like these, but share half of the memory at most: whoever writes more to their tables is
rejected, and what they hold beyond that leaves the limits of the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ...schemas.errors import UnavailableError
from ...schemas.store.description import MemoryStats
from .. import threads
from ..fs.filesystem import FileSystem
from ..fs.low_water import LowWater
from ..options import StoreOptions
from ..tablet.tablet import Tablet

_FAILING_SHARE = 0.5
"""The share of memory that tablets whose flushes fail may take together."""
TABLET_BYTES_MAX = 1 << 30
"""A column of a memory store holds less than 2 GiB; this keeps a tablet's stores well below."""
T = TypeVar("T")

_CHECK_BYTES = 4 << 20
"""Memory is counted exactly once per this many admitted bytes; above the soft limit, for every batch."""
_RETRY_SECONDS = (0.1, 10.0)
"""Shortest and longest time to retry after."""
_MANY_TABLETS, _MANY_SECONDS = 256, 0.25
"""To sum up the memory of so many tablets takes milliseconds: ``state`` does it this often."""


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full the memory for unflushed rows is: 0 up to the soft limit, 1 at the hard one, in between in
    proportion."""

    whole: float
    relieved: float
    """The same for what flushes will free, in the room that the rest leaves; 0 where flushes will free nothing."""
    left_bytes: int
    """The bytes that only a user's own ``maintain`` frees."""


class MemoryGate:
    """Admits batches by the size of the memory stores of all tablets and of the batches in flight. Thread safe."""

    def __init__(
        self,
        options: StoreOptions,
        fs: FileSystem,
        tablets: Callable[[], list[Tablet]],
        maintained: Callable[[], list[Tablet]],
        flush: Callable[[], object],
    ) -> None:
        """``maintained`` are the ``tablets`` that ``flush`` requests flushes of, to the disk of ``fs``."""
        self.disk = LowWater(fs, options.disk_low_bytes)
        """The mark below which it refuses everything."""
        self._is_on = options.maintenance == "on"
        self._hard = options.memory_bytes
        self._soft = int(options.memory_bytes * options.memory_soft_share)
        self._soft_share = options.memory_soft_share
        self._longest_wait_seconds = options.memory_throttle_seconds
        self._tablets = tablets
        self._maintained = maintained
        self._flush = flush
        self.measured: Callable[[], object] = lambda: None
        """Called whenever ``held_bytes`` were counted anew."""
        self._held_bytes = 0
        self._mutex = threads.RLock()
        self._changed = threads.Condition(self._mutex)
        self._unchecked = 0
        self._in_flight = 0
        self._is_over_soft = self._is_pressed = self._is_closed_to_failing = False
        self._pressed_at = 0.0
        self._relief_seconds = 1.0
        self._throttled = self._refused = 0
        self._throttled_seconds = 0.0
        self._last_sums = 0.0, (0, 0)

    def is_pressed(self) -> bool:
        """Whether flushes should make room: the memory that they can free is above the soft limit, or the disk is
        nearly full, and they free the log."""
        return self._is_pressed or self.disk.is_low

    @property
    def held_bytes(self) -> int:
        """The bytes of memory stores, running flushes and batches in flight, as they were counted last."""
        return self._held_bytes + max(self._in_flight, self._unchecked)

    def measure(self) -> None:
        """Count ``held_bytes`` anew, as nobody else does where nothing is written."""
        self._held_bytes = sum(self._sums())
        self.measured()

    def is_relieved(self) -> bool:
        """Whether flushes will free memory by themselves, so that a retry makes sense."""
        return self._is_on and any(_use(tablet).freed for tablet in self._maintained() if not tablet.flush_failures)

    def state(self) -> MemoryStats:
        """Return the present use of memory, and how often writers waited or were rejected."""
        stores_bytes, flushing_bytes = self._sums()
        return MemoryStats(
            limit_bytes=self._hard,
            soft_limit_bytes=self._soft,
            stores_bytes=stores_bytes,
            flushing_bytes=flushing_bytes,
            in_flight_bytes=self._in_flight,
            throttled_batches=self._throttled,
            throttled_seconds=round(self._throttled_seconds, 3),
            refused_batches=self._refused,
        )

    def _sums(self) -> tuple[int, int]:
        """Return the bytes of all memory stores, and those that running flushes take; of many tablets perhaps those of
        just before, since a list of tables asks once for each."""
        until, sums = self._last_sums
        if threads.monotonic() >= until:
            every = self._tablets()
            sums = sum(tablet.memory_bytes for tablet in every), sum(tablet.flushing_bytes for tablet in every)
            if len(every) >= _MANY_TABLETS:
                self._last_sums = threads.monotonic() + _MANY_SECONDS, sums
        return sums

    @contextmanager
    def admitted(self, size_bytes: int, tablets: Iterable[Tablet]) -> Iterator[None]:
        """Admit a batch for some of the ``tablets``. It counts until the body ends: by then it is in the memory stores.

        Raises:
            StorageFullError: the disk is nearly full.
            UnavailableError: memory is at its hard limit, or what flushes of one of the tablets cannot free is;
                ``retry_after_seconds`` says when to retry.
        """
        with self._changed:
            self._admit(size_bytes, tablets)
            self._in_flight += size_bytes
            self._unchecked += size_bytes
        try:
            yield
        finally:
            with self._changed:
                self._in_flight -= size_bytes

    def admits_at_once(self, size_bytes: int) -> bool:
        """Admit a batch of a few KB if memory need not be measured for it; else nothing has happened."""
        with self._mutex:
            if not self._is_counted(size_bytes):
                return False
            self._unchecked += size_bytes
            return True

    def let_in(self, size_bytes: int, tablets: Iterable[Tablet]) -> LargePlace:
        """Admit a large amount for ``tablets`` if all of it fits below the hard limit; it counts until the place is
        left.

        Raises:
            StorageFullError: the disk is nearly full.
            UnavailableError: it does not fit, or flushes of one of the tablets fail, as for ``admitted``. Flushes were
                requested; ``retry_after_seconds`` says when to retry.
        """
        with self._changed:
            self.disk.check()
            self._in_flight += size_bytes
            fullness = self._fullness()
            try:
                self._check_failing(tablets)
                if fullness.whole >= 1:
                    self._flush()
                    self._refuse(fullness.left_bytes)
            except UnavailableError:
                self._in_flight -= size_bytes
                raise
        return LargePlace(self, size_bytes)

    def _leave(self, size_bytes: int) -> None:
        with self._changed:
            self._in_flight -= size_bytes

    def freed(self) -> None:
        """Wake waiting writers, after a flush."""
        with self._changed:
            was_over_soft = self._is_over_soft
            if was_over_soft and self._fullness().whole <= 0:
                self._relief_seconds = threads.monotonic() - self._pressed_at
            self._changed.notify_all()

    def _admit(self, size_bytes: int, tablets: Iterable[Tablet]) -> None:
        if self._is_counted(size_bytes):
            return
        self.disk.check()
        fullness = self._fullness()
        self._check_failing(tablets)
        if fullness.relieved > 0:
            self._flush()
            if fullness.whole < 1 and self._is_on:
                self._throttle(fullness.relieved)
                fullness = self._fullness()
        if fullness.whole >= 1:
            self._refuse(fullness.left_bytes)

    def _is_counted(self, size_bytes: int) -> bool:
        """Whether a batch may be admitted without a measurement."""
        is_measured = self._is_over_soft or self._is_closed_to_failing or self.disk.is_low
        return not is_measured and self._unchecked + size_bytes < min(_CHECK_BYTES, self._hard // 8)

    def _throttle(self, fullness: float) -> None:
        """Wait for a flush, or for a time that grows as memory exceeds the soft limit."""
        self._throttled += 1
        started = threads.monotonic()
        self._changed.wait_for(lambda: self._fullness().relieved <= 0, self._longest_wait_seconds * fullness)
        self._throttled_seconds += threads.monotonic() - started

    def _check_failing(self, tablets: Iterable[Tablet]) -> None:
        """Reject what is for a tablet whose flushes fail, if such tablets have all the memory that they may have."""
        failing = (tablet for tablet in tablets if tablet.flush_failures) if self._is_closed_to_failing else ()
        for tablet in failing:
            self._refused += 1
            why = next(iter(tablet.flush_failures.values()), "")
            raise UnavailableError(
                f"tablet {tablet.tablet_id} of this table has no memory for more rows, because its rows cannot "
                f"be flushed: {why}; health shows the failure, and maintain('flush') tries again",
                retry_after_seconds=_RETRY_SECONDS[1],
            )

    def _refuse(self, left_bytes: int) -> None:
        self._refused += 1
        seconds = round(min(max(self._relief_seconds, _RETRY_SECONDS[0]), _RETRY_SECONDS[1]), 1)
        left = f"; {left_bytes:,} bytes belong to tables whose maintenance is off" if left_bytes else ""
        raise UnavailableError(
            f"unflushed rows and changes use all their memory (memory_bytes={self._hard:,}){left}: "
            f"retry in {seconds:g} s; if maintenance is off, first call maintain('flush') and maintain('flush_deltas')",
            retry_after_seconds=seconds,
        )

    def _fullness(self) -> Fullness:
        """Measure memory."""
        tablets = self._tablets()
        uses = {id(tablet): _use(tablet) for tablet in tablets if not tablet.flush_failures}
        failing = [_use(tablet) for tablet in tablets if id(tablet) not in uses]
        every = uses.values()
        maintained = [uses[id(tablet)] for tablet in self._maintained() if id(tablet) in uses]
        held, freed = sum(use.held for use in every), sum(use.freed for use in maintained)
        left, stuck = held - sum(use.held for use in maintained), self._stuck_bytes(failing)
        room = max(self._hard - left - stuck, 0)
        relieved = max(
            _share(freed + self._in_flight, int(room * self._soft_share), room),
            _share(_largest(maintained), TABLET_BYTES_MAX // 2, TABLET_BYTES_MAX),
        )
        whole = max(
            _share(held + stuck + self._in_flight, self._soft, self._hard),
            _share(_largest(every), TABLET_BYTES_MAX // 2, TABLET_BYTES_MAX),
        )
        self._held_bytes = held + sum(use.held for use in failing)
        self._note(whole > 0, bool(freed) and relieved > 0)
        return Fullness(whole, min(relieved, 1.0) if self._is_pressed else 0.0, left)

    def _stuck_bytes(self, failing: Sequence[_Use]) -> int:
        """Return how much of the memory of tablets whose flushes fail counts, and note whether they may have more."""
        held, most = sum(use.held for use in failing), int(self._hard * _FAILING_SHARE)
        self._is_closed_to_failing = held >= most or _largest(failing) >= TABLET_BYTES_MAX // 2
        return min(held, most)

    def _note(self, is_over_soft: bool, is_pressed: bool) -> None:
        self._unchecked = 0
        if is_over_soft and not self._is_over_soft:
            self._pressed_at = threads.monotonic()
        self._is_over_soft, self._is_pressed = is_over_soft, is_pressed
        self.measured()


@dataclass(frozen=True, slots=True)
class _Use:
    """What a tablet takes of memory, measured once: there may be thousands of tablets."""

    stores: int
    """Bytes of its memory stores."""
    held: int
    """Those, and what running flushes take."""
    freed: int
    """As many of these as flushes free."""


def _use(tablet: Tablet) -> _Use:
    stores, flushing = tablet.memory_bytes, tablet.flushing_bytes
    return _Use(stores, stores + flushing, tablet.unflushed_bytes + flushing)


def _largest(uses: Iterable[_Use]) -> int:
    return max((use.stores for use in uses), default=0)


class LargePlace:
    """A part of the memory for unflushed rows that a large commit reserves, until the end of a ``with``."""

    def __init__(self, gate: MemoryGate, size_bytes: int) -> None:
        self._gate = gate
        self._size_bytes = size_bytes

    def __enter__(self) -> LargePlace:
        return self

    def __exit__(self, *_: object) -> None:
        self._gate._leave(self._size_bytes)


def patiently(work: Callable[[], T], seconds: float) -> T:
    """Return the result of ``work``; when the memory for unflushed rows is full, retry as told for at most ``seconds``.

    Raises:
        UnavailableError: memory is still full, or there is another cause.
    """
    deadline = threads.monotonic() + seconds
    while True:
        try:
            return work()
        except UnavailableError as error:
            pause = error.retry_after_seconds
            if pause is None or threads.monotonic() + pause > deadline:
                raise
        threads.sleep(pause)


def _share(size: int, soft: int, hard: int) -> float:
    return max(0.0, (size - soft) / max(hard - soft, 1))
