"""A campaign of restarts: a stream replicates a table that is written to all the time, and is stopped and started at
random. Now and then a task fails, the last batch is forgotten as a crash between two commits would, or a limit changes.

    python tests/spark/streaming.py --restarts 100 --seed 0

The copy is written with the operations of the feed as they are: a change that is lost or comes twice is an insert of a
row that is there, an update or a delete of one that is not, and ends the query with that error.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import nyala
from nyala.clients.database import Database
from nyala.clients.spark.batch_write import Staged
from nyala.clients.spark.options import StreamWriteOptions, parse
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.stream_write import StreamWriter

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
KEYS = 400
_MEANT = ("planted", "Python worker failed to connect back")
"""What a query may end with: the second is Spark's own, of a machine that is too busy to start Python in time."""


class Writer(threading.Thread):
    """Inserts, updates and deletes rows at random until it is stopped."""

    def __init__(self, table: nyala.Table, seed: int) -> None:
        super().__init__(daemon=True)
        self._table = table
        self._dice = random.Random(seed)
        self._ended = threading.Event()
        self.commits = 0

    def run(self) -> None:
        while not self._ended.is_set():
            self.write()
            time.sleep(self._dice.choice([0.0, 0.005, 0.05]))

    def write(self) -> None:
        """Make one commit."""
        ids = self._dice.sample(range(KEYS), self._dice.randint(1, 30))
        if self._dice.random() < 0.3:
            self._table.write({"id": ids}, "delete_ignore")
        else:
            self._table.write({"id": ids, "v": [self.commits] * len(ids)})
        self.commits += 1

    def stop(self) -> None:
        """Return when the last commit is made."""
        self._ended.set()
        self.join()


@dataclass
class Campaign:
    """What it has done, for the report."""

    spark: SparkSession
    db: Database
    uri: str
    folder: Path
    dice: random.Random
    forgotten: int = 0
    failed: int = 0
    batches: int = 0
    seconds: float = field(default_factory=time.monotonic)

    def run(self, restarts: int) -> None:
        """Raises AssertionError if the copy differs in the end, or whatever a query ends with."""
        self.spark.dataSource.register(flaky())
        parts = [nyala.hash("id", buckets=3)]
        source = self.db.create_table("source", SCHEMA, ["id"], partition_by=parts)
        copy = self.db.create_table("copy", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        writer = Writer(source, self.dice.randrange(1 << 30))
        writer.write()
        writer.start()
        try:
            for number in range(restarts):
                self._restart(number)
        finally:
            writer.stop()
        self._query("nyala", availableNow=True).awaitTermination(120)
        expected, found = (table.scan(ordered=True).to_arrow() for table in (source, copy))
        assert found.equals(expected), f"{found.num_rows} rows, {expected.num_rows} expected"

    def _restart(self, number: int) -> None:
        fails = self.dice.random() < 0.15
        trigger = self.dice.choice([{"availableNow": True}, {"processingTime": "0 seconds"}])
        query = self._query("flaky" if fails else "nyala", **trigger)
        if "availableNow" in trigger and self.dice.random() < 0.5:
            with suppress(StreamingQueryException):  # looked at below
                query.awaitTermination(120)
        else:
            self._wait_for(query, self.dice.choice([0, 1, 1, 2, 3]))
            time.sleep(self.dice.uniform(0.0, 0.5))
        query.stop()
        self.batches += len(query.recentProgress)
        error = query.exception()
        is_meant = error is None or any(word in str(error) for word in _MEANT)
        assert is_meant, f"restart {number}: {error}"
        self.failed += error is not None
        if self.dice.random() < 0.3:
            self._forget()

    def _wait_for(self, query: StreamingQuery, batches: int) -> None:
        """Return when a query has made so many batches, has ended, or is too slow."""
        deadline = time.monotonic() + 20
        while query.isActive and len(query.recentProgress) < batches and time.monotonic() < deadline:
            time.sleep(0.05)

    def _query(self, sink: str, **trigger: object) -> StreamingQuery:
        options = {"uri": self.uri, "readChangeFeed": "true"}
        if rows := self.dice.choice([None, 20, 200]):
            options["maxRowsPerTrigger"] = str(rows)
        changes = self.spark.readStream.format("nyala").options(**options).load("source").drop("_timestamp")
        written = changes.writeStream.format(sink).option("uri", self.uri).option("table", "copy")
        written = written.option("operationColumn", "_op").option("checkpointLocation", str(self.folder))
        return written.outputMode("append").trigger(**trigger).start()  # type: ignore[arg-type]

    def _forget(self) -> None:
        """Be as a driver that died after the sink's commit and before its own note of it: the batch will come again."""
        notes = sorted((int(each.name), each) for each in (self.folder / "commits").glob("[0-9]*"))
        if notes:
            number, note = notes[-1]
            note.unlink()
            (note.parent / f".{number}.crc").unlink(missing_ok=True)
            self.forgotten += 1

    def report(self) -> str:
        """One line of what was done."""
        seconds = time.monotonic() - self.seconds
        return (
            f"{self.batches} batches, {self.forgotten} of them forgotten, {self.failed} queries failed as planted, "
            f"{seconds:.0f} s: the copy equals the table, nothing lost, nothing doubled"
        )


def flaky() -> type[NyalaDataSource]:
    """Return a sink one of whose tasks fails now and then, for good; made here, it is sent to Spark by its code."""

    class FlakyWriter(StreamWriter):
        def write(self, iterator: object) -> Staged:
            staged = super().write(iterator)  # type: ignore[arg-type]
            if random.random() < 0.3:
                raise RuntimeError("planted")
            return staged

    class Flaky(NyalaDataSource):
        @classmethod
        def name(cls) -> str:
            return "flaky"

        def streamWriter(self, schema: object, overwrite: bool) -> StreamWriter:
            options = parse(StreamWriteOptions, self.options, "writeStream")
            return FlakyWriter(schema, overwrite, options)  # type: ignore[arg-type]

    return Flaky


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    from sessions import open_session

    from nyala.engine.fs.memory import MemoryFileSystem
    from nyala.engine.options import StoreOptions
    from nyala.engine.store import Store
    from nyala.flight_server.server import FlightServer

    folder = Path(mkdtemp())
    store = Store.open(MemoryFileSystem(), StoreOptions())
    server = FlightServer(store, "grpc://127.0.0.1:0")
    spark = open_session(folder)
    try:
        uri = f"grpc://127.0.0.1:{server.port}"
        campaign = Campaign(spark, Database(store), uri, folder / "checkpoint", random.Random(arguments.seed))
        campaign.run(arguments.restarts)
        sys.stdout.write(f"{arguments.restarts} restarts, seed {arguments.seed}: {campaign.report()}\n")
    finally:
        spark.stop()
        server.shutdown()
        store.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
