"""A bench for each test."""

from collections.abc import Iterator

import pytest

from tests.engine.wal.slots.slot_bench import SlotBench


@pytest.fixture
def bench() -> Iterator[SlotBench]:
    bench = SlotBench()
    yield bench
    bench.close()
