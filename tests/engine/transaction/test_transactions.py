"""Transactions in the store: how long staged rows live, what a restart keeps, and rows that are written past memory."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.engine.transaction import commit as commits
from nyala.engine.transaction import plan as plans
from nyala.engine.transaction.loader import Loader
from nyala.engine.transaction.tablet_part import Refusals, StagedChunk, TabletPart, pieces, routed
from nyala.engine.vectors.keys.keys import hash_keys, slice_keys
from nyala.schemas.errors import (
    ConflictError,
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.table.partition import hash as hash_by
from tests.doubles.clock import ManualClock

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
START = 1_700_000_000_000_000
DIRECT: dict[str, Any] = {"direct_load_bytes": 1_000, "direct_load_unsorted_bytes": 1_000}


class Subject:
    """A store on a disk in memory, on a clock that stands still."""

    def __init__(self, **options: Any) -> None:
        self.fs = MemoryFileSystem()
        self.clock = ManualClock(START)
        small = {"maintenance": "off", "wal_segment_bytes": 1 << 12, "staging_ttl_seconds": 60, "scan_threads": 1}
        self.options = StoreOptions(**{**small, **options})
        self.store = Store.open(self.fs, self.options, self.clock)
        self.db = Database(self.store)

    def stage(self, name: str, part: str, keys: list[int], op: str = "upsert", v: str = "v", table: str = "t") -> None:
        batch = pa.record_batch([pa.array(keys, pa.int64()), [v] * len(keys)], schema=SCHEMA)
        command = WriteCommand(table=table, op=Operation(op), stage=Stage(transaction=name, part=part))
        self.store.stage(command, [StagedBatch(batch)])

    def commit(self, name: str, *parts: str, **more: Any) -> Any:
        return self.store.commit_transaction(TransactionCommit(transaction=name, parts=list(parts), **more))

    def staged(self) -> list[str]:
        return self.fs.list("staging")

    def wait(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1_000_000))

    def restart(self, crash: bool = False) -> None:
        if crash:
            image = self.fs.crash_image(Random(0))
            self.fs.crash_at = self.fs.operations
            self.fs = image
        else:
            self.store.close()
        self.store = Store.open(self.fs, self.options, self.clock)
        self.db = Database(self.store)

    def rows(self, table: str = "t") -> dict[int, str]:
        found = self.db.table(table).scan().to_arrow().to_pylist()
        assert len(found) == len({row["k"] for row in found})
        return {row["k"]: row["v"] for row in found}


@pytest.fixture(autouse=True, params=["held", "placed as read"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of small transactions are held until all are read, those of large ones are not."""
    if request.param == "placed as read":
        monkeypatch.setattr(plans, "_HELD_BYTES", 0)


@pytest.fixture
def subject() -> Subject:
    made = Subject()
    made.db.create_table("t", SCHEMA, ["k"])
    return made


def test_what_was_staged_lives_for_a_time_that_each_part_renews(subject: Subject) -> None:
    subject.stage("T", "a", [1])
    subject.stage("other", "a", [7])
    subject.wait(40)
    subject.stage("T", "b", [2])
    subject.wait(40)
    assert subject.store.run_maintenance_once() == "remove staged rows that are too old"
    with pytest.raises(NotFoundError):
        subject.commit("other", "a")
    assert len(subject.staged()) == 2 and subject.commit("T", "a", "b").applied == 2
    assert subject.staged() == [] and subject.store.run_maintenance_once() is None


def test_stage_throws_away_what_is_too_old(subject: Subject) -> None:
    subject.stage("T", "a", [1])
    subject.wait(61)
    subject.stage("other", "a", [7])
    assert len(subject.staged()) == 1


@pytest.mark.parametrize("crash", [False, True])
def test_what_was_staged_survives_a_restart(subject: Subject, crash: bool) -> None:
    subject.stage("T", "a", [1, 2])
    subject.stage("old", "a", [7])
    subject.wait(50)
    subject.stage("T", "b", [3])
    subject.wait(20)
    subject.restart(crash)
    assert len(subject.staged()) == 3, "their time begins anew: nobody could stage meanwhile"
    assert subject.commit("T", "a", "b").applied == 3 and subject.rows() == dict.fromkeys((1, 2, 3), "v")
    subject.wait(61)
    subject.stage("T2", "a", [4])
    assert len(subject.staged()) == 1
    assert subject.commit("T2", "a").applied == 1


@pytest.mark.parametrize("opened", ["once", "between the two", "after both"])
def test_a_part_staged_again_replaces_the_first_whatever_the_clock(subject: Subject, opened: str) -> None:
    subject.stage("T", "a", [1, 2], v="first")
    subject.wait(-3_600)
    if opened == "between the two":
        subject.restart()
    with pytest.MonkeyPatch.context() as patch:
        if opened == "after both":  # a crash comes before the first file is removed
            patch.setattr(subject.fs, "unlink", lambda path: None)
        subject.stage("T", "a", [1, 3], v="second")
    if opened == "after both":
        assert len(subject.staged()) == 2
        subject.restart(crash=True)
    assert len(subject.staged()) == 1
    assert subject.commit("T", "a").applied == 2 and subject.rows() == dict.fromkeys((1, 3), "second")


def test_what_was_staged_long_ago_is_discarded_by_an_opening_though_each_begins_its_time_anew(subject: Subject) -> None:
    subject.stage("old", "a", [7])
    subject.stage("T", "a", [1])
    for _ in range(30):
        subject.wait(49)
        subject.stage("T", "b", [2])
        subject.restart()
    assert len(subject.staged()) == 2 and subject.commit("T", "a", "b").applied == 2
    with pytest.raises(NotFoundError):
        subject.commit("old", "a")


def test_a_file_that_is_cut_off_or_damaged_is_swept_and_one_damaged_later_is_refused(subject: Subject) -> None:
    subject.stage("T", "a", [1])
    subject.stage("T", "b", [2])
    (first, second) = subject.staged()
    content = bytearray(subject.fs.open(f"staging/{first}").pread(0, 1 << 20))
    content[-400] ^= 1
    for name, damaged in ((first, bytes(content)), (second, bytes(content[:-8]))):
        subject.fs.unlink(f"staging/{name}")
        file = subject.fs.create(f"staging/{name}")
        file.append(damaged)
        file.close()
    with pytest.raises(CorruptionError, match="checksum of a block"):
        subject.commit("T", "a")
    assert subject.rows() == {}
    subject.restart()
    assert subject.staged() == [first], "the other has no end"


def test_names_and_versions_outlive_the_log(subject: Subject) -> None:
    subject.stage("T", "a", [1])
    first = subject.commit("T", "a", app_id="query", app_version=7)
    subject.db.create_table("other", SCHEMA, ["k"])
    table = subject.db.table("other")
    for round_ in range(3):
        for key in range(40):
            table.upsert({"k": [key], "v": [f"{round_}" * 300]})
        segments = len(subject.fs.list("wal"))
        for name in ("t", "other"):
            subject.db.table(name).maintain("flush")
            subject.db.table(name).maintain("flush_deltas")
        assert len(subject.fs.list("wal")) < segments, "the log was freed"
        subject.restart(crash=round_ == 1)
        table = subject.db.table("other")
        assert subject.commit("T", "a") == first
        assert subject.commit("U", app_id="query", app_version=7).skipped
    assert not subject.commit("V", app_id="query", app_version=8).skipped
    assert verify_store_of(subject)


def verify_store_of(subject: Subject) -> bool:
    subject.store.close()
    report = verify_store(subject.fs)
    return report.is_sound


@pytest.mark.parametrize("buckets", [0, 2])
def test_new_rows_are_written_past_memory_and_the_log(buckets: int) -> None:
    subject = Subject(**DIRECT, transaction_bytes=3_000)
    partitions = [hash_by("k", buckets=buckets)] if buckets else []
    table = subject.db.create_table("t", SCHEMA, ["k"], partition_by=partitions)
    table.insert({"k": [5, 6], "v": ["old", "old"]})
    before, held = subject.db.now(), table.stats()["memory"]["stores_bytes"]
    for part in range(4):
        subject.stage("T", str(part), list(range(part * 5000, part * 5000 + 5000)))
    result = subject.commit("T", "0", "1", "2", "3")
    assert (result.rows, result.applied) == (20_000, 20_000)
    assert subject.rows() == dict.fromkeys(range(20_000), "v")
    assert table.scan(as_of=before).count() == 2 and table.last_change() == result.timestamp
    stats = table.stats()
    assert sum(tablet["rowsets"] for tablet in stats["tablets"]) >= 4
    assert stats["memory"]["stores_bytes"] < 2 * held
    feed = table.changes(before).to_arrow()
    assert feed.num_rows == 20_000 and set(feed["_timestamp"].to_pylist()) == {result.timestamp}
    for crash in (True, False):
        subject.restart(crash)
        assert subject.rows() == dict.fromkeys(range(20_000), "v")
        for op in ("flush", "flush_deltas", "compact"):
            subject.db.table("t").maintain(op)
    assert subject.rows() == dict.fromkeys(range(20_000), "v")
    assert verify_store_of(subject)


def base_files(subject: Subject) -> list[str]:
    tablets = [f"tablets/{directory}" for directory in subject.fs.list("tablets")]
    return [name for tablet in tablets for name in subject.fs.list(tablet) if name.endswith("base")]


def test_a_key_that_comes_again_when_others_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before it is known is removed, and no row is counted twice."""
    subject = Subject(**DIRECT, transaction_bytes=3_000)
    table = subject.db.create_table("t", SCHEMA, ["k"], partition_by=[hash_by("k", buckets=2)])
    written, write = 0, Loader.write

    def counted(self: Loader) -> None:
        nonlocal written
        written += 1
        write(self)

    monkeypatch.setattr(Loader, "write", counted)
    for part in range(3):
        subject.stage("T", str(part), list(range(part * 5000, part * 5000 + 5000)))
    subject.stage("T", "twice", [20_000, 20_000])
    subject.stage("T", "again", [7, 20_001], v="last")
    subject.stage("T", "refused", [30_000], v="x" * 70_000)
    refused = subject.commit("T", "0", "refused", "1", "twice", "2", "again")
    assert (refused.applied, refused.error_count, [error.row for error in refused.errors]) == (0, 1, [0])
    assert base_files(subject) == [] and subject.rows() == {}
    written = 0
    result = subject.commit("T", "0", "1", "twice", "2", "again")
    assert (result.rows, result.applied) == (15_004, 15_004)
    assert subject.rows() == dict.fromkeys(range(15_000), "v") | {7: "last", 20_000: "v", 20_001: "last"}
    rowsets = sum(tablet["rowsets"] for tablet in table.stats()["tablets"])
    assert rowsets == len(base_files(subject)) == (written if plans._HELD_BYTES else written // 2)
    subject.restart()
    assert len(base_files(subject)) == rowsets and verify_store_of(subject)


def test_rows_that_are_placed_again_count_once_as_held() -> None:
    subject = Subject(transaction_bytes=20_000)
    subject.db.create_table("t", SCHEMA, ["k"])
    subject.stage("T", "a", list(range(1000)))
    subject.stage("T", "b", [0], v="last")
    assert subject.commit("T", "a", "b").applied == 1001
    assert subject.rows() == dict.fromkeys(range(1000), "v") | {0: "last"}


def test_keys_that_come_again_early_are_found_before_the_other_rows_are_placed(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed, place = list[str](), plans.Plan._place

    def noted(self: plans.Plan, work: plans.TableWork, piece: TabletPart, repeated: Any) -> None:
        placed.append(piece.part)
        place(self, work, piece, repeated)

    monkeypatch.setattr(plans.Plan, "_place", noted)
    firsts = [0, 0, 500, 1000, 1500, 2000]
    for part, first in enumerate(firsts):
        subject.stage("T", str(part), list(range(first, first + 500)))
    names = [str(part) for part in range(len(firsts))]
    assert subject.commit("T", *names).applied == 3000
    assert placed == (names if plans._HELD_BYTES else ["0", *names])


def test_a_refused_row_leaves_no_file_of_the_new_ones() -> None:
    subject = Subject(**DIRECT)
    subject.db.create_table("t", SCHEMA, ["k"])
    subject.stage("T", "new", list(range(500)))
    subject.stage("T", "bad", [9999], op="update")
    files = [name for directory in subject.fs.list("tablets") for name in subject.fs.list(f"tablets/{directory}")]
    assert subject.commit("T", "new", "bad").error_count == 1
    after = [name for directory in subject.fs.list("tablets") for name in subject.fs.list(f"tablets/{directory}")]
    assert after == files and subject.rows() == {}
    assert subject.commit("T", "new").applied == 500


def test_a_key_that_comes_between_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(**DIRECT)
    table = subject.db.create_table("t", SCHEMA, ["k"])
    subject.stage("T", "a", list(range(500)), op="insert_ignore")
    planned = commits.Plan
    between = iter([7, 8])

    def plan(*args: Any) -> Any:
        made = planned(*args)
        for key in between:
            table.upsert({"k": [key], "v": ["theirs"]})
            break
        return made

    monkeypatch.setattr(commits, "Plan", plan)
    result = subject.commit("T", "a")
    assert (result.applied, result.ignored) == (498, 2)
    assert subject.rows() == {**dict.fromkeys(range(500), "v"), 7: "theirs", 8: "theirs"}


def test_who_is_disturbed_all_the_time_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(**DIRECT)
    table = subject.db.create_table("t", SCHEMA, ["k"])
    subject.stage("T", "a", list(range(500)))
    planned, keys = commits.Plan, iter(range(500))

    def plan(*args: Any) -> Any:
        made = planned(*args)
        table.insert({"k": [next(keys)], "v": ["theirs"]})
        return made

    monkeypatch.setattr(commits, "Plan", plan)
    with pytest.raises(ConflictError, match="commit again"):
        subject.commit("T", "a")
    monkeypatch.undo()
    assert subject.commit("T", "a").applied == 500 and set(subject.rows().values()) == {"v"}


def test_a_transaction_in_use_is_not_aborted(subject: Subject) -> None:
    def batches():
        yield StagedBatch(pa.record_batch([pa.array([1], pa.int64()), ["v"]], schema=SCHEMA))
        with pytest.raises(ConflictError):
            subject.store.abort_transaction("T")
        subject.wait(100)
        assert subject.store.run_maintenance_once() is None

    command = WriteCommand(table="t", stage=Stage(transaction="T", part="a"))
    assert subject.store.stage(command, batches()).rows == 1
    assert subject.commit("T", "a").applied == 1
    subject.store.abort_transaction("never")


def test_a_commit_whose_log_failed_is_not_told_to_be_done(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    subject.stage("T", "a", [1])

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the cable fell out")

    monkeypatch.setattr(MemoryWritableFile, "sync", fail)
    for name, parts in (("T", ["a"]), ("T", ["a"]), ("U", [])):
        with pytest.raises(UnavailableError, match="the cable fell out"):
            subject.commit(name, *parts, app_id="query", app_version=7)
    monkeypatch.undo()
    subject.restart(crash=True)
    assert subject.commit("T", "a", app_id="query", app_version=7).applied == 1 and subject.rows() == {1: "v"}


def test_ids_that_a_later_part_brings_along_are_not_given_to_new_rows() -> None:
    subject = Subject()
    table = subject.db.create_table("t", SCHEMA, ["k"], unique_key=False)
    subject.stage("T", "new", [1, 1], op="insert", v="new")
    with_ids = pa.record_batch({"k": [1, 1], table.schema.names[1]: [1, 2], "v": ["copied"] * 2})
    command = WriteCommand(table="t", op=Operation.UPSERT, stage=Stage(transaction="T", part="copied"))
    subject.store.stage(command, [StagedBatch(with_ids)])
    assert subject.commit("T", "new", "copied").applied == 4
    found = table.scan(ordered=True).to_arrow()
    assert found[table.schema.names[1]].to_pylist() == [1, 2, 3, 4]
    assert found["v"].to_pylist() == ["copied"] * 2 + ["new"] * 2


def test_a_part_that_is_staged_again_during_the_commit_does_not_disturb_it(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject.stage("T", "a", [1, 2])
    subject.stage("T", "b", [2, 3])
    repeated = plans._repeated

    def staged_again(hashes: Any) -> Any:
        found = repeated(hashes)
        subject.stage("T", "a", [4])
        return found

    monkeypatch.setattr(plans, "_repeated", staged_again)
    assert subject.commit("T", "a", "b").applied == 4 and subject.rows() == {1: "v", 2: "v", 3: "v"}
    assert subject.staged() == []


def test_new_rows_of_many_tablets_take_no_more_memory_than_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(direct_load_bytes=2_000, transaction_bytes=20_000)
    subject.db.create_table("t", SCHEMA, ["k"], partition_by=[hash_by("k", buckets=32)])
    table = subject.db.table("t")
    table.insert({"k": [7], "v": ["old"]})
    most, add = 0, Loader.add
    loaders: dict[int, Loader] = {}

    def added(self: Loader, piece: TabletPart) -> TabletPart | None:
        nonlocal most
        loaders[id(self)] = self
        others = add(self, piece)
        most = max(most, sum(each.waiting_bytes for each in loaders.values()))
        return others

    monkeypatch.setattr(Loader, "add", added)
    for part in range(4):
        subject.stage("T", str(part), list(range(part * 500, part * 500 + 500)), v="x" * 20)
    assert subject.commit("T", "0", "1", "2", "3").applied == 2_000
    assert len(loaders) == 32 and most < 20_000 + 2_000, "each of them waits for 2,000 bytes otherwise"
    subject.restart(crash=True)
    assert subject.rows() == dict.fromkeys(range(2_000), "x" * 20)
    assert verify_store_of(subject)


def test_rows_that_wait_do_not_keep_those_that_they_came_with() -> None:
    subject = Subject()
    table = subject.db.create_table("t", SCHEMA, ["k"], partition_by=[hash_by("k", buckets=2)])
    own = subject.store._catalog.table("t")
    batch = pa.record_batch([pa.array(range(40_000), pa.int64()), ["v"] * 40_000], schema=SCHEMA)
    chunk = StagedChunk("part", 0, Operation.UPSERT, batch)
    parts = routed(chunk, own, own.version, subject.options.limits, 0)
    for piece in pieces(chunk, parts, own, Refusals(1)):
        few = replace(piece, rows=piece.rows.slice(5, 7), keys=slice_keys(piece.keys, 5, 12), hashes=piece.hashes[5:12])
        assert few.rows.get_total_buffer_size() > 100_000
        alone = few.alone()
        assert alone.rows.equals(few.rows) and alone.rows.get_total_buffer_size() < 1_000
        assert hash_keys(alone.keys).tolist() == few.hashes.tolist()
    assert table.scan().count() == 0


def coded(values: list[str | None]) -> pa.Array:
    """Codes of one byte, of a dictionary that no other batch has."""
    return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int8()), pa.array(values, pa.string()))


def in_runs(values: list[str | None]) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), pa.array(values))


@pytest.mark.parametrize("wrapped", [coded, in_runs], ids=["dictionary", "runs"])
def test_staged_columns_may_be_dictionaries_and_runs(wrapped: Any) -> None:
    """Also more of them than one dictionary of that type could hold, and after a restart."""
    subject = Subject()
    subject.db.create_table("t", SCHEMA, ["k"])
    cells: list[list[str | None]] = [[f"{n}-{i}" if i else None for i in range(100)] for n in range(3)]
    batches = [
        StagedBatch(pa.record_batch([pa.array(range(100 * n, 100 * n + 100)), wrapped(some)], names=["k", "v"]))
        for n, some in enumerate(cells)
    ]
    command = WriteCommand(table="t", op=Operation.UPSERT, stage=Stage(transaction="x", part="p"))
    subject.store.stage(command, batches)
    subject.restart(crash=True)
    assert subject.commit("x", "p").applied == 300
    assert subject.rows() == dict(enumerate(cell for some in cells for cell in some))


def test_a_dictionary_that_stands_for_too_much_is_refused() -> None:
    subject = Subject(limits=Limits(batch_bytes=10_000))
    subject.db.create_table("t", SCHEMA, ["k"])
    codes = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int8()), pa.array(["x" * 100]))
    command = WriteCommand(table="t", op=Operation.UPSERT, stage=Stage(transaction="x", part="p"))
    with pytest.raises(InvalidArgumentError, match="'v', with dictionaries and views decoded, have 20,000 bytes"):
        subject.store.stage(command, [StagedBatch(pa.record_batch([range(200), codes], names=["k", "v"]))])
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 9], pa.int8()), pa.array(["x"]), safe=False)
    with pytest.raises(InvalidArgumentError, match="not valid Arrow"):
        subject.store.stage(command, [StagedBatch(pa.record_batch([range(2), broken], names=["k", "v"]))])
    assert not subject.staged()


@pytest.mark.parametrize("defaults", [0, 40])
def test_batches_that_fit_are_committed_however_many_they_are(defaults: int) -> None:
    """Together they are more than one batch may be, by what was sent or by what stands for the columns left out."""
    subject = Subject(limits=Limits(batch_bytes=1 << 18))
    more = [pa.field(f"d{n}", pa.int64()) for n in range(defaults)]
    subject.db.create_table("t", pa.schema([*SCHEMA, *more]), ["k"])
    batches = [
        StagedBatch(pa.record_batch([range(500 * n, 500 * n + 500), ["x" * 200] * 500], schema=SCHEMA))
        for n in range(8)
    ]
    command = WriteCommand(table="t", op=Operation.UPSERT, stage=Stage(transaction="x", part="p"))
    subject.store.stage(command, batches)
    assert subject.commit("x", "p").applied == 4_000
    assert subject.db.table("t").scan().count() == 4_000
