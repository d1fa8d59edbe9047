"""The layout of the C library, its mini-blocks, and what is too random to shrink."""

import lz4.block
import numpy as np
import pytest

from nyala.engine.codecs.bitshuffle import BitshuffleCodec
from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

CODEC = BitshuffleCodec()


def directory(payload: np.ndarray, blocks: int) -> np.ndarray:
    return payload[: 4 * blocks].view("<u4")


@pytest.mark.parametrize("rows", [64, 1000, 1023, 1024])
@pytest.mark.parametrize("physical", ["int8", "int16", "int32", "int64", "float64"])
def test_a_block_is_lz4_of_what_the_c_library_makes(physical, rows):
    bitshuffle = pytest.importorskip("bitshuffle")
    physical = PhysicalType(physical)
    values = (np.arange(rows) * 3 % 100).astype(physical.dtype)
    payload = CODEC.encode(FixedVector(values), physical)
    assert directory(payload, 1)[0] == len(payload) - 4
    shuffled = lz4.block.decompress(payload[4:].tobytes(), uncompressed_size=values.nbytes)
    assert shuffled == bitshuffle.bitshuffle(values, 4096).tobytes()


def test_a_block_that_does_not_shrink_is_stored_as_it_is():
    noise = np.random.default_rng(1).integers(-(2**63), 2**63, 1500)
    payload = CODEC.encode(FixedVector(noise), PhysicalType.INT64)
    assert payload[8:].tobytes() == noise.tobytes()
    assert directory(payload, 2).tolist() == [8192, 12000]


def test_small_numbers_take_little_room():
    values = np.random.default_rng(2).integers(0, 256, 65_536)
    payload = CODEC.encode(FixedVector(values), PhysicalType.INT64)
    assert len(payload) < 1.1 * 65_536


def test_a_block_can_be_read_though_its_neighbour_is_damaged():
    values = np.arange(3000)
    payload = CODEC.encode(FixedVector(values), PhysicalType.INT64)
    first_end, second_end, _ = directory(payload, 3)
    payload[12 + first_end : 12 + second_end] = 255
    CODEC.check(payload, PhysicalType.INT64, 3000)
    third = CODEC.decode(payload, PhysicalType.INT64, 3000, 2048, 3000)
    assert third.values.tolist() == values[2048:].tolist()
    assert CODEC.gather(payload, PhysicalType.INT64, 3000, np.array([2999, 0])).values[0] == 2999
    with pytest.raises(CorruptPageError, match="block 1"):
        CODEC.decode(payload, PhysicalType.INT64, 3000, 0, 3000)


def test_a_directory_that_falls_is_refused():
    payload = CODEC.encode(FixedVector(np.arange(3000)), PhysicalType.INT64)
    directory(payload, 3)[1] = 1
    with pytest.raises(CorruptPageError, match="not in ascending order"):
        CODEC.check(payload, PhysicalType.INT64, 3000)


def test_byte_strings_are_not_supported():
    assert not CODEC.supports(PhysicalType.BYTES)
