"""A damaged log: the store says which file it is and stays closed; a repair keeps all that is sound in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.recovery.repair import RepairReport, repair_store
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import CorruptionError, SnapshotTooOldError
from tests.campaigns.crash.images import contents, cut_at_every_call
from tests.engine.subject import Subject

OPTIONS: dict[str, Any] = {"maintenance": "off", "wal_segment_bytes": 1 << 16}
COMMITS = 30


def filled(path: Path, is_clean: bool = True) -> None:
    """Make two tables, one flushed and one in the log only, of a commit each for every key, over several segments."""
    with nyala.open(path, **OPTIONS) as db:
        for name in ("flushed", "logged"):
            db.create_table(name, data={"k": [-1], "s": ["first"]}, primary_key=["k"])
        for key in range(COMMITS):
            with db.transaction() as both:
                both.upsert("flushed", {"k": [key], "s": [f"row {key} " + "x" * 3000]})
                both.upsert("logged", {"k": [key], "s": [f"row {key} " + "x" * 3000]})
        db.table("flushed").maintain("flush")
        if not is_clean:
            shutil.copytree(path, path.with_name("image"))
    if not is_clean:
        shutil.rmtree(path)
        path.with_name("image").rename(path)


def keys(db: Database, name: str) -> set[int]:
    return set(db.table(name).scan(["k"]).to_arrow()["k"].to_pylist())


def segments(path: Path) -> list[Path]:
    return sorted((path / "wal").iterdir())


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def flip_row(path: Path, key: int) -> None:
    for file in segments(path):
        place = file.read_bytes().find(f"row {key} ".encode())
        if place >= 0:
            return flip(file, place)
    raise AssertionError("the log has no such row")


def repaired(path: Path) -> RepairReport:
    """Repair a store that does not open: a dry run changes nothing, and says what the repair then does."""
    with pytest.raises(CorruptionError, match="nyala repair") as refused:
        nyala.open(path, **OPTIONS)
    assert refused.value.path.startswith("wal") and "\n" not in refused.value.message
    assert not verify_store(LocalFileSystem(path)).is_sound
    before = contents_of(path)
    told = repair_store(LocalFileSystem(path))
    assert contents_of(path) == before
    report = repair_store(LocalFileSystem(path), apply=True)
    assert report.is_applied and report.log == told.log
    after = contents_of(path)
    for name, content in before.items():
        if name.startswith("wal/"):
            assert after[f"damaged/{name}"] == content, "nothing is destroyed"
    assert not repair_store(LocalFileSystem(path)).is_needed
    assert verify_store(LocalFileSystem(path)).is_sound
    return report


def contents_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_record_costs_itself(tmp_path: Path, is_clean: bool) -> None:
    path = tmp_path / "store"
    filled(path, is_clean)
    flip_row(path, 7)
    log = repaired(path).log
    assert log and log.records_lost == 1 and log.records_after == COMMITS - 8 and log.rows_after == 2 * (COMMITS - 8)
    assert [each.partition("/")[0] for each in log.tablets] == (["logged"] if is_clean else ["flushed", "logged"])
    for _ in range(2):
        with nyala.open(path, **OPTIONS) as db:
            assert keys(db, "flushed") == set(range(-1, COMMITS))
            assert keys(db, "logged") == set(range(-1, COMMITS)) - {7}
            db.table("logged").maintain("flush")
    with nyala.open(path, **OPTIONS) as db:
        db.table("logged").upsert({"k": [7, 100], "s": ["again", "new"]})
        db.table("flushed").upsert({"k": [100], "s": ["new"]})
        before = db.now()
        db.table("flushed").upsert({"k": [101], "s": ["new"]})
        with pytest.raises(SnapshotTooOldError):
            db.table("logged").changes(since=1).to_arrow()
        assert db.table("logged").changes(since=before).to_arrow().num_rows == 0
    with nyala.open(path, **OPTIONS) as db:
        assert keys(db, "logged") == set(range(-1, COMMITS)) | {100}
        assert keys(db, "flushed") == set(range(-1, COMMITS)) | {100, 101}, "no log position is given twice"


def gap(path: Path, number: int) -> None:
    segments(path)[number].unlink()


HARM: dict[str, tuple[Callable[[Path], object], bool]] = {
    "the header of the first segment": (lambda path: flip(segments(path)[0], 20), False),
    "the header of another": (lambda path: flip(segments(path)[1], 20), False),
    "the header of a group": (lambda path: flip(segments(path)[1], 64 + 20), True),
    "a segment is missing": (lambda path: gap(path, 1), True),
    "the first is missing": (lambda path: gap(path, 0), True),
    "the last is missing": (lambda path: gap(path, -1), True),
    "all are missing": (lambda path: [file.unlink() for file in segments(path)], True),
    "one is cut": (lambda path: segments(path)[1].write_bytes(segments(path)[1].read_bytes()[:20_000]), True),
    "one is zeroes": (lambda path: segments(path)[1].write_bytes(bytes(1 << 16)), True),
}


@pytest.mark.parametrize("how", HARM)
def test_whatever_is_damaged_all_that_is_sound_is_kept(tmp_path: Path, how: str) -> None:
    filled(tmp_path)
    harm, loses = HARM[how]
    whole = {key for file in segments(tmp_path) for key in range(COMMITS) if b"row %d " % key in file.read_bytes()}
    assert len(whole) == COMMITS
    harm(tmp_path)
    texts = [file.read_bytes() for file in segments(tmp_path)]
    left = {key for text in texts for key in range(COMMITS) if b"row %d " % key in text}
    log = repaired(tmp_path).log
    assert log and bool(log.records_lost) == loses
    with nyala.open(tmp_path, **OPTIONS) as db:
        found = keys(db, "logged")
        assert keys(db, "flushed") == set(range(-1, COMMITS))
        assert found <= left | {-1} and len(found) >= len(left) - 1
        db.table("logged").upsert({"k": [500], "s": ["new"]})
        db.table("flushed").upsert({"k": [500], "s": ["new"]})
    with nyala.open(tmp_path, **OPTIONS) as db:
        assert 500 in keys(db, "flushed") and 500 in keys(db, "logged")


def test_a_segment_of_another_time_is_not_mixed_in(tmp_path: Path) -> None:
    filled(tmp_path)
    old = {file: file.read_bytes() for file in segments(tmp_path)}
    with nyala.open(tmp_path, **OPTIONS) as db:
        db.table("logged").upsert({"k": [1], "s": ["y" * 50_000]})
        db.table("logged").upsert({"k": [2], "s": ["y" * 50_000]})
    *_, newest = segments(tmp_path)
    last = max(old)
    newest.write_bytes(old[last])
    with pytest.raises(CorruptionError, match="another"):
        repair_store(LocalFileSystem(tmp_path), apply=True)
    assert newest.read_bytes() == old[last]


def test_files_that_only_a_lost_record_names_are_set_aside(tmp_path: Path) -> None:
    with nyala.open(tmp_path, direct_load_bytes=1 << 10, **OPTIONS) as db:
        table = db.create_table("t", data={"k": [-1], "s": ["first"]}, primary_key=["k"])
        table.insert({"k": list(range(100)), "s": [f"row {key} " * 10 for key in range(100)]})
        table.upsert({"k": [200], "s": ["row 200 "]})
        (base,) = (tmp_path / "tablets").rglob("*.base")
        content = base.read_bytes()
    (file,) = segments(tmp_path)
    flip(file, file.read_bytes().index(b'"rowset"'))
    log = repaired(tmp_path).log
    name = str(base.relative_to(tmp_path))
    assert log and log.set_aside == [name]
    with nyala.open(tmp_path, **OPTIONS) as db:
        assert keys(db, "t") == {-1, 200}
    assert (tmp_path / "damaged" / name).read_bytes() == content


def test_the_power_fails_at_every_call_of_a_repair_of_the_log() -> None:
    """Afterwards the store does not open or is repaired, and a second repair ends what the first began."""

    def damaged() -> MemoryFileSystem:
        fs = MemoryFileSystem()
        subject = Subject(fs)
        for key in range(6):
            subject.upsert(key, s="x" * 900)
        subject.close()
        (name, *_) = fs.list("wal")
        file = fs._file(f"wal/{name}")
        place = bytes(file.content).index(b"x" * 900)
        file.write(place, b"y")
        file.sync()
        return fs

    log = repair_store(damaged(), apply=True).log
    assert log and log.records_lost == 1
    for image in cut_at_every_call(damaged, partial(repair_store, apply=True)):
        assert _has(image, b"yxxx")
        try:
            subject = Subject(image)
        except CorruptionError as error:
            assert "nyala repair" in error.message
            repair_store(image, apply=True)
            subject = Subject(image)
        assert sorted(row[0] for row in subject.scan()) == [1, 2, 3, 4, 5]
        subject.upsert(7)
        subject.store.close()
        assert verify_store(image).is_sound
        again = Subject(image)
        assert sorted(row[0] for row in again.scan()) == [1, 2, 3, 4, 5, 7]
        again.store.close()
        assert _has(image, b"yxxx"), "nothing is destroyed"


def _has(fs: MemoryFileSystem, what: bytes) -> bool:
    return any(what in content for content in dict(contents(fs)).values() if content)
