"""Pairs of runs at the same time on one folder of backups: every one that reports success keeps its word.

    python tests/clients/jobs/pairs_campaign.py --count 100 --seed 0

Each pair is two of: a backup, a full backup, a restore of a backup at random, one under a name that both take, an
export into a folder that both take. Files are written with pauses between them, and some runs are killed where they
write one. In the end every backup that was reported is restored and compared with what the table held then.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from nyala.clients.api.database import Database
from nyala.clients.jobs.backup.row_hash import Sums
from nyala.clients.jobs.folder import Folder
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.jobs import TableChecksum, backup, checksum, export, restore
from nyala.schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, UnavailableError
from tests.campaigns import options as drawn
from tests.clients.jobs.job_rows import SCHEMA, rows

FEATURES = drawn.Features(drawn.LOADS, without=drawn.OF_MAINTENANCE)
KEYS = 400
REFUSALS = (AlreadyPresentError, ConflictError, InvalidArgumentError, UnavailableError)
"""What one of two may end with."""


class Killed(BaseException):
    """What no code of ours catches."""


@contextmanager
def disturbed(random: Random, kills: float) -> Iterator[None]:
    """Pause before every note that is written, and stop some runs there."""
    write = Folder.write_model

    def slow(folder: Folder, name: str, *given: object, **options: object) -> None:
        time.sleep(random.uniform(0, 0.01))
        if not name.startswith("_lease") and random.random() < kills:
            raise Killed
        write(folder, name, *given, **options)  # pyright: ignore[reportArgumentType]

    Folder.write_model = slow  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        Folder.write_model = write


class Campaign:
    """One store that is backed up, one that is restored into, one folder."""

    def __init__(self, seed: int, folder: Path, root: str | None = None) -> None:
        self.random = Random(seed)
        self.folder = folder
        self.root = root or str(folder / "backups")
        self.source, self.target = (
            Database(Store.open(MemoryFileSystem(), drawn.stored(StoreOptions(maintenance="off")))) for _ in range(2)
        )
        self.table = self.source.create_table(
            "homes", SCHEMA, ["id"], [nyala.hash("id", buckets=3)], drawn.columns(SCHEMA), **drawn.table()
        )
        self.table.insert(rows(range(KEYS)))
        self.made: dict[int, TableChecksum] = {}
        self.counts: Counter[str] = Counter()

    def run(self, pairs: int, kills: float = 0.03) -> None:
        """Make so many pairs, then restore all backups that were reported."""
        for number in range(pairs):
            self.change()
            runs = self.pair(number)
            with disturbed(self.random, kills):
                failed = self.at_once(runs)
            assert not failed, failed[0]
            if number % 10 == 9:
                self.check()
        self.check()
        for database in (self.source, self.target):
            database.close()

    def change(self) -> None:
        first = self.random.randrange(KEYS)
        self.table.upsert(rows(range(first, first + 60), self.random.randrange(9)))
        self.table.delete_ignore({"id": [self.random.randrange(KEYS) for _ in range(20)]})

    def pair(self, number: int) -> list[Callable[[], None]]:
        kinds: list[Callable[[], Callable[[], None]]] = [
            lambda: self.backup,
            lambda: self.backup,
            lambda: lambda: self.backup(force_full=True),
            lambda: lambda: self.restore(f"own {number} {self.random.random()}"),
            lambda: lambda: self.restore(f"both {number}"),
            lambda: lambda: self.export(f"export {number}"),
        ]
        first = self.random.choice(kinds)
        twice = self.random.random() < 0.5
        return [first(), (first if twice else self.random.choice(kinds))()]

    def at_once(self, runs: list[Callable[[], None]]) -> list[BaseException]:
        failed: list[BaseException] = []

        def one(run: Callable[[], None]) -> None:
            try:
                run()
            except Killed:
                self.counts["killed"] += 1
            except REFUSALS as error:
                self.counts[f"refused: {error.code}"] += 1
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=one, args=(run,)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failed

    def backup(self, force_full: bool = False) -> None:
        made = backup(self.source, "homes", self.root, force_full=force_full, split_bytes=4_000, workers=2)
        self.made[made.until] = checksum(self.source, "homes", as_of=made.until)
        self.counts["backups"] += 1

    def restore(self, name: str) -> None:
        if not self.made:
            return
        until = self.random.choice(list(self.made))
        restore(self.target, self.root, "homes", at=until, name=name, workers=2)
        assert checksum(self.target, name).is_same(self.made[until])
        self.counts["restores"] += 1

    def export(self, name: str) -> None:
        made = export(self.source, "homes", self.folder / name, split_bytes=4_000, workers=2)
        found = Sums()
        for batch in pq.read_table(made.folder).to_batches():
            found.add(batch, ["id"])
        wanted = checksum(self.source, "homes", as_of=made.snapshot)
        assert (found.count, found.text) == (wanted.rows, wanted.checksum)
        self.counts["exports"] += 1

    def check(self) -> None:
        """Restore every backup that was reported, and compare."""
        for until, wanted in list(self.made.items()):
            name = f"check {until}"
            assert restore(self.target, self.root, "homes", at=until, name=name).verified, until
            assert checksum(self.target, name).is_same(wanted), until
            self.target.drop_table(name)
        left = [file for file in Folder.at(self.root).names() if file.startswith("_lease")]
        assert not left, left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    with drawn.swarm_of(FEATURES, asked).round(0):
        campaign = Campaign(asked.seed, folder)
        try:
            campaign.run(asked.count)
        finally:
            print(f"seed {asked.seed}: " + ", ".join(f"{count:,} {what}" for what, count in campaign.counts.items()))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
