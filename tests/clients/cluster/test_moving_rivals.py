"""Several who move one tablet at once, and moves whose last step was never made: no server loses what it was given."""

from __future__ import annotations

from typing import Any

import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.engine.moving import arrivals
from nyala.engine.moving.arrivals import Arrivals
from nyala.engine.tablet.open import open_tablet
from nyala.schemas.errors import ConflictError, UnavailableError
from nyala.schemas.store.moving import MoveFetch, MoveState
from nyala.schemas.table.alter import Alteration, RenameTable
from tests.clients.cluster.pair import Pair
from tests.clients.cluster.rival import COUNT, SCHEMA, Rival, check, filled, rows


@pytest.fixture
def table(pair: Pair) -> Table:
    return filled(pair)


def test_what_was_handed_over_is_not_replaced_by_another_move(pair: Pair, table: Table) -> None:
    first, second = Rival(pair, table, "first"), Rival(pair, table, "second")
    late = second.brought()
    begun = first.brought()  # ends the second's move at the source; its files stay at the target
    first.target.move_prepare(begun)
    told = first.handed_over(begun)
    with pytest.raises(ConflictError, match="'second' was aborted"):
        second.target.move_prepare(late)
    with pytest.raises(ConflictError, match="another move, 'first' from 'a', has already prepared the tablet"):
        pair.stores["b"].move_prepare(late)  # the source was asked before it handed the tablet over
    pair.crash("b")
    first.target.move_take_over(told)
    first.source.move_forget("first")
    assert pair.owners("t") == ["b", "b"]
    check(table, 0)


def test_a_move_that_was_given_up_does_not_come_back(pair: Pair, table: Table) -> None:
    first, second = Rival(pair, table, "first"), Rival(pair, table, "second")
    first.target.move_prepare(first.brought())
    second.brought()
    with pytest.raises(ConflictError, match="'first' was aborted"):
        first.brought(again=True)
    pair.db.move_tablet("t", first.tablet, "b", server="a")  # finds what the first has prepared, and throws it away
    assert pair.owners("t") == ["b", "b"]
    check(table, 0)


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_move_that_is_aborted_while_it_is_prepared_damages_nothing(
    pair: Pair, table: Table, monkeypatch: pytest.MonkeyPatch, is_prepared: bool
) -> None:
    """Another move begins at the source; whoever meets what this one has prepared throws it away."""
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    if is_prepared:
        rival.target.move_prepare(begun)

    def late(*given: Any) -> Any:
        rival.source.move_abort("first")
        pair.stores["b"].move_abort("first")
        return open_tablet(*given)

    monkeypatch.setattr(arrivals, "open_tablet", late)
    with pytest.raises(ConflictError, match="'first' was aborted"):
        rival.target.move_prepare(begun)
    monkeypatch.undo()
    assert not pair.stores["b"].health().damaged
    pair.db.move_tablet("t", rival.tablet, "b", server="a")
    check(table, 0)


def test_a_file_whose_move_is_aborted_while_it_is_written_is_no_fault_of_the_disk(
    pair: Pair, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.source.move_begin(rival.begin(last=True))
    rival.target.move_receive(begun)
    write = Arrivals._write_as_it_is

    def aborted(self: Arrivals, *given: Any) -> None:
        write(self, *given)
        pair.stores["b"].move_abort("first")

    monkeypatch.setattr(Arrivals, "_write_as_it_is", aborted)
    with pytest.raises(ConflictError, match="'first' was aborted"):
        rival.target.move_fetch(MoveFetch(move="first", source="a", file=begun.files[0]))
    assert not pair.stores["b"].health().damaged


@pytest.mark.parametrize("verb", ["abort", "drop_idle"])
def test_the_files_of_a_tablet_that_is_served_stay(pair: Pair, table: Table, verb: str) -> None:
    """Somebody who has looked before the tablet was taken over throws the move away after it."""
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    target = pair.stores["b"]._mover.arrivals
    arrival = target._open["first"]
    rival.target.move_prepare(begun)
    rival.target.move_take_over(rival.handed_over(begun))
    rival.source.move_forget("first")
    target._open["first"] = arrival
    getattr(target, verb)("first")
    pair.crash("b")
    check(table, 0)


def ranged(pair: Pair, server: str) -> Table:
    """A table of one tablet, which is on a server."""
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.range("id", bounds=[(0, COUNT)])])
    table.insert(rows(0))
    (place,) = table.tablets()
    pair.db.move_tablet("t", place.tablet, server)
    return table


@pytest.mark.parametrize(("source", "target"), ["ab", "ba"])
@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_range_is_divided_after_a_move_that_nobody_has_ended(
    pair: Pair, source: str, target: str, is_taken_over: bool
) -> None:
    table = ranged(pair, source)
    rival = Rival(pair, table, "first", source, target)
    begun = rival.brought()
    rival.target.move_prepare(begun)
    told = rival.handed_over(begun)
    if is_taken_over:
        rival.target.move_take_over(told)
    table.alter().split_partition(30).apply()
    check(table, 0)
    check_all_is_settled(pair)


@pytest.mark.parametrize(("source", "target"), ["ab", "ba"])
def test_a_range_is_divided_after_it_was_prepared_elsewhere(pair: Pair, source: str, target: str) -> None:
    table = ranged(pair, source)
    rival = Rival(pair, table, "first", source, target)
    rival.target.move_prepare(rival.brought())
    if target == "a":  # it is asked first, and waits for the move, which another one ends
        with pytest.raises(UnavailableError, match="moving between this server and 'b'"):
            table.alter().split_partition(30).apply()
        pair.db.move_tablet("t", rival.tablet, target)
    table.alter().split_partition(30).apply()
    check(table, 0)
    assert rival.source.move_status("first").state is MoveState.UNKNOWN
    check_all_is_settled(pair)


def check_all_is_settled(pair: Pair) -> None:
    """The servers know the same table, and no move that has not ended."""
    stores = pair.stores.values()
    assert len({store.describe_table("t").schema_version for store in stores}) == 1
    assert not any(store.moves("t").arriving or store.moves("t").left for store in stores)


def test_a_table_that_was_renamed_on_some_servers_only_does_not_move(pair: Pair, table: Table) -> None:
    """The target would get a second table, under the new name, and could not follow the alteration any more."""
    pair.stores["a"].alter_table(Alteration(table="t", steps=[RenameTable(to="u")]))
    renamed = pair.db.table("u")
    (here,) = [place.tablet for place in renamed.tablets() if place.server == "a"]
    with pytest.raises(ConflictError, match="repeat"):
        pair.db.move_tablet("u", here, "b")
    assert pair.stores["b"].tables() == ["t"]
    pair.db.table("t").alter().rename("u").apply()
    pair.db.move_tablet("u", here, "b")
    assert pair.owners("u") == ["b", "b"]
    check(pair.db.table("u"), 0)


def test_a_tablet_comes_to_no_other_table_that_got_the_name(pair: Pair, table: Table) -> None:
    pair.db.create_table("other", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)]).insert(rows(7))
    for place in pair.db.table("other").tablets():
        pair.db.move_tablet("other", place.tablet, "a", server=place.server)
    table.alter().set_comment(None, "as many alterations as the other one will have").apply()
    owners = pair.owners("t")
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    for old, new in (("t", "old"), ("other", "t")):
        pair.db.table(old).alter().rename(new).apply()
    with pytest.raises(ConflictError, match="renamed"):
        rival.target.move_prepare(begun)
        rival.handed_over(begun)
    rival.source.move_abort("first")
    assert pair.owners("old") == owners and pair.owners("t") == ["a", "a"]
    check(pair.db.table("old"), 0)
    check(pair.db.table("t"), 7)
