"""A server whose clock was ahead: who is told what, and the documented way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nyala.clients.api.table import Table
from nyala.engine import threads
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.store.moving import MoveBegin
from tests.clients.cluster.pair import Pair
from tests.clients.cluster.rival import check, filled, rows

YEAR_SECONDS = 365 * 86_400


@pytest.fixture
def table(pair: Pair) -> Table:
    """The wall clock of ``b`` was a year ahead when rows were written, and has been corrected."""
    table = filled(pair)
    store = pair.stores["b"]
    store._clock.update(store.now() + (YEAR_SECONDS * 1_000_000 << 12))
    table.upsert(rows(1))
    return table


READS: dict[str, Callable[[Pair, Table], object]] = {
    "scan": lambda pair, table: table.scan().to_arrow(),
    "ordered": lambda pair, table: table.scan(ordered=True).to_arrow(),
    "now": lambda pair, table: pair.db.now(),
    "changes": lambda pair, table: table.changes(since=1 << 12).to_arrow(),
    "through one server": lambda pair, table: pair.gateways["a"].plan(table.scan()._spec),
}


@pytest.mark.parametrize("what", READS)
def test_the_error_says_which_clock_by_how_much_and_what_to_do(pair: Pair, table: Table, what: str) -> None:
    told = (
        r"the clock of the server 'b' is too far ahead \(.* is in the future: 31,53\d,\d{3}\.\d s ahead of the "
        r"clock of the server 'a', and at most 10 s are allowed \(clock_error_seconds\)\): correct the clock"
    )
    with pytest.raises(UnavailableError, match=told):
        READS[what](pair, table)
    assert table.upsert(rows(2)).applied == 60


def test_a_move_says_which_clock(pair: Pair, table: Table) -> None:
    number = next(place.tablet for place in table.tablets() if place.server == "b")
    told = r"the clock of the server 'b', \d+ is in the future: 31,53.* ahead of the clock of the server 'a'"
    with pytest.raises(InvalidArgumentError, match=told):
        pair.db.move_tablet("t", number, "a", server="b")
    assert sorted(pair.owners("t")) == ["a", "b"]


def test_health_tells_how_far_each_clock_is_ahead(pair: Pair, table: Table) -> None:
    assert pair.stores["a"].health().clock_ahead_seconds < 1
    for _ in range(2):
        assert YEAR_SECONDS - 60 < pair.stores["b"].health().clock_ahead_seconds < YEAR_SECONDS + 60
        pair.crash("b")


def test_servers_that_may_follow_go_on_at_once(pair: Pair, table: Table) -> None:
    pair.clock_error_seconds = 2 * YEAR_SECONDS
    pair.crash("a")
    before = pair.db.now()
    check(table, 1)
    number = next(place.tablet for place in table.tablets() if place.server == "b")
    pair.db.move_tablet("t", number, "a", server="b")
    assert table.scan(as_of=before, ordered=True).to_arrow().combine_chunks() == rows(1).combine_chunks()
    for name in "ab":
        pair.crash(name)
    check(table, 2)
    assert table.changes(since=before).to_arrow().num_rows == 60


def test_a_clock_set_back_keeps_no_tablet_closed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """If whoever moves it is gone after the last round."""
    table, store, passed = filled(pair), pair.stores["a"], [0.0]
    monotonic, now = threads.monotonic, store._mover.departures._now
    monkeypatch.setattr(threads, "monotonic", lambda: monotonic() + passed[0])
    number = next(place.tablet for place in table.tablets() if place.server == "a")
    for is_last in (False, True):
        store.move_begin(MoveBegin(move="m", table="t", tablet=number, to="b", last=is_last))
    monkeypatch.setattr(store._mover.departures, "_now", lambda: now() - 3_600_000_000)
    (tablet,) = (each for each in store._catalog.table("t").tablets if each.tablet_id == number)
    for seconds, is_closed in ((0, True), (11, False)):
        passed[0] += seconds
        assert tablet.is_closed is not None and tablet.is_closed() is is_closed
