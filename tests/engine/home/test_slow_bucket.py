"""A store in a bucket behind a line of 100 KB a second, with the usual lease: time passes only on that line."""

from __future__ import annotations

import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.bucket.patient import PatientBucket
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.sweep_bucket import leftovers
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.engine.wal.slots import SlotOptions
from tests.doubles.faulty_bucket import impatience
from tests.doubles.slots import BootClock
from tests.doubles.slow_line import SlowLine, SlowObjects
from tests.doubles.watcher import Watcher

OPTIONS = StoreOptions(maintenance="off", lease_seconds=5)
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("text", pa.string())])
MIB = 1 << 20


class SlowPlace:
    """A bucket, the machine behind the line, and one beside the bucket."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.boot = BootClock()
        self.line = SlowLine(self.boot, 1e5)

    def home(self, is_slow: bool = True) -> BucketHome:
        objects = SlowObjects(self.objects, self.line) if is_slow else self.objects
        bucket = PatientBucket(objects, impatience(3))
        return BucketHome(bucket, "a", "memory://test", MemoryFileSystem(), self.boot, self.boot.wait, False)

    def watch(self, home: BucketHome) -> Watcher:
        """Let somebody stand by who takes the store over after the usual silence."""
        assert home.held is not None
        log = home.held.open_log()
        return Watcher(home.slots, self.line, log, SlotOptions())  # pyright: ignore[reportArgumentType]


def test_large_writes_land_though_they_take_longer_than_the_lease() -> None:
    place = SlowPlace()
    home = place.home()
    with Store.open(home, OPTIONS) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        watcher = place.watch(home)
        began = place.boot()
        text = [f"{each:06}" * 2000 for each in range(120)]
        rows = pa.table({"id": range(120), "n": [0] * 120, "text": text}, SCHEMA)
        table.upsert(rows)
        upserted = place.boot()
        table.update_where({"text": "text || text"}, "id >= 0")
        updated = place.boot()
        assert upserted - began > 13 and updated - upserted > 27, "each is one record"
        assert not watcher.has_claimed and watcher.lapses == 0
    fresh = place.home(is_slow=False)
    assert verify_bucket(fresh).is_sound and not leftovers(fresh)
    with Store.open(place.home(is_slow=False), OPTIONS) as store:
        assert Database(store).table("t").scan(columns=["text"]).to_arrow()["text"].to_pylist() == [
            2 * each for each in text
        ]
