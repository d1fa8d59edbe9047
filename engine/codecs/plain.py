"""Plain: the cells as they are in memory.

Payload, little-endian, by physical type::

    fixed width   | cells                                        |
    BOOL          | bitmap, one bit a row, lowest bit first      |
    BYTES         | offsets u4 x (rows + 1) | bytes of the cells |

The first offset is 0, the last one the number of bytes.
"""

from collections.abc import Iterator

import numpy as np

from ..vectors.memory.memory import allocate
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, FixedVector, Vector
from .codec import check_range, check_rows, require

_OFFSET = np.dtype("<i4")


class PlainCodec:
    """Store cells as they are. Any row is read directly; only BOOL saves space.

    >>> PlainCodec().encode(FixedVector(np.array([1, 0, 1], np.uint8)), PhysicalType.BOOL)
    array([5], dtype=uint8)
    """

    code = 1
    name = "plain"
    fills_nulls = False

    def supports(self, physical: PhysicalType) -> bool:
        """Return True: every type has a plain form."""
        return True

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload; for fixed widths a view of the cells."""
        if isinstance(vector, BytesVector):
            return _encode_bytes(vector)
        assert isinstance(vector, FixedVector), "a dictionary vector is materialised before"
        if physical is PhysicalType.BOOL:
            return np.packbits(vector.values, bitorder="little")
        return np.ascontiguousarray(vector.values, physical.dtype).view(np.uint8)

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Compare the payload's size with the rows, and for BYTES check that offsets ascend."""
        if physical is PhysicalType.BYTES:
            _check_bytes(payload, row_count)
            return
        size = -(-row_count // 8) if physical is PhysicalType.BOOL else row_count * physical.width
        require(len(payload) == size, f"it has {len(payload)} bytes, but {row_count} cells take {size}")

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> Vector:
        """Return rows [first, last): one copy of their bytes."""
        check_range(first, last, row_count)
        if physical is PhysicalType.BYTES:
            return _decode_bytes(payload, row_count, first, last)
        if physical is PhysicalType.BOOL:
            bits = np.unpackbits(payload[first // 8 : -(-last // 8)], bitorder="little")
            return FixedVector(bits[first % 8 : first % 8 + last - first])
        width = physical.width
        cells = allocate(last - first, physical.dtype)
        cells.view(np.uint8)[:] = payload[first * width : last * width]
        return FixedVector(cells)

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> Vector:
        """Return the cells at ``rows``; reads nothing else."""
        rows = check_rows(rows, row_count)
        if physical is PhysicalType.BYTES:
            return BytesVector(*_split(payload, row_count)).take(rows)
        if physical is PhysicalType.BOOL:
            return FixedVector(payload[rows >> 3] >> (rows & 7).astype(np.uint8) & 1)
        return FixedVector(payload.view(physical.dtype)[rows])

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """See ``Codec``."""
        if physical is PhysicalType.BYTES:
            place = _OFFSET.itemsize * row
            yield place, place + 2 * _OFFSET.itemsize
            first, last = payload[place : place + 2 * _OFFSET.itemsize].view(_OFFSET).tolist()
            head = _OFFSET.itemsize * (row_count + 1)
            yield head + first, head + last
        elif physical is PhysicalType.BOOL:
            yield row >> 3, (row >> 3) + 1
        else:
            yield row * physical.width, (row + 1) * physical.width


def _encode_bytes(vector: BytesVector) -> np.ndarray:
    first, last = int(vector.offsets[0]), int(vector.offsets[-1])
    head = vector.offsets.nbytes
    payload = allocate(head + last - first, np.uint8)
    np.subtract(vector.offsets, first, out=payload[:head].view(_OFFSET))
    payload[head:] = vector.data[first:last]
    return payload


def _split(payload: np.ndarray, row_count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets and the bytes inside a payload, as views."""
    head = _OFFSET.itemsize * (row_count + 1)
    return payload[:head].view(_OFFSET), payload[head:]


def _check_bytes(payload: np.ndarray, row_count: int) -> None:
    head = _OFFSET.itemsize * (row_count + 1)
    require(len(payload) >= head, f"{len(payload)} bytes are too few for {row_count} offsets")
    offsets, data = _split(payload, row_count)
    require(offsets[0] == 0 and offsets[-1] == len(data), "the offsets do not begin at 0 and end with the bytes")
    require((offsets[1:] >= offsets[:-1]).all(), "the offsets are not in ascending order")


def _decode_bytes(payload: np.ndarray, row_count: int, first: int, last: int) -> BytesVector:
    page_offsets, page_data = _split(payload, row_count)
    start, end = int(page_offsets[first]), int(page_offsets[last])
    offsets = allocate(last - first + 1, np.int32)
    np.subtract(page_offsets[first : last + 1], start, out=offsets)
    data = allocate(end - start, np.uint8)
    data[:] = page_data[start:end]
    return BytesVector(offsets, data)
