"""Bulk import: what it shows, what it refuses, and that a failure leaves all of it or nothing."""

from __future__ import annotations

import errno
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.cfile import writer
from nyala.engine.cfile.zone_map import ZoneMap, zone_map_of
from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.offload.bulk import commit, imports, staged
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.rowset import diskrowset
from nyala.engine.store import Store
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import Vector
from nyala.schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    StoreError,
    WrongServerError,
)
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.bulk import ImportBegin, ImportCommit, ImportFile, ImportMode
from nyala.schemas.store.placement import Placement
from nyala.schemas.table.alter import AddColumn, Alteration
from nyala.schemas.table.table import TableDefinition
from tests.dose import by_night
from tests.doubles.clock import ManualClock
from tests.doubles.faulty import EVERY_CALL, READS, FaultRule, FaultyFileSystem
from tests.engine.offload.bulk.importing import bring, built, rows_of
from tests.engine.phases import at
from tests.engine.subject import SCHEMA, Subject, batch


def files_in(subject: Subject) -> set[str]:
    """Return what is on the disk beside what the manifest names."""
    named = {
        name
        for table in subject.environment.manifest.current.tables
        for tablet in table.tablets
        for rowset in tablet.rowsets
        for name in rowset.file_names
    } | {f"{rowset.rowset_id}.base" for rowset in subject.tablet.version.attached}
    left = set(subject.fs.list("tablets/2")) - named
    return left | set(subject.fs.list("imports") if subject.fs.exists("imports") else ())


def test_all_rows_are_there_from_one_timestamp_on() -> None:
    subject = Subject()
    subject.upsert(1000, 1001)
    result = bring(subject, rows_of(5, 3, 9, 1))
    assert (result.rows, result.applied) == (4, 4) and not files_in(subject)
    assert len(subject.scan(as_of=result.timestamp - 1)) == 2
    feed = ChangeSpec(since=result.timestamp - 1)
    assert sorted(row[:3:2] for row in subject.scan(changes=feed)) == [("insert", key) for key in (1, 3, 5, 9)]
    for work in ("flush", "flush_deltas", "compact"):
        subject.store.maintain("t", work)
        subject.check()
    subject.crash(Random(1))
    subject.close()


@pytest.mark.parametrize("seed", by_night(range(8), range(3)))
def test_any_history_reads_the_same_with_imports_in_it(seed: int) -> None:
    random = Random(seed)
    subject = Subject(flush_bytes=random.choice([1, 1 << 20]))
    kinds = ["flush", "flush_deltas", "minor_compact", "major_compact", "compact"]
    fresh = iter(range(1_000, 10_000, 3))
    for number in range(12):
        subject.some_writes(random, range(0, 60, 3), commits=1)
        if random.random() < 0.5:
            keys = random.sample(range(80), random.randint(1, 30)) + [next(fresh) for _ in range(random.randint(0, 9))]
            bring(subject, [(key, number, "upserted") for key in keys], "upsert")
        else:
            bring(subject, rows_of(*(next(fresh) for _ in range(random.randint(1, 9))), v=number))
        if random.random() < 0.6:
            subject.store.maintain("t", random.choice(kinds))
        if random.random() < 0.2:
            subject.crash(random)
        elif random.random() < 0.1:
            subject.restart()
        subject.check()
    subject.close()


def test_partitions_types_and_files_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "TARGET_BYTES", 4_000)
    fs = MemoryFileSystem()
    schema = pa.schema(
        [
            pa.field("id", pa.string(), False),
            pa.field("day", pa.date32(), False),
            ("cents", pa.decimal128(12, 2)),
            ("at", pa.timestamp("us")),
            ("ok", pa.bool_()),
            ("kind", pa.string()),
        ]
    )
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        store.create_table(
            TableDefinition.from_arrow("t", schema, ["id", "day"], partition_by=[nyala.hash("id", buckets=3)])
        )
        count = 700
        rows = pa.table(
            {
                "id": [f"key {number * 7919 % count}" for number in range(count)],
                "day": pa.array(range(count), pa.int32()).cast(pa.date32()),
                "cents": pa.array([Decimal(n) if n % 5 else None for n in range(count)], pa.decimal128(12, 2)),
                "at": pa.array(range(count), pa.int64()).cast(pa.timestamp("us")),
                "ok": [n % 3 == 0 for n in range(count)],
                "kind": pa.array([f"kind {n % 4}" for n in range(count)]).dictionary_encode(),
            }
        )
        plan = store.import_begin(ImportBegin(table="t"))
        files = built(plan, fs, rows.to_batches(max_chunksize=100))
        assert {file.tablet for file in files} == {2, 3, 4} and len(files) > 6
        store.import_commit(ImportCommit(import_id=plan.import_id, files=tuple(files)))
        order = [("id", "ascending"), ("day", "ascending")]
        found = store.scan(ScanSpec(table="t")).to_reader().read_all()
        assert found.sort_by(order).equals(rows.cast(found.schema).sort_by(order))
    report = verify_store(fs)
    assert report.is_sound and not report.notes, report


def test_left_out_columns_get_their_defaults_and_bad_rows_are_named() -> None:
    subject = Subject()
    plan = subject.store.import_begin(ImportBegin(table="t"))
    files = built(plan, subject.fs, [batch(rows_of(1, 2)).select(["k", "v"])])
    subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=tuple(files)))
    assert subject.scan(ordered=True) == [(1, 1, None), (2, 1, None)]
    for bad, why in (
        (pa.record_batch({"k": pa.array([1, None], pa.int64())}), "row 1: .*NULL"),
        (pa.record_batch({"v": pa.array([1], pa.int32())}), "'k'"),
        (pa.record_batch({"k": pa.array([1], pa.int64()), "x": pa.array([1])}), "'x'"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            built(plan, subject.fs, [bad])
    with pytest.raises(AlreadyPresentError, match=r"1 keys occur more than once .* \{'k': 7\}"):
        built(plan, subject.fs, [batch(rows_of(7, 8)), batch(rows_of(6, 7))])
    subject.store.close()


def test_keys_that_are_there_are_refused_or_changed() -> None:
    subject = Subject()
    subject.upsert(*range(0, 40, 2))
    subject.flush()
    subject.upsert(101, 103)
    subject.delete(4, 101)
    before = subject.store.now()
    for keys in ((3, 4, 6), (1, 101, 103), (38, 39)):  # 4 and 101 are deleted
        with pytest.raises(AlreadyPresentError, match=r"1 keys .* \{'k': (6|103|38)\}"):
            bring(subject, rows_of(*keys))
    assert subject.store.now() >= before and subject.scan(as_of=before) == subject.scan()
    bring(subject, rows_of(3, 4, 5, 38, 101, 103, 500), "upsert")
    bring(subject, rows_of(3, 4, 5, v=7), "upsert")  # no row is new
    bring(subject, rows_of(1, 7, 9, 1_000))  # between the others, and none of them
    subject.flush_deltas()
    subject.crash(Random(2))
    subject.close()


def test_a_key_in_two_files_is_refused() -> None:
    subject = Subject()
    subject.upsert(1)
    plan = subject.store.import_begin(ImportBegin(table="t"))
    one = built(plan, subject.fs, [batch(rows_of(2, 4, 6))])
    two = built(plan.model_copy(update={"first_file_id": plan.first_file_id + 1}), subject.fs, [batch(rows_of(3, 4))])
    mode = ImportMode.INSERT_ONLY
    with pytest.raises(AlreadyPresentError, match=r"two files of the import have the key \{'k': 4\}"):
        subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=(*one, *two), mode=mode))
    subject.upsert(4)
    with pytest.raises(AlreadyPresentError, match=r"two files of the import have the key \{'k': 4\}"):
        subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=(*one, *two), mode=ImportMode.UPSERT))
    subject.store.import_abort(plan.import_id)
    assert not files_in(subject)
    subject.close()


def test_a_committed_import_is_answered_again_also_after_a_restart() -> None:
    subject = Subject()
    plan = subject.store.import_begin(ImportBegin(table="t"))
    files = tuple(built(plan, subject.fs, [batch(rows_of(1, 2))]))
    asked = ImportCommit(import_id=plan.import_id, files=files)
    first = subject.store.import_commit(asked)
    assert subject.store.import_commit(asked) == first
    subject.crash(Random(0))
    assert subject.store.import_commit(asked) == first
    assert len(subject.scan()) == 2
    subject.store.close()


# What is refused


def damaged(file: ImportFile, subject: Subject, directory: str, place: int) -> None:
    """Write a file anew with one byte changed."""
    path = f"{directory}/{file.name}"
    content = bytearray(subject.fs.open(path).view())
    content[place] ^= 1
    subject.fs.unlink(path)
    new = subject.fs.create(path)
    new.append(bytes(content))
    new.sync()
    new.close()


def test_a_file_that_is_not_what_it_should_be_is_named() -> None:
    subject = Subject()
    plan = subject.store.import_begin(ImportBegin(table="t"))
    (file,) = built(plan, subject.fs, [batch(rows_of(*range(50)))])

    def refused(why: str, *files: ImportFile, import_id: str = plan.import_id) -> None:
        with pytest.raises(InvalidArgumentError, match=why):
            subject.store.import_commit(ImportCommit(import_id=import_id, files=files))

    refused("does not find it in the staging", file.model_copy(update={"name": "none"}))
    refused("its name is a path", file.model_copy(update={"name": "../../manifest"}))
    refused("its name is a path", file.model_copy(update={"name": ".."}))
    refused("twice", file, file)
    refused("number", file.model_copy(update={"file_id": 1}))
    refused("this is file 3", file.model_copy(update={"file_id": plan.first_file_id + 5}))
    refused("no tablet 9", file.model_copy(update={"tablet": 9}))
    refused("the checksum", file.model_copy(update={"bytes": file.bytes - 1}))
    refused("disagree on rows or keys", file.model_copy(update={"rows": 49}))
    refused("disagree on rows or keys", file.model_copy(update={"min_key": "00"}))
    damaged(file, subject, plan.staging, file.bytes // 2)
    refused("the checksum", file)
    damaged(file, subject, plan.staging, file.bytes // 2)
    assert subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=(file,))).applied == 50
    subject.store.close()


def test_a_file_with_more_rows_than_a_location_can_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    plan = subject.store.import_begin(ImportBegin(table="t"))
    files = tuple(built(plan, subject.fs, [batch(rows_of(*range(51)))]))
    monkeypatch.setattr(diskrowset, "ROWS_MAX", 50)
    with pytest.raises(InvalidArgumentError, match=r"cannot be attached: .* 51 rows, and at most 50 are"):
        subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=files))


@pytest.mark.parametrize(
    "wrong", [{"max": 7}, {"min": 9}, {"null_count": 1}, {"min": None, "max": None, "null_count": 50}, {"max": 1 << 40}]
)
def test_bounds_that_are_not_those_of_the_cells_are_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """By them scans would pass over rows."""
    subject = Subject()
    plan = subject.store.import_begin(ImportBegin(table="t"))

    def bounds(cells: Vector, physical: PhysicalType) -> ZoneMap:
        zone = zone_map_of(cells, physical)
        return replace(zone, **wrong) if (zone.min, zone.max) == (8, 8) else zone

    with monkeypatch.context() as patched:
        patched.setattr(writer, "zone_map_of", bounds)
        (file,) = built(plan, subject.fs, [batch(rows_of(*range(50), v=8))])
    asked = ImportCommit(import_id=plan.import_id, files=(file,))
    with pytest.raises(InvalidArgumentError, match="cannot be attached"):
        subject.store.import_commit(asked)
    subject.check()
    subject.store.close()


def test_rows_of_another_tablet_or_schema_are_refused() -> None:
    fs = MemoryFileSystem()
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        parts: list[Any] = [nyala.hash("k", buckets=2)]
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"], partition_by=parts))
        plan = store.import_begin(ImportBegin(table="t"))
        one, two = built(plan, fs, [batch(rows_of(*range(20)))])
        with pytest.raises(InvalidArgumentError, match="belongs to another tablet"):
            store.import_commit(
                ImportCommit(import_id=plan.import_id, files=(one.model_copy(update={"tablet": two.tablet}),))
            )
        other = plan.model_copy(
            update={"schema_": plan.schema_.model_copy(update={"columns": plan.schema_.columns[:2]})}
        )
        (lacking, _) = built(other, fs, [batch(rows_of(*range(20))).select(["k", "v"])])
        with pytest.raises(InvalidArgumentError, match="more or fewer columns"):
            store.import_commit(ImportCommit(import_id=plan.import_id, files=(lacking,)))
        store.alter_table(Alteration(table="t", steps=[AddColumn(op="add_column", name="w", type="int32")]))
        with pytest.raises(ConflictError, match="altered"):
            store.import_commit(ImportCommit(import_id=plan.import_id, files=(one, two)))
        assert not store.scan(ScanSpec(table="t")).to_reader().read_all().num_rows


def test_tables_whose_rows_are_numbered_are_refused() -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"], unique_key=False))
        with pytest.raises(InvalidArgumentError, match="can number its rows"):
            store.import_begin(ImportBegin(table="t"))


def test_a_key_that_comes_while_files_are_brought_in(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    subject.upsert(100)
    at(monkeypatch, (staged.StagedRowSet, "__init__"), False, lambda: subject.upsert(2, v=9))
    with pytest.raises(AlreadyPresentError, match=r"\{'k': 2\}"):
        bring(subject, rows_of(1, 2, 3))
    at(monkeypatch, (commit, "_check_distinct"), False, lambda: subject.upsert(5, v=9))
    bring(subject, rows_of(4, 5, 6), "upsert")
    (left,) = files_in(subject)
    subject.store.import_abort(left)
    assert not files_in(subject)
    subject.close()


# Time, and what is left behind


def test_an_import_has_a_time_to_live_and_does_not_survive_the_process() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock)
    short = subject.store.import_begin(ImportBegin(table="t", ttl_seconds=10))
    long = subject.store.import_begin(ImportBegin(table="t", ttl_seconds=1_000))
    files = tuple(built(short, subject.fs, [batch(rows_of(1))]))
    clock.advance(11_000_000)
    with pytest.raises(NotFoundError, match="it expired"):
        subject.store.import_commit(ImportCommit(import_id=short.import_id, files=files))
    while subject.store.run_maintenance_once():
        pass
    assert subject.fs.list("imports") == [long.import_id]
    subject.restart()
    assert not subject.fs.exists("imports")
    for asked in (long.import_id, "1-0", "nonsense", "../x"):
        with pytest.raises(NotFoundError):
            subject.store.import_commit(ImportCommit(import_id=asked, files=()))
    subject.store.import_abort(long.import_id)
    subject.close()


def test_an_import_of_nothing_is_a_commit_of_nothing() -> None:
    subject = Subject()
    plan = subject.store.import_begin(ImportBegin(table="t"))
    assert subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=())).rows == 0
    assert not subject.scan()
    subject.close()


ROWS = rows_of(1, 2, 3, 50, 51)
"""Some of these are in the table of ``prepared``, dead and alive."""


def prepared(fs: FaultyFileSystem | MemoryFileSystem) -> tuple[Subject, ImportCommit]:
    subject = Subject(fs)
    subject.upsert(2, 50, 90)
    subject.flush()
    subject.delete(50)
    plan = subject.store.import_begin(ImportBegin(table="t"))
    files = built(plan, fs, [batch(ROWS)])
    return subject, ImportCommit(import_id=plan.import_id, files=tuple(files), mode=ImportMode.UPSERT)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_every_call_of_a_commit_may_fail(error: int) -> None:
    """What was refused is not there, and no file of it; it can be asked for again, and applies once."""
    counted = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=EVERY_CALL - READS, nth=1 << 30)])
    subject, asked = prepared(counted)
    before = counted._matched[0]
    subject.store.import_commit(asked)
    calls = counted._matched[0] - before
    subject.store.close()
    failed = 0
    for nth in range(1, calls + 1):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk)
        subject, asked = prepared(fs)
        fs.rules.append(FaultRule(calls=EVERY_CALL - READS, nth=nth, error=error))
        fs._matched.append(0)
        without, with_it = sorted(subject.state.values()), sorted({**subject.state, **{r[0]: r for r in ROWS}}.values())
        try:
            subject.store.import_commit(asked)
            assert subject.scan(ordered=True) == with_it
        except StoreError:
            failed += 1
            if not subject.store._log.read_only_reason:
                assert subject.scan(ordered=True) == without
                subject.store.import_commit(asked)
                assert subject.scan(ordered=True) == with_it
        image = disk.crash_image(Random(nth))
        done = subject.store._log.read_only_reason is None
        subject.store.close()
        after = Subject(fs=image)
        rows = after.scan(ordered=True)
        assert rows == with_it or (not done and rows == without)
        assert not files_in(after) and not image.exists("imports")
        after.store.close()
        assert verify_store(image).is_sound
    assert failed > 5


def test_a_power_failure_leaves_all_of_an_import_or_nothing() -> None:
    fs = MemoryFileSystem()
    subject, asked = prepared(fs)
    first = fs.operations
    subject.store.import_commit(asked)
    last = fs.operations
    subject.store.close()
    seen = set()
    for call in range(first, last + 1):
        fs = MemoryFileSystem()
        subject, asked = prepared(fs)
        without, with_it = sorted(subject.state.values()), sorted({**subject.state, **{r[0]: r for r in ROWS}}.values())
        fs.crash_at = call
        acknowledged = False
        try:
            subject.store.import_commit(asked)
            acknowledged = True
        except (PowerFailure, StoreError):
            pass
        for seed in range(6):
            image = fs.crash_image(Random(f"{call} {seed}"))
            after = Subject(fs=image)
            rows = after.scan(ordered=True)
            assert rows == with_it if acknowledged else rows in (with_it, without)
            seen.add(len(rows))
            assert not files_in(after)
            after.upsert(1_000)
            after.store.close()
            assert verify_store(image).is_sound
    assert seen == {2, 6}


def test_work_under_way_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock)

    def late() -> None:
        clock.advance(10**15)
        while subject.store.run_maintenance_once():
            pass

    at(monkeypatch, (commit, "check_file"), True, late)
    bring(subject, rows_of(1, 2))
    assert [row[0] for row in subject.scan(ordered=True)] == [1, 2]
    subject.store.close()


def test_rows_of_another_server_are_refused() -> None:
    placement = Placement(servers={"a": ("grpc://a:1",), "b": ("grpc://b:1",)})
    disks = {name: MemoryFileSystem() for name in "ab"}
    stores = {
        name: Store.open(disks[name], StoreOptions(maintenance="off", placement=placement, server=name))
        for name in "ab"
    }
    rows = batch(rows_of(*range(40)))
    count = 0
    for name, store in stores.items():
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"], partition_by=[nyala.hash("k", buckets=4)]))
        plan = store.import_begin(ImportBegin(table="t"))
        with pytest.raises(WrongServerError, match="connect to that server"):
            built(plan, disks[name], [rows])
        blind = plan.model_copy(
            update={"tablets": tuple(each.model_copy(update={"elsewhere": None}) for each in plan.tablets)}
        )
        files = built(blind, disks[name], [rows])
        with pytest.raises(WrongServerError, match="connect to that server"):
            store.import_commit(ImportCommit(import_id=plan.import_id, files=tuple(files)))
        mine = {each.id for each in plan.tablets if each.elsewhere is None}
        kept = tuple(file for file in files if file.tablet in mine)
        count += store.import_commit(ImportCommit(import_id=plan.import_id, files=kept)).applied
        found = store.scan(ScanSpec(table="t", here=True)).to_reader().read_all().num_rows
        assert found == sum(file.rows for file in kept)
        store.close()
    assert count == 40


def test_a_builder_that_writes_on_does_not_keep_the_store_from_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    subject.upsert(1)
    plan = subject.store.import_begin(ImportBegin(table="t"))
    listed = MemoryFileSystem.list

    def list_and_write(fs: MemoryFileSystem, path: str) -> list[str]:
        found = listed(fs, path)
        if path == plan.staging and not found:
            fs.create(f"{path}/late.base").close()
        return found

    monkeypatch.setattr(MemoryFileSystem, "list", list_and_write)
    subject.restart()
    monkeypatch.undo()
    subject.check()
    subject.restart()
    assert not subject.fs.exists("imports"), "the next start finds it"
