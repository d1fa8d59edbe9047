"""Memory that is kept after its use, for the next."""

import threading
from abc import ABC, abstractmethod


class KeptMemory(ABC):
    """What `HugePages`, `Lender` and `ReservedMemory` have in common. Thread safe."""

    def __init__(self) -> None:
        self._is_used = False
        """Whether memory was taken since the last `release_unused`."""
        self._lock = threading.RLock()  # the last view of an array may go at any time, also while it is held

    def release_unused(self) -> None:
        """Return idle memory to the operating system, if none was taken since the last call."""
        with self._lock:
            is_used, self._is_used = self._is_used, False
        if not is_used:
            self.release()

    @abstractmethod
    def release(self) -> None:
        """Return idle memory to the operating system."""
