"""What front coding stores, and what it refuses."""

import numpy as np
import pytest

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.prefix import PrefixCodec
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector

CODEC = PrefixCodec()
BYTES = PhysicalType.BYTES


def strings(cells: list[bytes]) -> BytesVector:
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    return BytesVector(offsets, np.frombuffer(b"".join(cells), np.uint8))


def block(width: int, shared: list[int], lengths: list[int], rests: bytes) -> np.ndarray:
    """Return a page of one hand-made block."""
    content = bytes([width, *shared]) + b"".join(n.to_bytes(width, "little") for n in lengths)
    content += rests
    return np.frombuffer(len(content).to_bytes(4, "little") + content, np.uint8)


def test_a_row_is_what_it_shares_and_the_rest():
    payload = CODEC.encode(strings([b"nyala", b"nylon", b"nylon", b""]), BYTES)
    assert payload.tobytes() == block(1, [0, 2, 5, 0], [5, 3, 0, 0], b"nyalalon").tobytes()


@pytest.mark.parametrize(("length", "width"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_lengths_take_the_narrowest_width_of_their_block(length, width):
    cells = [b"a" * length, b"b"]
    payload = CODEC.encode(strings(cells), BYTES)
    assert payload[4] == width
    CODEC.check(payload, BYTES, 2)
    assert CODEC.decode(payload, BYTES, 2, 0, 2).data.tobytes() == b"".join(cells)


def test_no_more_than_255_bytes_are_shared():
    cells = [b"a" * 300, b"a" * 300 + b"b"]
    payload = CODEC.encode(strings(cells), BYTES)
    assert payload[5:7].tolist() == [0, 255]
    assert CODEC.decode(payload, BYTES, 2, 0, 2).data.tobytes() == b"".join(cells)


def test_sorted_keys_shrink():
    cells = [b"https://example.org/item/%08d" % i for i in range(5000)]
    payload = CODEC.encode(strings(cells), BYTES)
    assert len(payload) < 5 * len(cells)


@pytest.mark.parametrize(
    "payload",
    [
        block(3, [0, 0], [1, 1], b"ab"),
        block(1, [1, 0], [1, 1], b"ab"),  # the first row shares with nothing
        block(1, [0, 2], [1, 1], b"ab"),  # more shared than the row before has
        block(1, [0, 0], [1, 2], b"ab"),  # more rest than there is
        block(1, [0, 0], [1, 0], b"ab"),  # rest left over
        block(4, [0, 0], [1, 2**32 - 1], b"ab"),
    ],
)
def test_lengths_that_contradict_each_other_are_refused(payload):
    with pytest.raises(CorruptPageError):
        CODEC.check(payload, BYTES, 2)
