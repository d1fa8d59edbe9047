"""Lent memory: one borrower at a time, for as long as a view of it lives; bounded, and released when nobody asks."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.vectors.memory.lending import Lender
from nyala.engine.vectors.memory.memory import SLACK_BYTES, address_of

MIB = 1 << 20


def test_memory_that_came_back_is_lent_again() -> None:
    lender = Lender()
    first = lender.lend(1000)
    assert (first.dtype, first.shape, first.flags.writeable) == (np.uint8, (1000,), True)
    first[:] = 7
    place = address_of(first)
    del first
    again = lender.lend(MIB - SLACK_BYTES)
    assert address_of(again) == place and again[999] == 7


def test_it_has_slack_past_its_end_and_a_block_of_the_next_power_of_two() -> None:
    lender = Lender()
    most = MIB - SLACK_BYTES
    for length, block in ((0, MIB), (1, MIB), (most, MIB), (most + 1, 2 * MIB), (MIB, 2 * MIB)):
        lent = lender.lend(length)
        assert len(lent) == length
        room = np.lib.stride_tricks.as_strided(lent, (length + SLACK_BYTES,), writeable=True)
        room[:] = 1  # within the block, or the next assertion is about memory that was overwritten
        del lent, room
        assert lender.idle_bytes == block
        lender.release()


@pytest.mark.parametrize(
    "view_of",
    [
        lambda lent: lent[10:20],
        lambda lent: lent[4:].view(np.int32),
        lambda lent: lent[::2][3:],
        lambda lent: lent.data[1:],
        lambda lent: memoryview(lent).cast("B")[2:],
        lambda lent: pa.py_buffer(lent).slice(1),
        lambda lent: np.frombuffer(lent.data, np.uint16),
        lambda lent: pa.Array.from_buffers(pa.uint8(), 50, [None, pa.py_buffer(lent)]).slice(3),
        lambda lent: [lent],
    ],
    ids=["slice", "dtype", "stride", "memoryview", "cast", "buffer", "frombuffer", "array", "cycle"],
)
def test_nothing_is_lent_twice_while_a_view_lives(view_of) -> None:
    lender = Lender()
    lent = lender.lend(100)
    place = address_of(lent)
    view = view_of(lent)
    if isinstance(view, list):
        view.append(view)  # only the collector finds it
    del lent
    other = lender.lend(100)
    assert address_of(other) != place and lender.idle_bytes == 0
    del view
    gc.collect()
    assert lender.idle_bytes == MIB
    assert address_of(lender.lend(100)) == place


def test_idle_memory_is_bounded() -> None:
    lender = Lender(idle_bytes_max=4 * MIB)
    lent = [lender.lend(100) for _ in range(20)]
    assert len({address_of(each) for each in lent}) == 20
    assert lender.idle_bytes == 0
    del lent
    assert lender.idle_bytes == 4 * MIB
    lender.lend(3 * MIB)  # a larger one finds no room
    assert lender.idle_bytes == 4 * MIB


def test_it_is_released_when_nobody_has_asked_for_a_while() -> None:
    lender = Lender()
    lent = lender.lend(100)
    lender.release_unused(100)
    del lent
    lender.release_unused(159)
    assert lender.idle_bytes == MIB
    lender.lend(100)
    lender.release_unused(165)
    assert lender.idle_bytes == MIB, "it was lent since the last call"
    lender.release_unused(225)
    assert lender.idle_bytes == 0


def test_what_is_lent_survives_a_release() -> None:
    lender = Lender()
    lent = lender.lend(100)
    lent[:] = 3
    lender.release()
    lender.release_unused(100)
    lender.release_unused(200)
    assert (lent == 3).all()


def test_released_memory_goes_to_the_operating_system() -> None:
    lender = Lender(idle_bytes_max=64 * MIB)
    lent = lender.lend(60 * MIB)
    lent[:] = 1
    del lent
    before = resident_bytes()
    lender.release()
    assert resident_bytes() < before - 50 * MIB


def test_many_threads_never_share_a_block() -> None:
    lender = Lender(idle_bytes_max=4 * MIB)
    stop = time.monotonic() + 1.0
    start = threading.Barrier(8)

    def borrow(number: int) -> int:
        random = np.random.default_rng(number)
        turns = 0
        start.wait()
        while time.monotonic() < stop:
            lent = lender.lend(int(random.integers(1, 3000)))
            lent[:] = number
            view = lent[len(lent) // 2 :]
            del lent
            if turns % 16 == 0:
                time.sleep(0)
            if turns % 64 == 0:
                lender.release_unused(time.monotonic() + 60 * turns)
            assert (view == number).all()
            turns += 1
        return turns

    with ThreadPoolExecutor(8) as pool:
        turns = list(pool.map(borrow, range(8)))
    assert min(turns) > 0
    gc.collect()
    assert 0 <= lender.idle_bytes <= 4 * MIB


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
