"""The interpreted form of `simd`, for runs without the compiler: slow, and the same bytes."""

import ctypes
from collections.abc import Callable

import numpy as np

_MASK64 = (1 << 64) - 1


def _make_load(dtype: type) -> Callable[[int], np.unsignedinteger]:
    byte_count = np.dtype(dtype).itemsize

    def load(address):
        raw = ctypes.string_at(int(address), byte_count)
        return dtype(int.from_bytes(raw, "little"))

    return load


def _make_store(dtype: type) -> Callable[[int, int], None]:
    byte_count = np.dtype(dtype).itemsize
    mask = (1 << (8 * byte_count)) - 1

    def store(address, value):
        raw = (int(value) & mask).to_bytes(byte_count, "little")
        ctypes.memmove(int(address), raw, byte_count)

    return store


def _make_copy(byte_count: int) -> Callable[[int, int], None]:
    def copy(target, source):
        ctypes.memmove(int(target), int(source), byte_count)

    return copy


def _make_view(dtype: type) -> Callable[[int, int], np.ndarray]:
    item_size = np.dtype(dtype).itemsize

    def view(address, count):
        memory = (ctypes.c_char * (int(count) * item_size)).from_address(int(address))
        return np.frombuffer(memory, dtype)

    return view


def _make_changes(dtype: type) -> Callable[[int], np.uint64]:
    count = 64 // np.dtype(dtype).itemsize

    def changes(address):
        cells = np.frombuffer(ctypes.string_at(int(address), 64 + 64 // count), dtype)
        bits = np.packbits(cells[1:] != cells[:-1], bitorder="little")
        return np.uint64(int.from_bytes(bits.tobytes(), "little"))

    return changes


load_u8 = _make_load(np.uint8)
load_u16 = _make_load(np.uint16)
load_u32 = _make_load(np.uint32)
load_u64 = _make_load(np.uint64)
store_u8 = _make_store(np.uint8)
store_u16 = _make_store(np.uint16)
store_u32 = _make_store(np.uint32)
store_u64 = _make_store(np.uint64)
copy8 = _make_copy(8)
copy16 = _make_copy(16)
copy32 = _make_copy(32)
copy64 = _make_copy(64)
changes_u8 = _make_changes(np.uint8)
changes_u16 = _make_changes(np.uint16)
changes_u32 = _make_changes(np.uint32)
changes_u64 = _make_changes(np.uint64)
view_u8 = _make_view(np.uint8)
view_u16 = _make_view(np.uint16)
view_u32 = _make_view(np.uint32)
view_u64 = _make_view(np.uint64)
view_i8 = _make_view(np.int8)
view_i16 = _make_view(np.int16)
view_i32 = _make_view(np.int32)
view_i64 = _make_view(np.int64)
view_f32 = _make_view(np.float32)
view_f64 = _make_view(np.float64)


def address_of(array: np.ndarray) -> int:
    """In place of LLVM's instruction, return the address of the first byte of ``array``."""
    return array.__array_interface__["data"][0]


def copy_bytes(target: int, source: int, byte_count: int) -> None:
    """In place of LLVM's instructions, copy exactly ``byte_count`` bytes between places that do not overlap."""
    ctypes.memmove(int(target), int(source), int(byte_count))


def fill64(address: int, value: int) -> None:
    """In place of the vector instructions, write the uint64 ``value`` eight times, 64 bytes in all."""
    ctypes.memmove(int(address), (int(value) & _MASK64).to_bytes(8, "little") * 8, 64)


def prefetch(address: int) -> None:
    """In place of LLVM's instruction, do nothing: a hint has no meaning here."""


def take_lock(address: int) -> bool:
    """In place of LLVM's instruction: not one step, and so only for one thread."""
    is_free = load_u64(address) == 0
    store_u64(address, np.uint64(1))
    return bool(is_free)


def release_lock(address: int) -> None:
    """In place of LLVM's instruction."""
    store_u64(address, np.uint64(0))


def byte_swap64(value: int) -> np.uint64:
    """In place of LLVM's instruction, return the bytes of a uint64 in opposite order."""
    return np.uint64(int.from_bytes((int(value) & _MASK64).to_bytes(8, "little"), "big"))


def multiply_fold(left: int, right: int) -> np.uint64:
    """In place of LLVM's instructions, return high half xor low half of the 128-bit product."""
    product = (int(left) & _MASK64) * (int(right) & _MASK64)
    return np.uint64((product >> 64) ^ (product & _MASK64))


def trailing_zeros64(value: int) -> int:
    """In place of LLVM's instruction, return how many zero bits lie below the lowest set bit; 64 for 0."""
    bits = int(value) & _MASK64
    return (bits & -bits).bit_length() - 1 if bits else 64


def leading_zeros64(value: int) -> int:
    """In place of LLVM's instruction, return how many zero bits lie above the highest set bit; 64 for 0."""
    return 64 - (int(value) & _MASK64).bit_length()


def population_count64(value: int) -> int:
    """In place of LLVM's instruction, return the number of set bits."""
    return (int(value) & _MASK64).bit_count()
