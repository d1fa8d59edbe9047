"""Random nested columns, four types deep, by every way into a table and out of one: each cell comes as it was.

    python tests/campaigns/nested/campaign.py --count 10000 --seed 0

A count is one table: rows are written, changed, moved between memory and files, read at an earlier moment and as
changes, and taken by every way of ``ways.py`` into another table. Then it has one of the lives of ``lives.py``, which
cost more: ``--life NAME`` gives all tables that one. A failure ends the run with the table, shrunk.
"""

from __future__ import annotations

import argparse
import functools
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import count
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings

from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import LocalFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.rows.write import Durability
from tests.campaigns import options as drawn_options
from tests.campaigns.nested.drawn import Drawn, tables
from tests.campaigns.nested.lives import LIVES
from tests.campaigns.nested.ways import WAYS, Journey, rows_of, through_a_backup

PROCESSES = 2
FEATURES = drawn_options.Features(
    drawn_options.FEW_ROWS, without=drawn_options.OF_MAINTENANCE | {drawn_options.ENCRYPTION}
)
_ROUND = 400
"""So many tables are in stores of the same options."""
OPTIONS = StoreOptions(maintenance="off", durability=Durability.OS)


def journey_of(drawn: Drawn, folder: Path) -> None:
    """Take a table by all ways. Raises an AssertionError, which names the way that changed a cell."""
    with Store.open(LocalFileSystem(folder), drawn_options.stored(OPTIONS)) as store:
        server = FlightServer(store, "grpc://127.0.0.1:0")
        try:
            with closing(connect(f"grpc://127.0.0.1:{server.port}")) as remote:
                expected = _life(drawn, Journey(Database(store), remote, folder, count()))
        finally:
            server.shutdown()
    with Store.open(LocalFileSystem(folder), drawn_options.stored(OPTIONS)) as store:
        same_cells("a restart", rows_of(Database(store).table("t")), expected)
    assert verify_store(drawn_options.unlocked(LocalFileSystem(folder))).is_sound, "verify"
    life_of(list(LIVES)[drawn.life % len(LIVES)], drawn, folder / "life")


def life_of(name: str, drawn: Drawn, folder: Path) -> None:
    """Take a table through one of the lives. Raises an AssertionError, which names what changed a cell."""
    LIVES[name](drawn, folder, same_cells)


def _life(drawn: Drawn, journey: Journey) -> pa.Table:
    """Write the rows, change them, and take them by all ways; return what the table has at the end."""
    table = journey.embedded.create_table("t", drawn.rows.schema, "k", row_column=drawn.row_column)
    writes = journey.remote.table("t") if drawn.is_remote else table
    writes.insert(drawn.rows)
    _check("a write", table, drawn.rows)
    for step in drawn.steps:
        table.maintain(step)
        same_cells(step, rows_of(table), drawn.rows)
    through_a_backup(journey, table)  # the later one is an increment
    before, expected = journey.embedded.now(), drawn.changed
    if drawn.changes.num_rows:
        (writes.update if len(drawn.steps) % 2 else writes.upsert)(drawn.changes)
    _check("a change", table, expected)
    kind = str(LogicalType.of(drawn.more.type))
    table.alter().add_column("more", kind).add_column("gone", kind).apply()
    expected = expected.append_column("more", pa.nulls(expected.num_rows, drawn.more.type))
    same_cells("a new column", rows_of(table).drop_columns("gone"), expected)
    table.alter().rename_column("more", "later").drop_column("gone").apply()
    for step in drawn.later:
        table.maintain(step)
        _check(step, table, expected.rename_columns([*drawn.rows.schema.names, "later"]))
    cells = pa.table({"k": expected["k"], "later": drawn.more})
    journey.remote.table("t").update(cells)
    expected = drawn.changed.append_column("later", drawn.more)
    _check("cells of the new column", table, expected)
    earlier = table.scan(ordered=True, as_of=before, columns=drawn.rows.schema.names).to_arrow()
    same_cells("an earlier moment", earlier, drawn.rows)
    _check_feed(table, before, drawn, expected)
    for name, way in WAYS.items():
        same_cells(name, way(journey, table), expected)
    table.bulk_compact(directory=journey.folder)
    _check("a merge outside", table, expected)
    return expected


def _check(what: str, table: Table, expected: pa.Table) -> None:
    same_cells(what, rows_of(table), expected)
    assert table.get(0) == expected.slice(0, 1).to_pylist()[0], what
    same_cells(what, table.scan(where="k = 0").to_arrow(), expected.slice(0, 1))
    for name in expected.column_names[1:]:
        assert table.scan(where=f"{name} IS NULL").count() == expected[name].null_count, f"{what}: {name}"


def _check_feed(table: Table, since: int, drawn: Drawn, expected: pa.Table) -> None:
    """Every row has changed, if only in the new column that is NULL before; that of a NULL may be left out."""
    feed = table.changes(since, before=True, ordered=True).to_arrow()
    assert set(feed["_op"].to_pylist()) <= {"update"}
    keys = feed["k"]
    same_cells("the feed", feed.select(expected.column_names), expected.take(keys))
    names = [f"_before_{name}" for name in drawn.rows.schema.names[1:]]
    earlier = feed.select(names).rename_columns(drawn.rows.schema.names[1:])
    same_cells("the feed before", earlier, drawn.rows.select(drawn.rows.schema.names[1:]).take(keys))
    rest = set(range(expected.num_rows)) - set(keys.to_pylist())
    now, then = expected.to_pylist(), drawn.rows.to_pylist()
    assert all(now[key] == {**then[key], "later": None} for key in rest), "the feed lacks a change"


def same_cells(what: str, found: pa.Table, expected: pa.Table) -> None:
    assert found.schema.types == expected.schema.types, f"{what}: {found.schema} is not {expected.schema}"
    for name in expected.column_names:
        column, other = found[name].combine_chunks(), expected[name].combine_chunks()
        column.validate(full=True)
        assert column.equals(other), f"{what}: {name} is {column}, not {other}"


def run(examples: int, number: int, shrinks: bool = True, life: str | None = None) -> int:
    """Take so many tables by all ways and a life, or only through the life of a name; return how many there were.

    A table that fails is shrunk, or raised as it is.
    """
    taken = 0

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(drawn=tables())
    def journeys(drawn: Drawn) -> None:
        nonlocal taken
        with tempfile.TemporaryDirectory(prefix="nested-") as folder:
            journey_of(drawn, Path(folder)) if life is None else life_of(life, drawn, Path(folder) / "life")
        taken += 1

    journeys()
    return taken


def main(tell: Callable[[str], None] = lambda line: print(line, flush=True)) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--life", choices=LIVES)
    drawn_options.add_to(parser)
    options = parser.parse_args()
    tell(f"seed {options.seed}: {options.count:,} tables, {options.processes} processes")
    began, taken, swarm = time.monotonic(), 0, drawn_options.swarm_of(FEATURES, options)
    rounds = -(-options.count // _ROUND)
    share = -(-options.count // rounds // options.processes)
    for number in range(rounds):
        # A holder whose store is taken over says so in its log.
        pool = ProcessPoolExecutor(options.processes, get_context("spawn"), logging.disable)
        with swarm.round(number), pool:
            first = (options.seed + number) * options.processes
            numbers = range(first, first + options.processes)
            taken += sum(pool.map(functools.partial(run, share, life=options.life), numbers))
    rate = taken / (time.monotonic() - began)
    what = f"through {options.life}" if options.life else f"by {len(WAYS)} ways, each through one of {len(LIVES)} lives"
    tell(f"{taken:,} tables {what}: every cell as it was; {rate:.1f}/s")


if __name__ == "__main__":
    main()
