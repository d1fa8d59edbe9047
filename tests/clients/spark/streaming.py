"""A campaign of restarts: two streams of a table that is written to all the time are stopped and started at random.
Now and then a task fails, the last batch is forgotten as a crash between two commits would, or a limit changes.

    python tests/clients/spark/streaming.py --restarts 100 --seed 0

One stream writes the changes themselves as rows of a journal, with ``insert``, so that a change that comes twice is
refused, and one that is lost is missed when the journal is compared with the table's own feed. The other applies them
to a copy with the operations of the feed as they are: an insert of a row that is there, an update or a delete of one
that is not would end the query.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import nyala
from nyala.clients.api.database import Database
from nyala.clients.spark.batch_write import StagedParts
from nyala.clients.spark.options import StreamWriteOptions, parse
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.stream_write import StreamWriter

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
JOURNAL = pa.schema([("at", pa.int64()), ("id", pa.int64()), ("op", pa.string()), ("v", pa.int64())])
KEYS = 400
SLOW_SECONDS = 60
"""A query that makes no batch for so long is slow."""
_PLANTED = "planted"
_NO_PYTHON = ("Python worker failed to connect back", "reading the port number from pyspark.daemon's stdout")


def has_no_python(error: str) -> bool:
    """Whether Spark could not start Python: the machine is too busy, or the process was killed before it was ready.

    Such starts prove nothing, so they are few.
    """
    return any(message in error for message in _NO_PYTHON)


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
            time.sleep(self._dice.choice([0.0, 0.02, 0.2]))

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
class Checkpoint:
    """What a stream has noted of its micro-batches."""

    folder: Path
    forgotten: int | None = None
    """The batch whose note was removed, until it has come again."""

    @property
    def batches(self) -> int:
        """How many micro-batches were committed: Spark numbers them from 0, and removes the notes of old ones."""
        return max((int(note.name) + 1 for note in self._notes()), default=0)

    def forget(self) -> bool:
        """Be as a driver that died after the sink's commit and before its own note of it: the batch will come again."""
        number = self.batches - 1
        if number < 0 or self.forgotten is not None:
            return False
        for name in (str(number), f".{number}.crc"):
            (self.folder / "commits" / name).unlink(missing_ok=True)
        self.forgotten = number
        return True

    def has_it_again(self) -> bool:
        """Whether the batch that was forgotten has come again since this was last asked."""
        if self.forgotten is None or self.batches <= self.forgotten:
            return False
        self.forgotten = None
        return True

    def _notes(self) -> list[Path]:
        return list((self.folder / "commits").glob("[0-9]*"))


@dataclass
class Campaign:
    """What it has done, for the report."""

    spark: SparkSession
    db: Database
    uri: str
    folder: Path
    dice: random.Random
    done: Counter[str] = field(default_factory=Counter)
    seconds: float = field(default_factory=time.monotonic)

    def run(self, restarts: int) -> None:
        """Raises AssertionError if a change was lost or came twice, too little was done, or a query ends by itself."""
        self._planted.parent.mkdir(parents=True, exist_ok=True)
        self._planted.touch()
        self.spark.dataSource.register(flaky(str(self._planted)))
        source = self.db.create_table("source", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
        self.db.create_table("copy", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        self.db.create_table("journal", JOURNAL, ["at", "id"], partition_by=[nyala.hash("id", buckets=2)])
        self._checkpoints = {name: Checkpoint(self.folder / name) for name in ("copy", "journal")}
        source.insert({"id": range(KEYS // 2), "v": [-1] * (KEYS // 2)})
        writer = Writer(source, self.dice.randrange(1 << 30))
        writer.start()
        try:
            for number in range(restarts):
                self._restart(number, self.dice.choice(list(self._checkpoints)))
        finally:
            writer.stop()
        for name in self._checkpoints:
            assert self._query(name, "nyala", None, availableNow=True).awaitTermination(300), f"{name} never catches up"
            self._count_batches(name)
        self._compare()
        self._check_that_enough_was_done(restarts)

    @property
    def batches(self) -> int:
        """Micro-batches that were committed, one that came again counted once."""
        return sum(checkpoint.batches for checkpoint in self._checkpoints.values())

    @property
    def _planted(self) -> Path:
        return self.folder / _PLANTED

    def _restart(self, number: int, name: str) -> None:
        fails = self.dice.random() < 0.3
        trigger = self.dice.choice([{"availableNow": True}, {"processingTime": "0 seconds"}])
        wanted = self.dice.choice([0, 1, 1, 2, 3, 8])
        checkpoint = self._checkpoints[name]
        before = checkpoint.batches
        query = self._query(name, "flaky" if fails else "nyala", self.dice.choice([None, 50, 500]), **trigger)
        deadline = time.monotonic() + SLOW_SECONDS
        while query.isActive and checkpoint.batches < before + wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(self.dice.uniform(0.0, 0.5))
        query.stop()
        self._judge(f"restart {number} of {name}", query, wanted == 0 or checkpoint.batches > before)
        self._count_batches(name)
        if self.dice.random() < 0.3:
            self.done["forgotten"] += checkpoint.forget()

    def _judge(self, what: str, query: StreamingQuery, has_moved: bool) -> None:
        """Count how a query has ended. Raises AssertionError if nobody planted that."""
        error = str(query.exception() or "")
        if has_no_python(error):
            self.done["failed starts"] += 1
        elif _PLANTED in error:
            self.done["ended as planted"] += 1
        else:
            assert not error, f"{what}: {error}"
            self.done["slow starts"] += not has_moved

    def _count_batches(self, name: str) -> None:
        self.done["replayed"] += self._checkpoints[name].has_it_again()

    def _query(self, name: str, sink: str, rows_max: int | None, **trigger: Any) -> StreamingQuery:
        options = {"uri": self.uri, "readChangeFeed": "true"}
        if rows_max:
            options["maxRowsPerTrigger"] = str(rows_max)
        changes = self.spark.readStream.format("nyala").options(**options).load("source")
        rows, given = to_write(name, changes)
        written = rows.writeStream.format(sink).options(uri=self.uri, table=name, **given).outputMode("append")
        return written.option("checkpointLocation", str(self.folder / name)).trigger(**trigger).start()

    def _compare(self) -> None:
        """Raises AssertionError unless the copy equals the table, and the journal all that has changed in it."""
        source, copy, journal = (self.db.table(name) for name in ("source", "copy", "journal"))
        assert copy.scan(ordered=True).to_arrow().equals(source.scan(ordered=True).to_arrow()), "the copy differs"
        found = Counter(_rows(journal.scan().to_arrow()))
        begin = min(at for at, *_ in found)
        # What was there at the first commit that the journal tells of came as rows, not as changes.
        first = [(begin, row["id"], "insert", row["v"]) for row in source.scan(as_of=begin).to_arrow().to_pylist()]
        later = source.changes(begin, every=True).to_arrow().rename_columns({"_timestamp": "at", "_op": "op"})
        expected = Counter([*first, *_rows(later)])
        self.done["rows"] = found.total()
        lost, doubled = expected - found, found - expected
        assert not lost and not doubled, f"{lost.total()} changes lost, {doubled.total()} doubled: {lost} {doubled}"

    def _check_that_enough_was_done(self, restarts: int) -> None:
        """A campaign whose queries did nothing would find nothing."""
        self.done["planted"] = len(self._planted.read_bytes())
        idle, most = self.done["slow starts"] + self.done["failed starts"], max(1, restarts // 20)
        assert idle <= most, f"{idle} of {restarts} starts were slow or failed, {most} may be: {dict(self.done)}"
        assert self.batches >= max(restarts - 2, 2), f"{self.batches} batches in {restarts} restarts"
        assert self.done["planted"] or restarts < 30, "no task has failed"
        again, forgotten = self.done["replayed"], self.done["forgotten"]
        assert again == forgotten, f"{again} batches came again, of {forgotten} that were forgotten"

    def report(self) -> str:
        """What was done, in two lines."""
        done = self.done
        return (
            f"{self.batches:,} batches and {done['replayed']} that came again, {done['rows']:,} changes, "
            f"{time.monotonic() - self.seconds:,.0f} s; {done['planted']} tasks failed as planted, and with them "
            f"{done['ended as planted']} queries; {done['slow starts']} slow starts, {done['failed starts']} failed\n"
            "0 lost, 0 doubled: the journal has every change once, and the copy equals the table"
        )


def to_write(name: str, changes: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """Return what is written to a table, and the options."""
    if name == "copy":
        return changes.drop("_timestamp"), {"operationColumn": "_op"}
    return changes.withColumnsRenamed({"_timestamp": "at", "_op": "op"}), {"operation": "insert"}


def _rows(changes: pa.Table) -> list[tuple[int, int, str, int | None]]:
    """Return changes as tuples; a delete tells the values that it deleted."""
    op = pc.cast(changes["op"], pa.string()).to_pylist()
    columns = (changes[name].to_pylist() for name in ("at", "id", "v"))
    return [(at, key, what, v) for (at, key, v), what in zip(zip(*columns, strict=True), op, strict=True)]


def flaky(planted: str) -> type[NyalaDataSource]:
    """Return a sink whose tasks fail now and then, twice in a row some of them, which ends the query. Each failure adds
    a byte to the file ``planted``. Made here, it is sent to Spark by its code."""

    class FlakyWriter(StreamWriter):
        def write(self, iterator: object) -> StagedParts:
            staged = super().write(iterator)  # type: ignore[arg-type]
            if random.random() < 0.3:
                with open(planted, "ab") as file:
                    file.write(b".")
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
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.campaigns import options as drawn

    drawn.add_to(parser)
    arguments = parser.parse_args()
    with drawn.swarm_of(drawn.Features(drawn.LOADS), arguments).round(0):
        _run(arguments.restarts, arguments.seed)


def _run(restarts: int, seed: int) -> None:
    from nyala.engine.fs.memory import MemoryFileSystem
    from nyala.engine.store import Store
    from nyala.flight_server.server import FlightServer
    from tests.campaigns.options import stored
    from tests.clients.spark.sessions import open_session

    folder = Path(mkdtemp())
    store = Store.open(MemoryFileSystem(), stored())
    server = FlightServer(store, "grpc://127.0.0.1:0")
    spark = open_session(folder)
    try:
        uri = f"grpc://127.0.0.1:{server.port}"
        campaign = Campaign(spark, Database(store), uri, folder / "checkpoints", random.Random(seed))
        campaign.run(restarts)
        sys.stdout.write(f"{restarts} restarts, seed {seed}: {campaign.report()}\n")
    finally:
        spark.stop()
        server.shutdown()
        store.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
