"""Moves that nobody drives to their end: how many a server takes in, and what they leave of its disk."""

from __future__ import annotations

import pytest

from nyala.engine.options import MIB
from nyala.schemas.errors import StorageFullError, UnavailableError
from nyala.schemas.store.moving import MoveBegin, MoveRound
from tests.clients.cluster.pair import Pair
from tests.clients.cluster.rival import Rival, check, filled


def begun(pair: Pair, rival: Rival) -> MoveRound:
    asked = MoveBegin(move=rival.name, table="t", tablet=rival.tablet, to="b", again=False, last=False)
    return rival.source.move_begin(asked)


def test_so_many_moves_may_come_in_at_once() -> None:
    pair = Pair(unfinished_max=3)
    table = filled(pair)
    told = begun(pair, Rival(pair, table, "m0"))
    target = pair.stores["b"]
    for number in range(3):
        target.move_receive(told.model_copy(update={"move": f"m{number}"}))
    with pytest.raises(
        UnavailableError, match=r"too many unfinished moves to this server \(3, limit unfinished_max"
    ) as caught:
        target.move_receive(told.model_copy(update={"move": "m3"}))
    assert caught.value.retry_after_seconds
    target.move_receive(told.model_copy(update={"move": "m1"}))  # one that is known goes on
    target.move_abort("m1")
    target.move_receive(told.model_copy(update={"move": "m3"}))
    check(table, 0)
    pair.close()


def test_a_move_leaves_the_disk_its_reserve() -> None:
    pair = Pair(disk_reserve_bytes=MIB)
    table = filled(pair)
    told = begun(pair, Rival(pair, table, "m0"))
    disk, target = pair.disks["b"], pair.stores["b"]
    size = sum(file.bytes for file in told.files)
    taken = disk.free_bytes("") - MIB
    assert 0 < size < taken
    huge = told.files[0].model_copy(update={"bytes": taken + 1})
    with pytest.raises(StorageFullError, match="disk_reserve_bytes"):
        target.move_receive(told.model_copy(update={"files": (huge, *told.files[1:])}))
    assert target._mover.arrivals._open == {}
    target.move_receive(told)
    check(table, 0)
    pair.close()
