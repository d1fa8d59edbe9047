"""Single keys, encoded in memory whose address kernels take."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from .key_encoder import KeyEncoder
from .memory import address_of, allocate
from .raw_cell import RawCell

KEY_BYTES_MAX = 4096
_WORD = Struct("<Q")


class PlacedKey(NamedTuple):
    """An encoded key in the memory of this thread: valid until the thread places the next."""

    address: int
    length: int
    """-1: the key is a uint64."""
    cell: RawCell
    """The key as MemRowSets store it: bytes, or the uint64 as an int64."""


class _Memory(threading.local):
    def __init__(self) -> None:
        self._memory = allocate(KEY_BYTES_MAX, np.uint8)
        self.address = address_of(self._memory)
        self.cells = self._memory.data


_MEMORY = _Memory()


class KeyPlacer:
    """Places the keys of one table. Thread safe."""

    def __init__(self, encoder: KeyEncoder) -> None:
        self._encoder = encoder
        self._sign = 1 << (8 * encoder.width - 1) if encoder.is_u64 and len(encoder.physicals) == 1 else 0
        """What makes the only key column, an integer, an encoded key; 0 for other keys."""

    def place(self, raw: Sequence[RawCell]) -> PlacedKey | None:
        """Encode a key, given the raw cells of all key columns; None if it is too long."""
        memory = _MEMORY
        if self._sign:
            word = raw[0] + self._sign  # pyright: ignore[reportOperatorIssue]
        else:
            encoded = self._encoder.encode_bound(raw)  # pyright: ignore[reportArgumentType]
            if not self._encoder.is_u64:
                if len(encoded) > KEY_BYTES_MAX:
                    return None
                memory.cells[: len(encoded)] = encoded
                return PlacedKey(memory.address, len(encoded), encoded)
            word = int.from_bytes(encoded, "big")
        _WORD.pack_into(memory.cells, 0, word)
        return PlacedKey(memory.address, -1, word if word < 1 << 63 else word - (1 << 64))
