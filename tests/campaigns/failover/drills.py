"""Drills of two machines with one store: each does to them what a mistake in the protocol would not survive.

A drill raises AssertionError, or what the store raises, if a promise is broken. Machines are doubles in one process, so
that a fault comes at exactly one call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError, UnavailableError
from tests.doubles.clock import ManualClock
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
_NOON = 1_700_000_000 * 1_000_000
_HOUR = 3_600 * 1_000_000
_MANY = 300
"""Slots after which a log is freed."""


def opened(machine: Machine, **more: Any) -> Store:
    return Store.open(machine.home(), OPTIONS, **more)


def made(machine: Machine, **more: Any) -> Store:
    store = opened(machine, **more)
    Database(store).create_table("t", SCHEMA, ["id"])
    return store


def put(store: Store, *ids: int) -> None:
    Database(store).table("t").upsert([{"id": each, "v": "x"} for each in ids])


def ids(store: Store, **scan: Any) -> set[int]:
    return {row["id"] for row in Database(store).table("t").scan(**scan).to_arrow().to_pylist()}


def end(*stores: Store) -> None:
    for store in stores:
        with suppress(StoreError):
            store.close()


def a_zombie_reads() -> None:
    """A holder is cut off until another has the store and wrote; then it is asked what is there now."""
    first = Machine()
    old = made(first)
    put(old, 1)
    first.objects.is_away = True
    new = opened(first.other())
    put(new, 2)
    first.objects.is_away = False
    with suppress(UnavailableError):
        assert ids(old) == {1, 2}, "a stale read"
    end(old, new)


def a_zombie_hears_late() -> None:
    """A holder's write lands, and its answer comes after another has the store and wrote."""
    first = Machine()
    old = made(first)
    others: list[Store] = []

    def elsewhere() -> None:
        others.append(opened(first.other()))
        put(others[0], 2)

    _once(first, "/log/", after=elsewhere)
    with suppress(UnavailableError):
        put(old, 1)
    with suppress(UnavailableError):
        assert ids(old) == {1, 2}, "a stale read"
    end(old, *others)


def a_zombie_writes() -> None:
    """A holder is cut off; what it acknowledges, then and when it is back, is there for the next one."""
    first = Machine()
    old = made(first)
    acked = {1}
    put(old, 1)
    first.objects.is_away = True
    acked |= _acknowledged(old, 2)
    second = first.other()
    new = opened(second)
    theirs = set(range(10, 10 + _MANY))
    for each in theirs:
        put(new, each)
    new.maintain("t", "flush")
    new.close()  # it frees the log
    first.objects.is_away = False
    acked |= _acknowledged(old, 4)
    end(old)
    again = opened(first.other())
    assert acked | theirs <= ids(again), "an acknowledged write is lost"
    end(again)


def a_clock_goes_back() -> None:
    """A holder hands out a snapshot and dies; the next one's time of day is an hour behind, and it writes."""
    first = Machine()
    old = made(first, clock=ManualClock(_NOON))
    put(old, 1)
    moment = old.now()
    first.objects.is_away = True
    new = opened(first.other(), clock=ManualClock(_NOON - _HOUR))
    put(new, 2)
    first.objects.is_away = False
    assert ids(new, as_of=moment) == {1}, "a snapshot has changed"
    end(old, new)


def a_claim_comes_late() -> None:
    """A claimant stands still before its claim is sent; the holder goes on meanwhile, and frees that slot."""
    first = Machine()
    old = made(first)
    second = first.other()

    def meanwhile() -> None:
        for each in range(_MANY):
            put(old, each)
        old.maintain("t", "flush")
        old.run_maintenance_once()

    _once(second, "/log/", before=meanwhile)
    new = opened(second)
    assert ids(new) == set(range(_MANY)), "acknowledged writes are lost"
    end(old, new)


DRILLS: dict[str, Callable[[], None]] = {
    "no lease": a_zombie_reads,
    "lease from the answer": a_zombie_hears_late,
    "acks unknown": a_zombie_writes,
    "refusal is mine": a_zombie_writes,
    "ceiling ignored": a_clock_goes_back,
    "claims at once": a_zombie_reads,
    "claims deleted": a_zombie_writes,
    "no look above": a_claim_comes_late,
}
"""Which finds which planted mistake."""


def _acknowledged(store: Store, number: int) -> set[int]:
    """Write a row; return it if that was acknowledged."""
    try:
        put(store, number)
    except UnavailableError:
        return set()
    return {number}


def _once(
    machine: Machine, where: str, before: Callable[[], object] | None = None, after: Callable[[], object] | None = None
) -> None:
    """Do something before or after the next object is made whose name has ``where`` in it."""
    objects: Any = machine.objects
    makers = {"put": objects.put, "put_if_absent": objects.put_if_absent}

    def watched(verb: str) -> Callable[[str, Any], None]:
        def make(name: str, content: Any) -> None:
            if where not in name:
                makers[verb](name, content)
                return
            for each in makers:
                setattr(objects, each, makers[each])
            if before:
                before()
            makers[verb](name, content)
            if after:
                after()

        return make

    for verb in makers:
        setattr(objects, verb, watched(verb))
