"""What a scan and a look-up rely on in every RowSet, in memory and on disk, at every snapshot."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from nyala.engine.delta import LIVE
from nyala.engine.rowset.rowset import RowSet
from nyala.engine.vectors.arrow import to_arrow
from nyala.engine.vectors.keys.keys import U64Keys
from tests.engine.subject import Subject

KEYS = range(40)


@pytest.fixture(params=["memory", "disk", "disk with deltas in memory", "disk with deltas in files"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    subject, random = Subject(), Random(11)
    subject.upsert(*random.sample(KEYS, len(KEYS) // 2), v=-1)
    subject.some_writes(random, KEYS, commits=6)
    if request.param != "memory":
        subject.flush()
    if request.param.startswith("disk with"):
        subject.some_writes(random, range(20), commits=5)
    if request.param.endswith("files"):
        subject.flush_deltas()
        subject.some_writes(random, range(20), commits=2)
        subject.flush_deltas()
    yield subject
    subject.close()


def rowset_of(subject: Subject) -> RowSet:
    """Return the rowset of the first rows."""
    return next(iter(subject.tablet.version.rowsets()))


def keys_of(rowset: RowSet, rows: np.ndarray) -> list[int]:
    keys = rowset.keys_at(rows)
    assert isinstance(keys, U64Keys)
    return (keys.values ^ np.uint64(1 << 63)).view(np.int64).tolist()


def spans(count: int) -> list[tuple[int, int]]:
    return [(0, count), (0, 1), (count - 1, count), (count // 3, count // 2), (5, 5)]


def test_consecutive_rows_read_as_each_snapshot_saw_them(subject: Subject) -> None:
    rowset = rowset_of(subject)
    columns = subject.tablet.schema.columns
    for snapshot, state in subject.history:
        count = rowset.row_count(snapshot)
        for first, last in spans(count) if count > 5 else []:
            keys = keys_of(rowset, np.arange(first, last))
            live = rowset.live_in(first, last, snapshot)
            alive = [True] * len(keys) if live is None else live.tolist()
            assert alive == [key in state for key in keys]
            cells = [
                to_arrow(rowset.read(column, first, last, snapshot), column.logical.arrow).to_pylist()
                for column in columns
            ]
            found = [row for row, is_live in zip(zip(*cells, strict=True), alive, strict=True) if is_live]
            assert found == [state[key] for key in keys if key in state]


def test_single_rows_read_like_consecutive_ones(subject: Subject) -> None:
    rowset, random = rowset_of(subject), Random(2)
    for snapshot, _ in subject.history:
        count = rowset.row_count(snapshot)
        rows = np.array(sorted(random.sample(range(count), count // 3)), np.int64)
        live = rowset.live_in(0, count, snapshot)
        expected = np.ones(count, np.bool_) if live is None else live
        assert rowset.live_at(rows, snapshot).tolist() == expected[rows].tolist()
        for column in subject.tablet.schema.columns:
            kind = column.logical.arrow
            whole = to_arrow(rowset.read(column, 0, count, snapshot), kind).to_pylist()
            assert to_arrow(rowset.gather(column, rows, snapshot), kind).to_pylist() == [whole[row] for row in rows]


def test_rows_after_a_snapshot_do_not_live_in_it(subject: Subject) -> None:
    rowset = rowset_of(subject)
    newest = subject.history[-1][0]
    rows = np.arange(rowset.row_count(newest))
    assert not rowset.live_at(rows, subject.history[0][0]).any()
    assert rowset.live_at(rows[:0], newest).tolist() == []


def test_the_key_order_is_the_order_of_the_keys(subject: Subject) -> None:
    rowset = rowset_of(subject)
    count = rowset.row_count(subject.history[-1][0])
    for first, last in spans(count):
        order = rowset.key_order(first, last)
        rows = np.arange(first, last) if order is None else order
        assert sorted(rows.tolist()) == list(range(first, last))
        keys = keys_of(rowset, rows)
        assert keys == sorted(keys) and len(set(keys)) == len(keys)


def test_a_range_of_rows_holds_every_key_of_its_range(subject: Subject) -> None:
    rowset = rowset_of(subject)
    count = rowset.row_count(subject.history[-1][0])
    bounds = [None, *((key ^ 1 << 63).to_bytes(8, "big") for key in (0, 1, 17, 39, 40))]
    for lower in bounds:
        for upper in bounds:
            first, last = rowset.row_range(lower, upper)
            assert 0 <= first <= last <= count
            for row, key in enumerate(keys_of(rowset, np.arange(count))):
                encoded = (key ^ 1 << 63).to_bytes(8, "big")
                if (lower is None or encoded >= lower) and (upper is None or encoded < upper):
                    assert first <= row < last


def test_zone_maps_cover_what_a_snapshot_sees_or_say_nothing(subject: Subject) -> None:
    rowset = rowset_of(subject)
    for snapshot, _ in subject.history:
        count = rowset.row_count(snapshot)
        for column in subject.tablet.schema.columns[:2]:
            zones = rowset.zone_maps_at(column.id, 0, count, snapshot)
            cells = to_arrow(rowset.read(column, 0, count, snapshot), column.logical.arrow).to_pylist()
            for cell in cells if zones else []:
                zone = zones[0]
                assert zone.null_count if cell is None else zone.min <= cell <= zone.max


def test_an_untouched_column_says_so(subject: Subject) -> None:
    rowset = rowset_of(subject)
    key = subject.tablet.schema.columns[0]
    assert not any(rowset.deltas.touches(key.id, snapshot) for snapshot, _ in subject.history)
    assert rowset.deltas.touches(LIVE, subject.history[0][0]) or not rowset.row_count(subject.history[0][0])
    assert set(rowset.row_bytes) >= {column.id for column in subject.tablet.schema.columns}
