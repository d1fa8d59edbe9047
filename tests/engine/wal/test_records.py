"""Records in one piece of memory or several: what is gathered is what was logged, in parts of the size asked for."""

from __future__ import annotations

from itertools import chain, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from nyala.engine.wal.reader import LogReader
from nyala.engine.wal.records import LogRecords, gathered
from tests.engine.wal.appending import append_record


def logged(bench: Any, count: int, random: Random) -> list[tuple[int, int, bytes]]:
    """Log records of many sizes, in groups of one or several, in several segments."""
    log, _ = bench.open(segment_bytes=4096)
    written: list[tuple[int, int, bytes]] = []
    while len(written) < count:
        for _ in range(random.choice([1, 1, 5])):
            payload = random.randbytes(random.choice([0, 1, 8, 150, 700]))
            lsn = len(written) + 1
            log.writer.reserve(len(payload))
            append_record(log, lsn * 10, [payload])
            written.append((lsn, lsn * 10, payload))
        log.wait(len(written))
    log.close()
    return written


def read(records: LogRecords) -> list[tuple[int, int, bytes]]:
    return [(lsn, timestamp, bytes(payload)) for lsn, timestamp, payload in records]


@pytest.mark.parametrize("seed", range(6))
def test_records_are_gathered_over_groups_and_segments(bench: Any, seed: int) -> None:
    random = Random(seed)
    written = logged(bench, 120, random)
    assert len(bench.logs[0].sizes()) > 2
    for size in (1, 100, 1_000, 1 << 20):
        parts = list(gathered(LogReader(bench.disk, "wal").records(), size))
        assert list(chain.from_iterable(map(read, parts))) == written
        assert all(part.payload_bytes <= size or len(part) == 1 for part in parts)
        together = [one.payload_bytes + other.payload_bytes for one, other in pairwise(parts)]
        assert size == 1 or all(each > size for each in together), "no two parts would be one"
    (whole,) = parts
    assert read(whole.part(7, 30)) == written[7:30]
    assert (whole[-1].lsn, whole.last_lsn, len(whole.part(5, 5))) == (len(written), len(written), 0)
    with pytest.raises(IndexError):
        whole[len(written)]


def test_what_is_gathered_stays_when_its_groups_are_gone(bench: Any) -> None:
    written = logged(bench, 60, Random(1))
    (whole,) = gathered(LogReader(bench.disk, "wal").records(), 1 << 20)
    for number in range(1, 4):
        bench.replace(number, b"\xff" * 4096)
    assert read(whole) == written
    assert len({memory.nbytes for memory in whole.memory}) == 1
    assert np.all(np.diff(whole.timestamps) > 0)
