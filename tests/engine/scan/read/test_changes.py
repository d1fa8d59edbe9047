"""The change feed against the model's versions, over every pair of moments, and what it leaves unread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.cells.timestamp import last_of
from nyala.schemas.errors import InvalidArgumentError, SnapshotTooOldError
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.model.feed import feed, replayed
from tests.campaigns.model.machine import writes
from tests.campaigns.model.session import Session
from tests.campaigns.model.shapes import ALL_TYPES, U64, Shape
from tests.campaigns.model.subjects import EmbeddedSubject
from tests.doubles.clock import ManualClock
from tests.engine.subject import Subject

KEYS_ONLY = ("k",)
FULL = ("k", "v", "must")
VALUE = ("k", "v")


def steps(shape: Shape) -> st.SearchStrategy[list[Any]]:
    """Writes twice as often as what moves rows and deltas between stores."""
    moves = st.sampled_from(["flush", "flush_deltas", "flush", "flush_deltas", "close", "power"])
    return st.lists(st.one_of(writes(shape), writes(shape), moves), min_size=2, max_size=12)


def carried_out(session: Session, plan: list[Any]) -> Session:
    for step in plan:
        if step in ("close", "power"):
            session.restart(step, len(session.steps))
        elif isinstance(step, str):
            session.maintain(step)
        else:
            session.write(*step)
    return session


def check_all_pairs(session: Session) -> None:
    for since, until in combinations_with_replacement(range(len(session.moments)), 2):
        session.changes(since, until)
        session.changes(since, until, every=True, before=True)


@pytest.mark.parametrize("shape", [U64, ALL_TYPES], ids=["u64", "all types"])
def test_every_pair_of_moments_gives_the_changes_of_the_model(shape: Shape) -> None:
    @settings(max_examples=30, deadline=None)
    @given(steps(shape))
    def run(plan: list[Any]) -> None:
        session = Session(shape, EmbeddedSubject(shape))
        check_all_pairs(carried_out(session, plan))
        session.subject.close()

    run()


@settings(max_examples=30, deadline=None)
@given(steps(U64), st.data())
def test_calls_chain(plan: list[Any], data: st.DataObject) -> None:
    session = carried_out(Session(U64, EmbeddedSubject(U64)), plan)
    moments = session.moments
    ends = [moments[0], *sorted(data.draw(st.sets(st.sampled_from(moments)))), moments[-1]]

    def rows(since: int, until: int, every: bool) -> list[dict[str, Any]]:
        return session.subject.changes(since, until, every=every, ordered=True).to_pylist()

    parts = [row for since, until in pairwise(ends) for row in rows(since, until, True)]
    whole = rows(moments[0], moments[-1], True)
    assert sorted(parts, key=lambda row: (row["k"], row["_timestamp"])) == whole
    state: dict[int, dict[str, Any]] = {}
    for since, until in pairwise(ends):
        for row in rows(since, until, False):
            op, timestamp, key = row.pop("_op"), row.pop("_timestamp"), row["k"]
            assert since < timestamp <= until
            assert (key in state) == (op != "insert")
            state.pop(key, None)
            if op != "delete":
                state[key] = row
    assert [state[key] for key in sorted(state)] == session.subject.scan(ordered=True).to_pylist()
    session.subject.close()


def born_and_dead_in_the_range(session: Session) -> None:
    """6: insert and delete of a key inside the range, in memory and on disk."""
    session.write("insert", FULL, [(0, 0, 0)])
    session.write("insert", FULL, [(1, 1, 0)])
    session.write("delete", KEYS_ONLY, [(1,)])
    session.maintain("flush")
    session.write("insert", FULL, [(2, 2, 0), (3, 3, 0)])
    session.maintain("flush")
    session.write("delete", KEYS_ONLY, [(2,)])
    session.maintain("flush_deltas")
    session.write("insert", FULL, [(2, 9, 0)])
    session.write("delete", KEYS_ONLY, [(2,), (3,)])


def one_key_in_overlapping_rowsets(session: Session) -> None:
    """7: rowsets with overlapping keys, and a key that dies in one and comes back beside new rows of the next."""
    session.write("insert", FULL, [(0, 0, 0), (2, 2, 0)])
    session.maintain("flush")
    session.write("delete", KEYS_ONLY, [(2,)])
    session.write("insert", FULL, [(1, 1, 0), (3, 3, 0), (2, 7, 0)])
    session.maintain("flush")
    session.write("update", VALUE, [(0, 5), (2, 8)])
    session.write("delete", KEYS_ONLY, [(2,), (3,)])
    session.maintain("flush_deltas")
    session.write("upsert", FULL, [(3, 1, 1), (2, None, 0)])


@pytest.mark.parametrize("sequence", [born_and_dead_in_the_range, one_key_in_overlapping_rowsets])
@pytest.mark.parametrize("restarts", [False, True])
def test_pinned_sequences(sequence: Callable[[Session], None], restarts: bool) -> None:
    session = Session(U64, EmbeddedSubject(U64))
    sequence(session)
    if restarts:
        session.restart("power", 1)
    check_all_pairs(session)
    last = len(session.moments) - 1
    for since in range(last):
        changes = feed(session.oracle, session.moments[since], session.moments[last], every=False)
        state = session.oracle.as_of(session.moments[since])
        assert replayed(state, changes) == session.oracle.now(), "the model's own arithmetic"
    session.subject.close()


# The words of the feed, one by one


@pytest.fixture(params=["memory", "flushed", "deltas flushed", "restarted"])
def place(request: pytest.FixtureRequest) -> Callable[[Subject], None]:
    """Where rows and deltas lie when the feed is read."""

    def put(subject: Subject) -> None:
        if request.param == "flushed":
            subject.flush()
        elif request.param == "deltas flushed":
            subject.flush_deltas()
        elif request.param == "restarted":
            subject.restart()

    return put


def changes(subject: Subject, since: int, until: int | None = None, **options: Any) -> list[dict[str, Any]]:
    scan = {name: options.pop(name) for name in ("columns", "where", "limit") if name in options}
    spec = ScanSpec(
        table="t", changes=ChangeSpec(since=since, until=until, **options), **{"ordered": True, "where": None, **scan}
    )
    return subject.store.scan(spec).to_reader().read_all().to_pylist()


def test_a_delete_carries_the_values_before_it(place: Callable[[Subject], None]) -> None:
    subject = Subject()
    start = subject.upsert(1, v=1, s="old").timestamp
    subject.flush()
    subject.upsert(1, v=2, s="new")
    died = subject.delete(1).timestamp
    place(subject)
    (net,) = changes(subject, start, before=True)
    earlier = {"_before_k": 1, "_before_v": 1, "_before_s": "old"}
    assert net == {"_op": "delete", "_timestamp": died, "k": 1, "v": 2, "s": "new", **earlier}
    update, delete = changes(subject, start, before=True, every=True)
    assert (update["_op"], update["v"], update["_before_v"]) == ("update", 2, 1)
    assert (delete["_op"], delete["v"], delete["_before_v"]) == ("delete", 2, 2)
    subject.close()


def test_an_update_to_the_same_value_is_a_change_and_an_upsert_of_the_key_alone_is_none(
    place: Callable[[Subject], None],
) -> None:
    subject = Subject()
    start = subject.upsert(1, 2, v=1).timestamp
    same = subject.upsert(1, v=1).timestamp
    key_only = pa.record_batch({"k": pa.array([2], pa.int64())})
    subject.store.write(WriteCommand(table="t", op=Operation.UPSERT), key_only)
    place(subject)
    for every in (False, True):
        assert [(row["_op"], row["k"], row["_timestamp"]) for row in changes(subject, start, every=every)] == [
            ("update", 1, same)
        ]
    subject.close()


def test_the_filter_sees_the_values_after_the_change_and_those_that_a_delete_took(
    place: Callable[[Subject], None],
) -> None:
    subject = Subject()
    start = subject.upsert(1, 2, 3, v=1).timestamp
    subject.flush()
    subject.upsert(1, v=5)
    subject.upsert(2, v=6)
    subject.delete(2, 3)
    place(subject)
    assert [(row["_op"], row["k"]) for row in changes(subject, start, where="v = 1")] == [("delete", 3)]
    assert [(row["_op"], row["k"]) for row in changes(subject, start, where="v > 1")] == [("update", 1), ("delete", 2)]
    assert changes(subject, start, where="v = 5", columns=["s"]) == [
        {"_op": "update", "_timestamp": subject.history[2][0], "s": "s"}
    ]
    assert [row["k"] for row in changes(subject, start, where="k >= 2", every=True)] == [2, 2, 3]
    assert changes(subject, start, where="v is null") == []
    subject.close()


def test_no_columns_still_count_the_changes(place: Callable[[Subject], None]) -> None:
    subject = Subject()
    start = subject.history[0][0]
    subject.upsert(1, 2)
    subject.delete(2)
    place(subject)
    assert [sorted(row) for row in changes(subject, start, columns=[], before=True, every=True)] == [
        ["_op", "_timestamp"]
    ] * 3
    assert len(changes(subject, start, every=True, limit=2)) == 2
    subject.close()


def test_many_changes_of_many_rows_come_in_order() -> None:
    subject = Subject(scan_batch_bytes=1 << 12)
    start = subject.history[0][0]
    for number in range(4):
        subject.upsert(*range(0, 3000, number + 1), v=number)
        if number % 2:
            subject.flush()
    rows = changes(subject, start, every=True)
    assert [(row["k"], row["v"]) for row in rows] == [
        (key, number) for key in range(3000) for number in range(4) if key % (number + 1) == 0
    ]
    assert [row["_timestamp"] for row in rows if row["k"] == 0] == [moment for moment, _ in subject.history[1:]]
    subject.close()


def test_a_moment_without_changes_reads_nothing() -> None:
    subject = Subject()
    subject.upsert(*range(100))
    subject.flush()
    middle = subject.upsert(*range(1000, 1100)).timestamp
    subject.flush()
    subject.upsert(1001)
    spec = ScanSpec(table="t", changes=ChangeSpec(since=middle))
    plan = subject.store.plan(spec)
    assert plan.explain["rowsets"] == 3, "two on disk, and a MemRowSet without rows"
    assert plan.explain["rowsets_unchanged"] == 1
    assert plan.explain["since"] == middle and sum(split.rows for split in plan.splits) == 100
    newest = subject.history[-1][0]
    quiet = subject.store.plan(ScanSpec(table="t", changes=ChangeSpec(since=newest)))
    assert quiet.explain["rowsets_unchanged"] == 2 and changes(subject, newest) == []
    assert changes(subject, newest, newest) == []
    subject.close()


def test_zone_maps_leave_out_what_no_moment_of_the_range_shows() -> None:
    subject = Subject(scan_batch_bytes=1)
    start = subject.history[0][0]
    subject.upsert(*range(5000), v=1, s="s")
    subject.upsert(*range(4990, 5000), v=2)
    subject.flush()
    subject.upsert(7, v=3)
    for where, count in [("v = 3", 1), ("v = 2", 10), ("v = 1", 4989), ("s = 'x'", 0), ("k = 4999", 1)]:
        assert len(changes(subject, start, where=where)) == count, where
    pruned = subject.store.plan(ScanSpec(table="t", where="s = 'x'", changes=ChangeSpec(since=start))).explain
    assert pruned["chunks"] == 5
    assert pruned["chunks_pruned_by_zone_map"] == 3, "updates wrote s too: there its bounds may be of another moment"
    subject.close()


def test_zone_maps_of_the_newest_values_hide_no_earlier_change() -> None:
    subject = Subject()
    start = subject.history[0][0]
    subject.upsert(*range(10), v=1)
    subject.upsert(*range(10), v=2)
    subject.flush()
    assert len(changes(subject, start, where="v = 1", every=True)) == 10
    assert changes(subject, start, where="v = 1") == []
    subject.close()


def test_zone_maps_leave_out_what_was_never_updated() -> None:
    subject = Subject()
    start = subject.history[0][0]
    subject.upsert(*range(10), v=1)
    subject.flush()
    spec = ScanSpec(table="t", where="v = 3", changes=ChangeSpec(since=start, every=True))
    assert subject.store.plan(spec).explain["chunks_pruned_by_zone_map"] == 1
    assert len(changes(subject, start, where="v = 1", every=True)) == 10
    subject.close()


# Moments that cannot be


HOUR = 3600 * 1_000_000
START = 1_700_000_000_000_000


@pytest.fixture
def aged() -> tuple[Store, ManualClock]:
    clock = ManualClock(START)
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"), clock)
    schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int32())])
    options = {"history_max_age_seconds": 3600}
    store.create_table(TableDefinition.from_arrow("t", schema, ["k"], options=options))
    return store, clock


def start_feed(store: Store, **feed_options: Any) -> int:
    snapshot = store.scan(ScanSpec(table="t", changes=ChangeSpec(**feed_options))).snapshot
    assert snapshot is not None
    return snapshot


def test_moments_before_the_history_are_refused(aged: tuple[Store, ManualClock]) -> None:
    store, clock = aged
    first = store.now()
    clock.advance(2 * HOUR)
    for moments in ({"since": first}, {"since": first, "until": first}, {"since": 0}):
        with pytest.raises(SnapshotTooOldError, match="since"):
            start_feed(store, **moments)
    store.close()


def test_a_range_must_lie_in_the_history_from_its_start() -> None:
    subject = Subject()
    start = subject.upsert(1).timestamp
    floor = subject.upsert(2).timestamp
    subject.upsert(3)
    subject.tablet.version = replace(subject.tablet.version, history_floor=floor)
    for read in (subject.store.plan, subject.store.scan):
        with pytest.raises(SnapshotTooOldError):
            read(ScanSpec(table="t", changes=ChangeSpec(since=start)))
    assert [row["k"] for row in changes(subject, floor)] == [3]
    subject.store.close()


def test_moments_in_the_future_and_ranges_that_end_before_they_begin_are_refused(
    aged: tuple[Store, ManualClock],
) -> None:
    store, clock = aged
    clock.advance(HOUR)
    now = store.now()
    later = last_of(START + 3 * HOUR)
    with pytest.raises(InvalidArgumentError, match=r"since .* future"):
        start_feed(store, since=later)
    with pytest.raises(InvalidArgumentError, match=r"until .* future"):
        start_feed(store, since=now, until=later)
    with pytest.raises(InvalidArgumentError, match=r"until .* before since"):
        start_feed(store, since=now, until=now - 1)
    with pytest.raises(InvalidArgumentError, match="since 'noon' is not an ISO"):
        start_feed(store, since="noon")
    with pytest.raises(InvalidArgumentError, match="as_of"):
        store.scan(ScanSpec(table="t", as_of=now, changes=ChangeSpec(since=now)))
    with pytest.raises(InvalidArgumentError, match="_op"):
        store.scan(ScanSpec(table="t", where="_op = 'delete'", changes=ChangeSpec(since=now)))
    store.close()


def test_a_moment_a_little_ahead_of_the_clock_is_taken_for_now(aged: tuple[Store, ManualClock]) -> None:
    store, clock = aged
    clock.advance(HOUR)
    ahead = last_of(START + HOUR + 1_000_000)
    assert start_feed(store, since=ahead) >= ahead
    assert start_feed(store, since=store.now()) <= store.now()
    store.close()
