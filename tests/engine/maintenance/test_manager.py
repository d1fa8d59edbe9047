"""The manager: the best first, nothing when nothing is worth it, and no failure ends it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from nyala.engine.maintenance import manager as module
from nyala.engine.maintenance import rests
from nyala.engine.maintenance.manager import MaintenanceManager
from nyala.engine.maintenance.op import URGENT_SCORE
from nyala.schemas.errors import (
    CorruptionError,
    InvalidArgumentError,
    StorageFullError,
    UnavailableError,
    UnreadableFileError,
)
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.store.maintenance import FailingWork, PauseMaintenance


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
    monkeypatch.setattr(rests, "_PASSING_SECONDS", (0.001, 0.001))
    monkeypatch.setattr(rests, "_LASTING_SECONDS", (0.001, 0.001))
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


def test_the_thread_survives_that_no_work_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACK_OFF_SECONDS", 0.001)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.001)
    done, failures = threading.Event(), [ValueError(), StorageFullError("no room")]

    def operations() -> list[Op]:
        if failures:
            raise failures.pop()
        return [] if done.is_set() else [Op("flush", 1.0, done.set)]

    manager = MaintenanceManager(operations)
    manager.start()
    assert done.wait(20)
    manager.stop()


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


DAMAGE = [CorruptionError("f", 0, "a flip"), UnreadableFileError("f", "EIO")]
PASSING = [StorageFullError("no room"), UnavailableError("the disk fails"), MemoryError()]


@pytest.mark.parametrize("at", ["score", "perform"])
@pytest.mark.parametrize(
    ("error", "moments"),
    [
        *((error, [0, 10, 30, 70, 150, 310]) for error in (*DAMAGE, InvalidArgumentError("no"), ValueError("a bug"))),
        *((error, [0, 5, 15, 35, 75, 115, 155, 195, 235, 275, 315]) for error in PASSING),
    ],
    ids=lambda value: type(value).__name__,
)
def test_work_that_fails_rests_longer_each_time_and_other_work_goes_on(
    error: Exception, moments: list[int], at: str
) -> None:
    tried: list[float] = []
    now = 1000.0

    def fail() -> None:
        tried.append(now - 1000)
        raise error

    class Failing(Op):
        def score(self) -> float:
            if at == "score":
                fail()
            return super().score()

    ops = [Failing("compact 1", 2.0, fail), Op("compact 2", 1.0)]
    manager = MaintenanceManager(lambda: ops, elapsed=lambda: now)
    for _ in range(340):
        try:
            assert manager.run_once() == "compact 2"
        except type(error):
            assert tried[-1] == now - 1000
        now += 1
    assert tried == moments
    assert manager.performed == {"compact 2": 340 - len(moments)}


def test_no_rest_is_longer_than_an_hour() -> None:
    tried, now = 0, 0.0

    def fail() -> None:
        nonlocal tried
        tried += 1
        raise ValueError("a bug")

    manager = MaintenanceManager(lambda: [Op("flush", 1.0, fail)], elapsed=lambda: now)
    for _ in range(100_000):
        with suppress(ValueError):
            manager.run_once()
        now += 10
    assert 1_000_000 / 3600 <= tried < 1_000_000 / 3600 + 12


def test_work_that_fails_is_told_until_it_succeeds_or_is_gone() -> None:
    day, now, error = 5_000_000, 0.0, None

    def work() -> None:
        if error:
            raise error

    op, ops = Kind(MaintenanceKind.COMPACT, 1.0, work), []
    ops.append(op)
    manager = MaintenanceManager(lambda: ops, now=lambda: day, elapsed=lambda: now)

    def fail(with_error: Exception) -> None:
        nonlocal error
        error = with_error
        with pytest.raises(type(error)):
            manager.run_once()
        error = None

    fail(StorageFullError("no room"))
    day, now = 15_000_000, 10.0
    fail(ValueError("secret"))
    assert (
        manager.failing()
        == manager.state().failing
        == [
            FailingWork(
                name="compact it",
                op="compact",
                table="homes",
                error="INTERNAL: a bug, which the log shows",
                failures=2,
                since=5.0,
                next_try=25.0,
            )
        ]
    )
    assert manager.run_once() is None
    manager.retry("others")
    assert manager.run_once() is None
    manager.retry("homes")
    assert manager.run_once() == "compact it" and manager.failing() == []
    fail(ValueError())
    now += 10
    op.worth = 0.0
    assert manager.run_once() is None and manager.failing() == []
    op.worth = 1.0
    fail(ValueError())
    ops.clear()
    assert manager.run_once() is None and manager.failing() == []


def test_the_thread_does_other_work_while_one_piece_always_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 60.0)
    monkeypatch.setattr(module, "_BACK_OFF_SECONDS", 60.0)
    done = threading.Event()

    def fail() -> None:
        raise ValueError("a bug")

    ops = [Op(f"flush {number}", 2.0, fail) for number in range(20)] + [Op("compact", 1.0, done.set)]
    manager = MaintenanceManager(lambda: ops if not done.is_set() else [])
    manager.start()
    assert done.wait(20)
    manager.stop()
    assert manager.performed == {"compact": 1}


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
    manager.retry("homes")
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
