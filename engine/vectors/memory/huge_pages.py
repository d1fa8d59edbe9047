"""Long-lived memory on huge pages.

The operating system provides memory page by page, at the first write to each: for 4 KB of a cache of 512 MB that takes
longer than to read, verify and copy them. On request it provides 2 MB at once (Linux: transparent huge pages). Arrow's
pool does not request this; here regions are mapped with the request, and divided among arrays.
"""

import mmap
from bisect import bisect
from contextlib import suppress
from typing import cast

import numpy as np

from .kept_memory import KeptMemory
from .memory import SLACK_BYTES, address_of, allocate

HUGE_PAGE_BYTES = 2 << 20
_REGION_BYTES = 32 << 20
_SMALLEST = 32 << 10
"""Smaller arrays come from Arrow's pool: they would leave gaps that fit nothing."""
_UNIT = 64


def mapped(size: int) -> np.ndarray:
    """Return ``size`` bytes (uint8) or somewhat more from the operating system, aligned to 2 MB, on huge pages if it
    has them.

    Raises OSError if the system does not give that many addresses, as one that promises no more memory than it has.
    """
    # more than needed: the kernel uses huge pages only for aligned 2 MB, and not every kernel aligns a mapping
    mapping = mmap.mmap(-1, size + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # not every system, and not every kernel of Linux, has them
        mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapping, np.uint8)
    return memory[-address_of(memory) % HUGE_PAGE_BYTES :]


class HugePages(KeptMemory):
    """Memory for long-lived arrays, in mapped regions of huge pages. Thread safe.

    An array's part of its region becomes free when its last view is dropped. Allocation takes the first free part that
    is large enough. A region without arrays returns to the operating system, at once or, as far as ``idle_bytes_max``
    goes, at `release_unused`.
    """

    def __init__(self, region_bytes: int = _REGION_BYTES, idle_bytes_max: int = 0) -> None:
        super().__init__()
        self.idle_bytes_max = idle_bytes_max
        self._region_bytes = region_bytes
        self._regions: list[_Region] = []

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the regions, used or not."""
        with self._lock:
            return sum(region.size for region in self._regions)

    @property
    def idle_bytes(self) -> int:
        """Bytes of the regions without arrays."""
        with self._lock:
            return sum(region.size for region in self._regions if region.is_free)

    def allocate(self, length: int) -> np.ndarray:
        """Return an uninitialised, writable array of bytes (uint8), 64-byte aligned, with slack past its end like
        `memory.allocate`."""
        size = -(-(length + SLACK_BYTES) // _UNIT) * _UNIT
        if not hasattr(mmap, "MADV_HUGEPAGE") or not _SMALLEST <= size <= self._region_bytes:
            return allocate(length, np.uint8)
        with self._lock:
            self._is_used = True
            for region in self._regions:
                start = region.take(size) if region.largest_free >= size else None
                if start is not None:
                    break
            else:
                region = _Region(self._region_bytes)
                self._regions.append(region)
                start = region.take(size)
                assert start is not None, "a new region has room for all that may be asked for"
        return np.asarray(_HeldPages(self, region, start, size, length))

    def trim(self) -> None:
        """Return all memory without arrays to the operating system, also in regions that have some."""
        with self._lock:
            for region in self._regions:
                region.trim()
        self.release()

    def take_back(self, region: "_Region", start: int, size: int) -> None:
        """Free a part of a region that has no views left."""
        with self._lock:
            region.give_back(start, size)
            if region.is_free and self.idle_bytes > self.idle_bytes_max:
                self._regions.remove(region)

    def release(self) -> None:
        """Return regions without arrays to the operating system."""
        with self._lock:
            self._regions = [region for region in self._regions if not region.is_free]


class _Region:
    """One mapping and its free parts, by start; no two of them are adjacent.

    They are plain lists: each page that is read takes a part, and with an ordered map of sortedcontainers that costs
    twice as long (4.6 us, not 2.4) and a scan a quarter more calls.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.largest_free = size
        """No free part is longer. It may be too much: there are hundreds of regions, and most of them are full."""
        self._memory = mapped(size)
        self.address = address_of(self._memory)
        self._starts = [0]
        self._lengths = [size]

    @property
    def is_free(self) -> bool:
        return self._lengths == [self.size]

    def take(self, size: int) -> int | None:
        """Take a part of ``size`` bytes and return its start; None if no free one is large enough."""
        for place, length in enumerate(self._lengths):
            if length >= size:
                start = self._starts[place]
                if length == size:
                    del self._starts[place], self._lengths[place]
                else:
                    self._starts[place], self._lengths[place] = start + size, length - size
                return start
        self.largest_free = max(self._lengths, default=0)
        return None

    def trim(self) -> None:
        """Return free parts to the operating system: whole pages of 4 KB, be they part of a huge one."""
        whole = cast(np.ndarray, self._memory.base)
        mapping = cast(memoryview, whole.base).obj
        before = self.address - address_of(whole)
        for start, length in zip(self._starts, self._lengths, strict=True):
            first = -(-(before + start) // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (before + start + length) // mmap.PAGESIZE * mmap.PAGESIZE
            if end > first:
                cast(mmap.mmap, mapping).madvise(mmap.MADV_DONTNEED, first, end - first)

    def give_back(self, start: int, size: int) -> None:
        place = bisect(self._starts, start)
        if place and self._starts[place - 1] + self._lengths[place - 1] == start:
            place -= 1
            self._lengths[place] += size
        else:
            self._starts.insert(place, start)
            self._lengths.insert(place, size)
        if place + 1 < len(self._starts) and self._starts[place] + self._lengths[place] == self._starts[place + 1]:
            self._lengths[place] += self._lengths[place + 1]
            del self._starts[place + 1], self._lengths[place + 1]
        self.largest_free = max(self.largest_free, self._lengths[place])


class _HeldPages:
    """Owned by all views of an array, including derived ones: numpy keeps it as their base."""

    __slots__ = ("__array_interface__", "_owner", "_region", "_size", "_start")

    def __init__(self, owner: HugePages, region: _Region, start: int, size: int, length: int) -> None:
        self._owner, self._region, self._start, self._size = owner, region, start, size
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (length,),
            "data": (region.address + start, False),
        }

    def __del__(self) -> None:
        self._owner.take_back(self._region, self._start, self._size)


KEPT = HugePages()
"""For the pages of files that the page cache keeps."""

RESULTS = HugePages()
"""For what scans decode. Arrow's pool returns the memory of a scan to the operating system soon after it, and a page
fault for every 4 KB of the next one takes longer than decoding. How much is kept, the last opened store sets."""
