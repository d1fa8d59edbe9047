"""Strings are copied whole, and no byte outside them is touched but the slack."""

import ctypes
import mmap
import sys

import numpy as np
import pytest

from nyala.engine.kernels.cells import gather as kernels
from nyala.engine.kernels.keys import hashing, keys
from nyala.engine.vectors.gather import gather_bytes, patch_bytes
from nyala.engine.vectors.keys.key_vector import BytesKeys, hash_keys
from nyala.engine.vectors.keys.keys import argsort_keys, first_occurrences
from nyala.engine.vectors.memory.memory import address_of

PROT_NONE = 0
LENGTHS = [*range(41), 47, 48, 49, 63, 64, 65, 200]


@pytest.fixture
def before_a_wall():
    """Return a function that copies bytes to just before a page that may not be read."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs mprotect")
    libc = ctypes.CDLL(None, use_errno=True)
    kept = []

    def place(content: bytes) -> np.ndarray:
        size = -(-max(len(content), 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(-1, size + mmap.PAGESIZE)
        wall = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + size
        assert libc.mprotect(ctypes.c_void_p(wall), mmap.PAGESIZE, PROT_NONE) == 0
        kept.append(memory)
        cells = np.frombuffer(memory, np.uint8, len(content), size - len(content))
        cells[:] = np.frombuffer(content, np.uint8)
        return cells

    return place


def strings(lengths: list[int]) -> tuple[np.ndarray, bytes]:
    random = np.random.default_rng(len(lengths))
    content = random.integers(0, 256, sum(lengths), np.uint8).tobytes()
    return np.cumsum([0, *lengths], dtype=np.int32), content


@pytest.mark.parametrize("last_length", LENGTHS)
def test_nothing_is_read_past_the_end(before_a_wall, last_length):
    offsets, content = strings([3, 40, last_length])
    data = before_a_wall(content)
    rows = np.array([2, 0, 2, 1, 2])
    ends, cells = gather_bytes(offsets, data, rows)
    expected = [content[offsets[row] : offsets[row + 1]] for row in rows]
    assert cells.tobytes() == b"".join(expected)
    assert ends.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    patched_ends, patched = patch_bytes((ends, cells), np.array([1, 4]), (offsets[1:], data))
    expected[1], expected[4] = content[3:43], content[43:]
    assert patched.tobytes() == b"".join(expected)
    assert patched_ends.tolist() == np.cumsum([0, *map(len, expected)]).tolist()


@pytest.mark.parametrize("last_length", LENGTHS)
def test_hashing_and_sorting_read_nothing_past_the_end(before_a_wall, last_length):
    offsets, content = strings([last_length] * 2)
    content = content[:last_length] * 2
    found = BytesKeys(offsets, before_a_wall(content))
    hashes = hash_keys(found)
    assert hashes[0] == hashes[1]
    assert first_occurrences(found, hashes).tolist() == [0, 0]
    assert sorted(argsort_keys(found)) == [0, 1]


@pytest.mark.parametrize("length", LENGTHS)
def test_an_exact_copy_writes_exactly(length):
    source = np.arange(1, length + 1, dtype=np.uint8)
    target = np.full(length + 64, 0xEE, np.uint8)
    kernels.copy_exactly(address_of(target) + 32, address_of(source), length)
    assert (target[:32] == 0xEE).all()
    assert (target[32 + length :] == 0xEE).all()
    assert (target[32 : 32 + length] == source).all()


def test_the_length_of_a_result_too_large_for_int32_is_still_right():
    offsets = np.array([0, 2**30], np.int32)
    rows = np.zeros(5, np.int64)
    ends = np.zeros(6, np.int32)
    places = address_of(offsets), address_of(rows), len(rows), 0, address_of(ends)
    assert kernels.gather_offsets(*places) == 5 * 2**30


@pytest.mark.parametrize("length", range(40))
def test_every_byte_and_the_length_count_in_a_hash(length):
    content = np.frombuffer(bytes(length), np.uint8)
    hashes = {hashing.hash_string(address_of(content), length)}
    for place in range(length):
        changed = content.copy()
        changed[place] = 1
        hashes.add(hashing.hash_string(address_of(changed), length))
    longer = np.zeros(length + 1, np.uint8)
    hashes.add(hashing.hash_string(address_of(longer), length + 1))
    assert len(hashes) == length + 2


@pytest.mark.parametrize("shared", [0, 1, 7, 8, 9, 20])
def test_less_is_memcmp_with_prefixes_first(shared):
    head = b"\xfe" * shared
    tails = [b"", b"\0", b"\0\0", b"a", b"a" * 8, b"a" * 9, b"b", b"\x80", b"\xff", b"\xff" * 9]
    for left in tails:
        for right in tails:
            one = np.frombuffer(head + left, np.uint8)
            other = np.frombuffer(head + right, np.uint8)
            less = keys.string_less(address_of(one), len(one), address_of(other), len(other))
            assert less == (left < right)
