"""One fault at one call of a workload over a bucket: what may come of it, and what must be true after it."""

from __future__ import annotations

from contextlib import suppress

from nyala.engine.bucket import PatientBucket
from nyala.schemas.errors import StoreError
from tests.doubles.faulty_bucket import Fault, impatience
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.home.bucket_workloads import History, check, run

SINGLE = {fault.name.lower(): fault for fault in Fault}
STALLS = {"stall before": Fault.BEFORE, "stall after": Fault.AFTER}
DEATH = "death"
KINDS = (*SINGLE, *STALLS, DEATH)
STALL_CALLS = 30
"""More than one caller makes before it gives up."""
HASTY = OPTIONS.model_copy(update={"log_patience_seconds": 0.02})


class MachineGoneError(Exception):
    """Nothing answers that can be asked again."""


def trial(workload: str, kind: str, number: int) -> None:
    """Run a workload in which the call of this number, from 1 on, has a fault, and check what is there then."""
    machine, history = Machine(), History()
    if kind in SINGLE:
        machine.objects.faults[number] = SINGLE[kind]
        run(machine, workload, history)
        if SINGLE[kind] is Fault.FORBIDDEN:
            history.check_errors()
        else:
            assert not history.errors, "one request is repeated"
    elif kind in STALLS:
        machine.bucket = PatientBucket(machine.objects, impatience(3))
        machine.objects.faults.update(dict.fromkeys(range(number, number + STALL_CALLS), STALLS[kind]))
        run(machine, workload, history, HASTY)
        history.check_errors()
    else:
        machine.objects.away_from = number
        machine.objects.error_of = lambda fault, verb, name: MachineGoneError(f"{verb} {name}")
        with suppress(StoreError, MachineGoneError):
            run(machine, workload, history)
    check(machine, history)
