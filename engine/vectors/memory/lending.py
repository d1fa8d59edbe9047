"""Memory for data that is read, decoded and dropped: lent, and lent again when its last view is dropped.

Arrow's pool soon returns large free blocks to the operating system. A scan that allocates each page there pays a page
fault for every 4 KB, again and again: twice the cost of reading, verifying and decoding. Memory that is lent again at
once is also still in the processor's cache when it is filled.
"""

import numpy as np
import pyarrow as pa

from .kept_memory import KeptMemory
from .memory import SLACK_BYTES, address_of

_SMALLEST_BLOCK = 1 << 20
_IDLE_BYTES_MAX = 32 << 20


class Lender(KeptMemory):
    """Lends memory for decoded data, and lends it again when its last view is dropped. Thread safe.

    Idle blocks are kept for the next request, at most ``idle_bytes_max``, until `release_unused`. A block is a power of
    two, and takes memory only as far as it was ever filled.
    """

    def __init__(self, idle_bytes_max: int = _IDLE_BYTES_MAX) -> None:
        super().__init__()
        self._idle_bytes_max = idle_bytes_max
        self._idle: list[np.ndarray] = []
        """Idle blocks; the one that came back last is at the end."""

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept for the next request."""
        with self._lock:
            return sum(len(block) for block in self._idle)

    def lend(self, length: int) -> np.ndarray:
        """Return an uninitialised, writable array of bytes (uint8), 64-byte aligned, with slack past its end like
        `allocate`.

        The memory is the borrower's until the last view of the array is dropped; then others get it. Copy data that is
        to stay: keeping a few bytes keeps a whole block.
        """
        size = max(_SMALLEST_BLOCK, 1 << (length + SLACK_BYTES - 1).bit_length())
        block = self._take(size)
        if block is None:
            block = np.frombuffer(pa.allocate_buffer(size), np.uint8)
        return np.asarray(_Loan(self, block, length))

    def release(self) -> None:
        """Return the idle memory to the operating system."""
        with self._lock:
            idle, self._idle = self._idle, []
        if idle:
            idle.clear()
            pa.default_memory_pool().release_unused()

    def take_back(self, block: np.ndarray) -> None:
        """Take a block back that has no views left."""
        with self._lock:
            if self.idle_bytes + len(block) <= self._idle_bytes_max:
                self._idle.append(block)

    def _take(self, size: int) -> np.ndarray | None:
        """Return the idle block of a size that came back last, which is most likely in the processor's cache."""
        with self._lock:
            self._is_used = True
            for place in range(len(self._idle) - 1, -1, -1):
                if len(self._idle[place]) == size:
                    return self._idle.pop(place)
        return None


class _Loan:
    """Owned by all views of a lent block, including derived ones: numpy keeps it as their base."""

    __slots__ = ("__array_interface__", "_block", "_lender")

    def __init__(self, lender: Lender, block: np.ndarray, length: int) -> None:
        self._lender, self._block = lender, block
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (length,),
            "data": (address_of(block), False),
        }

    def __del__(self) -> None:
        self._lender.take_back(self._block)


READ_BUFFERS = Lender()
"""For pages of files that are not kept."""
