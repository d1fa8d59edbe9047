"""Scans of a store whose column files are in a bucket: what they answer, and what they ask of the bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.bucket.memory import MemoryBucket
from nyala.engine.cfile.format import StreamKey
from nyala.engine.fs import FileSystem, LocalFileSystem, MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.scan.read import chunk
from nyala.engine.store import Store
from nyala.engine.tablet.tablet import Tablet
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.encrypted import encrypted
from tests.doubles.far_tablets import far_tablets
from tests.doubles.watched_bucket import WatchedBucket

ROWS = 400_000
COLUMNS = 12


def rows() -> pa.RecordBatch:
    random = np.random.default_rng(1)
    columns: dict[str, Any] = {"k": np.arange(ROWS)}
    for number in range(COLUMNS):
        if number % 3 == 2:
            words = np.array([f"word {each:x}" for each in random.integers(0, 1 << 40, 5_000)])
            columns[f"c{number}"] = pa.array(words[random.integers(0, 5_000, ROWS)])
        else:
            columns[f"c{number}"] = random.integers(0, 1 << (4 + 4 * number), ROWS)
    return pa.record_batch(columns)


def options(**more: Any) -> StoreOptions:
    return StoreOptions(**{"maintenance": "off", "page_cache_bytes": 1 << 20, **more})


@pytest.fixture(scope="module")
def written() -> tuple[WatchedBucket, MemoryFileSystem, pa.Table]:
    """A store with a table in one rowset, closed."""
    bucket, near = WatchedBucket(MemoryBucket()), MemoryFileSystem()
    store = Store.open(far_tablets(near, BucketFileSystem(bucket, "", MemoryFileSystem(), 1 << 30, "s")), options())
    batch = rows()
    store.create_table(TableDefinition.from_arrow("t", batch.schema, ["k"]))
    store.write(WriteCommand(table="t"), batch)
    store.maintain("t", "flush")
    store.close()
    return bucket, near, pa.Table.from_batches([batch])


Opened = Callable[..., Store]


@pytest.fixture
def opened(written: tuple[WatchedBucket, MemoryFileSystem, pa.Table], tmp_path: Path) -> Opened:
    bucket, near, _ = written

    def open_one(cache: str = "cache", bucket_cache_bytes: int = 1 << 30, **more: Any) -> Store:
        far = BucketFileSystem(bucket, "", LocalFileSystem(tmp_path / cache), bucket_cache_bytes, "s")
        store = Store.open(far_tablets(near.crash_image(Random(1)), far), options(**more))
        bucket.reset()
        return store

    return open_one


def table(store: Store, **spec: Any) -> pa.Table:
    return store.scan(ScanSpec(table="t", **spec)).to_reader().read_all()


def needed_bytes(store: Store, *names: str) -> int:
    """The bytes of all pages of columns."""
    found = store._catalog.table("t")
    ids = [found.version.schema.column(name).id for name in names]
    tablets: tuple[Tablet, ...] = found.tablets
    readers = [rowset.reader for tablet in tablets for rowset in tablet.version.on_disk]
    return sum(reader.stream(StreamKey(each, "base")).compressed_bytes for reader in readers for each in ids)


@pytest.mark.parametrize("names", [("c0",), ("c2", "c7"), ("k", "c1", "c4", "c5"), tuple(f"c{n}" for n in range(12))])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_cold_scan_fetches_the_pages_that_it_needs(
    opened: Opened, written: tuple[WatchedBucket, MemoryFileSystem, pa.Table], names: tuple[str, ...], threads: int
) -> None:
    bucket, _, expected = written
    store = opened(scan_threads=threads)
    found = table(store, columns=list(names))
    assert found == expected.select(names).cast(found.schema)
    assert needed_bytes(store, *names) <= bucket.got_bytes <= 1.2 * needed_bytes(store, *names)
    fetched = bucket.got_bytes
    assert table(store, columns=list(names)).num_rows == ROWS and bucket.got_bytes == fetched
    store.close()
    again = opened()
    assert table(again, columns=list(names)).num_rows == ROWS and not bucket.ranges
    again.close()


@pytest.mark.parametrize(
    "spec", [{"columns": ["k", "c1", "c2"]}, {"columns": ["c4"], "where": "c0 < 8"}, {"columns": ["c5"], "limit": 10}]
)
def test_what_the_page_cache_has_is_not_fetched(
    opened: Opened, written: tuple[WatchedBucket, MemoryFileSystem, pa.Table], spec: dict[str, Any]
) -> None:
    """Though the disk has given it up: pages in memory are the hottest, and the disk sees nobody use them."""
    bucket = written[0]
    store = opened(bucket_cache_bytes=1 << 20, page_cache_bytes=256 << 20)
    first = table(store, **spec)
    assert bucket.got_bytes > 0
    bucket.reset()
    assert table(store, **spec) == first and not bucket.ranges
    store.close()


def test_pages_are_fetched_ahead_and_together(
    opened: Opened, written: tuple[WatchedBucket, MemoryFileSystem, pa.Table]
) -> None:
    """One thread scans; the requests for its pages are under way at once, and neighbours are one request."""
    bucket = written[0]
    store = opened(scan_threads=1)
    bucket.delay_seconds = 0.02
    try:
        names = [f"c{number}" for number in range(COLUMNS)]
        assert table(store, columns=names).num_rows == ROWS
        assert bucket.most_at_once > 1 and len(bucket.ranges) <= 4
        filtered = table(opened("other"), columns=["c1", "c5"], where="c0 < 8 AND k >= 300000")
        assert 0 < filtered.num_rows < 100_000
    finally:
        bucket.delay_seconds = 0


@pytest.mark.parametrize(
    "spec",
    [
        {"columns": ["c1", "c2"], "where": "c0 = 3 AND c2 LIKE 'word 1%'"},
        {"columns": ["k", "c4"], "ordered": True, "where": "k BETWEEN 1000 AND 200000"},
        {"columns": ["c5"], "limit": 10},
        {"columns": ["k", "c2"], "where": "k IN (5, 70000, 399999)"},
    ],
)
def test_far_files_answer_as_near_ones_do(
    opened: Opened, written: tuple[WatchedBucket, MemoryFileSystem, pa.Table], spec: dict[str, Any]
) -> None:
    """Cold, warm, and with a cache whose pieces are damaged all the time."""
    bucket, _, expected = written
    store = Store.open(MemoryFileSystem(), options())
    store.create_table(TableDefinition.from_arrow("t", expected.schema, ["k"]))
    store.write(WriteCommand(table="t"), expected.combine_chunks().to_batches()[0])
    store.maintain("t", "flush")
    wanted = table(store, **spec)
    far = opened()
    assert table(far, **spec) == wanted
    fetched = bucket.got_bytes
    assert table(far, **spec) == wanted and bucket.got_bytes == fetched


@pytest.mark.parametrize("disk", [MemoryFileSystem, lambda: encrypted(MemoryFileSystem())])
def test_scans_of_near_files_ask_for_none_ahead(
    disk: Callable[[], FileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first rows that are read are in memory."""
    store = Store.open(disk(), options())
    store.create_table(TableDefinition.from_arrow("t", rows().schema, ["k"]))
    store.write(WriteCommand(table="t"), rows().slice(0, 1_000))
    for module, name in ((chunk, "_fetched"), (DiskRowSet, "fetch")):
        monkeypatch.setattr(module, name, None)
    for _ in range(2):
        for spec in ({}, {"ordered": True}, {"where": "c0 < 3"}, {"aggregate": {"n": ("c1", "sum")}}):
            assert table(store, **spec).num_rows > 0
        store.maintain("t", "flush")
    store.close()


def test_many_cold_files_open_with_one_request_each(bucket_of_many: tuple[WatchedBucket, MemoryFileSystem]) -> None:
    bucket, near = bucket_of_many
    bucket.reset()
    bucket.delay_seconds = 0.01
    far = BucketFileSystem(bucket, "", MemoryFileSystem(), 1 << 30, "s")
    store = Store.open(far_tablets(near.crash_image(Random(1)), far), options())
    assert (bucket.calls["list"], bucket.calls["size"]) == (1, 0)
    assert 16 < bucket.most_at_once <= 64
    assert len(bucket.ranges) == bucket.calls["get_range"] == len(bucket.inner.list("tablets/")) == 128
    bucket.delay_seconds = 0
    assert table(store).num_rows == 6_400
    store.close()


@pytest.fixture
def bucket_of_many() -> tuple[WatchedBucket, MemoryFileSystem]:
    """A closed store with a table of 64 tablets, each with a rowset and its UNDO file."""
    bucket, near = WatchedBucket(MemoryBucket()), MemoryFileSystem()
    store = Store.open(far_tablets(near, BucketFileSystem(bucket, "", MemoryFileSystem(), 1 << 30, "s")), options())
    batch = pa.record_batch({"k": np.arange(6_400), "v": np.arange(6_400)})
    levels = [{"hash": ["k"], "buckets": 64}]
    store.create_table(TableDefinition.from_arrow("t", batch.schema, ["k"], partition_by=levels))
    store.write(WriteCommand(table="t"), batch)
    store.maintain("t", "flush")
    store.close()
    return bucket, near


def test_a_merge_fetches_its_inputs_in_few_requests(tmp_path: Path) -> None:
    bucket, near = WatchedBucket(MemoryBucket()), MemoryFileSystem()
    store = Store.open(far_tablets(near, BucketFileSystem(bucket, "", MemoryFileSystem(), 1 << 30, "s")), options())
    batch = rows().slice(0, 300_000)
    store.create_table(TableDefinition.from_arrow("t", batch.schema, ["k"]))
    for part in range(2):
        store.write(WriteCommand(table="t"), batch.filter(pa.array(np.arange(len(batch)) % 2 == part)))
        store.maintain("t", "flush")
    store.close()
    far = BucketFileSystem(bucket, "", LocalFileSystem(tmp_path), 1 << 30, "s")
    store = Store.open(far_tablets(near, far), options())
    size = sum(size for name, size in bucket.inner.list("tablets/") if name.endswith(".base"))
    bucket.reset()
    store.maintain("t", "compact")
    assert len(bucket.ranges) < 20 and bucket.got_bytes < 1.05 * size
    assert table(store, ordered=True) == pa.Table.from_batches([batch]).cast(table(store).schema)
    store.close()
