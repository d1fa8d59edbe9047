"""Work past the server of a store in a bucket, in which one call to the bucket fails, or is the last of its machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.schemas.errors import StoreError
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import Machine

Seen = TypeVar("Seen")
FAULTS = [Fault.BEFORE, Fault.AFTER, Fault.TWICE, Fault.LATE]


class MachineGoneError(Exception):
    """Nothing answers that can be asked again."""


@dataclass(frozen=True)
class FailingCalls(Generic[Seen]):
    """``work`` notes in what ``seen`` returns how far it came, and ``check`` what must be true then. One run after the
    other has its fault ``step`` calls later; another step sees others."""

    seen: Callable[[], Seen]
    work: Callable[[Machine, Seen], None]
    check: Callable[[Machine, Seen], None]
    step: int

    def one_fails(self, fault: Fault) -> None:
        """Let one call fail in each run, which goes on."""
        for number in range(1, self._count() + 1, self.step):
            machine, seen = Machine(), self.seen()
            machine.objects.faults[number] = fault
            self.work(machine, seen)
            machine.objects.land_late_ones()
            self.check(machine, seen)

    def one_is_the_last(self) -> None:
        """Let each run end with another call."""
        for number in range(0, self._count() + 1, self.step):
            machine, seen = Machine(), self.seen()
            machine.objects.away_from = number
            machine.objects.error_of = lambda fault, verb, name: MachineGoneError(f"{verb} {name}")
            with suppress(StoreError, MachineGoneError):
                self.work(machine, seen)
            self.check(machine, seen)

    def _count(self) -> int:
        machine = Machine()
        self.work(machine, self.seen())
        return len(machine.objects.calls)


def check_sound(machine: Machine) -> None:
    """Nothing is missing in the bucket, and once it is swept nothing stays behind."""
    home = machine.other().home()
    report = verify_bucket(home)
    assert report.is_sound, report.problems
    sweep(home)
    assert not leftovers(home)
