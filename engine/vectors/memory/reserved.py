"""Memory of arrays that grow: reserved, taken as it fills, and used again.

The first write to a page of memory takes several times longer than to fill it, most of all on a virtual machine. A
MemRowSet that is flushed leaves as much as the next one will fill. So what it filled stays for that one.
"""

import numpy as np

from .huge_pages import HUGE_PAGE_BYTES, mapped
from .kept_memory import KeptMemory
from .memory import SLACK_BYTES, address_of


class ReservedMemory(KeptMemory):
    """Reserves address space that takes memory only as it is written, 2 MB at a time. Thread safe.

    An array's memory is free when its last view is dropped. As far as ``idle_bytes_max`` goes it is kept for arrays of
    the same size, which are powers of two, until `release_unused`. What an earlier array filled and its successor has
    not filled yet counts as kept, too.
    """

    def __init__(self, idle_bytes_max: int = 0) -> None:
        super().__init__()
        self.idle_bytes_max = idle_bytes_max
        self._idle: list[_Reserved] = []
        self._lent: set[_Reserved] = set()

    @property
    def idle_bytes(self) -> int:
        """Bytes of memory that are kept for later arrays, or ahead of what present ones fill."""
        with self._lock:
            lent, idle = list(self._lent), list(self._idle)  # either may change when garbage is collected
        return sum(each.filled - each.used for each in lent) + sum(each.filled for each in idle)

    def reserve(self, length: int) -> np.ndarray:
        """Return a writable array of at least ``length`` bytes (uint8), uninitialised, aligned and with slack past its
        end like `memory.allocate`. Its owner says with `filled_up_to` how much of it was written.

        Raises OSError if the system does not give that many addresses.
        """
        size = 1 << (length + SLACK_BYTES - 1).bit_length()
        with self._lock:
            self._is_used = True
            fitting = [reserved for reserved in self._idle if len(reserved.memory) == size]
            if fitting:
                reserved = max(fitting, key=lambda reserved: reserved.filled)
                self._idle.remove(reserved)
                reserved.used = 0
            else:
                reserved = _Reserved(mapped(size)[:size])
            self._lent.add(reserved)
        return np.asarray(_Held(self, reserved))

    def zeroed(self, length: int) -> np.ndarray:
        """Return the same as `reserve`, with ``length`` bytes of zeros, all of which count as written.

        Only for memory whose arrays are all made here, so that none was written beyond what counts as written.
        """
        array = self.reserve(length)
        reserved = _reserved_of(array)
        assert reserved, "it was just reserved"
        array[: reserved.filled] = 0  # the rest is as the system gave it: zeros
        filled_up_to(array, length)
        return array

    def take_back(self, reserved: "_Reserved") -> None:
        """Take memory back that has no views left."""
        with self._lock:
            self._lent.discard(reserved)
            if self.idle_bytes + reserved.filled <= self.idle_bytes_max:
                self._idle.append(reserved)

    def release(self) -> None:
        """Return idle memory to the operating system."""
        with self._lock:
            self._idle = []


def filled_up_to(array: np.ndarray, count: int) -> None:
    """Note that at most the first ``count`` cells of an array were written, if its memory is reserved."""
    if reserved := _reserved_of(array):
        reserved.used = -(-count * array.itemsize // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        reserved.filled = max(reserved.filled, reserved.used)


def _reserved_of(array: np.ndarray) -> "_Reserved | None":
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.reserved if isinstance(base, _Held) else None


class _Reserved:
    """A mapping, and how many of its bytes, whole pages of 2 MB, may have been written: those behind are zeros. The
    present array has written the ``used`` ones."""

    __slots__ = ("filled", "memory", "used")

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.filled = self.used = 0


class _Held:
    """Owned by all views of an array, including derived ones: numpy keeps it as their base."""

    __slots__ = ("__array_interface__", "_owner", "reserved")

    def __init__(self, owner: ReservedMemory, reserved: _Reserved) -> None:
        self._owner, self.reserved = owner, reserved
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (len(reserved.memory) - SLACK_BYTES,),
            "data": (address_of(reserved.memory), False),
        }

    def __del__(self) -> None:
        self._owner.take_back(self.reserved)


COLUMNS = ReservedMemory()
"""For columns of MemRowSets and DeltaMemStores. How much stays, the last opened store sets."""

TABLES = ReservedMemory()
"""For key indexes, all zeroed. How much stays, the last opened store sets."""
