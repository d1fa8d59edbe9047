"""Lives that cost more than a way does: a table has one of them, as it is drawn.

Tablets move between servers, a replica follows and takes over, a second process reads, a process is killed, columns are
altered and earlier moments read.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, cast

import pyarrow as pa

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.cells.types import LogicalType
from tests.campaigns.nested.drawn import Drawn
from tests.campaigns.nested.second import Reader
from tests.campaigns.nested.ways import rows_of
from tests.clients.cluster.pair import Pair
from tests.doubles.machines import OPTIONS
from tests.flight_server.both import Both

Same = Callable[[str, pa.Table, pa.Table], None]
"""Raises an AssertionError, which begins with the text, unless two tables have the same cells."""
Life = Callable[[Drawn, Path, Same], None]
"""Takes a table through a life, in a folder of its own."""


def moves(drawn: Drawn, folder: Path, same: Same) -> None:
    """A tablet moves to another server and back, with what is in files, in memory and in the log."""
    pair = Pair()
    try:
        table, before = _made(pair.db, drawn, partition_by=[nyala.hash("k", buckets=2)])
        _change(table, drawn)
        for name, to in ("ab", "ba", "ab"):
            number = next(place.tablet for place in table.tablets() if place.server == name)
            pair.db.move_tablet("t", number, to, server=name)
            same(f"a move to {to}", rows_of(table), drawn.changed)
            same("an earlier moment after a move", rows_at(table, before), drawn.rows)
        table.upsert(drawn.rows)
        same("a write after a move", rows_of(table), drawn.rows)
        for name in "ab":
            pair.crash(name, seed=len(drawn.steps))
        for step in (None, *drawn.later):
            table.maintain(step) if step else None
            same(f"a move, a power failure and {step}", rows_of(table), drawn.rows)
    finally:
        pair.close()


def replicas(drawn: Drawn, folder: Path, same: Same) -> None:
    """A replica follows the log of a store in a bucket; then another machine takes the store over."""
    both = Both()
    try:
        there = Database(cast(Any, both.store)).table
        table, before = _made(both.holder.database, drawn)
        both.follower.catch_up()
        same("a replica", rows_of(there("t"), max_staleness=0), drawn.rows)
        _change(table, drawn)
        both.follower.catch_up()
        same("a replica after changes", rows_of(there("t"), max_staleness=0), drawn.changed)
        same("an earlier moment of a replica", rows_at(there("t"), before), drawn.rows)
        with closing(nyala.connect([both.url, both.replica_url])) as client:
            same("a replica over Flight", rows_of(client.table("t"), max_staleness=60), drawn.changed)
        for step in drawn.later:
            table.maintain(step)
            both.follower.catch_up()
            same(f"a replica after {step}", rows_of(there("t"), max_staleness=0), drawn.changed)
        with Store.open(both.holder.machine.other().home(), OPTIONS) as store:
            same("a store that is taken over", rows_of(Database(store).table("t")), drawn.changed)
            Database(store).table("t").upsert(drawn.rows)
            same("a write after that", rows_of(Database(store).table("t")), drawn.rows)
    finally:
        both.close()


def second_process(drawn: Drawn, folder: Path, same: Same) -> None:
    """A second process reads the store, with ``read_only``, after each step of the first."""
    with nyala.open(folder, maintenance="off") as db, Reader.running().closed_after() as reader:
        table, before = _made(db, drawn)
        same("a second process", reader.rows(folder), drawn.rows)
        _change(table, drawn)
        for step in (None, *drawn.later):
            table.maintain(step) if step else None
            same(f"a second process after {step}", reader.rows(folder), drawn.changed)
        same("an earlier moment of a second process", reader.rows(folder, before), drawn.rows)
        table.alter().add_column("more", _word(drawn)).apply()
        table.update(pa.table({"k": drawn.rows["k"], "more": drawn.more}))
        expected = drawn.changed.append_column("more", drawn.more)
        same("a second process after a new column", reader.rows(folder), expected)
    same("a second process without a first", Reader.running().rows(folder), expected)


@dataclass(frozen=True)
class Step:
    """A change of table ``t``."""

    what: str
    """An operation that takes the rows, a step of maintenance, or ``create`` and ``add``."""
    rows: pa.Table | None = None

    def take(self, database: Database) -> None:
        """Take the step."""
        if self.what == "create":
            assert self.rows is not None
            database.create_table("t", self.rows.schema, "k")
        elif self.what == "add":
            assert self.rows is not None
            database.table("t").alter().add_column("more", str(LogicalType.of(self.rows["more"].type))).apply()
        elif self.rows is not None:
            database.table("t").write(self.rows, self.what)
        else:
            database.table("t").maintain(self.what)


def story_of(drawn: Drawn) -> list[tuple[Step, pa.Table]]:
    """Return steps row by row, each with the table after it."""
    rows, changes, count = drawn.rows, drawn.changes, drawn.rows.num_rows
    story = [(Step("create", rows.slice(0, 0)), rows.slice(0, 0))]
    story += [(Step("insert", rows.slice(at, 1)), rows.slice(0, at + 1)) for at in range(count)]
    story += [(Step(step), rows) for step in drawn.steps]
    for at in range(changes.num_rows):
        changed = replace(drawn, changes=changes.slice(0, at + 1)).changed
        story.append((Step("update" if at % 2 else "upsert", changes.slice(at, 1)), changed))
    cells = pa.table({"k": rows["k"], "more": drawn.more})
    for at in range(count + 1):
        known = pa.concat_arrays([drawn.more.slice(0, at), pa.nulls(count - at, drawn.more.type)])
        step = Step("update", cells.slice(at - 1, 1)) if at else Step("add", cells.slice(0, 0))
        story.append((step, drawn.changed.append_column("more", known)))
        if at == count // 2:
            story += [(Step(step), story[-1][1]) for step in drawn.later]
    return story


PLANTED: list[str] = []
"""Further arguments of a process that is to be killed."""


def kill(drawn: Drawn, folder: Path, same: Same) -> None:
    """A process is killed after some steps: all that it has acknowledged is there, and at most one step more."""
    folder.mkdir(exist_ok=True)
    story, path = story_of(drawn), folder / "story"
    path.write_bytes(pickle.dumps([step for step, _ in story]))
    program = Path(__file__).with_name("killed_process.py")
    command = [sys.executable, str(program), str(folder / "store"), str(path), *PLANTED]
    with Popen(command, stdout=PIPE) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(1 + drawn.dies_after % len(story))]
        process.kill()
        lines += process.stdout.readlines()
    assert lines[0], f"the process wrote nothing: exit code {process.returncode}"
    taken = sum(line.endswith(b"\n") for line in lines)
    before, after = (story[min(taken + more, len(story)) - 1][1] for more in (0, 1))
    with nyala.open(folder / "store", maintenance="off") as db:
        table = db.table("t")
        is_one_more = not before.equals(after) and _is_there(rows_of(table), after)
        expected = after if is_one_more else before
        same(f"a kill after {taken} steps", rows_of(table), expected)
        for step in drawn.later:
            table.maintain(step)
            same(f"a kill, and {step}", rows_of(table), expected)
    with nyala.open(folder / "store", maintenance="off") as db:
        same("a kill and two restarts", rows_of(db.table("t")), expected)
    assert verify_store(LocalFileSystem(folder / "store")).is_sound, "verify"


def _is_there(found: pa.Table, expected: pa.Table) -> bool:
    return found.schema.names == expected.schema.names and found.to_pylist() == expected.to_pylist()


def alters(drawn: Drawn, folder: Path, same: Same) -> None:
    """Earlier moments have the columns of now: with their cells of then, or with a default that is nested itself."""
    names, count = drawn.rows.schema.names, drawn.rows.num_rows
    filled = drawn.more.take(pa.array([0] * count))
    now = ["k", "first", *names[2:], "filled"]

    def with_default(rows: pa.Table) -> pa.Table:
        return rows.append_column("filled", filled).rename_columns(now)

    with nyala.open(folder, maintenance="off") as db:
        table, before = _made(db, drawn)
        _change(table, drawn)
        changed = db.now()
        default = drawn.more[0].as_py()
        table.alter().add_column("filled", _word(drawn), read_default=default, write_default=default).apply()
        table.alter().rename_column(names[1], "first").apply()
        for step in (None, *drawn.later):
            table.maintain(step) if step else None
            same(f"a default, and {step}", rows_of(table), with_default(drawn.changed))
            same(f"before it, and {step}", rows_at(table, before), with_default(drawn.rows))
        table.insert({"k": [100]})
        row = table.scan(where="k = 100").to_arrow()
        same("a default of a new row", row.select(["filled"]), pa.table({"filled": filled.slice(0, 1)}))
        table.delete({"k": [100]})
        table.update(pa.table({"k": drawn.rows["k"], "filled": drawn.more}))
        filled_at = db.now()
        expected = drawn.changed.append_column("filled", drawn.more).rename_columns(now)
        same("other cells than the default", rows_of(table), expected)
        table.alter().drop_column("first").add_column("first", _word(drawn)).apply()
        table.maintain("flush")
        _check_moments(table, same, {changed: with_default(drawn.changed), filled_at: expected}, drawn.more.type)
    with nyala.open(folder, maintenance="off") as db:
        _check_moments(
            db.table("t"),
            same,
            {before: with_default(drawn.rows), changed: with_default(drawn.changed), filled_at: expected},
            drawn.more.type,
        )


def _check_moments(table: Table, same: Same, moments: dict[int, pa.Table], kind: pa.DataType) -> None:
    """Compare with the rows of earlier moments; ``first`` is another column since."""
    for moment, rows in moments.items():
        expected = rows.drop_columns("first").append_column("first", pa.nulls(rows.num_rows, kind))
        same("an earlier moment of a column that came again", rows_at(table, moment), expected)


def _made(db: Database, drawn: Drawn, **options: Any) -> tuple[Table, int]:
    """Return a table with the rows, and the moment of their commit."""
    table = db.create_table("t", drawn.rows.schema, "k", row_column=drawn.row_column, **options)
    return table, table.insert(drawn.rows).timestamp


def _change(table: Table, drawn: Drawn) -> None:
    """Take the first steps of maintenance, and make the changes."""
    for step in drawn.steps:
        table.maintain(step)
    if drawn.changes.num_rows:
        table.upsert(drawn.changes)


def _word(drawn: Drawn) -> str:
    return str(LogicalType.of(drawn.more.type))


def rows_at(table: Table, moment: int) -> pa.Table:
    """Return the rows of an earlier moment, in the order of their keys."""
    return rows_of(table, as_of=moment)


LIVES: dict[str, Life] = {each.__name__: each for each in (moves, replicas, second_process, kill, alters)}
