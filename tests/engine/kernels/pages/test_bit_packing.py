"""Packed integers come back whatever their width, their number and their cells, and no read goes too far."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.kernels.pages.bit_packing import LOAD_BYTES, WHOLE, WIDEST, pack_bits, packed_bytes, unpack_bits
from nyala.engine.vectors.memory.memory import address_of

WIDTHS = [*range(WIDEST + 1), WHOLE]


def packed(values: np.ndarray, width: int) -> np.ndarray:
    target = np.zeros(8 * len(values) + LOAD_BYTES, np.uint8)
    size = pack_bits(address_of(values), len(values), width, address_of(target))
    assert size == packed_bytes(len(values), width)
    return target[: size + LOAD_BYTES].copy()


@settings(deadline=None)
@given(st.integers(1, 1024), st.sampled_from([1, 2, 4, 8]), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32))
@pytest.mark.parametrize("width", WIDTHS)
def test_values_come_back(width: int, count: int, cell_bytes: int, base: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 2**64, count, np.uint64) >> np.uint64(64 - width if width else 63)
    values = values if width else np.zeros_like(values)
    values[random.integers(0, count)] = (1 << width) - 1
    source, cells = packed(values, width), np.zeros(count + 8, f"u{cell_bytes}")
    unpack_bits(address_of(source), count, width, base, cell_bytes, address_of(cells))
    expected = values + np.uint64(base % 2**64)
    assert (cells[:count] == expected.astype(cells.dtype)).all()
    assert not cells[count:].any()


_AT_THE_EDGE = """
import ctypes, mmap
import numpy as np
from nyala.engine.kernels.pages.bit_packing import LOAD_BYTES, WHOLE, WIDEST, packed_bytes, unpack_bits

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 4 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + 3 * page), ctypes.c_size_t(page), 0) == 0
cells = np.zeros(1024, np.uint64)
for width in (*range(WIDEST + 1), WHOLE):
    for count in (1, 7, 8, 9, 16, 100, 1000, 1024):
        for cell_bytes in (1, 2, 4, 8):
            source = start + 3 * page - packed_bytes(count, width) - LOAD_BYTES
            unpack_bits(source, count, width, 0, cell_bytes, cells.ctypes.data)
            assert not cells.any()
"""


def test_no_read_reaches_further_than_it_may() -> None:
    """The page behind the values cannot be read."""
    done = subprocess.run([sys.executable, "-c", _AT_THE_EDGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
