"""The manager: the best first, nothing when nothing is worth it, and no failure ends it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from nyala.engine.maintenance import manager as module
from nyala.engine.maintenance.manager import MaintenanceManager
from nyala.engine.maintenance.op import URGENT_SCORE
from nyala.schemas.errors import (
    CorruptionError,
    InvalidArgumentError,
    StorageFullError,
    UnavailableError,
    UnreadableFileError,
)
from nyala.schemas.maintenance import PauseMaintenance
from nyala.schemas.service import MaintenanceKind


@dataclass
class Op:
    name: str
    worth: float
    work: Callable[[], None] = lambda: None

    def score(self) -> float:
        return self.worth

    def perform(self) -> None:
        self.work()


def test_the_best_is_done_first_and_what_is_worth_nothing_never() -> None:
    ops = {name: Op(name, worth) for name, worth in [("small", 0.5), ("large", 2.0), ("nothing", 0.0)]}

    def finished(op: Op) -> Callable[[], None]:
        return lambda: setattr(op, "worth", 0.0)

    for op in ops.values():
        op.work = finished(op)
    manager = MaintenanceManager(lambda: list(ops.values()))
    assert [manager.run_once() for _ in range(4)] == ["large", "small", None, None]
    assert manager.performed == {"large": 1, "small": 1}


def test_without_operations_there_is_nothing_to_do() -> None:
    assert MaintenanceManager(lambda: []).run_once() is None


def test_the_thread_tells_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.001)
    op, told = Op("flush", 1.0), threading.Event()
    op.work = lambda: setattr(op, "worth", 0.0)
    manager = MaintenanceManager(lambda: [op], idle=lambda: told.set() if manager.performed else None)
    manager.start()
    try:
        assert told.wait(5) and manager.performed == {"flush": 1}
    finally:
        manager.stop()


def test_a_failure_of_one_call_is_its_callers() -> None:
    def fail() -> None:
        raise StorageFullError("no room")

    manager = MaintenanceManager(lambda: [Op("flush", 1.0, fail)])
    with pytest.raises(StorageFullError):
        manager.run_once()
    assert manager.performed == {}


@pytest.mark.parametrize("error", [StorageFullError("no room"), ValueError("a bug")], ids=["named", "unforeseen"])
def test_the_thread_survives_failures_and_tries_again(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(module, "_BACK_OFF_SECONDS", 0.001)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.001)
    done, op = threading.Event(), Op("flush", 1.0)
    failures = [error, error]

    def work() -> None:
        if failures:
            raise failures.pop()
        op.worth = 0.0
        done.set()

    op.work = work
    manager = MaintenanceManager(lambda: [op])
    manager.start()
    assert done.wait(20)
    manager.stop()
    assert manager.performed == {"flush": 1}


def test_notify_does_not_wait_for_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 60.0)
    done, op, asked = threading.Event(), Op("flush", 0.0), threading.Event()

    def operations() -> list[Op]:
        asked.set()
        return [op]

    op.work = lambda: (setattr(op, "worth", 0.0), done.set())[0]
    manager = MaintenanceManager(operations)
    manager.start()
    assert asked.wait(20)
    op.worth = 1.0
    manager.notify()
    assert done.wait(20)
    manager.stop()


def test_a_stop_is_heard_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also right before the thread clears what has woken it up."""
    monkeypatch.setattr(module, "_POLL_SECONDS", 60.0)
    manager = MaintenanceManager(lambda: [])
    clear, first = manager._wake.clear, []

    def stopped_before_clearing() -> None:
        if not first:
            first.append(True)
            manager._stopping = True
            manager._wake.set()
        clear()

    monkeypatch.setattr(manager._wake, "clear", stopped_before_clearing)
    started = time.monotonic()
    manager.start()
    manager.stop()
    assert time.monotonic() - started < 30


def test_a_manager_that_was_never_started_stops() -> None:
    MaintenanceManager(lambda: []).stop()


@pytest.mark.parametrize("at", ["score", "perform"])
@pytest.mark.parametrize(
    "error", [CorruptionError("f", 0, "a flip"), UnreadableFileError("f", "EIO")], ids=["wrong", "EIO"]
)
def test_work_that_meets_damage_rests_longer_each_time_and_other_work_goes_on(error: Exception, at: str) -> None:
    tried: list[int] = []
    now = 1_000_000_000

    def fail() -> None:
        tried.append(now)
        raise error

    class Failing(Op):
        def score(self) -> float:
            if at == "score":
                fail()
            return super().score()

    ops = [Failing("compact 1", 2.0, fail), Op("compact 2", 1.0)]
    manager = MaintenanceManager(lambda: ops, now=lambda: now)
    for _ in range(100):
        try:
            assert manager.run_once() == "compact 2"
        except type(error):
            assert tried[-1] == now
        now += 1_000_000
    assert [moment // 1_000_000 - 1000 for moment in tried] == [0, 10, 30, 70]
    assert manager.performed == {"compact 2": 96}


def test_work_that_succeeds_again_is_as_before() -> None:
    now, is_damaged = 0, True

    def work() -> None:
        if is_damaged:
            raise CorruptionError("f", 0, "a flip")

    manager = MaintenanceManager(lambda: [Op("compact", 1.0, work)], now=lambda: now)
    for _ in range(2):
        with pytest.raises(CorruptionError):
            manager.run_once()
        assert manager.run_once() is None
        now += 100_000_000
    is_damaged = False
    assert [manager.run_once() for _ in range(2)] == ["compact", "compact"]


class Kind(Op):
    """Work of a kind, on a table."""

    table = "homes"

    def __init__(self, kind: MaintenanceKind, score: float, work: Callable[[], None] = lambda: None) -> None:
        super().__init__(f"{kind} it", score, work)
        self.kind = kind


def test_paused_work_waits_until_the_pause_ends_or_memory_is_short() -> None:
    day, now = 0, 0.0
    flush, merge = Kind(MaintenanceKind.FLUSH, 3.0), Kind(MaintenanceKind.COMPACT, 2.0)
    manager = MaintenanceManager(lambda: [flush, merge], now=lambda: day, elapsed=lambda: now)
    manager.pause(PauseMaintenance(op="flush", seconds=60))
    assert manager.run_once() == "compact it"
    state = manager.state()
    assert (state.paused, state.due_count, state.is_on) == ({"flush": 60.0}, 2, False)
    assert [(each.name, each.op, each.table, each.score) for each in state.due] == [
        ("flush it", "flush", "homes", 3.0),
        ("compact it", "compact", "homes", 2.0),
    ]
    flush.worth = URGENT_SCORE
    assert manager.run_once() == "flush it"
    flush.worth, now = 3.0, 59.75
    for day in (0, 10**15):  # somebody sets the clock
        assert manager.state().paused == {"flush": day / 1e6 + 0.25}
    assert manager.run_once() == "compact it"
    now = 60.0
    assert manager.run_once() == "flush it" and manager.state().paused == {}
    manager.pause(PauseMaintenance(seconds=60))
    assert manager.run_once() is None and set(manager.state().paused) == set(MaintenanceKind)
    manager.pause(PauseMaintenance(op="compact", seconds=0))
    assert manager.run_once() == "compact it"
    with pytest.raises(InvalidArgumentError, match="unknown maintenance operation 'defragment'"):
        manager.pause(PauseMaintenance(op="defragment", seconds=1))


def test_what_runs_and_was_done_is_told() -> None:
    seen: list[list[str]] = []
    now = 5_000_000

    def fail() -> None:
        seen.append(manager.state().running)
        raise UnavailableError("not now")

    op = Kind(MaintenanceKind.GC, 1.0, fail)
    manager = MaintenanceManager(lambda: [op], now=lambda: now)
    with pytest.raises(UnavailableError):
        manager.run_once()
    op.work = lambda: None
    manager.run_once()
    state = manager.state()
    assert seen == [["gc it"]] and state.running == []
    assert [(each.name, each.op, each.table, each.error) for each in state.done] == [
        ("gc it", "gc", "homes", ""),
        ("gc it", "gc", "homes", "UNAVAILABLE"),
    ]
    assert state.done[0].ended == 5.0 and 0 <= state.done[0].seconds < 5
    for _ in range(300):
        manager.run_once()
    assert len(manager.state().done) == 100
