"""A trial of a library when it is loaded: cells of every width are packed and restored."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

_ROWS = 1_100  # one whole mini-block, and one that ends in the middle of a tile
_BLOCKS = 2
_ROOM_BYTES = 64 * 1024
_PATTERN = bytes(range(251))
"""As long as a prime number, so that no two cells near each other are the same."""


def works(kernels: Mapping[str, Callable[..., Any]]) -> bool:
    """Try a loaded library out: return whether its kernels give back what they were given.

    It takes less than a millisecond, and uses vectors of all lengths and a C function: what may differ by processor.
    """
    pack, unpack = kernels["blocks.pack_blocks"], kernels["blocks.unpack_blocks"]
    numbers = (ctypes.c_int64 * _BLOCKS)(*range(_BLOCKS))
    scratch, payload = ctypes.create_string_buffer(_ROOM_BYTES), ctypes.create_string_buffer(_ROOM_BYTES)
    for width in (1, 2, 4, 8, 16):
        cells = (_PATTERN * _ROWS)[: _ROWS * width]
        restored = ctypes.create_string_buffer(len(cells))
        ends = ctypes.addressof(payload)
        room = ctypes.addressof(scratch)
        pack(_address(cells), _ROWS, width, ends, ends + 4 * _BLOCKS, room)
        outcome = unpack(ends, _ROWS, width, ctypes.addressof(numbers), _BLOCKS, ctypes.addressof(restored), room)
        if outcome != 0 or restored.raw != cells:
            return False
    return True


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
