"""Files of changes applied: the last change of each key counts, each batch once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_rows import SCHEMA, rows

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.jobs import apply_job
from nyala.jobs import apply_changes, checksum
from nyala.schemas.errors import InvalidArgumentError, RowErrors

CITIES = pa.schema([("id", pa.int64()), ("city", pa.string())])


@pytest.fixture
def table(target: Database) -> Table:
    return target.create_table("cities", CITIES, ["id"], [nyala.hash("id", buckets=2)])


def write(path: Path, changes: list[tuple[Any, ...]], names: str = "_op id city") -> Path:
    columns = zip(*changes, strict=True)
    pq.write_table(pa.table(dict(zip(names.split(), map(list, columns), strict=True))), path)
    return path


def held(table: Table) -> dict[int, str]:
    return {row["id"]: row["city"] for row in table.scan().to_arrow().to_pylist()}


def test_the_last_change_counts(target: Database, table: Table, tmp_path: Path) -> None:
    table.insert({"id": [1, 2, 3], "city": ["a", "b", "c"]})
    changes = [("insert", 4, "d"), ("update", 1, "A"), ("delete", 2, None), ("U", 1, "AA"), ("delete", 4, "d")]
    changes += [("update_preimage", 3, "zzz"), ("delete", 3, "c"), ("r", 3, "cc"), ("delete", 9, None)]
    before = target.now()
    made = apply_changes(target, "cities", write(tmp_path / "a.parquet", changes))
    assert (made.changes, made.applied, made.ignored, made.commits, made.skipped) == (9, 3, 2, 1, 0)
    assert held(table) == {1: "AA", 3: "cc"}
    stamps = table.changes(before, every=True).to_arrow()["_timestamp"].unique().to_pylist()
    assert stamps == [made.timestamp]  # one commit


@pytest.mark.parametrize("batch_rows", [1, 7, 1_000])
def test_random_changes(target: Database, table: Table, tmp_path: Path, batch_rows: int) -> None:
    chance = random.Random(batch_rows)
    wanted: dict[int, str] = {}
    for name in ("b", "a", "c"):
        changes = []
        for number in range(40):
            key, op = chance.randrange(12), chance.choice(["c", "u", "d"])
            changes.append((op, key, f"{name}{number}"))
        write(tmp_path / f"{name}.parquet", changes)
    for name in ("a", "b", "c"):  # by their names
        for row in pq.read_table(tmp_path / f"{name}.parquet").to_pylist():
            wanted.pop(row["id"], None)
            if row["_op"] != "d":
                wanted[row["id"]] = row["city"]
    apply_changes(target, "cities", tmp_path, batch_rows=batch_rows)
    assert held(table) == wanted


def test_changes_are_ordered_by_a_column(target: Database, table: Table, tmp_path: Path) -> None:
    changes = [("c", 1, "third", 3), ("c", 1, "first", 1), ("d", 1, "second", 2), ("c", 2, "x", 1)]
    file = write(tmp_path / "a.parquet", changes, "_op id city _at")
    apply_changes(target, "cities", file, order_by="_at", batch_rows=2)
    assert held(table) == {1: "third", 2: "x"}


def test_a_killed_run_goes_on(target: Database, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.parquet", [("c", number % 5, str(number)) for number in range(20)])
    commit, done = apply_job._apply, []

    def apply_or_die(*given: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(commit(*given))
        return done[-1]

    with monkeypatch.context() as patch:
        patch.setattr(apply_job, "_apply", apply_or_die)
        with pytest.raises(KeyboardInterrupt):
            apply_changes(target, "cities", file, batch_rows=5)
    table.delete({"id": [0]})  # what the batches that are in must not undo
    table.update({"id": [1], "city": ["later"]})
    made = apply_changes(target, "cities", file, batch_rows=5)
    assert (made.commits, made.skipped) == (1, 3)
    table.delete({"id": [0]})
    again = apply_changes(target, "cities", file, batch_rows=5)
    assert (again.commits, again.skipped, again.timestamp) == (0, 4, None)
    assert 0 not in held(table)
    assert apply_changes(target, "cities", file, batch_rows=5, run="again").commits == 4


def test_the_change_feed_keeps_a_copy_up(source: Database, homes: Table, target: Database, tmp_path: Path) -> None:
    since = source.now()
    target.create_table("homes", SCHEMA, ["id"]).insert(homes.scan(as_of=since).to_arrow())
    for turn in range(3):
        homes.upsert(rows(range(turn * 100, turn * 100 + 300), turn + 1))
        homes.delete({"id": list(range(turn * 50, turn * 50 + 20))})
        feed = homes.changes(since, every=turn == 1)
        pq.write_table(feed.to_arrow(), tmp_path / f"{turn}.parquet")
        assert feed.snapshot is not None
        since = feed.snapshot
    apply_changes(target, "homes", tmp_path, batch_rows=100)
    assert checksum(target, "homes").is_same(checksum(source, "homes"))


def test_what_cannot_be_applied(target: Database, table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown operation 'paint'"):
        apply_changes(target, "cities", write(tmp_path / "a.parquet", [("c", 1, "x"), ("paint", 2, "x")]))
    with pytest.raises(InvalidArgumentError, match="has no column '_op'"):
        apply_changes(target, "cities", write(tmp_path / "b.parquet", [("c", 1, "x")], "op id city"))
    with pytest.raises(InvalidArgumentError, match="column 'colour', which is not in table 'cities'"):
        apply_changes(target, "cities", write(tmp_path / "c.parquet", [("c", 1, "x")], "_op id colour"))
    assert table.scan().count() == 0
    strict = target.create_table(
        "strict", pa.schema([("id", pa.int64()), pa.field("city", pa.string(), nullable=False)]), ["id"]
    )
    file = write(tmp_path / "d.parquet", [("c", 1, "x"), ("c", 2, "y"), ("c", 3, None), ("c", 4, "z")])
    with pytest.raises(RowErrors) as refused:
        apply_changes(target, "strict", file, batch_rows=2)
    assert "batch 2 of" in refused.value.__notes__[0]
    assert strict.scan(ordered=True).to_arrow()["id"].to_pylist() == [1, 2]
