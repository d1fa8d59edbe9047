"""A process that stands by has the ends of files in its cache before it opens them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.engine.bucket import bucket_of
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.ahead import CacheAhead
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.wal.slots.reader import newest_slot
from nyala.engine.wal.slots.slot import SlotHeader
from nyala.engine.wal.slots.standby import Standby
from tests.doubles.waiting import until
from tests.doubles.watched_bucket import WatchedBucket

OPTIONS = StoreOptions(maintenance="off", lease_seconds=20)


class Bench:
    """A holder, and the way of another machine to the bucket."""

    def __init__(self, folder: Path) -> None:
        self.bucket = bucket_of(f"file://{folder / 'bucket'}")
        self.watched = WatchedBucket(self.bucket)
        self.disk = LocalFileSystem(folder / "cache")
        home = BucketHome(self.bucket, "a", "file://test", MemoryFileSystem(), probes=False)
        self.holder = Store.open(home, OPTIONS)
        table = Database(self.holder).create_table("t", pa.schema([("id", pa.int64())]), ["id"])
        self.table = table

    def flush(self, *ids: int) -> SlotHeader:
        """Write files; return the slot that names them."""
        for each in ids:
            self.table.insert([{"id": each}])
            self.table.maintain("flush")
        newest = newest_slot(BucketHome(self.bucket, "a", "file://test").slots)
        assert newest is not None
        return newest.header

    def home(self) -> BucketHome:
        return BucketHome(self.watched, "a", "file://test", self.disk, probes=False)

    def fetched(self) -> list[str]:
        return sorted({name for name, *_ in self.watched.ranges})

    def files(self) -> list[str]:
        return [name for name, _ in self.bucket.list("stores/a/tablets/")]


def test_a_standby_opens_files_without_a_request_for_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.flush(1, 2, 3)
    opened: list[Store] = []
    home = bench.home().by(Standby(), [])
    opening = threading.Thread(target=lambda: opened.append(Store.open(home, OPTIONS)))
    opening.start()
    until(lambda: bench.fetched() == bench.files())
    bench.watched.reset()
    bench.holder.close()
    opening.join(30)
    with closing(opened[0]) as store:
        assert bench.watched.ranges == [], "all was here"
        assert Database(store).table("t").count() == 3
    until(lambda: not any(thread.name == "nyala-ahead" for thread in threading.enumerate()))


def test_each_file_is_fetched_once_and_after_a_failure_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ahead = CacheAhead(bench.watched, "stores/a/", bench.disk, 1 << 20, pause_seconds=0.01)
    ahead.see(bench.flush(1, 2))
    until(lambda: bench.fetched() == bench.files())
    before = bench.files()
    bench.watched.reset()
    failed: list[str] = []
    for failing in ("get", "list", "get_range"):

        def fails(_: int, call: str, failing: str = failing) -> bool:
            return call == failing and not failed.append(call)

        bench.watched.failing = fails
        ahead.see(bench.flush(len(failed) + 3))
        until(lambda failing=failing: failing in failed)
    bench.watched.failing = lambda *_: False
    until(lambda: bench.fetched() == sorted({*bench.files()} - {*before}))
    ahead.stop()
    bench.holder.close()
