"""A tablet moves between servers whose stores are in buckets, and another process may take either over at each step."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.engine.mvcc.clock import timestamp_of
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.store.moving import MoveHandOver, MoveState
from tests.clients.cluster.bucket_pair import BucketPair
from tests.clients.cluster.rival import COUNT, SCHEMA, Rival, check, rows
from tests.engine.offload.failing_calls import FAULTS, MachineGoneError

STEP = 2
"""From one call that fails to the next: 1 is all of them."""


def loaded(pairs: list[BucketPair], **how: Any) -> tuple[BucketPair, Table, int]:
    """Two servers with a table, whose rows are in files and in memory, and the tablet that is to move from a to b."""
    pair = BucketPair(**how)
    pairs.append(pair)
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert(rows(-1))
    table.maintain("flush")
    table.upsert(rows(0))
    (number,) = [place.tablet for place in table.tablets() if place.server == "a"]
    return pair, table, number


def check_end(pair: BucketPair, table: Table, number: int, n: int) -> None:
    """The same call ends the move, which lasts, and nothing is left of attempts."""
    pair.happens_at = None
    pair.db.move_tablet("t", number, "b", server="a")
    assert pair.owners("t") == ["b", "b"]
    for name in "ab":
        pair.crash(name)
    check(table, n)
    assert not any(store.moves("t").arriving or store.moves("t").left for store in pair.stores.values())
    pair.close()
    pair.check_sound()


@pytest.mark.parametrize("how", [{}, {"one_bucket": False}, {"directories": "a"}], ids=str)
def test_all_of_a_tablet_moves_and_back(pairs: list[BucketPair], how: dict[str, Any]) -> None:
    pair, table, number = loaded(pairs, **how)
    moment = pair.db.now()
    pair.db.move_tablet("t", number, "b", server="a")
    assert pair.owners("t") == ["b", "b"]
    check(table, 0)
    for name in "ab":
        pair.crash(name)
    check(table, 1)
    assert table.scan(as_of=moment, ordered=True).to_arrow()["n"].to_pylist() == [0] * COUNT
    for place in table.tablets():
        pair.db.move_tablet("t", place.tablet, "a", server="b")
    assert pair.owners("t") == ["a", "a"]
    for name in "ba":
        pair.crash(name)
    check(table, 2)
    assert table.scan(as_of=moment, ordered=True).to_arrow()["n"].to_pylist() == [0] * COUNT
    for op in ("flush", "flush_deltas", "compact"):
        table.maintain(op)
    check(table, 3)
    pair.close()
    pair.check_sound()


def test_a_source_deletes_what_it_gave_away(pairs: list[BucketPair]) -> None:
    """No sooner than a slot has landed after the one that says so, and then by itself."""
    pair, table, number = loaded(pairs)
    machine = pair.machines["a"]
    directory = f"stores/a/tablets/{number}/"
    assert machine.bucket.list(directory)
    store = pair.stores["a"]
    pair.db.move_tablet("t", number, "b", server="a")
    assert machine.bucket.list(directory)
    gc.collect()  # nobody reads it any more
    for _ in range(3):
        store._home.check_held()
        store._home.remove_garbage()
    assert not machine.bucket.list(directory)
    check(table, 0)
    pair.close()
    pair.check_sound(is_swept=False)


def steps() -> list[str]:
    made: list[BucketPair] = []
    pair, _, number = loaded(made)
    pair.calls.clear()
    pair.db.move_tablet("t", number, "b")
    pair.close()
    return list(pair.calls)


@pytest.mark.parametrize("name", ["a", "b"])
def test_another_process_takes_over_at_each_step(pairs: list[BucketPair], name: str) -> None:
    """The former one is cut off, or stands still and learns it at its next slot. Whoever drives the move goes on."""
    calls = steps()
    assert {"a move_hand_over", "b move_take_over", "b move_prepare", "b move_fetch", "a move_forget"} <= set(calls)
    for step in range(len(calls)):
        pair, table, number = loaded(pairs)
        pair.calls.clear()
        pair.happens_at, pair.after = step, step % 2 == 1
        happens = pair.crash if (step + (name == "b")) // 2 % 2 else pair.replace
        pair.happens = lambda happens=happens: happens(name)
        with suppress(StoreError):
            pair.db.move_tablet("t", number, "b")
        assert pair.former, "it happened"
        print(step, calls[step], pair.after)
        check(table, 0)
        assert len(pair.owners("t")) == 2
        check_end(pair, table, number, 1)


def bucket_calls(name: str) -> int:
    """How many calls to the bucket one server makes in a move."""
    made: list[BucketPair] = []
    pair, _, number = loaded(made)
    objects = pair.machines[name].objects
    before = len(objects.calls)
    pair.db.move_tablet("t", number, "b")
    count = len(objects.calls) - before
    pair.close()
    return count


@pytest.mark.parametrize("name", ["a", "b"])
def test_any_one_call_to_the_bucket_may_fail(pairs: list[BucketPair], name: str) -> None:
    """Before its effect, or after it; or it comes twice, or late."""
    for call in range(1, bucket_calls(name) + 1, STEP):
        pair, table, number = loaded(pairs)
        objects = pair.machines[name].objects
        objects.faults[len(objects.calls) + call] = fault = FAULTS[call // STEP % len(FAULTS)]
        print(call, fault)
        pair.db.move_tablet("t", number, "b")  # one request is repeated
        objects.land_late_ones()
        assert pair.owners("t") == ["b", "b"]
        check(table, 0)
        check_end(pair, table, number, 1)


@pytest.mark.parametrize("name", ["a", "b"])
def test_any_call_to_the_bucket_may_be_the_last_of_its_machine(pairs: list[BucketPair], name: str) -> None:
    for call in range(0, bucket_calls(name) + 1, STEP):
        pair, table, number = loaded(pairs)
        objects = pair.machines[name].objects
        objects.away_from = len(objects.calls) + call
        objects.error_of = lambda fault, verb, name: MachineGoneError(f"{verb} {name}")
        print(call)
        with suppress(StoreError, MachineGoneError):
            pair.db.move_tablet("t", number, "b")
        pair.crash(name)
        check(table, 0)  # who looks for a tablet between its servers has the new one take it over
        assert len(pair.owners("t")) == 2
        check_end(pair, table, number, 1)


def test_a_former_source_says_nothing_about_a_move(pairs: list[BucketPair]) -> None:
    """It has never heard of the move that its successor began, and handed over: the only copy would be discarded."""
    pair, table, number = loaded(pairs)
    former = pair.replace("a")
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    with pytest.raises(UnavailableError):
        former.move_round("first")
    rival.target.move_prepare(begun)
    told = rival.handed_over(begun)
    for ask in (former.move_status, former.move_abort, former.move_round):
        with pytest.raises(UnavailableError):
            ask("first")
    pair.gateways["a"], successor = Gateway(former, pair.gateways["a"]._here), pair.gateways["a"]
    pair.gateways["b"].tablets("t")  # asks the former source, and keeps what was prepared
    with pytest.raises(UnavailableError):
        rival.target.move_abort("first")
    assert [note.move for note in pair.stores["b"].moves("t").arriving] == ["first"]
    pair.gateways["a"] = successor
    rival.target.move_take_over(told)
    check_end(pair, table, number, 0)


def test_a_former_target_says_nothing_about_a_move(pairs: list[BucketPair]) -> None:
    """It has never heard of the move that its successor prepared: the source would forget it before the take-over."""
    pair, table, number = loaded(pairs)
    former = pair.replace("b")
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    with pytest.raises(UnavailableError):
        former.move_copy("first", begun.files[0])
    rival.target.move_prepare(begun)
    rival.handed_over(begun)
    with pytest.raises(UnavailableError):
        former.moves("t")
    pair.gateways["b"], successor = Gateway(former, pair.gateways["b"]._here), pair.gateways["b"]
    with pytest.raises(UnavailableError):
        rival.source.move_forget("first")
    pair.gateways["b"] = successor
    assert rival.source.move_status("first").state is MoveState.HANDED_OVER
    check_end(pair, table, number, 0)


def test_a_former_holder_hands_nothing_over_and_takes_nothing_over(pairs: list[BucketPair]) -> None:
    """Each still knows the move that it was part of, and learns from the log that it is too late."""
    pair, table, number = loaded(pairs)
    rival = Rival(pair, table, "first")
    begun = rival.brought()
    rival.target.move_prepare(begun)
    former = pair.replace("a")
    with pytest.raises(UnavailableError):
        former.move_hand_over(MoveHandOver(move="first", table="t", to="b", number=begun.number))
    assert sorted(pair.owners("t")) == ["a", "b"]
    again = Rival(pair, table, "second")
    begun = again.brought()
    pair.gateways["b"].tablets("t")  # discards what no source knows
    again.target.move_prepare(begun)
    told = again.handed_over(begun)
    former = pair.replace("b")
    with pytest.raises(UnavailableError):
        former.move_take_over(told)
    assert pair.stores["b"].moves("t").arriving
    check_end(pair, table, number, 0)


def test_the_clock_of_a_target_follows_a_source_far_ahead(pairs: list[BucketPair]) -> None:
    """Further than the log of the target allowed so far: else nobody would serve the tablet until then."""
    pair, table, number = loaded(pairs, clock_error_seconds=600)
    source = pair.stores["a"]
    ahead = source.now() + timestamp_of(300_000_000)
    source.now(at_least=ahead)
    assert pair.stores["b"]._home.ceiling < ahead  # type: ignore[attr-defined]
    pair.db.move_tablet("t", number, "b", server="a")
    assert pair.stores["b"].now() > ahead
    pair.replace("b")
    assert pair.stores["b"].now() > ahead
    check_end(pair, table, number, 0)
