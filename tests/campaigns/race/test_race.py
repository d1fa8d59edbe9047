"""The race for a few seconds, and that its checks can fail."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.race.checks import (
    Violation,
    as_state,
    check_births,
    check_events,
    check_feed,
    check_shared,
    check_state,
    in_key_order,
)
from tests.campaigns.race.race import Race
from tests.campaigns.race.small_writers import SmallWriter, check_rows
from tests.campaigns.race.small_writers import create as create_small
from tests.campaigns.race.tables import EVENTS, EVENTS_SCHEMA, FIXED, FRESH, FRESH_FROM, KEPT, STATE_SCHEMA, scattered


def test_nothing_is_violated_while_all_is_in_motion(tmp_path: Path) -> None:
    race = Race(tmp_path, history_seconds=3)

    def is_enough(done: Counter[str]) -> bool:
        found_work = all(done[f"maintenance: {kind}"] for kind in set(MaintenanceKind) - {MaintenanceKind.GC})
        scanned = done["scans of events"] >= 2 and done["snapshots read again"] >= 2
        return found_work and scanned and done["commits"] > 100 and done["changes followed"] > 100

    race.run(5, is_enough)
    assert is_enough(race.done()), race.done()


def events(*batches: int) -> pa.Table:
    """Return the events of writer 0 of the given batches, in key order."""
    places = np.concatenate([np.arange(batch * EVENTS, (batch + 1) * EVENTS) for batch in batches])
    rows = {"writer": np.zeros(len(places), np.int16), "number": scattered(places), "batch": places // EVENTS}
    return in_key_order(pa.table(rows, EVENTS_SCHEMA), ordered=False)


def state(batch: int, later: int) -> pa.Table:
    """Return the rows of writer 0 after its first batches up to ``batch``, and updates up to ``later``."""
    fixed, fresh = np.arange(FIXED), np.arange((batch + 1) * FRESH)
    batches = np.concatenate([np.full(FIXED, batch), fresh // FRESH])
    rows = {
        "writer": np.zeros(len(batches), np.int16),
        "number": np.concatenate([fixed, FRESH_FROM + fresh]),
        "batch": batches,
        "same": batches,
        "later": pa.array([later] * FIXED + [None] * len(fresh)),
        "text": pa.nulls(len(batches), pa.string()),
    }
    return pa.table(rows, STATE_SCHEMA)


def test_the_checks_let_pass_what_is_right() -> None:
    assert check_events(events(0, 1), [1]) == [2]
    assert check_state(state(3, 3), [4]) == check_state(state(3, 2), [2]) == [4]
    check_shared([(5, None), (10, 1), (19, 1), (25, 2)], [(20, 2), (10, 1)])


WRONG: dict[str, Callable[[], object]] = {
    "an event is missing": lambda: check_events(events(0, 1).slice(1), [1]),
    "an event is there twice": lambda: check_events(pa.concat_tables([events(0).slice(0, 1), events(0)]), [1]),
    "a batch is missing": lambda: check_events(events(0, 2), [1]),
    "the count has fallen": lambda: check_events(events(0), [2]),
    "a batch is half there": lambda: check_state(
        pa.concat_tables([state(2, 2).slice(0, 5), state(3, 3).slice(5)]), [1]
    ),
    "an update is half there": lambda: check_state(
        pa.concat_tables([state(3, 2).slice(0, 5), state(3, 3).slice(5)]), [1]
    ),
    "state has gone back": lambda: check_state(state(2, 2), [4]),
    "a deleted row came back": lambda: check_state(state(2 * KEPT, 2 * KEPT), [1]),
    "a row is missing": lambda: check_state(state(3, 3).slice(1), [1]),
    "an older value is seen": lambda: check_shared([(25, 1)], [(10, 1), (20, 2)]),
    "a change is missing": lambda: check_feed(as_state(state(0, 0)), as_state(state(1, 1)), FEED.slice(0, 0), True),
    "a birth is missing": lambda: check_births(events(0), events(0, 1), feed_of(events(1)).slice(1)),
}


@pytest.mark.parametrize("check", WRONG.values(), ids=WRONG.keys())
def test_the_checks_see(check: Callable[[], object]) -> None:
    with pytest.raises(Violation):
        check()


def feed_of(rows: pa.Table) -> pa.Table:
    """Return rows as changes that insert them."""
    count = len(rows)
    head = {"_op": pa.repeat("insert", count), "_timestamp": pa.repeat(1, count)}
    return pa.table({**head, **{name: rows[name] for name in rows.schema.names}})


FEED = feed_of(state(1, 1))


def test_lost_and_foreign_single_rows_are_seen(tmp_path: Path) -> None:
    with nyala.open(tmp_path) as database:
        create_small(database, 10)
        writers = [SmallWriter(database, number, seed=number) for number in range(2)]
        stop = threading.Event()
        stop.set()
        for writer in writers:
            writer.step(stop)
        found = database.table("small").scan().to_arrow()
        check_rows(found, writers)
        for wrong in (found.slice(1), pa.concat_tables([found, found.slice(0, 1)])):
            with pytest.raises(Violation):
                check_rows(wrong, writers)
        writers[1].won.append(writers[0].won[0])
        with pytest.raises(Violation):
            check_rows(found, writers)
