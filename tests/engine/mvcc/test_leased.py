"""Snapshots of a store whose log may be out of reach."""

import threading

from nyala.engine.mvcc.leased import LeasedMvcc
from nyala.schemas.errors import UnavailableError
from tests.doubles.clock import ManualClock


class Held:
    """The store is ours for good."""

    safe = 0
    ceiling = 1 << 62

    def check(self) -> None:
        """Nobody else has it."""


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
