"""Files of changes applied: the last change of each key counts, each batch once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.jobs.files import apply_job
from nyala.jobs import apply_changes, checksum
from nyala.schemas.errors import InvalidArgumentError, RowErrors
from tests.clients.jobs.job_rows import SCHEMA, rows
from tests.dose import by_night

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


def lines(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


WIDE = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.float64()), ("day", pa.date32())])


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_partial_images_of_one_file_erase_no_cells(
    target: Database, tmp_path: Path, batch_rows: int, suffix: str
) -> None:
    """A cell that is NULL is written, one that is not there stays; a row that comes back has what it comes with."""
    table = target.create_table("wide", WIDE, ["id"])
    table.insert({"id": [1, 2, 3, 4], "a": ["a"] * 4, "b": [1.0] * 4})
    rows = [
        '{"_op": "u", "id": 1, "a": "x"}',
        '{"_op": "u", "id": 2, "b": 2, "_before": {"a": "old", "id": 2}}',
        '{"_op": "u", "id": 1, "b": null, "day": "2020-02-02"}',
        '{"_op": "u", "id": 3, "a": "y", "b": 3}',
        '{"_op": "d", "id": 3}',
        '{"_op": "c", "id": 3, "a": "\\"b\\": {"}',
        '{"_op": "u", "id": 1, "a": "z"}',
        '{"_op": "c", "id": 5}',
        '{"_op": "c", "id": 4, "a": "w", "b": null, "day": null}',
    ]
    file = lines(tmp_path / f"c.{suffix}", *(rows if suffix == "jsonl" else ["[" + ",".join(rows) + "]"]))
    made = apply_changes(target, "wide", file, batch_rows=batch_rows)
    assert made.changes == 9 and made.commits == {1: 9, 3: 3, 100: 1}[batch_rows]
    found = {row["id"]: (row["a"], row["b"], str(row["day"])) for row in table.scan().to_arrow().to_pylist()}
    assert found == {
        1: ("z", None, "2020-02-02"),
        2: ("a", 2.0, "None"),
        3: ('"b": {', None, "None"),
        4: ("w", None, "None"),
        5: (None, None, "None"),
    }


@pytest.mark.parametrize("seed", by_night(range(6), range(2)))
def test_random_partial_images(target: Database, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = target.create_table("wide", WIDE.remove(3), ["id"])
    wanted: dict[int, dict[str, Any]] = {}
    changes = []
    for number in range(60):
        key, op = chance.randrange(6), chance.choice("uuucd")
        cells = {"a": f"a{number}", "b": chance.choice([None, float(number)])}
        cells = {name: cell for name, cell in cells.items() if chance.random() < 0.5}
        changes.append(json.dumps({"_op": op, "id": key, **({} if op == "d" else cells)}))
        if op == "d":
            wanted.pop(key, None)
        else:
            wanted[key] = wanted.get(key, {"id": key, "a": None, "b": None}) | cells
    file = lines(tmp_path / "c.jsonl", *changes)
    apply_changes(target, "wide", file, batch_rows=chance.choice([5, 20, 1_000]))
    assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == wanted


def test_cells_of_one_column_may_have_several_types_in_json(target: Database, tmp_path: Path) -> None:
    """As long as each fits; columns that nobody needs may have any."""
    table = target.create_table("wide", WIDE, ["id"])
    rows = [
        '{"_op": "c", "id": 1, "b": 1, "_seq": 1, "_source": "a"}',
        '{"_op": "c", "id": "2", "b": "2.5", "_seq": 2, "_source": {"lsn": 1}}',
        '{"_op": "u", "id": 1, "b": 3.5, "_seq": "3", "_source": [1]}',
    ]
    apply_changes(target, "wide", lines(tmp_path / "c.jsonl", *rows))
    assert {row["id"]: row["b"] for row in table.scan().to_arrow().to_pylist()} == {1: 3.5, 2: 2.5}
    wrong = lines(tmp_path / "e.jsonl", rows[0], '{"_op": "c", "id": 3, "b": "many"}')
    with pytest.raises(InvalidArgumentError, match=r"e.jsonl, line 2: column 'b': 'many' is not a valid double"):
        apply_changes(target, "wide", wrong)
    with pytest.raises(InvalidArgumentError, match=r"line 1: column '_seq': 1 is not a valid string"):
        apply_changes(target, "wide", tmp_path / "c.jsonl", order_by="_seq", run="again")
    ordered = lines(tmp_path / "f.jsonl", rows[1], '{"_op": "d", "id": 2, "_seq": 1, "_source": 1.5}')
    apply_changes(target, "wide", ordered, order_by="_seq")
    assert {row["id"]: row["b"] for row in table.scan().to_arrow().to_pylist()} == {1: 3.5, 2: 2.5}


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


ORDERED = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("s", pa.string())])


@pytest.fixture
def ordered(target: Database) -> Table:
    return target.create_table("ordered", ORDERED, ["id"], order_by="v")


@pytest.mark.parametrize("batch_rows", [1, 1_000])
def test_null_is_older_than_every_order(target: Database, ordered: Table, tmp_path: Path, batch_rows: int) -> None:
    changes = [("c", 1, 5, "five"), ("u", 1, None, "null"), ("c", 2, None, "alone"), ("u", 2, None, "later")]
    changes += [("c", 3, None, "null"), ("u", 3, -1, "least")]
    file = write(tmp_path / "a.parquet", changes, "_op id v s")
    apply_changes(target, "ordered", file, batch_rows=batch_rows)
    rows = ordered.scan(ordered=True).to_arrow().to_pylist()
    assert [(row["v"], row["s"]) for row in rows] == [(5, "five"), (None, "later"), (-1, "least")]


@pytest.mark.parametrize("batch_rows", [1, 1_000])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_deletes_without_an_order_delete(
    target: Database, ordered: Table, tmp_path: Path, suffix: str, batch_rows: int
) -> None:
    """What the table has, and what is before them in the file; what comes behind them stays."""
    ordered.insert({"id": [1, 2, 3, 4, 6], "v": [50, 1, 50, 1, 50], "s": ["a"] * 5})
    changes: list[tuple[Any, ...]] = [("d", 1), ("d", 2), ("c", 2, 9, "again"), ("c", 3, 7, "stale"), ("d", 3)]
    changes += [("c", 4, 8, "new"), ("u", 4, 7, "late"), ("d", 4), ("u", 4, 8, "equal"), ("u", 4, 6, "older")]
    changes += [("c", 5, 3, "x"), ("d", 5), ("d", 6, 51), ("d", 9)]
    file = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        write(file, [(*each, None, None)[:4] for each in changes], "_op id v s")
    elif suffix == "csv":
        lines(file, "_op,id,v,s", *(",".join(map(str, (*each, "", "")[:4])) for each in changes))
    else:
        rows = [json.dumps(dict(zip(("_op", "id", "v", "s"), each, strict=False))) for each in changes]
        lines(file, *(rows if suffix == "jsonl" else ["[" + ",".join(rows) + "]"]))
    apply_changes(target, "ordered", file, batch_rows=batch_rows)
    left = {row["id"]: (row["v"], row["s"]) for row in ordered.scan().to_arrow().to_pylist()}
    assert left == {2: (9, "again"), 4: (8, "equal")}
    # A delete leaves the newest value behind.
    late = {"id": [3, 4, 5, 6], "v": [49, 7, 2, 50], "s": ["late"] * 4}
    assert ordered.upsert(late).stale == 4


def test_files_of_deletes_need_no_order(target: Database, ordered: Table, tmp_path: Path) -> None:
    ordered.insert({"id": [1, 2, 3], "v": [5, 6, 7]})
    apply_changes(target, "ordered", lines(tmp_path / "a.jsonl", '{"_op": "d", "id": 1}', '{"_op": "d", "id": 9}'))
    apply_changes(target, "ordered", lines(tmp_path / "b.csv", "_op,id", "d,2"))
    assert ordered.scan().to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(InvalidArgumentError, match="has no column '_at'"):
        apply_changes(target, "ordered", tmp_path / "a.jsonl", order_by="_at")


def test_partial_images_without_an_order_keep_their_place(target: Database, ordered: Table, tmp_path: Path) -> None:
    rows = ['{"_op": "c", "id": 1, "v": 5, "s": "five"}', '{"_op": "u", "id": 1, "s": "later"}']
    apply_changes(target, "ordered", lines(tmp_path / "a.jsonl", *rows, '{"_op": "u", "id": 1, "v": 4, "s": "late"}'))
    assert ordered.get(1) == {"id": 1, "v": 5, "s": "later"}


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
