"""Which replica a client asks, and who answers if that one does not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from nyala.clients.flight.holder_client import HolderClient
from nyala.clients.flight.replicas import Replicas
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.whereabouts import Whereabouts
from tests.doubles.waiting import until


class Processes:
    """A holder and replicas, with how far each is behind, as a client of them sees them."""

    def __init__(self, **lags: float | None) -> None:
        self.answers: dict[str, Whereabouts | StoreError] = {
            name: Whereabouts(state="standby", lag_seconds=lag) for name, lag in lags.items()
        }
        self.answers["holder"] = Whereabouts(state="holder")
        self.failures: dict[str, StoreError] = {}
        self.strangers: set[str] = set()
        self.asked: list[str] = []
        self.looks = 0
        self.replicas = Replicas(cast(HolderClient, self))

    def told(self) -> dict[str, Whereabouts | StoreError]:
        self.looks += 1
        return self.answers

    def confirm_at(self, location: str) -> None:
        if location in self.strangers:
            raise InvalidArgumentError(f"{location} has another store")

    def client_at(self, location: str) -> Any:
        return location

    def scan(self, max_staleness: float | None) -> str:
        """Return who answered."""

        def ask(client: Any) -> str:
            name = "holder" if client is self else client
            self.asked.append(name)
            if name in self.failures:
                raise self.failures[name]
            return name

        return self.replicas.ask(ScanSpec(table="t", max_staleness=max_staleness), ask)


MANY = 40
"""So many clients do not all pick the same one of two at random."""


def answered(staleness: float, make: Callable[[], Processes]) -> set[str]:
    """Return who answered any of many clients."""
    return {make().scan(staleness) for _ in range(MANY)}


def test_a_replica_is_preferred_that_is_not_further_behind_than_the_scan_allows() -> None:
    assert answered(2, lambda: Processes(near=0.1, far=60.0)) == {"near"}
    assert answered(0, lambda: Processes(near=0.1, far=60.0)) == {"near"}, "none is there yet: the nearest one may be"
    assert answered(90, lambda: Processes(near=0.1, far=60.0)) == {"near", "far"}
    assert answered(2, lambda: Processes(near=0.1, none=None)) == {"near"}
    assert answered(2, lambda: Processes(none=None)) == {"holder"}


def test_a_client_stays_with_one_for_each_staleness() -> None:
    processes = Processes(a=0.1, b=0.1, c=60.0)
    assert len({processes.scan(2) for _ in range(MANY)}) == 1
    assert processes.looks == 1
    assert processes.scan(None) == "holder"


def test_the_others_are_asked_and_then_the_holder() -> None:
    processes = Processes(near=0.1, far=60.0)
    processes.failures["near"] = UnavailableError("it is behind")
    assert processes.scan(2) == "far" and processes.asked == ["near", "far"]
    processes.failures["far"] = UnavailableError("it is behind")
    assert processes.scan(2) == "holder" and processes.asked[2:] == ["far", "holder"]
    assert processes.scan(2) == "holder" and processes.asked[4:] == ["holder"], "not asked again for some seconds"
    assert processes.looks == 1


def test_what_a_replica_does_not_know_the_holder_is_asked_at_once() -> None:
    processes = Processes(a=0.1, b=0.1)
    processes.failures = {name: NotFoundError("there is no such table") for name in "ab"}
    assert processes.scan(2) == "holder" and len(processes.asked) == 2


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_process_with_another_store_is_not_asked(first: str) -> None:
    processes = Processes(a=0.1, b=0.1)
    processes.strangers.add(first)
    assert {processes.scan(2) for _ in range(4)} == {"a", "b"} - {first}
    processes.strangers |= {"a", "b"}
    processes.replicas._until = 0.0
    assert processes.scan(2) == "holder"


def test_a_look_that_takes_long_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A location that is gone is waited for by one: the others go on as before, at first with the holder."""
    processes = Processes(a=0.1)
    asked, may_end = threading.Event(), threading.Event()

    def told() -> dict[str, Whereabouts | StoreError]:
        processes.looks += 1
        asked.set()
        assert may_end.wait(60)
        return processes.answers

    monkeypatch.setattr(processes, "told", told)
    for before in ("holder", "a"):
        asked.clear()
        may_end.clear()
        processes.replicas._until = 0.0
        found: list[str] = []
        looking = threading.Thread(target=lambda to=found: to.append(processes.scan(2)))
        looking.start()
        assert asked.wait(60)
        others = [threading.Thread(target=lambda to=found: to.append(processes.scan(2))) for _ in range(3)]
        for other in others:
            other.start()
        until(lambda to=found: len(to) == 3)
        may_end.set()
        for thread in (looking, *others):
            thread.join(60)
        assert found == [before, before, before, "a"]
    assert processes.looks == 2
