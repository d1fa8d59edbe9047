"""The page cache: what was made of pages at a price, most recently used first, bounded by bytes.

Pages with page compression (LZ4, zstd, ...) come here decompressed, pages of deltas decoded: a scan needs them for each
of its chunks. All others are decoded straight from the mapped file, where the operating system's cache serves them;
holding them twice would only take memory from it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024

PageAddress = tuple[int, ...]
"""(file id, offset of the page), or (file id, column id, number) for deltas: unique in a store, because file ids are
never used twice."""


class Sized(Protocol):
    """What may be kept."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        ...


Payload = TypeVar("Payload", bound=Sized)


class PageCache:
    """Payloads by page address. One cache serves a whole store; any number of threads may use it.

    Payloads are immutable, so a page that is dropped while somebody decodes from it lives on until they are done.
    """

    def __init__(self, capacity_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._pages: OrderedDict[PageAddress, Sized] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, address: PageAddress, load: Callable[[], Payload]) -> Payload:
        """Return the payload at ``address``; on a miss, ``load`` it and keep it if it fits.

        ``load`` runs outside the lock: two threads that miss the same page at once both load it, and one wins.
        """
        with self._lock:
            payload = self._pages.get(address)
            if payload is not None:
                self._pages.move_to_end(address)
                self.hits += 1
                return cast(Payload, payload)
            self.misses += 1
        loaded = load()
        self._put(address, loaded)
        return loaded

    def discard_file(self, file_id: int) -> None:
        """Drop all pages of a file that nobody will read any more."""
        with self._lock:
            for address in [address for address in self._pages if address[0] == file_id]:
                self.size_bytes -= self._pages.pop(address).nbytes

    def _put(self, address: PageAddress, payload: Sized) -> None:
        if payload.nbytes > self.capacity_bytes:
            return
        with self._lock:
            replaced = self._pages.pop(address, None)
            self.size_bytes += payload.nbytes - (0 if replaced is None else replaced.nbytes)
            self._pages[address] = payload
            while self.size_bytes > self.capacity_bytes:
                _, dropped = self._pages.popitem(last=False)
                self.size_bytes -= dropped.nbytes
