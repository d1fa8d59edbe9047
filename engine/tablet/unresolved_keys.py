"""UnresolvedKeys: a batch of keys to look up in one place after the other, and the locations found so far."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..vectors.keys.keys import KeyVector, take_keys

Find = Callable[[KeyVector, np.ndarray], np.ndarray]
"""(keys, their hashes uint64) -> location of each (int64), -1 if not found"""

_NONE = np.empty(0, np.int64)


class UnresolvedKeys:
    """A batch of keys to look up in a tablet, and the locations found so far. False once every key has been found."""

    def __init__(self, keys: KeyVector, hashes: np.ndarray) -> None:
        self.locations = np.full(len(keys), -1, np.int64)
        """The location of each key, -1 while it is missing."""
        self.keys = keys
        """The missing keys."""
        self.hashes = hashes
        self.positions: np.ndarray | None = None
        """The positions of the missing keys in the batch; None while all are missing."""

    def __len__(self) -> int:
        return len(self.hashes)

    def ask(self, find: Find) -> np.ndarray:
        """Look up the missing keys; return the positions in the batch of those found (int64)."""
        if not len(self.hashes):
            return _NONE
        found = find(self.keys, self.hashes)
        hits = found >= 0
        if not hits.any():
            return _NONE
        asked = np.flatnonzero(hits) if self.positions is None else self.positions[hits]
        self.locations[asked] = found[hits]
        left = np.flatnonzero(~hits)
        self.positions = left if self.positions is None else self.positions[left]
        self.keys, self.hashes = take_keys(self.keys, left), self.hashes[left]
        return asked
