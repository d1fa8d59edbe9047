"""The offline check finds logical damage whose checksums are right, says what is only untidy, and changes nothing."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.delta.file import DeltaFileWriter
from nyala.engine.delta.run import DeltaRun
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.manifest import ManifestFile, TabletEntry
from nyala.engine.manifest.place import COPY_PATH, PATH
from nyala.engine.recovery.verify import VerifyReport, verify_store
from nyala.engine.rowset.base_file import BaseFileWriter
from nyala.engine.tablet.tablet import Tablet
from nyala.engine.vectors.keys.keys import take_keys
from nyala.engine.vectors.vector import FixedVector, Vector
from nyala.schemas.errors import CorruptionError, NotFoundError, UnavailableError
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine import subject as subjects
from tests.engine.subject import Subject


def sound() -> MemoryFileSystem:
    """Return a stopped store with a base, undo and redo file and records in the log."""
    fs = MemoryFileSystem()
    subject = Subject(fs)
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.upsert(2, 3, v=7)
    subject.flush_deltas()
    subject.delete(1)
    subject.close()
    return fs


def names(fs: MemoryFileSystem, kind: str) -> list[str]:
    return [f"tablets/2/{name}" for name in fs.list("tablets/2") if name.endswith(kind)]


def only_problem(report: VerifyReport) -> str:
    assert len(report.problems) == 1, report.problems
    return report.problems[0]


def test_a_sound_store_is_counted() -> None:
    fs = sound()
    before = {name: fs.size(name) for name in (PATH, *names(fs, ""))}
    seen: list[str] = []
    report = verify_store(fs, seen.append)
    assert report.is_sound and not report.notes
    assert report.rows == 3 and report.log_records == 3
    assert report.files == 1 + 3 + 1 + 1
    assert report.bytes >= sum(size for name, size in before.items() if name != PATH)
    assert seen == names(fs, "base")
    assert {name: fs.size(name) for name in (PATH, *names(fs, ""))} == before


@pytest.mark.parametrize("kind", ["base", "undo", "redo"])
def test_a_missing_file_is_named(kind: str) -> None:
    fs = sound()
    (path,) = names(fs, kind)
    fs.unlink(path)
    problem = only_problem(verify_store(fs))
    assert problem.startswith("CORRUPTION") and path in problem and "is missing" in problem


def test_a_damaged_copy_of_the_manifest_is_named() -> None:
    """It could not stand for the manifest any more."""
    fs = sound()
    content = bytearray(fs.open(COPY_PATH).pread(0, fs.size(COPY_PATH)))
    content[-9] ^= 1
    fs.unlink(COPY_PATH)
    fs.create(COPY_PATH).append(bytes(content))
    problem = only_problem(verify_store(fs))
    assert problem.startswith(f"CORRUPTION: {COPY_PATH}") and "the next clean stop writes it again" in problem
    fs.unlink(COPY_PATH)
    assert verify_store(fs).is_sound, "a killed process leaves none"


def test_files_that_nothing_names_are_only_noted() -> None:
    fs = sound()
    for path in ("tablets/2/99.base", "tablets/stray"):
        fs.create(path).append(b"left over")
    report = verify_store(fs)
    assert report.is_sound
    assert [note.partition(":")[0] for note in report.notes] == ["tablets/2/99.base", "tablets/stray"]


def test_a_directory_without_a_store_is_left_as_it_is() -> None:
    fs = MemoryFileSystem()
    with pytest.raises(NotFoundError, match="no store"):
        verify_store(fs)
    assert fs.list("") == []


def test_a_store_that_is_open_is_not_verified() -> None:
    subject = Subject()
    with pytest.raises(UnavailableError, match="locked"):
        verify_store(subject.fs)
    subject.store.close()


def test_a_file_that_cannot_be_read_does_not_stop_the_check() -> None:
    fs = sound()
    rule = FaultRule(calls=frozenset({"open"}), path="*.base", sticky=True)
    report = verify_store(FaultyFileSystem(fs, [rule]))
    assert "the disk failed" in only_problem(report)
    assert report.log_records == 3, "the log was checked all the same"


def test_a_log_that_starts_too_late_is_found() -> None:
    fs = MemoryFileSystem()
    subject = Subject(fs)
    for number in range(6):
        subject.upsert(*range(40), v=number, s="x" * 100)
    manifest: ManifestFile = subject.environment.manifest
    subject.store.close()
    assert manifest.current.log_needed_from == 1
    fs.unlink(f"wal/{fs.list('wal')[0]}")
    assert "records from 1 are needed" in only_problem(verify_store(fs))


def test_a_log_that_ends_before_what_files_hold_is_found() -> None:
    fs = sound()
    fs.unlink(f"wal/{fs.list('wal')[-1]}")
    assert verify_store(fs).problems


Damage = Callable[[Any], Any]


def planted(monkeypatch: pytest.MonkeyPatch, kind: str, *damaged: tuple[type, str, Damage]) -> MemoryFileSystem:
    """Return a stopped store; while its files of a kind (base, undo, redo) were written, methods got damaged
    arguments."""
    fs = MemoryFileSystem()
    subject = Subject(fs)
    subject.upsert(1, 2, 3)

    def is_meant(writer: Any) -> bool:
        return writer._writer.kind == kind

    for owner, name, damage in damaged:
        call = getattr(owner, name)

        def changed(self: Any, *args: Any, call: Any = call, damage: Damage = damage) -> Any:
            return call(self, *(damage(args) if is_meant(self) else args))

        monkeypatch.setattr(owner, name, changed)
    subject.flush()
    subject.upsert(2, 3, v=7)
    subject.upsert(2, v=8)
    subject.flush_deltas()
    subject.store.close()
    return fs


@pytest.mark.parametrize("order", [[1, 0, 2], [0, 1, 1], [2, 1, 0]], ids=["swapped", "twice", "backwards"])
def test_rows_out_of_key_order_are_found(monkeypatch: pytest.MonkeyPatch, order: list[int]) -> None:
    rows = np.array(order, np.int64)
    cells = BaseFileWriter, "append", lambda args: (args[0], args[1].take(rows))
    keys = BaseFileWriter, "end_run", lambda args: (take_keys(args[0], rows), args[1])
    fs = planted(monkeypatch, "base", cells, keys)
    assert "not in the order of their keys" in only_problem(verify_store(fs))


def in_runs(change: Callable[[DeltaRun], DeltaRun]) -> tuple[type, str, Damage]:
    """Change the runs that a delta file is written from."""
    return DeltaFileWriter, "append", lambda args: (args[0], change(args[1]) if len(args[1]) else args[1])


def shifted(run: DeltaRun) -> DeltaRun:
    return DeltaRun((run.rowids + 2).astype(np.int32), run.timestamps, run.values)


def backwards(run: DeltaRun) -> DeltaRun:
    return DeltaRun(run.rowids[::-1].copy(), run.timestamps, run.values)


def timeless(run: DeltaRun) -> DeltaRun:
    return DeltaRun(run.rowids, np.sort(run.timestamps)[::-1].copy(), run.values)


@pytest.mark.parametrize(
    ("change", "why"),
    [(shifted, "rows outside 0 to 2"), (backwards, "out of order"), (timeless, "out of order")],
    ids=["rows that are not there", "rows out of order", "times out of order"],
)
def test_deltas_that_do_not_fit_their_rowset_are_found(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[DeltaRun], DeltaRun], why: str
) -> None:
    fs = planted(monkeypatch, "redo", in_runs(change))
    assert why in only_problem(verify_store(fs))


def earlier(run: DeltaRun) -> DeltaRun:
    return DeltaRun(run.rowids, run.timestamps - (1 << 40), run.values)


def later(run: DeltaRun) -> DeltaRun:
    return DeltaRun(run.rowids, run.timestamps + (1 << 40), run.values)


@pytest.mark.parametrize(("kind", "change"), [("redo", earlier), ("undo", later)])
def test_deltas_on_the_wrong_side_of_the_base_are_found(
    monkeypatch: pytest.MonkeyPatch, kind: str, change: Callable[[DeltaRun], DeltaRun]
) -> None:
    fs = planted(monkeypatch, kind, in_runs(change))
    assert "wrong side of its base" in only_problem(verify_store(fs))


def with_null(cells: Vector) -> Vector:
    assert isinstance(cells, FixedVector)
    valid = np.arange(len(cells)) > 0
    return FixedVector(np.where(valid, cells.values, 0).astype(cells.values.dtype), valid)


def null_in_base(args: tuple) -> tuple:
    column_id, cells = args
    return column_id, with_null(cells) if column_id == 2 else cells


def null_in_delta(args: tuple) -> tuple:
    column_id, run = args
    return column_id, DeltaRun(run.rowids, run.timestamps, with_null(run.values)) if column_id == 2 else run


@pytest.mark.parametrize(
    ("kind", "owner", "damage"),
    [("base", BaseFileWriter, null_in_base), ("redo", DeltaFileWriter, null_in_delta)],
    ids=["base", "delta"],
)
def test_a_null_where_none_may_be_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: str, owner: type, damage: Damage
) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.int32(), False), ("s", pa.string())])
    monkeypatch.setattr(subjects, "SCHEMA", schema)
    fs = planted(monkeypatch, kind, (owner, "append", damage))
    assert "column 'v' is NOT NULL, but has a NULL" in only_problem(verify_store(fs))


def test_a_key_in_two_rowsets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    subject = Subject(fs)
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.upsert(0, 9)
    subject.flush()

    def nowhere(tablet: Tablet, keys: Any, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(hashes), -1), np.zeros(len(hashes), np.bool_)

    monkeypatch.setattr(Tablet, "find", nowhere)
    monkeypatch.setattr(
        "nyala.engine.table.small.row_writes.rows_plan_of", lambda *_: None
    )  # which finds keys by itself
    subject.upsert(3, 4)
    subject.flush()
    monkeypatch.undo()
    first, *_, last = (rowset.path for rowset in subject.tablet.version.disk)
    subject.store.close()
    problem = only_problem(verify_store(fs))
    assert first in problem and last in problem and "also in" in problem


def two_rowsets() -> Subject:
    subject = Subject()
    for keys in ((1, 2), (3, 4)):
        subject.upsert(*keys)
        subject.flush()
    subject.upsert(1, 3, v=5)
    subject.flush_deltas()
    return subject


def edited(subject: Subject, edit: Callable[[TabletEntry], TabletEntry]) -> MemoryFileSystem:
    """Stop the store with an edited manifest."""
    subject.environment.manifest.commit(lambda manifest: manifest.with_tablet(2, edit))
    subject.store.close()
    assert isinstance(subject.fs, MemoryFileSystem)
    return subject.fs


def test_a_delta_file_of_another_rowset_is_found() -> None:
    def exchanged(tablet: TabletEntry) -> TabletEntry:
        one, other = tablet.rowsets
        rowsets = one.model_copy(update={"redo": other.redo}), other.model_copy(update={"redo": one.redo})
        return tablet.model_copy(update={"rowsets": rowsets})

    fs = edited(two_rowsets(), exchanged)
    problems = verify_store(fs).problems
    assert len(problems) == 2 and all("deltas of rowset" in problem for problem in problems)
    with pytest.raises(CorruptionError, match="deltas of rowset"):
        Subject(fs).scan()


def test_a_delta_file_of_another_kind_is_found() -> None:
    def mistaken(tablet: TabletEntry) -> TabletEntry:
        one, other = tablet.rowsets
        return tablet.model_copy(update={"rowsets": (one.model_copy(update={"redo": (), "undo": one.redo}), other)})

    subject = two_rowsets()
    (redo,) = subject.environment.manifest.current.tables[0].tablets[0].rowsets[0].redo
    fs = edited(subject, mistaken)
    fs.rename(f"tablets/2/{redo}.redo", f"tablets/2/{redo}.undo")
    assert "kind redo, not undo" in only_problem(verify_store(fs))
    with pytest.raises(CorruptionError, match="kind redo, not undo"):
        Subject(fs).scan()


def test_a_torn_tail_of_the_log_is_noted() -> None:
    fs = MemoryFileSystem()
    subject = Subject(fs)
    subject.upsert(1)
    notes = []
    for seed in range(40):
        image = fs.crash_image(Random(seed))
        report = verify_store(image)
        assert report.is_sound, report.problems
        notes += report.notes
    subject.store.close()
    assert all("torn tail" in note for note in notes)


def test_a_flipped_byte_in_each_file_is_found() -> None:
    fs = sound()
    for path in names(fs, ""):
        file = fs._file(path)
        middle = fs.size(path) // 2
        before = file.read(middle, 1)
        file.write(middle, bytes([before[0] ^ 0x10]))
        assert path in only_problem(verify_store(fs))
        file.write(middle, before)
    assert verify_store(fs).is_sound
