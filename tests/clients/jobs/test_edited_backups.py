"""Notes and files of backups that somebody has edited, or a disk: a named error, or the rows that there were."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import backup, checksum, list_backups, restore
from nyala.schemas.errors import CorruptionError, NotFoundError, StoreError
from tests.clients.jobs.job_rows import rows

Make = Callable[[], Database]
Edit = Callable[[dict[str, Any]], object]


def note_of(folder: str) -> Path:
    return Path(folder) / "metadata.json"


def edit(folder: str, change: Edit) -> None:
    """Edit a backup's note as somebody who knows of its seal, or of version 0.1, where there was none."""
    said = json.loads(note_of(folder).read_text())
    del said["seal"]
    change(said)
    note_of(folder).write_text(json.dumps(said))


@pytest.fixture
def made(source: Database, homes: Table, tmp_path: Path) -> list[str]:
    """The folders of a full backup and of an increment, in ``tmp_path / "root"``."""
    folders = [backup(source, "homes", tmp_path / "root").folder]
    homes.upsert(rows(range(490, 540), 2))
    homes.delete({"id": list(range(40))})
    return [*folders, backup(source, "homes", tmp_path / "root").folder]


EDITS: dict[str, tuple[int, Edit]] = {
    "since is until": (1, lambda said: said.update(since=said["until"])),
    "since is after until": (1, lambda said: said.update(since=said["until"] + 1)),
    "an increment of nothing": (1, lambda said: said.update(since=None)),
    "a full one that has a beginning": (0, lambda said: said.update(since=5)),
    "another end": (1, lambda said: said.update(until=said["until"] + 1)),
    "another kind": (1, lambda said: said.update(kind="full", since=None)),
    "a file outside": (0, lambda said: said["parts"][0].update(file="../../outside.parquet")),
    "a file by its path": (0, lambda said: said["parts"][0].update(file="/etc/passwd")),
    "a file in a folder": (0, lambda said: said["parts"][0].update(file="x/part-00000-0123abcd.parquet")),
    "a file of another system": (0, lambda said: said["parts"][0].update(file="..\\outside.parquet")),
    "no rows": (
        0,
        lambda said: (said.update(rows=said["rows"] - said["parts"][0]["rows"]), said["parts"][0].update(rows=0)),
    ),
    "fewer rows": (0, lambda said: said["parts"][0].update(rows=1)),
    "negative rows": (0, lambda said: said["parts"][0].update(rows=-1)),
    "another size": (0, lambda said: said["parts"][0].update(bytes=7)),
    "a part left out": (0, lambda said: said["parts"].pop()),
    "a part twice": (0, lambda said: said["parts"].append(said["parts"][0])),
    "another hash": (0, lambda said: said["parts"][0].update(sha256="0" * 64)),
    "no hash": (0, lambda said: said["parts"][0].update(sha256="")),
    "a tablet that is not there": (0, lambda said: said["parts"][0].update(tablet=99)),
    "tablets left out": (1, lambda said: said.update(tablets=said["tablets"][:1])),
    "rows for changes": (1, lambda said: said["parts"][0].update(kind="rows")),
    "a kind of part that there is not": (0, lambda said: said["parts"][0].update(kind="other")),
    "another checksum": (0, lambda said: said.update(checksum="0" * 16)),
    "another count": (1, lambda said: said.update(table_rows=said["table_rows"] + 1)),
    "a column that is called otherwise": (0, lambda said: said["table"]["columns"][1].update(name="town")),
    "a column of another type": (0, lambda said: said["table"]["columns"][1].update(type="int64")),
    "an end beyond all time": (1, lambda said: said.update(until=1 << 80)),
    "another format": (0, lambda said: said.update(format=2)),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_note(what: str, made: list[str], make_database: Make, tmp_path: Path) -> None:
    number, change = EDITS[what]
    edit(made[number], change)
    target = make_database()
    with pytest.raises(CorruptionError, match=r"metadata\.json|part-.*\.parquet|restored table"):
        restore(target, tmp_path / "root", "homes")
    assert "homes" not in target.tables()


def test_a_note_that_was_edited_by_hand(made: list[str], make_database: Make, tmp_path: Path) -> None:
    note = note_of(made[0])
    note.write_text(note.read_text().replace('"comment": ""', '"comment": "mine"', 1))
    with pytest.raises(CorruptionError, match=r"full/metadata\.json.*edited or damaged"):
        restore(make_database(), tmp_path / "root", "homes")
    with pytest.raises(CorruptionError, match=r"full/metadata\.json.*edited or damaged"):
        list_backups(tmp_path / "root")


def resealed(folder: str, number: int, forge: Callable[[Path], object]) -> None:
    """Change a file of a backup, and its size and hash in the note with it."""

    def change(said: dict[str, Any]) -> None:
        part = said["parts"][number]
        path = Path(folder) / part["file"]
        forge(path)
        data = path.read_bytes()
        said["bytes"] += len(data) - part["bytes"]
        part.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    edit(folder, change)


def with_rows(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], object]:
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def replaced(table: pa.Table, name: str, cells: list) -> pa.Table:
    field = table.schema.field(name).with_nullable(True)
    return table.set_column(table.schema.get_field_index(name), field, pa.array(cells, field.type))


FORGED: dict[str, tuple[int, Callable[[Path], object]]] = {
    "half of a file": (0, lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])),
    "its end": (0, lambda path: path.write_bytes(path.read_bytes()[-200:])),
    "nothing": (0, lambda path: path.write_bytes(b"")),
    "text": (0, lambda path: path.write_text("PAR1 not at all PAR1")),
    "a damaged page": (
        0,
        lambda path: path.write_bytes(path.read_bytes()[:100] + bytes(300) + path.read_bytes()[400:]),
    ),
    "fewer rows": (0, with_rows(lambda table: table.slice(3))),
    "more rows": (0, with_rows(lambda table: pa.concat_tables([table, table.slice(0, 1)]))),
    "a column less": (0, with_rows(lambda table: table.drop_columns(["city"]))),
    "a column of another type": (
        0,
        with_rows(lambda table: table.set_column(6, "small", table["small"].cast(pa.float64()))),
    ),
    "no key": (0, with_rows(lambda table: replaced(table, "id", [None] * table.num_rows))),
    "other cells": (0, with_rows(lambda table: replaced(table, "small", [7] * table.num_rows))),
    "a word that is no change": (1, with_rows(lambda table: replaced(table, "_op", ["merge"] * table.num_rows))),
    "deletes for updates": (1, with_rows(lambda table: replaced(table, "_op", ["delete"] * table.num_rows))),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_file(what: str, made: list[str], make_database: Make, tmp_path: Path) -> None:
    number, forge = FORGED[what]
    resealed(made[number], 0, forge)
    target = make_database()
    with pytest.raises(CorruptionError, match=r"part-.*\.parquet|restored table"):
        restore(target, tmp_path / "root", "homes")
    assert "homes" not in target.tables()


def test_what_is_damaged_hides_nothing_else(
    source: Database, homes: Table, made: list[str], make_database: Make, tmp_path: Path
) -> None:
    """Another table's backups are restored; the damaged ones are named, by a restore, a list and the next backup."""
    source.create_table("other", homes.schema, ["id"]).insert(rows(range(9)))
    backup(source, "other", tmp_path / "root")
    note_of(made[1]).write_text("{")
    target = make_database()
    assert restore(target, tmp_path / "root", "other").verified
    for act in (
        lambda: restore(target, tmp_path / "root", "homes"),
        lambda: list_backups(tmp_path / "root"),
        lambda: backup(source, "homes", tmp_path / "root"),
    ):
        with pytest.raises(CorruptionError, match=r"increment/metadata\.json"):
            act()
    with pytest.raises(CorruptionError, match=r"increment/metadata\.json"):
        restore(target, tmp_path / "root", "houses")  # it may have been renamed since
    Path(made[1]).rename(tmp_path / "aside")
    assert restore(target, tmp_path / "root", "homes").verified
    with pytest.raises(NotFoundError):
        restore(target, tmp_path / "root", "houses")


def test_notes_of_a_run_under_way(
    source: Database, homes: Table, make_database: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They only save work: what they say is done again where they, or their files, are not what was written."""
    from nyala.clients.jobs.folder import Folder

    def dies(folder: Folder, name: str, *given: Any, **options: Any) -> None:
        if name == "metadata.json":
            raise KeyboardInterrupt
        write(folder, name, *given, **options)

    write = Folder.write_model
    for turn in range(4):
        root = tmp_path / str(turn)
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "write_model", dies)
            with pytest.raises(KeyboardInterrupt):
                backup(source, "homes", root)
        notes = sorted(root.rglob("*.note.json"))
        if turn == 0:
            notes[0].write_text("{}")
        elif turn == 1:
            notes[0].write_text(notes[1].read_text())
        elif turn == 2:
            notes[0].write_text(notes[0].read_text().replace("part-", "../part-"))
        else:
            next(root.rglob("plan.json")).write_text("[]")
        assert backup(source, "homes", root).rows == 500
        target = make_database()
        assert restore(target, root, "homes").verified
        assert checksum(target, "homes").is_same(checksum(source, "homes"))


def mutated(value: Any, chance: random.Random) -> Any:
    """Return JSON that differs in one place."""
    if isinstance(value, dict) and value:
        name = chance.choice(list(value))
        if chance.random() < 0.1:
            return {key: each for key, each in value.items() if key != name}
        return {**value, name: mutated(value[name], chance)}
    if isinstance(value, list) and value:
        place = chance.randrange(len(value))
        if chance.random() < 0.2:
            return value[:place] + value[place + 1 :]
        return [*value[:place], mutated(value[place], chance), *value[place + 1 :]]
    return chance.choice([None, 0, -1, 1 << 70, 0.5, "", "x", "../x", True, [], {}, 17, "0" * 64])


def test_random_edits(source: Database, made: list[str], make_database: Make, tmp_path: Path) -> None:
    """Each ends with an error of ours that a user can read, or with the rows of one of the two backups."""
    chance = random.Random(11)
    wanted = {checksum(source, "homes", as_of=each.until).checksum for each in list_backups(tmp_path / "root")}
    notes = [note_of(folder) for folder in made]
    texts = [json.dumps({**json.loads(note.read_text()), "seal": None}) for note in notes]
    refused = 0
    for turn in range(80):
        note, text = chance.choice(list(zip(notes, texts, strict=True)))
        note.write_text(json.dumps(mutated(copy.deepcopy(json.loads(text)), chance)))
        target = make_database()
        try:
            made_table = restore(target, tmp_path / "root", "homes", name="r").table
        except StoreError as error:
            refused += 1
            assert "\n" not in error.message and "Traceback" not in error.message, error.message
        else:
            found = checksum(target, made_table)
            assert found.rows > 400 and (found.checksum in wanted or "columns" in note.read_text()), turn
        note.write_text(text)
    assert refused > 40
