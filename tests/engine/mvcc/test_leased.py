"""Snapshots of a store whose log may be out of reach."""

import threading

import pytest

from nyala.engine.mvcc.clock import timestamp_of
from nyala.engine.mvcc.leased import LeasedMvcc
from nyala.engine.scan.plan.snapshots import Snapshots
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from tests.doubles.clock import ManualClock


class Held:
    """The store is ours for good."""

    safe = 0
    ceiling = 1 << 62

    def check(self) -> None:
        """Nobody else has it."""

    def reach(self, timestamp: int) -> None:
        """The ceiling is high enough."""


def test_nobody_waits_for_ever_for_what_is_in_flight() -> None:
    mvcc = LeasedMvcc(ManualClock(), Held(), 0.05)
    in_flight = mvcc.start()
    errors: list[UnavailableError] = []

    def wait() -> None:
        try:
            mvcc.wait_for(in_flight)
        except UnavailableError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(10)
    assert [error.message for error in errors] == [
        f"timestamp {in_flight} was not readable after 0.05 s: commits are in flight"
    ]
    mvcc.finish(in_flight)
    mvcc.wait_for(in_flight)


class Short(Held):
    """The log allows little, until it is asked for more."""

    safe = ceiling = 0

    def reach(self, timestamp: int) -> None:
        self.ceiling = timestamp + 1


def test_one_who_follows_a_clock_that_is_ahead_asks_the_log() -> None:
    """Else servers whose clocks differ by more than a lease would have no snapshot of both."""
    mvcc = LeasedMvcc(ManualClock(), Short(), 0.05)
    ahead = mvcc.now() + 1_000_000
    mvcc.wait_for(ahead)
    assert mvcc.now() > ahead


def test_no_snapshot_is_handed_out_that_the_log_does_not_allow() -> None:
    tenure = Short()
    tenure.reach = lambda timestamp: None
    mvcc = LeasedMvcc(ManualClock(), tenure, 0.05)
    with pytest.raises(UnavailableError, match="later than the log allows now"):
        mvcc.wait_for(mvcc.now() + 1_000_000)


class Lapsed(Held):
    """The lease is over; the log had much before."""

    safe = 1 << 62

    def check(self) -> None:
        raise UnavailableError("the lease is over")


def test_the_past_is_read_without_a_lease_whatever_the_time_of_day() -> None:
    """Timestamps follow the clocks of former holders, which may have been an hour ahead of this one."""
    clock = ManualClock()
    mvcc = LeasedMvcc(clock, Lapsed(), 0.05)
    past = mvcc.now()
    mvcc.finish(mvcc.start())
    clock.jump(-3_600_000_000)
    snapshots = Snapshots(clock, mvcc, clock_error_seconds=1)
    snapshots.check_not_ahead(past, past, "as_of")
    mvcc.wait_for(past)
    with pytest.raises(InvalidArgumentError, match=r"as_of .* is in the future"):
        snapshots.check_not_ahead(past + timestamp_of(2_000_000), past, "as_of")
    with pytest.raises(UnavailableError, match="lease is over"):
        mvcc.snapshot()
