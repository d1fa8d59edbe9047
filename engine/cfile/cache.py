"""The page cache: verified pages of files, most recently used first, bounded by bytes.

Pages are as their codecs wrote them, without page compression; pages of deltas are decoded. They are in our memory and
were verified when read, and are not checked again. A scan uses the cache for pages that its chunks share; look-ups and
repeated scans save reading and verifying.

A scan larger than the cache would evict everything before it repeats. So half of the cache is for the pages read last;
of those evicted from there, once the other half is full, only one page in eight replaces the least recently used one.

The cache of a store has the memory that its other parts leave, so its room changes while it is used.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from .. import threads
from ..vectors.memory.huge_pages import KEPT

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024

PageAddress = tuple[int, ...]
"""(file id, offset of the page), or (file id, column id, number) for deltas: unique in a store, because file ids are
never reused."""

_FULL = 0.95
_SEEN_MAX = 1 << 16
_MEASURE_BYTES = 8 << 20
"""The room is measured once per this many bytes of new pages."""
_TRIM_BYTES = 32 << 20


class Sized(Protocol):
    """An object in the page cache."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        ...


Payload = TypeVar("Payload", bound=Sized)


class PageCache:
    """The page cache of a whole store: payloads of its files' pages by address. Thread safe.

    Payloads are immutable, so an evicted page lives on while somebody decodes it.
    """

    def __init__(self, capacity_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.hits = 0
        self.misses = 0
        self._recent = _Pages()
        self._kept = _Pages()
        self._chance = 1
        self._seen: OrderedDict[PageAddress, None] = OrderedDict()
        """Pages that were read once as a whole, and not kept."""
        self._by_file: dict[int, set[PageAddress]] = {}
        self._room: Callable[[], int] | None = None
        self._unmeasured_bytes = self._untrimmed_bytes = 0
        self._lock = threads.Lock()

    def take_room(self, room: Callable[[], int]) -> None:
        """Hold as many bytes from now on as ``room`` returns, which is asked now and then, and at ``fit``."""
        self._room = room
        self.fit()

    def fit(self) -> None:
        """Measure the room, and drop the pages beyond it; their memory returns to the operating system."""
        if self._room is None:
            return
        self.capacity_bytes = self._room()
        half, before = self.capacity_bytes // 2, self.size_bytes
        with self._lock:
            while self._recent.size_bytes > half:
                self._keep_or_drop(*self._recent.oldest(), half)
            while self._kept.size_bytes > half:
                self._drop(self._kept.oldest()[0])
        self._untrimmed_bytes += max(before - self.size_bytes, 0)
        if self._untrimmed_bytes >= _TRIM_BYTES:
            self._untrimmed_bytes = 0
            KEPT.trim()

    @property
    def size_bytes(self) -> int:
        """Bytes of the cached pages."""
        return self._recent.size_bytes + self._kept.size_bytes

    def __contains__(self, address: PageAddress) -> bool:
        with self._lock:
            return address in self._kept or address in self._recent

    def get(
        self,
        address: PageAddress,
        load: Callable[[], Payload],
        load_once: Callable[[], Payload] | None = None,
        is_closed: Callable[[], bool] = lambda: False,
    ) -> Payload:
        """Return the payload at ``address``; on a miss, ``load`` it and keep it, if it takes no more than half of all.

        A caller that reads a page once as a whole, and drops it, passes ``load_once``. Then the page is kept while the
        cache has room; once it is full, only if the page was requested before, and only sometimes. Else ``load_once``
        loads it, in memory that may be lent.

        Both run outside the lock: two threads that miss the same page at once both load it, and one wins. Nothing is
        kept once ``is_closed``.
        """
        with self._lock:
            payload = self._kept.use(address)
            if payload is None:
                payload = self._recent.use(address)
            if payload is not None:
                self.hits += 1
                return cast(Payload, payload)
            self.misses += 1
            is_kept = load_once is None or self._is_worth_keeping(address)
        if load_once is not None and not is_kept:
            return load_once()
        loaded = load()
        self.put(address, loaded, is_closed)
        return loaded

    def get_many(self, addresses: Sequence[PageAddress]) -> list[Any]:
        """Return the payloads at ``addresses`` as far as they are kept, None for others; see ``get``."""
        kept, recent = self._kept, self._recent
        with self._lock:
            found = [kept.use(address) or recent.use(address) for address in addresses]
            self.hits += len(found) - found.count(None)
        return found

    def have(self, addresses: Sequence[PageAddress]) -> list[bool]:
        """Return for each address whether its payload is kept. That is no use of it."""
        with self._lock:
            return [address in self._kept or address in self._recent for address in addresses]

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a payload of this size can be kept, and evicts no other."""
        return size_bytes <= self.capacity_bytes // 2 and self.size_bytes + size_bytes < self.capacity_bytes * _FULL

    def discard_file(self, file_id: int) -> None:
        """Drop all pages of a file that nobody will read any more."""
        with self._lock:
            for address in self._by_file.pop(file_id, ()):
                self._kept.take(address)
                self._recent.take(address)

    def _is_worth_keeping(self, address: PageAddress) -> bool:
        if self.size_bytes < self.capacity_bytes * _FULL:
            return True
        if address not in self._seen:
            self._seen[address] = None
            if len(self._seen) > _SEEN_MAX:
                self._seen.popitem(last=False)
            return False
        return self._is_lucky()

    def _is_lucky(self) -> bool:
        """Return True one time in eight, at random: every eighth time might always be the same column."""
        self._chance = (self._chance * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        return self._chance >> 16 & 7 == 0

    def put(self, address: PageAddress, payload: Sized, is_closed: Callable[[], bool]) -> None:
        """Keep a payload in place of the one at ``address``, unless ``is_closed`` or it takes more than half of all."""
        self._unmeasured_bytes += payload.nbytes
        if self._unmeasured_bytes >= _MEASURE_BYTES:
            self._unmeasured_bytes = 0
            self.fit()
        half = self.capacity_bytes // 2
        if payload.nbytes > half:
            return
        with self._lock:
            if is_closed():
                return
            self._kept.take(address)
            self._recent.take(address)
            self._recent.put(address, payload)
            self._by_file.setdefault(address[0], set()).add(address)
            while self._recent.size_bytes > half:
                self._keep_or_drop(*self._recent.oldest(), half)

    def _keep_or_drop(self, address: PageAddress, payload: Sized, most: int) -> None:
        is_full = self._kept.size_bytes + payload.nbytes > most
        if payload.nbytes > most or (is_full and not self._is_lucky()):
            self._drop(address)
            return
        while self._kept.size_bytes + payload.nbytes > most:
            self._drop(self._kept.oldest()[0])
        self._kept.put(address, payload)

    def _drop(self, address: PageAddress) -> None:
        of_file = self._by_file[address[0]]
        of_file.discard(address)
        if not of_file:
            del self._by_file[address[0]]


class FilePages:
    """The page cache for one reader of a file. Closing it drops its pages, and keeps none afterwards.

    A scan of a file that was replaced meanwhile must load its pages each time. Kept pages would stay long after the
    file is gone, and those of deltas would hold it open.
    """

    def __init__(self, cache: PageCache, file_id: int) -> None:
        self._cache = cache
        self._file_id = file_id
        self._is_closed = False

    def get(
        self, address: PageAddress, load: Callable[[], Payload], load_once: Callable[[], Payload] | None = None
    ) -> Payload:
        """See ``PageCache``."""
        return self._cache.get(address, load, load_once, lambda: self._is_closed)

    def get_many(self, addresses: Sequence[PageAddress]) -> list[Any]:
        """See ``PageCache``."""
        return self._cache.get_many(addresses)

    def have(self, addresses: Sequence[PageAddress]) -> list[bool]:
        """See ``PageCache``."""
        return self._cache.have(addresses)

    def has_room(self, size_bytes: int) -> bool:
        """See ``PageCache``."""
        return self._cache.has_room(size_bytes)

    def put(self, address: PageAddress, payload: Sized) -> None:
        """Keep a payload in place of the one at ``address``."""
        self._cache.put(address, payload, lambda: self._is_closed)

    def close(self) -> None:
        """Drop the file's pages."""
        self._is_closed = True  # a concurrent put sees it after the discarding, which takes the same lock
        self._cache.discard_file(self._file_id)


class _Pages:
    """Pages in the order of their use."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._pages: OrderedDict[PageAddress, Sized] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, address: PageAddress) -> bool:
        return address in self._pages

    def use(self, address: PageAddress) -> Sized | None:
        page = self._pages.get(address)
        if page is not None:
            self._pages.move_to_end(address)
        return page

    def put(self, address: PageAddress, payload: Sized) -> None:
        self._pages[address] = payload
        self.size_bytes += payload.nbytes

    def take(self, address: PageAddress) -> None:
        page = self._pages.pop(address, None)
        if page is not None:
            self.size_bytes -= page.nbytes

    def oldest(self) -> tuple[PageAddress, Sized]:
        """Remove and return the least recently used page."""
        address, page = self._pages.popitem(last=False)
        self.size_bytes -= page.nbytes
        return address, page
