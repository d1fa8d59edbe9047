"""Streams are cut by bytes: never too large, rarely too small, all rows in order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.flight_server.handlers.message_split import cut
from nyala.flight_server.settings.config import ServerConfig

CONFIG = ServerConfig()


def integers(rows: int, start: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(range(start, start + rows), pa.int64())})


def texts(sizes: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"a": ["x" * size for size in sizes]})


def rows_of(batches: list[pa.RecordBatch]) -> list:
    return [value for batch in batches for value in batch["a"].to_pylist()]


def test_large_batch_is_cut_to_about_the_target() -> None:
    cut_up = list(cut([integers(3_000_000)], CONFIG))
    sizes = [batch.nbytes for batch in cut_up]
    assert all(size <= CONFIG.sent_bytes_max for size in sizes)
    assert all(size >= CONFIG.sent_bytes_target * 0.9 for size in sizes[:-1])
    assert sum(batch.num_rows for batch in cut_up) == 3_000_000


def test_small_batches_are_put_together_after_the_first() -> None:
    cut_up = list(cut([integers(1000, 1000 * i) for i in range(500)], CONFIG))
    assert cut_up[0].num_rows == 1000
    assert all(CONFIG.sent_bytes_min <= batch.nbytes <= CONFIG.sent_bytes_max for batch in cut_up[1:-1])
    assert rows_of(cut_up) == list(range(500_000))


def test_rows_of_very_different_size() -> None:
    sizes = [10] * 5000 + [60_000] * 300 + [10] * 5000 + [6_000_000] + [10] * 10
    cut_up = list(cut([texts(sizes)], CONFIG))
    assert all(batch.nbytes <= CONFIG.sent_bytes_max for batch in cut_up if batch.num_rows > 1)
    assert [len(value) for value in rows_of(cut_up)] == sizes


@pytest.mark.parametrize("sizes", [[400_000, 3_400_000], [3_400_000, 400_000], [500_000] * 9])
def test_together_never_above_the_maximum(sizes: list[int]) -> None:
    batches = [texts([10]), *(texts([1, size]) for size in sizes)]
    assert all(batch.nbytes <= CONFIG.sent_bytes_max for batch in cut(batches, CONFIG))


def test_nothing_gives_nothing() -> None:
    assert list(cut([integers(0), integers(0)], CONFIG)) == []


def test_batches_without_columns_keep_their_rows() -> None:
    counted = [integers(rows).select([]) for rows in (5, 0, 7)]
    assert [batch.num_rows for batch in cut(counted, CONFIG)] == [5, 7]


def test_batches_come_as_they_are_made() -> None:
    made = []

    def making():
        for number in range(3):
            made.append(number)
            yield integers(300_000, number)

    stream = cut(making(), CONFIG)
    next(stream)
    assert made == [0]
