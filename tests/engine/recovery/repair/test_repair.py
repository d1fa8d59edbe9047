"""`nyala repair` keeps what can be kept of damaged files, says exactly what is lost, and destroys nothing."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.recovery.repair import RowsetRepair, repair_store
from nyala.engine.recovery.verify import verify_store
from nyala.flight_server.commands import store_commands
from nyala.schemas.errors import SnapshotTooOldError, UnavailableError
from tests.campaigns.crash.images import contents, cut_at_every_call
from tests.engine.subject import Subject

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), False), ("v", pa.int64()), ("s", pa.string()), pa.field("n", pa.int64(), False)]
)
PLAIN = {name: nyala.ColumnOptions(encoding="plain", compression="none") for name in ("v", "s", "n")}
ROWS = 70_000
"""More than a page."""


def open_store(path: Path) -> Database:
    return nyala.open(path, maintenance="off", wal_segment_bytes=1 << 16)


def free_log(db: Database) -> None:
    """Let the log tell no more of what is in files."""
    filler = db.create_table("filler", SCHEMA, primary_key=["k"])
    for number in range(60):  # a segment that was made for two large records may have room for many more
        filler.upsert({"k": [number], "v": [1], "s": ["x" * 60_000], "n": [1]})
    filler.maintain("flush")
    db.drop_table("filler")
    db.table("t").maintain("flush")


def filled(path: Path, rows: int = 100, is_log_freed: bool = True) -> dict[str, Path]:
    """Make a table with base, UNDO, REDO and rewritten columns, and a change in the log; return its files by kind."""
    with open_store(path) as db:
        table = db.create_table("t", SCHEMA, primary_key=["k"], column_options=PLAIN)
        ids = list(range(rows))
        table.upsert({"k": ids, "v": ids, "s": [f"row {number}" for number in ids], "n": ids})
        table.maintain("flush")
        table.update({"k": [1], "v": [-1]})
        table.maintain("flush_deltas")
        table.maintain("major_compact")
        table.update({"k": [2], "s": ["changed"]})
        table.delete({"k": [3]})
        table.maintain("flush_deltas")
        if is_log_freed:
            free_log(db)
        table.update({"k": [4], "s": ["in the log"]})
    files = sorted((path / "tablets").rglob("*.*"), key=lambda file: int(file.stem))
    bases = [file for file in files if file.suffix == ".base"]
    kinds = {file.suffix[1:]: file for file in reversed(files)}
    return kinds | {"base": bases[0], "columns": bases[-1]}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flip(file: Path, what: bytes) -> None:
    content = bytearray(file.read_bytes())
    place = content.index(what)
    content[place] ^= 1
    file.write_bytes(content)


def repaired(path: Path) -> RowsetRepair:
    """Repair a store with one damaged rowset: a dry run changes nothing and says what the repair then does."""
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    found = repair_store(LocalFileSystem(path))
    assert not found.is_applied
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    report = repair_store(LocalFileSystem(path), apply=True)
    assert report.is_applied and report.repairs == found.repairs
    for file, content in before.items():
        if file.parts[-3] == "tablets":
            kept = file if file.exists() else path / "damaged" / file.relative_to(path)
            assert kept.read_bytes() == content, "nothing is destroyed"
    (repair,) = report.repairs
    assert not repair_store(LocalFileSystem(path), apply=True).repairs
    assert verify_store(LocalFileSystem(path)).is_sound
    return repair


def column(db: Database, name: str, as_of: int | None = None) -> dict[int, Any]:
    found = db.table("t").scan(["k", name], as_of=as_of).to_arrow().to_pydict()
    return dict(zip(found["k"], found[name], strict=True))


def test_without_undo_only_history_is_lost(tmp_path: Path) -> None:
    cut(filled(tmp_path)["undo"])
    repair = repaired(tmp_path)
    assert (repair.action, repair.rows_lost, repair.cells_lost) == ("drop its history", 0, {})
    with open_store(tmp_path) as db:
        assert len(column(db, "v")) == 99 and column(db, "v")[1] == -1
        assert column(db, "s")[2] == "changed" and column(db, "s")[4] == "in the log"
        with pytest.raises(SnapshotTooOldError):
            column(db, "v", as_of=(repair.history_floor or 0) - 1)
        assert len(column(db, "v", as_of=db.now())) == 99


def test_without_redo_older_cells_are_shown(tmp_path: Path) -> None:
    files = filled(tmp_path)
    files["redo"].unlink()
    repair = repaired(tmp_path)
    assert repair.rows_lost == 0 and repair.rows_kept == 100
    assert repair.changes_lost == [f"all changes and deletes in {files['redo'].name}"]
    with open_store(tmp_path) as db:
        found = column(db, "s")
        assert found[2] == "row 2" and found[3] == "row 3" and found[4] == "in the log"
        assert column(db, "v")[1] == -1, "what was merged into the base before stays"


def test_without_rewritten_columns_their_older_cells_are_shown(tmp_path: Path) -> None:
    cut(filled(tmp_path)["columns"])
    repair = repaired(tmp_path)
    assert repair.changes_lost == ["the newest cells of column v"] and repair.rows_kept == 99
    with open_store(tmp_path) as db:
        assert column(db, "v")[1] == 1 and column(db, "s")[2] == "changed"


def test_a_damaged_page_costs_its_cells(tmp_path: Path) -> None:
    flip(filled(tmp_path, ROWS)["base"], b"row 66000")
    repair = repaired(tmp_path)
    lost = ROWS - 65_536
    assert (repair.rows_lost, repair.cells_lost, repair.rows_kept) == (0, {"s": lost}, ROWS - 1)
    with open_store(tmp_path) as db:
        found = column(db, "s")
        assert len(found) == ROWS - 1
        assert found[65_535] == "row 65535" and found[2] == "changed" and found[4] == "in the log"
        assert all(found[number] is None for number in range(65_536, ROWS))
        assert column(db, "n")[ROWS - 1] == ROWS - 1
        db.table("t").upsert({"k": [66_000], "v": [1], "s": ["again"], "n": [1]})
        db.table("t").maintain("flush_deltas")
        db.table("t").maintain("compact")
        assert column(db, "s")[66_000] == "again"


def test_rows_are_given_up_where_a_cell_may_not_be_null(tmp_path: Path) -> None:
    file = filled(tmp_path, ROWS)["base"]
    flip(file, (66_000).to_bytes(8, "little") + (66_001).to_bytes(8, "little"))  # the first column that has it: v
    content = bytearray(file.read_bytes())
    pair = (66_000).to_bytes(8, "little") + (66_001).to_bytes(8, "little")
    content[content.rindex(pair)] ^= 1  # the last: n
    file.write_bytes(content)
    repair = repaired(tmp_path)
    lost = ROWS - 65_536
    assert repair.rows_lost == lost and repair.rows_kept == 65_535
    assert repair.keys_lost == [f"(65536) to ({ROWS - 1})"]
    with open_store(tmp_path) as db:
        assert sorted(column(db, "s")) == [number for number in range(65_536) if number != 3]
        rows = {"k": [70_000 - 1], "v": [1], "s": ["new"], "n": [1]}
        assert db.table("t").insert(rows).applied == 1


def test_a_base_file_without_its_directory_is_given_up(tmp_path: Path) -> None:
    cut(filled(tmp_path)["base"])
    repair = repaired(tmp_path)
    assert (repair.action, repair.rows_lost) == ("give it up", None)
    with open_store(tmp_path) as db:
        assert column(db, "v") == {}
        assert db.table("t").insert({"k": [1], "v": [1], "s": ["new"], "n": [1]}).applied == 1


@pytest.mark.parametrize("kind", ["base", "columns", "redo"])
def test_what_the_log_still_tells_comes_back(tmp_path: Path, kind: str) -> None:
    """Whatever file is lost: the end of the log, applied to an older state, leads to the same rows."""
    file = filled(tmp_path, is_log_freed=False)[kind]
    with open_store(tmp_path) as db:
        before = {name: column(db, name) for name in ("v", "s", "n")}
    cut(file)
    repair_store(LocalFileSystem(tmp_path), apply=True)
    for _ in range(2):
        with open_store(tmp_path) as db:
            assert {name: column(db, name) for name in ("v", "s", "n")} == before
            db.table("t").maintain("flush")
            db.table("t").maintain("flush_deltas")
            db.table("t").maintain("major_compact")
        assert verify_store(LocalFileSystem(tmp_path)).is_sound


def test_a_damaged_page_of_changes_costs_those_in_it(tmp_path: Path) -> None:
    files = filled(tmp_path)
    flip(files["redo"], b"changed")
    repair = repaired(tmp_path)
    (told,) = repair.changes_lost
    assert told == f"changes of column s in {files['redo'].name}, of up to 1 rows with keys (2) to (2)"
    with open_store(tmp_path) as db:
        found = column(db, "s")
        assert found[2] == "row 2" and 3 not in found and found[4] == "in the log", "deletes were in another page"


def test_changes_after_a_damaged_page_are_kept(tmp_path: Path) -> None:
    file = filled(tmp_path)["base"]
    with open_store(tmp_path) as db:
        db.table("t").update({"k": [5, 6], "s": ["newer", "too"], "n": [55, 66]})
        db.table("t").maintain("flush_deltas")
        free_log(db)
    flip(file, b"row 66")
    content = bytearray(file.read_bytes())
    pair = (60).to_bytes(8, "little") + (61).to_bytes(8, "little")
    content[content.rindex(pair)] ^= 1
    file.write_bytes(content)
    repair = repaired(tmp_path)
    with open_store(tmp_path) as db:
        assert column(db, "s") == {5: "newer", 6: "too"} and column(db, "n") == {5: 55, 6: 66}
    assert repair.rows_lost == 97 and repair.rows_kept == 2


def test_rowsets_that_are_sound_stay_as_they_are(tmp_path: Path) -> None:
    file = filled(tmp_path)["base"]
    with open_store(tmp_path) as db:
        db.table("t").upsert({"k": [500], "v": [5], "s": ["other"], "n": [5]})
        db.table("t").maintain("flush")
    cut(file)
    others = {each: each.read_bytes() for each in tmp_path.rglob("*.base") if int(each.stem) > 10}
    repaired(tmp_path)
    assert all(each.read_bytes() == content for each, content in others.items() if each.exists())
    with open_store(tmp_path) as db:
        assert column(db, "s") == {500: "other"}


def test_a_store_that_is_open_is_not_repaired(tmp_path: Path) -> None:
    filled(tmp_path)
    with open_store(tmp_path), pytest.raises(UnavailableError, match="already has the store open"):
        repair_store(LocalFileSystem(tmp_path), apply=True)


def test_the_power_fails_at_every_call_of_a_repair() -> None:
    """Afterwards the store is the old one or the repaired one, and a second repair ends what the first began."""

    def damaged() -> MemoryFileSystem:
        fs = MemoryFileSystem()
        subject = Subject(fs)
        subject.upsert(1, 2, 3)
        subject.flush()
        subject.upsert(2, v=7)
        subject.flush_deltas()
        subject.close()
        (redo,) = [name for name in fs.list("tablets/2") if name.endswith("redo")]
        file = fs._file(f"tablets/2/{redo}")
        file.write(40, bytes([file.content[40] ^ 1]))
        file.sync()
        return fs

    assert repair_store(damaged(), apply=True).is_applied
    for image in cut_at_every_call(damaged, partial(repair_store, apply=True)):
        before = dict(contents(image))
        repair_store(image, apply=True)
        assert verify_store(image).is_sound
        subject = Subject(image)
        assert sorted(subject.scan()) == [(1, 0, "s"), (2, 7, "s"), (3, 0, "s")], "the log tells of the change"
        subject.store.close()
        old = {name: content for name, content in before.items() if name.endswith(("redo", "undo"))}
        kept = dict(contents(image))
        assert all(content in kept.values() for content in old.values() if content)


def test_the_command_shows_first_and_repairs_when_told_to(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(store_commands.repair)

    def run(*options: str) -> Result:
        return CliRunner().invoke(app, [str(tmp_path), *options])

    files = filled(tmp_path)
    assert run().exit_code == 0 and "nothing to repair" in run().output
    cut(files["undo"])
    shown = run()
    assert shown.exit_code == 1 and "drop its history" in shown.output and "--apply" in shown.output
    asked = run("--json")
    (repair,) = json.loads(asked.output)["repairs"]
    assert asked.exit_code == 1 and repair["tablet"] == 2 and repair["rows_lost"] == 0
    done = run("--apply")
    assert done.exit_code == 0 and "damaged/" in done.output
    assert run().exit_code == 0
