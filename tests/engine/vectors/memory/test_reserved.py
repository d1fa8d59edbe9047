"""Reserved memory: taken when it is written, used again by one array at a time, and given back."""

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest

from nyala.engine.vectors.growable import GrowableColumn
from nyala.engine.vectors.memory.huge_pages import HUGE_PAGE_BYTES
from nyala.engine.vectors.memory.memory import SLACK_BYTES, address_of
from nyala.engine.vectors.memory.reserved import COLUMNS, ReservedMemory, filled_up_to
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

MB = 1 << 20


@pytest.fixture
def memory() -> ReservedMemory:
    return ReservedMemory(idle_bytes_max=64 * MB)


def filled(memory: ReservedMemory, length: int, filled_bytes: int) -> np.ndarray:
    array = memory.reserve(length)
    array[:filled_bytes] = 7
    filled_up_to(array, filled_bytes)
    return array


def test_memory_is_taken_when_it_is_written(memory):
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    length = 256 * MB
    before = resident()
    array = memory.reserve(length)
    assert len(array) >= length
    assert address_of(array) % HUGE_PAGE_BYTES == 0
    array[:10] = array[-10:] = 7
    ctypes.memset(address_of(array) + len(array), 7, SLACK_BYTES)
    assert resident() - before < 32 * MB
    assert array[9] == array[-10] == 7


def test_it_is_used_again_when_the_last_view_is_gone(memory):
    array = filled(memory, 5 * MB, 3 * MB)
    where, view = address_of(array), array[10:20].view(np.int16)
    del array
    assert memory.idle_bytes == 0 and address_of(memory.reserve(5 * MB)) != where
    del view
    assert memory.idle_bytes == 4 * MB, "whole huge pages count"
    assert address_of(memory.reserve(4 * MB)) == where, "of the same power of two"
    assert address_of(memory.reserve(40 * MB)) != where


def test_the_fullest_is_used_first(memory):
    arrays = [filled(memory, 7 * MB, size * MB) for size in (1, 6, 3)]
    where = address_of(arrays[1])
    arrays.clear()
    assert address_of(memory.reserve(7 * MB)) == where


def test_what_a_successor_has_not_filled_counts_as_kept(memory):
    filled(memory, 30 * MB, 30 * MB)
    successor = filled(memory, 30 * MB, 2 * MB)
    assert memory.idle_bytes == 28 * MB, "the system does not have them back"
    others = [filled(memory, 30 * MB, 30 * MB) for _ in range(3)]
    others.clear()
    assert memory.idle_bytes == 58 * MB
    filled_up_to(successor, 20 * MB)
    assert memory.idle_bytes == 40 * MB
    del successor
    assert memory.idle_bytes == 60 * MB


def test_no_more_is_kept_than_the_limit(memory):
    arrays = [filled(memory, 30 * MB, 30 * MB) for _ in range(4)]
    arrays.clear()
    assert memory.idle_bytes == 60 * MB


def test_it_returns_to_the_system_when_nothing_uses_it(memory):
    filled(memory, 5 * MB, 2 * MB)
    memory.release_unused(100)
    memory.release_unused(159)
    assert memory.idle_bytes == 2 * MB, "used less than a minute ago"
    memory.release_unused(160)
    assert memory.idle_bytes == 0


def test_zeroed_memory_has_zeros_wherever_it_was_written(memory):
    for length in (3 * MB, 2 * MB + 1, 3 * MB + 5, 4 * MB - SLACK_BYTES):
        array = memory.zeroed(length)
        assert not array[:length].any()
        array[:length] = 7
        where = address_of(array)
        del array
    assert address_of(memory.reserve(4 * MB - SLACK_BYTES)) == where, "it was one memory each time"


def test_a_dropped_column_says_what_it_filled(monkeypatch):
    monkeypatch.setattr(COLUMNS, "idle_bytes_max", 1 << 40)
    COLUMNS.release()
    column = GrowableColumn(PhysicalType.INT64)
    for _ in range(100):
        column.append(FixedVector(np.arange(10_000)))
    view = column.view(len(column))
    del column
    assert COLUMNS.idle_bytes == 0
    assert isinstance(view, FixedVector) and np.array_equal(view.values, np.tile(np.arange(10_000), 100))
    del view
    assert COLUMNS.idle_bytes == 8 * MB, "8,000,000 bytes in whole huge pages"
    COLUMNS.release()
