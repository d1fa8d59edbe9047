"""The replay of a crash stays short: what the log needs longest is flushed before it would take too long."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.maintenance import replay_cost
from nyala.engine.maintenance.replay_cost import ReplayCost, ReplayedLog
from nyala.engine.options import StoreOptions
from nyala.engine.record.logged_rows import LoggedRows
from nyala.engine.record.parts import Parts
from nyala.engine.recovery import log_replay
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
ROWS = 200
"""The replay should take no longer than that of about so many single rows."""


@pytest.fixture(autouse=True)
def rows_alone_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second a row, so that a test can count."""
    monkeypatch.setattr(replay_cost, "SECONDS_A_ROW", 1.0)
    monkeypatch.setattr(replay_cost, "SECONDS_A_RECORD", 0.0)
    monkeypatch.setattr(replay_cost, "SECONDS_A_BYTE", 0.0)


class Cramped:
    """A store whose replay must be short, on a disk in memory; ``tables`` are its tables."""

    def __init__(self, count: int = 3, disk: MemoryFileSystem | None = None, **options: Any) -> None:
        self.disk = disk or MemoryFileSystem()
        self.options = StoreOptions(
            maintenance="off", scan_threads=1, wal_segment_bytes=1 << 13, recovery_seconds_max=ROWS, **options
        )
        self.database = Database(Store.open(self.disk, self.options))
        for number in range(count if disk is None else 0):
            levels = [nyala.hash("k", buckets=2)] if number % 2 else []
            self.database.create_table(f"t{number}", SCHEMA, ["k"], partition_by=levels)
        self.tables = [self.database.table(name) for name in sorted(self.database.list_tables())]

    @property
    def store(self) -> Any:
        return self.database._store

    def maintain(self) -> list[str]:
        """Do all work that is due; return what it was."""
        return list(iter(self.store.run_maintenance_once, None))

    def write(self, table: int, *keys: int) -> None:
        for key in keys:
            self.tables[table].upsert([{"k": key, "v": key, "s": "text"}])

    def replayed(self) -> int:
        """Return how many rows the next opening would decode, since files may lack them, if power failed now."""
        decoded: list[int] = []
        rows_of = log_replay.rows_of

        def counted(changes: Parts) -> list[LoggedRows]:
            forms = rows_of(changes)
            decoded.extend(map(len, forms))
            return forms

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log_replay, "rows_of", counted)
            Store.open(self.disk.crash_image(Random(1)), self.options).close()
        return sum(decoded)


@pytest.fixture
def cramped() -> Iterator[Cramped]:
    cramped = Cramped()
    yield cramped
    cramped.database.close()
    assert verify_store(cramped.disk).is_sound


def test_nothing_is_flushed_while_the_replay_is_short(cramped: Cramped) -> None:
    cramped.write(0, *range(ROWS // 2 - 1))
    assert "flush what keeps the log" not in cramped.maintain()
    assert cramped.replayed() == ROWS // 2 - 1
    assert cramped.store._log_freeing.replay_seconds() == ROWS // 2 - 1


def test_what_would_make_the_replay_long_is_flushed(cramped: Cramped) -> None:
    for first in range(0, 5 * ROWS, 50):
        cramped.write(0, *range(first, first + 50))
        cramped.maintain()
        assert cramped.replayed() <= ROWS * 3 // 4
    assert cramped.tables[0].count() == 5 * ROWS
    families = {family.name: family for family in cramped.store.metrics().families}
    assert families["nyala_log_replay_seconds"].samples[0].value <= ROWS


def test_an_idle_table_does_not_keep_the_log(cramped: Cramped) -> None:
    """One old row that nobody flushes would have the log of all other tables read again."""
    cramped.write(2, 7)
    sizes = []
    for first in range(0, 10 * ROWS, 50):
        cramped.write(0, *range(first, first + 50))
        cramped.maintain()
        sizes.append(cramped.store._wal.stats().size_bytes)
    assert max(sizes[len(sizes) // 2 :]) <= 2 * max(sizes[: len(sizes) // 4]), "the log is freed, too"
    assert cramped.tables[2].get(7) == {"k": 7, "v": 7, "s": "text"}
    assert cramped.replayed() <= ROWS


def test_changes_of_rows_on_disk_count_as_new_rows_do(cramped: Cramped) -> None:
    cramped.write(1, *range(20))
    cramped.tables[1].maintain("flush")
    for _ in range(4 * ROWS // 20):
        cramped.write(1, *range(20))
        cramped.maintain()
        assert cramped.replayed() <= ROWS


def test_the_oldest_needs_come_first(cramped: Cramped) -> None:
    for table in (2, 0, 1):
        cramped.write(table, *range(ROWS // 5))
    assert cramped.maintain().count("flush what keeps the log") == 1
    held = {table: [len(each.version.active) for each in found.tablets] for table, found in _tablets(cramped).items()}
    assert held["t2"] == [0], "it came first"
    assert held["t0"] == [ROWS // 5], "later records may stay"


def test_what_was_replayed_counts_at_once(cramped: Cramped) -> None:
    cramped.write(0, *range(2 * ROWS))
    again = Cramped(disk=cramped.disk.crash_image(Random(2)))
    assert again.store._log_freeing.replay_seconds() == 2 * ROWS
    assert again.maintain().count("flush what keeps the log") == 1
    assert again.replayed() == 0
    again.database.close()


def test_tables_without_maintenance_are_flushed_too(cramped: Cramped) -> None:
    cramped.tables[0].alter().set_option("maintenance", "off").apply()
    cramped.write(0, *range(ROWS))
    cramped.maintain()
    assert cramped.replayed() == 0


@pytest.mark.parametrize("seed", range(3))
def test_after_any_history_the_replay_is_short(seed: int) -> None:
    random, cramped = Random(seed), Cramped(key_index_bytes=Random(seed).choice([0, 1 << 20]))
    for _ in range(40):
        table = random.choice([0, 0, 0, 1, 2])
        act = random.random()
        if act < 0.6:
            cramped.write(table, *random.sample(range(300), random.randint(1, 30)))
        elif act < 0.7:
            rows = pa.table([pa.array(range(80), pa.int64())] * 2 + [["many"] * 80], schema=SCHEMA)
            cramped.tables[table].upsert(rows)
        elif act < 0.8:
            cramped.tables[table].delete_ignore([{"k": key} for key in range(random.randrange(200))])
        elif act < 0.9:
            cramped.tables[table].maintain(random.choice(["flush", "flush_deltas", "compact"]))
        elif act < 0.93:
            cramped.database.close()
            cramped = Cramped(disk=cramped.disk, **cramped.options.model_dump(include={"key_index_bytes"}))
        cramped.maintain()
        assert cramped.store._log_freeing.replay_seconds() <= ROWS / 2 + 1
        if random.random() < 0.3:
            assert cramped.replayed() <= ROWS
    cramped.database.close()


def _tablets(cramped: Cramped) -> dict[str, Any]:
    return {table.name: table for table in cramped.store._catalog.tables()}


# The estimate itself


def cost_of(seconds_max: float = 10.0, replayed: ReplayedLog | None = None) -> tuple[ReplayCost, Any, Any]:
    """Return an estimate, the log that it looks at, and a tablet."""
    tablet = SimpleNamespace(tablet_id=3, rows_written=0)
    log = SimpleNamespace(last_lsn=0, first_lsn=1, records=0, bytes_written=0)
    log.stats = lambda: log
    replayed = replayed or ReplayedLog()
    log.last_lsn = replayed.last_lsn
    cost = ReplayCost(log, lambda: [tablet], replayed, seconds_max)  # pyright: ignore[reportArgumentType]
    return cost, log, tablet


def grow(log: Any, tablet: Any, records: int, rows: int) -> None:
    log.last_lsn, log.records, tablet.rows_written = (
        log.last_lsn + records,
        log.records + records,
        tablet.rows_written + rows,
    )


def test_the_cost_is_spread_over_the_records_between_two_looks() -> None:
    cost, log, tablet = cost_of(seconds_max=20)
    grow(log, tablet, records=4, rows=8)
    cost.look()
    grow(log, tablet, records=8, rows=2)
    cost.look()
    assert [cost.seconds_from(lsn) for lsn in (0, 1, 3, 5, 9, 13, 99)] == [10, 10, 6, 2, 1, 0, 0]
    assert cost.overdue_lsn == 0
    grow(log, tablet, records=1, rows=4)
    cost.look()
    assert cost.overdue_lsn == 3, "from there on it is 10 seconds, half of what it may be"
    cost.look()
    assert cost.overdue_lsn == 3, "nothing came"


def test_records_without_rows_and_bytes_cost_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_cost, "SECONDS_A_RECORD", 0.5)
    monkeypatch.setattr(replay_cost, "SECONDS_A_BYTE", 0.001)
    cost, log, tablet = cost_of()
    grow(log, tablet, records=2, rows=0)
    log.bytes_written = 3_000
    cost.look()
    assert cost.seconds_from(1) == 4.0


def test_a_dropped_tablet_gives_nothing_back() -> None:
    cost, log, tablet = cost_of()
    grow(log, tablet, records=5, rows=5)
    cost.look()
    cost._tablets = list
    log.last_lsn, log.records = 10, 10
    cost.look()
    assert cost.seconds_from(1) == 5


def test_what_the_log_has_no_more_is_forgotten() -> None:
    cost, log, tablet = cost_of(seconds_max=1_000)
    for _ in range(2_000):
        grow(log, tablet, records=1, rows=1)
        cost.look()
    assert len(cost._lsns) <= 514
    assert cost.seconds_from(1_501) == pytest.approx(500, abs=4)
    log.first_lsn = 1_990
    cost.look()
    assert len(cost._lsns) < 40 and cost.seconds_from(1_991) == pytest.approx(10, abs=4)


@pytest.mark.parametrize(("seconds", "slowness"), [(50.0, 1.0), (100.0, 1.0), (300.0, 3.0), (1e6, 8.0)])
def test_a_machine_that_took_longer_takes_longer_again(seconds: float, slowness: float) -> None:
    replayed = ReplayedLog(first_lsn=1, last_lsn=100, rows=100, seconds=seconds)
    assert replayed.slowness == slowness
    cost, log, tablet = cost_of(replayed=replayed)
    assert cost.seconds_from(51) == 50 * slowness
    grow(log, tablet, records=10, rows=10)
    cost.look()
    assert cost.seconds_from(101) == pytest.approx(10 * slowness)


def test_a_short_replay_says_nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_cost, "SECONDS_A_ROW", 1e-6)
    assert ReplayedLog(1, 100, 100, 0, seconds=5.0).slowness == 1.0
