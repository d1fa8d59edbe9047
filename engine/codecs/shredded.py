"""Shredded: nested cells taken apart, so that all values of one field or one level of lists stand side by side.

Payload, little-endian::

    | length u2 | type as text, UTF-8 | ends u4 x streams | stream 0 | stream 1 | ... |

The text is that of schemas, such as ``list<struct<a: int64>>``. An end counts from the first byte of stream 0. The tree
of the type is walked from the root, parts in their order. Each value, the cell itself too, has these streams:

* validity: empty if none is NULL; else a bitmap, one bit a value, lowest bit first, 1 for a value that is not NULL;
* a list of any length, or a map: the number of items of each (i4, as cells); then the items, of maps key and value;
* a list of one length, or a struct: nothing more; then the items, or the fields;
* a bool: a bitmap;
* a number, date, time, timestamp, duration, interval or decimal: its cells as Arrow has them;
* a string or binary: the bytes of each (i4, as cells); then the bytes of all, ``| bytes u4 | LZ4 block |``, which is
  not compressed if that saves nothing.

Cells are pieces ``| size u4 | page of bitshuffle |`` of 65,536 each, the last one perhaps fewer; none for no cell.
Values under a NULL are there, too, zero or empty. A page is decoded as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ..vectors.arrow_buffers import array_of, bytes_to_arrow, cells_of, from_strings, unpack_bits, validity_of
from ..vectors.nested import is_text, list_offsets, nested_from_arrow, nested_to_arrow, number_dtype, parts_of
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, Vector
from .blocks import END, blocks_of_range, check_packed, pack, unpack
from .codec import PAGE_ROWS, CorruptPageError, check_range, check_rows, require
from .compression import LZ4, compress, decompress

_LENGTH = np.dtype("<u2")
_COUNT = np.dtype("<i4")
_TYPE_BYTES_MAX = (1 << 16) - 1


class ShreddedCodec:
    """Take nested cells apart, and encode the parts like columns."""

    code = 9
    name = "shredded"
    fills_nulls = False

    def __init__(self, kind: str = "") -> None:
        """``kind`` is the type of the cells to encode, as text; pages name theirs."""
        self._kind = kind

    def supports(self, physical: PhysicalType) -> bool:
        """Return True for BYTES."""
        return physical is PhysicalType.BYTES

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload. The cells are of the codec's type, empty under NULL."""
        return self.encode_array(self.array_of(vector))

    def array_of(self, vector: Vector) -> pa.Array:
        """Return cells of the codec's type, empty under NULL, as an array."""
        assert isinstance(vector, BytesVector) and self._kind, "nested cells of a known type"
        valid = vector.lengths > 0  # no nested cell is empty
        return nested_to_arrow(BytesVector(vector.offsets, vector.data, valid), LogicalType.parse(self._kind).arrow)

    def encode_array(self, array: pa.Array) -> np.ndarray:
        """Return the payload of an array from ``array_of``."""
        text = self._kind.encode()
        streams = [bytes(stream) for stream in _streams_of(array)]
        ends = np.cumsum([len(stream) for stream in streams]).astype(END)
        head = np.array([len(text)], _LENGTH).tobytes() + text + ends.tobytes()
        return np.frombuffer(b"".join([head, *streams]), np.uint8)

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Check the type and the directory. What is wrong in a stream shows when it is decoded."""
        require(row_count <= PAGE_ROWS, f"{row_count} rows are too many for a page")
        _split(payload)

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> BytesVector:
        """Return rows [first, last), a view of the whole page."""
        check_range(first, last, row_count)
        return cells_of_array(array_of_page(payload, row_count)).slice(first, last)

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> BytesVector:
        """Return the cells at ``rows``."""
        return cells_of_array(array_of_page(payload, row_count)).take(check_rows(rows, row_count))

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """See ``Codec``."""
        yield 0, len(payload)


def array_of_page(payload: np.ndarray, row_count: int) -> pa.Array:
    """Return the cells of a shredded page as an array."""
    kind, streams = _split(payload)
    return _array(kind, row_count, iter(streams))


def cells_of_array(array: pa.Array) -> BytesVector:
    """Return the cells of an array of a shredded page, empty under NULL."""
    cells = nested_from_arrow(array)
    return BytesVector(cells.offsets, cells.data)


def _split(payload: np.ndarray) -> tuple[pa.DataType, list[np.ndarray]]:
    """Return the type of the cells of a page, and its streams."""
    require(len(payload) >= _LENGTH.itemsize, "the page is too short for a type")
    start = _LENGTH.itemsize + int(payload[: _LENGTH.itemsize].view(_LENGTH)[0])
    try:
        kind = LogicalType.parse(payload[_LENGTH.itemsize : start].tobytes().decode())
    except (InvalidArgumentError, UnicodeDecodeError) as error:
        raise CorruptPageError(f"the type of the cells cannot be read: {error}") from None
    require(kind.is_nested, "the type of the cells is not nested")
    head = start + END.itemsize * _stream_count(kind.arrow)
    require(len(payload) >= head, "the page is too short for its directory")
    ends = np.frombuffer(payload[start:head].tobytes(), END).astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    require((sizes >= 0).all() and ends[-1] == len(payload) - head, "the streams do not fill the page")
    return kind.arrow, [payload[head + end - size : head + end] for end, size in zip(ends, sizes, strict=True)]


def _stream_count(kind: pa.DataType) -> int:
    own = 3 if is_text(kind) else 1 if pa.types.is_struct(kind) or pa.types.is_fixed_size_list(kind) else 2
    return own + sum(map(_stream_count, parts_of(kind)))


def _streams_of(array: pa.Array) -> Iterator[bytes | np.ndarray]:
    """Yield the streams of values and of their parts."""
    kind, valid = array.type, validity_of(array)
    yield b"" if valid is None else np.packbits(valid, bitorder="little")
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _streams_of(array.field(number))  # pyright: ignore[reportAttributeAccessIssue]
    elif pa.types.is_nested(kind):
        offsets = list_offsets(array)
        if not pa.types.is_fixed_size_list(kind):
            yield _cells(np.diff(offsets).astype(_COUNT))
        first, last = int(offsets[0]), int(offsets[-1])
        items = array.values.slice(first, last - first)  # pyright: ignore[reportAttributeAccessIssue]
        for part in items.flatten() if pa.types.is_map(kind) else (items,):
            yield from _streams_of(part)
    elif is_text(kind):
        strings = from_strings(array, valid)
        yield _cells(strings.lengths.astype(_COUNT))
        yield _compressed(strings.data[strings.offsets[0] : strings.offsets[-1]])
    elif pa.types.is_boolean(kind):
        yield np.packbits(unpack_bits(array.buffers()[1], array.offset, len(array)), bitorder="little")
    else:
        yield _cells(cells_of(array, number_dtype(kind)))


def _cells(cells: np.ndarray) -> bytes:
    pieces: list[bytes] = []
    for first in range(0, len(cells), PAGE_ROWS):
        piece = pack(np.ascontiguousarray(cells[first : first + PAGE_ROWS]))
        pieces += [np.array([len(piece)], END).tobytes(), piece.tobytes()]
    return b"".join(pieces)


def _compressed(data: np.ndarray) -> bytes:
    plain = data.tobytes()
    packed = compress(LZ4, plain) if plain else plain
    return np.array([len(plain)], END).tobytes() + (packed if len(packed) < len(plain) else plain)


def _array(kind: pa.DataType, count: int, streams: Iterator[np.ndarray]) -> pa.Array:
    """Return ``count`` values, whose streams are next."""
    valid = _validity(next(streams), count)
    if pa.types.is_struct(kind):
        return array_of(kind, count, valid, [], [_array(part, count, streams) for part in parts_of(kind)])
    if pa.types.is_fixed_size_list(kind):
        return array_of(kind, count, valid, [], [_array(kind.value_type, count * kind.list_size, streams)])
    if pa.types.is_nested(kind):
        offsets = _offsets(next(streams), count)
        total = int(offsets[-1])
        parts = [_array(part, total, streams) for part in parts_of(kind)]
        if pa.types.is_map(kind):
            require(not parts[0].null_count, "a key of a map is NULL")  # at which Arrow would end the process
            parts = [array_of(pa.struct([kind.key_field, kind.item_field]), total, None, [], parts)]
        if not pa.types.is_large_list(kind):
            offsets = offsets.astype(np.int32)
        return array_of(kind, count, valid, [pa.py_buffer(offsets)], parts)
    if is_text(kind):
        offsets, data = _offsets(next(streams), count).astype(np.int32), next(streams)
        require(len(data) >= END.itemsize, "the bytes of the strings are missing")
        size = int(np.frombuffer(data[: END.itemsize].tobytes(), END)[0])
        require(size == offsets[-1], "the strings and their lengths do not fit each other")
        stored = np.ascontiguousarray(data[END.itemsize :])
        return bytes_to_arrow(
            BytesVector(offsets, stored if len(stored) == size else decompress(LZ4, stored, size), valid), kind
        )
    stream = next(streams)
    if pa.types.is_boolean(kind):
        require(len(stream) == -(-count // 8), "the number of boolean cells is wrong")
        return array_of(kind, count, valid, [pa.py_buffer(np.ascontiguousarray(stream))])
    return array_of(kind, count, valid, [pa.py_buffer(_numbers(stream, number_dtype(kind), count))])


def _validity(stream: np.ndarray, count: int) -> np.ndarray | None:
    if not len(stream):
        return None
    require(len(stream) == -(-count // 8), "a bitmap has the wrong length")
    return np.unpackbits(stream, bitorder="little", count=count).view(np.bool_)


def _offsets(stream: np.ndarray, count: int) -> np.ndarray:
    """Return the ends (int64) of values of the lengths in a stream, beginning with 0."""
    lengths = _numbers(stream, _COUNT, count)
    require((lengths >= 0).all(), "a length is negative")
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    require(offsets[-1] < 1 << 31, "the items of a list or string exceed 2 GiB")
    return offsets


def _numbers(stream: np.ndarray, dtype: np.dtype, count: int) -> np.ndarray:
    pieces: list[np.ndarray] = []
    place = 0
    for first in range(0, count, PAGE_ROWS):
        rows = min(PAGE_ROWS, count - first)
        require(len(stream) >= place + END.itemsize, "a piece is missing")
        size = int(np.frombuffer(stream[place : place + END.itemsize].tobytes(), END)[0])
        place += END.itemsize
        require(len(stream) >= place + size, "a piece is cut short")
        piece = np.ascontiguousarray(stream[place : place + size])
        check_packed(piece, dtype.itemsize, rows)
        pieces.append(unpack(piece, dtype, rows, blocks_of_range(0, rows, rows)[0]))
        place += size
    require(place == len(stream), "bytes follow the last cell")
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, dtype), *pieces])
