"""Kill a mirror, its PostgreSQL and its store, under load, and look for rows that differ or torn transactions.

    python tests/campaigns/mirror/campaign.py --seconds 600 --kills 50 --seed 0

Three threads change five tables. A reader looks at snapshots of the store: the amounts of two tables add up to zero
after every transaction, and so in every snapshot. In the end all tables are compared row by row. Then a light load
shows the lag without kills: how old the newest visible moment is, looked at every 20 ms.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from bench.compare.peers.nyala_subject import free_port
from nyala.clients.cli.run import EXIT_CODES
from nyala.schemas.errors import StoreError, UnavailableError
from tests.campaigns import options as drawn
from tests.campaigns.crash.kill9 import Server
from tests.campaigns.mirror.load import TABLES, Load, create
from tests.clients.sources.postgres_server import PostgresServer
from tests.clients.sources.rows import of_postgres, of_store

PROGRAM = Path(__file__).with_name("mirror_process.py")
_LOADS = 3
_ABSENT = EXIT_CODES[UnavailableError.code]
"""How a mirror ends that finds no store when it starts; a signal that comes earlier ends it as any process."""
FEATURES = drawn.Features(drawn.LOADS, allowed={"durability"})
_CATCH_UP_SECONDS = 180
_CALM_PAUSE_SECONDS = 0.02


class Mirror:
    """A process that mirrors the tables into the server at ``url``."""

    def __init__(self, postgres: PostgresServer, url: str, log: Path, mistake: str) -> None:
        tables = [word for name in TABLES for word in ("--table", f"public.{name}")]
        self._arguments = [sys.executable, str(PROGRAM), mistake, "mirror", postgres.url, *tables, "--url", url]
        self._log = log
        self._process = self._start()

    def _start(self, *more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen([*self._arguments, *more], stdout=log, stderr=log, env=os.environ)

    def kill_and_start(self) -> None:
        """Kill it, and start the next one."""
        self.check()
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def check(self) -> None:
        """Check that it runs; start it again, as a supervisor would, if it had no store at its start."""
        if (code := self._process.poll()) == _ABSENT:
            self._process = self._start()
        elif code is not None:
            raise AssertionError(f"the mirror ended with {code}: {self._log.read_text()[-2000:]}")

    def watch(self, until: float) -> None:
        """Wait for a moment of the clock ``time.monotonic``; see to it that it runs meanwhile."""
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.2))

    def catch_up(self) -> None:
        """End it, and apply the rest."""
        self.check()
        self._process.terminate()
        assert self._process.wait(60) in (0, _ABSENT, -signal.SIGTERM), self._log.read_text()[-2000:]
        self._process = self._start("--until-caught-up")
        assert self._process.wait(_CATCH_UP_SECONDS) == 0, self._log.read_text()[-2000:]
        self._process = self._start()

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


class Reader(threading.Thread):
    """Looks at snapshots of the store, and at the age of what they show."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._ended = threading.Event()
        self.snapshots = 0
        self.torn: list[str] = []
        self.ages: list[float] = []

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self.join(60)

    def check(self) -> None:
        """Check that no snapshot was torn."""
        assert not self.torn, f"{len(self.torn)} torn snapshots: {self.torn[:3]}"

    def run(self) -> None:
        """Look until ``stop``; a store that is down is looked at later."""
        while not self._ended.wait(0.02):
            try:
                with nyala.connect(self._url) as database:
                    while not self._ended.wait(0.02):
                        self._look(database)
            except StoreError:
                continue

    def _look(self, database: nyala.Database) -> None:
        if not {"debit", "credit", "beat"} <= set(database.tables()):
            return
        at = database.now()
        sums = [
            database.table(name).scan(as_of=at).aggregate({"sum": ("amount", "sum")}).to_pylist()[0]["sum"] or 0
            for name in ("debit", "credit")
        ]
        self.snapshots += 1
        if sum(sums):
            self.torn.append(f"at {at} the sums are {sums}")
        if row := database.table("beat").get((1,)):
            self.ages.append(time.time() - row["at"].replace(tzinfo=UTC).timestamp())


@dataclass
class Campaign:
    """One run; all figures of it."""

    seed: int
    mistake: str = "none"
    kills: dict[str, int] = field(default_factory=lambda: {"mirror": 0, "postgres": 0, "store": 0})
    changes: int = 0
    transactions: int = 0
    seconds: float = 0.0
    snapshots: int = 0
    rows: int = 0
    ages: list[float] = field(default_factory=list)
    """In the calm after the kills: how old what the store shows is, in seconds."""

    def run(self, seconds: float, kills: int, calm_seconds: float) -> None:
        """Run the load for some seconds, with so many kills, compare, and look at the lag in the calm.

        Raises:
            AssertionError: a transaction was torn, or rows differ.
        """
        random = Random(self.seed)
        postgres = PostgresServer()
        try:
            with tempfile.TemporaryDirectory(prefix="nyala-mirror-") as folder:
                create(postgres)
                self._run(postgres, Path(folder), random, seconds, kills)
                self._calm(postgres, Path(folder), random, calm_seconds)
        finally:
            postgres.remove()

    def _run(self, postgres: PostgresServer, folder: Path, random: Random, seconds: float, kills: int) -> None:
        port = free_port()
        server = Server(folder / "store", port)
        mirror = Mirror(postgres, server.location, folder / "log", self.mistake)
        reader = Reader(server.location)
        loads = [Load(postgres, Random(random.random())) for _ in range(_LOADS)]
        began = time.monotonic()
        try:
            for thread in (reader, *loads):
                thread.start()
            moments = sorted(random.uniform(0.5, seconds) for _ in range(kills))
            for moment in moments:
                mirror.watch(began + moment)
                victim = random.choices(["mirror", "postgres", "store"], [6, 1, 2])[0]
                self.kills[victim] += 1
                if victim == "mirror":
                    mirror.kill_and_start()
                elif victim == "postgres":
                    postgres.stop("immediate")
                    postgres.start()
                else:
                    server.kill()
                    server = Server(folder / "store", port)
            mirror.watch(began + seconds)
            for load in loads:
                load.stop()
            reader.check()  # before the rest, which takes minutes if the batches are small
            mirror.catch_up()
            self.seconds = time.monotonic() - began
            reader.stop()
            self._check(postgres, server.location, reader, loads)
        finally:
            mirror.close()
            server.kill()

    def _check(self, postgres: PostgresServer, url: str, reader: Reader, loads: list[Load]) -> None:
        self.changes = sum(load.changes for load in loads)
        self.transactions = sum(load.transactions for load in loads)
        self.snapshots = reader.snapshots
        sums = "SELECT (SELECT sum(amount) FROM debit) + (SELECT sum(amount) FROM credit)"
        assert postgres.execute(sums) == [(0,)], "the load itself does not keep the sum"
        reader.check()
        with nyala.connect(url) as database:
            for table in TABLES:
                columns = ", ".join(field.name for field in database.table(table).schema)
                there, here = of_postgres(postgres, table, columns), of_store(database, table)
                lost, extra = set(there) - set(here), set(here) - set(there)
                assert there == here, f"{table}: {len(lost)} rows differ: {list(lost)[:2]}, here {list(extra)[:2]}"
                self.rows += len(here)

    def _calm(self, postgres: PostgresServer, folder: Path, random: Random, seconds: float) -> None:
        """Look at the lag under a light load."""
        with Server(folder / "store") as server:
            mirror = Mirror(postgres, server.location, folder / "log", "none")
            load = Load(postgres, random, _CALM_PAUSE_SECONDS)
            beat = _Beat(postgres)
            reader = Reader(server.location)
            try:
                beat.start()
                load.start()
                mirror.catch_up()
                time.sleep(3)
                reader.start()
                time.sleep(seconds)
                reader.stop()
                load.stop()
                beat.stop()
            finally:
                mirror.close()
        reader.check()
        self.ages = sorted(reader.ages)

    def report(self) -> str:
        """Return all figures as a text."""
        killed = ", ".join(f"{count} of {name}" for name, count in self.kills.items())
        return (
            f"seed {self.seed}: {self.changes:,} changes in {self.transactions:,} transactions, {killed} killed, in "
            f"{self.seconds:.0f} s ({self.changes / self.seconds:,.0f} changes/s); {self.snapshots:,} snapshots, none "
            f"torn; {self.rows:,} rows equal; lag in the calm p50 {self._age(0.5):.2f} s, p99 {self._age(0.99):.2f} s"
        )

    def _age(self, share: float) -> float:
        return self.ages[min(int(share * len(self.ages)), len(self.ages) - 1)]


class _Beat(threading.Thread):
    """Writes the time into PostgreSQL, fifty times a second."""

    def __init__(self, postgres: PostgresServer) -> None:
        super().__init__(daemon=True)
        self._postgres = postgres
        self._ended = threading.Event()

    def run(self) -> None:
        """Work until ``stop``."""
        with self._postgres.connection() as connection, connection.cursor() as cursor:
            while not self._ended.wait(0.02):
                cursor.execute("UPDATE beat SET at = clock_timestamp()")

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self.join(60)


def main() -> None:
    """Run the campaign, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kills", type=int, help="by default one in twelve seconds")
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    campaign = Campaign(options.seed)
    kills = max(round(options.seconds / 12), 1) if options.kills is None else options.kills
    with drawn.swarm_of(FEATURES, options).round(0):
        campaign.run(options.seconds, kills, min(options.seconds / 4, 60))
    print(campaign.report())


if __name__ == "__main__":
    main()
