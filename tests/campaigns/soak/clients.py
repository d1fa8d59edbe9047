"""The well-behaved clients of a soak: each does one kind of work, again and again, and checks what it sees."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl

import nyala
from nyala.schemas.errors import SnapshotTooOldError
from tests.campaigns.soak.rows import PLAIN, TABLE, OwnRows, check_keys, check_texts

LOAD_ROWS, SMALL_ROWS, TRANSACTION_ROWS = 10_000, 2_000, 500
LOADERS, FOLLOWED = 1, 1_000
"""The first numbers of writers: of loaders, and of those whom followers follow."""
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Access:
    """A server, and what its users show it."""

    url: str
    roots: str
    worker: str
    """The token of a user who may read and write all columns."""
    reader: str
    """The token of one who may read some."""

    def connect(self, token: str) -> nyala.Database:
        """Return a connection as most users have it; those of one process share what lies below."""
        return nyala.connect(self.url, token=token, tls_roots=self.roots)

    def own_client(self) -> fl.FlightClient:
        """Return a plain client with a connection of its own."""
        own = [("grpc.use_local_subchannel_pool", 1)]
        return fl.connect(self.url, tls_root_certs=Path(self.roots).read_bytes(), generic_options=own)

    @staticmethod
    def options(token: str) -> fl.FlightCallOptions:
        """Return what a plain client sends with each call."""
        return fl.FlightCallOptions(timeout=_TIMEOUT_SECONDS, headers=[(b"authorization", f"Bearer {token}".encode())])


@dataclass
class Report:
    """What one client has done since it was last asked. Its thread appends, another one takes."""

    latencies: list[tuple[str, float, float]] = field(default_factory=list)
    """Verb, the moment of its end on the monotonic clock, and seconds."""
    notes: list[str] = field(default_factory=list)
    """What happened that is allowed, but should be rare."""

    @contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        """Measure a request."""
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self.latencies.append((verb, ended, ended - began))


class Client:
    """One client. For one thread."""

    pause_seconds: ClassVar[float]
    """The mean time between two steps: all clients together leave the server time."""

    def __init__(self, access: Access, number: int, random: Random) -> None:
        self.access, self.number, self.random = access, number, random
        self.report = Report()
        self.open()

    def open(self) -> None:
        """Connect."""
        self.database = self.access.connect(self.access.worker)
        self.table = self.database.table(TABLE)

    def step(self) -> None:
        """Send a request or a few."""
        raise NotImplementedError

    def check(self) -> int:
        """Compare what the table holds with what this client knows, after the last step of all; return the number of
        rows compared."""
        return 0

    def close(self) -> None:
        """Disconnect."""
        self.database.close()


class _Writer(Client):
    first: ClassVar[int]
    row_count: ClassVar[int]

    def open(self) -> None:
        super().open()
        self.own = OwnRows(self.first + self.number, self.row_count)

    def check(self) -> int:
        where = f"writer = {self.own.writer}"
        return self.own.check(self.table.scan(where=where, ordered=True).to_arrow())


class Loader(_Writer):
    """Replaces all of its rows in one commit, by a stream of its own; sometimes deletes a part."""

    pause_seconds, first, row_count = 2.0, LOADERS, LOAD_ROWS

    def step(self) -> None:
        if self.random.random() < 0.8:
            rows = self.own.written(self.own.all())
            with self.report.timed("load"):
                self.table.write(rows, commit="stream")
        else:
            keys = self.own.deleted(self.own.some(self.random, LOAD_ROWS // 10))
            with self.report.timed("delete many"):
                self.table.write(keys, "delete_ignore", commit="stream")


class SmallWriter(_Writer):
    """Writes and deletes a few rows at a time, by a session."""

    pause_seconds, first, row_count = 0.05, FOLLOWED, SMALL_ROWS

    def step(self) -> None:
        numbers = self.own.some(self.random, self.random.choice([1, 1, 8]))
        if self.random.random() < 0.7:
            rows = self.own.written(numbers).to_pylist()
            with self.report.timed("upsert"):
                self.table.upsert(rows)
        else:
            keys = self.own.deleted(numbers).to_pylist()
            with self.report.timed("delete"):
                self.table.delete_ignore(keys)


class Transactor(_Writer):
    """Writes some rows and deletes others in one transaction; aborts some."""

    pause_seconds, first, row_count = 2.0, FOLLOWED, TRANSACTION_ROWS

    def step(self) -> None:
        if self.random.random() < 0.2:
            transaction = self.database.transaction()
            transaction.upsert(TABLE, OwnRows(self.own.writer, TRANSACTION_ROWS).written(self.own.all()))
            transaction.abort()
            return
        keys = self.own.deleted(self.own.some(self.random, 50))
        rows = self.own.written(self.own.some(self.random, 50))
        with self.report.timed("transaction"), self.database.transaction() as transaction:
            transaction.delete_ignore(TABLE, keys)
            transaction.upsert(TABLE, rows)


class Getter(Client):
    """Reads rows by their keys."""

    pause_seconds = 0.03

    def step(self) -> None:
        key = FOLLOWED + self.random.randrange(16), self.random.randrange(SMALL_ROWS)
        with self.report.timed("get"):
            row = self.table.get(key)
        assert row is None or row["text"] == f"{row['number']}-{row['version']}", row


class TinyScanner(Client):
    """Reads some columns of a few rows, as a user who may not read the others."""

    pause_seconds = 0.1

    def open(self) -> None:
        self.database = self.access.connect(self.access.reader)
        self.table = self.database.table(TABLE)

    def step(self) -> None:
        least = self.random.randrange(SMALL_ROWS)
        where = f"number >= {least} and number < {least + 20} and writer >= {FOLLOWED}"
        with self.report.timed("tiny scan"):
            rows = self.table.scan(PLAIN, where).to_arrow()
        check_keys(rows)


class FullScanner(Client):
    """Reads all rows, and checks that each is whole."""

    pause_seconds = 2.0

    def step(self) -> None:
        with self.report.timed("full scan"):
            rows = self.table.scan().to_arrow()
        check_keys(rows)
        check_texts(rows)


class Aggregator(Client):
    """Counts rows by writer; those of a loader have one version, since each load is one commit."""

    pause_seconds = 0.3

    def step(self) -> None:
        with self.report.timed("aggregate"):
            scan = self.table.scan(where=f"writer < {FOLLOWED}")
            sums = {"least": ("version", "min"), "most": ("version", "max")}
            found = scan.aggregate(sums, group_by=["writer"])
        assert found["least"].equals(found["most"]), f"a scan shows half a commit: {found.to_pylist()}"


class Follower(Client):
    """Keeps a copy of the rows of small writers and transactions, by the changes since its last look."""

    pause_seconds = 0.5
    _where = f"writer >= {FOLLOWED}"

    def open(self) -> None:
        super().open()
        self._copy_all()

    def step(self) -> None:
        with self.report.timed("changes"):
            scan = self.table.changes(self._since, where=self._where)
            try:
                found = scan.to_arrow()
            except SnapshotTooOldError:  # the machine stood still for longer than the table's history
                self.report.notes.append("a follower came too late for the history, and copied all rows")
                self._copy_all()
                return
        assert scan.snapshot is not None
        self._since = scan.snapshot
        for row in found.to_pylist():
            key = row["writer"], row["number"]
            if row["_op"] == "delete":
                self._rows.pop(key, None)
            else:
                self._rows[key] = row["version"]

    def check(self) -> int:
        self.step()
        kept, since = self._rows, self._since
        self._copy_all()
        differ = dict(kept.items() ^ self._rows.items())
        assert not differ, f"the copy of {since} differs in {len(differ)} rows, such as {list(differ.items())[:3]}"
        return len(kept)

    def _copy_all(self) -> None:
        self._since = self.database.now()
        found = self.table.scan(PLAIN, self._where, as_of=self._since).to_arrow()
        writers, numbers, versions = (found[name].to_pylist() for name in PLAIN)
        self._rows = dict(zip(zip(writers, numbers, strict=True), versions, strict=True))


class Connector(Client):
    """Connects anew for each request."""

    pause_seconds = 0.5

    def open(self) -> None:
        pass

    def step(self) -> None:
        with self.report.timed("connect"), closing(self.access.own_client()) as client:
            ticket = {"table": TABLE, "where": f"writer >= {FOLLOWED}", "limit": 10}
            reader = client.do_get(fl.Ticket(json.dumps(ticket).encode()), self.access.options(self.access.worker))
            rows: pa.Table = reader.read_all()
        assert pc.all(pc.greater_equal(rows["writer"], FOLLOWED)).as_py() is not False

    def close(self) -> None:
        pass
