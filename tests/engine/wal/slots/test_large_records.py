"""Records that take longer to put than the time of a lease."""

import pytest

from nyala.engine.wal.slots import SlotOptions, check_slots
from tests.doubles.slow_line import SlowLine, SlowSlots
from tests.doubles.watcher import Watcher
from tests.engine.wal.slots.slot_bench import SlotBench, put

MIB = 1 << 20
OPTIONS = SlotOptions(ttl_seconds=5.0, beat_seconds=1.5, patience_seconds=30.0)


@pytest.mark.parametrize(
    ("size", "bytes_per_second"),
    [(13 * MIB, 1e6), (29 * MIB, 1e6), (MIB, 16e3)],
    ids=["13 MiB", "29 MiB", "over a minute"],
)
def test_a_record_lands_though_it_takes_longer_than_the_lease(
    bench: SlotBench, size: int, bytes_per_second: float
) -> None:
    line = SlowLine(bench.boot, bytes_per_second)
    log, _ = bench.open(OPTIONS, SlowSlots(bench.slots, line))
    watcher = Watcher(bench.slots, line, log, OPTIONS)
    put(log, b"before", b"x" * size, b"after")
    assert not watcher.has_claimed and watcher.lapses == 0
    assert bench.boot() - 100 > size / bytes_per_second
    log.close()
    assert check_slots(bench.slots).problems == []
    assert [len(each) for each in bench.open()[1]] == [6, size, 5]
