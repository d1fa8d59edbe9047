"""Memory that is kept: nobody shares it, freed parts are joined and used again, and empty regions go."""

import itertools
import mmap
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from nyala.engine.vectors.memory.huge_pages import HugePages
from nyala.engine.vectors.memory.memory import SLACK_BYTES, address_of

REGION = 4 << 20
KB = 1024


@pytest.fixture
def memory():
    return HugePages(REGION)


def test_a_kernel_without_huge_pages_gives_small_ones(memory, monkeypatch):
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9_999)  # an advice that this kernel does not know
    with pytest.raises(OSError, match="Invalid argument"):
        mmap.mmap(-1, KB).madvise(mmap.MADV_HUGEPAGE)
    array = memory.allocate(100_001)
    array[:] = 7
    assert array.all()


def test_arrays_are_aligned_and_have_room_to_overshoot(memory):
    first, second = memory.allocate(100_001), memory.allocate(100_001)
    assert address_of(first) % 64 == address_of(second) % 64 == 0
    assert abs(address_of(second) - address_of(first)) >= 100_001 + SLACK_BYTES
    assert first.dtype == np.uint8 and len(first) == 100_001 and first.flags.writeable


def test_a_part_is_free_when_its_last_view_is_gone(memory):
    array = memory.allocate(300 * KB)
    where, view = address_of(array), array[10:20].view(np.int16)
    del array
    assert address_of(memory.allocate(300 * KB)) != where
    del view
    assert address_of(memory.allocate(300 * KB)) == where
    assert memory.mapped_bytes == 0, "nothing is left of it"


def test_free_parts_that_touch_become_one(memory):
    parts = [memory.allocate(900 * KB) for _ in range(4)]
    starts = [address_of(part) for part in parts]
    assert memory.mapped_bytes == REGION
    for number in (2, 0, 1):  # joined with nothing, with nothing, with both
        parts[number] = None
    assert address_of(memory.allocate(2700 * KB)) == starts[0]


def test_what_is_small_or_larger_than_a_region_comes_from_elsewhere(memory):
    arrays = [memory.allocate(0), memory.allocate(1000), memory.allocate(REGION)]
    assert memory.mapped_bytes == 0
    for array in arrays:
        array[:] = 1


def test_random_use_keeps_every_array_as_it_was_written(memory):
    rng = random.Random(3)
    arrays = {}
    for turn in range(4000):
        if arrays and (rng.random() < 0.5 or len(arrays) > 60):
            key = rng.choice(list(arrays))
            assert (arrays.pop(key) == key % 251).all()
        else:
            arrays[turn] = memory.allocate(rng.choice([40, 70, 200, 900]) * KB + rng.randrange(100))
            arrays[turn][:] = turn % 251
    spans = sorted((address_of(array), len(array)) for array in arrays.values())
    assert all(start + length <= after for (start, length), (after, _) in itertools.pairwise(spans))
    arrays.clear()
    assert memory.mapped_bytes == 0


def test_threads_do_not_share(memory):
    def work(number):
        for _ in range(200):
            array = memory.allocate(100 * KB + number)
            array[:] = number
            if not (array == number).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert memory.mapped_bytes == 0


def test_idle_regions_are_kept_as_far_as_allowed_until_nobody_used_them_for_a_while():
    memory = HugePages(REGION, idle_bytes_max=2 * REGION)
    arrays = [memory.allocate(3000 * KB) for _ in range(4)]
    kept = arrays[3][5:6]
    arrays.clear()
    assert (memory.mapped_bytes, memory.idle_bytes) == (3 * REGION, 2 * REGION)
    memory.release_unused(100)
    memory.release_unused(159)
    assert memory.idle_bytes == 2 * REGION, "used before the first call, less than a minute ago"
    memory.release_unused(160)
    assert memory.mapped_bytes == REGION, "one array is held"
    del kept
    assert memory.idle_bytes == memory.mapped_bytes == REGION
    memory.release()
    assert memory.mapped_bytes == 0


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="no huge pages here")
def test_free_parts_return_to_the_system_also_beside_others():
    memory = HugePages(64 << 20)
    arrays = [memory.allocate(250 * KB) for _ in range(800)]
    for number, array in enumerate(arrays):
        array[:] = number % 251
    before, kept = resident(), arrays[::2]
    del arrays, array
    assert resident() > before - (20 << 20), "regions with arrays stay"
    memory.trim()
    assert resident() < before - (80 << 20)
    assert all((each == 2 * number % 251).all() for number, each in enumerate(kept))
    assert memory.mapped_bytes == 4 * (64 << 20)
    again = [memory.allocate(250 * KB) for _ in range(300)]
    for array in again:
        array[:] = 255
    assert memory.mapped_bytes == 4 * (64 << 20)
    assert all((each == 2 * number % 251).all() for number, each in enumerate(kept))


def test_a_full_region_is_not_searched_and_one_with_a_new_gap_is(memory):
    full = [memory.allocate(1000 * KB) for _ in range(8)]
    assert memory.mapped_bytes == 2 * REGION
    more = memory.allocate(1000 * KB)
    assert memory.mapped_bytes == 3 * REGION
    where = address_of(full[1])
    del full[1]
    assert address_of(memory.allocate(1000 * KB)) == where
    assert len(more) == 1000 * KB
