"""Imports beside writers and drops, and files that no honest builder writes: let through, or refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.offload.bulk import check as bulk_check
from nyala.engine.offload.bulk import commit, staged
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.engine.tablet.attach import NewKeys
from nyala.schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError, UnavailableError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.store.bulk import ImportBegin, ImportCommit, ImportFile, ImportMode, ImportPlan
from nyala.schemas.table.table import TableDefinition, TableSchema
from tests.engine.offload.bulk.importing import bring, built, rows_of
from tests.engine.subject import SCHEMA, Subject, batch


def test_writers_of_the_same_keys_do_not_keep_an_import_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever keys were looked up, one more comes; writers are told to try again before the import gives up."""
    subject = Subject()
    told: list[str] = []
    came = iter(range(1_000))
    check = commit._check_distinct

    def check_while_a_key_comes(*given: Any) -> None:
        check(*given)
        key = next(came)
        try:
            subject.upsert(key, v=9)
        except UnavailableError as error:
            assert error.retry_after_seconds is not None
            told.append(error.message)

    monkeypatch.setattr(commit, "_check_distinct", check_while_a_key_comes)
    result = bring(subject, rows_of(*range(50)), "upsert")
    assert result.applied == 50
    assert len(told) == 1 and "try again" in told[0]
    subject.upsert(*range(10))  # they are let in again
    subject.close()


def test_a_deleted_row_that_comes_back_meanwhile_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key was found dead; when the import is decided, it is alive."""
    subject = Subject()
    subject.upsert(1, 2, v=9)
    subject.delete(1, 2)
    check = commit._check_distinct

    def check_while_a_row_comes(*given: Any) -> None:
        check(*given)
        subject.upsert(2, v=7)

    monkeypatch.setattr(commit, "_check_distinct", check_while_a_row_comes)
    with pytest.raises(AlreadyPresentError, match=r"1 keys .* the first is {'k': 2}"):
        bring(subject, rows_of(1, 2, 3), "insert_only")
    assert [row[:2] for row in subject.scan()] == [(2, 7)]
    subject.close()


def test_a_table_that_is_dropped_is_no_failed_disk(tmp_path: Path) -> None:
    with Store.open(tmp_path, StoreOptions(maintenance="off")) as store:
        for keep_seconds in (0, 3600):
            store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
            plan = store.import_begin(ImportBegin(table="t"))
            files = tuple(built(plan, store._fs, [batch(rows_of(1, 2))]))
            store.drop_table("t", keep_seconds)
            with pytest.raises(NotFoundError, match="table 't' was dropped during the import"):
                store.import_commit(ImportCommit(import_id=plan.import_id, files=files))
        assert store.health().status == "ok"


def forged(store: Store, plan: ImportPlan, cell: bytes) -> ImportFile:
    """Build a file whose text is ``cell``, by a plan that says that it is binary and may be long."""
    columns = [each.model_copy(update={"type": "binary"} if each.name == "s" else {}) for each in plan.schema_.columns]
    limits = plan.limits.model_copy(update={"cell_bytes": 1 << 20})
    schema = TableSchema.model_validate(plan.schema_.model_dump() | {"columns": columns})  # a copy keeps cached values
    other = plan.model_copy(update={"schema_": schema, "limits": limits})
    rows = batch([(key, 1, "x") for key in range(3)])
    cells = pa.array([b"fine", cell, None], pa.binary())
    (file,) = built(other, store._fs, [rows.set_column(2, "s", cells)])
    return file


@pytest.mark.parametrize(
    ("cell", "why", "found"),
    [(b"ab\xff\xfe", "not valid UTF-8", "problems"), (b"x" * 200_000, "200,000 bytes, more than 65,536", "notes")],
)
def test_cells_that_a_table_cannot_hold(cell: bytes, why: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
        plan = store.import_begin(ImportBegin(table="t"))
        asked = ImportCommit(import_id=plan.import_id, files=(forged(store, plan, cell),))
        with pytest.raises(InvalidArgumentError, match=f"cannot be attached: column 's'.*{why}"):
            store.import_commit(asked)
        with monkeypatch.context() as patch:
            patch.setattr(bulk_check, "verify_cells", lambda *_: None)
            store.import_commit(asked)
    report = verify_store(fs)
    assert any("column 's'" in line and why in line for line in getattr(report, found))
    assert report.is_sound == (found == "notes")


def test_links_and_pipes_in_staging_are_no_files(tmp_path: Path) -> None:
    """Else the link itself came to the table's files, and what it means was another's to change."""
    directory, outside = tmp_path / "store", tmp_path / "outside.base"
    with Store.open(directory, StoreOptions(maintenance="off")) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
        plan = store.import_begin(ImportBegin(table="t"))
        (file,) = built(plan, store._fs, [batch(rows_of(1, 2, 3))])
        asked, staged_file = ImportCommit(import_id=plan.import_id, files=(file,)), directory / plan.staging / file.name
        staged_file.rename(outside)
        for make in (staged_file.symlink_to, lambda _: os.mkfifo(staged_file), lambda _: staged_file.mkdir()):
            make(outside)
            with pytest.raises(InvalidArgumentError, match="a link or not a regular file"):
                store.import_commit(asked)
            staged_file.rmdir() if staged_file.is_dir() else staged_file.unlink()
        outside.rename(staged_file)
        assert store.import_commit(asked).applied == 3
    (base,) = directory.glob("tablets/*/*.base")
    assert verify_store(LocalFileSystem(directory)).is_sound
    base.rename(outside)
    base.symlink_to(outside)
    assert any(base.name in line or "file" in line for line in verify_store(LocalFileSystem(directory)).problems)


def test_keys_that_came_meanwhile_are_compared_before_writers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many came while files were brought in, the locks are held only for those that came just before."""
    subject = Subject()
    plan = subject.store.import_begin(ImportBegin(table="t"))
    files: list[ImportFile] = []
    for number in range(3):
        numbered = plan.model_copy(update={"first_file_id": plan.first_file_id + number})
        files += built(numbered, subject.fs, [batch(rows_of(*range(number * 10, number * 10 + 5)))])
    new, compared = iter(range(1_000, 2_000)), {True: 0, False: 0}
    check, are_still_new = commit._check_distinct, NewKeys.are_still_new

    def check_while_keys_come(*given: Any) -> None:
        check(*given)
        assert len(subject.tablet._watches) == 1, "one for all files of a tablet"
        for _ in range(40):
            subject.upsert(next(new))

    def counted(keys: NewKeys) -> bool:
        before = keys._seen
        answer = are_still_new(keys)
        compared[subject.tablet.write_lock.locked()] += keys._seen - before
        return answer

    monkeypatch.setattr(commit, "_check_distinct", check_while_keys_come)
    monkeypatch.setattr(NewKeys, "are_still_new", counted)
    result = subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=tuple(files)))
    assert result.applied == 15 and len(subject.scan()) == 55
    assert compared == {False: 120, True: 0}
    assert not subject.tablet.is_watched
    subject.store.close()


def test_rows_that_are_there_are_read_up_to_the_size_of_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import may have any number of rows, and the rows of a commit are held in memory."""
    subject = Subject(limits=Limits(batch_bytes=50_000))
    for first in range(0, 6_000, 1_000):
        subject.upsert(*range(first, first + 1_000))
    plan = subject.store.import_begin(ImportBegin(table="t"))
    files: list[ImportFile] = []
    for number in range(6):
        numbered = plan.model_copy(update={"first_file_id": plan.first_file_id + number})
        keys = range(number * 1_000, number * 1_000 + 1_000)
        files += built(numbered, subject.fs, [batch(rows_of(*keys))])
    read: list[int] = []
    rows_at = staged.rows_at

    def counted(*given: Any) -> pa.RecordBatch:
        rows = rows_at(*given)
        read.append(rows.nbytes)
        return rows

    monkeypatch.setattr(staged, "rows_at", counted)
    asked = ImportCommit(import_id=plan.import_id, files=tuple(files), mode=ImportMode.UPSERT)
    with pytest.raises(InvalidArgumentError, match=r"already in the table.* at most 50,000"):
        subject.store.import_commit(asked)
    assert sum(read) < 100_000 and len(read) < 6
    subject.check()
    subject.store.import_abort(plan.import_id)
    subject.close()
