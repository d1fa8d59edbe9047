"""Single keys, encoded in memory whose address kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from ..raw_cell import RawCell
from .key_encoder import KeyEncoder

_WORD = Struct("<Q")


class PlacedKey(NamedTuple):
    """An encoded key at an address."""

    address: int
    length: int
    """-1: the key is a uint64."""
    cell: RawCell
    """The key as MemRowSets store it: bytes, or the uint64 as an int64."""
    memory: bytes
    """What is at the address. No memory is shared by keys: a signal's handler may write rows, too."""


class KeyPlacer:
    """Encodes single keys of one table at addresses that kernels take. Thread safe."""

    def __init__(self, encoder: KeyEncoder) -> None:
        self._encoder = encoder
        self._sign = 1 << (8 * encoder.width - 1) if encoder.is_u64 and len(encoder.physicals) == 1 else 0
        """What makes the only key column, an integer, an encoded key; 0 for other keys."""

    def place(self, raw: Sequence[RawCell]) -> PlacedKey:
        """Encode a key, given the raw cells of all key columns."""
        if self._sign:
            word = raw[0] + self._sign  # pyright: ignore[reportOperatorIssue]
        else:
            encoded = self._encoder.encode_bound(raw)  # pyright: ignore[reportArgumentType]
            if not self._encoder.is_u64:
                return PlacedKey(pa.py_buffer(encoded).address, len(encoded), encoded, encoded)
            word = int.from_bytes(encoded, "big")
        memory = _WORD.pack(word)
        return PlacedKey(pa.py_buffer(memory).address, -1, word if word < 1 << 63 else word - (1 << 64), memory)
