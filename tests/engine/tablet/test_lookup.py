"""Look-ups over memory and many rowsets: in the order asked, repeats and all, at the snapshot they were given."""

import pyarrow as pa
import pytest

from nyala.engine.rowset.native.row_columns import RowColumns
from nyala.engine.tablet import lookup, point_batch
from nyala.engine.tablet.lookup import Asked, look_up_generally, look_up_in
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.keys.keys import hash_keys
from nyala.engine.vectors.physical import physical_of
from tests.engine.subject import Subject


@pytest.fixture
def subject() -> Subject:
    """Keys 0 to 9 on disk, 10 to 19 on disk, 20 to 29 in memory; every fifth is dead, 3 and 23 have changed."""
    subject = Subject()
    for first in (0, 10, 20):
        subject.upsert(*range(first, first + 10))
        if first < 20:
            subject.flush()
    subject.delete(*range(0, 30, 5))
    subject.upsert(3, 23, v=33)
    return subject


def found(subject: Subject, *keys: int) -> list[tuple[int, int]]:
    rows = subject.store.get("t", pa.record_batch({"k": pa.array(keys, pa.int64())}))
    return list(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


def test_rows_come_in_the_order_asked(subject: Subject) -> None:
    assert found(subject, 23, 1, 19, 3, 11) == [(23, 33), (1, 0), (19, 0), (3, 33), (11, 0)]
    subject.close()


def test_absent_and_dead_keys_are_left_out_and_repeats_are_answered_each_time(subject: Subject) -> None:
    assert found(subject, 99, 3, 5, 3, 25, -1, 24, 3) == [(3, 33), (3, 33), (24, 0), (3, 33)]
    assert found(subject, 5, 25, 99) == []
    subject.close()


def test_a_key_that_came_back_is_found_where_it_was(subject: Subject) -> None:
    subject.upsert(5, 25, v=7)
    assert found(subject, 25, 5) == [(25, 7), (5, 7)]
    subject.close()


def test_earlier_snapshots_and_fewer_columns(subject: Subject) -> None:
    tablet = subject.tablet
    cells = pa.array([3, 5, 23, 29])
    keys = tablet.encoder.encode([from_arrow(cells, physical_of(cells.type))])
    columns = RowColumns.of(tablet.schema.columns[:2], 1)
    for timestamp, state in subject.history:
        asked = [Asked(tablet, keys, hash_keys(keys))]
        rows = look_up_in(asked, timestamp, columns)
        assert rows.equals(look_up_generally(asked, timestamp, columns))
        pairs = list(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))
        assert pairs == [state[key][:2] for key in (3, 5, 23, 29) if key in state]
    subject.close()


@pytest.mark.parametrize("way", ["native", "general"])
def test_a_flush_and_writes_between_finding_and_fetching_change_nothing(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    place = (point_batch, "fill") if way == "native" else (lookup, "_fetch")
    fetch = getattr(*place)
    if way == "general":
        monkeypatch.setattr(lookup, "KEYS_MAX", 0)

    def after_a_flush(*args: object) -> object:
        monkeypatch.setattr(*place, fetch)
        subject.upsert(3, 23, 24, v=1)
        subject.delete(1)
        subject.flush()
        subject.flush_deltas()
        return fetch(*args)

    monkeypatch.setattr(*place, after_a_flush)
    assert found(subject, 1, 3, 23, 24) == [(1, 0), (3, 33), (23, 33), (24, 0)]
    assert found(subject, 1, 3, 23, 24) == [(3, 1), (23, 1), (24, 1)]
    subject.close()
