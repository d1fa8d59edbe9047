"""Cells of any type in the styles that tell how they are encoded, many at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STYLES = ("runs", "few", "rising", "steps", "noise")
"""What cells are like: they decide over the form of a block, its width, and whether it is compressed at all."""


def cells(kind: pa.DataType, style: str, numbers: np.ndarray, stem: str | None = None) -> pa.Array:
    """Return a cell for each of ``numbers`` (int64), none of them NULL; equal numbers have equal cells. Strings begin
    with ``stem``."""
    integers = _integers(style, numbers)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(style, integers, f"{style}://" if stem is None else stem).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array(integers % 2 == 1)
    if pa.types.is_decimal128(kind):
        wide = kind.precision > 18
        low = integers * 7 if wide else integers % 10 ** (kind.precision - 1)
        halves = np.stack([low, integers >> 3 if wide else low >> 63], axis=1)
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(halves))])
    if pa.types.is_floating(kind):
        reals = integers / (1e15 if style == "noise" else 100)
        return pa.array(reals.astype(kind.to_pandas_dtype()))
    if pa.types.is_date32(kind):
        return pa.array((integers % 40_000 - 10_000).astype(np.int32)).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(integers % (1 << 50)).view(kind)
    return pa.array(integers.astype(kind.to_pandas_dtype()))


def hashed(numbers: np.ndarray) -> np.ndarray:
    """Return 64 bits (int64) of noise for each number (splitmix64)."""
    with np.errstate(over="ignore"):
        bits = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (bits ^ (bits >> np.uint64(31))).view(np.int64)


def _integers(style: str, numbers: np.ndarray) -> np.ndarray:
    if style == "runs":
        return numbers // 150 % 6 * 11 - 20
    noise = hashed(numbers)
    if style == "few":
        return noise % 7 * 1_234_567_890_123 - 40
    if style == "rising":
        return numbers * 3 + noise % 5
    return noise % 1_000 * 1_000 if style == "steps" else noise


def _texts(style: str, integers: np.ndarray, stem: str) -> pa.Array:
    words = pc.cast(pa.array(np.abs(integers >> (20 if style == "noise" else 0))), pa.string())
    texts = pc.binary_join_element_wise(pa.scalar(stem), words, "")
    return pc.binary_join_element_wise(texts, words, "/") if style == "rising" else texts
