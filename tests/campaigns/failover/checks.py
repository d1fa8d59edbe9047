"""What must be true of a store when all of its servers have stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import nyala
from nyala.engine.home.bucket import BucketHome
from nyala.engine.manifest import files
from nyala.engine.recovery.bucket_state import state_of
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.wal.slots import SlotReport, check_slots
from tests.campaigns.crash.kill9 import MODEL
from tests.campaigns.failover.clients import changes_of, registers_at
from tests.campaigns.failover.cluster import Cluster
from tests.campaigns.model.feed import feed
from tests.campaigns.model.oracle import Row
from tests.campaigns.options import keywords


@dataclass
class Checked:
    """What one store had when its campaign was over."""

    slots: int
    claims: int
    changes: int
    swept: int


def check(cluster: Cluster, cache: Path, moments: int) -> Checked:
    """Check all of a store: its log, its files, its rows, now and before, its change feed, and that nothing else is
    left. ``moments``: how often it reads a register at a drawn moment."""
    home = cluster.home
    slots = check_sound(home)
    own = keywords(bucket_cache=str(cache), lease_seconds=cluster.lease_seconds)
    with nyala.open(cluster.url, name="a", **own) as database:
        changes = _check_contents(cluster, database)
        _check_moments(cluster, database, moments)
    return Checked(slots.end, len(slots.claims), changes, check_swept(home))


def check_sound(home: BucketHome) -> SlotReport:
    """Check the log and the files of a store that nobody has; return what its log has."""
    slots = check_slots(home.slots)
    assert not slots.problems, slots.problems[:3]
    report = verify_bucket(home)
    assert report.is_sound, report.problems[:3]
    return slots


def check_swept(home: BucketHome) -> int:
    """Sweep a store that was released; check that all it needs stays, and nothing else. Return how much was swept."""
    swept = sweep(home)
    assert not leftovers(home), "a sweep leaves something behind"
    check_sound(home)
    strangers = sorted({name for name, _ in home.bucket.list(home.prefix)} - set(_expected(home)))
    assert not strangers, f"nobody needs {strangers[:5]}"
    return len(swept)


def _check_contents(cluster: Cluster, database: nyala.Database) -> int:
    assert not database.health().damaged, database.health().damaged
    registers, who = cluster.registers, (0, 0)
    registers.check(registers.before(), dict(registers_at(database)), who)
    while known := next(iter(cluster.snapshots.kept), None):
        rows = registers_at(database, known.timestamp)
        cluster.snapshots.check(known, rows, known.others, who)
        cluster.snapshots.kept.remove(known)
    found, until = changes_of(database, cluster.begin)
    _same_changes(found, _expected_changes(cluster, until), "the change feed")
    followed = sorted(cluster.follower.rows, key=lambda row: (row[2], row[3], row[1]))
    _same_changes(followed, _expected_changes(cluster, cluster.follower.since), "what was followed")
    live = {_cells(row) for row in database.table("t").scan().to_arrow().to_pylist()}
    known_rows = {_cells(row) for writer in cluster.writers for row in writer.oracle.now().values()}
    assert live == known_rows, f"rows differ: {sorted(live ^ known_rows)[:3]}"
    return len(found)


def _check_moments(cluster: Cluster, database: nyala.Database, count: int) -> None:
    """Read registers at drawn moments, many of them the first or last of a value."""
    table = database.table("r")
    for register, moment, value in cluster.registers.drawn(cluster.random, cluster.begin, count):
        found = table.scan(["v"], where=f"k = {register}", as_of=moment).to_arrow()["v"].to_pylist()
        assert found == [value], f"register {register} was {value} at {moment}, and now shows {found}"
        cluster.snapshots.counts["moments"] += 1


def _cells(row: Row) -> tuple:
    return tuple(row[name] for name in MODEL.columns)


def _expected_changes(cluster: Cluster, until: int) -> list[tuple]:
    changes = partial(feed, since=cluster.begin, until=until, every=True)
    return [tuple(each.cells(MODEL.columns, False)) for writer in cluster.writers for each in changes(writer.oracle)]


def _same_changes(found: list[tuple], expected: list[tuple], what: str) -> None:
    lost, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    assert not lost and not extra, f"{what}: lost {list(lost)[:3]}, never acknowledged or twice {list(extra)[:3]}"
    assert found == expected, f"{what} is in another order"


def _expected(home: BucketHome) -> Iterator[str]:
    """Yield the names of all objects that a store needs."""
    state, slots = state_of(home), check_slots(home.slots)
    header = state.newest.header
    yield from (home.slots.name(number) for number in {*slots.claims, *range(slots.needed_slot, slots.end + 1)})
    yield from (f"{home.prefix}chunks/{name}" for name in state.chunk_names)
    yield f"{home.prefix}manifests/{header.manifest}"
    yield f"{home.prefix}where"
    yield f"{home.prefix}authors"
    for table in state.manifest.tables:
        for tablet in table.tablets:
            directory = f"{home.prefix}{files.directory(tablet.home)}"
            yield from (f"{directory}/{name}" for rowset in tablet.rowsets for name in rowset.file_names)
