"""Every N-th call of a bucket fails, or is the last: success or a named error, and what was acknowledged is there."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from tests.doubles import faulty_bucket
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


class History:
    """What a workload knows of each row: its acknowledged value, and those that may have come to be since."""

    def __init__(self) -> None:
        self.acked: dict[int, int | None] = {}
        self.open: dict[int, set[int | None]] = {}

    def change(self, store: Store, ids: range, v: int | None) -> None:
        """Upsert rows with a value, or delete them; a failure leaves their outcome open."""
        for each in ids:
            self.open.setdefault(each, set()).add(v)
        table = Database(store).table("t")
        if v is None:
            table.delete([{"id": each} for each in ids])
        else:
            table.upsert([{"id": each, "v": v} for each in ids])
        for each in ids:
            self.acked[each] = v
            del self.open[each]

    def check(self, store: Store) -> None:
        found = {row["id"]: row["v"] for row in Database(store).table("t").scan().to_arrow().to_pylist()}
        for each in self.acked.keys() | self.open.keys() | found.keys():
            allowed = {self.acked.get(each), *self.open.get(each, ())}
            assert found.get(each) in allowed, f"row {each} is {found.get(each)}, not one of {allowed}"


def work(machine: Machine, history: History) -> None:
    """Write, flush, compact, restart."""
    for life in range(2):
        store = Store.open(machine.home(), OPTIONS)
        try:
            if life == 0:
                Database(store).create_table("t", SCHEMA, ["id"])
            for turn in range(2):
                history.change(store, range(20 * turn, 20 * turn + 40), 10 * life + turn)
                store.maintain("t", "flush")
            history.change(store, range(5), None)
            store.maintain("t", "compact")
            history.change(store, range(50, 70), 10 * life + 5)
        finally:
            store.close()


def checked(machine: Machine, history: History) -> None:
    """Open the store elsewhere, and compare; nothing named is missing, and nothing is left behind but by a holder."""
    with Store.open(machine.other().home(), OPTIONS) as store:
        if "t" not in store.tables():
            assert not history.acked, "the table was acknowledged"
            return
        history.check(store)
        history.change(store, range(100, 110), 1)
        store.maintain("t", "flush")
        history.check(store)
    home = machine.other().home()
    report = verify_bucket(home)
    assert report.is_sound, report.problems
    sweep(home)
    assert not leftovers(home)


def calls() -> int:
    machine = Machine()
    work(machine, History())
    return len(machine.objects.calls)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.TWICE, Fault.LATE, Fault.CONFLICT])
def test_any_one_call_may_fail(fault: Fault) -> None:
    count = calls()
    assert count > 60
    for number in range(1, count + 1, STEP):
        machine, history = Machine(), History()
        machine.objects.faults[number] = fault
        work(machine, history)
        machine.objects.land_late_ones()
        checked(machine, history)


class MachineGoneError(Exception):
    """Nothing answers that can be asked again."""


def test_any_call_may_be_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    count = calls()

    def gone(fault: object, verb: str, name: str) -> Exception:
        del fault
        return MachineGoneError(f"{verb} {name}")

    monkeypatch.setattr(faulty_bucket, "_error_of", gone)
    for number in range(0, count + 1, STEP):
        machine, history = Machine(), History()
        machine.objects.away_from = number
        with suppress(StoreError, MachineGoneError):
            work(machine, history)
        checked(machine, history)


STEP = 11
"""Calls of one run; another step sees others."""
