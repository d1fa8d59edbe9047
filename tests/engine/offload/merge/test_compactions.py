"""Merges that are done outside: every snapshot stays whatever is written meanwhile, and a failure leaves nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.compaction import switch_over as swapping
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.offload.merge import compactions
from nyala.engine.offload.merge import install_merge as outside
from nyala.engine.offload.merge.concurrent_deltas import LaterDeltas
from nyala.engine.offload.merge.row_places import place_rows
from nyala.engine.offload.merge.run import merge_task
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.engine.tablet import key_lookup
from nyala.schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, StoreError
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.store.compaction import CompactionBegin, CompactionCommit, MergedRowset, MergedTask
from nyala.schemas.table.alter import AddColumn, Alteration, DropColumn, WidenColumn
from nyala.schemas.table.table import TableDefinition
from tests.dose import by_night
from tests.doubles.clock import ManualClock
from tests.engine.faults import assert_no_orphans
from tests.engine.offload.bulk.importing import bring
from tests.engine.offload.merge.merging import BEGIN, compact, merged, token
from tests.engine.phases import at
from tests.engine.subject import SCHEMA, Row, Subject, batch

WRONG = (AssertionError, StoreError, IndexError, KeyError)


def busy(random: Random, subject: Subject) -> Subject:
    """Make rowsets that overlap, some of them attached, with REDO files, deltas in memory, and rows in no file."""
    for number in range(3):
        subject.some_writes(random, range(number * 4, number * 4 + 14), commits=2)
        subject.flush()
        if random.random() < 0.7:
            subject.some_writes(random, range(26))
            subject.flush_deltas()
        if random.random() < 0.3:
            bring(subject, [(key, number, "imported") for key in random.sample(range(40), 9)], "upsert")
    subject.some_writes(random, range(26))
    return subject


def feeds(subject: Subject, until: int) -> list[list[Any]]:
    """Return what changed since each of some moments up to ``until``."""
    moments = [timestamp for timestamp, _ in subject.history[::3] if timestamp < until]
    return [
        sorted(subject.scan(changes=ChangeSpec(since=since, until=until, before=True, every=every)), key=repr)
        for since in moments
        for every in (False, True)
    ]


@pytest.mark.parametrize("seed", by_night(range(10), range(3)))
def test_any_history_reads_the_same(seed: int) -> None:
    random = Random(seed)
    subject = busy(random, Subject())
    until = subject.store.now()
    before = feeds(subject, until)

    def meanwhile() -> None:
        for _ in range(random.randint(0, 3)):
            subject.some_writes(random, range(30), commits=2)
            random.choice([lambda: None, subject.flush, subject.flush_deltas])()
        subject.check()

    compact(subject, meanwhile, rowset_rows=random.choice([3, 9, 1000]))
    assert feeds(subject, until) == before
    subject.check()
    subject.some_writes(random, range(30))
    random.choice([subject.restart, lambda: subject.crash(random)])()
    assert feeds(subject, until) == before
    subject.flush_deltas()
    compact(subject)
    subject.close()
    assert_no_orphans(subject, subject.fs)


def short_of_history() -> tuple[Subject, ManualClock]:
    """Return a store with rows 0 to 9, of which 0 to 4 died before its history."""
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock, table_options={"history_max_age_seconds": 100})
    subject.upsert(*range(10))
    subject.flush()
    subject.delete(*range(5))
    clock.advance(500_000_000)
    subject.history = []
    subject.upsert(9, v=8)
    return subject, clock


@pytest.mark.parametrize("flushes", [(), (2,), (1, 2), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("aging", [False, True], ids=["", "aging"])
def test_rows_that_were_left_out_come_back(flushes: tuple[int, ...], aging: bool) -> None:
    """Also when they are flushed meanwhile, and when the flush leaves out what became ancient meanwhile."""
    subject, clock = short_of_history()

    def meanwhile() -> None:
        for number, work in enumerate(
            [
                lambda: subject.upsert(0, 1, 2, 9, v=1),
                lambda: subject.upsert(1, 3, v=2),
                lambda: subject.delete(0, 1, 7),
                lambda: subject.upsert(1, 7, v=3),
            ]
        ):
            work()
            if aging:
                clock.advance(200_000_000)
                subject.history = []
                subject.upsert(8, v=number)
            if number in flushes:
                subject.flush_deltas()

    compact(subject, meanwhile)
    rows = sum(len(rowset) for rowset in subject.tablet.version.rowsets())
    assert 5 + 3 + (not aging) <= rows <= 5 + 4, "row 4 is gone for good, and 0 where its second life is ancient, too"
    subject.check()
    subject.upsert(4, 2, v=7)
    subject.crash(Random(1))
    subject.check()
    subject.flush()
    compact(subject)
    subject.close()


@pytest.mark.parametrize("again", [(), (1,)], ids=["gone", "one comes back"])
def test_all_rows_may_be_left_out(again: tuple[int, ...]) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock, table_options={"history_max_age_seconds": 100})
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.delete(1, 2, 3)
    clock.advance(500_000_000)
    subject.history = [(subject.store.now(), {})]
    compact(subject, lambda: again and subject.upsert(*again))
    assert sum(len(rowset) for rowset in subject.tablet.version.disk) == len(again)
    subject.upsert(2)
    subject.crash(Random(0))
    subject.close()


@pytest.mark.parametrize(
    "planted",
    [
        (outside, "write_later", lambda *_: None),
        (outside, "write_returned", lambda *_: None),
        (swapping.SwitchOver, "_carry_over", lambda self: 0),
        (LaterDeltas, "between", lambda self, column, low, high: self._run(column, low, high)),
    ],
    ids=["flushed", "came back", "in memory", "old numbers"],
)
def test_what_is_done_about_later_changes_is_needed(monkeypatch: pytest.MonkeyPatch, planted: Any) -> None:
    owner, name, bug = planted
    subject, _ = short_of_history()

    def meanwhile() -> None:
        subject.upsert(0, 8, 9, v=1)
        subject.flush_deltas()
        monkeypatch.setattr(owner, name, bug)
        at(monkeypatch, (outside, "place_rows"), False, lambda: subject.upsert(6, 7, v=2))

    with pytest.raises(WRONG):
        compact(subject, meanwhile)
        subject.check()
    subject.store.close()


PHASES = [
    (outside, "settle_deltas"),
    (outside, "place_rows"),
    (outside, "write_later"),
    (swapping.SwitchOver, "catch_up"),
    (ManifestFile, "commit"),
    (swapping.SwitchOver, "put"),
    (key_lookup, "hash_keys"),
]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=[name for _, name in PHASES])
def test_writes_in_the_middle_of_a_commit(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool
) -> None:
    random = Random(5)
    subject, _ = short_of_history()
    monkeypatch.setattr(key_lookup, "KEYS_AT_ONCE", 4)

    def meanwhile() -> None:
        subject.some_writes(random, range(20), commits=4)
        subject.check()

    def late() -> None:
        subject.some_writes(random, range(20), commits=2)
        at(monkeypatch, phase, before, meanwhile)

    compact(subject, late, rowset_rows=4)
    subject.check()
    random.choice([subject.restart, lambda: subject.crash(random)])()
    subject.flush_deltas()
    subject.close()


def test_a_table_that_was_altered_meanwhile() -> None:
    subject = busy(Random(3), Subject())
    moments = [timestamp for timestamp, _ in subject.history]

    def write(*rows: dict[str, Any]) -> None:
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        subject.store.write(WriteCommand(table="t", op=Operation.UPSERT), nyala_batch(subject, columns))

    def seen() -> list[Any]:
        return [sorted(subject.scan(as_of=moment), key=repr) for moment in [*moments, None]]

    found: list[Any] = []

    def meanwhile() -> None:
        steps = [
            AddColumn(op="add_column", name="w", type="int32", read_default=7),
            DropColumn(op="drop_column", name="s"),
        ]
        subject.store.alter_table(Alteration(table="t", steps=steps))
        write({"k": 1, "v": 5, "w": 6}, {"k": 2, "v": 5, "w": 7})
        subject.flush_deltas()
        subject.store.alter_table(Alteration(table="t", steps=[WidenColumn(op="widen_column", name="v", type="int64")]))
        write({"k": 1, "v": 1 << 40, "w": 8}, {"k": 90, "v": 1 << 41, "w": 9})
        found.append(seen())

    compact(subject, meanwhile)
    assert [seen()] == found
    subject.restart()
    assert [seen()] == found
    subject.store.close()
    assert verify_store(subject.fs).is_sound


def nyala_batch(subject: Subject, columns: dict[str, list[Any]]) -> Any:
    schema = subject.store._catalog.table("t").version.schema.arrow
    names = [name for name in schema.names if name in columns]
    arrays = [pa.array(columns[name], schema.field(name).type) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


# What is handed out


def test_tasks_are_apart_and_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactions, "TARGET_BYTES", 1)
    subject = Subject()
    for keys in (range(0, 10, 2), range(1, 10, 2), range(20, 30), range(40, 50, 2), range(41, 50, 2)):
        subject.upsert(*keys)
        subject.flush()
    plan = subject.store.compaction_begin(BEGIN).model_copy(update={"rowset_bytes": 1 << 20})
    assert [len(task.entry["rowsets"]) for task in plan.tasks] == [2, 2]
    first, second = merged(subject, plan)
    subject.store.compaction_commit(first)
    assert subject.tablet.handed_out and len(subject.tablet.version.disk) == 4
    subject.store.compaction_commit(second)
    assert not subject.tablet.handed_out and len(subject.tablet.version.disk) == 3
    assert not subject.store.compaction_begin(BEGIN).tasks and not subject.fs.list("compactions")
    subject.upsert(25, v=3)
    (again,) = subject.store.compaction_begin(BEGIN).tasks
    assert len(again.entry["rowsets"]) == 1, "a rowset with changes"
    subject.close()


def test_tablets_that_are_named() -> None:
    fs = MemoryFileSystem()
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        parts: list[Any] = [nyala.hash("k", buckets=3)]
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"], partition_by=parts))
        for number in range(2):
            rows: list[Row] = [(key, number, "s") for key in range(number, 90, 2)]
            store.write(WriteCommand(table="t"), batch(rows))
            store.maintain("t", "flush")
        some = store.compaction_begin(CompactionBegin(table="t", tablets=(3, 4, 3)))
        assert [task.tablet for task in some.tasks] == [3, 4]
        with pytest.raises(ConflictError, match="tablet 3 are already handed out"):
            store.compaction_begin(BEGIN)
        with pytest.raises(NotFoundError, match="no tablet 9"):
            store.compaction_begin(CompactionBegin(table="t", tablets=(9,)))
        (rest,) = store.compaction_begin(CompactionBegin(table="t", tablets=(2,))).tasks
        for task in some.tasks:
            done = merge_task(some, task, fs, token())
            store.compaction_commit(CompactionCommit(compaction_id=some.compaction_id, task=done))
        found = store.scan(ScanSpec(table="t")).to_reader().read_all()
        assert found.num_rows == 90 and rest.tablet == 2


def test_a_key_may_be_empty() -> None:
    fs = MemoryFileSystem()
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        schema = pa.schema([pa.field("k", pa.string(), False)])
        store.create_table(TableDefinition.from_arrow("t", schema, ["k"]))
        for keys in (["", "b"], ["a", "c"]):
            store.write(WriteCommand(table="t"), pa.record_batch({"k": keys}, schema))
            store.maintain("t", "flush")
        plan = store.compaction_begin(BEGIN)
        done = merge_task(plan, plan.tasks[0], fs, token())
        store.compaction_commit(CompactionCommit(compaction_id=plan.compaction_id, task=done))
        found = store.scan(ScanSpec(table="t", ordered=True)).to_reader().read_all()
        assert found["k"].to_pylist() == ["", "a", "b", "c"]


@pytest.mark.parametrize("what", ["handed out", "dropped"])
def test_work_that_was_chosen_before_the_tablet_is_taken_gives_way(what: str) -> None:
    subject = busy(Random(2), Subject(flush_deltas_bytes=1, redo_files_count=2))
    operations = subject.store._operations()
    chosen = [operation for operation in operations if "tablet 2" in operation.name and operation.score() > 0]
    assert any("compact" in operation.name for operation in chosen)
    tablet = subject.tablet
    if what == "handed out":
        subject.store.compaction_begin(BEGIN)
    else:
        subject.store.drop_table("t")
    rowsets = tablet.version.disk
    for operation in chosen:
        operation.perform()
    assert tablet.version.disk == rowsets
    subject.store.close()


def test_maintenance_leaves_what_is_handed_out_alone() -> None:
    subject = busy(Random(2), Subject(flush_deltas_bytes=1))
    plan = subject.store.compaction_begin(BEGIN)
    files = subject.fs.list("tablets/2")
    for kind in ("compact", "minor_compact", "major_compact", "gc"):
        with pytest.raises(ConflictError, match="is being compacted outside"):
            subject.store.maintain("t", kind)
    subject.upsert(*range(30), v=77)
    done = {subject.store.run_maintenance_once() for _ in range(8)}
    assert done <= {"flush deltas of tablet 2", "index keys of tablet 2", None} and "flush deltas of tablet 2" in done
    assert set(files) < set(subject.fs.list("tablets/2"))
    with pytest.raises(ConflictError, match="already handed out"):
        subject.store.compaction_begin(BEGIN)
    newer = subject.store.compaction_begin(BEGIN.model_copy(update={"replace": True}))
    with pytest.raises(NotFoundError, match="no compaction"):
        subject.store.compaction_abort(plan.compaction_id)
    assert subject.tablet.handed_out == newer.compaction_id and subject.fs.list("compactions") == [newer.compaction_id]
    subject.store.compaction_abort(newer.compaction_id)
    with pytest.raises(NotFoundError, match="no compaction"):
        subject.store.compaction_abort(newer.compaction_id)
    assert not subject.fs.list("compactions")
    subject.store.maintain("t", "compact")
    subject.close()


# What is refused


def refuses_for_good(subject: Subject, commit: CompactionCommit) -> None:
    for _ in range(2):
        with pytest.raises(ConflictError, match="start a new compaction"):
            subject.store.compaction_commit(commit)
    assert not subject.fs.list("compactions")


def test_rowsets_that_have_changed_are_refused_and_nothing_is_left() -> None:
    for work in ("compact", "minor_compact", "major_compact"):
        subject = busy(Random(4), Subject())
        subject.flush_deltas()
        plan = subject.store.compaction_begin(BEGIN)
        (commit,) = merged(subject, plan)
        subject.tablet.handed_out = None  # nothing depends on it
        subject.upsert(*range(26), v=5)
        subject.flush_deltas()
        subject.store.maintain("t", work)
        refuses_for_good(subject, commit)
        compact(subject)
        subject.close()
        assert_no_orphans(subject, subject.fs)


def test_a_tablet_that_is_gone_is_refused() -> None:
    subject = busy(Random(4), Subject())
    (commit,) = merged(subject, subject.store.compaction_begin(BEGIN))
    subject.store.drop_table("t")
    refuses_for_good(subject, commit)
    subject.store.close()
    assert verify_store(subject.fs).is_sound


def test_a_file_that_is_not_what_it_should_be_is_named() -> None:
    subject = busy(Random(6), Subject())
    subject.delete(3, 4, 5)
    plan = subject.store.compaction_begin(BEGIN)
    (task,) = plan.tasks
    (good,) = merged(subject, plan)
    first = good.task.rowsets[0]

    def refused(why: str, *rowsets: MergedRowset, told: MergedTask = good.task) -> None:
        forged = told.model_copy(update={"rowsets": rowsets or told.rowsets})
        with pytest.raises(InvalidArgumentError, match=why):
            subject.store.compaction_commit(good.model_copy(update={"task": forged}))
        subject.check()

    def base(**update: Any) -> MergedRowset:
        return first.model_copy(update={"base": first.base.model_copy(update=update)})

    def attempt(**update: Any) -> MergedTask:
        """Merge something else than what was handed out."""
        return merge_task(plan, task.model_copy(update=update), subject.fs, token())

    name = first.base.file_id
    refused("no task 7", told=good.task.model_copy(update={"number": 7}))
    refused("does not find it", told=good.task.model_copy(update={"attempt": "ab"}))
    refused(f"file {name} .* the checksum", base(crc=first.base.crc ^ 1))
    refused("number is outside the plan's", base(file_id=3))
    refused("occurs twice", first, first)
    refused("does not find it", base(file_id=name + 5000))
    refused("disagree on rows or keys", first.model_copy(update={"rows": first.rows + 1}))
    refused("another timestamp", told=attempt(timestamp=task.timestamp - 1))
    fewer = {**task.entry, "rowsets": task.entry["rowsets"][:-1]}
    refused("lack a row", told=attempt(entry=fewer))
    older = [{**rowset, "redo": []} for rowset in task.entry["rowsets"]]
    refused("is deleted in the files", told=attempt(entry={**task.entry, "rowsets": older}))
    one, another, *_ = subject.tablet.version.disk
    with pytest.raises(InvalidArgumentError, match="a key of the files is in none of the merged rowsets"):
        place_rows([one], [another], task.timestamp, 0)
    assert first.undo
    torn = f"{task.directory}/{good.task.attempt}/tablets/2/{first.undo.file_id}.undo"
    content = bytearray(subject.fs.open(torn).view())
    content[len(content) // 2] ^= 1
    sound = attempt()
    subject.fs.unlink(torn)
    file = subject.fs.create(torn)
    file.append(bytes(content))
    file.close()
    refused(f"file {first.undo.file_id} .* the checksum")
    subject.store.compaction_commit(good.model_copy(update={"task": sound}))
    subject.close()
    assert_no_orphans(subject, subject.fs)


# Time, and what is left behind


def test_a_task_is_committed_once() -> None:
    subject = busy(Random(1), Subject())
    (commit,) = merged(subject, subject.store.compaction_begin(BEGIN))
    done = subject.store.compaction_commit(commit)
    subject.upsert(1, 2, v=4)
    assert subject.store.compaction_commit(commit) == done
    subject.restart()
    with pytest.raises(NotFoundError, match="start a new one"):
        subject.store.compaction_commit(commit)
    subject.close()


def test_a_compaction_has_a_time_to_live_and_does_not_survive_the_process() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock)
    subject.upsert(1, 3)
    subject.flush()
    subject.upsert(2)

    def upkeep() -> None:
        while subject.store.run_maintenance_once():
            pass

    plan = subject.store.compaction_begin(CompactionBegin(table="t", ttl_seconds=10))
    clock.advance(9_000_000)
    subject.store.compaction_renew(plan.compaction_id)
    clock.advance(9_000_000)
    upkeep()
    assert subject.fs.list("compactions")
    clock.advance(9_000_000)
    upkeep()
    assert not subject.fs.list("compactions") and not subject.tablet.handed_out
    with pytest.raises(NotFoundError, match="start a new compaction"):
        merged(subject, plan)
    with pytest.raises(NotFoundError, match="it expired"):
        subject.store.compaction_renew(plan.compaction_id)
    subject.upsert(4)
    subject.store.compaction_begin(CompactionBegin(table="t", ttl_seconds=1))
    clock.advance(2_000_000)  # nobody has come by to drop it
    (commit,) = merged(subject, subject.store.compaction_begin(BEGIN))
    subject.crash(Random(0))
    assert not subject.fs.exists("compactions")
    with pytest.raises(NotFoundError):
        subject.store.compaction_commit(commit)
    subject.close()
