"""A snapshot is one integer, and means the same commits for ever."""

import sys
import threading
from bisect import bisect_right
from collections.abc import Iterator
from random import Random

import pytest

from nyala.engine.mvcc.clock import SystemClock
from nyala.engine.mvcc.mvcc import MvccManager
from nyala.schemas.errors import UnavailableError
from tests.doubles.clock import ManualClock


@pytest.fixture
def mvcc() -> MvccManager:
    return MvccManager(ManualClock())


def test_a_finished_commit_is_seen(mvcc: MvccManager) -> None:
    commit = mvcc.start()
    mvcc.finish(commit)
    assert mvcc.snapshot() > commit


def test_commits_are_finished_together(mvcc: MvccManager) -> None:
    first, second, third = mvcc.start(), mvcc.start(), mvcc.start()
    mvcc.finish(second, first)
    assert mvcc.snapshot() == third - 1 >= second
    assert mvcc.now() > third and mvcc.in_flight_count == 1


def test_a_start_that_is_interrupted_leaves_nothing_in_flight(
    mvcc: MvccManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedLock:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(mvcc, "_mutex", InterruptedLock())
    with pytest.raises(KeyboardInterrupt):
        mvcc.start_all(2)
    assert mvcc.in_flight_count == 0
    mvcc.wait_for(mvcc.now(), 0)


def test_a_commit_in_flight_is_not_seen(mvcc: MvccManager) -> None:
    before = mvcc.snapshot()
    commit = mvcc.start()
    assert before <= mvcc.snapshot() == commit - 1
    assert mvcc.in_flight_count == 1


def test_a_commit_waits_for_those_before_it(mvcc: MvccManager) -> None:
    first, second, third = mvcc.start(), mvcc.start(), mvcc.start()
    mvcc.finish(second)
    assert mvcc.snapshot() == first - 1
    mvcc.finish(first)
    assert second <= mvcc.snapshot() == third - 1
    mvcc.finish(third)
    assert mvcc.snapshot() > third


def test_a_later_commit_is_above_every_snapshot(mvcc: MvccManager) -> None:
    snapshot = mvcc.snapshot()
    assert mvcc.start() > snapshot
    assert mvcc.start() > mvcc.snapshot() >= snapshot


def test_an_aborted_commit_holds_nothing_up(mvcc: MvccManager) -> None:
    commit = mvcc.start()
    mvcc.abort(commit)
    assert mvcc.snapshot() > commit
    assert mvcc.in_flight_count == 0


def test_a_commit_ends_once(mvcc: MvccManager) -> None:
    commit = mvcc.start()
    mvcc.finish(commit)
    with pytest.raises(KeyError):
        mvcc.finish(commit)


def test_wait_for_the_past_returns_at_once(mvcc: MvccManager) -> None:
    snapshot = mvcc.snapshot()
    mvcc.start()
    mvcc.wait_for(snapshot, timeout=0)


def test_wait_for_the_future_reserves_it(mvcc: MvccManager) -> None:
    future = mvcc.snapshot() + 1_000_000
    mvcc.wait_for(future, timeout=0)
    assert mvcc.start() > future


def test_wait_for_returns_when_the_commit_is_finished(mvcc: MvccManager) -> None:
    commit = mvcc.start()
    timer = threading.Timer(0.02, mvcc.finish, [commit])
    timer.start()
    mvcc.wait_for(commit, timeout=5)
    assert mvcc.snapshot() > commit
    timer.join()


def test_wait_for_gives_up(mvcc: MvccManager) -> None:
    commit = mvcc.start()
    with pytest.raises(UnavailableError, match="not readable after"):
        mvcc.wait_for(commit, timeout=0.01)


def test_a_poisoned_manager_lets_nobody_wait(mvcc: MvccManager) -> None:
    lost = mvcc.start()
    errors: list[UnavailableError] = []

    def wait() -> None:
        with pytest.raises(UnavailableError) as caught:
            mvcc.wait_for(lost)
        errors.append(caught.value)

    waiter = threading.Thread(target=wait)
    waiter.start()
    mvcc.poison("the log cannot be written")
    mvcc.poison("something that followed from it")
    waiter.join(5)
    with pytest.raises(UnavailableError, match="the log cannot be written"):
        mvcc.wait_for(lost)
    assert "the log cannot be written" in errors[0].message
    assert mvcc.snapshot() == lost - 1
    mvcc.wait_for(lost - 1)


def _schedule(seed: int, steps: int) -> Iterator[tuple[str, MvccManager, int]]:
    """Yield every step of a random schedule, with the timestamp that it is about."""
    random, mvcc = Random(seed), MvccManager(ManualClock())
    in_flight: list[int] = []
    for _ in range(steps):
        step = random.choice(["start", "start", "end", "end", "snapshot"])
        if step == "start":
            in_flight.append(mvcc.start())
            yield step, mvcc, in_flight[-1]
        elif step == "end" and in_flight:
            commit = in_flight.pop(random.randrange(len(in_flight)))
            random.choice([mvcc.finish, mvcc.abort])(commit)
            yield step, mvcc, commit
        else:
            yield "snapshot", mvcc, mvcc.snapshot()


@pytest.mark.parametrize("seed", range(20))
def test_no_commit_ever_ends_at_or_below_a_snapshot(seed: int) -> None:
    """The whole model: snapshots never go back, and what they see never changes."""
    newest = 0
    for step, _, timestamp in _schedule(seed, 500):
        if step == "snapshot":
            assert timestamp >= newest
            newest = timestamp
        else:
            assert timestamp > newest


def test_racing_threads_never_see_a_snapshot_change() -> None:
    """What a snapshot sees when it is taken is what it sees when all is over."""
    mvcc = MvccManager(SystemClock())
    applied: list[list[int]] = [[] for _ in range(4)]
    stop = threading.Event()

    def write(mine: list[int]) -> None:
        while not stop.is_set():
            commit = mvcc.start()
            mine.append(commit)
            mvcc.finish(commit)

    def seen_by(snapshot: int) -> list[int]:
        return [bisect_right(mine, snapshot) for mine in applied]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    writers = [threading.Thread(target=write, args=(mine,)) for mine in applied]
    try:
        for writer in writers:
            writer.start()
        snapshots = [(snapshot, seen_by(snapshot)) for snapshot in (mvcc.snapshot() for _ in range(300))]
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        sys.setswitchinterval(interval)
    assert [snapshot for snapshot, _ in snapshots] == sorted(snapshot for snapshot, _ in snapshots)
    assert all(seen == seen_by(snapshot) for snapshot, seen in snapshots)
    assert any(sum(seen) for _, seen in snapshots)
