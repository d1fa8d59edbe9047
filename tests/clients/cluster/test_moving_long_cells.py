"""Cells of up to 1 MiB in a tablet that moves: in files, in memory, in the log, and at earlier moments."""

from __future__ import annotations

import pyarrow as pa

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.recovery.verify import verify_store
from tests.clients.cluster.pair import Pair
from tests.clients.test_long_cells import JSON, MOST, SCHEMA, USUAL, is_refused, row, rows_of

EXPECTED = {key: row(key, size) for key, size in enumerate([MOST, 10, MOST - 1, 3 * USUAL, USUAL + 1, 0])}


def filled(db: Database) -> Table:
    """Return a table with long cells in files and in memory."""
    table = db.create_table("t", SCHEMA, "k", [nyala.hash("k", buckets=2)], column_options=JSON, cell_bytes_max=MOST)
    table.insert(pa.Table.from_pylist([EXPECTED[key] for key in (0, 1, 2)], SCHEMA))
    table.maintain("flush")
    table.insert(pa.Table.from_pylist([EXPECTED[key] for key in (3, 4, 5)], SCHEMA))
    return table


def _move(db: Database, table: Table, name: str, to: str) -> None:
    number = next(place.tablet for place in table.tablets() if place.server == name)
    db.move_tablet("t", number, to, server=name)


def test_long_cells_move_with_their_tablet(pair: Pair) -> None:
    table = filled(pair.db)
    before = pair.db.now()
    table.update([row(0, MOST, 9), row(3, MOST, 9)])
    expected = list({**EXPECTED, 0: row(0, MOST, 9), 3: row(3, MOST, 9)}.values())
    for name, to in ("ab", "ba", "ab"):
        _move(pair.db, table, name, to)
        assert rows_of(table) == expected and rows_of(table, as_of=before) == list(EXPECTED.values())
        assert table.get(2) == expected[2]
    assert "more than 1,048,576 bytes" in is_refused(lambda: table.upsert([row(7, MOST + 1)]))
    table.upsert([row(1, MOST, 5)])
    expected[1] = row(1, MOST, 5)
    for name in "ab":
        pair.crash(name)
    for step in ("", "flush", "compact"):
        table.maintain(step) if step else None
        assert rows_of(table) == expected and rows_of(table, as_of=before) == list(EXPECTED.values())
    pair.close()
    assert [problem for disk in pair.disks.values() for problem in verify_store(disk).problems] == []


def test_a_limit_that_fell_does_not_stop_a_move(pair: Pair) -> None:
    """Cells that are longer than the table now allows move with the others."""
    table = filled(pair.db)
    table.alter().set_option("cell_bytes_max", None).apply()
    for name, to in ("ab", "ba"):
        _move(pair.db, table, name, to)
        assert rows_of(table) == list(EXPECTED.values())
    assert "more than 65,536 bytes" in is_refused(lambda: table.upsert([row(7, USUAL + 1)]))
