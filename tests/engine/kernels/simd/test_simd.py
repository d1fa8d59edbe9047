"""The intrinsics, compiled and interpreted, against Python's own arithmetic."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from nyala.engine.kernels.simd import simd_llvm, simd_python

any_word = st.integers(0, 2**64 - 1)


def words_with(simd: Any) -> Callable:
    def words(a, b):
        return (
            simd.byte_swap64(a),
            simd.multiply_fold(a, b),
            simd.trailing_zeros64(a),
            simd.leading_zeros64(a),
            simd.population_count64(a),
        )

    return words


def memory_with(simd: Any) -> Callable:
    def memory(source, target):
        simd.copy8(target, source)
        simd.copy16(target + 8, source + 1)
        simd.copy32(target + 24, source + 2)
        simd.copy64(target + 56, source + 3)
        simd.copy_bytes(target + 121, source + 5, 7)
        simd.fill64(target + 130, simd.load_u64(source + 3))
        simd.store_u8(target + 200, simd.load_u8(source + 1))
        simd.store_u16(target + 201, simd.load_u16(source + 1))
        simd.store_u32(target + 203, simd.load_u32(source + 1))
        simd.store_u64(target + 207, simd.load_u64(source + 1))
        simd.prefetch(source)
        simd.store_u64(target + 216, np.uint64(0))
        is_taken, is_taken_twice = simd.take_lock(target + 216), simd.take_lock(target + 216)
        simd.release_lock(target + 216)
        is_taken_again = simd.take_lock(target + 216)
        return (
            is_taken,
            is_taken_twice,
            is_taken_again,
            simd.changes_u8(source),
            simd.changes_u16(source),
            simd.changes_u32(source),
            simd.changes_u64(source),
        )

    return memory


compiled_words, interpreted_words = njit(words_with(simd_llvm)), words_with(simd_python)
compiled_memory, interpreted_memory = njit(memory_with(simd_llvm)), memory_with(simd_python)


@settings(deadline=None)
@given(any_word, any_word)
def test_words(a, b):
    swapped = int.from_bytes(a.to_bytes(8, "little"), "big")
    folded = (a * b >> 64) ^ (a * b & (2**64 - 1))
    lowest = (a & -a).bit_length() - 1 if a else 64
    expected = (swapped, folded, lowest, 64 - a.bit_length(), a.bit_count())
    assert compiled_words(np.uint64(a), np.uint64(b)) == expected
    assert interpreted_words(np.uint64(a), np.uint64(b)) == expected


@pytest.mark.parametrize("high", [2, 256])
def test_memory_is_moved_alike(high):
    source = np.random.default_rng(high).integers(0, high, 256, dtype=np.uint8)
    first, second = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
    address = source.ctypes.data
    assert compiled_memory(address, first.ctypes.data) == interpreted_memory(address, second.ctypes.data)
    assert first.tobytes() == second.tobytes()
    assert first[:8].tobytes() == source[:8].tobytes()
    assert first[56:120].tobytes() == source[3:67].tobytes()
    assert first[121:128].tobytes() == source[5:12].tobytes() and first[128] == 0
    assert first[130:194].tobytes() == source[3:11].tobytes() * 8 and first[194] == 0


def test_changes_are_the_places_where_neighbours_differ():
    cells = np.array([5, 5, 6, 6, 6, 5, 5, 5, 9], np.uint64)
    mask = simd_python.changes_u64(cells.ctypes.data)
    assert mask == 0b10010010


def views_with(simd: Any) -> Callable:
    def views(address):
        return (
            simd.view_u8(address, 8).sum(),
            simd.view_u16(address, 4).sum(),
            simd.view_u32(address, 2).sum(),
            simd.view_i8(address, 8).sum(),
            simd.view_i16(address, 4).sum(),
            simd.view_i32(address, 2).sum(),
            simd.view_u64(address, 1)[0],
            simd.view_i64(address, 1)[0],
            simd.view_f32(address, 2)[1],
            simd.view_f64(address, 1)[0],
            simd.view_f64(address, 0).size,
        )

    return views


def test_views_are_arrays_over_any_memory():
    memory = np.arange(200, 217, dtype=np.uint8)
    address = memory.ctypes.data + 3  # aligned to nothing
    raw = memory[3:11]
    expected = (
        raw.sum(),
        raw.view("u2").sum(),
        raw.view("u4").sum(),
        raw.view("i1").sum(),
        raw.view("i2").sum(),
        raw.view("i4").sum(),
        raw.view("u8")[0],
        raw.view("i8")[0],
        raw.view("f4")[1],
        raw.view("f8")[0],
        0,
    )
    assert njit(views_with(simd_llvm))(address) == expected
    assert views_with(simd_python)(address) == expected


def test_a_view_writes_through():
    memory = np.zeros(5, np.int64)
    simd_python.view_i64(memory.ctypes.data + 8, 2)[:] = 7
    assert memory.tolist() == [0, 7, 7, 0, 0]


def test_address_of():
    simd: Any = simd_llvm
    compiled = njit(lambda array: simd.address_of(array))
    array = np.zeros(3, np.int32)
    assert compiled(array) == simd_python.address_of(array) == array.ctypes.data
