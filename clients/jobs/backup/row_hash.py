"""Hashes of rows, and their sums, which do not depend on order: the checksum of a tablet, a table or a file.

The hash of a row is a 64-bit number, all arithmetic modulo 2^64:

    mix(x)      x ^= x >> 33; x *= 0xff51afd7ed558ccd; x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53; x ^= x >> 33
    seed        of a column: the first 8 bytes, little-endian, of BLAKE2b-64 of its name in UTF-8
    cell        mix(word ^ seed), and mix(mix(seed + 1)) for NULL
    row         mix(sum of the cells of all columns)

The order of columns does not matter, nor does that of rows: a checksum is the sum of the rows' hashes, beside their
count. The word of a cell is

    bool, integers, date, timestamp[us]     the value as a 64-bit integer
    float, double                           the bits of the double; every NaN is 0x7ff8000000000000; -0.0 is not 0.0
    decimal                                 low ^ mix(high + G) of the two halves of the unscaled 128-bit integer
    string, varchar, binary                 mix(sum over its 8-byte words w_i, the last padded by zeros, of
                                            mix(w_i + (i + 1) * G)) + length in bytes * G)

with G = 0x9e3779b97f4a7c15. Widening a column changes no word, so a copy with wider columns has the same checksum.
``mix`` is the finalizer of MurmurHash3 (Appleby, 2011), G the odd number of the golden ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.errors import InvalidArgumentError

BUCKETS = 256
"""Rows are summed by the highest bits of their key hashes, so that differences can be located."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_NAN = np.uint64(0x7FF8000000000000)

Words = np.ndarray
"""uint64, one for each row."""


def mix(words: Words) -> Words:
    """Mix the bits of each word for the checksums of backups and tables; a bijection."""
    mixed = words ^ (words >> _SHIFT)
    mixed *= _FIRST
    mixed ^= mixed >> _SHIFT
    mixed *= _SECOND
    mixed ^= mixed >> _SHIFT
    return mixed


def row_hashes(batch: pa.RecordBatch, columns: Sequence[str] | None = None) -> Words:
    """Return the hash of each row over some columns, of all by default, which checksums of tables add up.

    Raises:
        InvalidArgumentError: a column has a type that tables do not have.
    """
    names = batch.schema.names if columns is None else columns
    total = np.zeros(batch.num_rows, np.uint64)
    if batch.num_rows:
        for name in names:
            total += _cells(batch.column(name), name)
    return mix(total)


def bucket_of(key_hashes: Words) -> np.ndarray:
    """Return the bucket of a checksum that each row belongs to, by the hash of its key."""
    return (key_hashes >> np.uint64(56)).astype(np.intp)


def _cells(values: pa.Array, name: str) -> Words:
    seed = np.frombuffer(blake2b(name.encode(), digest_size=8).digest(), "<u8")
    hashed = mix(_words(values, name) ^ seed)
    if values.null_count:
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        hashed[is_null] = mix(mix(seed + np.uint64(1)))[0]
    return hashed


def _words(values: pa.Array, name: str) -> Words:
    is_ = pa.types
    kind = values.type
    if is_.is_boolean(kind):
        return values.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    if is_.is_unsigned_integer(kind):
        return _fixed(values, np.dtype(f"<u{kind.bit_width // 8}")).astype(np.uint64)
    if is_.is_interval(kind):
        return _decimals(values)  # as many bytes, whatever they mean
    if is_.is_signed_integer(kind) or is_.is_temporal(kind):
        return _fixed(values, np.dtype(f"<i{kind.bit_width // 8}")).astype(np.int64).view(np.uint64)
    if is_.is_struct(kind):
        return _structs(values)
    if is_.is_nested(kind) and not is_.is_union(kind):
        return _lists(values)
    if is_.is_floating(kind):
        return _floats(_fixed(values, np.dtype(f"<f{kind.bit_width // 8}")))
    if is_.is_decimal128(kind):
        return _decimals(values)
    if is_.is_string(kind) or is_.is_binary(kind) or is_.is_large_string(kind) or is_.is_large_binary(kind):
        return _bytes(values)
    raise InvalidArgumentError(f"column {name!r} is {kind}, a type without checksum: no table can hold it")


def _structs(values: pa.Array) -> Words:
    total = np.zeros(len(values), np.uint64)
    for field, cells in zip(values.type, values.flatten(), strict=True):
        total += _cells(cells, field.name)
    return total


def _lists(values: pa.Array) -> Words:
    """Hash all items at once: each with its place in its list, summed by list."""
    if pa.types.is_map(values.type):
        values = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    items = pc.list_flatten(values)
    places = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
    sums = np.zeros(len(items) + 1, np.uint64)
    if len(items):
        np.cumsum(mix(_cells(items, "item") + places.astype(np.uint64) * _GOLDEN), out=sums[1:])
    return sums[ends] - sums[ends - lengths] + mix(lengths.astype(np.uint64) + _GOLDEN)


def _fixed(values: pa.Array, kind: np.dtype) -> np.ndarray:
    held = np.frombuffer(values.buffers()[1], kind, count=values.offset + len(values))
    return held[values.offset :]


def _floats(values: np.ndarray) -> Words:
    doubles = values.astype(np.float64)
    words = doubles.view(np.uint64).copy()
    words[np.isnan(doubles)] = _NAN
    return words


def _decimals(values: pa.Array) -> Words:
    halves = np.frombuffer(values.buffers()[1], "<u8", count=2 * (values.offset + len(values)))
    halves = halves[2 * values.offset :]
    return halves[0::2] ^ mix(halves[1::2] + _GOLDEN)


def _bytes(values: pa.Array) -> Words:
    """Hash all cells at once: their words in one array, summed by cell."""
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, "<i8" if is_large else "<i4", count=values.offset + len(values) + 1)
    offsets = offsets[values.offset :].astype(np.int64)
    lengths = np.diff(offsets)
    counts = (lengths + 7) >> 3
    padded = np.zeros(int(offsets[-1] - offsets[0]) + 8, np.uint8)
    if data is not None:
        padded[:-8] = np.frombuffer(data, np.uint8, count=int(offsets[-1]))[offsets[0] :]
    sums = np.zeros(len(values), np.uint64)
    if filled := int(counts.sum()):
        terms = _terms(padded, offsets[:-1] - offsets[0], lengths, counts, filled)
        is_filled = counts > 0
        ends = np.cumsum(counts[is_filled])
        sums[is_filled] = np.add.reduceat(terms, ends - counts[is_filled])
    return mix(sums + lengths.astype(np.uint64) * _GOLDEN)


def _terms(padded: np.ndarray, starts: np.ndarray, lengths: np.ndarray, counts: np.ndarray, filled: int) -> Words:
    """Return the mixed words of all cells, in the order of the cells."""
    place = np.arange(filled, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    # Words may begin at any byte, not only at multiples of eight.
    everywhere = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    words = everywhere[np.repeat(starts, counts) + 8 * place]
    missing = np.clip(8 * (place + 1) - np.repeat(lengths, counts), 0, 7).astype(np.uint64)
    words &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (missing * np.uint64(8))
    return mix(words + (place + 1).astype(np.uint64) * _GOLDEN)


class Sums:
    """The checksum of the rows of a table or a backup, in total and by key bucket."""

    def __init__(self) -> None:
        self.rows = np.zeros(BUCKETS, np.int64)
        self.sums = np.zeros(BUCKETS, np.uint64)

    def add(self, batch: pa.RecordBatch, key: Sequence[str]) -> None:
        """Add rows that have all columns of the table."""
        if batch.num_rows:
            buckets = bucket_of(row_hashes(batch, key))
            self.rows += np.bincount(buckets, minlength=BUCKETS)
            np.add.at(self.sums, buckets, row_hashes(batch))

    def merge(self, other: Sums) -> None:
        """Add the sums of another."""
        self.rows += other.rows
        self.sums += other.sums

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.rows.sum())

    @property
    def text(self) -> str:
        """The checksum of all rows: 16 hexadecimal digits."""
        return f"{int(self.sums.sum(dtype=np.uint64)):016x}"
