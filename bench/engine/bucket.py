"""A store in a bucket beside one in a directory, where a PUT and the first byte of a GET take 30 ms.

The bucket is in memory, and a request takes nothing but its 30 ms: what is measured is how well the store hides them.
"""

import gc
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.engine import tablets
from bench.engine.far_objects import FarObjects, far_bucket
from bench.engine.scratch import OPTIONS, Results
from bench.measure import seconds, take_turns
from bench.report import Suite
from nyala.clients.api.database import Database
from nyala.engine.cfile.format import StreamKey
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand

PUT_SECONDS = GET_SECONDS = 0.030
LOCAL, FAR, RATIO = "directory", "bucket", "ratio"
BATCH_ROWS, ROWS_MAX = 10_000, 500_000
LOADED = 4
"""A load has so many times the rows of the other cases: it waits once for the last of its slots, so that a short one
measures that wait and not its rate."""
GETS, SINGLE_ROWS, WRITERS, WRITER_ROWS = 2_000, 40, 64, 20
TABLETS, TABLET_ROWS = tablets.BUCKETS * tablets.RANGES, 100
COLUMNS = (["price"], ["status", "price"], ["key", "city", "reading", "reference"])

_SMALL = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@contextmanager
def far_store(objects: FarObjects, cache: Path, **options: Any) -> Iterator[Database]:
    """Open the store in a bucket with a directory for its cache."""
    home = BucketHome(far_bucket(objects), "a", "memory://bench", LocalFileSystem(cache))
    with Database(Store.open(home, StoreOptions(**{**OPTIONS, **options}))) as database:
        yield database


class BucketBench:
    """Two stores with the same rows, one in a directory and one in a bucket; each method measures one thing."""

    def __init__(self, rows: int, rounds: int, work: Path, console: Console, with_openings: bool = True) -> None:
        self.rounds, self.work, self.with_openings = rounds, work, with_openings
        self.results = Results(console)
        self.rows = data.orders(min(rows, ROWS_MAX))
        self.objects = FarObjects(PUT_SECONDS, GET_SECONDS)
        self.numbers = count()

    def run(self) -> Results:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        try:
            with nyala.open(str(self.work / "local"), **OPTIONS) as local:
                with far_store(self.objects, self.work / "cache", lease_seconds=60) as far:  # whatever else runs here
                    stores = {LOCAL: local, FAR: far}
                    self._loads(stores)
                    self._warm({name: database.table("loaded-0") for name, database in stores.items()})
                    self._rows(stores)
                self._cold_scans()
            if self.with_openings:
                self._openings()
            return self.results
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    def _loads(self, stores: dict[str, Database]) -> None:
        """Load a table in commits of 10,000 rows each, as a stream of such batches does, and one in a call; make the
        tables of the other cases."""
        loaded = data.orders(LOADED * self.rows.num_rows)

        def batches(database: Database, name: str, rows: pa.Table) -> None:
            for _ in database._store.write_all(
                WriteCommand(table=name, op=Operation.INSERT), rows.to_batches(BATCH_ROWS)
            ):
                pass

        def one_call(database: Database, name: str, rows: pa.Table) -> None:
            database.table(name).insert(rows)

        for case, load in (("batches of 10,000 rows", batches), ("one call", one_call)):

            def timed(database: Database, number: int, load: Any = load) -> float:
                name = f"load-{number}"
                database.create_table(name, data.SCHEMA, primary_key=[data.KEY])  # which is no part of the rate
                taken = seconds(lambda: load(database, name, loaded))
                database.drop_table(name)
                return taken

            actions = {name: partial(timed, database) for name, database in stores.items()}
            samples = take_turns(actions, self.rounds, lambda action: action())
            self._compare(
                f"load in {case}", "rows/s", {name: [len(loaded) / each for each in samples[name]] for name in samples}
            )
        for database in stores.values():
            for number in range(self.rounds):
                database.create_table(f"loaded-{number}", data.SCHEMA, primary_key=[data.KEY])
                batches(database, f"loaded-{number}", self.rows)
        flushes = self._turns(stores, lambda database, number: database.table(f"loaded-{number}").maintain("flush"))
        self._compare(f"flush of {self.rows.num_rows:,} rows", "s", flushes)

    def _warm(self, tables: dict[str, Any]) -> None:
        reads: dict[str, Callable[[Any], object]] = {
            "full scan, warm": lambda table: table.scan().to_arrow(),
            "two columns, warm": lambda table: table.scan(columns=["status", "price"]).to_arrow(),
            "1 % by price, warm": lambda table: table.scan(where="price > 330").to_arrow(),
            f"{GETS:,} gets, warm": self._gets,
        }
        for case, read in reads.items():
            for table in tables.values():
                for _ in range(3):
                    read(table)
            found = self._turns(tables, lambda table, number, read=read: read(table), self.rounds * 5)
            self._compare(case, "s", found)

    def _gets(self, table: Any) -> None:
        for key in self.rows["key"].to_numpy()[:: self.rows.num_rows // GETS or 1][:GETS].tolist():
            table.get(key)

    def _rows(self, stores: dict[str, Database]) -> None:
        """What an acknowledgement takes beyond one PUT, with one writer, and beyond two, with many."""
        for database in stores.values():
            database.create_table("single", _SMALL, ["id"])
        for writers, rows, puts in ((1, SINGLE_ROWS, 1), (WRITERS, WRITER_ROWS, 2)):
            who = "one writer" if writers == 1 else f"{writers} writers"
            for name, database in stores.items():
                samples = [median(self._acks(database.table("single"), writers, rows)) for _ in range(self.rounds)]
                self.results.add(f"acknowledgement of a row, {who}", "s", samples, name)
                if name == FAR:
                    beyond = [each - puts * PUT_SECONDS for each in samples]
                    what = "a PUT" if puts == 1 else f"{puts} PUTs"
                    self.results.add(f"the same, beyond {what}", "s", beyond, name)

    def _acks(self, table: Any, writers: int, rows: int) -> list[float]:
        taken: list[float] = []

        def work() -> None:
            for _ in range(rows):
                row = {"id": next(self.numbers), "v": 1}
                if writers == 1:
                    time.sleep(0.005)  # the log is idle when the next row comes
                taken.append(seconds_of(lambda row=row: table.insert([row])))

        threads = [threading.Thread(target=work) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return taken

    def _cold_scans(self) -> None:
        """The bytes that a scan of some columns fetches, beside those of the pages that it needs."""
        for names in COLUMNS:
            cache = self.work / "cold"
            shutil.rmtree(cache, ignore_errors=True)
            with far_store(self.objects, cache, lease_seconds=60) as database:
                table = database.table("loaded-0")
                needed = needed_bytes(database._store, "loaded-0", names)  # pyright: ignore[reportArgumentType]
                self.objects.reset()
                taken = seconds(lambda table=table, names=names: table.scan(columns=names).to_arrow())
            case = f"cold scan of {len(names)} of {len(data.SCHEMA)} columns"
            self.results.add(case, "s", [taken], FAR)
            self.results.add(f"{case}: bytes beside those needed", "x", [self.objects.got_bytes / needed], FAR)

    def _openings(self) -> None:
        """Open a store of 1,000 tablets with two files each, with an empty cache and with a warm one."""
        objects, local = FarObjects(0, 0), str(self.work / "tablets")
        dice, rows = np.random.default_rng(1), TABLETS * TABLET_ROWS
        columns = [np.arange(rows), dice.integers(0, tablets.RANGES, rows), dice.random(rows)]

        def opened(cache: str) -> AbstractContextManager[Database]:
            return far_store(objects, self.work / cache, lease_seconds=60)

        for made in (nyala.open(local, **OPTIONS), opened("warm")):
            with made as database:
                table = database.create_table("t", tablets.SCHEMA, ["host", "time"], partition_by=tablets.LEVELS)
                table.insert(pa.table(columns, schema=tablets.SCHEMA))
                table.maintain("flush")
        objects.put_seconds, objects.get_seconds = PUT_SECONDS, GET_SECONDS
        ways: dict[tuple[str, str], Callable[[int], AbstractContextManager[Database]]] = {
            ("cold", FAR): lambda number: opened(f"cold-{number}"),
            ("warm", FAR): lambda number: opened("warm"),
            ("warm", LOCAL): lambda number: nyala.open(local, **OPTIONS),
        }
        taken: dict[tuple[str, str], list[float]] = {each: [] for each in ways}
        for number in range(self.rounds):
            for each, way in ways.items():
                gc.collect()
                began = time.perf_counter()
                with way(number):
                    taken[each].append(time.perf_counter() - began)
        for (case, subject), found in taken.items():
            self.results.add(f"open {TABLETS:,} tablets, {case}", "s", found, subject)

    def _turns(
        self, subjects: dict[str, Any], act: Callable[[Any, int], object], rounds: int | None = None
    ) -> dict[str, list[float]]:
        actions = {name: lambda number, each=each: act(each, number) for name, each in subjects.items()}
        return take_turns(actions, rounds or self.rounds)

    def _compare(self, case: str, unit: str, samples: dict[str, list[float]]) -> None:
        for name, found in samples.items():
            self.results.add(case, unit, found, name)
        ratios = [far / local for far, local in zip(samples[FAR], samples[LOCAL], strict=True)]
        self.results.add(case, "x", ratios, RATIO)


def seconds_of(action: Callable[[], object]) -> float:
    """Return how long a call takes, without a collection of garbage before it."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def needed_bytes(store: Store, name: str, columns: list[str]) -> int:
    """Return the bytes of all pages of some columns of a table."""
    table = store._catalog.table(name)
    ids = [table.version.schema.column(each).id for each in columns]
    readers = [rowset.reader for tablet in table.tablets for rowset in tablet.version.on_disk]  # pyright: ignore
    return sum(reader.stream(StreamKey(each, "base")).compressed_bytes for reader in readers for each in ids)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure, after a short rehearsal that compiles what has to be compiled."""
    BucketBench(20_000, 1, work, Console(quiet=True), with_openings=False).run()
    settings = {
        "rows": min(rows, ROWS_MAX),
        "rows of a load": LOADED * min(rows, ROWS_MAX),
        "rounds": rounds,
        "milliseconds of a request": round(PUT_SECONDS * 1e3),
    }
    return Suite("bucket", settings, BucketBench(rows, rounds, work, console).run().all)
