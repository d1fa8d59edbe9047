"""A move that is cut off at every step: by whoever drives it, or by a power failure of either server.

Each time there is one owner and no row is missing, before anybody does anything about it; and the same call ends the
move.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import PowerFailure
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import StoreError
from tests.clients.cluster.pair import Pair, Stopped

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
COUNT = 60


def rows(n: int) -> pa.Table:
    return pa.table([pa.array(range(COUNT)), pa.array([n] * COUNT)], schema=SCHEMA)


def loaded(pairs: list[Pair]) -> tuple[Pair, Table, int]:
    """Two servers with a table, and the tablet that is to move from a to b."""
    pair = Pair()
    pairs.append(pair)
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert(rows(0))
    table.maintain("flush")
    table.upsert(rows(1))
    (number,) = [place.tablet for place in table.tablets() if place.server == "a"]
    return pair, table, number


def check(pair: Pair, table: Table, n: int) -> None:
    """All rows are there, each at one server; also by a client that comes now."""
    assert pair.db.table("t").scan(ordered=True).to_arrow().combine_chunks() == rows(n).combine_chunks()
    assert len(pair.owners("t")) == 2
    table.upsert(rows(n + 1))
    assert table.scan(ordered=True).to_arrow().combine_chunks() == rows(n + 1).combine_chunks()


def check_end(pair: Pair, table: Table, number: int, n: int) -> None:
    """The same call ends the move, which lasts, and nothing is left of attempts."""
    pair.stop_at = None
    pair.db.move_tablet("t", number, "b", server="a")
    assert pair.owners("t") == ["b", "b"]
    check(pair, table, n)
    for name in "ab":
        pair.crash(name)
    check(pair, table, n + 1)
    assert not any(store.moves("t").arriving or store.moves("t").left for store in pair.stores.values())
    pair.close()
    for disk in pair.disks.values():
        report = verify_store(disk)
        assert (report.problems, report.notes) == ([], [])
        assert disk.list("moves") == [] if disk.exists("moves") else True


def steps() -> list[str]:
    made: list[Pair] = []
    pair, _, number = loaded(made)
    pair.calls.clear()
    pair.db.move_tablet("t", number, "b")
    pair.close()
    return list(pair.calls)


def test_whoever_drives_stops_at_each_step(pairs: list[Pair]) -> None:
    calls = steps()
    assert {"a move_hand_over", "b move_take_over", "b move_prepare", "b move_fetch", "a move_forget"} <= set(calls)
    for step, name in enumerate(calls):
        for after in (False, True):
            pair, table, number = loaded(pairs)
            pair.calls.clear()
            pair.stop_at, pair.after = step, after
            with pytest.raises(Stopped):
                pair.db.move_tablet("t", number, "b")
            pair.stop_at = None
            for crashed in ("", "a", "b", "ab")[(step + after) % 4]:
                pair.crash(crashed, seed=step)
            print(step, name, after)
            check(pair, table, 1)
            check_end(pair, table, number, 2)


@pytest.mark.parametrize("name", ["a", "b"])
def test_the_power_fails(pairs: list[Pair], name: str) -> None:
    pair, _, number = loaded(pairs)
    before = pair.disks[name].operations
    pair.db.move_tablet("t", number, "b")
    count = pair.disks[name].operations - before
    assert count > 10
    for call in range(0, count, 2):
        pair, table, number = loaded(pairs)
        pair.disks[name].crash_at = pair.disks[name].operations + call
        with suppress(StoreError, PowerFailure, OSError):
            pair.db.move_tablet("t", number, "b")
        pair.crash(name, seed=call)
        print(call, count)
        check(pair, table, 1)
        check_end(pair, table, number, 2)
