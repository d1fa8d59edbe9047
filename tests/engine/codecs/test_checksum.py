"""The fast CRC-32 is zlib's, at every length, start and alignment."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.codecs import checksum
from nyala.engine.codecs.checksum import crc32
from nyala.engine.kernels.pages import crc32 as kernels
from nyala.engine.vectors.memory.memory import address_of, allocate

BYTES = np.random.default_rng(5).integers(0, 256, 70_000, np.uint8).tobytes()


@given(st.integers(0, 3_000), st.integers(0, 70), st.integers(0, 2**32 - 1))
def test_equals_that_of_zlib(length: int, first: int, start: int) -> None:
    part = memoryview(BYTES)[first : first + length]
    assert crc32(part, start) == zlib.crc32(part, start)


@given(st.integers(0, 600), st.integers(0, 70), st.integers(0, 2**32 - 1))
def test_what_kernels_compute_equals_that_of_zlib(length: int, first: int, start: int) -> None:
    part = np.frombuffer(BYTES, np.uint8)[first : first + length]
    scratch = allocate(kernels.CRC_SCRATCH_BYTES, np.uint8)
    assert kernels.crc32_at(address_of(part), length, start, address_of(scratch)) == zlib.crc32(part.tobytes(), start)


@pytest.mark.parametrize("start", [0, 0xDEADBEEF])
def test_each_short_length_in_a_kernel(start: int) -> None:
    data, scratch = np.frombuffer(BYTES, np.uint8), allocate(kernels.CRC_SCRATCH_BYTES, np.uint8)
    for length in range(400):
        assert kernels.crc32_at(address_of(data), length, start, address_of(scratch)) == zlib.crc32(
            BYTES[:length], start
        )


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1087, 1088, 1279, 1280, 65_536, 70_000])
@pytest.mark.parametrize("start", [0, 1, 0xFFFFFFFF, 0xDEADBEEF])
def test_lengths_at_which_it_changes_its_ways(length: int, start: int) -> None:
    assert crc32(BYTES[:length], start) == zlib.crc32(BYTES[:length], start)


@pytest.mark.parametrize("length", [1024, 1087, 1088, 4095, 4096, 65_536, 70_000])
def test_without_wide_registers_narrow_ones_do_it(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "HAS_WIDE_CARRYLESS_PRODUCT", False)
    assert crc32(BYTES[:length], 7) == zlib.crc32(BYTES[:length], 7)


def test_without_the_instruction_zlib_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "HAS_CARRYLESS_PRODUCT", False)
    assert crc32(BYTES, 7) == zlib.crc32(BYTES, 7)


def test_every_flipped_bit_shows() -> None:
    data = bytearray(BYTES[:2_000])
    whole = crc32(bytes(data))
    for bit in range(0, 16_000, 37):
        data[bit >> 3] ^= 1 << (bit & 7)
        assert crc32(bytes(data)) != whole
        data[bit >> 3] ^= 1 << (bit & 7)
