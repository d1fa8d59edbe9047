"""What many waiting requests cost, and when rejected ones come again."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from nyala.flight_server.admission import queue as waiting
from nyala.flight_server.admission.peers import Peer
from nyala.flight_server.admission.queue import Returns, WaitingCall, WaitingCalls


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(waiting, "time", found)
    return found


def test_rejected_clients_come_again_one_after_another(clock: Clock) -> None:
    returns = Returns()
    moments = [returns.seconds() for _ in range(97)]
    assert moments[0] == 1.0 and moments[96] == 4.0, "32 a second"
    assert all(0 <= later - earlier <= 0.11 for earlier, later in pairwise(moments))
    clock.now += 3.5
    assert returns.seconds() == 1.0, "of those only few are still to come"


def test_no_rejected_client_is_sent_away_for_long(clock: Clock) -> None:
    returns = Returns()
    assert max(returns.seconds() for _ in range(10_000)) == 20.0
    clock.now += 60
    assert returns.seconds() == 1.0


def waits(queue: WaitingCalls, connection: str, user: str = "") -> WaitingCall:
    call = WaitingCall(Peer(connection, "", user), LOCK)
    queue.add(call)
    return call


LOCK = threading.RLock()


def test_the_last_of_who_has_the_most_makes_room() -> None:
    queue = WaitingCalls()
    first, alone, last = waits(queue, "greedy"), waits(queue, "alone"), waits(queue, "greedy")
    with LOCK:
        assert queue.displace(Peer("new", ""))
        assert last.is_displaced and list(queue) == [first, alone]
        assert queue.is_first(first) and not queue.is_first(alone)
        assert not queue.displace(Peer("new", "")), "each has one"
        queue.remove(first)
        assert queue.is_first(alone) and len(queue) == 1


def test_a_user_with_many_connections_makes_room_for_another_user() -> None:
    queue = WaitingCalls()
    calls = [waits(queue, f"of mallory {number}", "mallory") for number in range(3)]
    with LOCK:
        assert not queue.displace(Peer("of mallory 3", "", "mallory"))
        assert queue.displace(Peer("of alice", "", "alice"))
    assert [call.is_displaced for call in calls] == [False, False, True]
