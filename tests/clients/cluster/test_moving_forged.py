"""Messages of a move that no server has sent: only the source says what its files are and what it has handed over."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from nyala.clients.api.table import Table
from nyala.schemas.errors import ConflictError, InvalidArgumentError, NotFoundError
from nyala.schemas.store.moving import HandedOver, MoveFetch, MoveFile, MoveRound
from tests.clients.cluster.pair import Pair
from tests.clients.cluster.rival import Rival, check, filled

YEAR = 365 * 86_400 * 1_000_000 << 12


@pytest.fixture
def table(pair: Pair) -> Table:
    return filled(pair)


def forged(table: Table, clock: int = 0) -> HandedOver:
    return HandedOver(move="first", table="t", clock=table.last_change() + clock, last_auto_id=0, last_change=0)


def test_a_forged_hand_over_makes_no_second_owner(pair: Pair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.target.move_prepare(begun)
    with pytest.raises(ConflictError, match="'a' has not handed over a tablet in the move 'first'"):
        rival.target.move_take_over(forged(table))
    assert sorted(pair.owners("t")) == ["a", "b"]
    rival.target.move_take_over(rival.handed_over(begun))
    rival.source.move_forget("first")
    assert pair.owners("t") == ["b", "b"]
    check(table, 0)


def test_a_forged_clock_moves_no_clock(pair: Pair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.target.move_prepare(begun)
    told = rival.handed_over(begun)
    before = pair.stores["b"].now()
    rival.target.move_take_over(told.model_copy(update={"clock": before + YEAR, "last_auto_id": 1 << 40}))
    assert before < pair.stores["b"].now() < before + YEAR
    rival.source.move_forget("first")
    check(table, 0)


def test_a_clock_that_is_ahead_hands_nothing_over(pair: Pair, table: Table) -> None:
    """The clocks of both were close to each other when the tablet was prepared."""
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.target.move_prepare(begun)
    told = rival.handed_over(begun)
    pair.stores["a"]._clock.update(told.clock + YEAR)
    before = pair.stores["b"].now()
    with pytest.raises(InvalidArgumentError, match="the clock of the server 'a'"):
        rival.target.move_take_over(told)
    assert pair.stores["b"].now() < before + YEAR


@pytest.mark.parametrize(
    "forge",
    [
        lambda round: round.model_copy(update={"rowsets": (), "files": ()}),
        lambda round: round.model_copy(update={"history_floor": 0, "clock": 0}),
        lambda round: round.model_copy(update={"rowsets": round.rowsets * 2}),
    ],
)
def test_a_forged_round_loses_no_row(pair: Pair, table: Table, forge: Callable[[MoveRound], MoveRound]) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.target.move_prepare(forge(begun))
    told = rival.handed_over(begun)
    with pytest.raises(ConflictError, match="was aborted"):
        rival.target.move_prepare(forge(begun))
    rival.target.move_take_over(told)
    rival.source.move_forget("first")
    assert pair.owners("t") == ["b", "b"]
    check(table, 0)


def test_a_round_that_is_not_the_newest_is_refused(pair: Pair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.brought(again=True)
    with pytest.raises(ConflictError, match="round 1 of the move is not the latest, 2"):
        rival.target.move_prepare(begun)


def test_a_move_is_not_forgotten_before_the_tablet_was_taken_over(pair: Pair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.target.move_prepare(begun)
    rival.handed_over(begun)
    with pytest.raises(ConflictError, match="'b' has not taken over the tablet of the move 'first' yet"):
        rival.source.move_forget("first")
    pair.crash("a")
    pair.crash("b")
    check(table, 0)  # who looks for the tablet finds it
    assert pair.owners("t") == ["b", "b"]


def test_a_source_that_is_no_server_is_named(pair: Pair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    file = MoveFile(name="1.base", bytes=1, crc=0)
    for source in ("nowhere", "grpc://127.0.0.1:1"):
        with pytest.raises(InvalidArgumentError, match=f"unknown server '{source}'; known: a, b"):
            rival.target.move_fetch(MoveFetch(move="first", source=source, file=file))
        with pytest.raises(InvalidArgumentError, match="unknown server"):
            rival.target.move_prepare(begun.model_copy(update={"source": source}))
    with pytest.raises(InvalidArgumentError, match="cannot move from 'b' to itself"):
        rival.target.move_receive(begun.model_copy(update={"source": "b"}))


def test_a_move_that_was_not_prepared_is_not_taken_over(pair: Pair, table: Table) -> None:
    rival = Rival(pair, table, "first")
    rival.brought()
    with pytest.raises(NotFoundError, match="was not prepared here"):
        rival.target.move_take_over(forged(table))
    assert pa.Table.from_pylist(table.scan().to_arrow().to_pylist()).num_rows > 0
